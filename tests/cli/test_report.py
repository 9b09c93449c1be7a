"""What is said of a run, at its end or before."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.pieces import JOB, granted, progressed, started, submitted

from punctual.cli import _plot
from punctual.cli.report import about, draw, paragraph
from punctual.core.events import Message
from punctual.core.loss import SeenLoss
from punctual.core.program import Program
from punctual.daemon import paths
from punctual.daemon.run_folder import RunFolder, create_run
from punctual.history.run import RunSummary, summarize
from punctual.history.shortfall import Shortfall

SHORTFALL = Shortfall(duration_s=7.0, used_cores=0.4, granted_cores=1.0)


def landed(*, cores: float = 2.0, shortfall: Shortfall | None = None) -> RunSummary:
    """Of a run of 40 s which has a deadline after 60 s and holds `cores` of 2."""
    messages: list[Message] = [submitted(0.0), started(0.0, cores), progressed(40.0, 1000, 30.0, landed=True)]
    return replace(summarize(messages, JOB), argv=("python", "my train.py"), shortfall=shortfall)


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    run = create_run("mine")
    run.record_facts(machine="workstation", actuator="cgroup-v2")
    run.record_end(JOB, "finished", {"submitted_wall": "2026-11-20T10:00:00+00:00"})
    return run


def test_a_run_that_goes_on_or_was_left_has_not_landed() -> None:
    told = paragraph(summarize([submitted(0.0), started(0.1), progressed(10.0, 133, 5.0)], JOB))
    assert told.startswith("The job has not landed; the last that was heard of it is step 133 of 1,000. It used ")


def test_a_run_that_did_not_get_what_it_held_is_told_so() -> None:
    assert paragraph(landed()).startswith("Landed 20 s (33.33%) before the deadline of 1 min.")
    assert "for something other than the processor" not in paragraph(landed())
    assert paragraph(landed(shortfall=SHORTFALL)).endswith(
        "For 7 s it used 0.40 of the 1.00 cores that it held and can use: the machine gave it no more, or it waited for "
        "something other than the processor."
    )


def test_what_a_run_left_of_its_ceiling_is_told_if_it_left_any() -> None:
    assert paragraph(landed(cores=0.5)).endswith(
        "It used 30.0 core-seconds of 20.0 granted, with 0 resizes. Its ceiling over the same time is 80.0 core-seconds: it "
        "left 60.0 of them to others."
    )
    assert "ceiling" not in paragraph(landed(cores=2.0))


def test_about_a_run_is_told_what_ran_when_and_where_and_what_it_came_to(run: RunFolder) -> None:
    loss = SeenLoss(steps=12345.0, loss=0.123456)
    assert about(run, replace(landed(), controller="remaining-cost", loss=loss)) == {
        "command": "python 'my train.py'",
        "started": "2026-11-20 10:00:00",
        "host": "workstation",
        "controller": "remaining-cost",
        "actuator": "cgroup-v2",
        "loss": "0.12346 at step 12,345",
    }
    assert "loss" not in about(run, landed())


def test_a_picture_says_what_the_page_and_the_terminal_say(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn = []
    monkeypatch.setattr(_plot, "save", lambda path, run, title, texts: drawn.extend([title, *texts]))
    event = replace(submitted(0.0), program=Program(argv=("python", "train.py")))
    messages: list[Message] = [event, started(0.0), granted(10.0, 1.0), progressed(40.0, 1000, 30.0, landed=True)]
    draw(tmp_path / "out.png", run, messages, JOB)
    assert drawn[:2] == [f"{JOB}: landed 20 s before its deadline of 1 min", paragraph(summarize(messages, JOB))]
    assert {"Command: python train.py", "Host: workstation", "Actuator: cgroup-v2"} <= set(drawn)
