"""The daemon's process: below `punctual.api.watcher`, or the foreground of `punctual up`."""

import json
import os
import signal
import socket
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import cache
from pathlib import Path
from threading import Lock
from urllib.parse import quote

from punctual.core.errors import InvalidSpec
from punctual.daemon.daemon import Daemon
from punctual.daemon.daemon_request import DaemonRequest, Ready
from punctual.daemon.detached import caught, log_bounded
from punctual.daemon.logs import log_to_stderr, write_error
from punctual.daemon.paths import log_file, owner_token_file, service_root
from punctual.daemon.restore import AllEndedError
from punctual.daemon.sweeping import sweep
from punctual.executors.local.cgroup_files import command_group
from punctual.executors.local.orphans import end_orphans
from punctual.journal.errors import JournalTaken

#: Exit statuses, of which `punctual.api.watcher` has two: another process has its place; it cannot be begun; it has failed.
EXIT_REPLACED, EXIT_REFUSED, EXIT_FAILED = 1, 2, os.EX_SOFTWARE


def serve_daemon(request: DaemonRequest, tell: Callable[[Ready, Daemon], None]) -> tuple[int, Daemon]:
    """Be the daemon until it is asked to leave or, unless it stays, until its last job has ended.

    `tell`: called once it steers and listens, or has found another daemon.

    Returns
    -------
    int
        The exit status.
    Daemon
        The daemon, which has ended.

    Raises `InvalidSpec`: no host could be begun.
    """
    daemon = Daemon(request)
    try:
        with log_bounded(log_file()), caught(daemon.leave_on), daemon:
            daemon.begin()
            if daemon.other is not None:
                tell(Ready(run=daemon.other.name, pid=daemon.other.record()["pid"] or 0), daemon)
                return 0, daemon
            run = daemon.host.run_folder
            with _notices(daemon), _http(request, daemon) as addresses:
                ready = Ready(
                    run=run.name,
                    pid=os.getpid(),
                    addresses=(str(run.socket), *addresses),
                    taken_over=daemon.taken_over,
                    left_alone=daemon.left_alone,
                )
                tell(ready, daemon)
                _notify_systemd("READY=1")
                _steer(daemon)
                _notify_systemd("STOPPING=1")
                if not daemon.has_ended:  # it was asked to leave
                    daemon.left = [status for status in daemon.host.jobs() if not status.ended]
    except JournalTaken:
        if daemon.has_ended:  # it has not begun: who has started it is to know why
            raise
        return EXIT_REPLACED, daemon
    end_orphans()  # of a daemon before it: supervisors that were killed while this one began have left groups
    return 0, daemon


def _steer(daemon: Daemon) -> None:
    try:
        daemon.run()
    except JournalTaken:
        raise
    except Exception as error:  # noqa: BLE001 -- a bug of ours, or a full disk: neither may end a training
        # Crash at once: the supervisors then lift the quotas, and the watcher starts the next daemon.
        if isinstance(error, OSError | sqlite3.Error):
            failure = f"Punctual cannot write what it keeps of its jobs ({error}): make room on the disk"
        else:
            sys.excepthook(*sys.exc_info())
            failure = f"Punctual itself has failed ({error})"
        write_error(f"error: {failure}; all jobs go on at full speed until the next daemon steers them")
        os._exit(EXIT_FAILED)


def _notices(daemon: Daemon) -> AbstractContextManager[object]:
    """Tell of the daemon's jobs where its environment says so; what cannot be done is said, and costs no job its daemon."""
    if not any(name.startswith("PUNCTUAL_NOTIFY_") for name in os.environ):
        return nullcontext()
    from punctual.api.notifier import Notifier, NotifyOptions

    options = NotifyOptions.from_environment()
    try:
        options.check()
    except InvalidSpec as error:
        write_error(f"punctual: no notices: {error.must}: got {error.got}. {error.remedy}")
        return nullcontext()
    return Notifier(options, daemon.host)


@contextmanager
def _http(request: DaemonRequest, daemon: Daemon) -> Iterator[Sequence[str]]:
    """Yield the addresses of the daemon's HTTP: it is open from the start where that is wished, or else once it is asked for."""
    lock, opened = Lock(), ExitStack()

    @cache
    def opened_addresses() -> Sequence[str]:
        from punctual.api.http_options import HttpOptions  # its libraries take half a second to load

        addresses = opened.enter_context(HttpOptions(**request.http or {}).served(daemon.host))
        # Seconds for which a daemon that was asked over HTTP waits, after its last job's end, for clients to see that.
        daemon.lingers_s = 10.0
        return addresses

    def page(job: str | None) -> str:
        with lock:
            addresses = opened_addresses()
        return page_link(addresses, owner_token_file(service_root()), job)

    try:
        addresses = () if request.http is None else opened_addresses()
        daemon.host.open_page = page
        yield addresses
    finally:
        with lock:
            opened.close()


def page_link(addresses: Sequence[str], token_file: Path, job: str | None = None) -> str:
    """Return the page's address with the owner's token, as the page takes it out of its address again.

    Raises `InvalidSpec`: the daemon listens on its socket only; or the file of the token is missing.
    """
    url = next((address for address in addresses if address.startswith(("http:", "https:"))), None)
    if url is None:
        remedy = (
            "Start it anew with `punctual up --listen 127.0.0.1:4747`; the page needs `pip install fastapi uvicorn`."
        )
        raise InvalidSpec(
            "the daemon must listen on an address that a browser reaches", "its socket only", "`punctual page`", remedy
        )
    try:
        token = token_file.read_text(encoding="ascii").strip()
    except (OSError, ValueError) as error:
        from punctual.api.tokens import OWNER

        remedy = (
            f"Make one: `punctual token revoke {OWNER}` if it is listed, then write what `punctual token create {OWNER} "
            "--role operator` prints into that file."
        )
        raise InvalidSpec("the owner's token must be there", str(error), str(token_file), remedy) from error
    shown = "" if job is None else f"&job={quote(job, safe='')}"
    return f"{url}/#token={quote(token, safe='')}{shown}"


def _notify_systemd(state: str) -> None:
    """Tell systemd the daemon's state, if systemd has started this process."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
        connection.sendto(state.encode(), address.replace("@", "\0", 1) if address.startswith("@") else address)


# In the background.


def main(text: str, begun: Callable[[str], None]) -> int:
    """Run the daemon that the JSON text asks for, and return its exit status.

    `begun`: called with the name of its run once it steers that.
    """
    request = DaemonRequest.from_json(text)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)

    def tell(ready: Ready, daemon: Daemon) -> None:
        if daemon.other is None:
            begun(ready.run)
        answer(asdict(ready))

    log_to_stderr("punctual: %(message)s")
    answer = _answerer(request.ready_fd)
    with command_group():
        try:
            sweep()
            status, daemon = serve_daemon(request, tell)
        except InvalidSpec as error:
            answer({"refused": error.as_fields()})
            if isinstance(error, AllEndedError):
                return 0
            write_error(f"punctual: no daemon: {error}")
            return EXIT_REFUSED
        if daemon.received is not None or request.stays:
            n_left = len(daemon.left)
            write_error(f"punctual: the daemon has ended; {n_left} job{'s go' if n_left != 1 else ' goes'} on")
        return status


def _answerer(ready_fd: int | None) -> Callable[[object], None]:
    """Return a function that answers the process which has started this one; only its first call has an effect."""
    if ready_fd is None:
        return lambda _: None
    os.set_inheritable(ready_fd, False)
    ready = os.fdopen(ready_fd, "w", encoding="utf-8")

    def answer(told: object) -> None:
        if not ready.closed:
            with suppress(OSError), ready:  # nobody waits for it any more
                ready.write(json.dumps(told) + "\n")

    return answer
