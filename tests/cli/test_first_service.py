"""The lesson about the first service, word for word."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs import Terminal
from tests.waiting import wait_until

PAGE = Path(__file__).parents[2] / "docs" / "tutorials" / "first-service.md"


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.tell("down", "--jobs", "stop")
    made.close()
    assert made.left_behind() == []


def test_every_command_of_the_lesson_does_what_it_says(terminal: Terminal) -> None:
    page = PAGE.read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    python, _ = terminal.script(script)
    commands = re.findall(r"^\$ punctual (.*)$", page, re.MULTILINE)
    assert len(commands) == 10
    told = {}
    for command in commands:
        # Another `python` may be first on the way of whoever runs the tests.
        done = terminal.punctual(*[python if word == "python" else word for word in command.split()])
        assert done.returncode == 0, (command, done.stderr)
        told[command] = done.stdout
    assert told["submit --name third --deadline 10m --cores 1 -- python train.py third 20000"] == "third\n"
    assert all(name in told["ps --watch"] for name in ("first", "second", "third"))
    assert told["deadline second 12s"].startswith("second: the deadline is now")
    assert "deadline" in told["show second"]
    assert told["logs second --follow"].splitlines()[-1] == "second has done 5000 steps"
    assert "The deadline was set to" in told["report second"]
    assert re.findall(r"^(\w+): was stopped \(", told["down --jobs stop"], re.MULTILINE) == ["first", "third"]
    wait_until(lambda: terminal.jobs() == [])
