"""Why something failed, by the exception: what a machine is short of for a moment comes back when something else ends."""

import errno


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
