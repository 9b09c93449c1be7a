"""Which jobs of the past are kept."""

import os
import time
from math import inf
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import wait_until

from punctual.core.events import JobSubmitted, ProgressReported
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host_options import HostOptions
from punctual.daemon.joining import names_in
from punctual.daemon.paths import state_root
from punctual.daemon.retention import PastJob, RetentionLimits, expired, past_jobs, prune, remove
from punctual.daemon.run_folder import RunFolder, create_run
from punctual.daemon.runs import KnownJob
from punctual.daemon.sharing import host_lock
from punctual.journal.sqlite import SqliteJournal
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of

DAY_S = 86_400.0
EVERYTHING = RetentionLimits(age_s=-inf)


def end(run: RunFolder, job: str, *, age_s: float = 0.0, n_bytes: int = 0) -> None:
    """Record a job that ended so long ago, with so much output."""
    now = time.time()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(time, "time", lambda: now - age_s)
        run.record_end(JobId(job), "finished")
    run.log(JobId(job)).write_bytes(b"x" * n_bytes)


def leave(name: str, *, still_open: bool = False, age_s: float = 0.0, n_bytes: int = 0) -> RunFolder:
    """A run whose process is gone, with one job of its name that has ended, and perhaps another that has not."""
    run = create_run(name)
    end(run, name, age_s=age_s, n_bytes=n_bytes)
    if still_open:
        run.record_job(JobId(f"{name}-open"), "running")
    run.remove_live_places()
    return run


def names(jobs: list[PastJob]) -> list[str]:
    return [past.job.title for past in jobs]


def test_jobs_are_listed_with_what_they_take_the_newest_first() -> None:
    leave("old", age_s=100.0, n_bytes=50_000)
    leave("new", age_s=10.0)
    new, old = past_jobs()
    assert names([new, old]) == ["new", "old"]
    assert old.n_bytes - new.n_bytes == 50_000
    assert new.written_at - old.written_at == pytest.approx(90.0, abs=30.0)


def test_jobs_of_one_run_share_the_size_of_its_journal() -> None:
    run = leave("one")
    (alone,) = past_jobs()
    end(run, "two", n_bytes=1000)
    both = {past.job.title: past.n_bytes for past in past_jobs()}
    assert both["two"] - both["one"] == 1000
    assert both["one"] < alone.n_bytes


def test_a_daemon_removes_old_jobs_once_it_has_begun() -> None:
    leave("old", age_s=31 * DAY_S)
    leave("new")
    with Daemon(DaemonRequest(options=HostOptions(actuator="pacing", shared=True))) as daemon:
        daemon.begin()
        wait_until(lambda: names(past_jobs()), lambda left: left == ["new"])


@pytest.mark.parametrize("is_left", [True, False])
def test_output_of_a_run_without_a_readable_journal_is_as_old_as_it_is(is_left: bool) -> None:
    run = create_run("host")
    end(run, "lost", n_bytes=5000)
    run.remove_live_places()
    if is_left:
        run.journal.write_bytes(b"")
    else:
        run.journal.unlink()
    assert prune() == []
    assert run.log(JobId("lost")).stat().st_size == 5000
    (lost,) = past_jobs()
    assert lost.n_bytes == 5000
    os.utime(run.log(JobId("lost")), (time.time() - 31 * DAY_S,) * 2)
    assert names(prune()) == ["host"]
    assert not run.state_dir.exists()


RUN = RunFolder("a", Path("/nonexistent/live/a"), Path("/nonexistent/runs/a"))
JOB = KnownJob(RUN, JobId("a"), "a", "ended")


@given(
    st.lists(st.tuples(st.floats(0, 100), st.integers(0, 100))),
    st.floats(0, 100),
    st.integers(0, 9),
    st.integers(0, 500),
)
def test_limits(jobs: list[tuple[float, int]], age_s: float, n_jobs: int, n_bytes: int) -> None:
    past = [PastJob(job=JOB, written_at=1000.0 - age, n_bytes=size) for age, size in sorted(jobs)]
    limits = RetentionLimits(age_s=age_s, n_jobs=n_jobs, n_bytes=n_bytes)
    beyond = expired(past, limits, now=1000.0)
    kept = past[: len(past) - len(beyond)]
    assert kept + beyond == past, "the oldest go"
    assert len(kept) <= n_jobs
    assert sum(each.n_bytes for each in kept) <= n_bytes
    assert all(1000.0 - each.written_at <= age_s for each in kept)
    if beyond:
        first = beyond[0]
        n_bytes_with_it = sum(each.n_bytes for each in [*kept, first])
        assert 1000.0 - first.written_at > age_s or len(kept) == n_jobs or n_bytes_with_it > n_bytes


def test_without_limits_nothing_goes() -> None:
    past = [PastJob(job=JOB, written_at=0.0, n_bytes=1 << 40)] * 5
    assert expired(past, RetentionLimits(age_s=inf, n_jobs=inf, n_bytes=inf), now=1e12) == []


def test_ended_jobs_of_a_run_go_while_a_process_steers_others_of_it() -> None:
    run = create_run("run")
    with SqliteJournal(run.journal) as journal:
        for job in ("old", "new"):
            journal.append(
                [
                    JobSubmitted(at=1.0, spec=JobSpec(id=JobId(job), ceiling=Resources(1))),
                    ProgressReported(
                        at=2.0, job=JobId(job), steps_done=1.0, steps_total=2.0, unit_at=2.0, used_core_s=1.0
                    ),
                ]
            )
            end(run, job, age_s=40 * DAY_S if job == "old" else 0.0, n_bytes=10)
            journal.reset()
        run.record_job(JobId("runs"), "running")
        assert names(prune()) == ["old"]
        assert list(run.jobs()) == ["new", "runs"]
        assert not run.log(JobId("old")).exists()
        assert run.log(JobId("new")).exists()
        assert [number for number, _ in journal.read_from(1)] == [3, 4]
        assert names(prune(EVERYTHING, interrupted=True)) == ["new"], "what is steered stays"
        assert run.state_dir.exists()


def test_the_id_of_a_removed_job_is_free_in_the_next_state_only() -> None:
    def named(job: str) -> str:
        told = submission_of(JobOptions(program=["true"], name=job), 0.0, Resources(1))
        return names_in(run, [told])[0].spec.id

    run = create_run("run")
    with SqliteJournal(run.journal) as journal:
        for job in ("a", "b"):
            journal.append([JobSubmitted(at=1.0, spec=JobSpec(id=JobId(job), ceiling=Resources(1)))])
            end(run, job)
        assert sorted(names(prune(EVERYTHING))) == ["a", "b"]
        assert (run.jobs(), named("a"), named("b")) == ({}, "a-2", "b-2")
        assert journal.last_sequence == 2
        journal.reset()
        assert (named("a"), named("b")) == ("a", "b")
    with SqliteJournal(run.journal) as journal:
        assert (journal.begun_after, journal.last_written) == (2, 2), "no number is given again"


def test_messages_that_a_state_is_made_of_stay() -> None:
    run = create_run("run")
    with SqliteJournal(run.journal) as journal:
        journal.append([JobSubmitted(at=1.0, spec=JobSpec(id=JobId("a"), ceiling=Resources(1)))])
        end(run, "a", age_s=40 * DAY_S)
        run.record_job(JobId("b"), "running")
        assert names(prune()) == ["a"]
        assert journal.last_sequence == 1, "the daemon would read it if it were started again"


def test_pruning_leaves_what_could_be_resumed() -> None:
    leave("ended", age_s=40 * DAY_S)
    leave("halfway", still_open=True, age_s=50 * DAY_S)
    leave("new")
    assert names(prune()) == ["ended", "halfway"]
    assert sorted(names(past_jobs())) == ["halfway-open", "new"]
    assert sorted(names(prune(EVERYTHING, interrupted=True))) == ["halfway-open", "new"]
    assert list(state_root().iterdir()) == []


def test_too_many_and_too_large_go_the_oldest_first() -> None:
    for i in range(5):
        leave(f"job-{i}", age_s=1000.0 * i, n_bytes=100_000)
    n_journal_bytes = past_jobs()[0].n_bytes - 100_000
    assert names(prune(RetentionLimits(n_jobs=4))) == ["job-4"]
    assert sorted(names(prune(RetentionLimits(n_bytes=250_000 + 2 * n_journal_bytes)))) == ["job-2", "job-3"]
    assert names(past_jobs()) == ["job-0", "job-1"]


@pytest.mark.parametrize("content", [None, b"no journal at all", b""])
def test_a_run_that_cannot_be_read_can_still_be_removed(content: bytes | None) -> None:
    folder = state_root() / "odd"
    folder.mkdir()
    if content is not None:
        (folder / "journal.db").write_bytes(content)
    assert names(prune(EVERYTHING)) == ["odd"]
    assert not folder.exists()


def test_a_run_that_cannot_be_read_is_kept_as_long_as_others() -> None:
    run = leave("damaged")
    run.log(JobId("damaged")).unlink()
    run.journal.write_bytes(b"x" * 5000)
    assert prune() == []
    assert run.journal.read_bytes() == b"x" * 5000


def test_a_run_that_a_daemon_may_just_be_beginning_is_not_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    run = leave("daemon", age_s=40 * DAY_S)
    monkeypatch.setattr("punctual.daemon.retention._LOCK_S_MAX", 0.0)
    with host_lock(0.0):
        assert names(prune()) == ["daemon"]
    assert run.state_dir.exists()
    assert run.jobs() == {}


def test_what_an_interrupted_removal_left_goes_with_the_next() -> None:
    left = state_root() / ".removed-0123"
    left.mkdir()
    (left / "journal.db").write_bytes(b"x")
    assert past_jobs() == []
    prune()
    assert not left.exists()


def test_two_that_remove_a_job_do_not_get_in_each_other_s_way(caplog: pytest.LogCaptureFixture) -> None:
    leave("ended")
    (past,) = past_jobs()
    assert remove([past]) == [past]
    assert remove([past]) == []
    assert "could not be removed" in caplog.text
    assert list(state_root().iterdir()) == []
