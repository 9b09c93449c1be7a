"""Linear jobs with deadlines: the plan against a linear programme, the choice against all choices."""

from itertools import product
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.examples import examples

from punctual.solvers.core_deadlines import CoreJob, CorePlan, all_fit, fewest_misses, level
from punctual.solvers.timeline import Timeline


def instance(random: Random, n_most: int = 6) -> tuple[list[CoreJob], Timeline]:
    """Jobs of about the size that just fits, and cores that come and go."""
    cores = random.choice([1.0, 2.0, 4.0])
    starts = sorted({0.0, *(round(random.uniform(1, 90), 1) for _ in range(random.choice([0, 0, 1, 3])))})
    free = [round(cores * random.choice([1.0, 1.0, 0.5, 0.1, 0.0]), 2) for _ in starts[:-1]] + [cores]
    n, load = random.randint(1, n_most), random.uniform(0.3, 1.5)
    jobs = []
    for _ in range(n):
        due_s = float(random.randint(1, 10) * 10)
        most = random.choice([cores, cores, 1.0, 0.5])
        work = random.uniform(0.05, 2.0) * load * cores * due_s / n
        jobs.append(CoreJob(work_core_s=work, most_cores=most, due_s=due_s, weight=float(random.randint(1, 4))))
    return jobs, Timeline(np.array(starts), np.array(free))


def least_room(jobs: list[CoreJob], timeline: Timeline) -> float | None:
    """The most cores that any plan leaves free at its fullest moment; None: the jobs do not fit."""
    split = timeline.split([job.due_s for job in jobs])
    ends = [end for end in split.starts_s[1:] if end <= max(job.due_s for job in jobs)]
    lengths, n, m = np.diff([0.0, *ends]), len(jobs), len(ends)
    # Variables: cores of job j in span t, and the least room last.
    rooms = np.zeros((m, n * m + 1))
    works = np.zeros((n, n * m + 1))
    bounds: list[tuple[float, float | None]] = []
    for j, job in enumerate(jobs):
        for t, end in enumerate(ends):
            rooms[t, j * m + t] = 1.0
            works[j, j * m + t] = lengths[t]
            bounds.append((0.0, job.most_cores if end <= job.due_s else 0.0))
    rooms[:, -1] = 1.0
    goal = np.zeros(n * m + 1)
    goal[-1] = -1.0
    found = linprog(
        goal, A_ub=rooms, b_ub=split.free[:m], A_eq=works, b_eq=[job.work_core_s for job in jobs],
        bounds=[*bounds, (0.0, None)], method="highs",
    )  # fmt: skip
    return -float(found.fun) if found.status == 0 else None


def check_is_valid(plan: CorePlan, jobs: list[CoreJob], timeline: Timeline) -> None:
    ends = [*plan.free.starts_s[1:].tolist(), np.inf]
    used = np.zeros(len(plan.free.free))
    for job, share, missing in zip(jobs, plan.shares, plan.missing_core_s, strict=True):
        amounts = share.amounts
        assert (amounts >= 0).all()
        assert (amounts <= job.most_cores + 1e-9).all()
        lengths = np.diff([0.0, *ends])[: len(amounts)]
        assert amounts @ lengths + missing == pytest.approx(job.work_core_s)
        assert share.end_s <= job.due_s
        used[: len(amounts)] += amounts
    assert (plan.free.free >= -1e-9).all()
    assert used + plan.free.free == pytest.approx(timeline.split(plan.free.starts_s).free)


@pytest.mark.parametrize("seed", range(10))
def test_the_plan_is_that_of_a_linear_programme(seed: int) -> None:
    """It fits exactly if any plan fits, and leaves as much at its fullest moment as any."""
    random = Random(seed)
    n_fitting = 0
    for _ in range(examples(100)):
        jobs, timeline = instance(random)
        plan, most = level(jobs, timeline), least_room(jobs, timeline)
        check_is_valid(plan, jobs, timeline)
        assert plan.fits == (most is not None)
        if most is not None:
            n_fitting += 1
            n_spans = max(len(share.amounts) for share in plan.shares)
            assert plan.free.free[:n_spans].min() == pytest.approx(most, abs=1e-6)
    assert 0 < n_fitting < examples(100)


@pytest.mark.parametrize("seed", range(4))
def test_the_choice_is_the_best_of_all_and_its_bound_holds(seed: int) -> None:
    random = Random(seed)
    for _ in range(examples(24)):
        jobs, timeline = instance(random)
        solution = fewest_misses(jobs, timeline)
        chosen = [job for job, is_in in zip(jobs, solution.choices, strict=True) if is_in]
        assert not chosen or level(chosen, timeline).fits
        values = [
            sum(job.weight for job in some)
            for picks in product((0, 1), repeat=len(jobs))
            if not (some := [job for job, is_in in zip(jobs, picks, strict=True) if is_in])
            or level(some, timeline).fits
        ]
        assert solution.value == pytest.approx(max(values))
        assert solution.bound == pytest.approx(max(values))
        assert solution.status == "optimal"


def test_whether_jobs_fit_is_what_their_plan_says() -> None:
    for seed in range(examples(300)):
        jobs, timeline = instance(Random(seed))
        assert all_fit(jobs, timeline) == level(jobs, timeline).fits, seed
        steady = [
            CoreJob(work_core_s=timeline.least_until(100.0) * job.due_s / len(jobs), most_cores=4.0, due_s=job.due_s)
            for job in jobs
        ]
        assert all_fit(steady, timeline), seed
        assert level(steady, timeline).fits, seed


def test_fixed_jobs_stay() -> None:
    """Two small ones would weigh more than the large one that has been promised."""
    jobs = [CoreJob(work_core_s=8, most_cores=1, due_s=10, weight=3)]
    jobs += [CoreJob(work_core_s=5, most_cores=1, due_s=10, weight=2) for _ in range(2)]
    assert fewest_misses(jobs, Timeline.of(1)).choices.tolist() == [0, 1, 1]
    assert fewest_misses(jobs, Timeline.of(1), n_fixed=1).choices.tolist() == [1, 0, 0]
    assert fewest_misses(jobs, Timeline.of(1), n_fixed=2).status == "infeasible"


def test_many_jobs_have_a_bound_that_nothing_exceeds() -> None:
    """Equal jobs of which 30 fit."""
    jobs = [CoreJob(work_core_s=10, most_cores=1, due_s=100) for _ in range(60)]
    solution = fewest_misses(jobs, Timeline.of(3))
    assert (solution.value, solution.bound) == (pytest.approx(30), pytest.approx(30))


def test_two_that_need_everything_one_after_the_other() -> None:
    """Their constant demands, 2 cores and 1, would not fit."""
    jobs = [CoreJob(work_core_s=100, most_cores=2, due_s=due_s) for due_s in (50.0, 100.0)]
    plan = level(jobs, Timeline.of(2))
    assert plan.fits
    assert [share.now for share in plan.shares] == [2.0, 0.0]


def test_a_job_that_will_be_squeezed_works_ahead() -> None:
    """Both cores are taken from 50 s on."""
    timeline = Timeline(np.array([0.0, 50.0, 100.0]), np.array([2.0, 0.0, 2.0]))
    (share,) = level([CoreJob(work_core_s=60, most_cores=2, due_s=100)], timeline).shares
    assert share.now == pytest.approx(1.2)


def test_what_is_due_already_or_needs_more_than_its_ceiling_does_not_fit() -> None:
    late = [CoreJob(work_core_s=1, most_cores=1, due_s=0), CoreJob(work_core_s=30, most_cores=1, due_s=20)]
    plan = level(late, Timeline.of(4))
    assert plan.missing_core_s == pytest.approx([1, 10])
    assert fewest_misses(late, Timeline.of(4)).value == 0
    assert level([], Timeline.of(4)).fits
