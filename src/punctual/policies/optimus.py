"""Workers and servers go, one by one, where they shorten training most for what they take."""

from dataclasses import dataclass, replace
from math import isfinite

from punctual.core.cluster import Snapshot
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources
from punctual.policies._balanced_placement import BalancedPlacement
from punctual.policies._base import PolicyBase
from punctual.policies._jobs import never_fits, seniority, waits
from punctual.policies._marginal import Race
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._repair import apply_demands, repair, start_rigid


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimus(PolicyBase):
    """Gives every job the least it needs, and what is left, piece by piece, to the largest gain of time.

    Use it for elastic jobs with parameter servers, where more workers or more servers is a question of the job's speed; it
    also takes jobs without servers. It pauses no job, does not look at deadlines, and favours jobs that are long and
    still speed up.

    Parameters
    ----------
    interval_s
        Running jobs are resized no more often than this; in between jobs only start, with their least. 0: all is decided
        anew at every change.
    young_frac
        A job counts as young until it has done this share of its declared steps.
    young_factor
        Factor on the gains of young jobs, whose length and speed are least certain.

    Raises
    ------
    InvalidSpec
        A parameter is outside of its range.

    Notes
    -----
    *Symbols.* Job j with w workers and p servers, Q_j its remaining steps, f_j(p, w) its steps per second, u the weight,
    times `young_factor` for young jobs; D(x) = max_k x_k / C_k the dominant share of an amount x.

    *Formula.* All jobs get their least number of workers and one server, those that run first, then the oldest. Then, as
    long as something fits and gains, the job with the largest ``u (Q/f(p, w) - Q/f(p, w+1)) / D(worker)`` gets a worker
    or, if that of a server is larger, a server.

    *Source.* [optimus2018].

    *Differs.* (1) Gains are per share of the cluster, not per amount, so that jobs with different dominant resources can
    be compared. (2) If the largest gain does not fit, the next ones are tried. (3) Jobs start as soon as their least
    fits, without waiting for the interval. (4) A job that runs keeps its nodes if its numbers stay, and is not enlarged
    if that gains less time than the resize costs. (5) Jobs have weights and allowed numbers. (6) Where nothing is known
    of a job's speed or length it comes after all others. (7) Jobs without workers get their demand, or what one node has
    of it, before the others share the rest. (8) Placement: see `punctual.optim.placement.place_evenly`; a least that
    fits in no equal parts is placed anyhow.

    *Properties.* Deterministic; O(steps log jobs) for the pieces handed out, O(log nodes) for each piece placed.

    *Fails when* a gain needs a worker and a server at once, or several workers. Long jobs come before short ones.
    """

    interval_s: float = 600.0
    young_frac: float = 0.05
    young_factor: float = 0.95

    def __post_init__(self) -> None:
        self._check_not_negative("interval_s", "s")
        for parameter in ("young_frac", "young_factor"):
            share = getattr(self, parameter)
            if not 0 <= share <= 1 or (parameter == "young_factor" and share == 0):
                must, remedy = f"`{parameter}` must be a share", "Give a number up to 1, above zero for `young_factor`."
                raise self._wrong(must, str(share), remedy)

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        next_at = _instant(builder.carry.get("next_at"))
        is_due = next_at is None or snapshot.at >= next_at
        if is_due or next_at is None:
            next_at = snapshot.at + self.interval_s
        idle = repair(builder)
        apply_demands(builder)
        waiting = sorted((*snapshot.waiting, *idle), key=seniority)
        start_rigid(builder, waiting)
        race = self._race(builder, [view for view in waiting if view.spec.worker is not None], is_due=is_due)
        for kind, runners in race.runners.items():
            BalancedPlacement(builder, kind).seat(runners)
        has_runners = any(race.runners.values())
        again_at = next_at if self.interval_s and has_runners else None
        return replace(builder.build(next_at=next_at), ask_again_at=again_at)

    def _race(self, builder: PlanBuilder, waiting: list[JobView], *, is_due: bool) -> Race:
        """What each job made of workers is to have."""
        race = Race(builder, self._pressure)
        race.resume(sorted(builder.snapshot.holding, key=seniority), keep=not is_due)
        told = False
        for view in waiting:
            if view.status == "stopping":
                continue
            lacking = race.admit(view)
            if lacking == Resources():
                builder.explain(view, never_fits(view))
            elif lacking is not None and not told:
                builder.explain(view, waits(lacking, builder.free))
                told = True
        if is_due:
            race.run()
        return race

    def _pressure(self, view: JobView) -> float:
        is_young = view.done_steps < self.young_frac * (view.spec.work_steps or 0.0)
        return view.spec.weight * (self.young_factor if is_young else 1.0)


def _instant(carried: object) -> float | None:
    """The end of the interval, from the last plan."""
    return float(carried) if isinstance(carried, int | float) and isfinite(carried) else None
