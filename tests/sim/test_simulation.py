"""What happens to jobs, when, and in which order."""

import gc
from math import inf
from typing import Any, ClassVar

import pytest
from tests.sim.pieces import GPU, PERFECT, Fifo, Restless, Scripted, nodes, of, on, play, sim_job

from punctual import registry
from punctual.core.cluster import Node
from punctual.core.commands import LaunchJob, RejectJob, RequestPlan, ResizeJob
from punctual.core.control import Demand, Reading
from punctual.core.errors import InvalidSpec, InvariantBroken
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobSubmitted,
    Message,
    NodeJoined,
    NodeLost,
    PlanProposed,
    ProgressReported,
    StopRequested,
    TimerFired,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.scheduler import Periods
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.tabulated import Tabulated
from punctual.sim import garbage
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import ByDevice, Constant


def finishes(journal: list[Message]) -> dict[str, float]:
    return {str(message.job): message.at for message in of(journal, JobFinished)}


def test_rigid_jobs_run_one_after_the_other() -> None:
    jobs = [sim_job("a", steps=10.0), sim_job("b", steps=5.0), sim_job("c", 20.0, steps=1.0)]
    assert finishes(play(jobs, nodes(1, 1), Fifo())) == {"a": 10.0, "b": 15.0, "c": 21.0}


def test_a_start_up_delays_the_first_step() -> None:
    journal = play([sim_job("a", steps=10.0, startup_s=3.0)], nodes(), Fifo())
    assert [started.at for started in of(journal, JobStarted)] == [3.0]
    assert finishes(journal) == {"a": 13.0}


def test_physics_may_replace_the_start_up() -> None:
    assert finishes(play([sim_job("a", steps=10.0, startup_s=3.0)], nodes(), Fifo(), physics=Physics(startup_s=1.0))) == {
        "a": 11.0
    }  # fmt: skip


def test_the_order_of_one_rigid_job() -> None:
    journal = play([sim_job("a", steps=10.0)], nodes(), Fifo())
    kinds = [type(message) for message in journal]
    assert kinds == [
        NodeJoined, JobSubmitted, RequestPlan, PlanProposed, LaunchJob, JobStarted, ProgressReported, JobFinished,
    ]  # fmt: skip
    report = of(journal, ProgressReported)[0]
    assert (report.steps_done, report.at, report.landed) == (10.0, 10.0, True)


@pytest.mark.parametrize("policy", ["fifo", "proportional", "promises-first"])
def test_a_job_that_runs_only_with_a_promise_is_turned_away_where_none_is_given(policy: str) -> None:
    """Neither the policy, nor what is known of the job, allows for a promise."""
    spec = JobSpec(
        id=JobId("a"), ceiling=Resources(cores=1.0), work_steps=10.0, deadline_s=100.0, guarantee=True, controller=None
    )
    cores = [Node(NodeId("node"), Resources(cores=4.0))]
    journal = play([SimJob(0.0, spec, Constant(1.0), 10.0)], cores, registry.load("policies", policy)())
    assert [type(message) for message in of(journal, RejectJob, LaunchJob)] == [RejectJob]


@pytest.mark.parametrize("deadline_s", [None, 1e5])
@pytest.mark.parametrize("policy", registry.names("policies"))
def test_a_job_whose_speeds_are_those_of_nodes_without_devices_runs_where_devices_are(
    policy: str, deadline_s: float | None
) -> None:
    profile = tuple(SeenRate(shape=Shape(n_workers=n, device="cpu"), rate_sps=float(n)) for n in (1, 2, 4))
    spec = JobSpec(
        id=JobId("a"), worker=GPU, counts=(1, 2, 4), floor=GPU, ceiling=GPU * 4, work_steps=1000.0,
        deadline_s=deadline_s, preemptible=True, controller=None, model="tabulated", profile=profile,
    )  # fmt: skip
    kinds = [*nodes(1, 4, "gpu"), Node(NodeId("cores"), Resources(cores=8.0), "cpu")]
    jobs, made = [SimJob(0.0, spec, PERFECT, 1000.0)], registry.load("policies", policy)()
    assert set(finishes(play(jobs, kinds, made, models={"tabulated": Tabulated()}))) == {"a"}


def test_jobs_of_one_instant_share_a_round() -> None:
    journal = play([sim_job(f"job-{i}", steps=5.0) for i in range(50)], nodes(1, 50), Fifo())
    # One round for the first, one for those that came meanwhile; and one for each end but the last.
    assert len([plan for plan in of(journal, PlanProposed) if plan.at == 0.0]) == 2
    assert len(of(journal, JobFinished)) == 50


def test_facts_come_before_submissions_and_timers_at_one_instant() -> None:
    jobs = [sim_job("a", steps=10.0), sim_job("b", 10.0, steps=1.0)]
    journal = play(jobs, nodes(1, 1), Fifo())
    at_ten = [type(message) for message in journal if message.at == 10.0]
    assert at_ten.index(JobFinished) < at_ten.index(JobSubmitted) < at_ten.index(PlanProposed)


def test_a_plan_takes_its_time() -> None:
    physics = Physics(solver_s=2.0, solver_per_job_s=0.5)
    journal = play([sim_job("a", steps=10.0)], nodes(), Fifo(), physics=physics)
    assert [plan.at for plan in of(journal, PlanProposed)] == [2.5]
    assert finishes(journal) == {"a": 12.5}


def two_counts(**declared: Any) -> SimJob:
    return sim_job("a", counts=(1, 2), steps=100.0, truth=PERFECT, **declared)


def bell(at: float) -> SimJob:
    """A job whose submission makes a plan due."""
    return sim_job("bell", at, steps=1000.0)


def resized(job: SimJob, *grants: tuple[float, dict[NodeId, Resources]], **rest: object) -> list[Message]:
    """`job` gets each grant at its instant, on two nodes of four devices."""
    bells = [sim_job(f"bell-{at:g}", at, steps=1e-3, preemptible=True) for at, _ in grants[1:]]
    script = [(at, {"a": grant}) for at, grant in grants]
    ending = [StopRequested(at=10_000.0, job=one.spec.id, cause="enough") for one in bells]
    return play([job, *bells], nodes(2), Scripted(*script), events=ending, **rest)


def test_a_resize_in_place_costs_training_time() -> None:
    journal = resized(two_counts(resize_cost_s=5.0), (0.0, on(1)), (40.0, on(2)))
    # 40 steps, 5 s lost, 60 steps at 2 a second.
    assert finishes(journal)["a"] == pytest.approx(75.0)
    assert [(applied.at, applied.granted) for applied in of(journal, GrantApplied)] == [(40.0, on(2))]


def test_a_resize_takes_effect_later_and_the_job_goes_on_until_then() -> None:
    journal = resized(two_counts(resize_cost_s=5.0), (0.0, on(1)), (40.0, on(2)), physics=Physics(resize_s=10.0))
    assert [applied.at for applied in of(journal, GrantApplied)] == [50.0]
    assert finishes(journal)["a"] == pytest.approx(80.0)


def test_a_job_that_restarts_pays_its_start_up_for_a_resize() -> None:
    job = sim_job("a", counts=(1, 2), truth=PERFECT, restarts=True, startup_s=7.0, resize_cost_s=1.0)
    journal = resized(job, (0.0, on(1)), (47.0, on(2)))
    assert finishes(journal)["a"] == pytest.approx(47.0 + 7.0 + 30.0)


def test_moving_to_other_nodes_is_a_restart() -> None:
    journal = resized(two_counts(resize_cost_s=1.0, startup_s=7.0), (0.0, on(1)), (47.0, on(0, 2)))
    assert finishes(journal)["a"] == pytest.approx(47.0 + 7.0 + 30.0)


def test_a_paused_job_keeps_its_work_and_pays_its_start_up_again() -> None:
    journal = resized(two_counts(startup_s=3.0), (0.0, on(1)), (43.0, {}), (60.0, on(2)))
    assert [applied.granted for applied in of(journal, GrantApplied)] == [{}, on(2)]
    assert finishes(journal)["a"] == pytest.approx(60.0 + 3.0 + 30.0)
    report = [report for report in of(journal, ProgressReported, job="a") if report.at == 43.0][-1]
    assert report.steps_done == pytest.approx(40.0)


def test_a_finish_wins_over_a_resize_under_way() -> None:
    journal = resized(two_counts(), (0.0, on(1)), (95.0, on(2)), physics=Physics(resize_s=50.0))
    assert finishes(journal)["a"] == 100.0
    assert not of(journal, GrantApplied, job="a")


def test_a_resize_asked_during_another_replaces_it() -> None:
    journal = resized(
        two_counts(), (0.0, on(1)), (40.0, on(2)), (50.0, on(1, 1)),
        physics=Physics(resize_s=30.0), periods=Periods(answer_s=7.0),
    )  # fmt: skip
    applied = of(journal, GrantApplied)
    assert [one.granted for one in applied] == [on(1, 1)]
    assert applied[0].request == of(journal, ResizeJob)[-1].request


@pytest.mark.parametrize("stop_at", [0.5, 20.0, 42.0, 52.0])
def test_a_job_may_be_stopped_while_it_starts_trains_changes_or_stalls(stop_at: float) -> None:
    stop = StopRequested(at=stop_at, job=JobId("a"), cause="the user asked")
    bells = [sim_job("bell", 40.0, steps=1e-3)]
    script = Scripted((0.0, {"a": on(1)}), (40.0, {"a": on(2)}), (60.0, {"bell": on(1)}))
    journal = play(
        [two_counts(startup_s=1.0, resize_cost_s=10.0), *bells], nodes(), script,
        physics=Physics(resize_s=5.0), events=[stop, *knock(60.0)],
    )  # fmt: skip
    (failed,) = of(journal, JobFailed)
    assert (failed.at, failed.job, failed.retryable) == (stop_at, "a", False)
    assert "bell" in finishes(journal)


def knock(at: float) -> list[Event]:
    """A node repeats its capacity, which makes a plan due."""
    return [NodeJoined(at=at, node=NodeId("node-0"), capacity=GPU * 4)]


class Still:
    """A controller that always wants the ceiling, every minute anew."""

    def init(self, spec: JobSpec) -> None:
        return None

    def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
        return Demand(resources=spec.ceiling, next_tick_s=60.0, reason=Reason("still", "as before")), None


def test_ticks_of_a_controller_that_does_nothing_change_no_finish() -> None:
    def jobs(controller: str | None) -> list[SimJob]:
        return [
            sim_job(f"job-{i}", 17.3 * i, counts=(1 + i % 3,), steps=100.0 + 31.7 * i, truth=Constant(0.7),
                    controller=controller, deadline_s=1e4, startup_s=3.3)
            for i in range(30)
        ]  # fmt: skip

    without = play(jobs(None), nodes(2), Fifo())
    ticking = play(
        jobs("still"),
        nodes(2),
        Fifo(),
        controllers={"still": Still()},
        periods=Periods(first_tick_s=60.0, answer_s=inf),
    )
    assert of(ticking, TimerFired)
    assert not of(without, TimerFired)
    assert finishes(ticking) == finishes(without)


def test_without_ticks_or_lost_answers_no_timer_is_set() -> None:
    journal = play([sim_job(f"job-{i}", float(i)) for i in range(5)], nodes(), Fifo())
    assert {type(message).__name__ for message in journal} == {
        "NodeJoined", "JobSubmitted", "RequestPlan", "PlanProposed", "LaunchJob", "JobStarted", "ProgressReported",
        "JobFinished",
    }  # fmt: skip


def test_a_tick_sees_a_fresh_reading() -> None:
    class Watching(Still):
        readings: ClassVar[list[Reading]] = []

        def step(self, spec: JobSpec, state: None, reading: Reading) -> tuple[Demand, None]:
            self.readings.append(reading)
            return super().step(spec, state, reading)

    spec = JobSpec(
        id=JobId("a"), ceiling=Resources(cores=2.0), work_steps=100.0, deadline_s=500.0, controller="watching"
    )

    class Whole:
        def allocate(self, snapshot: object) -> Plan:
            return Plan(revision=1, grants={JobId("a"): {NodeId("n"): Resources(cores=2.0)}})

    from punctual.core.cluster import Node

    play(
        [SimJob(0.0, spec, Constant(0.5), 100.0)], [Node(NodeId("n"), Resources(cores=2.0))], Whole(),
        controllers={"watching": Watching()}, periods=Periods(first_tick_s=60.0),
    )  # fmt: skip
    first = Watching.readings[0]
    assert (first.elapsed_s, first.steps_done, first.used_core_s) == (60.0, 30.0, 120.0)


def test_periodic_reports() -> None:
    journal = play([sim_job("a", steps=100.0)], nodes(), Fifo(), physics=Physics(report_s=30.0))
    assert [(report.at, report.steps_done) for report in of(journal, ProgressReported)] == [
        (30.0, 30.0), (60.0, 60.0), (90.0, 90.0), (100.0, 100.0),
    ]  # fmt: skip


class Noting:
    """A model that keeps what it is shown."""

    def __init__(self) -> None:
        self.seen: list[SeenRate] = []

    def init(self, spec: JobSpec) -> tuple[()]:
        return ()

    def update(self, state: tuple[()], seen: SeenRate) -> tuple[()]:
        self.seen.append(seen)
        return ()

    def rate_sps(self, state: tuple[()], shape: Shape) -> float:
        return 0.0

    def std_sps(self, state: tuple[()], shape: Shape) -> float:
        return inf


def test_the_model_is_shown_true_speeds_and_nothing_of_stalls() -> None:
    model = Noting()
    job = two_counts(resize_cost_s=5.0, model="noting")
    resized(job, (0.0, on(1)), (40.0, on(2)), models={"noting": model})
    seen = [(one.shape.n_workers, one.rate_sps, one.over_s) for one in model.seen if one.rate_sps > 0]
    assert seen == [(1, 1.0, 40.0), (2, 2.0, 30.0)]


def test_noise_has_mean_one_and_is_measured() -> None:
    jobs = [sim_job(f"job-{i}", steps=100.0) for i in range(400)]
    journal = play(jobs, nodes(1, 400), Fifo(), physics=Physics(rate_sigma=0.2))
    rates = [100.0 / at for at in finishes(journal).values()]
    assert len(set(rates)) == 400
    assert sum(rates) / 400 == pytest.approx(1.0, abs=4 * 0.2 / 20)


def test_another_kind_of_device_is_another_speed() -> None:
    truth = ByDevice({"V100": Constant(2.0), "K80": Constant(0.5)}, otherwise=Constant(1.0))
    for device, finish_at in (("V100", 50.0), ("K80", 200.0), ("A100", 100.0)):
        assert finishes(play([sim_job("a", truth=truth)], nodes(device=device), Fifo())) == {"a": finish_at}


# Failures.


def test_a_failed_job_goes_on_from_its_last_checkpoint() -> None:
    physics = Physics(failures_per_device_h=3600.0 / 150.0, checkpoint_s=20.0)
    job = sim_job("a", steps=400.0, model="noting")
    journal = play([job], nodes(), Fifo(), physics=physics, models={"noting": Noting()}, seed=5, n_retries=100)
    failed = of(journal, JobFailed)
    assert failed
    reports = of(journal, ProgressReported)
    for failure in failed:
        before = next(report.steps_done for report in reports if report.at == failure.at)
        after = next(report.steps_done for report in reports if report.at > failure.at)
        assert after == pytest.approx(20.0 * (before // 20.0), abs=1e-6)
    assert len(of(journal, JobFinished)) == 1


def test_failures_come_at_the_given_rate() -> None:
    physics = Physics(failures_per_device_h=1.0)
    jobs = [sim_job(f"job-{i}", counts=(4,), steps=3600.0) for i in range(300)]
    journal = play(jobs, nodes(1, 1200), Fifo(), physics=physics, n_retries=0)
    # Four device-hours each: a share of exp(-4) gets through.
    survived = len(of(journal, JobFinished)) / 300
    assert survived == pytest.approx(0.0183, abs=0.025)
    assert len(of(journal, JobFailed)) == 300 - len(of(journal, JobFinished))


def test_the_fate_of_a_job_does_not_depend_on_others() -> None:
    physics = Physics(failures_per_device_h=10.0, rate_sigma=0.3)
    alone = play([sim_job("a", steps=500.0)], nodes(), Fifo(), physics=physics, n_retries=100)
    together = play(
        [sim_job("a", steps=500.0), sim_job("b", steps=300.0)], nodes(), Fifo(), physics=physics, n_retries=100
    )
    assert of(alone, JobFailed, JobFinished) == of(together, JobFailed, JobFinished, job="a")


def test_a_lost_node_takes_its_jobs_and_they_run_elsewhere() -> None:
    lost = NodeLost(at=50.0, node=NodeId("node-0"))
    physics = Physics(checkpoint_s=40.0)
    journal = play([sim_job("a", steps=100.0)], nodes(2, 1), Fifo(), events=[lost], physics=physics)
    starts = [started.granted for started in of(journal, JobStarted)]
    assert starts == [on(1), on(0, 1)]
    assert not of(journal, JobFailed)  # it went with its node
    assert finishes(journal) == {"a": pytest.approx(50.0 + 60.0)}


def test_a_job_that_loses_one_of_its_nodes_fails_and_is_started_again() -> None:
    lost = NodeLost(at=50.0, node=NodeId("node-0"))
    journal = play([sim_job("a", counts=(2,), steps=100.0)], nodes(3, 1), Fifo(), events=[lost])
    (failed,) = of(journal, JobFailed)
    assert (failed.at, failed.retryable) == (50.0, True)
    assert of(journal, JobStarted)[-1].granted == on(0, 1, 1)
    assert finishes(journal)["a"] == pytest.approx(51.0 + 100.0)


def test_nodes_fail_and_come_back() -> None:
    physics = Physics(node_mtbf_s=500.0, node_repair_s=100.0)
    jobs = [sim_job(f"job-{i}", 10.0 * i, steps=200.0) for i in range(30)]
    journal = play(jobs, nodes(3, 1), Fifo(), physics=physics, n_retries=1000)
    assert len(of(journal, JobFinished)) == 30
    assert len(of(journal, NodeLost)) > 3
    assert len(of(journal, NodeJoined)) > 3


def test_a_resize_may_fail_and_is_asked_again() -> None:
    journal = resized(two_counts(), (0.0, on(1)), (40.0, on(2)), physics=Physics(failed_resize_frac=0.9), seed=1)
    failed = of(journal, GrantFailed)
    assert failed
    assert all(one.granted == on(1) for one in failed)


def test_a_spread_of_speeds_given_in_per_cent_is_refused() -> None:
    """With 30 a job would take as good as for ever."""
    with pytest.raises(InvalidSpec, match="`rate_sigma` must be at most 3"):
        Physics(rate_sigma=30.0)
    with pytest.raises(InvalidSpec, match="`report_s` must be at least"):
        Physics(report_s=1e-9)


def test_a_launch_may_fail_until_it_is_given_up() -> None:
    journal = play([sim_job("a")], nodes(), Fifo(), physics=Physics(failed_launch_frac=0.999))
    assert len(of(journal, GrantFailed)) == 4
    assert len(of(journal, RejectJob)) == 1


def test_a_lost_answer_is_made_up_for_by_asking_again() -> None:
    physics = Physics(lost_answer_frac=0.5, resize_s=1.0, startup_s=1.0)
    jobs = [sim_job(f"job-{i}", 5.0 * i, counts=(1, 2, 4), truth=PERFECT, steps=300.0) for i in range(20)]
    journal = play(jobs, nodes(2), Restless(), physics=physics, periods=Periods(answer_s=20.0))
    assert len(of(journal, JobFinished)) == 20
    asked = len(of(journal, LaunchJob, ResizeJob))
    assert len(of(journal, JobStarted, GrantApplied)) < 0.75 * asked


# Ends.


def test_a_job_that_fits_nowhere_ends_nothing_else() -> None:
    jobs = [sim_job("wide", counts=(3,)), sim_job("other", steps=10.0)]
    journal = play(jobs, nodes(2, 2), Scripted((0.0, {"other": on(1)})))
    assert finishes(journal) == {"other": 10.0}


@pytest.mark.parametrize(
    "physics",
    [
        Physics(node_mtbf_s=1e-9),
        Physics(node_mtbf_s=1e-3, solver_s=10.0, node_repair_s=60.0),
        Physics(node_mtbf_s=1.0, startup_s=0.0, node_repair_s=1.0),
    ],
)
def test_a_simulation_ends_where_nodes_are_lost_before_a_job_gets_on(physics: Physics) -> None:
    jobs = [sim_job("a", steps=1e5, startup_s=30.0), sim_job("b", 100.0, steps=1e5, startup_s=30.0)]
    journal = play(jobs, nodes(4), Fifo(), physics=physics)
    assert of(journal, NodeLost)
    assert not of(journal, JobFinished)


def test_a_job_that_waits_for_ever_does_not_keep_nodes_failing_for_ever() -> None:
    journal = play([sim_job("a")], nodes(2, 2), Scripted((0.0, {})), physics=Physics(node_mtbf_s=100.0))
    assert not of(journal, JobStarted)


def test_a_paused_job_reports_nothing_and_keeps_nothing_going() -> None:
    journal = resized(two_counts(), (0.0, on(1)), (40.0, {}), physics=Physics(report_s=30.0))
    assert [report.at for report in of(journal, ProgressReported, job="a")] == [30.0, 40.0]


def test_the_end_may_be_given() -> None:
    journal = play([sim_job("a", steps=100.0)], nodes(), Fifo(), end_at=50.0, physics=Physics(report_s=20.0))
    assert journal[-1].at == 40.0


def test_a_job_too_large_for_the_cluster_is_rejected() -> None:
    journal = play([sim_job("a", counts=(9,)), sim_job("b", steps=1.0)], nodes(), Fifo())
    assert [rejected.job for rejected in of(journal, RejectJob)] == ["a"]
    assert finishes(journal) == {"b": 1.0}


def test_nothing_to_do_is_no_error() -> None:
    assert play([], nodes(), Fifo()) == []


def test_jobs_must_come_in_order() -> None:
    with pytest.raises(InvalidSpec, match="order of submission"):
        play([sim_job("a", 10.0), sim_job("b", 5.0)], nodes(), Fifo())


def test_lost_answers_need_an_end_of_waiting() -> None:
    with pytest.raises(InvalidSpec, match="answer_s"):
        Simulation([], [], Fifo(), physics=Physics(lost_answer_frac=0.1), periods=Periods(answer_s=inf))


class Greedy:
    """Gives everybody all there is, which is too much."""

    def allocate(self, snapshot: object) -> Plan:
        from punctual.core.cluster import Snapshot

        assert isinstance(snapshot, Snapshot)
        return Plan(revision=snapshot.revision, grants={view.id: on(4) for view in snapshot.jobs})


def test_an_invalid_plan_ends_a_strict_simulation_and_is_refused_by_another() -> None:
    jobs = [sim_job("a", counts=(4,), steps=10.0), sim_job("b", counts=(4,), steps=10.0)]
    with pytest.raises(InvariantBroken, match="not valid"):
        play(jobs, nodes(), Greedy())
    journal = play(jobs, nodes(), Greedy(), strict=False)
    assert finishes(journal) == {"a": 10.0, "b": pytest.approx(20.0, abs=2.0)}


@pytest.mark.parametrize(
    "wrong", [{"resize_s": -1.0}, {"lost_answer_frac": 1.0}, {"node_mtbf_s": 0.0}, {"startup_s": inf}]
)
def test_physics_is_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match=next(iter(wrong))):
        Physics(**wrong)


def test_the_search_for_garbage_is_as_before_afterwards() -> None:
    thresholds = gc.get_threshold()
    during: list[int] = []
    play([sim_job("a")], nodes(), Fifo(), listeners=[lambda _: during.append(gc.get_threshold()[0])])
    assert min(during) > thresholds[0]
    with pytest.raises(InvariantBroken):
        play([sim_job("a"), sim_job("b")], nodes(1, 1), Greedy())
    assert gc.get_threshold() == thresholds


def test_what_a_simulation_leaves_is_not_searched_as_if_it_were_young(monkeypatch: pytest.MonkeyPatch) -> None:
    n_young: list[int] = []

    def look(phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            n_young.append(len(gc.get_objects(generation=0)))

    gc.unfreeze()  # of what `conftest` has frozen, which an earlier simulation may have seen
    monkeypatch.setattr(garbage, "_is_frozen", False)
    gc.callbacks.append(look)
    journal = play([sim_job(f"{i}", float(i)) for i in range(500)], nodes(), Fifo())
    kept = [[i] for i in range(2 * gc.get_threshold()[0])]
    gc.callbacks.remove(look)
    gc.freeze()
    assert n_young
    assert max(n_young) < len(kept) < len(journal)
