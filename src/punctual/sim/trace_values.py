"""Values of a trace's job for the rules of scaling; `InvalidSpec` if the trace lacks one."""

from collections.abc import Collection, Mapping
from math import ceil

from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.sim.traces import TraceJob


def model_of(trace: TraceJob, measured: Collection[str]) -> str:
    """Return the job's model among the `measured` ones, by the trace's name or that in lower case."""
    if trace.model_name is None:
        raise silent(trace, "which model it trains")
    for name in (trace.model_name, trace.model_name.lower()):
        if name in measured:
            return name
    raise InvalidSpec(
        "a job's model must have been measured", f"'{trace.model_name}'", f"job '{trace.id}'",
        f"Known: {', '.join(sorted(measured))}.",
    )  # fmt: skip


def n_workers_of(trace: TraceJob) -> int:
    """The devices it had, or one."""
    if trace.n_gpus is None:
        raise silent(trace, "how many devices it had")
    return max(1, ceil(trace.n_gpus))


def duration_s_of(trace: TraceJob) -> float:
    """Return the job's running time in seconds; of several kinds of devices, on the slowest."""
    if trace.duration_s is not None:
        return trace.duration_s
    if trace.device_durations_s:
        return max(trace.device_durations_s.values())
    raise silent(trace, "how long it ran")


def work_steps_of(trace: TraceJob) -> float:
    """Return the job's steps; one for each second if the trace counts none."""
    return trace.work_steps or duration_s_of(trace)


def held_by(trace: TraceJob, part: str, others: Mapping[str, float]) -> Resources:
    """Return the amount of a worker, or of a server."""
    cores, gpus, memory_bytes = (
        trace.parameters.get(f"{part}_{kind}", 0.0) for kind in ("cores", "gpus", "memory_bytes")
    )
    held = Resources(cores, ceil(gpus), ceil(memory_bytes), others_of(trace, part, others))
    if not held:
        raise silent(trace, f"what a {part} holds")
    return held


def others_of(trace: TraceJob, part: str, others: Mapping[str, float]) -> Mapping[str, float]:
    """Return a `part`'s further kinds of hardware: the trace's values take precedence over `others`."""
    return {name: trace.parameters.get(f"{part}_{name}", amount) for name, amount in others.items()}


def deadline_s_of(trace: TraceJob) -> float | None:
    """Seconds from submission to the deadline; None without one, or for a best-effort job."""
    return None if trace.best_effort else trace.deadline_s


def kinds_of(trace: TraceJob) -> tuple[str, ...]:
    """Return the kinds of device with a known speed; the empty one stands for any."""
    return ("", *trace.device_durations_s)


def silent(trace: TraceJob, about: str) -> InvalidSpec:
    """The error that the trace does not say something."""
    return InvalidSpec(
        f"the trace must say {about}", "nothing", f"job '{trace.id}'", "Take another trace or another rule of scaling."
    )
