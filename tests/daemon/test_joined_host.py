"""The host of a command's jobs, in this process: which jobs are the command's, and when they have ended."""

from dataclasses import asdict, replace
from functools import partial

import pytest
from punctual.daemon.joined_host import host_of_new_jobs, host_of_old_jobs, receiver_of_none
from tests.daemon.live_jobs import PACED, submission

from punctual.core.codec import encode
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.ids import JobId
from punctual.core.status import StatusBoard
from punctual.daemon.capacity import usable_hardware
from punctual.daemon.host_options import HostOptions
from punctual.daemon.run_folder import SERVICE, RunFolder, create_run
from punctual.daemon.runs import known_jobs, messages_of
from punctual.journal.sqlite import SqliteJournal
from punctual.request.submission import Submission
from punctual.request.submission_json import submitted

A = JobId("a")
SHARED = replace(PACED, shared=True)


def test_a_command_ends_with_its_last_job_although_the_ends_of_the_first_are_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("punctual.daemon.host_state.StatusBoard", partial(StatusBoard, n_ended=2))
    given = [submission(name) for name in ("a", "b", "c")]
    with host_of_new_jobs(given, PACED, output_of=receiver_of_none, facts={}) as host:
        host.run()
        assert host.local is not None
        assert len(host.local.jobs()) == 2
        assert [host.status(job).state for job in host.jobs] == ["finished"] * 3
        assert all(host.knows(job) and host.has_ended(job) for job in host.jobs)


def accepted(job: Submission, options: HostOptions = SHARED) -> RunFolder:
    """The run of a host that has accepted a job, and was killed before that was in its journal or answered."""
    run = create_run("host", {"options": asdict(options), SERVICE: True})
    run.record_facts(hardware=usable_hardware(), actuator=PACED.actuator)
    with SqliteJournal(run.journal):
        pass
    run.keep_submission(job.spec.id, encode(submitted(job)), job.inherited)
    run.record_job(job.spec.id, "queued")
    (run.runtime_dir / "run.json").write_text("{}")
    return run


def test_a_job_that_was_accepted_and_not_answered_is_not_refused_because_of_itself() -> None:
    given = submission("a")
    run = accepted(given)
    with host_of_new_jobs([given], SHARED, output_of=receiver_of_none, facts={}) as host:
        assert host.run_folder == run
        host.run()
    assert run.jobs() == {"a": "finished"}
    assert [message.spec.id for message in messages_of(run) if isinstance(message, JobSubmitted)] == ["a"]


def test_a_command_says_once_why_it_cannot_take_the_place_of_a_host_that_is_gone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("punctual.daemon.joined_host._ALIKE_S", 0.0)
    monkeypatch.setattr("punctual.daemon.joined_host._JOIN_S_MAX", 2.0)
    options = replace(SHARED, policy="elsewhere")
    accepted(submission("a"), options)
    with pytest.raises(InvalidSpec, match="elsewhere") as refused:
        host_of_new_jobs([submission("b")], options, output_of=receiver_of_none, facts={}).__enter__()
    assert "be able to take its place" in refused.value.must
    assert [record.message for record in caplog.records if "elsewhere" in record.message] == [
        refused.value.got.partition("; ")[2]
    ]


def test_a_job_that_was_accepted_is_waited_for_by_who_attaches_to_it() -> None:
    run = accepted(submission("a"))
    with host_of_old_jobs(run, A, output_of=receiver_of_none, take=False) as host:
        assert host.jobs == (A,)
        host.run()
        assert host.status(A).state == "finished"


def test_a_name_is_free_once_its_job_has_ended_although_another_job_of_its_run_has_not() -> None:
    earlier = create_run("a", {})
    earlier.record_job(JobId("b"), "queued")
    earlier.record_end(A, "finished")
    (earlier.runtime_dir / "run.json").write_text("{}")
    with host_of_new_jobs([submission("a")], PACED, output_of=receiver_of_none, facts={}) as host:
        host.run()
        assert host.run_folder.name == "a-2"
    assert {(job.run.name, job.title): job.steering for job in known_jobs()} == {
        ("a", "a"): "ended", ("a", "b"): "interrupted", ("a-2", "a"): "ended",
    }  # fmt: skip


def test_the_name_of_a_job_that_has_not_ended_is_refused() -> None:
    earlier = create_run("a", {})
    earlier.record_job(A, "queued")
    (earlier.runtime_dir / "run.json").write_text("{}")
    with pytest.raises(InvalidSpec, match="which was interrupted") as refused:
        host_of_new_jobs([submission("a")], PACED, output_of=receiver_of_none, facts={}).__enter__()
    assert "punctual attach a" in refused.value.remedy
