"""Facts about a job that only its executor has."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Self

from punctual.channel import DeviceUse, WorkerStatus
from punctual.core.errors import InvalidSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFacts:
    """Facts about one job; each that its executor does not have keeps its default.

    * `workers`: workers as last counted by the job's agent, and the costs of their changes; None: it has none.
    * `device`: device that the job computes on, as last reported by its process; None: it reports none.
    * `faults`: work that a job which ended with success declared and did not do.
    * `group`: address, port and key with which the job's processes on other nodes reach it; None: it has none. An executor
      of one machine does not know its address.
    """

    workers: WorkerStatus | None = None
    device: DeviceUse | None = None
    faults: Sequence[InvalidSpec] = ()
    group: tuple[str, int, str] | None = None

    def as_fields(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return {
            "workers": None if self.workers is None else asdict(self.workers),
            "device": None if self.device is None else asdict(self.device),
            "faults": [fault.as_fields() for fault in self.faults],
            "group": None if self.group is None else list(self.group),
        }

    @classmethod
    def from_fields(cls, fields: Mapping[str, Any]) -> Self:
        """Return the facts that `as_fields` encoded."""
        workers, device, group = fields.get("workers"), fields.get("device"), fields.get("group")
        return cls(
            workers=None if workers is None else WorkerStatus(**workers),
            device=None if device is None else DeviceUse(**device),
            faults=tuple(map(InvalidSpec.from_fields, fields.get("faults", ()))),
            group=None if group is None else (str(group[0]), int(group[1]), str(group[2])),
        )
