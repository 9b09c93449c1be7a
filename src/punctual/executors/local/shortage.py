"""What this process or its user has too little of for a moment: who needs it waits, until something else ends."""

import errno
import os
import resource
from contextlib import suppress
from functools import cache

#: The share of the open files that may be had which jobs leave to everything else: the journal, those who ask, their answers.
_LEFT_FRAC = 0.25
#: Files that the start of one job opens.
_N_START = 16


def short_of(error: BaseException) -> str:
    """What there was too little of, if that is why `error` was raised; empty: it was raised for another reason."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "a descriptor"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "memory"
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:  # no process could be forked
        return "a process"
    if type(error) is RuntimeError and "new thread" in str(error):  # it has no type of its own
        return "a process"
    return ""


def cause_of(error: BaseException) -> str:
    """Why something failed, for people; the kind of an error that is not one of Punctual's own is named."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"'{error.filename}': {error.strerror}"
    return f"{error}" if _is_own(error) else f"{type(error).__name__}: {error}"


def is_foreseen(error: BaseException) -> bool:
    """Whether `error` is one that the world is known to bring about; any other is a fault of a program, ours say."""
    return isinstance(error, OSError) or _is_own(error) or bool(short_of(error))


def _is_own(error: BaseException) -> bool:
    return type(error).__module__.startswith("punctual.")


@cache
def raise_files_limit() -> int:
    """Have the soft limit of open files be the hard one; the soft limit that this process was started with.

    Each job that runs takes five files. Jobs get the former limit: some programs use `select`, or go through all numbers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the system's own limit was lowered below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft


def check_files_left() -> None:
    """Raise `OSError` where so few files can still be opened that one more job would take them from everything else."""
    n_most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    n_open = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- as many names as there are files
    if n_most != resource.RLIM_INFINITY and n_open + _N_START > (1.0 - _LEFT_FRAC) * n_most:
        text = f"{n_open} of {n_most} open files are in use, and the rest is for those who ask (see `ulimit -Hn`)"
        raise OSError(errno.EMFILE, text)
