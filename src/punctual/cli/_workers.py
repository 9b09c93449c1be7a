"""Jobs made of workers: what changes of them have cost."""

from typing import Any

from punctual.cli._words import short
from punctual.wire import WorkerStatus


def worker_fields(status: WorkerStatus | None) -> dict[str, Any] | None:
    """What became of the workers, in plain fields; None: the job had none, or no agent."""
    if status is None or not status.agent_pid:
        return None
    return {
        "n_resizes": status.n_resizes,
        "longest_stop_s": status.longest_stop_ns / 1e9,
        "n_steps_redone": status.n_steps_redone,
        "n_workers_lost": status.n_workers_lost,
    }


def told_of(status: WorkerStatus | None) -> str:
    """The same as a sentence with a blank before it; empty if nothing has happened."""
    if status is None or not status.longest_stop_ns:
        return ""
    lost = f", {status.n_workers_lost} lost and {status.n_steps_redone} steps done again" * (status.n_workers_lost > 0)
    stop_s = status.longest_stop_ns / 1e9
    return f" Its workers changed {_times(status.n_resizes)}{lost}; training stood still for {short(stop_s)} at most."


def _times(count: int) -> str:
    return {1: "once", 2: "twice"}.get(count, f"{count} times")
