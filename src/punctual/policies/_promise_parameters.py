"""The parameters of `promises-first` that decide which deadlines are promised."""

from dataclasses import dataclass
from typing import Literal

from punctual.policies._base import PolicyBase

#: Treatment of a job whose deadline cannot be promised: it runs as well as it can, or is turned away; or no
#: deadlines are promised at all.
Admission = Literal["best-effort", "decline", "none"]

#: Promises take no more of the devices than this, unless all that is done is what was promised.
_PROMISED_FRAC = 0.05

#: Preferred time of work in the plan of the promises.
Work = Literal["late", "early"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromiseParameters(PolicyBase):
    """Parameters that `PromisesFirst` hands on to its admission control; it describes them."""

    admission: Admission = "best-effort"
    work: Work = "late"
    promised_frac: float | None = None
    risk_sigmas: float = 1.0
    max_wait_s: float = 14_400.0
    prior_s: float = 600.0
    background_frac: float = 0.05

    def __post_init__(self) -> None:
        PolicyBase.__post_init__(self)
        if self.promised_frac is not None and self.promised_frac > 1:
            must = "`promised_frac` must be from 0 to 1"
            raise self._wrong(must, repr(self.promised_frac), "Give a share of the devices, as 0.4.")
        if self.background_frac >= 1:
            must = "`background_frac` must be from 0 to below 1"
            raise self._wrong(must, repr(self.background_frac), "Give a share of the cores, as 0.05.")

    @property
    def promises(self) -> bool:
        """Whether any deadline is promised."""
        return self.admission != "none"

    @property
    def offered_fracs(self) -> dict[bool, float]:
        """Share of the devices that promises may take, by whether these are GPUs; of cores, as much as jobs on shares."""
        frac = 1.0 if self.promised_frac is None and self.admission == "decline" else self.promised_frac
        if frac is not None:
            return {True: frac, False: frac}
        return {True: _PROMISED_FRAC, False: 1.0 - self.background_frac}
