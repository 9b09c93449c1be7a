"""The policy `elastic-mip`."""

import subprocess
import sys
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import pytest
from tests.policies.pictures import GPU, Table, codes, cores, counts, decide, fraction, gpus, held, job, picture, reason

from punctual.core.errors import InvalidSpec
from punctual.core.job import JobView
from punctual.core.resources import Resources
from punctual.core.speed import Shape
from punctual.papers.elastic_mip.elastic_mip import ElasticMip

ANY = tuple(range(1, 9))
#: Twice as fast with twice as many, and hardly faster with more.
KNEE = Table(((1, 1.0), (2, 2.0), (3, 2.1), (4, 2.2), (5, 2.3), (6, 2.4), (7, 2.5), (8, 2.6)))
#: Faster only with all four.
LATE = Table(((1, 1.0), (2, 1.0), (3, 1.0), (4, 4.0)))
#: Waiting changes nothing, so that values are those of the formula.
PLAIN = ElasticMip(waiting_s=inf, interval_s=100.0)


def share(steps: float, rate: float, cost_s: float = 0.0, interval_s: float = 100.0) -> float:
    """What of a job gets done in an interval, by the formula."""
    return min(1.0, interval_s / (steps / rate + cost_s))


def test_the_objective_is_that_of_the_formula_and_no_choice_is_better() -> None:
    works, speeds = {"a": 900.0, "b": 2000.0, "c": 5000.0}, {"a": KNEE, "b": None, "c": None}
    jobs = [job(name, (1, 2, 4, 8), steps=steps, speed=speeds[name], at=1.0) for name, steps in works.items()]
    plan = decide(PLAIN, jobs, {"n": 8}, at=1.0)

    def value(name: str, n: int) -> float:
        rate = KNEE.rate_sps(None, Shape(n_workers=n)) if speeds[name] else float(n)
        return share(works[name], rate) if n else 0.0

    given = {name: counts(plan, jobs).get(name, 0) for name in works}
    choices = [choice for choice in product((0, 1, 2, 4, 8), repeat=3) if sum(choice) <= 8]
    best = max(sum(value(name, n) for name, n in zip(works, choice, strict=True)) for choice in choices)
    assert plan.objective == pytest.approx(sum(value(name, n) for name, n in given.items()))
    assert plan.objective == pytest.approx(best)
    assert plan.bound == pytest.approx(best)
    assert plan.status == "optimal"


def test_it_sees_a_gain_that_needs_several_steps_at_once() -> None:
    jobs = [job("late", (1, 2, 3, 4), steps=1000.0, speed=LATE), job("line", ANY, steps=2000.0)]
    assert counts(decide(PLAIN, jobs, {"n": 6}), jobs) == {"late": 4, "line": 2}


def test_a_short_job_comes_before_a_long_one() -> None:
    jobs = [job("long", 4, steps=1e6), job("short", 4, steps=1e3, at=1.0)]
    assert counts(decide(PLAIN, jobs, {"n": 4}, at=1.0), jobs) == {"short": 4}


def test_throughput_prefers_whoever_uses_devices_well() -> None:
    flat = Table(((1, 1.0), (4, 2.0)))
    jobs = [job("short", (1, 4), steps=1e4, speed=flat), job("long", (1, 4), steps=1e6, speed=flat)]
    by_fraction = counts(decide(PLAIN, jobs, {"n": 4}), jobs)
    throughput = ElasticMip(objective="throughput", waiting_s=inf, interval_s=100.0)
    plan = decide(throughput, [*jobs, job("line", (1, 4), steps=1e6)], {"n": 4})
    assert by_fraction == {"short": 4}
    assert set(plan.grants) == {"line"}
    assert plan.objective == pytest.approx(4.0)
    assert "4.0 devices at their best" in reason(plan, "line").text


def test_nobody_goes_below_the_least() -> None:
    jobs = [job("long", (2, 4), steps=1e6, on={"n": 4}, preemptible=True), job("new", (2, 4), steps=1e3, at=1.0)]
    plan = decide(PLAIN, jobs, {"n": 4}, at=1.0)
    assert counts(plan, jobs) == {"long": 2, "new": 2}
    assert codes(plan) == {"long": "shrinks", "new": "starts"}
    full = [job("long", 4, steps=1e6, on={"n": 4}, preemptible=True), jobs[1]]
    assert counts(decide(PLAIN, full, {"n": 4}, at=1.0), full) == {"long": 4}


def test_a_resize_has_to_pay() -> None:
    # With 4 instead of 2 workers 1000 s instead of 2000 s.
    cheap = [job("a", (2, 4), steps=4000.0, on={"n": 2}, resize_cost_s=990.0)]
    dear = [job("a", (2, 4), steps=4000.0, on={"n": 2}, resize_cost_s=1010.0)]
    assert counts(decide(PLAIN, cheap, {"n": 4}), cheap) == {"a": 4}
    assert decide(PLAIN, dear, {"n": 4}).grants == {}


def test_a_start_costs_the_start_up() -> None:
    jobs = [job("slow", 4, steps=1000.0, startup_s=300.0), job("fast", 4, steps=1100.0)]
    assert counts(decide(PLAIN, jobs, {"n": 4}), jobs) == {"fast": 4}


def test_waiting_makes_a_job_weigh_more() -> None:
    jobs = [job("long", 4, steps=3000.0, at=0.0), job("short", 4, steps=1000.0, at=3600.0)]
    patient, impatient = ElasticMip(waiting_s=3600.0), ElasticMip(waiting_s=900.0)
    assert counts(decide(patient, jobs, {"n": 4}, at=3600.0), jobs) == {"short": 4}
    assert counts(decide(impatient, jobs, {"n": 4}, at=3600.0), jobs) == {"long": 4}


def test_weights() -> None:
    jobs = [job("a", 4, steps=1000.0, weight=3.0), job("b", 4, steps=500.0)]
    assert counts(decide(PLAIN, jobs, {"n": 4}), jobs) == {"a": 4}


@pytest.mark.parametrize(("limits", "most"), [({}, 8), ({"n_up_max": 1}, 2), ({"n_up_max": 2}, 4)])
def test_how_far_a_job_may_go_up(limits: dict[str, Any], most: int) -> None:
    jobs = [job("a", (1, 2, 4, 8), steps=1e5, on={"n": 1})]
    assert counts(decide(ElasticMip(**limits), jobs, {"n": 8}), jobs) == {"a": most}


@pytest.mark.parametrize(("limits", "least"), [({}, 1), ({"n_down_max": 1}, 4), ({"n_down_max": 2}, 2)])
def test_how_far_a_job_may_go_down(limits: dict[str, Any], least: int) -> None:
    jobs = [
        job("a", (1, 2, 4, 8), steps=1e7, on={"n": 8}), *(job(f"{i}", 1, steps=1e3, at=1.0) for i in range(8 - least))
    ]  # fmt: skip
    plan = decide(ElasticMip(**limits), jobs, {"n": 8}, at=1.0)
    assert counts(plan, jobs)["a"] == least


def test_who_starts_may_start_with_any_number() -> None:
    jobs = [job("a", (1, 2, 4, 8), steps=1e5)]
    assert counts(decide(ElasticMip(n_up_max=1), jobs, {"n": 8}), jobs) == {"a": 8}


def test_who_demands_less_than_it_has_comes_down() -> None:
    jobs = [job("a", ANY, steps=1e5, on={"n": 6}, controller="remaining-cost", demand=GPU * 2)]
    assert counts(decide(ElasticMip(n_down_max=1), jobs, {"n": 8}), jobs) == {"a": 2}


def test_a_count_that_stays_keeps_its_nodes() -> None:
    jobs = [job("a", 4, steps=1e5, on={"m": 1, "n": 3}), job("b", 4, steps=1e5, on={"m": 3, "n": 1})]
    assert decide(PLAIN, jobs, {"m": 4, "n": 4}).grants == {}


def test_what_finds_no_nodes_is_not_counted_but_the_bound_stays() -> None:
    # Six devices are free, but not four on one node.
    jobs = [job("x", 1, steps=1e4, on={"m": 1}), job("y", 1, steps=1e4, on={"n": 1})]
    jobs.append(job("a", 1, steps=1e3, worker=Resources(gpus=4)))
    plan = decide(PLAIN, jobs, {"m": 4, "n": 4})
    assert counts(plan, jobs) == {"x": 1, "y": 1}
    assert codes(plan) == {"a": "waits"}
    assert plan.objective == pytest.approx(0.02)
    assert plan.bound == pytest.approx(0.12)
    assert plan.status == "feasible"


def test_by_nodes_a_job_has_its_nodes_to_itself() -> None:
    jobs = [job("small", (1, 2), steps=1e4), job("large", (4, 8), steps=1e4, at=1.0), job("last", 1, steps=1e6, at=2.0)]
    nodes = {"k": 4, "m": 4, "n": 4}
    plan = decide(ElasticMip(unit="nodes", waiting_s=inf), jobs, nodes, at=2.0)
    assert counts(plan, jobs) == {"small": 2, "large": 8}
    assert plan.objective == pytest.approx(300.0 / 5000.0 + 300.0 / 1250.0)
    lying = held(plan, jobs)
    assert not lying["small"].keys() & lying["large"].keys()
    assert counts(decide(ElasticMip(waiting_s=inf), jobs, nodes, at=2.0), jobs) == {"small": 2, "large": 8, "last": 1}


def test_by_nodes_a_job_beside_others_stays_as_it_is() -> None:
    jobs = [job("a", ANY, steps=1e5, on={"m": 1}), job("b", ANY, steps=1e5, on={"m": 1})]
    assert decide(ElasticMip(unit="nodes"), jobs, {"m": 4, "n": 4}).grants == {}
    alone = [job("a", ANY, steps=1e5, on={"m": 1})]
    assert counts(decide(ElasticMip(unit="nodes"), alone, {"m": 4, "n": 4}), alone) == {"a": 8}


def test_by_nodes_what_shrinks_leaves_whole_nodes() -> None:
    jobs = [job("a", (4, 8), steps=1e6, on={"m": 4, "n": 4}), job("b", 2, steps=1e3, at=1.0)]
    plan = decide(ElasticMip(unit="nodes"), jobs, {"m": 4, "n": 4}, at=1.0)
    assert counts(plan, jobs) == {"a": 4, "b": 2}


def test_each_kind_of_device_is_a_resource_of_its_own() -> None:
    old, new = Table(((1, 1.0), (2, 2.0)), device="old"), Table(((1, 1.0), (2, 2.0)), device="new")
    jobs = [job("a", (1, 2), steps=1e3, speed=old), job("b", (1, 2), steps=1e3, speed=new, at=1.0)]
    plan = decide(PLAIN, jobs, {"m": gpus(2, device="old"), "n": gpus(2, device="new")}, at=1.0)
    assert held(plan, jobs) == {"a": {"m": 2}, "b": {"n": 2}}
    assert plan.bound == pytest.approx(0.4, rel=0.02)
    assert plan.objective == pytest.approx(0.4)


def test_a_running_job_stays_on_its_kind() -> None:
    both = Table(((1, 1.0), (2, 2.0), (4, 4.0)))
    jobs = [job("a", (1, 2, 4), steps=1e4, speed=both, on={"m": 1})]
    plan = decide(PLAIN, jobs, {"m": gpus(2, device="old"), "n": gpus(4, device="new")})
    assert held(plan, jobs) == {"a": {"m": 2}}


def test_jobs_without_workers_get_their_demand_first() -> None:
    jobs = [fraction("f", 3.0), job("w", ANY, steps=1e4, worker=Resources(cores=1.0))]
    plan = decide(PLAIN, jobs, {"n": Resources(8.0)})
    assert cores(plan) == {"f": 3.0, "w": 5.0}


def test_what_is_not_known() -> None:
    """Of unknown length: an hour, or as long again; of unknown speed: as many times faster as it has workers."""
    unknown = job("unknown", ANY)
    plan = decide(PLAIN, [unknown], {"n": 8})
    assert counts(plan, [unknown]) == {"unknown": 8}
    assert plan.objective == pytest.approx(share(3600.0, 8.0))
    seen = job("seen", (2, 4), on={"n": 2}, rate_sps=0.5)
    measured = [replace(job("m", (2, 4), steps=1000.0, on={"n": 2}), curve=None, rate_sps=0.5)]
    assert decide(PLAIN, [seen], {"n": 4}).objective == pytest.approx(share(3600.0, 2.0))
    # 1000 steps at 0.25 steps a second for each worker.
    assert decide(PLAIN, measured, {"n": 4}).objective == pytest.approx(share(1000.0, 1.0))


def test_what_a_change_is_worth_is_said() -> None:
    jobs = [job("a", (2, 4), steps=2640.0, on={"n": 2})]
    said = reason(decide(PLAIN, jobs, {"n": 4}), "a")
    assert said.text == "2 -> 4 workers: finishes 11 min earlier; 15.2% of what is left in the next 1 min 40 s"
    assert said.facts["value_before"] == pytest.approx(100 / 1320)
    assert said.facts["value"] == pytest.approx(100 / 660)


def test_the_first_that_waits_is_told_why() -> None:
    jobs = [job("long", 4, steps=1e4), job("short", 4, steps=1e3), job("longer", 4, steps=1e5)]
    plan = decide(PLAIN, jobs, {"n": 4})
    assert codes(plan) == {"short": "starts", "long": "waits"}
    assert reason(plan, "long").text == "waits for 4 GPUs: 0 are free"
    plan = decide(PLAIN, [jobs[2], *jobs[:2]], {"n": 4})
    assert codes(plan) == {"short": "starts", "longer": "waits"}
    assert reason(plan, "longer").text == "waits: a device is worth 10% of the least that others gain by it"
    assert reason(plan, "longer").facts["value_each"] == pytest.approx(0.001)


def test_a_job_that_no_node_can_hold_is_told() -> None:
    assert codes(decide(PLAIN, [job("a", 9, steps=1.0)], {"n": 8})) == {"a": "never-fits"}


def test_it_asks_again_only_where_there_is_too_little() -> None:
    jobs = [job("a", 4, steps=1e4), job("b", 4, steps=1e4)]
    assert decide(PLAIN, jobs, {"n": 4}, at=10.0).ask_again_at == 110.0
    assert decide(PLAIN, jobs, {"n": 8}, at=10.0).ask_again_at is None


def test_the_price_of_the_last_round_changes_nothing_but_the_time() -> None:
    jobs: list[JobView] = [job(f"{i}", ANY, steps=500.0 * (i + 1)) for i in range(20)]
    plan = decide(PLAIN, jobs, {"n": 32})
    again = PLAIN.allocate(picture(jobs, {"n": 32}, carry=plan.carry))
    assert again.objective == pytest.approx(plan.objective, rel=2e-4)
    assert again.bound is not None
    assert plan.objective is not None
    assert again.bound >= plan.objective - 1e-9


@pytest.mark.parametrize(
    "wrong",
    [
        {"objective": "jct"}, {"unit": "racks"}, {"interval_s": 0.0}, {"interval_s": inf}, {"waiting_s": -1.0},
        {"n_up_max": 0}, {"n_down_max": -1}, {"gap_limit": -1e-4},
    ],
)  # fmt: skip
def test_parameters_are_checked(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as raised:
        ElasticMip(**wrong)
    assert next(iter(wrong)) in raised.value.must
    assert raised.value.where == "policy 'elastic-mip'"


def test_without_numpy_it_can_be_listed_and_says_what_is_missing() -> None:
    program = """
import sys
sys.modules['numpy'] = None
from punctual import registry
from punctual.core.errors import InvalidSpec
print('elastic-mip' in registry.names('policies'), registry.summary('policies', 'elastic-mip'))
try:
    registry.load('policies', 'elastic-mip')
except InvalidSpec as error:
    print(error.remedy)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("True Chooses how many workers each job gets")
    assert "pip install numpy" in done.stdout


def test_a_short_job_does_not_crawl_beside_idle_devices() -> None:
    jobs = [job("short", ANY, steps=100.0), job("other", 1, steps=1e4)]
    assert counts(decide(PLAIN, jobs, {"n": 16}), jobs) == {"short": 8, "other": 1}
    plan = decide(PLAIN, jobs[:1], {"n": 16})
    assert plan.objective == pytest.approx(1.0 + 0.01 * (1 - 12.5 / 100))


def test_a_job_with_servers_gets_one_beside_each_worker() -> None:
    server, plain = Resources(cores=2.0), job("ps", (1, 2, 4), steps=1e4)
    made = replace(plain, spec=replace(plain.spec, server=server, ceiling=(GPU + server) * 4))
    plan = decide(PLAIN, [made], {"n": Resources(cores=5.0, gpus=4)})
    assert plan.grants[made.id] == {"n": (GPU + server) * 2}
