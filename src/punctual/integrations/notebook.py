"""IPython and Jupyter: ``%load_ext punctual``, and then ``%%deadline 10m`` above a cell."""

import os
import shlex
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from IPython.core.error import UsageError
from IPython.display import IFrame, display


def load(shell: Any) -> None:
    """Give `shell`, an `IPython.InteractiveShell`, the cell magic."""
    shell.register_magic_function(deadline, "cell", "deadline")


def deadline(line: str, cell: str) -> None:
    """Run the cell as a program of its own under ``punctual run``: ``%%deadline 10m --cores 2``.

    What the program and Punctual write is shown as it comes. The program has none of the notebook's variables, and leaves
    none: it keeps what it makes in files. An interrupt of the kernel asks it to stop, after a checkpoint if it can make one.
    A page of the run (``--report run.html``) is shown below.

    Raises
    ------
    UsageError
        No deadline is given, or the job failed, was stopped or could not be run.
    """
    words = shlex.split(line)
    if not words or words[0].startswith("-"):
        raise UsageError(
            "%%deadline needs a deadline, and after it any options of `punctual run`: %%deadline 10m --cores 2"
        )
    begun_s = time.time()
    with TemporaryDirectory(prefix="punctual-") as folder:
        script = Path(folder) / "cell.py"
        script.write_text(cell, encoding="utf-8")
        run = [sys.executable, "-m", "punctual", "run", "--deadline", *words, "--", sys.executable, str(script)]
        exit_code = _shown(run)
    for page in [page for page in _pages_of(words) if page.exists() and page.stat().st_mtime >= begun_s - 1.0]:
        display(IFrame(os.path.relpath(page), width="100%", height=720))  # its server serves no absolute paths
    if exit_code:
        raise UsageError(f"the job did not come to its end: `punctual run` left with exit code {exit_code}")


def _pages_of(words: list[str]) -> list[Path]:
    """Return the files to which the options have the run's page written."""
    named = [word.removeprefix("--report=") for word in words if word.startswith("--report=")]
    named += [word for option, word in pairwise(words) if option == "--report"]
    return [Path(name) for name in named if name.endswith(".html")]


def _shown(command: list[str]) -> int:
    """Run `command`, show its output, and return its exit code."""
    # In a session of its own: an interrupt reaches it once, from here, and not also from a terminal.
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True
    ) as process:
        assert process.stdout is not None
        while True:
            try:
                for text in process.stdout:
                    sys.stdout.write(text)
                    sys.stdout.flush()
                return process.wait()
            except KeyboardInterrupt:
                process.send_signal(signal.SIGINT)
