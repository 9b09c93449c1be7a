"""Commands of Slurm, ended after a while."""

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from punctual.core.units import span


class SlurmFailure(Exception):
    """Raised if a command of Slurm has no answer, or refuses; its text is Slurm's."""


def slurm_answer(command: Sequence[str], environment: Mapping[str, str], limit_s: float) -> str:
    """Return what a command of Slurm prints; raises `SlurmFailure` if it fails, is missing, or takes too long.

    The user's own formats of `squeue` do not count.
    """
    plain = {name: value for name, value in environment.items() if not name.startswith("SQUEUE_")}
    try:
        with subprocess.Popen(
            command,
            env=plain,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
            process_group=0,
        ) as process:
            try:
                output, complaint = process.communicate(timeout=limit_s)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)  # with all that a wrapper has started
                raise SlurmFailure(f"{command[0]} has not answered for {span(limit_s)}") from None
    except OSError as error:
        raise SlurmFailure(f"{command[0]} cannot be run: {error.strerror}") from error
    if process.returncode:
        lines = [line.strip() for line in complaint.splitlines() if line.strip()]
        raise SlurmFailure(
            (lines[-1].partition("error: ")[2] or lines[-1] if lines else "")
            or f"{command[0]} has failed with status {process.returncode}"
        )
    return output
