"""The jobs of this user: whether anybody steers them, how one is found by its name, and what is swept away."""

import json
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from punctual.channel import EXIT_PREEMPTED, Declaration, ProgramState, SharedBlock
from punctual.core.commands import LaunchJob, RejectJob, SetTimer
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed, JobFinished, JobSubmitted, Message, ProgressReported
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.daemon.earlier_runs import core_s_of_same_program, run_like
from punctual.daemon.restore import resumed_host
from punctual.daemon.retention import past_jobs
from punctual.daemon.run_folder import RunFolder, create_run, new_job, run_named
from punctual.daemon.runs import KnownJob, find_job, has_finished, known_jobs, messages_of, open_job, open_jobs
from punctual.daemon.sweeping import give_up, sweep
from punctual.history.run import summarize
from punctual.journal import job_records
from punctual.journal.boot import boot_id
from punctual.journal.sqlite import SqliteJournal
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of

A = JobId("train-3f2a")


def submitted(run: RunFolder, *jobs: str, n_retries: int | None = None, follower: str | None = None) -> None:
    """Have jobs in the run's record and journal, and one that is to run after all of them."""
    specs = [JobSpec(id=JobId(job), ceiling=Resources(1), n_retries=n_retries) for job in jobs]
    last = [JobSpec(id=JobId(job), ceiling=Resources(1), after=tuple(map(JobId, jobs))) for job in [follower] if job]
    with SqliteJournal(run.journal) as journal:
        journal.append([JobSubmitted(at=5.0, spec=spec) for spec in (*specs, *last)])
        journal.append([
            LaunchJob(at=6.0, job=spec.id, request=1, spec=spec, grant={}, reason=Reason("test", "")) for spec in specs
        ])  # fmt: skip
    for spec in (*specs, *last):
        run.record_job(spec.id, "queued")


def killed(run: RunFolder) -> None:
    """The process of the run is gone."""
    (run.runtime_dir / "run.json").write_text(json.dumps({"name": run.name, "pid": 2**22 + 1, "start_ticks": 1}))


def elsewhere(run: RunFolder) -> None:
    """The run is that of another machine, in a shared folder."""
    process = {"machine": "there", "boot": "another"}
    run.record_facts(**process)
    (run.runtime_dir / "run.json").write_text(json.dumps(run.record() | process))


def ended_unsteered(run: RunFolder, job: str, code: int, page: bytes = b"") -> None:
    """What a supervisor leaves of a job that nobody steers."""
    record = {
        "ended": code, "at_ns": 9_000_000_000, "usage": "", "core_s": 1.0, "boot": boot_id(), "page": page.hex()
    }  # fmt: skip
    run.end_file(JobId(job)).write_text(json.dumps(record))


def steering() -> dict[str, str]:
    return {job.title: job.steering for job in known_jobs()}


def test_a_job_is_steered_as_long_as_its_host_is_there() -> None:
    run = create_run("host")
    submitted(run, "a", "b")
    assert steering() == {"a": "steered", "b": "steered"}
    run.record_end(JobId("a"), "finished")
    assert steering() == {"a": "ended", "b": "steered"}
    assert [job.title for job in open_jobs()] == ["b"]


def test_no_job_of_a_killed_host_is_dropped() -> None:
    run = create_run("host")
    submitted(run, "kept", "gone", "finished", "failed", "stopped")
    run.record_supervisor(JobId("kept"), os.getpid())
    ended_unsteered(run, "finished", 0)
    ended_unsteered(run, "failed", 137)
    ended_unsteered(run, "stopped", 143)
    run.record_job(JobId("stopped"), "stopping")
    killed(run)
    assert steering() == {
        "kept": "unsteered", "gone": "interrupted", "finished": "ended", "failed": "interrupted", "stopped": "ended"
    }  # fmt: skip


def test_a_job_that_runs_is_told_although_the_journal_has_lost_it() -> None:
    run = create_run("host")
    submitted(run, "kept")
    run.record_supervisor(JobId("lost"), os.getpid())
    killed(run)
    assert steering() == {"kept": "interrupted", "lost": "unsteered"}


def test_after_a_restart_of_the_machine_all_jobs_are_interrupted() -> None:
    run = create_run("host")
    submitted(run, "a")
    run.remove_live_places()  # which many machines do
    assert steering() == {"a": "interrupted"}


def test_jobs_of_another_machine_are_told_as_such() -> None:
    run = create_run("host")
    submitted(run, "a")
    elsewhere(run)
    assert steering() == {"a": "elsewhere"}
    sweep()
    assert run.runtime_dir.exists()


def test_what_ended_unsteered_is_written_down_and_swept_away() -> None:
    run = create_run("host")
    submitted(run, "a", "b", n_retries=0)
    ended_unsteered(run, "a", 0)
    ended_unsteered(run, "b", 137)
    killed(run)
    sweep()
    assert run.jobs() == {"a": "finished", "b": "failed"}
    assert not run.runtime_dir.exists()
    *ends, rejection = ends_of(run)
    assert ends == [
        JobFinished(at=9.0, job=JobId("a"), landed_at=9.0),
        JobFailed(at=9.0, job=JobId("b"), cause="its process was ended by SIGKILL", exit_code=137, retryable=True),
    ]
    assert isinstance(rejection, RejectJob)


def test_what_landed_unsteered_landed_when_its_last_unit_was_done(tmp_path: Path) -> None:
    run = create_run("host")
    submitted(run, "a", "b")
    path = tmp_path / "page"
    page = SharedBlock.create(str(path))
    page.declare(Declaration(total_steps=10, state=ProgramState.LANDED))
    page.publish_progress(10, 7_500_000_000, 0, -1)
    ended_unsteered(run, "a", 0, path.read_bytes())
    ended_unsteered(run, "b", 0, b"damaged")
    killed(run)
    sweep()
    messages = list(messages_of(run))
    summary = summarize(messages, JobId("a"))
    assert (summary.landed_at, summary.steps_done, summary.used_core_s) == (7.5, 10, 1.0)
    assert summarize(messages, JobId("b")).landed_at == 9.0


def test_a_job_that_may_be_started_again_waits_for_who_resumes_its_run() -> None:
    run = create_run("host")
    submitted(run, "a")
    ended_unsteered(run, "a", 137)
    killed(run)
    sweep()
    assert steering() == {"a": "interrupted"}
    assert ends_of(run) == []


def test_a_job_that_had_made_room_waits_for_who_resumes_its_run() -> None:
    run = create_run("host")
    submitted(run, "a")
    ended_unsteered(run, "a", EXIT_PREEMPTED)
    killed(run)
    sweep()
    assert steering() == {"a": "interrupted"}
    assert run.end_record(JobId("a")) is None


def test_a_job_that_was_stopped_while_nobody_steered_it_is_not_started_again() -> None:
    run = create_run("host")
    submitted(run, "a")
    run.record_job(JobId("a"), "stopping")
    ended_unsteered(run, "a", 143)
    killed(run)
    sweep()
    assert run.jobs() == {"a": "stopped"}
    (end,) = ends_of(run)
    assert isinstance(end, JobFailed)
    assert not end.retryable


def test_what_a_process_left_whose_end_is_in_the_journal_is_no_end_of_the_next() -> None:
    run = create_run("host")
    submitted(run, "a")
    with SqliteJournal(run.journal) as journal:
        journal.append([JobFailed(at=9.0, job=JobId("a"), cause="killed", exit_code=137, retryable=True)])
    ended_unsteered(run, "a", 137)
    killed(run)
    sweep()
    assert run.end_record(JobId("a")) is None
    assert len(ends_of(run)) == 1


def test_a_job_that_is_given_up_is_not_resumed() -> None:
    run = create_run(A)
    submitted(run, A)
    run.record_submitted([new_job(A, "{}", {"TOKEN": "s3cret"})])
    killed(run)
    give_up(run, [A], "given up")
    assert steering() == {A: "ended"}
    assert ends_of(run) == [JobFailed(at=6.0, job=A, cause="given up", is_stopped=True)]
    assert run.start_facts(A) is None


def test_a_job_that_was_to_run_after_one_that_is_given_up_ends_with_it() -> None:
    run = create_run("host")
    submitted(run, "a", "other", follower="b")
    killed(run)
    give_up(run, [JobId("a")], "given up")
    assert run.jobs() == {"a": "stopped", "other": "queued", "b": "turned away"}
    assert SetTimer not in map(type, messages_of(run))
    with resumed_host(run) as host:
        assert [host.status(JobId(job)).state for job in ("a", "b")] == ["stopped", "turned away"]


def test_a_job_that_was_to_run_after_one_that_failed_unsteered_ends_with_it() -> None:
    run = create_run("host")
    submitted(run, "a", n_retries=0, follower="b")
    ended_unsteered(run, "a", 1)
    killed(run)
    sweep()
    assert run.jobs() == {"a": "failed", "b": "turned away"}


def test_what_is_needed_is_not_swept_away() -> None:
    unsteered, interrupted, live, dead = (create_run(name) for name in ("unsteered", "interrupted", "live", "dead"))
    for run in (unsteered, interrupted, live):
        submitted(run, run.name)
    unsteered.record_supervisor(JobId("unsteered"), os.getpid())
    for run in (unsteered, interrupted, dead):
        killed(run)
    sweep()
    assert [run.runtime_dir.exists() for run in (unsteered, interrupted, live, dead)] == [True, True, True, False]


def test_a_job_of_an_earlier_run_has_a_number() -> None:
    for _ in range(2):
        run = create_run(A)
        submitted(run, A)
        run.record_end(A, "finished")
        run.remove_live_places()
    host = create_run("host")
    submitted(host, "b")
    host.record_end(JobId("b"), "finished")
    host.remove_live_places()
    submitted(create_run("host"), "b")
    assert sorted(steering()) == ["b", "b.1", A, f"{A}.1"]


def ends_of(run: RunFolder) -> list[Message]:
    return [message for message in messages_of(run) if not isinstance(message, JobSubmitted | LaunchJob)]


def test_what_an_earlier_job_took_is_what_all_its_processes_took() -> None:
    run = create_run("a")
    submitted(run, "a")
    job = JobId("a")

    def reported(at: float, used_core_s: float, memory_bytes: int) -> ProgressReported:
        return ProgressReported(
            at=at, job=job, steps_done=at, steps_total=100.0, unit_at=at, used_core_s=used_core_s, landed=at == 100.0,
            memory_bytes=memory_bytes,
        )  # fmt: skip

    with SqliteJournal(run.journal, take=True) as journal:
        journal.append([
            reported(80.0, 80.0, 3 << 30),
            JobFailed(at=80.0, job=job, cause="killed", exit_code=137, retryable=True),
            reported(100.0, 20.0, 1 << 30),
            JobFinished(at=100.0, job=job, landed_at=100.0),
        ])  # fmt: skip
    run.record_end(job, "finished", {"argv": ["train"]})
    assert run_like("a").used_core_s == pytest.approx(100.0)
    assert run_like("a").peak_memory_bytes == 3 << 30
    submission = submission_of(
        JobOptions(program=["true"], like="a"), 0.0, Resources(2.0, memory_bytes=8 << 30), earlier_run=run_like
    )
    assert (submission.spec.work_core_s, submission.spec.expected_memory_bytes) == (pytest.approx(100.0), 3 << 30)
    assert submission.spec.asked_memory_bytes == 0, "it is expected, and no limit"
    assert core_s_of_same_program(["train"]) == pytest.approx(100.0)


def jobs(*names: str) -> list[KnownJob]:
    return [KnownJob(RunFolder(name, Path(), Path()), JobId(name), name, "steered") for name in names]


def test_a_job_is_found_by_its_name_or_beginning() -> None:
    known = jobs("train", "train-2", "other")
    assert find_job("train", known).job == "train"
    assert find_job("o", known).job == "other"
    assert find_job("train-", known).job == "train-2"
    assert find_job(None, known[:1]).job == "train"


def test_of_many_jobs_the_newest_are_named_for_a_name_that_fits_none() -> None:
    with pytest.raises(InvalidSpec) as refused:
        find_job("other", jobs(*(f"train-{i}" for i in range(100))))
    assert refused.value.remedy.startswith("Name one of: train-99, train-98, ")
    assert "and 92 more" in refused.value.remedy


def test_of_jobs_of_one_name_the_open_one_is_found_or_else_the_last() -> None:
    for name in ("first", "last", "open"):
        submitted(create_run(name), "a")
    for name in ("last", "first"):
        run_named(name).record_end(JobId("a"), "finished")
    assert find_job("a", known_jobs()).run.name == "open"
    run_named("open").record_end(JobId("a"), "failed")
    assert find_job("a", known_jobs()).run.name == "open"
    run_named("last").record_end(JobId("a"), "finished")
    assert find_job("a", known_jobs()).run.name == "last"


def test_a_name_that_several_jobs_of_a_run_were_given_is_that_of_the_open_one_or_else_of_the_last() -> None:
    run = create_run("daemon")
    run.record_submitted([new_job(JobId("a"), "{}", {})])
    run.record_end(JobId("a"), "finished")
    run.record_submitted([new_job(JobId("a-2"), "{}", {}, name="a"), new_job(JobId("a-3"), "{}", {})])
    assert open_job("a").job == "a-2"
    run.record_end(JobId("a-2"), "finished")
    assert find_job("a", known_jobs()).job == "a-2"
    assert has_finished(JobId("a"))
    with pytest.raises(InvalidSpec, match="which has ended"):
        open_job("a")
    assert find_job("a-3", known_jobs()).job == "a-3"


def test_of_two_jobs_of_one_name_the_last_is_meant_also_after_the_clock_was_set_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run = create_run("host")
    run.record_submitted([new_job(JobId("a"), "{}", {}), new_job(JobId("a-2"), "{}", {}, name="a")])
    for job, state, ended_at in (("a", "finished", 90_000.0), ("a-2", "failed", 4_000.0)):
        monkeypatch.setattr(job_records, "time", SimpleNamespace(time=lambda at=ended_at: at))
        run.record_end(JobId(job), state)  # type: ignore[arg-type]
    assert find_job("a", known_jobs()).job == "a-2"
    assert not has_finished(JobId("a"))


def test_each_job_of_one_name_has_a_title_by_which_it_is_found() -> None:
    for name in ("daemon", "alone"):
        run = create_run(name)
        run.record_submitted([new_job(JobId("a"), "{}", {}), new_job(JobId("a-1"), "{}", {})])
        run.record_end(JobId("a"), "finished")
        run.record_end(JobId("a-1"), "finished")
    run_named("alone").record_submitted([new_job(JobId("a-2"), "{}", {}, name="a")])
    known = known_jobs()
    titles = [job.title for job in known]
    assert sorted(titles) == ["a-1", "a-1-1", "a-2", "a-3", "a-4"]
    assert [find_job(title, known) for title in titles] == known
    assert find_job("a", known).job == "a-2"
    assert sorted(past.job.title for past in past_jobs()) == sorted(titles)


@pytest.mark.parametrize(("text", "named"), [("zzz", "a-2, a-1"), ("a", "a-2, a-1"), (None, "a-2, a-1")])
def test_it_is_said_which_jobs_there_are(text: str | None, named: str) -> None:
    with pytest.raises(InvalidSpec, match="exactly one job") as caught:
        find_job(text, jobs("a-1", "a-2"))
    assert named in caught.value.remedy


def test_of_a_job_that_has_ended_it_is_said_that_it_has() -> None:
    run = create_run("a")
    run.record_job(JobId("a"), "queued")
    assert open_job("a").run == run
    run.record_end(JobId("a"), "failed")
    with pytest.raises(InvalidSpec, match="which has ended") as caught:
        open_job("a")
    assert "punctual show a" in caught.value.remedy
    run.record_job(JobId("a-2"), "queued")
    with pytest.raises(InvalidSpec, match="which has ended"):
        open_job("a")
    assert open_job("a-").job == "a-2"


def test_it_is_said_that_there_are_none() -> None:
    with pytest.raises(InvalidSpec) as caught:
        find_job(None, [])
    assert "there are none" in caught.value.got
    assert "punctual run" in caught.value.remedy


def test_only_some_of_many_are_named() -> None:
    with pytest.raises(InvalidSpec) as caught:
        find_job(None, jobs(*(f"a-{number:03}" for number in range(300))))
    assert caught.value.remedy.endswith("a-292 and 292 more.")


def test_looks_once_whether_a_run_is_steered_however_many_jobs_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run("service", {})
    submitted(run, *(f"job-{i}" for i in range(20)))
    other = create_run("other", {})
    submitted(other, "a")
    n_looks, is_live = [0], RunFolder.is_live

    def counted(run: RunFolder) -> bool:
        n_looks[0] += 1
        return is_live(run)

    monkeypatch.setattr(RunFolder, "is_live", counted)
    assert [known.job for known in open_jobs(but=run)] == ["a"]
    assert len(open_jobs()) == 21
    assert n_looks == [3]
