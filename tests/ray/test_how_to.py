"""The page about Ray, word for word: but for the commands that start a cluster, which is there already."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import Terminal

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "ray.md"


@pytest.fixture
def terminal(ray_cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    monkeypatch.setenv("RAY_ADDRESS", ray_cluster.address)  # where `auto` looks first
    made = Terminal(tmp_path)
    yield made
    made.punctual("down", "--jobs", "stop")
    made.close()


def test_every_command_of_the_page_does_what_it_says(terminal: Terminal) -> None:
    page = PAGE.read_text()
    (script,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    python, _ = terminal.script(script)
    commands = re.findall(r"^\$ punctual (.*)$", page, re.MULTILINE)
    assert len(commands) == 7
    told = {}
    for command in commands:
        done = terminal.punctual(*[python if word == "python" else word for word in command.split()])
        assert done.returncode == 0, (command, done.stderr)
        told[command] = done.stdout
    assert all(name in told["ps"] for name in ("first", "second"))
    assert told["logs second --follow"].splitlines()[-1] == "second has done 200 steps"
    assert told["why second"]
    assert re.findall(r"^(\w+): has ended ", told["down --jobs stop"], re.MULTILINE) == ["first"]
