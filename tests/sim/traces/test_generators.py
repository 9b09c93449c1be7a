"""Generators keep to their parameters, and make the same jobs on every platform."""

from collections.abc import Mapping
from hashlib import blake2b
from itertools import pairwise

import pytest

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.sim import parts
from punctual.sim.choice import made
from punctual.sim.traces import TraceJob
from punctual.sim.traces.load import offered_load
from punctual.sim.traces.synthetic import FAMILY, Generator

DAY_S = 86_400

#: Fingerprints of a hundred jobs with seed 7, of all digits of all numbers.
GOLDEN = {
    "diurnal": "9fae4d54faecd8fc",
    "modelarts-like": "789279f6d90732e6",
    "optimus": "a57648e479fb8590",
    "poisson": "1d6f8934e42fafdb",
}


def generator(name: str, parameters: Mapping[str, object]) -> Generator:
    return made(parts.kind("traces.generators", name), parameters, "trace.generator")


def jobs(name: str, seed: int = 7, **parameters: object) -> list[TraceJob]:
    return list(generator(name, parameters).jobs(seed))


def fingerprint(made: list[TraceJob]) -> str:
    return blake2b(repr(made).encode(), digest_size=8).hexdigest()


def test_every_generator_has_a_fingerprint() -> None:
    assert registry.names(FAMILY) == sorted(GOLDEN)
    assert FAMILY == "traces.generators"


@pytest.mark.parametrize("name", registry.names(FAMILY))
def test_the_same_on_every_platform(name: str) -> None:
    assert fingerprint(jobs(name, n_jobs=100)) == GOLDEN[name]


@pytest.mark.parametrize("name", registry.names(FAMILY))
def test_jobs_depend_on_the_seed_and_come_in_order(name: str) -> None:
    made = jobs(name, n_jobs=50)
    assert len(made) == len({job.id for job in made}) == 50
    assert [job.submitted_at for job in made] == sorted(job.submitted_at for job in made)
    assert made == jobs(name, n_jobs=50)
    assert made != jobs(name, seed=8, n_jobs=50)


@pytest.mark.parametrize("name", ["poisson", "diurnal", "modelarts-like"])
@pytest.mark.parametrize("load", [0.5, 1.2])
def test_the_load_is_the_one_asked_for(name: str, load: float) -> None:
    made = jobs(name, n_jobs=20_000, load=load, n_devices=128)
    assert offered_load(made, 128) == pytest.approx(load, rel=0.06)


@pytest.mark.parametrize("name", ["poisson", "diurnal"])
def test_no_job_needs_more_devices_than_there_are(name: str) -> None:
    made = jobs(name, n_jobs=400, n_devices=4)
    assert {job.n_gpus for job in made} == {1, 2, 4}


def test_poisson_gaps_are_exponential() -> None:
    at = [job.submitted_at for job in jobs("poisson", n_jobs=10_000, gpus=[[1, 1.0]], duration_s=100.0, load=0.5, n_devices=10)]  # fmt: skip
    gaps = [later - earlier for earlier, later in pairwise(at)]
    assert sum(gaps) / len(gaps) == pytest.approx(20.0, rel=0.04)
    assert sum(gap > 20.0 for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.02)


def test_diurnal_arrivals_follow_the_time_of_day() -> None:
    made = jobs("diurnal", n_jobs=20_000, swing_frac=0.8, peak_at_s=12 * 3600, duration_s=600.0)
    assert made[-1].submitted_at > 5 * DAY_S
    whole_days = made[-1].submitted_at // DAY_S
    hours = [job.submitted_at % DAY_S // 3600 for job in made if job.submitted_at < whole_days * DAY_S]
    noon = sum(hour in (11, 12) for hour in hours)
    midnight = sum(hour in (23, 0) for hour in hours)
    # Mean rates within an hour of the peak and of the bottom: 1 ± 0.8 (1 - 1/12).
    assert noon / midnight == pytest.approx((1 + 0.8 * 11 / 12) / (1 - 0.8 * 11 / 12), rel=0.15)


def test_modelarts_like_jobs_are_elastic_and_half_have_deadlines() -> None:
    made = jobs("modelarts-like", n_jobs=4_000, n_devices=64)
    for job in made:
        assert 1 <= job.parameters["n_gpus_min"] <= (job.n_gpus or 0) <= job.parameters["n_gpus_max"] <= 64
    slack = [(job.deadline_s or 0) / (job.duration_s or 1) for job in made if job.deadline_s is not None]
    assert len(slack) / len(made) == pytest.approx(0.5, abs=0.03)
    assert 1.2 <= min(slack) <= max(slack) <= 4.0


def test_no_modelarts_like_job_is_larger_than_the_cluster() -> None:
    assert max(job.n_gpus or 0 for job in jobs("modelarts-like", n_jobs=500, n_devices=4)) == 4


def test_optimus_jobs_come_within_the_horizon() -> None:
    made = jobs("optimus", n_jobs=300, horizon_s=600.0)
    assert max(job.submitted_at for job in made) < 600.0
    assert len({job.model_name for job in made}) == 8
    assert {job.batch_size for job in made if job.model_name == "dssm"} == {256}


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("poisson", {"n_jobs": 0}),
        ("poisson", {"load": 0.0}),
        ("poisson", {"load": float("inf")}),
        ("poisson", {"n_devices": 0}),
        ("poisson", {"gpus": ()}),
        ("poisson", {"gpus": ((0, 1.0),)}),
        ("poisson", {"gpus": ((1, 0.0),)}),
        ("poisson", {"duration_s": -1.0}),
        ("diurnal", {"swing_frac": 1.1}),
        ("diurnal", {"peak_at_s": float("nan")}),
        ("modelarts-like", {"deadline_frac": 2}),
        ("modelarts-like", {"slack_low": 5.0}),
        ("optimus", {"horizon_s": -1}),
        ("optimus", {"duration_low_s": 0}),
        ("poisson", {"lod": 1.0}),
        ("possion", {}),
    ],
)
def test_what_cannot_be_is_a_four_part_error(name: str, parameters: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec) as caught:
        generator(name, parameters)
    assert all((caught.value.must, caught.value.got, caught.value.where, caught.value.remedy))
