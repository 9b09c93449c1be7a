"""What a program does after its last step is told when it has run to its end."""

import subprocess
import sys
from pathlib import Path

import pytest

from punctual.channel import BLOCK_VARIABLE, ProgramState, SharedBlock

AFTER = """
import sys, time, punctual
for _ in punctual.track(range(3)):
    pass
before_ns = time.monotonic_ns()
{after}
print(before_ns, time.monotonic_ns())
"""


def run(page: Path, after: str) -> tuple[int, int]:
    """Run a program that does `after` at its end; instants before and after that, nanoseconds."""
    done = subprocess.run(
        [sys.executable, "-c", AFTER.format(after=after)], env={BLOCK_VARIABLE: str(page)}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    before, after_ns = map(int, done.stdout.split())
    return before, after_ns


@pytest.mark.parametrize("after", ["time.sleep(0.2)", "sum(range(100_000))"])
def test_a_program_has_landed_when_it_has_run_to_its_end(after: str, tmp_path: Path) -> None:
    page = SharedBlock.create(str(tmp_path / "page"))
    _, ended_ns = run(tmp_path / "page", after)
    assert page.progress().stamp_ns > ended_ns
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.LANDED, 3)
    page.close()


def test_a_child_that_ends_says_nothing_of_its_parent(tmp_path: Path) -> None:
    page = SharedBlock.create(str(tmp_path / "page"))
    child = "import os\nif os.fork() == 0:\n    sys.exit()\nos.wait()\nstamp_ns = time.monotonic_ns()\ntime.sleep(0.2)"
    before_ns, _ = run(tmp_path / "page", child)
    assert page.progress().stamp_ns > before_ns
    page.close()


def test_a_training_that_is_not_done_is_left_as_it_is(tmp_path: Path) -> None:
    page = SharedBlock.create(str(tmp_path / "page"))
    program = "import punctual\nfor i in punctual.track(range(3)):\n    if i:\n        raise SystemExit"
    subprocess.run([sys.executable, "-c", program], env={BLOCK_VARIABLE: str(tmp_path / "page")}, check=False)
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.TRAINING, 2)
    page.close()
