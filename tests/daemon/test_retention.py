"""Which runs of the past are kept."""

import os
import time
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.ids import JobId
from punctual.daemon import paths
from punctual.daemon.paths import state_root
from punctual.daemon.retention import PastRun, RetentionLimits, expired, past_runs, prune, remove, use_of
from punctual.daemon.run_folder import RunFolder, create_run

A, B = JobId("a"), JobId("b")
DAY_S = 86_400.0
EVERYTHING = RetentionLimits(age_s=-inf)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


def leave(name: str, *, still_open: bool = False, age_s: float = 0.0, n_bytes: int = 0) -> None:
    """A run whose process is gone, with one job that has ended, and perhaps another that has not."""
    run = create_run(name)
    run.record_job(A, "finished")
    if still_open:
        run.record_job(B, "running")
    run.remove_live_places()
    run.journal.write_bytes(b"journal")
    (run.state_dir / "output.log").write_bytes(b"x" * n_bytes)
    written_at = time.time() - age_s
    for file in run.state_dir.iterdir():
        os.utime(file, (written_at, written_at))


def names(runs: list[PastRun]) -> list[str]:
    return [past.name for past in runs]


def test_runs_are_listed_with_what_they_take_the_newest_first() -> None:
    leave("old", age_s=100.0, n_bytes=50_000)
    leave("new", age_s=10.0)
    new, old = past_runs()
    assert (new.name, old.name) == ("new", "old")
    assert old.n_bytes - new.n_bytes == 50_000
    assert new.written_at - old.written_at == pytest.approx(90.0, abs=30.0)


RUN = RunFolder("a", Path("/nonexistent/live/a"), Path("/nonexistent/runs/a"))


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 100))),
    st.floats(0, 100),
    st.integers(0, 9),
    st.integers(0, 500),
)
def test_limits(runs: list[tuple[float, int]], age_s: float, n_runs: int, n_bytes: int) -> None:
    past = [PastRun(run=RUN, written_at=1000.0 - age, n_bytes=size) for age, size in sorted(runs)]
    limits = RetentionLimits(age_s=age_s, n_runs=n_runs, n_bytes=n_bytes)
    beyond = expired(past, limits, now=1000.0)
    kept = past[: len(past) - len(beyond)]
    assert kept + beyond == past, "the oldest go"
    assert len(kept) <= n_runs
    assert sum(past_run.n_bytes for past_run in kept) <= n_bytes
    assert all(1000.0 - past_run.written_at <= age_s for past_run in kept)
    if beyond:
        first = beyond[0]
        n_bytes_with_it = sum(past_run.n_bytes for past_run in [*kept, first])
        assert 1000.0 - first.written_at > age_s or len(kept) == n_runs or n_bytes_with_it > n_bytes


def test_without_limits_nothing_goes() -> None:
    past = [PastRun(run=RUN, written_at=0.0, n_bytes=1 << 40)] * 5
    assert expired(past, RetentionLimits(age_s=inf, n_runs=inf, n_bytes=inf), now=1e12) == []


def test_a_run_that_a_process_steers_is_in_use() -> None:
    run = create_run("run")
    assert use_of(run) == "in use"
    assert prune(EVERYTHING, interrupted=True) == []
    assert run.state_dir.exists()


def test_a_run_without_a_process_is_interrupted_as_long_as_a_job_is_open() -> None:
    leave("open", still_open=True, age_s=50.0)
    leave("ended", age_s=60.0)
    assert {past.name: use_of(past.run) for past in past_runs()} == {"open": "interrupted", "ended": "ended"}


def test_pruning_leaves_what_could_be_resumed() -> None:
    leave("ended", age_s=40 * DAY_S)
    leave("stopped-halfway", still_open=True, age_s=50 * DAY_S)
    leave("new")
    assert names(prune()) == ["ended"]
    assert names(past_runs()) == ["new", "stopped-halfway"]
    assert names(prune(interrupted=True)) == ["stopped-halfway"]
    assert names(past_runs()) == ["new"]


def test_too_many_and_too_large_go_the_oldest_first() -> None:
    for i in range(5):
        leave(f"run-{i}", age_s=1000.0 * i, n_bytes=100_000)
    assert names(prune(RetentionLimits(n_runs=4))) == ["run-4"]
    assert names(prune(RetentionLimits(n_bytes=300_000))) == ["run-2", "run-3"]
    assert names(past_runs()) == ["run-0", "run-1"]


@pytest.mark.parametrize("content", [None, b"no journal at all", b""])
def test_a_run_that_cannot_be_read_can_still_be_removed(content: bytes | None) -> None:
    folder = state_root() / "odd"
    folder.mkdir()
    if content is not None:
        (folder / "journal.db").write_bytes(content)
    assert names(prune(EVERYTHING)) == ["odd"]
    assert not folder.exists()


def test_what_an_interrupted_removal_left_goes_with_the_next() -> None:
    left = state_root() / ".removed-0123"
    left.mkdir()
    (left / "journal.db").write_bytes(b"x")
    assert past_runs() == []
    prune()
    assert not left.exists()


def test_two_that_remove_past_run_do_not_get_in_each_other_s_way(caplog: pytest.LogCaptureFixture) -> None:
    leave("ended")
    (past,) = past_runs()
    assert remove(past)
    assert not remove(past)
    assert "could not be removed" in caplog.text
    assert list(state_root().iterdir()) == []
