"""Names of jobs: each stands for one job, and who chose one gets it or is told."""

from dataclasses import replace

import pytest

from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.daemon.joining import names_in
from punctual.daemon.run_folder import RunFolder, create_run
from punctual.request.job_options import JobOptions
from punctual.request.submission import Submission, submission_of


@pytest.fixture
def host() -> RunFolder:
    """Has a job that has ended, its successor, and one that runs."""
    run = create_run("host")
    for job, state in (("a", "finished"), ("a-2", "failed"), ("b", "running")):
        run.record_job(JobId(job), state)  # type: ignore[arg-type]
    return run


def submission(name: str | None) -> Submission:
    return submission_of(JobOptions(program=["sh", "train.sh"], name=name), 0.0, Resources(cores=1))


def made_up(name: str) -> Submission:
    """A job that nobody has named, and that happens to get this name."""
    job = submission(name)
    return replace(job, has_chosen_name=False)


def names(run: RunFolder | None, *submissions: Submission) -> list[str]:
    return [named.spec.id for named in names_in(run, submissions)]


def test_the_name_of_a_job_of_the_same_host_that_has_ended_gets_a_number(host: RunFolder) -> None:
    assert names(host, submission("a"), submission("c")) == ["a-3", "c"]
    assert names(None, submission("a")) == ["a"]


def test_the_chosen_name_of_an_open_job_stays_to_be_refused(host: RunFolder) -> None:
    assert names(host, submission("b")) == ["b"]


def test_a_name_that_was_made_up_is_never_that_of_another_job(host: RunFolder) -> None:
    assert names(host, made_up("b"), made_up("c"), made_up("c")) == ["b-2", "c", "c-2"]
    assert names(None, submission("b-2"), made_up("b")) == ["b-2", "b-3"]
    assert not submission(None).has_chosen_name


def test_a_name_with_a_number_is_no_longer_than_any(host: RunFolder) -> None:
    long = "x" * 64
    host.record_job(JobId(long), "finished")
    assert names(host, submission(long)) == ["x" * 62 + "-2"]
