"""Processes that outlive the one that starts them."""

import subprocess
from collections.abc import Mapping, Sequence
from typing import IO


def start_detached(
    command: Sequence[str], output: IO[bytes], environment: Mapping[str, str]
) -> "subprocess.Popen[bytes]":
    """Start `command` in a session of its own; what it writes goes to `output`, and it reads nothing.

    It runs in no folder that may be removed, or whose files could take the place of a module.
    """
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd="/",
        env=environment,
        start_new_session=True,
    )
