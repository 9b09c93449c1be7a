"""Reasons why jobs wait for room: every node is leaving, as many jobs as allowed run, or other jobs hold the memory."""

from collections import Counter
from collections.abc import Mapping

from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.outbox import Outbox
from punctual.core.recent_messages import Reason
from punctual.core.scheduled_job import ScheduledJob
from punctual.core.units import format_bytes

_CODE = "waits"


def tell_waiting(snapshot: Snapshot, jobs: Mapping[JobId, ScheduledJob], outbox: Outbox, revision: int) -> None:
    """Tell each job why it waits, after the plan of `revision` has left it waiting: again once it is for another reason."""
    waiting = [view for view in snapshot.waiting if jobs[view.id].status == "queued"]
    if not waiting:
        return
    running = Counter(node for job in snapshot.holding if job.spec.worker is None for node in job.planned)
    for view in waiting:
        job = jobs[view.id]
        reason = _reason_to_wait(view, snapshot, running) if job.submitted_revision < revision else None
        if reason is not None and (kind := " ".join((_CODE, *reason.facts))) not in job.told:
            job.forget_waiting()
            job.told |= {kind}
            outbox.warn(snapshot.at, job, reason)


def _reason_to_wait(view: JobView, snapshot: Snapshot, running: Mapping[NodeId, int]) -> Reason | None:
    """Return why a job cannot start, if there is no node for it or, without workers, beside the running jobs; else None."""
    if not snapshot.nodes:
        return Reason(_CODE, "it waits for a node: all are leaving (`punctual ps`)")
    nodes = [node for node in snapshot.nodes if node.jobs_at_once is not None]
    if not nodes or view.spec.worker is not None:
        return None
    if all(running[node.id] >= (node.jobs_at_once or 0) for node in nodes):
        n_jobs = sum(running.values())
        run = "job runs" if n_jobs == 1 else "jobs run"
        text = f"it waits until a job ends: {n_jobs} {run}, and no more do at once (`--jobs-at-once`)"
        return Reason(_CODE, text, {"n_jobs": n_jobs})
    asked_bytes = view.spec.asked_memory_bytes
    needed_bytes = asked_bytes or view.expected_memory_bytes or min(node.usual_memory_bytes for node in nodes)
    free_bytes = max(snapshot.free[node.id].memory_bytes for node in nodes)
    if needed_bytes > free_bytes:
        needed = "that it asked for" if asked_bytes else "that are set aside for it (say what it needs: `--memory`)"
        text = f"it waits for memory: of the {format_bytes(needed_bytes)} {needed}, {format_bytes(free_bytes)} are free"
        return Reason(_CODE, text, {"needed_bytes": needed_bytes, "free_bytes": free_bytes})
    return None
