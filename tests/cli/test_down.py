"""`punctual down`, where the service is too busy to answer about a job."""

import os

import pytest
from tests.cli.pieces import counted_looks

from punctual.cli import down
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon.run_folder import RunFolder, create_run, process_record
from punctual.daemon.runs import KnownJob, jobs_of

NAMES = ("a", "b", "c")


class Busy:
    """A service that refuses what is asked of a job so many times."""

    def __init__(self, n_refused: int) -> None:
        self._n_refused = n_refused
        self.asked: list[JobId] = []

    def ask(self, job: KnownJob) -> None:
        self.asked.append(job.job)
        if job.job == "a" and self.asked.count(job.job) <= self._n_refused:
            raise InvalidSpec("the host must answer", "one that is busy", "job 'a'", "Ask again.")


def ask_all(service: Busy, monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run("host")
    for name in NAMES:
        run.record_job(JobId(name), "running")
    monkeypatch.setattr(down, "standings", lambda run: [])
    jobs = {job.job: job for job in jobs_of(run)}
    down._ask_all(run, jobs, process_record(os.getpid()), service.ask, ())


def test_what_became_of_jobs_is_looked_up_as_often_for_many_as_for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run("host")
    monkeypatch.setattr(down, "daemon_run", lambda: run)
    monkeypatch.setattr(down, "leave", lambda run: None)
    monkeypatch.setattr(down, "is_alive", lambda process: False)
    monkeypatch.setattr(down, "standings", lambda run: [])
    n_looks = []
    for n_jobs in (2, 20):
        for i in range(n_jobs):
            run.record_job(JobId(f"job-{i}"), "running")
        with counted_looks(monkeypatch) as looks:
            down.down(down.OnShutdown.CONTINUE)
        n_looks.append(len(looks))
    assert n_looks[0] == n_looks[1]


def test_a_job_is_asked_again_when_all_others_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Busy(n_refused=1)
    ask_all(service, monkeypatch)
    assert service.asked == ["a", "b", "c", "a"]


def test_what_is_refused_again_is_told_once_all_others_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Busy(n_refused=2)
    with pytest.raises(InvalidSpec, match="busy"):
        ask_all(service, monkeypatch)
    assert service.asked == ["a", "b", "c", "a"]


def test_a_daemon_that_has_just_ended_with_its_last_job_is_taken_for_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    def leave(run: RunFolder) -> None:
        raise InvalidSpec("the service must answer", "nobody", "process 1", "Kill it.")

    run = create_run("host")
    monkeypatch.setattr(down, "daemon_run", lambda: run)
    monkeypatch.setattr(down, "leave", leave)
    monkeypatch.setattr(down, "is_alive", lambda process: False)
    monkeypatch.setattr(down, "standings", lambda run: [])
    run.record_job(JobId("a"), "finished")
    down.down(down.OnShutdown.STOP)
    run.record_job(JobId("b"), "running")
    with pytest.raises(InvalidSpec, match="must answer"):
        down.down(down.OnShutdown.CONTINUE)
