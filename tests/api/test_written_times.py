"""A time is written in one way, wherever one is asked for: each form at each place."""

import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from tests.api.live_service import LiveService, program
from tests.waiting import wait_until

from punctual.api.database import ServiceDatabase
from punctual.api.job_routes import checked_submission_of
from punctual.api.tokens import Tokens
from punctual.cli.clean import clean
from punctual.cli.token import create
from punctual.client.schema import SubmitRequest
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.daemon.control_client import change, quote_job
from punctual.daemon.paths import service_root
from punctual.daemon.retention import RetentionLimits
from punctual.daemon.runs import find_job, open_jobs
from punctual.request.deadlines import Now
from punctual.request.job_options import JobOptions
from punctual.request.jobs_file import read_jobs
from punctual.request.submission import Submission, submission_of

#: What is meant is not later than a second, or so, before or after: texts have whole seconds.
ROUNDED = timedelta(seconds=2)
CAPACITY = Resources(cores=4)

DURATIONS = {"5400s": 5400, "1h30m": 5400, "1.5h": 5400, "90:00": 5400, "1-02:00:00": 93600, "PT1H30M": 5400}


def local(now: datetime, days: int = 0, **fields: int) -> datetime:
    """The moment at which clocks here show the time of `now` so many days later, with other fields."""
    return (now.replace(tzinfo=None, **fields) + timedelta(days=days)).astimezone()


#: Form -> the text at a moment.
FORMS: dict[str, Callable[[datetime], str]] = {
    **{text: lambda _, text=text: text for text in DURATIONS if text != "90:00"},  # type: ignore[misc]
    "now+2h": lambda _: "now+2h",
    "tomorrow-23:30": lambda _: "tomorrow-23:30",
    "time of day": lambda now: f"{now + timedelta(hours=6):%H:%M}",
    "local date": lambda now: f"{now + timedelta(hours=6):%Y-%m-%d %H:%M:%S}",
    "ISO 8601": lambda now: (now + timedelta(hours=6)).isoformat(timespec="milliseconds"),
    "UTC": lambda now: f"{(now + timedelta(hours=6)).astimezone(UTC):%Y-%m-%dT%H:%M:%SZ}",
}


def meant(form: str, now: datetime) -> datetime:
    """What the form means, written at `now`."""
    if form in DURATIONS:
        return now + timedelta(seconds=DURATIONS[form])
    if form == "now+2h":
        return now + timedelta(hours=2)
    if form == "tomorrow-23:30":
        return local(now, days=1, hour=23, minute=30, second=0, microsecond=0)
    late = now + timedelta(hours=6)
    return late.replace(second=0, microsecond=0) if form == "time of day" else late


def deadline_of(submission: Submission) -> datetime:
    assert submission.spec.deadline_s is not None
    return Now.read().wall_of(submission.submitted_at + submission.spec.deadline_s)


def by_options(**options: str) -> Submission:
    return submission_of(JobOptions.given({"program": ["true"], **options}), Now.read().at, CAPACITY)


def by_http(**options: str) -> Submission:
    return checked_submission_of(SubmitRequest(program=["true"], **options), CAPACITY)  # type: ignore[arg-type]


def by_file(folder: Path) -> Callable[..., Submission]:
    def read(**options: str) -> Submission:
        keys = "\n".join(f"{name} = '{text}'" for name, text in options.items())
        (folder / "jobs.toml").write_text(f"[[job]]\nprogram = 'true'\n{keys}\n")
        return read_jobs(folder / "jobs.toml", Now.read().at, CAPACITY)[0]

    return read


def check(form: str, asked: Callable[[str], datetime]) -> None:
    """`asked` gives the moment that is understood."""
    before = Now.read().wall
    text = FORMS[form](before)
    understood, after = asked(text), Now.read().wall
    until = meant(form, after) if form in DURATIONS or form.startswith(("now", "tomorrow")) else meant(form, before)
    assert meant(form, before) - ROUNDED <= understood <= until + ROUNDED, (text, understood)


@pytest.mark.parametrize("form", FORMS)
def test_of_a_new_job(form: str, tmp_path: Path) -> None:
    for submitted in (by_options, by_http, by_file(tmp_path)):
        check(form, lambda text, submitted=submitted: deadline_of(submitted(deadline=text)))  # type: ignore[misc]


def test_of_a_job_that_works(service: LiveService, tmp_path: Path) -> None:
    """Over HTTP and over the control socket, by which `punctual deadline`, `set` and `quote` ask."""
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a", "deadline": "10m"})
    known = find_job("a", open_jobs())

    def patched(text: str) -> Any:
        return service.caller.send("PATCH", "/jobs/a", {"deadline": text}).json()["deadline"]

    def quoted(text: str) -> Any:
        return service.caller.post("/jobs/a/quote", {"deadline": text}).json()["deadline"]

    def set_by_command(text: str) -> Any:
        return change(known, when=text)["deadline_wall"]

    def quoted_by_command(text: str) -> Any:
        return quote_job(known, text, [])["deadline_wall"]

    places = (patched, quoted, set_by_command, quoted_by_command)
    for form in FORMS:
        for asked in places:
            check(form, lambda text, asked=asked: datetime.fromisoformat(asked(text)))  # type: ignore[misc]

    def is_in_force() -> bool:
        deadline_s = service.host.status(JobId("a")).spec.deadline_s
        return deadline_s is not None and abs(deadline_s - changed["deadline_s"]) < 1e-6

    changed = change(known, when="2h")
    wait_until(is_in_force)
    present = datetime.fromisoformat(changed["deadline_wall"])
    for text, minutes in (("+30m", 30), ("-0:10:00", -10)):
        for asked in (quoted, quoted_by_command):
            assert abs(datetime.fromisoformat(asked(text)) - present - timedelta(minutes=minutes)) < ROUNDED
    assert abs(datetime.fromisoformat(patched("+30m")) - present - timedelta(minutes=30)) < ROUNDED


@pytest.mark.parametrize("text", DURATIONS)
def test_of_how_long_something_takes(text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for submitted in (by_options, by_http, by_file(tmp_path)):
        assert submitted(work=text).spec.work_core_s == DURATIONS[text]
    create("laptop", expires=text)
    database = ServiceDatabase(service_root())
    (token,) = Tokens(database).all()
    database.close()
    assert token.expires_at is not None
    assert token.expires_at - token.created_at == pytest.approx(DURATIONS[text])
    limits: list[RetentionLimits] = []

    def expired(_: object, told: RetentionLimits, at: float) -> list[object]:
        limits.append(told)
        return []

    monkeypatch.setattr(sys.modules["punctual.cli.clean"], "expired", expired)
    clean(older_than=text)
    assert [told.age_s for told in limits] == [DURATIONS[text]]


@pytest.mark.parametrize("text", ["+30m", "-10m", "90", "soon"])
def test_what_is_no_time_of_a_new_job_is_refused_with_its_place(text: str, tmp_path: Path) -> None:
    for submitted in (by_options, by_http):
        with pytest.raises(InvalidSpec) as refused:
            submitted(deadline=text)
        assert refused.value.option == "deadline"
    with pytest.raises(InvalidSpec) as refused:
        by_file(tmp_path)(deadline=text)
    assert "`deadline`" in refused.value.where


@pytest.mark.parametrize(("method", "path"), [("PATCH", "/jobs/a"), ("POST", "/jobs/a/quote")])
def test_what_is_no_time_of_a_job_that_works_is_refused_with_its_place(
    service: LiveService, tmp_path: Path, method: str, path: str
) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a"})
    for text in ("+30m", "90", "soon", "2020-01-01 00:00"):  # the job has no deadline that could be moved
        refused = service.caller.send(method, path, {"deadline": text})
        assert (refused.status, refused.json()["field"]) == (422, "/deadline"), text
