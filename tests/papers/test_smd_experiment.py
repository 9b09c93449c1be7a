"""The experiments of SMD: its problems, its rivals, its table."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from math import inf
from typing import Any

import numpy as np
import pytest

from punctual.core.utility import Sigmoid
from punctual.papers.smd import experiment as smd
from punctual.papers.smd.case import UNIT, Case, Forward, Interpretation, Kind, best_together, cases, in_units
from punctual.papers.smd.smd_jobs import SmdJobs


def case(theta: tuple[float, ...] = (0.0, 0.0, 0.0, 0.0, 12.0), limit: float = 6.0, height: float = 10.0) -> Case:
    """A job whose worker and server take one of the first resource; in 12 s / w, worth nearly `height` until 100 s."""
    one = np.array([1.0, 0.0, 0.0, 0.0])
    utility = Sigmoid(height=height, steepness_per_s=1.0, middle_s=100.0)
    return Case(0, "sync", theta, one, one, limit * one, utility)


@pytest.mark.parametrize("kind", ["sync", "async"])
@pytest.mark.parametrize("reading", ["batch", "sample"])
def test_the_time_is_that_of_the_equations(kind: Kind, reading: Forward) -> None:
    made = cases(kind, 5, 3, Interpretation(reading))[-1]
    p = list(SmdJobs(n_jobs=5).jobs(3))[made.id].parameters
    n_layers, w, servers = int(p["n_layers"]), 3, 2
    forward, backward, push = (
        sum(p[f"{what}_{i}_s"] for i in range(1, n_layers + 1)) for what in ("forward", "backward", "push")
    )
    exposed = _wait_free_s(p) - forward - backward
    transfer = exposed / push * p["model_bytes"] / p["bandwidth_bytes_per_s"]  # 2 η3 g / B
    sample = forward / (p["batch_per_worker"] if reading == "batch" else 1.0)
    overhead = p["worker_overhead_s"] * w + p["server_overhead_s"] * servers
    if kind == "sync":
        step = p["global_batch"] / w * sample + backward + transfer * w / servers + overhead
    else:
        step = (p["batch_per_worker"] * sample + backward + p["overlap_frac"] * transfer * w / servers + overhead) / w
    assert made.time_s(w, servers) == pytest.approx(p["iterations"] * step)


def _wait_free_s(p: Mapping[str, float]) -> float:
    """Lemma 1, layers counted from 1."""
    n = int(p["n_layers"])
    computed = push_end = pull_end = 0.0
    for i in range(n, 0, -1):
        computed += p[f"backward_{i}_s"]
        push_end = max(computed, push_end) + p[f"push_{i}_s"]
        pull_end = max(push_end, pull_end) + p[f"push_{i}_s"]
    return pull_end + sum(p[f"forward_{i}_s"] for i in range(1, n + 1))


def test_a_job_without_room_for_a_pair_is_left_out() -> None:
    assert len(cases("sync", 40, 1, Interpretation(limit="worker and server"))) == 40
    assert len(cases("sync", 40, 1, Interpretation())) < 40


def test_with_t_f_of_a_batch_one_worker_with_its_own_batch_takes_as_long_as_the_layers_say() -> None:
    p = next(iter(SmdJobs(n_jobs=1).jobs(0))).parameters
    made = next(iter(cases("async", 1, 0, Interpretation(limit="worker and server"))))
    layers = range(1, int(p["n_layers"]) + 1)
    computing = sum(p[f"forward_{i}_s"] + p[f"backward_{i}_s"] for i in layers)
    assert made.theta[2] == pytest.approx(p["iterations"] * computing)


def test_limits_that_are_drawn_by_resource_are_whole_multiples_of_the_worker() -> None:
    for one in cases("sync", 20, 1, Interpretation(limit="worker, by resource")):
        has = one.worker > 0
        factors = one.limit[has] / one.worker[has]
        assert factors == pytest.approx(np.round(factors))
        assert (factors >= 1).all()
        assert (factors <= 20).all()


def test_the_pairs_of_all_ways() -> None:
    one = case()
    assert (one.exact, one.rounded) == ((5, 1, 12 / 5), (5, 1, 12 / 5))
    assert one.equal == (3, 3, 4.0)
    assert one.marginal == (5, 1, pytest.approx(12 / 5))


def test_a_marginal_gain_is_that_for_its_dominant_share() -> None:
    # A second worker gains 6 s and takes a third of the limit; a second server gains 4 s and takes a twelfth.
    one = replace(case((0.0, 0.0, 0.0, 8.0, 12.0)), worker=np.array([2.0, 0, 0, 0]), server=np.array([0.5, 0, 0, 0]))
    assert one.best_unit(1, 1, one.limit) == (4.0 / (0.5 / 6), 0, 1)
    assert case((5.0, 5.0, 0.0, 0.0, 1.0)).best_unit(1, 1, np.ones(4)) is None


def test_first_come_charges_limits() -> None:
    jobs = [case(limit=5.0, height=1.0), case(limit=7.0, height=100.0), case(limit=3.0, height=10.0)]
    assert smd.first_come(jobs, np.array([8.0, 0, 0, 0])) == pytest.approx(11.0)


def test_marginal_gains_use_what_there_is_and_no_more() -> None:
    jobs = [case(), case((0.0, 0.0, 0.0, 0.0, 1200.0))]
    # Two pairs take 4 of 8 units; the rest goes to the longer job, which then has 5 workers and takes 240 s.
    assert smd.marginal_gains(jobs, np.array([8.0, 0, 0, 0])) == pytest.approx(10.0)
    long = replace(jobs[1], utility=replace(jobs[1].utility, middle_s=240.0))
    assert smd.marginal_gains([jobs[0], long], np.array([8.0, 0, 0, 0])) == pytest.approx(10.0 + 5.0)
    assert smd.marginal_gains(jobs, np.array([1.0, 0, 0, 0])) == 0.0


def test_a_longer_unit_is_a_more_patient_user_with_the_same_pairs() -> None:
    before = case()
    (one,) = in_units([before], 2.0)
    assert one.exact is before.exact
    assert one.utility == Sigmoid(height=10.0, steepness_per_s=0.5, middle_s=200.0)


def test_smd_is_no_better_than_the_optimum_nor_worse_than_equal_numbers() -> None:
    draws = [cases("sync", 12, seed, Interpretation("sample", unit_s=86_400.0)) for seed in range(2)]
    for several in draws:
        for one in several:
            times = [
                one.time_s(w, p) for w, p in product(range(1, 60), range(1, 60)) if one.fits(w, p)
            ]  # fmt: skip
            assert one.exact[2] == pytest.approx(min(times))
            assert one.rounded[2] <= 1.05 * one.equal[2]
    assert 0.8 < smd.to_optimum(draws) <= 1.0
    assert smd.exact_total(draws, UNIT) >= smd.smd_total(draws, UNIT)


def test_a_unit_of_time_in_which_nothing_is_worth_anything_is_not_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smd, "_UNITS_S", (1e-6, 1800.0))
    assert smd.fitted("async", Interpretation(), 1)[0].unit_s == 1800.0


def test_a_reading_is_a_reason_only_where_it_brings_a_figure_near() -> None:
    def reason(*obtained: float) -> str:
        rows = [smd.Row(f"sync, reading {i}: a ratio", 2.0, value) for i, value in enumerate(obtained)]
        return smd.nearest_reading(rows, "a ratio")

    assert reason(3.0, 2.1) == "of 2 readings nearest: reading 1, 2.10 for 2.00"
    assert reason(3.0, 2.9) == "not known; of 2 readings nearest: reading 1, 2.90 for 2.00"
    assert reason(2.1, 2.0) == "not known; of 2 readings nearest: reading 1, 2.00 for 2.00"


def test_it_is_said_at_which_point_readings_are_compared() -> None:
    found = smd.nearest_reading([smd.Row("sync, reading: SMD / optimum", 2.0, 3.0)], "SMD / optimum")
    assert found.startswith("not known; of 1 readings at capacity 1, 50 jobs, nearest: ")


def test_a_rival_that_is_worth_next_to_nothing_is_called_so() -> None:
    assert smd.unit_text(300.0, 1.7e6) == "unit of 5 min, in which the rival's jobs are worth next to nothing"
    assert smd.unit_text(300.0, 4.0) == "unit of 5 min"


def test_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smd, "_LIMITS", ("worker",))
    monkeypatch.setattr(smd, "_FORWARDS", ("batch",))
    monkeypatch.setattr(smd, "_UNITS_S", (120.0, 1800.0))
    rows = {row.what: row for row in smd.rows_of("async", 1, smd.Sweep((1,), (40,), (10,)))}
    assert rows["async, capacity 1: SMD / ESW"].published == pytest.approx(1193 / 1040)
    assert rows["async, 40 jobs: SMD / Optimus, use"].published == pytest.approx(2184 / 1898)
    assert 0.9 < rows["async, 10 jobs: SMD / optimum"].obtained <= 1.0
    assert rows["async, capacity 1: smd-exact / SMD"].obtained > 1.0
    assert rows["async, t_f of a batch, limits of a worker: SMD / optimum"].published == 1.0
    assert rows["async, capacity 3: SMD / Optimus' pairs, same admission"].obtained == pytest.approx(1.0, abs=0.05)
    assert rows["async, capacity 1: SMD / ESW"].obtained >= 1.0
    assert all((row.ratio is None) == (row.published is None) for row in rows.values())


def test_jobs_lie_in_the_published_ranges() -> None:
    for job in SmdJobs(n_jobs=200).jobs(7):
        p = job.parameters
        assert 50 <= p["iterations"] <= 200
        assert 30e6 <= p["model_bytes"] <= 575e6
        assert 10 <= p["batch_per_worker"] <= 100
        assert 1 <= p["global_batch"] / p["batch_per_worker"] <= 100
        assert p["global_batch"] % p["batch_per_worker"] == 0
        assert 5e9 <= 8 * p["bandwidth_bytes_per_s"] <= 20e9
        layers = range(1, int(p["n_layers"]) + 1)
        assert 10 <= len(layers) <= 100
        assert all(0.001 <= p[f"backward_{i}_s"] <= 0.3 for i in layers)
        assert all(0.001 <= p[f"forward_{i}_s"] <= 0.5 for i in layers)
        assert all(0.08 <= p[f"push_{i}_s"] <= 0.5 for i in layers)
        assert f"push_{len(layers) + 1}_s" not in p
        assert 0 <= p["worker_gpus"] <= 4
        assert 1 <= p["limit_factor"] <= 20
        assert 4 <= p["utility_steepness"] <= 6
        assert (job.submitted_at, job.work_steps) == (0.0, p["iterations"])


def test_the_choice_is_within_its_bound_and_no_exchange_of_two_jobs_betters_it() -> None:
    """No share of the best is proven for it: with seed 4690 three other pairs at once are worth a quarter more."""
    shares = []
    for seed in (4690, *range(40)):
        problem, utilities, capacity = _small_problem(seed)
        chosen, value, bound = best_together("sync", utilities=utilities, capacity=capacity, gap_limit=0.0, **problem)
        ways, worth_of = _brute_force(problem, utilities, capacity)
        best = max(worth_of(list(pairs)) for pairs in product(*ways))
        assert worth_of(chosen) == pytest.approx(value)
        assert value <= best + 1e-9 <= bound + 2e-9
        for i, kept in enumerate(chosen):
            others = [[kept] if k == i else pairs for k, pairs in enumerate(ways)]
            assert max(worth_of(list(pairs)) for pairs in product(*others)) <= value + 1e-9
        shares.append(value / best if best else 1.0)
    assert shares[0] < 0.85
    assert sum(share > 1 - 1e-9 for share in shares) >= 39
    assert np.mean(shares) > 0.99


def _small_problem(seed: int) -> tuple[dict[str, Any], list[Any], list[float]]:
    """Three jobs and two resources, utilities, capacity."""
    draw = np.random.default_rng(seed)
    problem: dict[str, Any] = {
        "theta": draw.uniform(0.01, 1.0, (3, 5)).tolist(),
        "per_worker": draw.uniform(0.5, 2.0, (3, 2)).tolist(),
        "per_server": draw.uniform(0.5, 2.0, (3, 2)).tolist(),
        "limits": draw.uniform(2.0, 6.0, (3, 2)).tolist(),
    }
    heights = draw.uniform(1.0, 9.0, 3).tolist()
    return problem, [Sigmoid(height=height, steepness_per_s=2.0, middle_s=2.0).at_s for height in heights], [7.0, 7.0]


def _brute_force(problem: dict[str, Any], utilities: list[Any], capacity: list[float]) -> tuple[list[Any], Any]:
    """The pairs of each job, and what a choice is worth."""
    worker, server, limits = (np.array(problem[name]) for name in ("per_worker", "per_server", "limits"))

    def time(i: int, w: int, p: int) -> float:
        t1, t2, t3, t4, t5 = problem["theta"][i]
        return float(t1 * w + t2 * p + t3 + t4 * w / p + t5 / w)

    def ways(i: int) -> list[tuple[int, int]]:
        pairs = product(range(1, 13), range(1, 13))
        return [(0, 0), *((w, p) for w, p in pairs if (w * worker[i] + p * server[i] <= limits[i]).all())]

    def worth_of(chosen: list[tuple[int, int]]) -> float:
        used = sum(w * worker[i] + p * server[i] for i, (w, p) in enumerate(chosen))
        if (used > np.array(capacity) * (1 + 1e-9)).any():
            return -inf
        return sum(utilities[i](time(i, w, p)) for i, (w, p) in enumerate(chosen) if w)

    return [ways(i) for i in range(3)], worth_of
