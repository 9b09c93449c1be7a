"""Jobs that share one node's cores: promise deadlines, and choose each job's present cores."""

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from math import inf

import numpy as np

from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.reason import Reason
from punctual.core.resources import Resources, total
from punctual.core.units import span
from punctual.policies._core_job_state import SOON_S, CoreJobState
from punctual.policies._earliest import earliest, no_guarantee, waits_for_promise
from punctual.policies._jobs import TOLD_LEAST_S, due_at, has_promise
from punctual.policies._promise_parameters import PromiseParameters
from punctual.solvers.core_deadlines import CoreJob, CorePlan, all_fit, fewest_misses, level
from punctual.solvers.solution import Solution
from punctual.solvers.timeline import Share, Timeline
from punctual.solvers.water_filling import fill

#: A job is new for so many seconds: it is promised nothing while other new ones are not measured.
_NEW_S = 20.0
#: Jobs that start within so many seconds are compared although each says what it costs.
_TOGETHER_S = 2.0
#: Halvings in the search for the share of their margins with which promised jobs are counted.
_N_HALVINGS = 5
#: Share by which margins of promised jobs shrink for a job that asks for a guarantee: so a deadline that was named to
#: it as the earliest is still accepted a little later.
_NAMED_FRAC = 0.1


@dataclass(slots=True)
class CorePromises:
    """Promises and present cores of the jobs on one node.

    Parameters
    ----------
    members
        Jobs on the node, in order of submission.
    cores
        Cores over time beside the bases of the members.
    returning_cores
        Cores that others will soon give back by themselves: no reason to give up a promise.
    at
        The present, on the scheduler's clock.
    planned, refused
        Jobs without a promise that were planned for; jobs that were told that they get none, or have lost it.
    policy
        The policy's parameters.

    Attributes
    ----------
    kept, likely
        The members with a promise; and others that are planned for beside them, because they will probably be on
        time too: without a margin, and if their work is what is expected.
    pending
        Members with a promise whose work is unknown just now, because their process was started again: they
        keep it until they say how much work is left.
    told
        Warnings for jobs without a promise.
    declines
        Jobs that are to run only with a promise, and cannot have one.
    solution
        The choice of promises: its value is the weight of the promised jobs. None: no deadline is known.
    """

    members: Sequence[CoreJobState]
    cores: Timeline
    returning_cores: float
    at: float
    planned: set[JobId]
    refused: set[JobId]
    policy: PromiseParameters
    kept: list[CoreJobState] = field(init=False)
    likely: list[CoreJobState] = field(init=False)
    pending: list[CoreJobState] = field(init=False)
    told: dict[JobId, Reason] = field(init=False, default_factory=dict)
    declines: dict[JobId, Reason] = field(init=False, default_factory=dict)
    solution: Solution | None = field(init=False, default=None)
    #: Seconds until jobs that have just started are compared, infinite without such jobs; and whether a promise to a
    #: new job waits for these, or for others that have still to say how much work they have.
    _decides_in_s: float = field(init=False, default=inf)
    _waits: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        dated = [member for member in self.members if member.due_s < inf and not member.unmeasured]
        for member in dated:
            member.has_neighbors = len(self.members) > 1
        new = [member for member in self.members if self._is_new(member)]
        starting = [member for member in new if self._starts_with_others(member)]
        self._decides_in_s = min((_TOGETHER_S - self._running_s(member) for member in starting), default=inf)
        self._waits = bool(starting) or any(member.unmeasured for member in new)
        self.pending = [member for member in self.members if member not in dated and self._has_promise(member)]
        for member in self.pending:
            member.unmeasured = True
        had = [member for member in dated if self._has_promise(member)]
        self.kept = self._still_kept([member for member in had if member.is_steady])
        lost = {member.id for member in had} - {member.id for member in self.kept}
        hopeful = [member for member in dated if member not in had and self._is_possible(member)]
        self._promise(hopeful)
        kept = {member.id for member in self.kept}
        pending = [member for member in self._in_turn() if member in self.pending and member.due_s < inf]
        self.likely = self._likely([*(member for member in dated if member.id not in kept), *pending])
        for member in dated:
            if member.id in kept:
                self.refused.discard(member.id)
            elif not member.view.landed and (member.id in lost or not self._waits):
                self._refuse(member, is_lost=member.id in lost)
        refused = [member for member in self.members if member not in dated or not (self._waits and member in hopeful)]
        self.declines = {
            member.id: no_guarantee(member.view, self.at, self.earliest_s(member.view, member.base))
            for member in refused
            if member.id not in kept and waits_for_promise(member.view)
        }

    def share(self, reserved_cores: float = 0.0, *, hurries: bool = False) -> None:
        """Decide what each member gets now.

        Parameters
        ----------
        reserved_cores
            Cores for promised jobs that need them now, and for no others, because other jobs wait for them.
        hurries
            Whether they are to use all there is, so that others can be started when they have ended.
        """
        free = float(self.cores.free[0])
        self._hold_planned()
        for member in sorted(self._holders(), key=_landing_first):  # together they may want more than there is
            member.cores = min(member.cores + (member.more_cores if member.is_landing else 0.0), free)
            free -= member.cores
        holders = {member.id for member in self._holders()}
        others = [member for member in self.members if member.id not in holders and not member.unmeasured]
        background = [member for member in others if member.due_s == inf]
        free -= _raise(background, min(free, self._background_cores()))
        free = self._measure_in_turn(free, reserved_cores)
        for member in sorted(self._holders(), key=_due_first):
            free -= _raise([member], free)
        free = max(0.0, free - reserved_cores - self._undelivered_cores())
        free -= _raise([member for member in others if member.due_s < inf], free, self._urgency)
        free -= _raise(background, free)
        for member in sorted(self.members, key=_due_first) if hurries else ():
            more = min(free, max(0.0, member.most_cores - member.cores))
            free, member.cores = free - more, member.cores + more

    def _undelivered_cores(self) -> float:
        """Cores that programs outside Punctual take from the node, by the shortfall of promised jobs lately.

        The kernel divides the cores among all processes with quotas. The grants of others must fit beside that, else
        promised jobs fall short as well.
        """
        delivered = [member.view.work.delivered_frac for member in self.kept if member.view.work is not None]
        if not delivered:
            return 0.0
        held_cores = sum(total(member.view.granted.values()).cores for member in self.members)
        return max(0.0, 1.0 - sum(delivered) / len(delivered)) * held_cores

    def _measure_in_turn(self, free: float, reserved_cores: float) -> float:
        """Grant planned cores and `free`, one job at a time, to jobs whose cost is unknown. Returns the rest.

        A job is measured the sooner the more cores it has, and it matters most for the first that is due: measured
        side by side, all would report too late. Jobs without a promise leave `reserved_cores` to jobs that wait.
        """
        unmeasured = self._in_turn()
        for member in unmeasured:
            free, member.cores = free + member.cores, 0.0
        for member in unmeasured:
            free -= _raise([member], free - (0.0 if member in self.pending else reserved_cores))
        return free

    def _in_turn(self) -> list[CoreJobState]:
        """Return jobs of unknown cost, promised ones first, then in order of their deadlines."""
        unmeasured = [member for member in self.members if member.unmeasured]
        return sorted(unmeasured, key=lambda member: (member not in self.pending, due_at(member.view), member.id))

    def changes_in_s(self) -> float:
        """Seconds until the plan changes a job's cores, or promises are decided; infinite: never."""
        changes_s = [changes_in_s(member.share) for member in self.members if member.share is not None]
        return min([*changes_s, self._decides_in_s])

    # Promises.

    def _has_promise(self, member: CoreJobState) -> bool:
        """Whether its promise is not over; that of a job whose work is done is not before its process has ended."""
        return has_promise(member.view, -inf if member.view.landed else self.at - member.latest_s())

    def earliest_s(self, view: JobView, base: Resources) -> float | None:
        """Seconds until the earliest deadline of a job that can be promised beside all promises; None: none can.

        Parameters
        ----------
        view
            One of `members`, or one that would be on this node.
        base
            The amount that it holds in any case.
        """
        others = [member for member in self.kept if member.id != view.id]
        if not self.policy.promises:
            return None
        jobs = self._with_margins(others, {view.id})

        def due_in(left_s: float) -> CoreJobState:
            member = CoreJobState.of(self._due_in(view, left_s), base, view.demand, self.at)
            member.has_neighbors = any(other.id != view.id for other in self.members)
            return member

        def fits(left_s: float) -> bool:
            member = due_in(left_s)
            if member.due_s == inf or member.due_s <= 0 or member.unmeasured:
                return False
            return all_fit([*jobs, member.job(self.policy.risk_sigmas)], self._offered([*others, member]))

        soon = due_in(1.0)
        if soon.view.work is None or not soon.is_steady or soon.due_s == inf or soon.unmeasured:
            return None
        work_core_s = soon.left_core_s + soon.margin_core_s(self.policy.risk_sigmas)
        usable_cores = max(soon.view.work.usable_cores, 1e-9)
        room_cores = max(min(float(self._offered(others).free.min()) + base.cores, usable_cores), 1e-9)
        last_s = max([0.0, *(member.due_s for member in others)]) + work_core_s / room_cores
        return earliest(fits, work_core_s / usable_cores, last_s)

    def _due_in(self, view: JobView, left_s: float) -> JobView:
        return view.with_deadline(max(self.at + left_s - view.submitted_at, SOON_S))

    def _with_margins(
        self, kept: Sequence[CoreJobState], beside: Collection[JobId], less_frac: float = 0.0
    ) -> list[CoreJob]:
        """Return the work of promised jobs, with margins as large as fit if jobs `beside` have their bases.

        Margins are smaller than that by `less_frac`, a share of the largest ones. A job's loss of margin while it runs
        does not keep others from promises that take nothing from it.
        """
        room = self._offered(kept, beside)

        def counted(frac: float) -> list[CoreJob]:
            return [member.job(frac * self.policy.risk_sigmas) for member in kept]

        if not self.policy.risk_sigmas or all_fit(counted(1.0), room):
            return counted(1.0 - less_frac)
        least, most = 0.0, 1.0
        for _ in range(_N_HALVINGS):
            middle = (least + most) / 2
            least, most = (middle, most) if all_fit(counted(middle), room) else (least, middle)
        return counted(max(0.0, least - less_frac))

    def _is_possible(self, member: CoreJobState) -> bool:
        """Whether its deadline could be promised if it had the node alone."""
        job = member.job(self.policy.risk_sigmas)
        return self.policy.promises and member.is_steady and member.due_s > 0 and all_fit([job], self.cores)

    def _still_kept(self, members: Sequence[CoreJobState]) -> list[CoreJobState]:
        """Return the jobs whose promises can be kept in the best case, or as many as can."""
        cores, room = (each.plus(self.returning_cores) for each in (self.cores, self._room(members)))
        jobs = [member.best(self.policy.risk_sigmas) for member in members]
        return list(members) if all_fit(jobs, room) else _chosen(members, fewest_misses(jobs, cores))

    def _promise(self, hopeful: Sequence[CoreJobState]) -> None:
        """Promise as many more deadlines as fit; new ones wait for measurements that are due.

        Jobs promised before count with their margins too: else the newest promise takes their room, and their remaining
        work needs their ceilings to the last moment.
        """
        candidates = [*self.kept, *(member for member in hopeful if not (self._waits and self._is_new(member)))]
        if not candidates:
            return
        new = candidates[len(self.kept) :]
        # A deadline that was named to a refused job is accepted, also if a little has happened since.
        less_frac = _NAMED_FRAC if any(waits_for_promise(member.view) for member in new) else 0.0
        jobs = self._with_margins(self.kept, {member.id for member in new}, less_frac)
        jobs += [member.job(self.policy.risk_sigmas) for member in new]
        if all_fit(jobs, self._offered(candidates)):
            value = sum(job.weight for job in jobs)
            self.solution = Solution.of(np.ones(len(jobs), dtype=np.int64), value, value)
        elif hopeful and not self._waits:
            searched = any(member.id not in self.refused for member in hopeful)
            self.solution = self._fewest_misses(candidates, jobs, n_fixed=len(self.kept), search=searched)
        if self.solution is not None and self.solution.status != "infeasible":
            self.kept = _chosen(candidates, self.solution)

    def _likely(self, members: Sequence[CoreJobState]) -> list[CoreJobState]:
        """Return the jobs that fit beside the promised ones; those of the last plan come first."""
        possible = [member for member in members if all_fit([member.job(late_s=member.slack_s)], self.cores)]
        if not possible or not self.policy.promises:
            return []
        before = [member for member in possible if member.id in self.planned]
        after = [member for member in possible if member.id not in self.planned]
        candidates, n_kept = [*self.kept, *before, *after], len(self.kept)
        jobs = [*self._as_far_as_fits(), *(member.job(late_s=member.slack_s) for member in (*before, *after))]
        for n_fixed in dict.fromkeys((n_kept + len(before), n_kept)):
            solution = self._fewest_misses(candidates, jobs, n_fixed=n_fixed, search=False)
            if solution.status != "infeasible":
                return _chosen(candidates, solution)[n_kept:]
        return []

    def _as_far_as_fits(self) -> list[CoreJob]:
        """Return promised jobs with the work that fits before they are due: less than all if only the best case is in time."""
        jobs = [member.job() for member in self.kept]
        missing = level(jobs, self._offered(self.kept)).missing_core_s
        return [replace(job, work_core_s=job.work_core_s - core_s) for job, core_s in zip(jobs, missing, strict=True)]

    def _fewest_misses(
        self, members: Sequence[CoreJobState], jobs: Sequence[CoreJob], *, n_fixed: int, search: bool
    ) -> Solution:
        """Choose the jobs that can be done in time; the first `n_fixed` must be. The others keep their bases."""
        solution = fewest_misses(jobs, self._offered(members), n_fixed=n_fixed, search=search)
        if solution.status != "infeasible":
            chosen = [job for job, is_in in zip(jobs, solution.choices, strict=True) if is_in]
            if all_fit(chosen, self._offered(_chosen(members, solution))):
                return solution
        return fewest_misses(jobs, self._offered(members[:n_fixed]), n_fixed=n_fixed, search=search)

    def _holders(self) -> list[CoreJobState]:
        """Return the promised and the planned jobs."""
        return [*self.kept, *self.likely]

    def _is_new(self, member: CoreJobState) -> bool:
        """Whether it came lately: such jobs are compared with each other before any of them is promised something."""
        return self.at - member.view.submitted_at < _NEW_S

    def _starts_with_others(self, member: CoreJobState) -> bool:
        """Whether it has a deadline and has only just started, so that others which were submitted with it may follow."""
        view = member.view
        if member.due_s == inf or view.landed or waits_for_promise(view) or self._has_promise(member):
            return False
        return self._running_s(member) < _TOGETHER_S

    def _running_s(self, member: CoreJobState) -> float:
        """Seconds since the job was started; 0 if it was not."""
        return 0.0 if member.view.started_at is None else self.at - member.view.started_at

    def _refuse(self, member: CoreJobState, *, is_lost: bool) -> None:
        if not self.policy.promises or (member.id in self.refused and not is_lost):
            return
        self.refused.add(member.id)
        if not is_lost and member.due_s < TOLD_LEAST_S:
            return
        if is_lost:
            text = "its promised deadline cannot be kept any more: the work costs more, or there are fewer cores"
        elif not member.is_steady:
            text = "no deadline is promised to it, because cores alone do not say when it is done"
            text += "; it gets what it needs as far as that is free"
        else:
            what = f"{member.left_core_s:.3g} core-s in {span(member.due_s)}"
            where = " beside what is promised" if self._is_possible(member) else ", not even alone"
            text = f"its deadline cannot be promised: {what} do not fit{where}; it runs with what is left"
        facts = {"left_core_s": member.left_core_s, "due_s": member.due_s}
        self.told[member.id] = Reason("promise-lost" if is_lost else "not-promised", text, facts)

    # Amounts.

    def _room(self, members: Sequence[CoreJobState], beside: Collection[JobId] = ()) -> Timeline:
        """Return the cores over time if these jobs are done when they are due, and free their bases then.

        Others that run only with a promise have no base without it, but those `beside` have theirs.
        """
        ids = {*beside, *(member.id for member in members)}
        waiting = [member for member in self.members if member.id not in ids and waits_for_promise(member.view)]
        return _with_freed(members, self.cores.plus(sum(member.base.cores for member in waiting)))

    def _offered(self, members: Sequence[CoreJobState], beside: Collection[JobId] = ()) -> Timeline:
        """Return the part of that room that may be promised."""
        return self._room(members, beside).less(self._background_cores())

    def _background_cores(self) -> float:
        """Cores that are not promised while there are jobs without a deadline."""
        has_others = any(member.due_s == inf for member in self.members)
        return self.policy.background_frac * float(self.cores.free[0]) if has_others else 0.0

    def _hold_planned(self) -> None:
        """Give planned jobs their demands if these fit at all times; otherwise the amounts of the plan."""
        background, holders = self._background_cores(), self._holders()
        steady = [Share(np.zeros(1), np.array([member.more_cores]), max(member.due_s, SOON_S)) for member in holders]
        last_s = max((share.end_s for share in steady), default=0.0)
        fits = sum(share.now for share in steady) <= self.cores.least_until(last_s) - background + 1e-9
        shares: Sequence[Share] = steady if fits else self._plan(background).shares
        for member, share in zip(holders, shares, strict=True):
            member.share, member.cores = share, share.now

    def _plan(self, background: float) -> CorePlan:
        """Return the plan of lowest peak, with the margins of promised jobs if they fit."""
        likely = [member.job(late_s=member.slack_s) for member in self.likely]
        room = self._room(self._holders())
        for sigmas in (self.policy.risk_sigmas, 0.0):
            jobs = [*(member.job(sigmas) for member in self.kept), *likely]
            plan = level(jobs, room.less(background))
            if plan.fits:
                return plan
        return level(jobs, room) if background else plan

    def _urgency(self, member: CoreJobState) -> float:
        return member.view.spec.weight / max(1.0, due_at(member.view) - self.at)


def fit_beside(members: Sequence[CoreJobState], cores: Timeline, floor_cores: float) -> bool:
    """Whether these jobs are in time with `floor_cores` less of `cores`, those beside their bases."""
    return all_fit(
        [member.job(late_s=member.slack_s) for member in members], _with_freed(members, cores.less(floor_cores))
    )


def _with_freed(members: Sequence[CoreJobState], cores: Timeline) -> Timeline:
    """`cores`, and from when these jobs are due their bases."""
    if not members:
        return cores
    ends_s = [max(member.due_s + member.slack_s, SOON_S) for member in members]
    starts_s, i_ends = np.unique(ends_s, return_inverse=True)
    freed = np.bincount(i_ends, weights=[member.base.cores for member in members]).cumsum()
    return cores.added(Timeline(np.append(0.0, starts_s), np.append(0.0, freed)))


def _landing_first(member: CoreJobState) -> tuple[float, str]:
    """Return a key that sorts landing jobs before the others, by deadline; the others keep their order."""
    return (member.due_s, member.id) if member.is_landing else (inf, "")


def _due_first(member: CoreJobState) -> tuple[float, str]:
    return member.due_s, member.id


def _weight(member: CoreJobState) -> float:
    return member.view.spec.weight


def _raise(members: Sequence[CoreJobState], cores: float, weight: Callable[[CoreJobState], float] = _weight) -> float:
    """Share `cores` among members that want more, in proportion to their weights. Returns the cores taken."""
    wanting = [member for member in members if member.more_cores > 0]
    if not wanting or cores <= 0:
        return 0.0
    weights, caps = [max(weight(each), 1e-12) for each in wanting], [each.more_cores for each in wanting]
    amounts = fill(weights, [0.0] * len(wanting), caps, cores)
    for member, amount in zip(wanting, amounts, strict=True):
        member.cores += amount
    return sum(amounts)


def _chosen(members: Sequence[CoreJobState], solution: Solution) -> list[CoreJobState]:
    return [member for member, is_in in zip(members, solution.choices, strict=True) if is_in]


def changes_in_s(share: Share) -> float:
    """Seconds until the job's amount changes; infinite: never."""
    later = np.flatnonzero(np.abs(share.amounts - share.amounts[0]) > 1e-3)
    return float(share.starts_s[later[0]]) if len(later) else inf
