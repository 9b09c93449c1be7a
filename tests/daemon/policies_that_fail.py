"""Policies for a worker process that does what it should not; made importable by the name of this file."""

import os
import signal
import time
from pathlib import Path

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan


class Good:
    def allocate(self, snapshot: Snapshot) -> Plan:
        grants = {view.id: {snapshot.nodes[0].id: view.demand} for view in snapshot.jobs}
        return Plan(revision=snapshot.revision, grants=grants)


class Failing(Good):
    """Fails as `how` says while the file `where` is there; writes the process id beside it."""

    def __init__(self, how: str, where: str) -> None:
        self._how, self._where = how, Path(where)
        self._where.with_suffix(".pid").write_text(str(os.getpid()))

    def allocate(self, snapshot: Snapshot) -> Plan:
        if self._where.exists():
            return FAILURES[self._how]()  # type: ignore[return-value]
        return super().allocate(snapshot)


def hang() -> None:
    while True:
        time.sleep(1.0)


def raise_error() -> None:
    raise ZeroDivisionError("no shares")


FAILURES = {
    "hang": hang,
    "raise": raise_error,
    "leave": lambda: os._exit(3),
    "crash": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "text": lambda: "a plan",
    "none": lambda: None,
    "stale": lambda: Plan(revision=-7, grants={}),
    "carry": lambda: Plan(revision=1, grants={}, carry=object()),
    "grants": lambda: Plan(revision=1, grants={"job": {"node": "much"}}),  # type: ignore[dict-item]
}
