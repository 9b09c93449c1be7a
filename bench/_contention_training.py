"""A training that is killed once, half-way: ``MARK APP ARGUMENT...``, with ``--checkpoint-dir`` among the arguments.

As if the kernel had ended it for want of memory: SIGKILL, a little after the checkpoint of the second epoch. The file
MARK tells later attempts that it has happened.
"""

import os
import runpy
import signal
import sys
import threading
import time
from pathlib import Path

from _common import EXAMPLES

#: Checkpoints that are made before, and CPU seconds after the last of them.
_N_CHECKPOINTS, _AFTER_CORE_S = 2, 0.5
_POLL_INTERVAL_S = 0.02


def main(mark: Path, app: str, *arguments: str) -> None:
    folder = Path(arguments[arguments.index("--checkpoint-dir") + 1])
    if not mark.exists():
        threading.Thread(target=_die, args=(mark, folder / "checkpoint.pt"), daemon=True).start()
    sys.argv = [app, *arguments]
    runpy.run_path(str(EXAMPLES / f"{app}.py"), run_name="__main__")


def _die(mark: Path, checkpoint: Path) -> None:
    seen: set[int] = set()
    while len(seen) < _N_CHECKPOINTS:
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        time.sleep(_POLL_INTERVAL_S)
    until = time.process_time() + _AFTER_CORE_S
    while time.process_time() < until:
        time.sleep(_POLL_INTERVAL_S)
    mark.touch()
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
