"""Plays of `bench/ablation.py`: trainings as in `bench/contention.py`, simulated on a machine that delivers less than it has."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf
from random import Random
from typing import Any
from unittest.mock import patch

import _contention_jobs as jobs
from _contention_jobs import TOLERANCE_FRAC, Load
from tests.plants.contended_cores import STEP_CORE_S

from punctual import registry
from punctual.core.cluster import Node
from punctual.core.commands import JobCommand, MachineCommand, StopJob, WarnUser
from punctual.core.events import Event, JobFinished, Message, PlanProposed, SpecChanged, StopRequested
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.protocols import Sink
from punctual.core.resources import Resources
from punctual.policies.promises_first import PromisesFirst
from punctual.sim import simulation
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.speed_laws import AllReduceTruth, CoresTruth
from punctual.sim.world import TrueState, World

#: Cores that programs without Punctual take at all times; and in disturbed plays, how many more, from when until when.
_OUTSIDE_CORES, _DISTURBED_CORES, _DISTURBED_S = 0.15, 0.6, (20.0, 32.0)
#: How much dearer a step is beside others, and while one of them starts; and by how much it may change twice in a run.
_BESIDE_FRAC, _STARTING_FRAC, _DRIFT_FRAC = 0.1, 0.3, 0.15
#: How long a process takes to stop.
_STOPPING_S = 3.0
_PHYSICS = Physics(startup_s=2.0, resize_s=0.02, checkpoint_s=2.0)
_CONTROLLERS = ("remaining-cost", "two-level")


class CrowdedWorld(World):
    """A machine on which jobs get what other programs leave, and slow each other down.

    Attributes
    ----------
    crashes
        Share of its work after which each of these jobs crashes once.
    """

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

    def perform(self, command: JobCommand | MachineCommand, sink: Sink) -> None:
        """Accept a command; a process that is to stop holds its cores for a while."""
        later = replace(command, at=command.at + _STOPPING_S) if isinstance(command, StopJob) else command
        super().perform(later, sink)

    def _train(self, state: TrueState, at: float) -> None:
        super()._train(state, at)
        held = [amount.cores for each in self._states.values() for amount in each.holds.values()]
        is_starting = any(each.phase == "starting" for each in self._states.values())
        is_disturbed = self.is_disturbed and _DISTURBED_S[0] <= at < _DISTURBED_S[1]
        outside_cores = _OUTSIDE_CORES + _DISTURBED_CORES * is_disturbed
        delivered_frac = min(1.0, (jobs.CORES - outside_cores) / max(sum(held), 1e-9))
        state.cores *= delivered_frac
        state.rate_sps *= delivered_frac / (1.0 + _BESIDE_FRAC * (len(held) > 2) + _STARTING_FRAC * is_starting)
        state.finish_at = at + (state.until_steps - state.steps) / state.rate_sps if state.rate_sps > 0 else inf
        crash_steps = self.crashes.get(state.id, -1.0) * state.job.work_steps
        if state.rate_sps > 0 and crash_steps >= state.steps:
            state.fail_at = at + (crash_steps - state.steps) / state.rate_sps

    def _crash(self, state: TrueState, at: float, cause: str) -> list[Event]:
        self.crashes = {id: frac for id, frac in self.crashes.items() if id != state.id}
        return super()._crash(state, at, cause)


def _drawn(load: Load, random: Random, *, told: bool, guarantee: bool, floor_cores: float) -> SimJob:
    steps = load.work_core_s / STEP_CORE_S
    common: dict[str, Any] = {
        "id": JobId(load.name), "work_steps": steps, "deadline_s": load.deadline_s, "weight": load.weight, "preemptible": True,
    }  # fmt: skip
    if load.elastic:
        worker = Resources(cores=jobs.CORES_PER_WORKER)
        spec = JobSpec(
            **common, worker=worker, counts=(1, 2), floor=worker, ceiling=worker * 2, controller="two-level",
            model="all-reduce", startup_s=1.0, resize_cost_s=1.0,
        )  # fmt: skip
        return SimJob(load.at, spec, AllReduceTruth(step_s=STEP_CORE_S / worker.cores, communication_frac=0.02), steps)
    spec = JobSpec(
        **common, ceiling=Resources(cores=jobs.CEILING_CORES), floor=Resources(cores=floor_cores), controller="remaining-cost",
        work_core_s=load.work_core_s if told else None, guarantee=guarantee,
    )  # fmt: skip
    begins = (0.0, *(frac * steps for frac in sorted((random.uniform(0.05, 0.6), random.uniform(0.05, 0.9)))))
    factors = (1.0, *(1.0 + random.uniform(-0.3, 1.0) * _DRIFT_FRAC for _ in range(2)))
    truths = [CoresTruth(step_core_s=factor * STEP_CORE_S, serial_frac=0.0) for factor in factors]
    return SimJob(load.at, spec, truths[0], steps, phases=tuple(zip(begins, truths, strict=True)))


def _coming(seed: int, from_s: float, until_s: float, load_frac: float, n_jobs: int) -> list[Load]:
    random = Random(seed)
    loads = jobs.overload(seed, 1.0, load_frac, n_jobs)
    return [replace(load, at=round(random.uniform(from_s, until_s), 2 if until_s == 1.0 else 1)) for load in loads]


def _free(n: int, work_core_s: float, every_s: float) -> list[Load]:
    return [
        Load(name=f"free-{i}", app="vision", work_core_s=work_core_s, deadline_s=None, at=every_s * i) for i in range(n)
    ]


def _loads(kind: str, seed: int) -> Iterable[Load]:
    """Return the trainings of one draw of a kind of plays."""
    match kind.partition(",")[0]:
        case "fits":
            return jobs.contention(seed, 1.0)
        case "160 %":
            return _coming(seed, 0.0, 1.0, 1.6, 8)
        case "arriving":  # a tenth of them without a deadline
            return [*_coming(seed, 0.0, 40.0, 0.9, 10), *_free(2, 15.0, 20.0)]
        case "few places":  # those without a deadline have taken them all
            return [*_free(5, 40.0, 0.1), *_coming(seed, 5.0, 40.0, 0.8, 8)]
        case _:  # half of them made of workers
            loads = _coming(seed, 0.0, 30.0, 0.8, 8)
            return [replace(load, elastic=i % 2 == 0) for i, load in enumerate(loads)]


def play(kind: str, seed: int) -> dict[str, float]:
    """Play one draw to its end and return its figures; *told*: trainings say what they cost."""
    random, loads = Random(seed), sorted(_loads(kind, seed), key=lambda load: load.at)
    told, comes = "told" in kind or kind == "160 %, disturbed", kind.startswith("arriving")
    drawn = [
        _drawn(
            load, random, told=told, floor_cores=0.4 * (comes and i % 3 == 1),
            guarantee=told and comes and i % 3 == 2 and load.deadline_s is not None,
        )
        for i, load in enumerate(loads)
    ]  # fmt: skip
    events: list[Event] = []
    for load, spec in zip(loads, (job.spec for job in drawn), strict=True):
        if load.moved_at is not None:
            moved = replace(spec, deadline_s=(spec.deadline_s or 0.0) + load.moved_s)
            events.append(SpecChanged(at=load.moved_at, spec=moved))
        if load.stopped_at is not None:
            events.append(StopRequested(at=load.stopped_at, job=spec.id, cause="its user stops it"))
    journal: list[Message] = []
    node = Node(
        NodeId("node"), Resources(cores=jobs.CORES), jobs_at_once=5 if comes or kind.startswith("few places") else 8
    )
    own = {"crashes": {JobId(load.name): 0.5 for load in loads if load.crashes}, "is_disturbed": "disturbed" in kind}
    with patch.object(simulation, "World", type("OwnWorld", (CrowdedWorld,), own)):
        simulation.Simulation(
            drawn, [node], PromisesFirst(), listeners=[journal.append], seed=seed, physics=_PHYSICS, events=events,
            controllers={name: registry.load("controllers", name)() for name in _CONTROLLERS},
            models={"all-reduce": registry.load("models", "all-reduce")()}, end_at=600.0,
        ).run()  # fmt: skip
    return _figures(loads, journal)


def _figures(loads: Iterable[Load], journal: Iterable[Message]) -> dict[str, float]:
    """Return what became of the trainings; a promise that a crash broke does not count as broken."""
    promised, ends, lost, n_plans = dict[JobId, float](), dict[JobId, float](), set[JobId | None](), 0
    for message in journal:
        if isinstance(message, PlanProposed) and message.plan is not None:
            promised |= message.plan.promises or {}
            n_plans += 1
        elif isinstance(message, JobFinished):
            ends[message.job] = message.at
        elif isinstance(message, WarnUser) and message.reason.code.startswith("promise"):
            lost.add(message.job)
    counted = {JobId(load.name): load for load in loads if load.counts()}
    due_at = {id: load.due_at or 0.0 for id, load in counted.items()}
    late = {
        id for id, load in counted.items() if ends.get(id, inf) > due_at[id] + TOLERANCE_FRAC * (load.deadline_s or 0.0)
    }
    kept_to = {id for id, until_at in promised.items() if id in counted and until_at <= due_at[id] + 1e-6}
    took_s = [ends[JobId(load.name)] - load.at for load in loads if JobId(load.name) in ends]
    return {
        "n": len(counted), "n_promised": len(kept_to), "n_broken": sum(not counted[id].crashes for id in kept_to & late),
        "n_lost": len(lost), "n_met": len(counted) - len(late), "weight": sum(load.weight for load in counted.values()),
        "weight_met": sum(load.weight for id, load in counted.items() if id not in late),
        "took_s": sum(took_s) / max(1, len(took_s)), "n_ended": len(took_s), "n_plans": n_plans,
    }  # fmt: skip
