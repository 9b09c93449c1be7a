"""Start a daemon, and start it again if it is killed: `python -m punctual.api.watcher REQUEST`.

This process only waits, and has loaded next to nothing. The daemon is its child, in a session of its own; both may be
killed, and the jobs go on: a supervisor of one of them, or a command, then starts a daemon.
"""

import json
import os
import signal
import sys
import time
from contextlib import suppress
from typing import Any

#: Seconds before a daemon is started again, doubled each time up to the most.
_PAUSE_S, _PAUSE_S_MAX = 1.0, 60.0
#: Signals that are passed on to the daemon.
_PASSED_ON = (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)


def main(text: str) -> int:
    """Start the daemon that the JSON text asks for; return its exit status once it has ended by itself."""
    # Undo how the command that starts this daemon ignores or blocks signals: other commands' jobs would inherit it.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in signal.valid_signals() - {signal.SIGPIPE, signal.SIGXFSZ}:  # Python ignores these itself
        if number == signal.SIGINT or signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    request: dict[str, Any] = json.loads(text)
    pause_s, n_failures, steered = 0.0, 0, ""
    while True:
        begun_at = time.monotonic()
        status, run = _run(request)
        code = os.waitstatus_to_exitcode(status)
        steered = run or steered
        # A daemon that had been there for so many seconds is started again at once; one that has not begun was not there.
        if run and time.monotonic() - begun_at > 10.0:
            pause_s, n_failures = 0.0, 0
        n_failures += 1
        # Status 1: another process has its place (`EXIT_REPLACED` in `punctual.api.daemon_process`, not loaded here). After
        # 20 failures in a row it is left to others to start a daemon.
        if not steered or code in (0, 1) or n_failures > 20:  # or none has begun yet
            return code if code >= 0 else 128 - code
        time.sleep(pause_s)
        pause_s = min(max(_PAUSE_S, 2.0 * pause_s), _PAUSE_S_MAX)
        request = {**request, "run": steered, "ready_fd": None}


def _run(request: dict[str, Any]) -> tuple[int, str]:
    """Run a daemon to its end; return its status, as `os.waitpid` does, and its run; empty: it had none yet."""
    run_fd, begun_fd = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(run_fd)
        _become_daemon(json.dumps(request), begun_fd)
    os.close(begun_fd)
    for number in _PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    if request["ready_fd"] is not None:
        os.close(request["ready_fd"])  # the daemon has it: its end is to be seen
    with os.fdopen(run_fd, encoding="utf-8") as told:
        run = told.read()
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    for number in _PASSED_ON:  # while no other process can have its number: now they end this one
        signal.signal(number, signal.SIG_DFL)
    return os.waitpid(pid, 0)[1], run


def _become_daemon(text: str, begun_fd: int) -> None:
    try:
        os.setsid()

        from punctual.api.daemon_process import main as daemon

        def begun(run: str) -> None:
            with suppress(BrokenPipeError):  # the watcher was killed: the daemon goes on without it
                os.write(begun_fd, run.encode())
            os.close(begun_fd)

        status = daemon(text, begun)
    except BaseException:  # noqa: BLE001 -- nothing of this process may go on in the child
        sys.excepthook(*sys.exc_info())
        status = os.EX_SOFTWARE
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
