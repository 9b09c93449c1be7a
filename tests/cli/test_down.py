"""`punctual down`, where the service is too busy to answer about a job."""

import os

import pytest

from punctual.cli import down
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.runtime.process_record import process_record
from punctual.runtime.run_folder import create_run
from punctual.runtime.runs import KnownJob, jobs_of

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


def test_a_job_is_asked_again_when_all_others_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Busy(n_refused=1)
    ask_all(service, monkeypatch)
    assert service.asked == ["a", "b", "c", "a"]


def test_what_is_refused_again_is_told_once_all_others_were_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Busy(n_refused=2)
    with pytest.raises(InvalidSpec, match="busy"):
        ask_all(service, monkeypatch)
    assert service.asked == ["a", "b", "c", "a"]
