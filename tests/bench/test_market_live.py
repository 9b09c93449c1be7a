"""Figures of a live landing, from its messages; and the same landing in the simulated world."""

import pytest

pytest.importorskip("_market_live")

from _market_live import figures_of, simulated_usd

from punctual.cli._demo_market import Scene
from punctual.core.commands import ReleaseMachines, ResizeJob
from punctual.core.events import (
    GrantApplied,
    JobStarted,
    JobSubmitted,
    MachinesAsked,
    Message,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources

JOB, CORE = JobId("demo"), Resources(1.0)
A, B, C, D = (NodeId(f"spot-{i}") for i in range(4))


def steps(at: float, n: float) -> ProgressReported:
    return ProgressReported(at=at, job=JOB, steps_done=n, steps_total=100.0, unit_at=at, used_core_s=0.0)


def test_figures_are_those_of_the_messages() -> None:
    messages: list[Message] = [
        JobSubmitted(at=0.0, spec=JobSpec(id=JOB, ceiling=CORE * 3)),
        MachinesAsked(at=0.0, pool="spot", nodes=(A, B, C)),
        NodeJoined(at=9.0, node=A, capacity=CORE),
        JobStarted(at=10.0, job=JOB, request=1, granted={A: CORE}),
        steps(16.0, 2), steps(20.0, 4),
        NodeJoined(at=17.0, node=B, capacity=CORE), NodeJoined(at=18.0, node=A, capacity=CORE),
        ResizeJob(at=17.5, job=JOB, request=2, grant={A: CORE, B: CORE}, reason=Reason("r", "r")),
        GrantApplied(at=20.0, job=JOB, request=2, granted={A: CORE, B: CORE}),
        steps(21.0, 5), steps(25.0, 9), steps(26.0, 8),
        NodeNoticed(at=30.0, node=A, ends_at=35.0), NodeLost(at=31.0, node=B), NodeLost(at=35.0, node=A),
        ReleaseMachines(at=36.0, pool="spot", nodes=(C,)), NodeLost(at=36.0, node=C),
        MachinesAsked(at=40.0, pool="on-demand", nodes=(D,)),
    ]  # fmt: skip
    found = figures_of(messages, step_s=2.0)
    assert found["startups_s"] == {"spot": [9.0, 17.0, 13.0], "on-demand": [13.0]}, (
        "the mean for those that did not join"
    )
    assert found["change_s"] == 2.5
    assert found["launch_s"] == 4.0, "the first step itself takes two seconds"
    assert found["rates_sps"] == {1: 0.5, 2: 1.0}
    assert (found["n_noticed"], found["n_unnoticed"], found["n_redone"]) == (1, 1, 1.0)


def test_the_simulated_bill_depends_on_the_starts_that_machines_take() -> None:
    scene = Scene()
    declared, _ = simulated_usd(scene)
    starts = [scene.startup_s]
    assert simulated_usd(scene, {"spot": starts, "on-demand": starts})[0] == pytest.approx(declared)
    assert simulated_usd(scene, {"spot": [3 * scene.startup_s], "on-demand": starts})[0] > declared
    assert simulated_usd(scene, None, launch_s=10.0)[0] > declared
    assert simulated_usd(scene, None, change_s=10.0)[0] > declared
    assert simulated_usd(scene, None, rates_sps={3: 0.8 * 3 / scene.step_s})[0] > declared
