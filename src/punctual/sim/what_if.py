"""Predict the jobs of a live host under its present policy, and under another one from now on.

The state that the host's journal leads to goes on in the simulated world, as it goes on with another host that takes
the jobs over: with what controllers have learned and what is promised. The other policy begins as it does where a user
changes it. What a job has left is what its controller expects, or was declared; it is taken as exact, and no other
job comes. See `punctual.sim.recorded` for how fast a job is with more or less.

``-m punctual.sim.what_if RUN POLICY PARAMETERS LIMIT_S PARENT`` prints it as JSON, at a low priority.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from pydantic import TypeAdapter, ValidationError

from punctual.core.errors import InvalidSpec
from punctual.core.events import Message, PhaseReported, PolicyChanged, SteeringResumed
from punctual.core.ids import JobId, Timer
from punctual.core.job import JobState, JobView, shape_of
from punctual.core.lifecycle import ended_by
from punctual.core.protocols import Policy
from punctual.core.resources import LEAST_CORES
from punctual.core.speed import RateCurve, Shape
from punctual.core.status import WINDOW_S, JobStatus
from punctual.core.units import DAY_S, span
from punctual.core.verdict import Verdict, verdict
from punctual.daemon.host_state import HostState, new_state
from punctual.daemon.policy_worker import end_with
from punctual.daemon.restore import restored_state
from punctual.daemon.run_folder import RunFolder, run_named
from punctual.sim.job import SimJob
from punctual.sim.recorded import HELD_BACK_FRAC, ProportionalSpeed
from punctual.sim.simulation import Simulation, registered
from punctual.sim.speed_laws import SpeedLaw

#: Time limit of the process, on a machine on which trainings come first.
_ANSWER_S_MAX = 60.0
_UNKNOWN = "nothing says how much it has left"
_NOT_REACHED = "it had not ended where the simulation ended"


class WhatIfFailed(Exception):
    """The prediction failed; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedEnd:
    """Predicted end of a job under one policy; instants in the journal's time.

    Attributes
    ----------
    landed_at
        Instant of its landing; None: it does not land, or its end is unknown.
    unknown
        Reason why its end is unknown; empty: it has ended.
    """

    state: JobState
    verdict: Verdict | None
    landed_at: float | None
    cause: str
    unknown: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOutlook:
    """A job that has not ended, under both policies."""

    job: JobId
    deadline_at: float | None
    today: SimulatedEnd
    other: SimulatedEnd


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The answer.

    Attributes
    ----------
    at
        Start of the simulation, in the journal's time.
    policy
        The policy that the host has.
    jobs
        All that have not ended, in order of submission.
    """

    at: float
    policy: str
    jobs: tuple[JobOutlook, ...]


def what_if(run: RunFolder, policy: str, parameters: Mapping[str, Any], limit_s: float) -> WhatIf:
    """Simulate the jobs of the host of `run` from now on, under its policy and under another; changes nothing.

    Parameters
    ----------
    limit_s
        CPU time that the simulation under each policy may take; of jobs that have not ended then nothing is said.

    Raises
    ------
    InvalidSpec
        The journal cannot be read.
    """
    with closing(run.read_journal()) as journal:
        state, last_at = restored_state(run, journal)
        at = max(last_at, state.time.now())
        # State at the same instant: reading the journal again would include later messages.
        again = new_state(run, journal)
        again.load(state.dumped())
        name, made_with = state.board.policy or (str(run.facts().get("options", {}).get("policy", "")), {})
        open_jobs = {status.id: status.deadline_at for status in state.board.jobs() if not status.ended}
        change = PolicyChanged(at=at, policy=policy, parameters=dict(parameters), before=name, by="what if")
        today = played(state, at, registered(name, made_with), None, limit_s)
        other = played(again, at, registered(name, made_with), change, limit_s)
    jobs = tuple(
        JobOutlook(job=job, deadline_at=deadline_at, today=today[job], other=other[job])
        for job, deadline_at in open_jobs.items()
        if job in today and job in other
    )
    return WhatIf(at=at, policy=name, jobs=jobs)


def what_if_apart(run: RunFolder, policy: str, parameters: Mapping[str, Any], limit_s: float) -> WhatIf:
    """Run `what_if` in a process of its own, which ends with this one; raise `WhatIfFailed` without an answer."""
    words = [run.name, policy, json.dumps(dict(parameters)), str(limit_s), str(os.getpid())]
    try:
        process = subprocess.run(
            [sys.executable, "-P", "-m", "punctual.sim.what_if", *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_ANSWER_S_MAX,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise WhatIfFailed(f"it took longer than {span(_ANSWER_S_MAX)}") from None
    if process.returncode:
        last = process.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise WhatIfFailed(last[:300] or f"its process ended with status {process.returncode}")
    try:
        return TypeAdapter(WhatIf).validate_json(process.stdout)
    except ValidationError as error:  # a plug-in has written there too, say
        complaint = error.errors(include_url=False, include_input=False)[0]["msg"]
        raise WhatIfFailed(f"its process gave a wrong answer: {complaint}") from error


# The simulation.


def played(
    state: HostState, at: float, policy: Policy, change: PolicyChanged | None, limit_s: float
) -> dict[JobId, SimulatedEnd]:
    """Simulate each job that has not ended, and return its end; uses `state` up."""
    board = state.board
    statuses = {status.id: status for status in board.jobs() if not status.ended}
    views = {job: state.scheduler.job(job) for job in statuses}
    works = {job: _work_of(statuses[job], views[job], at) for job in statuses}
    unknown = _unknown(statuses, works)
    awaited = statuses.keys() - unknown.keys()

    def listen(message: Message) -> None:
        board.fold(message)
        ended = ended_by(message)
        if ended is not None:
            awaited.discard(ended)

    running = {job: status.granted for job, status in statuses.items() if status.granted or status.state == "paused"}
    simulation = Simulation(
        (),
        (),
        policy,
        scheduler=state.scheduler,
        # The remaining work includes the remaining phases.
        events=[
            *(PhaseReported(at=at, job=job, phases=()) for job, status in statuses.items() if status.phases),
            *([] if change is None else [change]),
            SteeringResumed(at=at, lost_at=at, granted=running),
        ],
        listeners=(listen,),
        # Nothing is predicted beyond a year.
        end_at=at + 366 * DAY_S,
        fires_at=_Ticks(at, {job: status.deadline_at for job, status in statuses.items()}),
    )
    for node in board.nodes():
        simulation.world.join(at, node)
    for job, work in works.items():
        status = statuses[job]
        simulation.world.adopt(_sim_job(status, work), at, status.steps_done, status.used_core_s, running.get(job))
    give_up_s = time.process_time() + limit_s
    simulation.run(lambda: not awaited or time.process_time() > give_up_s)
    return {job: _outcome(board.job(job), unknown.get(job, "")) for job in statuses}


@dataclass(frozen=True, slots=True)
class _Ticks:
    """Times of controllers' ticks: rarer than live, where they filter noise, and denser towards a near end.

    A job that lasts for hours would have tens of thousands of ticks; so it has some hundreds for each tenfold of the time
    that is left to its deadline or, without one and after it, that is simulated.
    """

    begun_at: float
    deadlines_at: Mapping[JobId, float | None]

    def __call__(self, timer: Timer, fire_at: float, now: float) -> float:
        if timer.kind != "tick":
            return fire_at
        deadline_at = self.deadlines_at.get(timer.job)
        span_s = deadline_at - now if deadline_at is not None and deadline_at > now else now - self.begun_at
        # Ticks to the deadline, if all were as far apart as the first.
        return max(fire_at, now + span_s / 200)


def _unknown(statuses: Mapping[JobId, JobStatus], works: "Mapping[JobId, _RemainingWork]") -> dict[JobId, str]:
    """Return the reasons why the ends of some jobs are unknown, also because they wait for such a job."""
    unknown = {job: work for job, work in works.items() if isinstance(work, str)}
    for job, status in statuses.items():  # in order of submission: a job waits for earlier ones
        waits_for = next((before for before in status.spec.after if before in unknown), None)
        if waits_for is not None:
            unknown.setdefault(job, f"it waits for '{waits_for}', whose end is unknown")
    return unknown


def _still_waits(status: JobStatus) -> str:
    reason = status.reason
    if reason is None or reason.code != "waits":
        return "it still waits for room"
    return f"it still {reason.text.removeprefix('it ')}"


def _outcome(status: JobStatus, unknown: str) -> SimulatedEnd:
    if not status.ended:
        unknown = unknown or (_still_waits(status) if status.state == "queued" else _NOT_REACHED)
        return SimulatedEnd(state=status.state, verdict=None, landed_at=None, cause="", unknown=unknown)
    at = inf if status.ended_at is None else status.ended_at
    return SimulatedEnd(
        state=status.state, verdict=verdict(status, at), landed_at=status.landed_at, cause=status.cause, unknown=""
    )


# Remaining work of a job.


@dataclass(frozen=True, slots=True)
class _Learned:
    """The speed that a performance model has learned; `otherwise` where it knows nothing."""

    curve: RateCurve
    otherwise: SpeedLaw

    def rate_sps(self, shape: Shape) -> float:
        rate_sps = self.curve.rate_sps(shape)
        return rate_sps if 0 < rate_sps < inf else self.otherwise.rate_sps(shape)


#: Steps that remain, and their speed; or why nobody knows.
_RemainingWork = tuple[float, SpeedLaw] | str


def _sim_job(status: JobStatus, work: _RemainingWork) -> SimJob:
    left_steps, truth = (1.0, ProportionalSpeed(step_cost=inf)) if isinstance(work, str) else work
    return SimJob(
        submitted_at=status.submitted_at,
        spec=status.spec,
        truth=truth,
        work_steps=status.steps_done + left_steps,
        declared_steps=status.steps_total,
    )


def _work_of(status: JobStatus, view: JobView, at: float) -> _RemainingWork:
    if status.pause is not None:
        return "its user has paused it"
    steps_total = status.steps_expected or status.steps_total
    # If all steps are done or none are counted, the rest is one step more.
    left_steps = 1.0 if steps_total is None else max(0.0, steps_total - status.steps_done) or 1.0
    if status.spec.worker is not None:
        return _of_workers(status, view, None if steps_total is None else left_steps)
    core_s = _core_s_left(status, view, at)
    if core_s is None:
        return _UNKNOWN
    usable_cores = _usable_cores(status, view, at)
    if view.work is not None and not view.work.is_steady:  # whatever it holds, it takes as long
        core_s, usable_cores = core_s / usable_cores * LEAST_CORES, LEAST_CORES
    return left_steps, ProportionalSpeed(step_cost=max(core_s, 1e-3) / left_steps, usable=usable_cores)


def _of_workers(status: JobStatus, view: JobView, left_steps: float | None) -> _RemainingWork:
    shape = shape_of(status.spec, status.granted, {}) if status.granted else None
    learned_sps = view.curve.rate_sps(shape) if view.curve is not None and shape is not None else 0.0
    rate_sps = next((rate for rate in (learned_sps, status.rate_sps) if 0 < rate < inf), None)
    if left_steps is None or (rate_sps is None and view.curve is None):
        return _UNKNOWN
    step_cost = inf if rate_sps is None or shape is None else shape.n_workers / rate_sps
    proportional = ProportionalSpeed(step_cost=step_cost, by_workers=True)
    return left_steps, proportional if view.curve is None else _Learned(view.curve, proportional)


def _core_s_left(status: JobStatus, view: JobView, at: float) -> float | None:
    """Return the core-seconds left: the controller's, the declared, or by the cost of past steps; None: unknown."""
    core_s = view.core_s_left(at)
    if core_s is None and status.spec.work_core_s is not None:
        core_s = max(0.0, status.spec.work_core_s - view.granted_core_s)
    if core_s is None and status.steps_total and status.steps_done > 0 and status.used_core_s > 0:
        left = max(0.0, (status.steps_expected or status.steps_total) - status.steps_done)
        if status.n_attempts <= 1:
            core_s = status.used_core_s / status.steps_done * left
        elif status.usage_cores > 0 and status.rate_sps > 0:
            # Its steps are of all its processes, its usage is of the last.
            core_s = status.usage_cores / status.rate_sps * left
    return core_s if core_s is not None and isfinite(core_s) else None


def _usable_cores(status: JobStatus, view: JobView, at: float) -> float:
    """The most cores that make it faster."""
    if view.work is not None:
        return view.work.usable_cores
    usage_cores, is_of_grant = status.usage_cores, at - view.granted_at > 2 * WINDOW_S
    is_held_back = usage_cores >= HELD_BACK_FRAC * status.held.cores
    return usage_cores if is_of_grant and usage_cores > 0 and not is_held_back else status.spec.ceiling.cores


def main(name: str, policy: str, parameters: str, limit_s: str, parent: str) -> None:
    """Print the answer as JSON."""
    if not end_with(int(parent)):
        return
    os.nice(10)  # trainings come first
    try:
        answer = what_if(run_named(name), policy, json.loads(parameters), float(limit_s))
    except InvalidSpec as error:
        raise SystemExit(str(error)) from error
    sys.stdout.buffer.write(TypeAdapter(WhatIf).dump_json(answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
