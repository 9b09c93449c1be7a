"""A keeper, seen from the process that started it."""

import json
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from punctual.executors.local import keeper
from punctual.executors.local.keeper import Errand

#: What starts a keeper: nothing of the user's settings or packages, which it does not need and which take time.
_PYTHON = (sys.executable, "-I", "-S", keeper.__file__)


class KeeperLink:
    """Starts a keeper and holds its leash; letting go of it tells the keeper that nobody steers the job any more.

    Parameters
    ----------
    prefix
        What the command line begins with.
    output_fd
        Where the job writes; None: where this process does.
    drain_fd
        Handed to the keeper, see `punctual.executors.local.keeper.Errand`.

    Raises
    ------
    OSError
        The keeper could not be started.
    """

    def __init__(self, prefix: Sequence[str], output_fd: int | None, drain_fd: int | None) -> None:
        self._leash, other_end = socket.socketpair()
        with other_end:
            fds = (other_end.fileno(), *(() if drain_fd is None else (drain_fd,)))
            command = [*prefix, *_PYTHON, str(other_end.fileno())]
            try:
                # A session of its own: what the terminal sends (Ctrl-C, hanging up) is for us alone.
                self._process = subprocess.Popen(
                    command, pass_fds=fds, stdout=output_fd, stderr=output_fd, start_new_session=True
                )
            except OSError:
                self._leash.close()
                raise
        self._lines = self._leash.makefile("r", encoding="utf-8")

    @property
    def pid(self) -> int:
        return self._process.pid

    def send(self, errand: Errand) -> None:
        """Tell the keeper what to do; to be called once."""
        self._leash.sendall(json.dumps(asdict(errand)).encode() + b"\n")

    def read(self) -> dict[str, Any] | None:
        """The keeper's next line; None: it has ended."""
        try:
            words: dict[str, Any] | None = json.loads(self._lines.readline() or "null")
        except (OSError, ValueError):
            return None
        return words

    def terminate(self) -> None:
        """Have the job ended; said again, have it killed."""
        self._process.terminate()

    def kill(self) -> None:
        """End the keeper itself at once, and by that the job."""
        self._process.kill()

    def close(self) -> None:
        """Let go of the leash and wait for the keeper's end, which must be near."""
        self._lines.close()
        self._leash.close()
        self._process.wait()
