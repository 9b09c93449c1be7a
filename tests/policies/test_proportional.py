"""The policy `proportional`: its formula, its bounds and where jobs are placed."""

from dataclasses import replace

import pytest
from tests.policies.pictures import counts, job, picture

from punctual.core.cluster import Node, Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobState, JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources, total
from punctual.policies.proportional import Proportional
from punctual.testing.snapshots import effective

ROOMY = Resources(cores=100.0, gpus=100, memory_bytes=1 << 40)


def view(
    name: str,
    demand: Resources | float,
    *,
    floor: Resources | float = 0.0,
    ceiling: Resources | float = ROOMY,
    on: str | None = None,
    planned_on: str | None = None,
    deadline_s: float | None = None,
    submitted_at: float = 0.0,
    status: JobState | None = None,
    preemptible: bool = False,
) -> JobView:
    spec = JobSpec(
        id=JobId(name), floor=amount(floor), ceiling=amount(ceiling), deadline_s=deadline_s, preemptible=preemptible
    )
    granted = {} if on is None else {NodeId(on): amount(floor).at_least(Resources(cores=0.5)).at_most(amount(ceiling))}
    return JobView(
        spec=spec,
        status=status or ("running" if on else "queued"),
        submitted_at=submitted_at,
        done_steps=0.0,
        demand=amount(demand),
        granted=granted,
        planned={NodeId(planned_on): Resources(cores=0.5)} if planned_on else granted,
    )


def amount(given: Resources | float) -> Resources:
    return given if isinstance(given, Resources) else Resources(cores=given)


def plan(jobs: list[JobView], policy: Proportional | None = None, **capacities: Resources | float) -> Plan:
    nodes = tuple(Node(NodeId(name), amount(capacity)) for name, capacity in capacities.items())
    snapshot = Snapshot.of(1.0, nodes, jobs, revision=3)
    made = (policy or Proportional()).allocate(snapshot)
    allocations = effective(snapshot, made.grants, keeps_others=made.keeps_others)
    return replace(made, grants={job: allocation for job, allocation in allocations.items() if allocation})


def cores(plan: Plan) -> dict[str, float]:
    return {job: total(grant.values()).cores for job, grant in plan.grants.items()}


def nodes(plan: Plan) -> dict[str, list[str]]:
    return {job: list(grant) for job, grant in plan.grants.items()}


def test_demands_that_fit_are_granted() -> None:
    made = plan([view("a", 0.5, on="n"), view("b", 1.25, on="n")], n=2.0)
    assert cores(made) == {"a": 0.5, "b": 1.25}
    assert made.reasons[JobId("a")].code == "as-demanded"
    assert made.revision == 3


def test_demands_that_do_not_fit_are_scaled_by_one_factor() -> None:
    made = plan([view("a", 3.0, on="n"), view("b", 1.0, on="n")], Proportional(shortage="scale"), n=2.0)
    assert cores(made) == {"a": 1.5, "b": 0.5}
    assert made.reasons[JobId("a")].code == "scaled"
    assert made.reasons[JobId("a")].facts == {"demand_cores": 3.0, "granted_cores": 1.5, "node_cores": 2.0}


def test_cores_that_are_reserved_for_the_host_are_given_to_no_job() -> None:
    """The source's revision for several jobs: demands are scaled to all cores but two."""
    published = Proportional(shortage="scale", reserved_cores=2.0)
    scaled = cores(plan([view("a", 4.0, on="n"), view("b", 2.0, on="n")], published, n=5.0))
    assert scaled == pytest.approx({"a": 2.0, "b": 1.0})
    assert cores(plan([view("a", 1.0, on="n"), view("b", 2.0, on="n")], published, n=5.0)) == {"a": 1.0, "b": 2.0}
    with pytest.raises(InvalidSpec, match="`reserved_cores` must be finite and not negative"):
        Proportional(reserved_cores=-1.0)


def test_floors_hold_and_the_others_share_the_rest() -> None:
    made = plan([view("a", 4.0, on="n"), view("b", 1.0, floor=1.0, on="n")], n=2.0)
    assert cores(made) == {"a": 1.0, "b": 1.0}


def test_ceilings_hold() -> None:
    assert cores(plan([view("a", 8.0, ceiling=1.5, on="n")], n=4.0)) == {"a": 1.5}


def test_a_running_job_that_demands_nothing_keeps_a_little() -> None:
    assert cores(plan([view("a", 0.0, on="n")], n=1.0)) == {"a": 0.01}


def test_a_job_whose_ceiling_has_no_cores() -> None:
    gpu = Resources(gpus=1)
    made = plan([view("a", gpu, ceiling=gpu, on="n"), view("b", 3.0, on="n")], n=Resources(cores=2.0, gpus=1))
    assert made.grants[JobId("a")] == {"n": gpu}
    assert cores(made)["b"] == 2.0


def test_a_running_job_stays_on_its_node() -> None:
    made = plan([view("a", 2.0, on="small"), view("b", 2.0, on="small")], small=1.0, large=64.0)
    assert nodes(made) == {"a": ["small"], "b": ["small"]}


def test_queued_jobs_go_where_demands_leave_most() -> None:
    made = plan(
        [view("old", 3.0, on="m"), view("a", 1.0, submitted_at=1.0), view("b", 1.0, submitted_at=2.0)], m=4, n=3
    )
    assert nodes(made) == {"old": ["m"], "a": ["n"], "b": ["n"]}


def test_a_job_waits_while_its_floor_does_not_fit_and_a_smaller_one_may_pass() -> None:
    jobs = [
        view("runs", 1.0, floor=1.0, on="n"),
        view("large", 2.0, floor=1.5, submitted_at=1.0),
        view("small", 2.0, floor=0.5, submitted_at=2.0),
    ]
    made = plan(jobs, n=2.0)
    assert cores(made) == {"runs": 1.0, "small": 1.0}
    assert made.reasons[JobId("large")].code == "waits"
    assert made.reasons[JobId("large")].facts["wanted_cores"] == 1.5
    assert made.status == "feasible"


def test_jobs_submitted_first_are_placed_first() -> None:
    made = plan(
        [view("late", 1.0, floor=1.0, submitted_at=2.0), view("early", 1.0, floor=1.0, submitted_at=1.0)], n=1.0
    )
    assert cores(made) == {"early": 1.0}


def test_a_starting_job_stays_where_the_last_plan_put_it() -> None:
    def nodes_when(planned_on: str) -> dict[str, list[str]]:
        return nodes(plan([view("a", 1.0, status="starting", planned_on=planned_on)], small=1.0, large=8.0))

    assert nodes_when("small") == {"a": ["small"]}
    assert nodes_when("gone") == {"a": ["large"]}


def test_running_floors_that_no_longer_fit_make_the_plan_infeasible() -> None:
    jobs = [view("a", 1.0, floor=0.5, on="n"), view("b", 1.0, floor=0.5, on="n", submitted_at=1.0)]
    assert plan(jobs, n=0.75).status == "infeasible"


def test_a_job_that_may_be_paused_gives_way() -> None:
    jobs = [
        view("a", 1.0, floor=0.5, on="n"),
        view("b", 1.0, floor=0.5, on="n", submitted_at=1.0, preemptible=True),
    ]
    made = plan(jobs, n=0.75)
    assert made.status == "feasible"
    assert cores(made) == {"a": 0.75}


def test_gpus_and_memory_are_given_whole_or_not_at_all() -> None:
    jobs = [
        view("a", Resources(1.0, 3, 10), on="n"),
        view("b", Resources(1.0, 2, 10), floor=Resources(0.5, 1, 0), on="n", submitted_at=1.0),
    ]
    made = plan(jobs, n=Resources(1.0, 4, 15))
    assert made.grants[JobId("a")] == {"n": Resources(0.5, 3, 10)}
    assert made.grants[JobId("b")] == {"n": Resources(0.5, 1, 0)}


def test_missing_gpus_are_said() -> None:
    made = plan([view("a", Resources(1.0, 3), on="n")], n=Resources(2.0, 2))
    assert made.reasons[JobId("a")].code == "not-whole"
    assert made.reasons[JobId("a")].facts["missing_gpus"] == 3.0


@pytest.mark.parametrize("least_cores", [0.0, -1.0, float("inf"), float("nan")])
def test_refuses_a_least_share_of_nothing(least_cores: float) -> None:
    with pytest.raises(InvalidSpec, match="least_cores"):
        Proportional(least_cores=least_cores)


def test_earliest_deadlines_get_their_demand_first() -> None:
    jobs = [
        view("late", 2.0, on="n", deadline_s=100.0), view("soon", 1.5, on="n", deadline_s=50.0),
        view("none", 1.0, floor=0.25, on="n"),
    ]  # fmt: skip
    made = plan(jobs, Proportional(shortage="earliest-deadline"), n=2.0)
    assert cores(made) == pytest.approx({"soon": 1.5, "late": 0.25, "none": 0.25})


def test_half_the_time_is_twice_the_share_up_to_the_demand() -> None:
    policy = Proportional()
    far, near = view("far", 4.0, on="n", deadline_s=101.0), view("near", 4.0, on="n", deadline_s=51.0)
    assert cores(plan([far, near], policy, n=3.0)) == pytest.approx({"far": 1.0, "near": 2.0})
    modest = view("near", 1.0, on="n", deadline_s=51.0)
    assert cores(plan([far, modest], policy, n=3.0)) == pytest.approx({"far": 2.0, "near": 1.0})


def test_without_a_deadline_a_job_comes_last() -> None:
    jobs = [view("none", 2.0, on="n"), view("some", 1.5, on="n", deadline_s=1e6)]
    made = plan(jobs, Proportional(shortage="deadline-weighted"), n=2.0)
    assert cores(made) == pytest.approx({"some": 1.5, "none": 0.5}, abs=1e-6)


def test_refuses_another_rule_of_shortage() -> None:
    with pytest.raises(InvalidSpec, match="shortage"):
        Proportional(shortage="first-come")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shortage", "expected"),
    [("scale", {"a": 4, "b": 4}), ("earliest-deadline", {"a": 1, "b": 7}), ("deadline-weighted", {"a": 2, "b": 6})],
)
def test_whole_workers(shortage: str, expected: dict[str, int]) -> None:
    everything = tuple(range(1, 9))
    jobs = [
        job("a", everything, on={"n": 4}, deadline_s=30.0), job("b", everything, on={"n": 4}, deadline_s=10.0),
    ]  # fmt: skip
    made = Proportional(shortage=shortage).allocate(picture(jobs, {"n": 8}))  # type: ignore[arg-type]
    assert counts(made, jobs) == expected


def test_workers_follow_the_demand_of_a_controller() -> None:
    wants = job("a", (1, 2, 4, 8), on={"n": 8}, controller="decor-pi", demand=Resources(gpus=3))
    assert counts(Proportional().allocate(picture([wants], {"n": 8})), [wants]) == {"a": 2}
