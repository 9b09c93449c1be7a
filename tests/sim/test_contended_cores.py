"""Jobs on shares of one machine that is not enough for all at once, to their ends in simulation."""

from dataclasses import replace
from random import Random

import pytest
from tests.examples import examples
from tests.plants.contended_cores import BACKGROUND, IN_TURN, URGENT, Contention, CoreLoad, overload, simulate

from punctual.core.commands import ResizeJob
from punctual.core.events import GrantApplied, JobFinished, JobStarted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources, total
from punctual.core.speed import SeenRate, Shape
from punctual.policies.promises_first import PromisesFirst
from punctual.policies.proportional import Proportional
from punctual.sim.job import SimJob
from punctual.sim.speed_laws import AllReduceTruth

#: A deadline that is missed by less was met: the controllers of all jobs aim a little before it.
TOLERANCE_FRAC = 0.003


def test_two_jobs_that_fit_only_one_after_the_other_are_both_on_time() -> None:
    outcome = simulate(IN_TURN)
    assert outcome.weight_on_time(IN_TURN, TOLERANCE_FRAC) == 2
    assert simulate(IN_TURN, Proportional(shortage="scale")).late_frac[0] == pytest.approx(0.59, abs=0.1)


@pytest.mark.parametrize("controller", ["remaining-cost", "proportional-integral", "decor-pi"])
def test_an_urgent_arrival_that_fits_is_on_time(controller: str) -> None:
    outcome = simulate(URGENT, controller=controller)
    assert outcome.weight_on_time(URGENT, TOLERANCE_FRAC) == 3
    late = simulate(URGENT, Proportional(shortage="scale"), controller=controller).late_frac[2]
    assert late is not None
    assert late > 0.1


def test_a_job_without_a_deadline_does_not_starve_and_the_others_are_on_time() -> None:
    """It has its share of the cores at all times, but while a job with a deadline is being measured."""
    outcome = simulate(BACKGROUND)
    assert outcome.weight_on_time(BACKGROUND, TOLERANCE_FRAC) == 3
    grants = [
        total(message.grant.values()).cores
        for message in outcome.journal
        if isinstance(message, ResizeJob) and message.job == "job-02" and 1.0 < message.at < 100.0
    ]
    assert min(grants) >= 0.1


@pytest.mark.parametrize("seed", [4, 9][: examples(4)])
def test_under_overload_promises_are_kept_and_little_more_is_missed_than_must_be(seed: int) -> None:
    contention = overload(seed=seed)
    outcome = simulate(contention)
    assert not outcome.lost
    lates = enumerate(outcome.late_frac)
    late = {i for i, late_frac in lates if late_frac is not None and late_frac > TOLERANCE_FRAC}
    assert late <= outcome.refused, "whoever was late was told so"
    assert outcome.weight_on_time(contention, TOLERANCE_FRAC) >= 0.95 * contention.bound().bound


@pytest.mark.parametrize("seed", [1, 0][: examples(4)])
def test_jobs_that_come_shortly_after_each_other_are_chosen_among_as_if_they_came_at_once(seed: int) -> None:
    """Promised in order of arrival, jobs that weigh three less would be on time."""
    at_once, arrivals = overload(seed=seed), Random(seed)
    loads = [replace(load, at=round(arrivals.uniform(0.0, 1.5), 2)) for load in at_once.loads]
    contention = replace(at_once, loads=loads)
    outcome = simulate(contention)
    assert not outcome.lost
    assert outcome.weight_on_time(contention) >= at_once.bound().bound - 1.0


@pytest.mark.parametrize("seed", [6, 0][: examples(4)])
def test_no_promise_is_lost_where_trainings_cost_more_beside_others_than_in_their_first_steps(seed: int) -> None:
    """By a tenth. Without room for that one of the promises of these overloads is lost."""
    drawn = overload(seed=seed, n_jobs=8, cores=2.0)
    loads = [
        replace(
            load,
            ceiling_cores=1.0,
            core_s=min(load.core_s, 0.85 * (load.deadline_s or 0.0)) / 1.1,
            dearer_after_frac=0.06,
            dearer_factor=1.1,
        )
        for load in drawn.loads
    ]
    assert not simulate(replace(drawn, loads=loads)).lost


def test_a_job_that_costs_more_than_it_said_loses_its_promise_and_no_other_job_is_late() -> None:
    """A neighbour takes half of what it gets from a third of its steps on."""
    grows = CoreLoad(core_s=60.0, deadline_s=100.0, dearer_after_frac=1 / 3, dearer_factor=4.0)
    others = [CoreLoad(core_s=45.0, deadline_s=90.0), CoreLoad(core_s=60.0, deadline_s=120.0)]
    contention = Contention(cores=2.0, loads=[grows, *others])
    outcome = simulate(contention)
    assert outcome.lost == {0}
    assert outcome.weight_on_time(contention, TOLERANCE_FRAC) == 2
    late = outcome.late_frac[0]
    assert late is not None
    assert late > TOLERANCE_FRAC


def test_jobs_on_shares_and_jobs_of_workers_are_on_time_side_by_side() -> None:
    """The workers are as many as are needed from the start, and later work of the shares is planned beside them."""
    core = Resources(cores=1.0)
    seen = tuple(SeenRate(shape=Shape(n_workers=n, cores=float(n)), rate_sps=float(n)) for n in (1, 2))
    spec = JobSpec(
        id=JobId("workers"), worker=core, counts=(1, 2), floor=core, ceiling=core * 2, work_steps=150.0,
        deadline_s=100.0, controller=None, model="tabulated", profile=seen, preemptible=True,
    )  # fmt: skip
    workers = SimJob(0.0, spec, AllReduceTruth(step_s=1.0, communication_frac=0.0), 150.0)
    shares = Contention(
        cores=4.0,
        loads=[CoreLoad(core_s=90.0, deadline_s=50.0, at=5.0), CoreLoad(core_s=80.0, deadline_s=95.0, at=5.0)],
    )
    outcome = simulate(shares, PromisesFirst(promised_frac=1.0), beside=[workers])
    assert outcome.weight_on_time(shares, TOLERANCE_FRAC) == 2
    (end,) = [message.at for message in outcome.journal if isinstance(message, JobFinished) and message.job == spec.id]
    assert end <= 100.0


def test_workers_on_gpus_find_their_cores_beside_jobs_on_shares_and_nobody_has_more_than_there_is() -> None:
    """A job without a deadline takes all cores that nobody waits for."""
    worker = Resources(cores=1.5, gpus=1)
    spec = JobSpec(
        id=JobId("workers"), worker=worker, counts=(1,), floor=worker, ceiling=worker, work_steps=30.0,
        deadline_s=60.0, controller=None, model="tabulated", preemptible=True,
        profile=(SeenRate(shape=Shape(n_workers=1, cores=1.5), rate_sps=1.0),),
    )  # fmt: skip
    workers = SimJob(12.0, spec, AllReduceTruth(step_s=1.0, communication_frac=0.0), 30.0)
    shares = Contention(
        cores=4.0, loads=[CoreLoad(core_s=200.0, deadline_s=None), CoreLoad(core_s=60.0, deadline_s=40.0)]
    )
    outcome = simulate(shares, beside=[workers], n_gpus=1)
    assert outcome.weight_on_time(shares, TOLERANCE_FRAC) == 1
    (end,) = [message.at for message in outcome.journal if isinstance(message, JobFinished) and message.job == spec.id]
    assert end <= 72.0
    held: dict[JobId, Resources] = {}
    for message in outcome.journal:
        if isinstance(message, JobStarted | GrantApplied):
            held[message.job] = total(message.granted.values())
        elif isinstance(message, JobFinished):
            held.pop(message.job)
        assert total(held.values()).fits_in(Resources(cores=4.0, gpus=1))
