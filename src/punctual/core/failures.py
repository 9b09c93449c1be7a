"""Classify failures by their exception: a temporary shortage of the machine, another foreseen error, or a fault."""

import errno


def short_of(error: BaseException) -> str:
    """Return the name of the resource whose shortage raised `error`; empty if it had another cause."""
    if isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE):
        return "a descriptor"
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "memory"
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:  # no process could be forked
        return "a process"
    if type(error) is RuntimeError and "new thread" in str(error):  # it has no type of its own
        return "a process"
    return ""


def start_short_of(error: BaseException) -> str:
    """Return the name of the resource whose shortage keeps a job from starting: of `short_of`, or room on the disk."""
    is_full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return "room on the disk" if is_full else short_of(error)


def cause_of(error: BaseException) -> str:
    """Return the cause of a failure as text; names the class of an error that is not Punctual's own."""
    if isinstance(error, OSError) and error.strerror:
        return error.strerror if error.filename is None else f"'{error.filename}': {error.strerror}"
    return f"{error}" if _is_own(error) else f"{type(error).__name__}: {error}"


def is_foreseen(error: BaseException) -> bool:
    """Whether `error` is one that the environment can cause; any other is a fault of a program, Punctual say."""
    return isinstance(error, OSError) or _is_own(error) or bool(short_of(error))


def _is_own(error: BaseException) -> bool:
    return type(error).__module__.startswith("punctual.")
