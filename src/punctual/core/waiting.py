"""Reasons why jobs wait for room: every node is leaving, as many jobs as allowed run, or other jobs hold the memory."""

from collections import Counter
from collections.abc import Mapping

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.outbox import Outbox
from punctual.core.recent_messages import Reason
from punctual.core.scheduled_job import ScheduledJob
from punctual.core.units import format_bytes

_CODE = "waits"


def tell_waiting(snapshot: Snapshot, jobs: Mapping[JobId, ScheduledJob], outbox: Outbox, revision: int) -> None:
    """Tell each job once why it waits, after the plan of `revision` has left it waiting; another reason is told, too."""
    waiting = [view for view in snapshot.waiting if jobs[view.id].status == "queued"]
    if not waiting:
        return
    room = _StartRoom(snapshot)
    for view in waiting:
        job = jobs[view.id]
        kind = room.kind(view) if job.submitted_revision < revision else ""
        if kind and kind not in job.told:
            job.told |= {kind}
            outbox.warn(snapshot.at, job, room.reason(kind, view))


#: Kinds of reasons to wait, as they are noted among what a job was told.
_NODE, _PLACE, _MEMORY = (f"{_CODE} for {what}" for what in ("node", "place", "memory"))


class _StartRoom:
    """Room for jobs without workers beside those that run."""

    def __init__(self, snapshot: Snapshot) -> None:
        self._has_nodes = bool(snapshot.nodes)
        self._nodes = [node for node in snapshot.nodes if node.jobs_at_once is not None]
        running = Counter(node for job in snapshot.holding if job.spec.worker is None for node in job.planned)
        self._n_jobs = sum(running.values())
        self._is_full = all(running[node.id] >= (node.jobs_at_once or 0) for node in self._nodes)
        self._usual_bytes = min((node.usual_memory_bytes for node in self._nodes), default=0)
        self._free_bytes = max((snapshot.free[node.id].memory_bytes for node in self._nodes), default=0)

    def kind(self, view: JobView) -> str:
        """Return the kind of reason why a job cannot start; empty: it is none of these."""
        if not self._has_nodes:
            return _NODE
        if not self._nodes or view.spec.worker is not None:
            return ""
        if self._is_full:
            return _PLACE
        return _MEMORY if self._needed_bytes(view) > self._free_bytes else ""

    def reason(self, kind: str, view: JobView) -> Reason:
        """Return a reason of this kind in words."""
        if kind == _NODE:
            return Reason(_CODE, "it waits for a node: all are leaving (`punctual ps`)")
        if kind == _PLACE:
            run = "job runs" if self._n_jobs == 1 else "jobs run"
            text = f"it waits until a job ends: {self._n_jobs} {run}, and no more do at once (`--jobs-at-once`)"
            return Reason(_CODE, text, {"n_jobs": self._n_jobs})
        needed_bytes, free_bytes = self._needed_bytes(view), self._free_bytes
        asked = "that it asked for"
        needed = asked if view.spec.asked_memory_bytes else "that are set aside for it (say what it needs: `--memory`)"
        text = f"it waits for memory: of the {format_bytes(needed_bytes)} {needed}, {format_bytes(free_bytes)} are free"
        return Reason(_CODE, text, {"needed_bytes": needed_bytes, "free_bytes": free_bytes})

    def _needed_bytes(self, view: JobView) -> int:
        return view.spec.asked_memory_bytes or view.expected_memory_bytes or self._usual_bytes
