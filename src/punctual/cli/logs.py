"""`punctual logs`: the output of a job."""

import json
import sys
import time
from collections import deque
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Annotated

import typer

from punctual.cli._options import AnyJob
from punctual.core.errors import InvalidSpec
from punctual.daemon.log_snapshot import LogSnapshot, n_bytes_before, skipping
from punctual.daemon.runs import KnownJob, job_to_tell_of, jobs_of
from punctual.executors.local.output import LogTail, ProcessSettings, Receive, check_reader, logs_of, write_all
from punctual.request.deadlines import Now, past_at


def logs(
    job: AnyJob = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the job ends.")] = False,
    lines: Annotated[
        int | None, typer.Option("--lines", "-n", metavar="N", min=0, help="Only the last N lines.")
    ] = None,
    since: Annotated[
        str | None, typer.Option("--since", metavar="TIME", help="Only lines from then on: `10m` ago, or `15:42`.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per line of output.")] = False,
) -> None:
    """Print what a job has written. Its standard error goes to standard error, where that was kept apart."""
    target = job_to_tell_of(job)
    log = target.run.log(target.job)
    paths = logs_of(log, ProcessSettings(is_split=log.with_name(f"{log.name}.err").exists()))
    if not follow and not any(path.exists() for path in paths):
        got, remedy = (
            "nothing so far",
            "Try again when it runs (`punctual ps`), or wait for what it writes (`--follow`).",
        )
        if target.steering == "ended":
            got, remedy = "nothing, and it has ended", f"See what became of it: `punctual show {target.title}`."
        raise InvalidSpec("a job must have written something", got, f"job '{target.title}'", remedy)
    now = Now.read()
    since_s = None if since is None else now.wall.timestamp() + past_at(since, now) - now.at
    written = [_JsonLog(target, fd) for fd, _ in enumerate(paths, start=1)]
    tails = []
    for fd, path in enumerate(paths, start=1):
        # Not by Python's file: a thread that waits for a reader would keep its lock, and the command from ending.
        receive = written[fd - 1] if as_json else partial(write_all, fd)
        n_skipped = 0 if lines is None else _bytes_before_last(path, lines)
        skipped = skipping(receive, n_skipped if since_s is None else max(n_skipped, n_bytes_before(path, since_s)))
        if follow:
            tails.append(_Followed(path, skipped))
        else:
            for piece in _pieces(path):
                skipped(piece)
    while (
        follow
        and not any(tail.error for tail in tails)
        and any(known.job == target.job and known.steering != "ended" for known in jobs_of(target.run))
    ):
        check_reader(1)
        time.sleep(0.2)
    for tail in tails:
        tail.finish()
    for output in written:
        output.finish()


def _pieces(path: Path) -> Iterator[bytes]:
    """Yield the stored log, including its part that was rotated away."""
    kept = LogSnapshot(path)
    return kept.pieces(0, kept.n_bytes)


def _bytes_before_last(path: Path, n_lines: int) -> int:
    """Number of bytes of a log before its last lines; the last one may be incomplete."""
    starts: deque[int] = deque([0], maxlen=min(n_lines, sys.maxsize - 2) + 2)
    position = 0
    for piece in _pieces(path):
        end = piece.find(b"\n")
        while end >= 0:
            starts.append(position + end + 1)
            end = piece.find(b"\n", end + 1)
        position += len(piece)
    if starts[-1] == position:  # no line has begun there yet
        starts.pop()
    return position if n_lines == 0 else next(iter(list(starts)[-n_lines:]), 0)


class _Followed:
    """Passes on a growing log from another thread, until that fails with `error`."""

    def __init__(self, path: Path, receive: Receive) -> None:
        self.error: OSError | None = None
        self._receive = receive
        self._tail = LogTail(path, self._pass_on)

    def _pass_on(self, output: bytes) -> None:
        try:
            if self.error is None:
                self._receive(output)
        except OSError as error:  # it is the command's to end with it
            self.error = error

    def finish(self) -> None:
        """Pass on the rest; raises the error with which that has failed."""
        # Seconds that the last output may take.
        self._tail.finish(5.0)
        if self.error is not None:
            raise self.error


class _JsonLog:
    """Writes an object for each whole line; an incomplete last one is written at the end."""

    #: Two streams are followed in a thread each, and an object is not to lie within another one.
    _writing = Lock()

    def __init__(self, target: KnownJob, fd: int) -> None:
        self._facts = {"job": target.title, "stream": "stdout" if fd == 1 else "stderr"}
        self._rest = bytearray()

    def __call__(self, output: bytes) -> None:
        end, *lines = output.split(b"\n")
        self._rest += end  # in place: a line may have many pieces
        for line in lines:
            self._write(self._rest)
            self._rest = bytearray(line)

    def finish(self) -> None:
        """Write the last, incomplete line."""
        if self._rest:
            self._write(self._rest)

    def _write(self, line: bytearray) -> None:
        told = json.dumps({**self._facts, "text": line.decode("utf-8", "replace")}) + "\n"
        with self._writing:
            write_all(1, told.encode())
