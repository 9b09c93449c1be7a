"""Run work on all processors, in processes that end with this one.

Workers are started anew (`spawn`), so that nothing of this process's threads or locks is copied. Each holds one end
of a pipe: when the other end goes, because the study is over, interrupted, or this process was killed, they leave at
once. Finished work is on disk by then, and a second start repeats the rest.
"""

import multiprocessing
import os
import signal
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any, TypeVar

from punctual.core.errors import InvalidSpec

A = TypeVar("A")
R = TypeVar("R")

#: Gets the number of a piece of work and the share of it that is done.
Tell = Callable[[int, float], None]
#: Does a piece of work.
Work = Callable[[A, Callable[[float], None]], R]


#: Queue for a worker's progress reports; None outside workers.
_reports: Any = None


def in_this_process(work: "Work[A, R]", pieces: Sequence[A], tell: Tell) -> Generator[tuple[int, R], None, None]:
    """Each piece's number and what became of it, one after the other."""
    for i_piece, piece in enumerate(pieces):
        yield i_piece, work(piece, partial(tell, i_piece))


def in_processes(
    work: "Work[A, R]", pieces: Sequence[A], tell: Tell, n_processes: int
) -> Generator[tuple[int, R], None, None]:
    """Do the pieces in `n_processes` processes, in any order; `work` is a function of a module.

    Raises
    ------
    InvalidSpec
        A process was killed from outside.
    """
    context = multiprocessing.get_context("spawn")
    receiver, sender = context.Pipe(duplex=False)
    reports = context.SimpleQueue()
    pool = ProcessPoolExecutor(
        min(n_processes, len(pieces)), mp_context=context, initializer=_begin, initargs=(receiver, reports)
    )
    try:
        futures = {pool.submit(_do, work, i_piece, piece): i_piece for i_piece, piece in enumerate(pieces)}
        for future in _completed(futures, reports, tell):
            yield futures[future], future.result()
        pool.shutdown()
    except BrokenProcessPool:
        raise InvalidSpec(
            "a run must be let to end", "a process that was killed from outside, perhaps for its memory", "this study",
            "Start again with fewer processes (`--processes 1`); what is finished is not run again.",
        ) from None  # fmt: skip
    finally:
        sender.close()
        pool.shutdown(cancel_futures=True)
        receiver.close()


def _completed(futures: "dict[Future[R], int]", reports: Any, tell: Tell) -> "Iterator[Future[R]]":
    pending = set(futures)
    while pending:
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_COMPLETED)
        while not reports.empty():
            tell(*reports.get())
        yield from done


def _begin(line: Connection, reports: Any) -> None:
    """Prepare a worker process before its first piece of work."""
    global _reports
    _reports = reports
    # A Ctrl-C reaches all processes of a terminal; the first process alone decides how to react.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_leave_with, args=(line,), daemon=True).start()


def _leave_with(line: Connection) -> None:
    line.poll(None)
    os._exit(1)


def _do(work: "Work[A, R]", i_piece: int, piece: A) -> R:
    return work(piece, lambda frac: _reports.put((i_piece, frac)))
