"""Two policies are compared on the jobs that both were given."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from punctual.core.errors import InvalidSpec
from punctual.sim.paired import COMPARED, Contender, compare, contenders_in
from punctual.sim.stored import StoredRun


def job(name: str, jct_s: float | None, on_time: bool | None = True, submitted_at: float = 0.0) -> dict[str, Any]:
    return {
        "id": name, "submitted_at": submitted_at, "deadline_s": 50.0, "jct_s": jct_s, "queued_s": 1.0,
        "waiting_s": 1.0, "tardiness_s": 0.0, "on_time": on_time,
    }  # fmt: skip


def stored(folder: Path, policy: str, *jobs: dict[str, Any], seed: int = 0) -> StoredRun:
    place = folder / "runs" / f"{policy}-{seed}"
    place.mkdir(parents=True)
    facts = {"key": place.name, "policy": policy, "seed": seed}
    (place / "run.json").write_text(json.dumps(facts))
    pl.DataFrame(list(jobs), infer_schema_length=None).write_parquet(place / "jobs.parquet")
    return StoredRun(place, facts)


def study(folder: Path, *runs: StoredRun) -> Path:
    index = {"runs": [{"key": run.key, "policy": run.policy} for run in runs]}
    (folder / "study.json").write_text(json.dumps(index))
    return folder


def test_differences_are_taken_job_by_job(tmp_path: Path) -> None:
    fifo = Contender("fifo", (stored(tmp_path, "fifo", job("a", 10.0), job("b", 20.0), job("c", 30.0, on_time=False)),))
    other = Contender("other", (stored(tmp_path, "other", job("c", 12.0), job("b", 18.0), job("d", 5.0)),))
    (found,) = compare(fifo, [other])
    assert (found.n_common, found.n_first, found.n_other) == (2, 3, 3)
    jct = found.differences["jct_s"]
    assert (jct.n, jct.mean.estimate, jct.n_lower, jct.n_higher) == (2, -10.0, 2, 0)
    assert found.differences["on_time"].mean.estimate == 0.5
    assert list(found.differences) == list(COMPARED)


def test_a_job_of_another_seed_or_instant_is_another_job(tmp_path: Path) -> None:
    first = Contender("a", (stored(tmp_path, "a", job("x", 1.0), job("y", 1.0)),))
    moved = Contender("b", (stored(tmp_path, "b", job("x", 2.0), job("y", 2.0, submitted_at=5.0)),))
    assert compare(first, [moved])[0].n_common == 1
    reseeded = Contender("c", (stored(tmp_path, "c", job("x", 2.0), seed=1),))
    with pytest.raises(InvalidSpec, match="in common"):
        compare(first, [reseeded])


def test_jobs_without_a_number_are_left_out_and_counted(tmp_path: Path) -> None:
    first = Contender("a", (stored(tmp_path, "a", job("x", 1.0), job("y", None, on_time=None)),))
    second = Contender("b", (stored(tmp_path, "b", job("x", 3.0), job("y", 2.0)),))
    (found,) = compare(first, [second])
    assert found.n_common == 2
    assert (found.differences["jct_s"].n, found.differences["jct_s"].n_left_out) == (1, 1)


def test_a_folder_has_the_policies_of_its_last_study(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    both = [stored(one, "fifo", job("a", 1.0)), stored(one, "fifo", job("a", 2.0), seed=1)]
    stored(one, "forgotten", job("a", 1.0))
    study(one, *both)
    study(other, stored(other, "fifo", job("a", 1.0)))
    (alone,) = contenders_in([one])
    assert (alone.label, [run.seed for run in alone.runs]) == ("fifo", [0, 1])
    assert [found.label for found in contenders_in([one, other])] == ["one/fifo", "other/fifo"]


def test_a_folder_without_a_study_is_told_of(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="results of a study"):
        contenders_in([tmp_path])


def test_with_enough_seeds_they_are_what_is_drawn(tmp_path: Path) -> None:
    def contender(name: str, jct_s: float) -> Contender:
        runs = (stored(tmp_path, name, job("x", jct_s), job("y", jct_s + seed), seed=seed) for seed in range(6))
        return Contender(name, tuple(runs))

    (found,) = compare(contender("a", 1.0), [contender("b", 2.0)])
    assert found.by_seed
    assert found.differences["jct_s"].p_value == 2 / 2**6
    (by_job,) = compare(contender("c", 1.0), [Contender("d", contender("d", 2.0).runs[:5])])
    assert not by_job.by_seed


def test_seeds_that_moved_nothing_count_once(tmp_path: Path) -> None:
    def contender(name: str, *jct_s: float) -> Contender:
        runs = (stored(tmp_path, name, job("x", one), job("y", 2 * one), seed=i) for i, one in enumerate(jct_s))
        return Contender(name, tuple(runs))

    equal, moved = contender("equal", *[1.0] * 6), contender("moved", 1.0, 2.0, 3.0, 4.0, 5.0, 6.0)
    (found,) = compare(equal, [contender("other", *[2.0] * 6)])
    assert not found.by_seed
    assert (found.n_common, found.differences["jct_s"].n) == (2, 2)
    assert found.differences["jct_s"].p_value == 2 / 2**2
    # Chance may have met one policy only.
    (by_seed,) = compare(equal, [moved])
    assert by_seed.by_seed
    assert by_seed.differences["jct_s"].n == 12
