"""A job that comes to machines of another kind learns anew how fast it is, and comes back to what it knew."""

from dataclasses import replace

import pytest

from punctual.controllers import _cost
from punctual.controllers.remaining_cost import RemainingCost
from punctual.controllers.two_level import TwoLevel
from punctual.core.cluster import Node
from punctual.core.commands import LaunchJob
from punctual.core.events import Event, JobFinished, Message, NodeJoined, NodeLost
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.protocols import Controller
from punctual.core.resources import Resources
from punctual.estimators.speed.all_reduce import AllReduce as Model
from punctual.policies.promises_first import PromisesFirst
from punctual.policies.proportional import Proportional
from punctual.sim.job import SimJob
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import AllReduceTruth, ByDevice, CoresTruth, SpeedLaw

JOB = JobId("job")
FAST, SLOW = (Node(NodeId(name), Resources(cores=4.0), name) for name in ("fast", "slow"))
MOVED_AT, BACK_AT, DEADLINE_S = 300.0, 600.0, 3600.0
SHARE = JobSpec(
    id=JOB,
    ceiling=Resources(cores=4.0),
    floor=Resources(cores=0.1),
    deadline_s=DEADLINE_S,
    controller="it",
    preemptible=True,
)
WORKERS = replace(
    SHARE,
    ceiling=Resources(cores=4.0),
    floor=Resources(cores=1.0),
    worker=Resources(cores=1.0),
    counts=(1, 2, 3, 4),
    model="model",
)


def law(spec: JobSpec, factor: float) -> SpeedLaw:
    if spec.worker is None:
        return CoresTruth(step_core_s=0.5 * factor, serial_frac=0.0)
    return AllReduceTruth(step_s=0.5 * factor, communication_frac=0.0)


def errors_of_forecasts(
    spec: JobSpec, controller: Controller[object], slowness: float, n_steps: float
) -> dict[float, float]:
    """How wrong the time is that the job is told to need at least, relative, at each instant; it is moved to a slower node, and back."""
    events: list[Event] = [
        NodeJoined(at=MOVED_AT, node=SLOW.id, capacity=SLOW.capacity, device=SLOW.device),
        NodeLost(at=MOVED_AT, node=FAST.id),
        NodeJoined(at=BACK_AT, node=FAST.id, capacity=FAST.capacity, device=FAST.device),
        NodeLost(at=BACK_AT, node=SLOW.id),
    ]
    truth = ByDevice({"fast": law(spec, 1.0), "slow": law(spec, slowness)}, law(spec, 1.0))
    errors: dict[float, float] = {}

    def listen(message: Message) -> None:
        demand = simulation.scheduler.demand(JOB) if getattr(message, "job", None) == JOB else None
        if demand is None or demand.forecast is None or message.at in errors:
            return
        view = simulation.scheduler.job(JOB)
        left_s = (n_steps - view.done_steps) * 0.5 * (slowness if MOVED_AT <= message.at < BACK_AT else 1.0) / 4.0
        errors[message.at] = (demand.forecast.earliest_finish_s - message.at) / left_s - 1.0

    simulation = Simulation(
        [SimJob(0.0, replace(spec, work_steps=n_steps), truth, n_steps)],
        [FAST],
        Proportional(),
        controllers={"it": controller},
        models={"model": Model()},
        events=events,
        listeners=[listen],
        end_at=BACK_AT + 60.0,
        strict=True,
    )
    simulation.run()
    return errors


def at(errors: dict[float, float], instant: float) -> float:
    return errors[max(known for known in errors if known <= instant)]


@pytest.mark.parametrize(
    ("spec", "controller"), [(SHARE, RemainingCost()), (WORKERS, TwoLevel())], ids=["share", "workers"]
)
def test_the_forecast_is_right_soon_after_a_move_and_at_once_after_the_way_back(
    spec: JobSpec, controller: Controller[object]
) -> None:
    errors = errors_of_forecasts(spec, controller, 3.0, 8000.0)
    before, moved, back = (at(errors, instant) for instant in (MOVED_AT - 1.0, MOVED_AT + 30.0, BACK_AT + 10.0))
    assert before == pytest.approx(0.0, abs=0.03)
    assert moved == pytest.approx(0.0, abs=0.03)
    assert back == pytest.approx(0.0, abs=0.03)


@pytest.mark.parametrize("slowness", [1.0, 1.5])
def test_a_job_whose_node_is_lost_goes_on_at_once_on_a_kind_that_it_does_not_know_and_is_on_time(
    slowness: float,
) -> None:
    events: list[Event] = [
        NodeJoined(at=MOVED_AT, node=SLOW.id, capacity=SLOW.capacity, device=SLOW.device),
        NodeLost(at=MOVED_AT, node=FAST.id),
    ]
    truth = ByDevice({"fast": law(WORKERS, 1.0), "slow": law(WORKERS, slowness)}, law(WORKERS, 1.0))
    launched: list[LaunchJob] = []
    ended: list[JobFinished] = []

    def listen(message: Message) -> None:
        launched.extend([message] if isinstance(message, LaunchJob) else [])
        ended.extend([message] if isinstance(message, JobFinished) else [])

    job = SimJob(0.0, replace(WORKERS, work_steps=8000.0), truth, 8000.0)
    controllers, models = {"it": TwoLevel()}, {"model": Model()}
    Simulation(
        [job], [FAST], PromisesFirst(), controllers=controllers, models=models, events=events, listeners=[listen]
    ).run()
    assert launched[1].at < MOVED_AT + 30.0
    assert ended[0].at <= DEADLINE_S


def test_what_was_seen_elsewhere_gives_way_to_the_first_sample() -> None:
    cost = _cost.first(1.0, 100.0)
    for _ in range(50):
        cost = _cost.updated(cost, 1.0, 10.0, 10.0, 5.0)
    moved = _cost.updated(_cost.elsewhere(cost), 3.0, 10.0, 30.0, 15.0)
    assert moved.now_s == pytest.approx(3.0, rel=0.05)
    assert moved.mean == pytest.approx(3.0, rel=0.05)
