"""Numbers that a script draws without a seed, in processes as they are started on several nodes."""

import os
import subprocess
import sys
from pathlib import Path

from punctual.channel import BLOCK_VARIABLE, JOB_VARIABLE, SharedBlock, WorkerTarget

_SCRIPT = Path(__file__).parent / "drawing_script.py"


def _drawn(folder: Path, job: str) -> str:
    path = folder / "page"
    page = SharedBlock.create(str(path))
    page.send_worker_target(WorkerTarget(1, 1, 0))
    environment = {**os.environ, BLOCK_VARIABLE: str(path), JOB_VARIABLE: job}
    done = subprocess.run([sys.executable, str(_SCRIPT)], env=environment, capture_output=True, text=True, check=False)
    page.close()
    path.unlink()
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_they_are_the_same_wherever_a_job_is_started_and_others_in_another_job(tmp_path: Path) -> None:
    drawn = _drawn(tmp_path, "one")
    assert len(drawn.split()) == 10
    assert "None" not in drawn
    assert _drawn(tmp_path, "one") == drawn
    assert _drawn(tmp_path, "other").split()[:3] != drawn.split()[:3]
