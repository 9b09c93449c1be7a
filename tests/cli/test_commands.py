"""Commands that need no running job."""

from pathlib import Path

import pytest
from tests.cli.programs import Terminal

from punctual import __version__, registry


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    return Terminal(tmp_path)


def test_the_version(terminal: Terminal) -> None:
    assert terminal.punctual("--version").stdout == f"punctual {__version__}\n"


def test_help_lists_every_command(terminal: Terminal) -> None:
    text = terminal.punctual("--help").stdout
    for name in ("run", "deadline", "ps", "why", "stop", "report", "controllers", "policies", "demo"):
        assert f"  {name} " in text


@pytest.mark.parametrize("family", ["controllers", "policies"])
def test_plug_ins_are_listed_with_what_they_are(terminal: Terminal, family: str) -> None:
    lines = terminal.punctual(family).stdout.splitlines()
    assert [line.split()[0] for line in lines] == registry.names(family)
    assert all(len(line.split()) > 3 for line in lines)


def test_nothing_runs(terminal: Terminal) -> None:
    listed = terminal.punctual("ps")
    assert listed.returncode == 0
    assert listed.stdout.split()[:2] == ["JOB", "STATE"]
    assert len(listed.stdout.splitlines()) == 1


@pytest.mark.parametrize("command", [["why", "none"], ["stop"], ["deadline", "5m"], ["report", "none"]])
def test_a_job_that_is_not_there_is_a_four_part_error(terminal: Terminal, command: list[str]) -> None:
    done = terminal.punctual(*command)
    assert done.returncode == 2
    for part in ("error: ", "got:", "for:", "to do:"):
        assert part in done.stderr
