"""The journal of a live host: jobs as they were submitted, with the work that they turned out to need."""

from collections.abc import Iterator

from punctual.core.ids import NodeId
from punctual.core.job import shape_of
from punctual.sim.job import SimJob
from punctual.sim.recording import SQLITE_MAGIC, Recording
from punctual.sim.traces.bad_rows import BadRows
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.source import Head, Source


class LiveJournal:
    """Jobs of one machine, from `punctual run` and `punctual up`."""

    def recognises(self, head: Head) -> bool:
        """Whether the file is a database."""
        return head.first.startswith(SQLITE_MAGIC.decode().rstrip("\0"))

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """Yield the jobs in order of submission; those whose work is not known are bad rows."""
        load = Recording.of(source.path).load()
        for number, (job, why) in enumerate(load.left_out.items(), start=1):
            bad.add(str(source), number, f"job '{job}': {why}")
        yield from map(trace_job, load.jobs)


def trace_job(job: SimJob) -> TraceJob:
    """Return a recorded job as one of a trace, with its declared ceiling."""
    spec = job.spec
    shape = shape_of(spec, {NodeId("any"): spec.ceiling}, {})
    return TraceJob(
        id=spec.id,
        submitted_at=job.submitted_at,
        n_gpus=spec.ceiling.gpus,
        cores=spec.ceiling.cores,
        duration_s=job.work_steps / job.truth.rate_sps(shape),
        work_steps=job.work_steps,
        deadline_s=spec.deadline_s,
        weight=spec.weight,
        spec=spec,
        recorded=job,
    )
