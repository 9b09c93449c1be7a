"""Jobs whose batch grows with their devices: goodput from curves and step times."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.speed import Shape
from punctual.papers.pollux.adaptive_batch import AdaptiveBatch
from punctual.papers.pollux.adaptive_tables import AdaptiveTables, AdaptiveTraining, Curve, StepTimes
from punctual.sim.traces import TraceJob

TRACE = TraceJob(id="a", submitted_at=7.0, n_gpus=2, model_name="Net", batch_size=64)
#: Squared norm and variance of the gradient: without noise, of nothing else, and of both.
QUIET, NOISY, EVEN = (1.0, 0.0), (0.0, 1.0), (1.0, 1.0)
#: 0.1 s, and 0.01 s for each sample on a device; half of the constant part is exchange.
BATCHES = (8.0, 16.0, 32.0, 64.0)
TIMES = StepTimes(BATCHES, tuple(0.1 + 0.01 * batch for batch in BATCHES), (0.05,) * 4)


def training(
    *epochs: tuple[float, float], steps: float = 100.0, times: StepTimes = TIMES, n_most: int = 4
) -> AdaptiveTraining:
    """Measured with batches of 16 to 256, each epoch as long, on up to `n_most` devices of one node."""
    progress = tuple(steps * (i + 1) for i in range(len(epochs)))
    curve = Curve(progress, epochs)
    shapes = {(n, 1): times for n in range(1, n_most + 1)}
    return AdaptiveTraining(dict.fromkeys((16, 64, 256), curve), {"": shapes}, {"": n_most})


def goodput(one: AdaptiveTraining, n: int, device_batch_max: float = 64.0) -> float:
    """In the first epoch."""
    return one.goodputs("", device_batch_max)[n, 1][0]


def test_without_noise_the_smallest_batch_is_best() -> None:
    one = training(QUIET)
    assert goodput(one, 1) == pytest.approx(1 / 0.26)
    assert goodput(one, 2) == pytest.approx(1 / 0.18)
    # Four devices have four samples each then, but no fewer than eight were measured.
    assert goodput(one, 4) == pytest.approx(1 / 0.18)


def test_with_nothing_but_noise_samples_are_all_that_counts() -> None:
    # 256 samples are 16 smallest batches.
    one = training(NOISY)
    assert goodput(one, 4) == pytest.approx(16 / 0.74)
    # Two devices work them off in two rounds; the exchange is only needed once.
    assert goodput(one, 2) == pytest.approx(16 / (0.74 + 0.69))
    assert goodput(one, 4, device_batch_max=32.0) == pytest.approx(16 / (0.42 + 0.37))


def test_no_other_batch_is_faster() -> None:
    one = training(EVEN, n_most=3)

    def of(batch: int, n: int) -> float:
        gain = (EVEN[1] + EVEN[0]) / (EVEN[1] / (batch / 16) + EVEN[0])
        return gain / (0.1 + 0.01 * batch / n)

    best = max(of(batch, 3) for batch in range(24, 192, 3))
    assert goodput(one, 3) == pytest.approx(best, rel=0.005)
    assert goodput(one, 3) <= best + 1e-9


def test_each_epoch_has_its_own_batch() -> None:
    both, quiet, noisy = training(QUIET, NOISY), training(QUIET), training(NOISY)
    assert both.epoch_steps == [100.0, 100.0]
    assert both.goodputs("")[4, 1] == (goodput(quiet, 4), goodput(noisy, 4))


def test_one_device_needs_two_rounds_to_tell_the_noise() -> None:
    slow_exchange = replace(TIMES, exchange_s=(0.0,) * 4)
    one = AdaptiveTraining(
        {16: Curve((100.0,), (NOISY,)), 32: Curve((100.0,), (NOISY,))}, {"": {(1, 1): slow_exchange}}, {"": 1}
    )
    # 32 samples in one round would take 0.42 s, but take two of 0.26 s; 16 in one are as many a second.
    assert goodput(one, 1) == pytest.approx(2 / 0.52)


def test_what_was_not_measured_cannot_run() -> None:
    one = training(QUIET, n_most=40)
    assert max(n for n, _ in one.goodputs("")) == 32  # more than 256 samples otherwise
    assert one.goodputs("", device_batch_max=4.0) == {}


def test_the_fewest_nodes_have_the_speed_of_the_nearest_that_were_measured() -> None:
    one = replace(training(QUIET), times={"": {(8, 4): TIMES, (8, 8): replace(TIMES, step_s=(9.0,) * 4)}})
    found = one.goodputs("")
    assert found.keys() == {(8, 2), (8, 4), (8, 8)}
    assert found[8, 2] == found[8, 4] != found[8, 8]


@pytest.fixture
def tables(tmp_path: Path) -> str:
    folder = tmp_path / "net"
    folder.mkdir()
    (tmp_path / "notes").mkdir()
    for batch in (16, 64):
        (folder / f"validation-{batch}.csv").write_text(
            f"progress,iteration,metric,grad_sqr,grad_var\n{100 + batch},9,0.1,1.0,0.0\n{300 + batch},18,0.2,0.0,1.0\n"
        )
    (folder / "placements.csv").write_text(
        "placement,local_bsz,step_time,sync_time\n1,16,0.5,0.1\n1,8,0.3,0.1\n2,8,0.2,0.1\n11,8,0.4,0.3\n"
    )
    (folder / "scalability.csv").write_text("num_nodes,num_replicas,local_bsz,step_time,sync_time\n4,8,8,0.8,0.3\n")
    (folder / "placements-rtx.csv").write_text("local_bsz,step_time,sync_time,placement\n16,0.25,0.1,1\n8,0,0,1\n")
    return str(tmp_path)


def test_a_job_has_the_whole_training_before_it_and_its_speed_by_device(tables: str) -> None:
    rule = AdaptiveBatch(tables=tables, startup_s=30.0, restarts=True)
    job = rule.job(TRACE)
    assert job.work_steps == job.spec.work_steps == 316.0
    assert job.spec.counts == (1, 2, 8)
    assert (job.spec.resize_cost_s, job.restarts) == (30.0, True)
    # In the second epoch nothing but samples count: 64 of them are four smallest batches.
    epochs = {
        ("", 1, 1): (2.0, 4 / 1.7), ("", 2, 1): (5.0, 8.0), ("", 2, 2): (2.5, 4 / 0.7), ("", 8, 4): (1.25, 5.0),
        ("2080Ti", 1, 1): (4.0, 4 / 0.7),
    }  # fmt: skip
    average = {shape: 316 / (116 / first + 200 / second) for shape, (first, second) in epochs.items()}
    found = {(seen.shape.device, seen.shape.n_workers, seen.shape.n_nodes): seen.rate_sps for seen in job.spec.profile}
    assert found == pytest.approx(average)
    assert [begin for begin, _ in job.phases] == [0.0, 116.0]
    for (device, n, n_nodes), rates in epochs.items():
        shape = Shape(n_workers=n, n_nodes=n_nodes, device=device)
        assert job.truth.rate_sps(shape) == pytest.approx(average[device, n, n_nodes])
        assert [truth.rate_sps(shape) for _, truth in job.phases] == pytest.approx(rates)
    assert AdaptiveBatch(tables=tables, drifts=False).job(TRACE).phases == ()


def test_the_trace_may_say_how_many_devices_there_may_be_and_what_fits_on_one(tables: str) -> None:
    rule = AdaptiveBatch(tables=tables, knows="recorded")
    job = rule.job(replace(TRACE, parameters={"n_gpus_max": 2.0}))
    assert job.spec.counts == (1, 2)
    assert {seen.shape.n_workers for seen in job.spec.profile} == {2}
    # One device works 64 samples off in eight rounds.
    small = AdaptiveBatch(tables=tables).job(replace(TRACE, parameters={"device_batch_max": 8.0}))
    assert small.phases[1][1].rate_sps(Shape(n_workers=1)) == pytest.approx(4 / (0.3 + 7 * 0.2))
    with pytest.raises(InvalidSpec, match="n_gpus_max"):
        rule.job(replace(TRACE, parameters={"device_batch_max": 4.0}))


def test_what_was_not_measured_is_told(tables: str, tmp_path: Path) -> None:
    rule = AdaptiveBatch(tables=tables)
    with pytest.raises(InvalidSpec, match=r"'vgg'.*Known: net"):
        rule.job(replace(TRACE, model_name="vgg"))
    with pytest.raises(InvalidSpec, match="which model"):
        rule.job(replace(TRACE, model_name=None))
    with pytest.raises(InvalidSpec, match="must hold curves"):
        AdaptiveTables(tmp_path / "notes")


def test_tables_of_another_kind_are_passed_over(tables: str) -> None:
    other = Path(tables) / "other"
    other.mkdir()
    (other / "validation-16.csv").write_text("progress,metric\n100,0.1\n")
    (other / "placements.csv").write_text("placement,local_bsz,step_time\n1,16,0.5\n")
    (Path(tables) / "net" / "placements-aws.csv").write_text("placement,local_bsz,step_time,sync_time\n1,16,0,0\n")
    assert AdaptiveBatch(tables=tables).job(TRACE).spec.counts == (1, 2, 8)
    with pytest.raises(InvalidSpec, match=r"'other'.*Known: net"):
        AdaptiveBatch(tables=tables).job(replace(TRACE, model_name="other"))


@pytest.mark.skipif("PUNCTUAL_DATA" not in os.environ, reason="PUNCTUAL_DATA does not name the published tables")
def test_the_published_trainings_can_be_used() -> None:
    folder = Path(os.environ["PUNCTUAL_DATA"]) / "profiles" / "pollux_osdi21"
    if not folder.exists():
        pytest.skip(f"{folder} is not there")
    rule = AdaptiveBatch(tables=str(folder), devices_per_node=4)
    for model in rule.read.trainings:
        job = rule.job(replace(TRACE, model_name=model))
        assert job.spec.counts[-1] == 64
        alone, together = (job.truth.rate_sps(Shape(n_workers=n, n_nodes=-(-n // 4))) for n in (1, 4))
        assert 0 < together <= 4.5 * alone
