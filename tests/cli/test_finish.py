"""Trainings that end as users' trainings do: early, by a break, or cut out of an endless stream."""

import pytest
from tests.cli.programs import SPIN, Terminal, objects

#: Stops when it has not improved for five steps, with a loader that has no end.
EARLY = (
    SPIN
    + """
import itertools, punctual
run = punctual.track(itertools.count(), total_steps=100_000)
for i in run:
    step(0.001)
    if i == 40:
        run.finish()
        break
print("left after", run.step + 1, flush=True)
"""
)

#: Its loader never ends; the training does.
ENDLESS = (
    SPIN
    + """
import itertools, punctual
for i in punctual.track(itertools.count(), total_steps=30):
    step(0.001)
print("left after", i + 1, flush=True)
"""
)


@pytest.mark.parametrize(("program", "n_steps"), [(EARLY, 41), (ENDLESS, 30)])
def test_it_lands_with_the_steps_that_it_did(terminal: Terminal, program: str, n_steps: int) -> None:
    done = terminal.punctual("run", "--json", "--", *terminal.script(program))
    assert done.returncode == 0, done.stderr
    assert f"left after {n_steps}" in done.stderr
    report = objects(done.stdout)[-1]
    assert (report["steps"], report["status"], report["faults"]) == (n_steps, "finished", [])
    assert report["landed_s"] is not None
