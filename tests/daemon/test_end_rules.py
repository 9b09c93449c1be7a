"""When a job is ended before its work is done: as options, in files, over HTTP."""

from pathlib import Path
from typing import Any

import pytest

from punctual.api.job_routes import checked_submission_of
from punctual.client.schema import SubmitRequest
from punctual.core.errors import InvalidSpec
from punctual.core.job import EndRules
from punctual.core.resources import Resources
from punctual.request.job_options import JobOptions
from punctual.request.jobs_file import read_jobs
from punctual.request.submission import Submission, submission_of

MACHINE = Resources(cores=4)


def by_options(_: Path, **options: str) -> Submission:
    return submission_of(JobOptions.given({"program": ["true"], **options}), 0.0, MACHINE)


def by_file(folder: Path, **options: str) -> Submission:
    keys = "\n".join(f"{name} = '{text}'" for name, text in options.items())
    (folder / "jobs.toml").write_text(f"[[job]]\nprogram = 'true'\n{keys}\n")
    return read_jobs(folder / "jobs.toml", 0.0, MACHINE)[0]


def by_http(_: Path, **options: str) -> Submission:
    return checked_submission_of(SubmitRequest(program=["true"], **options), MACHINE)  # type: ignore[arg-type]


@pytest.mark.parametrize("submitted", [by_options, by_file, by_http])
def test_they_are_what_was_asked_for(submitted: Any, tmp_path: Path) -> None:
    assert submitted(tmp_path).spec.ends == EndRules()
    spec = submitted(tmp_path, at_deadline="stop", on_stall="retry", stop_grace="20m").spec
    assert spec.ends == EndRules(at_deadline="stop", on_stall="retry", grace_s=1200.0)


def test_a_job_that_is_started_again_when_it_stands_still_has_retries(tmp_path: Path) -> None:
    assert by_options(tmp_path).spec.n_retries == 0
    assert by_options(tmp_path, on_stall="retry").spec.n_retries is None
    options = JobOptions(program=["true"], on_stall="retry", retries=7)
    assert submission_of(options, 0.0, MACHINE).spec.n_retries == 7


@pytest.mark.parametrize(
    ("option", "text"), [("at_deadline", "now"), ("on_stall", ""), ("on_stall", "kill"), ("stop_grace", "60")]
)
@pytest.mark.parametrize("submitted", [by_options, by_file, by_http])
def test_what_they_cannot_be_is_refused_with_what_they_can(
    submitted: Any, option: str, text: str, tmp_path: Path
) -> None:
    with pytest.raises(InvalidSpec) as refused:
        submitted(tmp_path, **{option: text})
    assert refused.value.option == option or f"`{option}`" in refused.value.where
    assert "`" in refused.value.remedy
