"""Children of a process that has the modules of Punctual loaded: copies of it, in place of Python started anew.

Not all can be copies. Ray's libraries do not go on behind a fork, and neither does SQLite with a file that was open before.
"""

import logging
import os
import runpy
import signal
import subprocess
import sys
import warnings
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, AnyStr, NoReturn

#: What precedes a module that a process of Punctual is started with.
_PYTHON = [sys.executable, "-P", "-m"]
#: Modules that a copy can run.
_COPIED = {"punctual.api.watcher", "punctual.daemon.policy_worker", "punctual.elastic_training.forkserver"}
#: Where modules are looked for, without the folder of a script.
_PATH = sys.path[1:]


class ForkedChild(subprocess.Popen[AnyStr]):
    """In place of `subprocess.Popen`: some modules of Punctual are run by a copy of this process, anything else is executed."""

    def _execute_child(self, args: Sequence[str], *rest: Any) -> None:
        """Called by the constructor, with the ends of pipes."""
        is_daemon = args[3:4] == ["punctual.api.watcher"]
        if list(args[:3]) != _PYTHON or args[3] not in _COPIED or (is_daemon and _has_journal()):
            super()._execute_child(args, *rest)  # type: ignore[misc]
            return
        pass_fds, cwd, env, pipes, has_session = *rest[3:6], rest[9:15], rest[20]
        self.pid = os.fork()
        if self.pid == 0:
            if has_session:
                os.setsid()
            _be(args[3:], (pipes[0], pipes[3], pipes[5]), pass_fds, cwd, os.environ if env is None else env)
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]
        self._child_created = True


def _has_journal() -> bool:
    """Whether this process has a file of SQLite open: it follows a job."""
    return any(fd.resolve().suffix == ".db" for fd in Path("/proc/self/fd").iterdir())


def _be(
    words: Sequence[str], streams: Sequence[int], pass_fds: Collection[int], folder: Any, environment: Mapping[str, str]
) -> NoReturn:
    """Be Python as it is started with ``-P -m`` and `words`."""
    code = 1
    try:
        for own, fd in enumerate(streams):
            if fd != -1:
                os.dup2(fd, own)
        kept = sorted({0, 1, 2, *pass_fds})
        for before, after in zip(kept, [*kept[1:], os.sysconf("SC_OPEN_MAX")], strict=True):
            os.closerange(before + 1, after)
        signal.set_wakeup_fd(-1)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):
                signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
        if folder is not None:
            os.chdir(folder)
        environment = dict(environment)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:] = _PATH
        sys.argv[1:] = words[1:]
        # What the other process has not written yet stays its own.
        sys.stdout, sys.stderr = (os.fdopen(fd, "w", buffering=1, closefd=False) for fd in (1, 2))
        logging.root.handlers.clear()
        warnings.filterwarnings("ignore", ".* found in sys.modules", RuntimeWarning)
        runpy.run_module(words[0], run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as left:
        code = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException:  # noqa: BLE001 -- as Python shows it at the end of a process
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)
