"""Users' errors on a terminal: four parts, one to a line."""

import errno
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from punctual.cli._streams import write_error
from punctual.cli._words import option_name
from punctual.core.errors import InvalidSpec
from punctual.core.failures import cause_of, short_of
from punctual.daemon.paths import state_root
from punctual.executors.local.output import discard

#: Exit status after Ctrl-C, as shells have it.
EXIT_INTERRUPTED = 128 + signal.SIGINT
#: Exit status after an error of the user.
EXIT_USER_ERROR = 2

_INDENT = " " * len("  to do: ")
#: Errors of writing to an open file: they name no file.
_OF_WRITING = {errno.EPIPE, errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO}


def tell_user(error: InvalidSpec) -> None:
    """Write the four parts of `error`, and of the mistakes found with it, to standard error."""
    for each in error.all():
        write_error(*four_parts(each))


def four_parts(error: InvalidSpec) -> list[str]:
    """Return four lines: what must hold, what was got, which object, what to do."""
    parts = {"error: ": error.must, "  got:   ": error.got, "  for:   ": _where(error), "  to do: ": error.remedy}
    # Indented: what was got cannot look like a line of ours.
    return [line for head, part in parts.items() for line in f"{head}{part}".replace("\n", f"\n{_INDENT}").split("\n")]


def _where(error: InvalidSpec) -> str:
    """Return the object, and its option on the command line, unless the text names that already."""
    option = option_name(error.option or "")
    if error.option in {None, "program"} or option in f"{error.must} {error.where}":
        return error.where
    return f"{error.where}, `{option}`"


@contextmanager
def refused_if_failing(must: str, where: str, remedy: str) -> Iterator[None]:
    """Turn an error of the system in the block into a user's error, which says what it was."""
    try:
        yield
    except OSError as error:
        raise InvalidSpec(must, error.strerror or str(error), where, remedy) from error


def check_can_write(path: Path, where: str, what: str, kind: str, suffixes: Sequence[str]) -> None:
    """Raise `InvalidSpec` for a file that could not be written at the end, or whose name has none of `suffixes`.

    `what`, `kind`: what the file is, and what it must be, in the error's words.
    """
    folder = path.absolute().parent
    if path.suffix not in suffixes:
        remedy = f"Give a name ending in {' or '.join(suffixes)}."
        raise InvalidSpec(f"{what} must be {kind}", f"a name ending in '{path.suffix}'", where, remedy)
    if not folder.is_dir():
        raise InvalidSpec(f"the folder of {what} must exist", f"'{path.parent}'", where, "Make the folder first.")
    if path.is_dir() or not os.access(path if path.exists() else folder, os.W_OK):
        got = f"'{path}', which may not"
        raise InvalidSpec(f"{what} must be a file that may be written", got, where, "Give another name.")


def exit_code_of(error: Exception) -> int:
    """Report a shortage, or an unusable file, folder or output, to the user; return the exit status.

    Raises `error` if it is about something else.
    """
    if what := short_of(error):
        must = "there must be enough open files, processes and memory for a command"
        remedy = "Try again once other programs of yours have ended, or raise the limit (`ulimit -a`)."
        tell_user(InvalidSpec(must, f"none left: {cause_of(error)}", what, remedy))
        return EXIT_USER_ERROR
    if isinstance(error, sqlite3.OperationalError) and error.sqlite_errorcode == sqlite3.SQLITE_FULL:
        error = OSError(errno.ENOSPC, f"{error}", str(state_root()))
    if not isinstance(error, OSError):
        raise error
    is_of_writing = error.filename is None and error.errno in _OF_WRITING
    if error.filename is None and not is_of_writing:
        raise error
    if is_of_writing:
        discard(1)  # what is left of the output would fail once more when the process ends
    if error.errno == errno.EPIPE:
        write_error()  # what is left there too, where it is standard error that nobody reads
        # The reader of the output is gone; the status is as Typer has it.
        return 1
    tell_user(
        InvalidSpec(
            "what a command reads and writes must be there, allowed, and have room",
            error.strerror or str(error),
            "standard output, or a file" if is_of_writing else f"'{error.filename}'",
            "Check that it exists, that you may use it, and that its disk is not full; or name another.",
        )
    )
    return EXIT_USER_ERROR
