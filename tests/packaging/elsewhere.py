"""Makes this process one of a system that is not Linux, as far as Python can tell: run before Punctual is imported."""

import fcntl
import os
import select
import signal
import socket
import sys
import time
from typing import Any

#: What Python offers on Linux only, of what a program like this one could use.
_LINUX_ONLY = {
    fcntl: ("F_ADD_SEALS", "F_GET_SEALS", "F_SEAL", "F_SETPIPE_SZ", "F_NOTIFY", "DN_"),
    os: (
        "MFD_", "copy_file_range", "eventfd", "getrandom", "memfd_create", "pidfd_open", "posix_fadvise", "posix_fallocate",
        "prlimit", "sched_get", "sched_set", "setns", "setresuid", "splice", "unshare",
    ),
    select: ("EPOLL", "epoll"),
    signal: ("pidfd_send_signal", "sigtimedwait", "sigwaitinfo"),
    socket: ("AF_NETLINK", "AF_PACKET", "AF_VSOCK", "SO_PEERCRED", "SO_PASSCRED"),
    time: ("CLOCK_BOOTTIME", "CLOCK_TAI"),
}  # fmt: skip


def pretend(platform: str = "darwin") -> None:
    """Hide what only Linux has, and `/proc`."""
    for module, prefixes in _LINUX_ONLY.items():
        for name in [name for name in vars(module) if name.startswith(prefixes)]:
            delattr(module, name)
    sys.platform = platform
    real_open, real_readlink, real_exists = os.open, os.readlink, os.path.exists

    def is_hidden(path: object) -> bool:
        return isinstance(path, str | os.PathLike) and os.fspath(path).startswith("/proc")

    def opened(path: object, *rest: object, **options: object) -> int:
        if is_hidden(path):
            raise FileNotFoundError(path)
        return real_open(path, *rest, **options)  # type: ignore[arg-type]

    def link(path: str, **options: Any) -> str:
        if is_hidden(path):
            raise FileNotFoundError(path)
        return real_readlink(path, **options)

    os.open, os.readlink = opened, link  # type: ignore[assignment]
    os.path.exists = lambda path: not is_hidden(path) and real_exists(path)
