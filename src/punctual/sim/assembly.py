"""Turn a scenario and a seed into jobs to submit."""

from collections.abc import Iterable, Iterator
from itertools import islice
from math import inf
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.core.resources import resource_names
from punctual.request.cluster_file import n_devices, n_units
from punctual.sim import parts
from punctual.sim.choice import made, parameters_of
from punctual.sim.declared import declared, without_missing_dependencies
from punctual.sim.job import SimJob
from punctual.sim.recording import Recording
from punctual.sim.scaling import sim_jobs
from punctual.sim.scenario import Scenario, TraceSection
from punctual.sim.traces import Trace, TraceJob, read
from punctual.sim.traces.deadlines import assign
from punctual.sim.traces.limits import N_JOBS_MAX
from punctual.sim.traces.load import core_s, device_s, rescaled
from punctual.sim.traces.order import normalized
from punctual.sim.traces.readers.live_journal import trace_job
from punctual.sim.traces.synthetic import FAMILY


def jobs_of(scenario: Scenario, seed: int) -> list[SimJob]:
    """The jobs that will be submitted, in their order.

    Raises
    ------
    InvalidSpec
        The trace cannot be used as the scenario says, or nothing is left of it.
    """
    rule = parts.made_as("scaling", scenario.scaling, "scaling")
    jobs = list(sim_jobs(trace_jobs(scenario, seed), rule, seed=seed, controller=scenario.controller))
    known = resource_names([group.capacity() for group in scenario.machines])
    for job in jobs:
        unknown = [name for name in resource_names([job.spec.ceiling]) if name not in known]
        if unknown:
            raise InvalidSpec(
                "jobs must ask for hardware that some nodes have",
                f"`{unknown[0]}`",
                f"job '{job.spec.id}'",
                f"Give groups of `cluster` some (`others = {{ {unknown[0]} = ... }}`), or leave it out of `scaling`.",
            )
    return jobs


def trace_jobs(scenario: Scenario, seed: int) -> list[TraceJob]:
    """Return the wanted jobs of the trace, at the wanted load, with deadlines; raises as `jobs_of` does."""
    section, recording = scenario.trace, recording_of(scenario)
    if recording is not None:  # its users' changes have their instants
        jobs = _first([trace_job(job) for job in recording.load().jobs], section.jobs)
    else:
        jobs = normalized(_counted(_source(scenario, seed)), from_zero=not scenario.job)
        jobs = _first(_between(section, jobs), section.jobs)
    jobs = without_missing_dependencies(jobs) if scenario.job or recording is not None else jobs
    if section.load is not None and not _generator_has(scenario, "load"):
        amount = device_s if n_devices(scenario.machines) else core_s
        jobs = rescaled(jobs, section.load, n_units(scenario.machines), amount)
    return list(assign(jobs, parts.made_as("deadlines", scenario.deadlines, "deadlines"), seed))


def recording_of(scenario: Scenario) -> Recording | None:
    """Return the live journal that is the scenario's trace; None: its trace is another one."""
    section = scenario.trace
    if section.file is None or section.messages is None:
        return None
    return Recording.of(Path(section.file), section.messages, section.start_s, section.end_s or inf)


def open_trace(scenario: Scenario) -> Trace | None:
    """Open the file that the scenario names; None if its jobs are generated.

    Raises
    ------
    InvalidSpec
        It cannot be read, or is of no known format.
    """
    section = scenario.trace
    if section.file is None or section.messages is not None or scenario.job:
        return None
    return read(Path(section.file), section.on_bad, section.unpacked_gib_max)


def _source(scenario: Scenario, seed: int) -> Iterable[TraceJob]:
    if scenario.job:
        return declared(scenario.job, scenario.machines)
    trace, generator = open_trace(scenario), scenario.trace.generator
    if trace is not None or generator is None:
        return trace or ()
    wanted = {"n_jobs": scenario.trace.jobs, "load": scenario.trace.load, "n_devices": n_units(scenario.machines)}
    known = {name: value for name, value in wanted.items() if value is not None and _generator_has(scenario, name)}
    kind, parameters = parts.kind(FAMILY, generator.name), {**known, **generator.parameters}
    jobs: Iterable[TraceJob] = made(kind, parameters, "trace.generator").jobs(seed)
    return jobs


def _counted(jobs: Iterable[TraceJob]) -> Iterator[TraceJob]:
    """Yield `jobs`, all of which must fit in memory; raise `InvalidSpec` at one too many."""
    left = iter(jobs)
    yield from islice(left, N_JOBS_MAX)
    if next(left, None) is not None:
        raise InvalidSpec(
            f"a trace must have at most {N_JOBS_MAX:,} jobs", "more", "`trace`", "Take a part of the file."
        )


def _generator_has(scenario: Scenario, parameter: str) -> bool:
    generator = scenario.trace.generator
    return generator is not None and parameter in parameters_of(parts.kind(FAMILY, generator.name))


def _between(section: TraceSection, jobs: list[TraceJob]) -> list[TraceJob]:
    end_s = section.end_s or inf
    if not section.start_s and end_s == inf:
        return jobs
    return normalized(job for job in jobs if section.start_s <= job.submitted_at < end_s)


def _first(jobs: list[TraceJob], n_jobs: int | None) -> list[TraceJob]:
    if not jobs:
        raise InvalidSpec(
            "a trace must have jobs", "none", "`trace`", "Choose another file, or an earlier `trace.start_s`."
        )
    return jobs[:n_jobs]
