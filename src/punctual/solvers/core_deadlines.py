"""Linear jobs with deadlines on a machine's cores: check whether all fit, plan them, or choose those that do."""

from bisect import insort
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from punctual.solvers.solution import Solution, infeasible
from punctual.solvers.timeline import WORK_TOLERANCE_FRAC, Share, Timeline


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreJob:
    """A job that is faster in proportion to its cores, and may start at once.

    Attributes
    ----------
    work_core_s
        Core-seconds left.
    most_cores
        The most that it can use at a time.
    due_s
        Seconds from now until it is to be done.
    weight
        Weight of its lateness.
    """

    work_core_s: float
    most_cores: float
    due_s: float
    weight: float = 1.0


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CorePlan:
    """Cores of each job over time.

    Attributes
    ----------
    shares
        One share for each job, in spans of `free`.
    missing_core_s
        Work of each job that does not fit before it is due; all 0: every job is done in time.
    free
        Cores that the jobs leave free.
    """

    shares: Sequence[Share]
    missing_core_s: Sequence[float]
    free: Timeline

    @property
    def fits(self) -> bool:
        """Whether every job is done in time."""
        return not any(self.missing_core_s)


def level(jobs: Sequence[CoreJob], timeline: Timeline) -> CorePlan:
    """The plan that leaves the most cores free at its fullest moment, if the jobs fit.

    Parameters
    ----------
    timeline
        Cores that are free.

    Returns
    -------
    CorePlan
        If the jobs do not all fit, those that are due first have all there is.

    Notes
    -----
    *Symbols.* Job j with work w_j, ceiling p_j and due instant d_j; span t of length τ_t, with room R_t.

    *Formula.* In order of d_j, job j takes x_jt = min(p_j, max(0, R_t − λ_j)) in each span before d_j, with the level
    λ_j ≥ 0 for which Σ_t τ_t x_jt = w_j: it is poured where most room is, and levels it.

    *Source.* For constant capacity the normal form of malleable tasks [beaumont2012]. That it is the room that is
    levelled, so that it also holds where capacity changes, is ours; see the page of `promises-first`.

    *Properties.* Exact: the jobs fit in some way exactly if they fit in this one, and no other plan has a larger least
    room. Deterministic, O(n T log T) for T spans.

    Examples
    --------
    >>> plan = level([CoreJob(work_core_s=100.0, most_cores=2.0, due_s=due_s) for due_s in (50.0, 100.0)], Timeline.of(2))
    >>> [share.amounts.tolist() for share in plan.shares]
    [[2.0], [0.0, 2.0]]
    """
    spans = _Spans(jobs, timeline)
    rooms, amounts, missing = list(spans.rooms), [[0.0]] * len(jobs), [0.0] * len(jobs)
    for j in spans.order:
        amounts[j], missing[j] = spans.pour(jobs[j], rooms)
    n_spans = len(rooms)
    shares = [
        Share(spans.starts_s[: len(each)], np.array(each), spans.ends_s[len(each) - 1] if any(each) else 0.0)
        for each in amounts
    ]
    free = np.concatenate([rooms, spans.timeline.free[n_spans:]])
    return CorePlan(shares=shares, missing_core_s=missing, free=Timeline(spans.timeline.starts_s, free))


def all_fit(jobs: Sequence[CoreJob], timeline: Timeline) -> bool:
    """Whether all jobs can be done in time; as `level` says, but quick where constant amounts will do."""
    return _fit_steadily(jobs, timeline) or level(jobs, timeline).fits


def _fit_steadily(jobs: Sequence[CoreJob], timeline: Timeline) -> bool:
    """Whether all are done in time if each holds the same until it is due; if not, they may still fit in another way."""
    sum_cores = last_s = 0.0
    for job in jobs:
        if job.due_s <= 0 or job.work_core_s > job.most_cores * job.due_s:
            return False
        sum_cores, last_s = sum_cores + job.work_core_s / job.due_s, max(last_s, job.due_s)
    return sum_cores <= timeline.least_until(last_s)


def fewest_misses(jobs: Sequence[CoreJob], timeline: Timeline, *, n_fixed: int = 0, search: bool = True) -> Solution:
    """The jobs of largest weight that can all be done in time.

    Parameters
    ----------
    timeline
        Cores that are free.
    n_fixed
        The first so many jobs must be among them.
    search
        Whether a better choice than the first guess is looked for.

    Returns
    -------
    Solution
        `choices`: 1 for a job that is done in time, 0 for one that is not. Its value is the weight of the chosen ones,
        and the weight that is missed at least is the total weight less `bound`. Infeasible if the fixed ones do not fit.

    Notes
    -----
    *Formula.* Depth first in order of due instants, with the room that `level` leaves as the state. What the jobs still
    to come must miss at least: for each instant D, the excess of their work due by D over the room until D, covered by
    the jobs of least weight for their work, the last one in part.

    *Properties.* Optimal for up to a dozen jobs or so, and where the first guess meets the bound. Otherwise the best
    choice that was seen in a limited search, with the bound of the root. Deterministic.

    Examples
    --------
    >>> jobs = [CoreJob(work_core_s=work, most_cores=1, due_s=10, weight=weight) for work, weight in ((8, 3), (5, 2), (5, 2))]
    >>> fewest_misses(jobs, Timeline.of(1)).choices.tolist()
    [0, 1, 1]
    """
    # The best choice is searched for among 40 jobs at most, and through 1000 partial choices at most.
    return _Search(jobs, timeline, n_fixed).run(1000 if search and len(jobs) <= 40 else 0)


class _Spans:
    """Spans between due instants, with the room that jobs leave in each."""

    def __init__(self, jobs: Sequence[CoreJob], timeline: Timeline) -> None:
        dues_s = [job.due_s for job in jobs]
        self.timeline = timeline.split(dues_s)
        self.starts_s = self.timeline.starts_s
        last_s = max([0.0, *dues_s])
        self.ends_s = [*(float(start) for start in self.starts_s[1:] if start <= last_s)]
        self.lengths_s = [end - start for start, end in pairwise([0.0, *self.ends_s])]
        self.rooms: list[float] = [max(0.0, float(room)) for room in self.timeline.free[: len(self.ends_s)]]
        self.order = sorted(range(len(jobs)), key=lambda j: (dues_s[j], j))
        self._n_until = {end: i + 1 for i, end in enumerate(self.ends_s)}

    def n_spans(self, job: CoreJob) -> int:
        """Return the number of spans that are over when the job is due."""
        return self._n_until.get(job.due_s, 0)

    def pour(self, job: CoreJob, rooms: list[float]) -> tuple[list[float], float]:
        """Return the job's amounts from `rooms` in each span, and the work that does not fit."""
        n = self.n_spans(job)
        if not n:
            return [0.0], job.work_core_s
        least = self._level(job, rooms, n)
        amounts = [min(job.most_cores, max(0.0, room - least)) for room in rooms[:n]]
        for t in range(n):
            rooms[t] -= amounts[t]
        if least > 0:
            return amounts, 0.0
        left = job.work_core_s - sum(amount * length for amount, length in zip(amounts, self.lengths_s, strict=False))
        return amounts, left if left > WORK_TOLERANCE_FRAC * job.work_core_s else 0.0

    def _level(self, job: CoreJob, rooms: list[float], n: int) -> float:
        """Return the level of room down to which the job fills its first `n` spans; 0 if they do not suffice.

        Going down, a span begins to be filled at its room, and is full for the job `most_cores` below.
        """
        breaks = [(room, length) for room, length in zip(rooms[:n], self.lengths_s, strict=False)]
        breaks += [(room - job.most_cores, -length) for room, length in breaks if room > job.most_cores]
        breaks.sort(reverse=True)
        poured = width = 0.0
        at = breaks[0][0]
        for start, length in breaks:
            if width > 0 and poured + width * (at - start) >= job.work_core_s:
                break
            poured += width * (at - start)
            at, width = start, width + length
        if width <= 1e-12:
            return 0.0
        return max(0.0, at - (job.work_core_s - poured) / width)


class _Search:
    """Branch-and-bound search for the jobs to be done in time."""

    def __init__(self, jobs: Sequence[CoreJob], timeline: Timeline, n_fixed: int) -> None:
        self._jobs, self._n_fixed, self._n_nodes_left = jobs, n_fixed, 0
        self._spans = _Spans(jobs, timeline)
        self._order = self._spans.order
        self._best: list[int] | None = None
        self._best_missed = sum(job.weight for job in jobs) * (1 + 1e-9) + 1e-12

    def run(self, n_nodes_max: int) -> Solution:
        """Return the best choice found among `n_nodes_max` partial ones."""
        total, rooms = sum(job.weight for job in self._jobs), list(self._spans.rooms)
        if not self._fixed_fit(0, rooms):
            return infeasible()
        least_missed = self._least_missed(0, rooms)
        self._guess()
        self._n_nodes_left = n_nodes_max
        is_proven = self._best_missed <= least_missed * (1 + 1e-12) + 1e-12
        if not is_proven and n_nodes_max:
            self._branch(0, rooms, [0] * len(self._jobs), 0.0)
            is_proven = self._n_nodes_left > 0
        value = total - self._best_missed
        bound = value if is_proven else total - least_missed
        n_rounds = n_nodes_max - self._n_nodes_left
        return Solution.of(np.array(self._best, dtype=np.int64), value, bound, n_rounds=n_rounds)

    def _guess(self) -> None:
        """Take the jobs of most weight for their work first, as long as all fit."""

        def worth(j: int) -> tuple[bool, float, int]:
            return j >= self._n_fixed, -self._jobs[j].weight / max(self._jobs[j].work_core_s, 1e-12), j

        chosen: set[int] = set()
        rooms = list(self._spans.rooms)
        for j in sorted(range(len(self._jobs)), key=worth):
            left = list(rooms)
            if self._spans.pour(self._jobs[j], left)[
                1
            ]:  # beside the others as they lie; they can perhaps lie otherwise
                left = list(self._spans.rooms)
                if not self._fit({*chosen, j}, left) and j >= self._n_fixed:
                    continue
            chosen.add(j)
            rooms = left
        choices = [int(j in chosen) for j in range(len(self._jobs))]
        self._keep(choices, sum(job.weight for job, is_in in zip(self._jobs, choices, strict=True) if not is_in))

    def _fit(self, chosen: set[int], rooms: list[float]) -> bool:
        """Whether the chosen jobs fit into `rooms`, which they then reduce."""
        return all(not self._spans.pour(self._jobs[j], rooms)[1] for j in self._order if j in chosen)

    def _fixed_fit(self, i: int, rooms: list[float]) -> bool:
        """Whether the fixed ones among the jobs from the `i`-th in order on fit into `rooms`."""
        left = list(rooms)
        return all(not self._spans.pour(self._jobs[j], left)[1] for j in self._order[i:] if j < self._n_fixed)

    def _keep(self, choices: list[int], missed: float) -> None:
        if self._best is None or missed < self._best_missed - 1e-12:
            self._best, self._best_missed = list(choices), missed

    def _branch(self, i: int, rooms: list[float], choices: list[int], missed: float) -> None:
        self._n_nodes_left -= 1
        if i == len(self._order):
            self._keep(choices, missed)
            return
        if self._n_nodes_left <= 0 or missed + self._least_missed(i, rooms) >= self._best_missed - 1e-12:
            return
        j, with_job = self._order[i], list(rooms)
        if not self._spans.pour(self._jobs[j], with_job)[1] and self._fixed_fit(i + 1, with_job):
            choices[j] = 1
            self._branch(i + 1, with_job, choices, missed)
            choices[j] = 0
        if j >= self._n_fixed:
            self._branch(i + 1, rooms, choices, missed + self._jobs[j].weight)

    def _least_missed(self, i: int, rooms: list[float]) -> float:
        """Weight that the jobs from the `i`-th in order on must miss at least, given the room that is left."""
        least = hopeless = work = room = 0.0
        t, due = 0, list[tuple[float, float, float]]()
        for j in self._order[i:]:
            job = self._jobs[j]
            n = self._spans.n_spans(job)
            while t < n:
                room += rooms[t] * self._spans.lengths_s[t]
                t += 1
            if j >= self._n_fixed and job.work_core_s > job.most_cores * max(job.due_s, 0.0) * (1 + 1e-9):
                hopeless += job.weight
                continue
            work += job.work_core_s
            if j >= self._n_fixed:
                insort(due, (job.weight / max(job.work_core_s, 1e-12), job.work_core_s, job.weight))
            if work > room * (1 + 1e-9):
                least = max(least, _cover(due, work - room))
        return least + hopeless


def _cover(jobs: Sequence[tuple[float, float, float]], excess_core_s: float) -> float:
    """Return the least weight of jobs with so much work, the last in part; jobs are (weight per work, work, weight)."""
    missed = 0.0
    for worth, work_core_s, weight in jobs:
        if excess_core_s <= work_core_s:
            return missed + worth * excess_core_s
        missed, excess_core_s = missed + weight, excess_core_s - work_core_s
    return missed
