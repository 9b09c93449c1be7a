"""Every registered controller of ours runs the conformance kit, and lands the trainings of the plants."""

from dataclasses import replace
from typing import Any

import pytest

from punctual import registry
from punctual.core.protocols import Controller
from punctual.sim.plants.quota_plant import STEADY, PlantWorld, QuotaRun, Training, run_closed_loop
from punctual.sim.plants.worker_plant import ElasticTraining, WorkerRun, run_elastic
from punctual.testing.controller_kit import ControllerConformance

#: Those that are meant for jobs made of workers.
_OF_WORKERS = {"two-level"}

#: A steady job of 37 core-seconds, so that a minute asks for a little more than half of its core.
_TRAINING = Training(epoch_steps=500)
#: The same made of workers: a minute asks for between one and two of its four.
_ELASTIC = ElasticTraining(epoch_steps=120)


def _conformance(controller: type[Any], *, of_workers: bool) -> type[ControllerConformance]:
    def make(self: ControllerConformance) -> Controller[Any]:
        made: Controller[Any] = controller()
        return made

    members = {"make": make, "of_workers": of_workers, "__module__": __name__}
    return type(f"Test{controller.__name__}", (ControllerConformance,), members)


for _name in registry.names("controllers"):
    _suite = _conformance(registry.load("controllers", _name), of_workers=_name in _OF_WORKERS)
    globals()[_suite.__name__] = _suite


def test_the_published_controllers_are_found() -> None:
    assert {"decor-pi", "proportional-integral"} <= set(registry.names("controllers"))


def _run(name: str, deadline_s: float, **changes: Any) -> QuotaRun | WorkerRun:
    controller = registry.load("controllers", name)()
    world = replace(PlantWorld(noise=STEADY), **changes)
    if name in _OF_WORKERS:
        return run_elastic(controller, _ELASTIC, deadline_s=deadline_s, world=replace(world, can_pace=True))
    return run_closed_loop(controller, _TRAINING, deadline_s=deadline_s, world=world)


@pytest.mark.parametrize("name", registry.names("controllers"))
@pytest.mark.parametrize("deadline_s", [48.0, 60.0, 90.0])
def test_lands_a_training_with_phases_near_its_deadline(name: str, deadline_s: float) -> None:
    moves = () if deadline_s == 60.0 else ((18.0, deadline_s),)
    run = _run(name, 60.0, deadline_changes=moves)
    assert run.deadline_s == deadline_s
    assert abs(run.deviation_frac) < ControllerConformance.landing_frac


@pytest.mark.parametrize("name", registry.names("controllers"))
def test_uses_all_there_is_when_the_deadline_cannot_be_met(name: str) -> None:
    run = _run(name, 15.0 if name in _OF_WORKERS else 25.0)
    assert not run.on_time
    if isinstance(run, WorkerRun):
        assert run.worker_s > 0.9 * run.landed_s * _ELASTIC.counts[-1]
    else:
        assert run.used_core_s > 0.9 * run.landed_s
