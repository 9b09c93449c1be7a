"""What a step of each job is worth, and what every number of workers is worth by it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from punctual.optim.solution import BoolArray, FloatArray, IntArray

#: The unit in which volumes are compared, device-seconds; smaller ones than `_LEAST_VOLUME_S` count as that.
_UNIT_S = 3600.0
_LEAST_VOLUME_S = 60.0
#: Also what is nearly done lasts so long.
_LEAST_LASTS_S = 1e-3


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Facts:
    """What the worth of n jobs depends on, one entry each.

    Attributes
    ----------
    weights
        Declared.
    remaining
        Steps left; NaN: nobody knows.
    attained_s
        Device-seconds held so far.
    best, fastest
        Steps per second: per device where that is most, and at most.
    left_s
        Seconds to the deadline; infinite without one.
    promised
        Whether the deadline is promised.
    startup_s, resize_s
        Training time that a start and a change cost.
    columns
        Column of what each has now; 0: nothing.
    is_new
        Whether it has never run.
    """

    weights: FloatArray
    remaining: FloatArray
    attained_s: FloatArray
    best: FloatArray
    fastest: FloatArray
    left_s: FloatArray
    promised: BoolArray
    startup_s: FloatArray
    resize_s: FloatArray
    columns: IntArray
    is_new: BoolArray

    @classmethod
    def of(cls, rows: Sequence[tuple[float, ...]]) -> "Facts":
        """From one row for each job, in the order of the attributes."""
        table = np.array(rows, dtype=np.float64).reshape(len(rows), 11).T
        whole = {"columns": np.int64, "promised": np.bool_, "is_new": np.bool_}
        named = zip(cls.__dataclass_fields__, table, strict=True)
        return cls(**{name: column.astype(whole.get(name, np.float64)) for name, column in named})


@dataclass(frozen=True, slots=True, kw_only=True)
class Worth:
    """The parameters of what is worth how much; see `punctual.policies.promises_first`."""

    volume_power: float
    urgency: float
    urgency_power: float
    prior_s: float
    lasting_s: float
    steadiness: float

    def volumes_s(self, facts: Facts) -> FloatArray:
        """Least device-seconds left; where the end is not known, as many as were held already."""
        known = facts.remaining / facts.best
        guess = np.maximum(self.prior_s, facts.attained_s)
        return np.maximum(_LEAST_VOLUME_S, np.where(np.isnan(known), guess, known))

    def of_steps(self, facts: Facts) -> FloatArray:
        """Worth of one step of each job."""
        volume = self.volumes_s(facts) / _UNIT_S
        plain = facts.weights / facts.best * volume**-self.volume_power
        return plain * (1.0 + self.urgency * self.tightness(facts) ** 2 * volume**-self.urgency_power)

    def tightness(self, facts: Facts) -> FloatArray:
        """Share of the time to the deadline that the job needs at its fastest; 0 without one, if promised, if late."""
        room_s = facts.left_s - facts.startup_s
        with np.errstate(divide="ignore", invalid="ignore"):
            tight = np.nan_to_num(facts.remaining / (facts.fastest * room_s), nan=0.0, posinf=0.0)
        return np.where((room_s > 0) & (tight <= 1.0) & ~facts.promised, tight, 0.0)

    def table(self, facts: Facts, rates: FloatArray) -> FloatArray:
        """Worth per second of every column, shape of `rates`: steps, less those that a change loses."""
        by_step = self.of_steps(facts)
        rows = np.arange(len(rates))
        now = rates[rows, facts.columns]
        with np.errstate(divide="ignore", invalid="ignore"):
            lasts_s = np.nan_to_num(facts.remaining[:, None] / rates, nan=self.lasting_s, posinf=self.lasting_s)
        holds = facts.columns > 0
        lost_s = np.where(holds, facts.resize_s, facts.startup_s)[:, None]
        kept_frac = 1.0 - lost_s / (np.clip(lasts_s, _LEAST_LASTS_S, self.lasting_s) + lost_s)
        value = by_step[:, None] * rates * kept_frac
        value[:, 0] = -by_step * now * np.minimum(1.0, facts.startup_s / self.lasting_s)
        value[rows, facts.columns] = by_step * now * (1.0 + self.steadiness)
        return value
