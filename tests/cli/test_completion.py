"""What the shell offers for a word that is begun."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.cli.programs import Terminal
from tests.daemon.live_jobs import PACED, submission
from tests.forked_python import punctual

from punctual import registry
from punctual.cli._app import COMMANDS
from punctual.daemon.opening import new_host

Offer = Callable[[str], set[str]]


@pytest.fixture
def offered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Offer:
    """What is offered for the last word of a command line."""
    terminal = Terminal(tmp_path)
    home = os.environ["PUNCTUAL_HOME"]

    def offer(line: str) -> set[str]:
        words = line.split(" ")
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(terminal, "home", Path(home))
            patch.setenv("_PUNCTUAL_COMPLETE", "complete_bash")
            patch.setenv("COMP_WORDS", line)
            patch.setenv("COMP_CWORD", str(len(words) - 1))
            return set(terminal.tell().stdout.split())

    return offer


def test_commands_and_their_options_are_offered(offered: Offer) -> None:
    assert offered("punctual ") == set(COMMANDS)
    assert offered("punctual pau") == {"pause"}
    for command in COMMANDS:
        assert "--help" in offered(f"punctual {command} --"), command


def test_names_of_jobs_are_offered(offered: Offer) -> None:
    with new_host("host", PACED) as host:
        host.submit(submission("resnet"))
        host.submit(submission("bert"))
        host.run_for(60.0, lambda: all(host.knows(job) for job in host.run_folder.jobs()))
        for command in ("pause", "resume", "set", "stop", "deadline", "why", "show", "logs", "report", "attach"):
            assert offered(f"punctual {command} re") == {"resnet"}, command
        assert offered("punctual run --after ") == {"resnet", "bert"}
        host.run(host.all_ended)
    assert offered("punctual stop re") == set()
    assert offered("punctual why re") == {"resnet"}


def test_names_of_policies_and_controllers_are_offered(offered: Offer) -> None:
    assert offered("punctual policy fi") == {"fifo"}
    for command in ("run", "submit", "up"):
        assert offered(f"punctual {command} --policy ") == set(registry.names("policies"))
    assert offered("punctual run --controller two") == {"two-level"}


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_there_is_a_script_for_the_usual_shells(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION", "1")
    told = punctual("--show-completion", shell)
    assert told.returncode == 0, told.stderr
    assert "_COMPLETE" in told.stdout
