"""Plays of `bench/ablation.py`: trainings like those of `bench/contention.py`, simulated on a machine that delivers less than it has."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import _contention_jobs as jobs
from _contended_cores import STEP_CORE_S
from _contention_jobs import TOLERANCE_FRAC, Load

from punctual.core.cluster import Node
from punctual.core.commands import JobCommand, MachineCommand, StopJob, WarnUser
from punctual.core.events import Event, JobFinished, PlanProposed, SpecChanged, StopRequested
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.protocols import Message, Sink
from punctual.core.resources import Resources
from punctual.policies.promises_first import PromisesFirst
from punctual.registry import load as loaded
from punctual.sim import simulation
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.speed_laws import AllReduceTruth, CoresTruth
from punctual.sim.true_state import TrueState
from punctual.sim.world import World

#: Cores that programs without Punctual take at all times.
_OUTSIDE_CORES = 0.15
#: How much dearer a step is beside others, and while one of them starts.
_BESIDE_FRAC, _STARTING_FRAC = 0.1, 0.3
#: Where other programs disturb, what they take more, and from when until when.
_DISTURBED_CORES, _DISTURBED_S = 0.6, (20.0, 32.0)
#: Steps get dearer by up to this share, twice in a run.
_DRIFT_FRAC = 0.15
#: How long a process takes to stop.
_STOPPING_S = 3.0
_PHYSICS = Physics(startup_s=2.0, resize_s=0.02, checkpoint_s=2.0)


class CrowdedWorld(World):
    """A machine on which jobs get what other programs leave, and slow each other down."""

    #: Fraction of its work after which each job crashes once.
    crashes: Mapping[JobId, float]
    is_disturbed: bool

    def due(self, at: float, subject: object, version: int) -> list[Event]:
        """Return the events of an entry of the queue; all jobs go on at the speed that is left to them."""
        events = super().due(at, subject, version)
        running = [state for state in self._states.values() if state.phase == "training" and state.finish_at > at]
        for state in running if events else ():
            state.rest(at)
            self._train(state, at)
            self._enter(state)
        return events

    def _train(self, state: TrueState, at: float) -> None:
        super()._train(state, at)
        held = [amount.cores for each in self._states.values() for amount in each.holds.values()]
        outside = _OUTSIDE_CORES + _DISTURBED_CORES * (self.is_disturbed and _DISTURBED_S[0] <= at < _DISTURBED_S[1])
        delivered = min(1.0, (jobs.CORES - outside) / max(sum(held), 1e-9))
        state.cores *= delivered
        starting = any(each.phase == "starting" for each in self._states.values())
        state.rate_sps *= delivered / (1.0 + _BESIDE_FRAC * (len(held) > 2) + _STARTING_FRAC * starting)
        left = state.until_steps - state.steps
        state.finish_at = at + left / state.rate_sps if state.rate_sps > 0 else float("inf")
        crash_steps = self.crashes.get(state.id, -1.0) * state.job.work_steps
        if state.rate_sps > 0 and crash_steps >= state.steps:
            state.fail_at = at + (crash_steps - state.steps) / state.rate_sps

    def perform(self, command: JobCommand | MachineCommand, sink: Sink) -> None:
        """Accept a command; a process that is to stop still holds its cores for a while."""
        super().perform(replace(command, at=command.at + _STOPPING_S) if isinstance(command, StopJob) else command, sink)

    def _crash(self, state: TrueState, at: float, cause: str) -> list[Event]:
        self.crashes = {id: frac for id, frac in self.crashes.items() if id != state.id}
        return super()._crash(state, at, cause)


def _drawn(load: Load, random: Random, *, told: bool, guarantee: bool = False, floor_cores: float = 0.0) -> SimJob:
    steps, id = load.work_core_s / STEP_CORE_S, JobId(load.name)
    common: dict[str, Any] = {"id": id, "work_steps": steps, "deadline_s": load.deadline_s, "weight": load.weight}
    if load.elastic:
        worker = Resources(cores=jobs.CORES_PER_WORKER)
        spec = JobSpec(
            **common, worker=worker, counts=(1, 2), floor=worker, ceiling=worker * 2, controller="two-level",
            model="all-reduce", preemptible=True, startup_s=1.0, resize_cost_s=1.0,
        )  # fmt: skip
        step_s = STEP_CORE_S / jobs.CORES_PER_WORKER
        return SimJob(load.at, spec, AllReduceTruth(step_s=step_s, communication_frac=0.02), steps)
    spec = JobSpec(
        **common, ceiling=Resources(cores=jobs.CEILING_CORES, memory_bytes=0), controller="remaining-cost",
        work_core_s=load.work_core_s if told else None, guarantee=guarantee, floor=Resources(cores=floor_cores), preemptible=True,
    )  # fmt: skip
    at_frac, late_frac = sorted((random.uniform(0.05, 0.6), random.uniform(0.05, 0.9)))
    first, second = (1.0 + random.uniform(-0.3, 1.0) * _DRIFT_FRAC for _ in range(2))
    truths = [CoresTruth(step_core_s=factor * STEP_CORE_S, serial_frac=0.0) for factor in (1.0, first, second)]
    begins = (0.0, at_frac * steps, late_frac * steps)
    return SimJob(load.at, spec, truths[0], steps, phases=tuple(zip(begins, truths, strict=True)))


def fits(seed: int) -> tuple[Load, ...]:
    """The eight trainings that fit."""
    return jobs.contention(seed, 1.0)


def overload(seed: int) -> tuple[Load, ...]:
    """Eight that are there within a second and want 160 % of the machine."""
    random = Random(seed)
    loads = jobs.overload(seed, 1.0)
    return _in_order(replace(load, at=round(random.uniform(0.0, 1.0), 2)) for load in loads)


def arriving(seed: int) -> tuple[Load, ...]:
    """Twelve that come one after the other and want 110 %, two of them without a deadline."""
    random = Random(seed)
    loads = [replace(load, at=round(random.uniform(0.0, 40.0), 1)) for load in jobs.overload(seed, 1.0, 0.9, 10)]
    loads += [Load(name=f"free-{i}", app="vision", work_core_s=15.0, deadline_s=None, at=20.0 * i) for i in range(2)]
    return _in_order(loads)


def elastic(seed: int) -> tuple[Load, ...]:
    """Ten that come one after the other, half of them made of workers."""
    random = Random(seed)
    return _in_order(
        replace(load, at=round(random.uniform(0.0, 30.0), 1), elastic=i % 2 == 0)
        for i, load in enumerate(jobs.overload(seed, 1.0, 0.8, 8))
    )


def behind(seed: int) -> tuple[Load, ...]:
    """Five without a deadline, which take all places, and eight with one that come later."""
    random = Random(seed)
    loads = [Load(name=f"free-{i}", app="vision", work_core_s=40.0, deadline_s=None, at=0.1 * i) for i in range(5)]
    loads += [replace(load, at=round(random.uniform(5.0, 40.0), 1)) for load in jobs.overload(seed, 1.0, 0.8, 8)]
    return _in_order(loads)


def _in_order(loads: Any) -> tuple[Load, ...]:
    return tuple(sorted(loads, key=lambda load: load.at))


#: Name of a kind of play -> its trainings, and whether each tells what it costs.
KINDS = {
    "fits": (fits, False), "160 %": (overload, False), "160 %, told": (overload, True),
    "arriving": (arriving, False), "arriving, told": (arriving, True), "with workers": (elastic, False),
    "few places": (behind, False), "fits, disturbed": (fits, False), "160 %, disturbed": (overload, True),
}  # fmt: skip


def play(kind: str, seed: int) -> dict[str, float]:
    """Play one draw to its end; return its figures."""
    make, told = KINDS[kind]
    random, loads = Random(seed), _in_order(make(seed))
    drawn = [_drawn(load, random, told=told, guarantee=told and i % 3 == 2 and load.deadline_s is not None and make is arriving, floor_cores=0.4 * (i % 3 == 1 and make is arriving)) for i, load in enumerate(loads)]
    specs = {job.spec.id: job.spec for job in drawn}
    events: list[Event] = []
    for load in loads:
        spec = specs[JobId(load.name)]
        if load.moved_at is not None:
            events.append(SpecChanged(at=load.moved_at, spec=replace(spec, deadline_s=(spec.deadline_s or 0.0) + load.moved_s)))
        if load.stopped_at is not None:
            events.append(StopRequested(at=load.stopped_at, job=spec.id, cause="its user stops it"))
    crashes = {JobId(load.name): 0.5 for load in loads if load.crashes}
    journal: list[Message] = []
    node = Node(NodeId("node"), Resources(cores=jobs.CORES), jobs_at_once=5 if make in (arriving, behind) else 8)
    with patch.object(CrowdedWorld, "crashes", crashes, create=True), patch.object(CrowdedWorld, "is_disturbed", "disturbed" in kind, create=True), patch.object(simulation, "World", CrowdedWorld):
        simulation.Simulation(
            drawn, [node], PromisesFirst(), listeners=[journal.append], seed=seed, physics=_PHYSICS, events=events,
            controllers={name: loaded("controllers", name)() for name in ("remaining-cost", "two-level")},
            models={"all-reduce": loaded("models", "all-reduce")()}, end_at=600.0,
        ).run()  # fmt: skip
    return figures(loads, journal)


def figures(loads: tuple[Load, ...], journal: list[Message]) -> dict[str, float]:
    """What became of the trainings."""
    ends = {message.job: message.at for message in journal if isinstance(message, JobFinished)}
    promised: dict[JobId, float] = {}
    lost: set[JobId] = set()
    for message in journal:
        if isinstance(message, PlanProposed) and message.plan is not None:
            promised |= message.plan.promises or {}
        elif isinstance(message, WarnUser) and message.job is not None and message.reason.code.startswith("promise"):
            lost.add(message.job)
    counted = [load for load in loads if load.counts()]
    late = {
        JobId(load.name) for load in counted
        if ends.get(JobId(load.name), float("inf")) > (load.due_at or 0.0) + TOLERANCE_FRAC * (load.deadline_s or 0.0)
    }  # fmt: skip
    due = {JobId(load.name): load.due_at or 0.0 for load in counted}
    kept_to = {id for id, until_at in promised.items() if id in due and until_at <= due[id] + 1e-6}
    took = [ends[JobId(load.name)] - load.at for load in loads if JobId(load.name) in ends]
    return {
        "n": len(counted), "n_promised": len(kept_to), "n_broken": len((kept_to & late) - {JobId(load.name) for load in loads if load.crashes}), "n_lost": len(lost),
        "n_met": len(counted) - len(late), "weight": sum(load.weight for load in counted),
        "weight_met": sum(load.weight for load in counted if JobId(load.name) not in late),
        "took_s": sum(took) / max(1, len(took)), "n_ended": len(took),
        "n_plans": sum(isinstance(message, PlanProposed) for message in journal),
    }  # fmt: skip
