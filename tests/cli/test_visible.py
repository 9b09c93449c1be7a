"""What a job or a submitter wrote cannot act on the terminal of who reads it, nor look like a line of ours."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from tests.architecture.source import PACKAGE
from tests.cli.pieces import JOB, folded, started
from tests.cli.programs import objects
from tests.cli.test_service import Service
from tests.waiting import wait_until

from punctual.cli._errors import tell_user
from punctual.cli._lanes import Lanes
from punctual.cli._streams import print_table, write_error, write_line
from punctual.cli._view import panel
from punctual.client.client import Client
from punctual.core.commands import StopJob, WarnUser
from punctual.core.errors import InvalidSpec
from punctual.core.reason import Reason
from punctual.daemon.logs import LogFormatter
from punctual.daemon.status_reader import standing
from punctual.request.deadlines import Now
from punctual.request.words import visible

#: A title for the window, a cleared screen, colours, a cursor that goes back, text turned around, and lines of its own.
HOSTILE = "\x1b]0;PWN\x07\x1b[2J\x9b31m\u202e\u2066\u200f\u2028\x85\r\nFAKE: line\n\tFAKE\x0b\x0c\b\x7f\x00\udc80\u200b"
#: The same without what no argument or cause may hold.
WRITTEN = HOSTILE.replace("\x00", "").replace("\udc80", "")


def check(text: str) -> None:
    """Nothing in `text` but lines of what can be seen, and none that the hostile text begins."""
    for line in text.split("\n"):
        assert line.isprintable(), repr(line)
        assert not line.lstrip().startswith("FAKE"), line


# The function.


@given(st.text(st.characters(exclude_categories=())))
def test_each_text_becomes_one_line_that_can_be_seen(text: str) -> None:
    told = visible(text)
    assert told.isprintable()
    assert visible(told) == told
    told.encode()


@given(st.text().filter(str.isprintable))
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert visible(text) == text


def test_escapes_are_those_of_python() -> None:
    assert visible("a\x1b[2J\n\u202eb\udc80é") == r"a\x1b[2J\n\u202eb\udc80é"


# Who writes.


def test_every_line_that_a_command_writes_is_written_in_one_place() -> None:
    """A printer of its own could forget the function."""
    raw = re.compile(r"typer\.echo\(|std(out|err)\.write\(|(?<!\.)\bprint\(|write_out\((?!json_text\()")
    as_it_is = {
        "_demo_training.py": 1,  # a program of its own
        "_help.py": 1,  # a help
        "_streams.py": 3,  # the one place, and what rich has drawn
        "up.py": 1,  # a unit for systemd
    }
    found = {
        file.name: n_calls
        for file in sorted((PACKAGE / "cli").glob("*.py"))
        if (n_calls := len(raw.findall(file.read_text())))
    }
    assert found == as_it_is


def test_lines_tables_and_errors_are_visible(capsys: pytest.CaptureFixture[str]) -> None:
    write_line(HOSTILE)
    write_line(HOSTILE, err=True)
    write_error(HOSTILE, HOSTILE)
    print_table(["A", "B"], [[HOSTILE, "one"], ["two", HOSTILE]])
    tell_user(InvalidSpec(HOSTILE, HOSTILE, HOSTILE, HOSTILE, others=[InvalidSpec("a", "b\nFAKE", "c", "d")]))
    told = capsys.readouterr()
    for text in (told.out, told.err):
        for line in text.split("\n"):
            assert line.isprintable(), repr(line)
            assert not line.startswith("FAKE"), line
    first, second, third = told.out.splitlines()[1:]
    assert [line.index(cell) for line, cell in ((first, "B"), (second, "one"))] == [len(visible(HOSTILE)) + 2] * 2
    assert third.startswith("two ")


def test_live_views_are_visible() -> None:
    warned = WarnUser(at=1.0, job=JOB, reason=Reason("late", HOSTILE))
    stopped = StopJob(at=1.0, job=JOB, cause=HOSTILE)
    status = folded(started(0.1), warned, stopped)
    assert HOSTILE in status.warnings.values()
    now = Now.read()
    console = Console(width=400, color_system=None)
    with console.capture() as drawn:
        console.print(panel(status, now, HOSTILE))
        console.print(*Lanes([standing(status, now)], now.wall, 200).lines())
    check(drawn.get())


def test_logs_have_a_line_for_each_record() -> None:
    error = ValueError(HOSTILE)
    record = logging.LogRecord("a", logging.WARNING, "f", 1, "by %s", (HOSTILE,), (ValueError, error, None))
    told = LogFormatter("punctual: %(message)s").format(record)
    head, *rest = told.split("\n")
    assert head == f"punctual: by {visible(HOSTILE)}"
    assert all(line.isprintable() and line.startswith("    ") for line in rest)


# All of it.


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    made = Service(tmp_path)
    monkeypatch.setenv("PUNCTUAL_HOME", str(made.home))
    yield made
    made.punctual("down", "--jobs", "stop")
    made.close()


def test_no_command_shows_what_a_submitter_wrote_as_it_is(machine: Service) -> None:
    service = machine.up("--listen", "127.0.0.1:0")
    client = Client()
    waiting = ["/bin/sh", "-c", "sleep 600", WRITTEN, f"--option={WRITTEN}"]
    client.submit(waiting, name="one", deadline="60s", cwd="/")
    client.submit(["/bin/sh", "-c", "exit 3", WRITTEN], name="two", cwd="/")
    (folder := machine.folder / f"of{WRITTEN}").mkdir()
    client.submit(["/bin/true"], name="three", cwd=str(folder))
    wait_until(lambda: client.job("one").status().state, lambda state: state == "running")
    client.pause("one", WRITTEN)
    wait_until(lambda: client.job("one").status().state, lambda state: state == "paused")
    shown = [machine.punctual(*words) for words in (["ps"], ["show", "one"], ["why", "one"])]
    client.stop("one", WRITTEN)
    wait_until(
        lambda: all(
            client.job(name).status().state in {"stopped", "failed", "finished"} for name in ("one", "two", "three")
        )
    )
    for name in ("one", "two", "three"):
        shown += [machine.punctual(command, name) for command in ("show", "why", "report")]
    shown.append(machine.punctual("report", "one", "--out", "report.png"))
    shown.append(machine.punctual("ps", "--all"))
    for done in shown:
        check(done.stdout)
        check(done.stderr)
    assert r"FAKE: line\n" in shown[-1].stdout + shown[2].stdout
    listed = {each["job"]: each for each in objects(machine.punctual("ps", "--all", "--json").stdout)}
    assert WRITTEN in listed["one"]["argv"]  # machines are told what it was
    service.terminate()
    _, errors = service.communicate()
    check(errors)
