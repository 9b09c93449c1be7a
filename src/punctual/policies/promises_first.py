"""Promised deadlines first; what is left goes where a device-second is worth most."""

from dataclasses import dataclass
from typing import Literal

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.policies._base import check_choice, check_not_negative
from punctual.policies._extra import check_numpy

Admission = Literal["best-effort", "decline", "none"]

_NAME = "promises-first"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromisesFirst:
    admission: Admission = "best-effort"
    volume_power: float = 0.2
    urgency: float = 3.0
    urgency_power: float = 0.5
    caution: float = 1.0
    lasting_s: float = 600.0
    steadiness: float = 0.02
    welcome: float = 1.0
    patience_s: float = 14_400.0
    prior_s: float = 600.0

    def __post_init__(self) -> None:
        check_choice(_NAME, "admission", self.admission, ("best-effort", "decline", "none"))
        for name, unit in (
            ("volume_power", ""), ("urgency", ""), ("urgency_power", ""), ("caution", "standard deviations"),
            ("lasting_s", "s"), ("steadiness", ""), ("welcome", ""), ("patience_s", "s"), ("prior_s", "s"),
        ):  # fmt: skip
            check_not_negative(_NAME, name, getattr(self, name), unit)

    def allocate(self, snapshot: Snapshot) -> Plan:
        check_numpy(_NAME)
        from punctual.policies._round import Round

        return Round(snapshot, self).plan()
