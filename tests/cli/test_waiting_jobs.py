"""A training that mostly waits, beside one that computes."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import SPIN, Terminal
from tests.waiting import wait_until

COMPUTING = (
    SPIN
    + """
import pathlib, punctual
for i in punctual.track(range(100_000), total_steps=100_000):
    step(0.002)
    if pathlib.Path("enough").exists():
        break
"""
)

#: Takes 60 s at best.
WAITING = (
    SPIN
    + """
import pathlib, punctual, time
for i in punctual.track(range(600), total_steps=600):
    step(0.005)
    time.sleep(0.095)
    if pathlib.Path("enough").exists():
        break
"""
)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    (tmp_path / "enough").touch()
    made.close()


def test_it_is_forecast_by_its_own_time_wherever_one_asks(terminal: Terminal) -> None:
    beside = terminal.start("run", "--name", "computes", "--deadline", "10m", "--", *terminal.script(COMPUTING, "a.py"))
    wait_until(terminal.jobs)
    run = terminal.start("run", "--name", "waits", "--deadline", "30s", "--", *terminal.script(WAITING, "b.py"))

    def told() -> dict[str, Any]:
        return next((job for job in terminal.jobs() if job["job"] == "waits"), {})

    wait_until(lambda: (told().get("forecast_s") or 0.0) > 50.0)  # of a deadline of 30 s, long before that
    job = told()
    assert "promised_until_wall" not in job
    quote = terminal.tell("quote", "waits", "--json")
    (answer,) = [json.loads(line) for line in quote.stdout.splitlines()]
    assert answer["can_be_promised"] is not True
    (terminal.folder / "enough").touch()
    for process in (beside, run):
        process.communicate(timeout=100)
