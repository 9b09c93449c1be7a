"""The command line: modules of commands, each imported only when it is used."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType

#: Commands that jobs must not hold up.
_PROMPT = {
    "run", "attach", "up", "daemon", "down", "submit", "ps", "show", "logs", "deadline", "set", "pause", "resume", "policy",
    "stop",
}  # fmt: skip


def main() -> None:
    """Run the command named in `sys.argv`; ends by `SystemExit`."""
    _open_streams()
    # Imported here, so that `import punctual.cli` costs nothing to whoever looks for a constant in it.
    with ExitStack() as group:
        with _leaving_at_once(group):
            from punctual.executors.local.cgroup_files import command_group

            if sys.argv[1:2] and sys.argv[1] in _PROMPT:
                group.enter_context(command_group())
            # Only now: beside jobs that hold all cores, outside of that group the imports take many seconds.
            from punctual.cli._app import prepared

            command = prepared(sys.argv[1:])
        command()


def _open_streams() -> None:
    """Replace closed standard streams, as of `>&-`, by the null device: their numbers would go to the next files."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            null_fd = os.open(os.devnull, os.O_RDWR)
            os.set_inheritable(null_fd, True)
            setattr(sys, name, os.fdopen(null_fd, mode, closefd=False))


@contextmanager
def _leaving_at_once(group: ExitStack) -> Iterator[None]:
    """Let Ctrl-C end the process during imports: an exception would surface anywhere in a library."""

    def leave(number: int, _: FrameType | None) -> None:
        group.close()
        os._exit(128 + number)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # ignored, for a job in the background
        yield
        return
    signal.signal(signal.SIGINT, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
