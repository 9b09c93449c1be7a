"""Limit of open files of this process: each running job takes some."""

import errno
import os
import resource
from contextlib import suppress
from functools import cache


@cache
def raise_files_limit() -> tuple[int, int]:
    """Raise the soft limit of open files to the hard one; yield both as they were at the start.

    Each job that runs takes five files. Jobs get the former limit: some programs use `select`, or go through all numbers.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(ValueError, OSError):  # the system's own limit was lowered below the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return soft, hard


def check_files_left() -> None:
    """Raise `OSError` if one more job would use up the files that this process can still open."""
    n_most = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    n_open = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- as many names as there are files
    # The start of a job opens 16 files. Jobs leave a quarter to all else: the journal, those who ask, their answers.
    if n_most != resource.RLIM_INFINITY and n_open + 16 > 0.75 * n_most:
        text = f"{n_open} of {n_most} open files are in use, and the rest is for those who ask (see `ulimit -Hn`)"
        raise OSError(errno.EMFILE, text)
