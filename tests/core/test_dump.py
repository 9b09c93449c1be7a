"""A scheduler that is loaded from what another one dumped; that it goes on in the same way is checked by the machine."""

import pickle
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import pytest
from tests.core.desk import HERE, A, B, Desk, cores, none, only
from tests.core.test_scheduler import Remembers

from punctual import registry
from punctual.core.commands import LaunchJob, WarnUser
from punctual.core.control import PhaseProgress
from punctual.core.events import (
    JobFinished,
    JobSubmitted,
    LossReported,
    NodeJoined,
    PhaseReported,
    SteeringResumed,
    StopRequested,
)
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.loss import LossGoal, SeenLoss
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler

CONTROLLERS = registry.names("controllers")
MODELS = [name for name in registry.names("models") if name != "tabulated"]
WORKER = Resources(cores=0.5)
PLAIN = (bool, int, float, str, bytes, type(None), np.ndarray, np.generic)


def plug_in_of(family: str) -> Any:
    return lambda name: registry.load(family, name)()


def new_scheduler() -> Scheduler:
    return Scheduler(
        plug_in_of("controllers"), models=plug_in_of("models"), convergences=plug_in_of("convergence"), strict=True
    )


def not_plain(value: Any, path: str) -> list[str]:
    """Where `value` holds something else than numbers, text, arrays, containers and dataclasses without methods of a plug-in."""
    if isinstance(value, PLAIN):
        return []
    if isinstance(value, dict):
        return [
            fault
            for key, item in value.items()
            for fault in (*not_plain(key, path), *not_plain(item, f"{path}[{key}]"))
        ]
    if isinstance(value, list | tuple | set | frozenset):
        return [fault for item in value for fault in not_plain(item, f"{path}[]")]
    if is_dataclass(value) and not any(hasattr(value, name) for name in ("init", "step", "update")):
        return [
            fault for field in fields(value) for fault in not_plain(getattr(value, field.name), f"{path}.{field.name}")
        ]
    return [f"{path}: {type(value).__name__}"]


@pytest.mark.parametrize("controller", CONTROLLERS)
@pytest.mark.parametrize("model", MODELS)
def test_what_plug_ins_remember_is_plain(controller: str, model: str) -> None:
    desk = Desk()
    desk.scheduler = new_scheduler()
    desk.tell(NodeJoined(at=0.0, node=HERE, capacity=Resources(cores=2)))
    server = WORKER if model == "parameter-server" else None
    spec = JobSpec(
        id=A, worker=WORKER, server=server, ceiling=Resources(cores=2), deadline_s=100.0, controller=controller,
        model=model, goal=LossGoal(target=0.01),
    )  # fmt: skip
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    desk.started(only(desk.plan({A: cores(1.0)}), LaunchJob))
    phase = PhaseProgress(name="eval", units_planned=3, units_done=1, units_measured=1, core_s=0.1, wall_s=0.1)
    desk.tell(PhaseReported(at=0.5, job=A, phases=(phase,)))
    for n in range(1, 40):
        desk.progress(A, at=float(n), steps=float(n))
        desk.tell(LossReported(at=float(n), job=A, losses=(SeenLoss(n, 1.0 / n),)))
        desk.tick(A, at=float(n))
    dump = desk.scheduler.dump()
    assert not_plain(dump, "dump") == []
    loaded = new_scheduler()
    loaded.load(pickle.loads(pickle.dumps(dump)))
    assert loaded.job(A) == desk.scheduler.job(A)
    assert loaded.demand(A) == desk.scheduler.demand(A)
    assert loaded.forecast(A) == desk.scheduler.forecast(A)


def test_a_plug_in_that_is_not_there_any_more_costs_its_job_the_steering_and_no_more(desk: Desk) -> None:
    desk.scheduler = Scheduler({"scripted": desk.controller}, models={"remembers": Remembers()})
    desk.tell(desk.joined)
    spec = JobSpec(id=A, ceiling=Resources(cores=2), deadline_s=100.0, controller="scripted", model="remembers")
    desk.run(JobId("b"), 1.0)
    desk.tell(JobSubmitted(at=0.0, spec=spec))
    state = desk.scheduler.dump()
    desk.scheduler = Scheduler({})
    desk.scheduler.load(state)
    commands = desk.tell(SteeringResumed(at=1.0, lost_at=1.0, granted={JobId("b"): cores(1.0)}))
    codes = [(command.job, command.reason.code) for command in commands if isinstance(command, WarnUser)]
    assert codes == [("b", "controller-failed"), (A, "controller-failed"), (A, "model-failed")]
    assert only(commands, LaunchJob).job == "b"
    desk.tick(JobId("b"), at=2.0)
    assert desk.scheduler.job(JobId("b")).demand == Resources(cores=2)
    assert none(desk.tell(SteeringResumed(at=3.0, lost_at=3.0, granted={})), WarnUser), "it is told once"


def test_a_job_that_ended_before_it_was_told_of_its_missing_plug_in_is_not_shown_to_policies(desk: Desk) -> None:
    desk.scheduler = Scheduler({"scripted": desk.controller}, models={"remembers": Remembers()})
    desk.tell(desk.joined)
    desk.run(B, 1.0)
    desk.tell(JobSubmitted(at=0.0, spec=JobSpec(id=A, ceiling=Resources(cores=2), controller=None, model="remembers")))
    state = desk.scheduler.dump()
    desk.scheduler = Scheduler({"scripted": desk.controller})
    desk.scheduler.load(state)
    desk.tell(JobFinished(at=0.5, job=A, landed_at=0.5))
    assert none(desk.tell(SteeringResumed(at=1.0, lost_at=1.0, granted={B: cores(1.0)})), WarnUser)
    assert [job.spec.id for job in desk.scheduler.snapshot(1.0).jobs] == [B]


def test_the_last_jobs_to_end_are_remembered() -> None:
    desk = Desk()
    desk.scheduler = Scheduler({"scripted": desk.controller}, n_ended=2)
    desk.tell(desk.joined)
    for n in range(4):
        desk.tell(JobSubmitted(at=0.0, spec=JobSpec(id=JobId(f"job-{n}"), ceiling=Resources(cores=2), controller=None)))
        desk.tell(SteeringResumed(at=0.0, lost_at=0.0, granted={}))
        desk.tell(StopRequested(at=0.0, job=JobId(f"job-{n}"), cause="enough"))
    with pytest.raises(KeyError):
        desk.scheduler.job(JobId("job-1"))
    assert desk.scheduler.job(JobId("job-2")).status == "stopped"
