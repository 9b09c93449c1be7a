"""The policy `optimus`."""

from dataclasses import dataclass
from math import inf
from random import Random
from typing import Any

import pytest
from tests.examples import examples
from tests.policies.pictures import Table, codes, cores, counts, decide, fraction, job, reason
from tests.sim.pieces import of
from tests.sim.test_random_worlds import Auditor, some_physics

from punctual import registry
from punctual.core.cluster import Node
from punctual.core.commands import WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFinished
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobView
from punctual.core.plan import Plan
from punctual.core.resources import Resources, total
from punctual.core.scheduler import Periods
from punctual.core.speed import RateCurve, SeenRate, Shape
from punctual.papers.optimus.optimus import Optimus
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation

ANY = tuple(range(1, 9))
WORKER, SERVER = Resources(cores=2, gpus=1), Resources(cores=3)
ROOMY = {"n": Resources(100.0, 100)}
ALWAYS = Optimus(interval_s=0.0)


@dataclass(frozen=True, slots=True)
class Served:
    """A speed with servers: seconds a step are compute / w + link * w / p + fixed."""

    compute: float = 10.0
    link: float = 1.0
    fixed: float = 0.1

    def init(self, spec: JobSpec) -> None:
        return None

    def update(self, state: None, seen: SeenRate) -> None:
        return None

    def rate_sps(self, state: None, shape: Shape) -> float:
        if not (shape.n_workers and shape.n_servers):
            return 0.0
        w, p = shape.n_workers, shape.n_servers
        return 1 / (self.compute / w + self.link * w / p + self.fixed)

    def std_sps(self, state: None, shape: Shape) -> float:
        return 0.0 if shape.n_servers else inf


def served(
    name: str, *, steps: float | None = 100.0, at: float = 0.0, speed: Served | None = None, done: float = 0.0,
    on: Allocation | None = None, most: tuple[int, int] = (8, 8), worker: Resources = WORKER,
    server: Resources = SERVER, **spec: Any,
) -> JobView:  # fmt: skip
    """A job with servers; young until told otherwise."""
    declared = JobSpec(
        id=JobId(name), worker=worker, server=server, counts=tuple(range(1, most[0] + 1)), floor=worker,
        ceiling=worker * most[0] + server * most[1], work_steps=steps, **{"controller": None, **spec},
    )  # fmt: skip
    return JobView(
        spec=declared, status="running" if on else "queued", submitted_at=at, done_steps=done, demand=declared.ceiling,
        granted=on or {}, planned=on or {}, curve=RateCurve(speed or Served(), None),
    )  # fmt: skip


def parts(plan: Plan, views: list[JobView]) -> dict[str, tuple[int, int] | None]:
    """Workers and servers of each job that the plan names."""
    specs = {view.id: view.spec for view in views}
    return {str(name): specs[name].parts_of(total(grant.values())) for name, grant in plan.grants.items() if grant}


def test_gains_by_hand() -> None:
    """From 1 and 1: a gains 600 - 300, then b 400 - 200, then a 300 - 200, then a 50, then b 66.7: b before a."""
    jobs = [job("a", ANY, steps=600.0), job("b", ANY, steps=400.0)]
    order = [counts(decide(ALWAYS, jobs, {"n": n}), jobs) for n in range(2, 7)]
    assert order == [{"a": 1, "b": 1}, {"a": 2, "b": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 2}, {"a": 3, "b": 3}]


def test_a_server_or_a_worker_whichever_gains_more_for_what_it_takes() -> None:
    """A step takes 10/w + w/p. Of 100 cores and 100 GPUs a worker takes 2 % at most, a server 3 %."""
    one = served("a", steps=300.0)
    # (1,1) 11 s; worker: (2,1) 7 s; (3,1) 6.33, (2,2) 6: per share 1/3 against 0.33 for the worker.
    for n_cores, expected in [(5, (1, 1)), (7, (2, 1)), (9, (3, 1)), (12, (3, 2))]:
        plan = decide(ALWAYS, [one], {"n": Resources(float(n_cores), 100)})
        assert parts(plan, [one]) == {"a": expected}, n_cores


def test_servers_are_added_where_links_are_slow() -> None:
    slow_link = served("a", speed=Served(compute=1.0, link=10.0))
    found = parts(decide(ALWAYS, [slow_link], ROOMY), [slow_link])["a"]
    assert found is not None
    assert found[1] > found[0]


def test_nothing_is_given_that_gains_nothing() -> None:
    no_use = served("a", speed=Served(compute=0.0, link=0.0))
    assert parts(decide(ALWAYS, [no_use], ROOMY), [no_use]) == {"a": (1, 1)}


def test_everyone_gets_the_least_first_the_oldest_first() -> None:
    jobs = [served("long", steps=1e6), served("b", at=1.0), served("c", at=2.0)]
    plan = decide(ALWAYS, jobs, {"n": Resources(13.0, 8)})
    assert parts(plan, jobs) == {"long": (2, 1), "b": (1, 1)}
    assert codes(plan)["c"] == "waits"


def test_what_some_get_beyond_their_least_leaves_nobody_without_it() -> None:
    """There is a node for each job; those that gain most take nothing that another needs to start."""
    for seed in range(20):
        random = Random(seed)
        n = random.randint(2, 12)
        laws = [Served(random.uniform(1, 100), random.uniform(0, 10)) for _ in range(n)]
        jobs = [served(f"j{i:02}", steps=random.uniform(1, 1e4), at=float(i), speed=law) for i, law in enumerate(laws)]
        nodes = {f"n{i:02}": Resources(random.uniform(5, 12), random.randint(1, 4)) for i in range(n)}
        found = parts(decide(ALWAYS, jobs, nodes), jobs)
        assert len(found) == n, seed
        assert all(found.values()), seed


def test_where_the_best_does_not_fit_others_are_tried() -> None:
    """After the least there are no cores left, but GPUs: the job without servers grows, though the other gains more."""
    jobs = [served("long", steps=1e6), job("small", ANY, steps=100.0, at=1.0)]
    plan = decide(ALWAYS, jobs, {"n": Resources(5.0, 6)})
    assert parts(plan, jobs) == {"long": (1, 1), "small": (5, 0)}


def test_of_one_job_the_server_is_tried_where_the_worker_does_not_fit() -> None:
    one = served("a")
    assert parts(decide(ALWAYS, [one], {"n": Resources(50.0, 1)}), [one])["a"] == (1, 12)


def test_young_jobs_gain_less() -> None:
    """Equal but for what is done of it: the young one comes after the old one, which came later."""
    jobs = [job("young", ANY, steps=100.0), job("old", ANY, steps=100.0, at=1.0)]
    plan = decide(ALWAYS, jobs, {"n": 3})
    assert counts(plan, jobs) == {"young": 2, "old": 1}
    old = served("old", steps=200.0, done=100.0, at=1.0)
    young = served("young", steps=100.0)
    for factor, first in [(1.0, "young"), (0.5, "old")]:
        plan = decide(Optimus(interval_s=0.0, young_factor=factor), [young, old], {"n": Resources(12.0, 3)})
        assert parts(plan, [young, old])[first] == (2, 1), factor


def test_weights_count() -> None:
    jobs = [job("a", ANY, steps=100.0), job("b", ANY, steps=100.0, at=1.0, weight=2.0)]
    assert counts(decide(ALWAYS, jobs, {"n": 3}), jobs) == {"a": 1, "b": 2}


def test_equal_parts_on_the_fewest_nodes() -> None:
    one = served("a", most=(4, 2), speed=Served(compute=100.0, link=10.0))
    nodes = {f"n{i}": Resources(7.0, 2) for i in range(4)}
    plan = decide(ALWAYS, [one], nodes)
    assert sorted(plan.grants[one.id].values(), key=str) == [Resources(7.0, 2)] * 2


def test_running_jobs_are_resized_only_when_the_interval_is_over() -> None:
    running = job("a", ANY, steps=1e4, on={"n": 2})
    first = decide(Optimus(), [running], {"n": 2}, at=0.0)
    assert first.ask_again_at == 600.0
    arrived = [running, job("b", ANY, steps=1e4, at=5.0)]
    between = decide(Optimus(), arrived, {"n": 8}, at=10.0, carry={**first.carry, "hardware": None})  # type: ignore[dict-item]
    assert counts(between, arrived) != {"a": 2, "b": 1}  # other nodes: decided at once
    carry = decide(Optimus(), [running], {"n": 8}, at=0.0).carry
    between = decide(Optimus(), arrived, {"n": 8}, at=10.0, carry=carry)
    assert counts(between, arrived) == {"a": 2, "b": 1}
    assert between.ask_again_at == 600.0
    later = decide(Optimus(), arrived, {"n": 8}, at=600.0, carry=between.carry)
    assert counts(later, arrived) == {"a": 4, "b": 4}
    assert later.ask_again_at == 1200.0


def test_a_resize_has_to_pay() -> None:
    cheap = [job("a", (2, 4), steps=400.0, on={"n": 2}, resize_cost_s=90.0)]
    dear = [job("a", (2, 4), steps=400.0, on={"n": 2}, resize_cost_s=110.0)]
    assert counts(decide(ALWAYS, cheap, {"n": 4}), cheap) == {"a": 4}
    assert decide(ALWAYS, dear, {"n": 4}).grants == {}


def test_a_new_job_takes_from_those_that_run() -> None:
    jobs = [job("a", ANY, steps=400.0, on={"n": 8}), job("new", (2, 4), steps=100.0, at=1.0)]
    plan = decide(ALWAYS, jobs, {"n": 8})
    assert counts(plan, jobs) == {"a": 6, "new": 2}
    assert codes(plan) == {"a": "shrinks", "new": "starts"}
    assert "8 workers -> 6 workers: finishes 17 s later" in reason(plan, "a").text


def test_says_what_is_gained() -> None:
    held = {NodeId("n"): WORKER + SERVER}
    one = served("a", on=held, steps=300.0)
    plan = decide(ALWAYS, [one], {"n": Resources(7.0, 8)})
    assert reason(plan, "a").text.startswith("1 worker, 1 server -> 2 workers, 1 server: finishes 20 min earlier")
    assert reason(plan, "a").facts["sooner_s"] == pytest.approx(1200.0)


def test_what_stays_is_not_named() -> None:
    one = served("a", on={NodeId("n"): WORKER * 3 + SERVER}, steps=300.0)
    assert decide(ALWAYS, [one], {"n": Resources(9.0, 8)}).grants == {}


def test_unknown_jobs_come_last() -> None:
    jobs = [job("unknown", ANY), job("known", ANY, steps=1.0, at=1.0)]
    assert counts(decide(ALWAYS, jobs, {"n": 9}), jobs) == {"known": 8, "unknown": 1}


def test_a_speed_known_only_now_is_taken_as_proportional() -> None:
    jobs = [
        job("a", ANY, steps=100.0, speed=Table(((2, 2.0),)), on={"n": 2}, resize_cost_s=0.0),
        job("b", ANY, steps=100.0, on={"n": 2}),
    ]  # fmt: skip
    assert counts(decide(ALWAYS, jobs, {"n": 8}), jobs) == {"a": 4, "b": 4}


def test_a_job_with_servers_that_lost_its_node_starts_again() -> None:
    lost = served("a", on={NodeId("gone"): WORKER + SERVER}, preemptible=False)
    plan = decide(ALWAYS, [lost], {"n": Resources(5.0, 1)})
    assert plan.status == "feasible"
    assert parts(plan, [lost]) == {"a": (1, 1)}


def test_amounts_that_could_be_read_otherwise_are_skipped() -> None:
    """A worker of 2 cores and a server of 1: 5 cores are one worker and three servers, not two and one."""
    one = served("a", worker=Resources(2.0), server=Resources(1.0), speed=Served(compute=100.0, link=0.1), most=(6, 6))
    for n_cores in (3.0, 5.0, 7.0, 20.0):
        plan = decide(ALWAYS, [one], {"n": Resources(n_cores)})
        assert parts(plan, [one]) == {
            "a": (int(plan.reasons[one.id].facts["n_workers"]), int(plan.reasons[one.id].facts["n_servers"]))
        }


def test_what_can_never_fit() -> None:
    plan = decide(ALWAYS, [served("a")], {"n": Resources(4.0, 8)})
    assert codes(plan) == {"a": "never-fits"}


def test_jobs_without_workers_get_their_demand() -> None:
    jobs = [fraction("a", 3.0), fraction("b", 3.0, at=1.0)]
    assert cores(decide(ALWAYS, jobs, {"n": Resources(cores=4.0)})) == {"a": 3.0, "b": 1.0}


@pytest.mark.parametrize(("parameter", "value"), [("interval_s", -1.0), ("young_frac", 2.0), ("young_factor", 0.0)])
def test_parameters_are_checked(parameter: str, value: float) -> None:
    with pytest.raises(InvalidSpec, match=parameter):
        Optimus(**{parameter: value})


@dataclass(frozen=True, slots=True)
class TrueServed:
    """The truth of `Served`."""

    law: Served

    def rate_sps(self, shape: Shape) -> float:
        return self.law.rate_sps(None, shape)


def _sim_jobs(random: Random) -> list[SimJob]:
    at, jobs = 0.0, []
    for i in range(random.randint(4, 10)):
        at += random.choice([0.0, random.expovariate(0.05)])
        most = random.randint(1, 4)
        law = Served(random.uniform(0.1, 2.0), random.uniform(0.0, 0.5), 0.01)
        spec = JobSpec(
            id=JobId(f"job-{i}"), worker=WORKER, server=SERVER, counts=tuple(range(1, most + 1)), floor=WORKER,
            ceiling=WORKER * most + SERVER * most, work_steps=random.uniform(1, 200), controller=None,
            preemptible=random.random() < 0.7, model=random.choice([None, "served"]), startup_s=2.0,
            resize_cost_s=random.choice([0.0, 3.0]),
        )  # fmt: skip
        jobs.append(SimJob(at, spec, TrueServed(law), spec.work_steps or 0.0, random.random() < 0.3))
    return jobs


@pytest.mark.parametrize(
    "name",
    [
        "optimus",
        "fifo",
        "tetris",
        "dominant-share",
        "greedy",
        "shortest-remaining",
        "promises-first",
        "goodput",
        "elastic-mip",
    ],
)
def test_jobs_with_servers_end_in_hostile_worlds(name: str) -> None:
    """Also under policies that give one server beside each worker."""
    for seed in range(examples(16)):
        random = Random(seed)
        auditor, jobs = Auditor(), _sim_jobs(random)
        nodes = [Node(NodeId(f"n{i}"), Resources(12.0, 3)) for i in range(random.randint(1, 3))]
        auditor.simulation = Simulation(
            jobs, nodes, registry.load("policies", name)(), models={"served": Served()},
            physics=some_physics(random), seed=seed, periods=Periods(answer_s=60.0), listeners=[auditor.add],
            n_retries=10_000, end_at=1e6,
        )  # fmt: skip
        auditor.simulation.run()
        assert {event.job for event in of(auditor.journal, JobFinished)} == {job.spec.id for job in jobs}, seed
        refused = [warning for warning in of(auditor.journal, WarnUser) if warning.reason.code == "plan-refused"]
        assert all("no valid plan" in warning.reason.text for warning in refused), (seed, refused)
