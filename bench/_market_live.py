"""Landings of an elastic training on a live market, and the same ones in the simulated world."""

import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path
from statistics import mean
from typing import Any

from _market_simulated import simulated
from _market_windows import Task, zone

from punctual.cli._demo_market import Course, Scene, Stage
from punctual.core.commands import ReleaseMachines
from punctual.core.events import (
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    MachinesAsked,
    Message,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    ProgressReported,
)
from punctual.core.ids import NodeId
from punctual.core.job import MARGIN_FRAC
from punctual.policies.least_cost import LeastCost
from punctual.sim.physics import Physics
from punctual.sim.recorded import recorded_load

#: Names of pools in the simulated world that are others there.
_SIMULATED = {"on-demand": "stays"}


@dataclass(frozen=True)
class Landed:
    """One landing.

    Attributes
    ----------
    startups_s
        Seconds from the order of each machine to its joining, in order, by pool; of those that did not join the mean.
    change_s
        Seconds from a command to change the job's machines until it is in force, as a median: a machine that is left is paid for
        until then.
    launch_s
        Seconds from the start of the job's process to its first step, on average.
    rates_sps
        Steps in a second here, by the number of workers, while it did not change.
    n_noticed, n_unnoticed
        Machines that had a notice, and others that were lost while the job held something there.
    n_redone
        Steps that were done again.
    has_same_weights
        Whether they are those of a run on one machine, to the bit.
    """

    left_s: float
    usd: float
    n_machines: int
    startups_s: dict[str, list[float]]
    change_s: float
    launch_s: float
    rates_sps: dict[int, float]
    n_noticed: int
    n_unnoticed: int
    n_redone: float
    has_same_weights: bool
    load: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def landed(scene: Scene, alone: Path, *, kills: bool) -> Landed:
    """Have the training land on a market of its own; `kills`: one of several machines is taken away without notice.

    `alone`: the weights of a run on this machine.
    """
    import torch

    course, messages, is_killed = Course(scene), list[Message](), False
    with Stage(scene) as stage:
        for message in stage.played():
            if message is None:
                is_late = course.steps_done > scene.n_steps / 3
                if kills and not is_killed and is_late and len(course.there) > 1:
                    stage.kill(list(course.there)[-1])  # the job's own process is on the first
                    is_killed = True
                continue
            messages.append(message)
            course.take(message)
        assert isinstance(course.end, JobFinished), f"it has not landed: {course.end}\n{stage.output()[-3000:]}"
        course.bill.close()
        give_up_at = time.monotonic() + 30.0
        while not (facts := stage.facts()) and time.monotonic() < give_up_at:
            time.sleep(0.1)
        weights, expected = torch.load(stage.folder / "weights"), torch.load(alone)
    n_redone = float((facts.get("workers") or {}).get("n_steps_redone", 0))
    figures = figures_of(messages, scene.step_s)
    return Landed(
        left_s=course.left_s,
        usd=course.bill.total_usd,
        n_machines=course.n_asked,
        has_same_weights=all(torch.equal(expected[name], weights[name]) for name in expected),
        load=os.getloadavg()[0],
        **{**figures, "n_redone": max(n_redone, figures["n_redone"])},
    )


def figures_of(messages: Sequence[Message], step_s: float) -> dict[str, Any]:
    """Return the fields of `Landed` that are read off the messages; `step_s`: seconds of a step on one machine."""
    noticed, unnoticed = _losses(messages)
    return {
        "startups_s": _startups_s(messages),
        "change_s": recorded_load(messages).resize_s,
        "launch_s": _launch_s(messages, step_s),
        "rates_sps": _rates_sps(messages),
        "n_noticed": len(noticed),
        "n_unnoticed": len(unnoticed),
        "n_redone": _n_redone(messages),
    }


def trained_alone(scene: Scene, folder: Path) -> Path:
    """Train on this machine, without waiting, and return the file of the weights."""
    subprocess.run([*scene.program, str(scene.n_steps), "0", str(folder / "checkpoints")], check=True)
    return folder / "weights"


def simulated_usd(
    scene: Scene,
    startups_s: Mapping[str, Sequence[float]] | None = None,
    launch_s: float = 0.0,
    change_s: float = 0.0,
    rates_sps: Mapping[int, float] | None = None,
) -> tuple[float, bool]:
    """Return the bill of the same landing in the simulated world, at the same pace, and whether it is late.

    Parameters
    ----------
    startups_s, launch_s, change_s
        Seconds here that machines take to start, by pool, None: those that are declared; that the job's process takes then; and
        that a change of its machines takes.
    rates_sps
        Steps in a second by the number of workers; None: those that are declared.
    """
    pace = scene.speed
    about = scene.about
    at_pace = zone(scene.trace, scene.n_most, about["spot_price"] * pace, about["on_demand_price"] * pace)
    at_pace = type(at_pace)(
        at_pace.name, at_pace.counts, at_pace.tick_s / pace, at_pace.spot_usd_h, at_pace.certain_usd_h
    )
    declared = {n: n / scene.step_s for n in range(1, scene.n_most + 1)}
    rates = {**declared, **(rates_sps or {})}
    speeds = (0.0, *(rates[n] for n in sorted(declared)))
    task = Task(speeds, scene.n_steps, scene.deadline_s / pace, scene.startup_s)
    i = round(scene.start_s / pace / at_pace.tick_s)
    usd, n_late = simulated(
        at_pace,
        [task],
        i,
        scene.n_most,
        policy=LeastCost(**scene.parameters()),
        margin_frac=MARGIN_FRAC,
        notice_s=scene.notice_s,
        startups_s={_SIMULATED.get(pool, pool): took_s for pool, took_s in (startups_s or {}).items()},
        physics=Physics(startup_s=launch_s, resize_s=change_s),
    )
    return usd, n_late > 0


def _launch_s(messages: Sequence[Message], step_s: float) -> float:
    """Return the mean time from the start of a process to its first step; one that makes no step is left out."""
    launches_s, started, n_workers = list[float](), None, 1
    for message in messages:
        match message:
            case JobStarted(at=at):
                started = at
            case GrantApplied(granted=granted):
                n_workers = max(1, len(granted))
            case JobFailed():
                started = None
            case ProgressReported(unit_at=unit_at, steps_done=steps) if started is not None and steps:
                if unit_at > started:
                    launches_s.append(max(0.0, unit_at - started - step_s / n_workers))
                    started = None
    return mean(launches_s) if launches_s else 0.0


def _startups_s(messages: Sequence[Message]) -> dict[str, list[float]]:
    ordered: dict[NodeId, tuple[str, float]] = {}
    took_s: dict[NodeId, float] = {}
    for message in messages:
        match message:
            case MachinesAsked(at=at, pool=pool, nodes=nodes):
                ordered |= dict.fromkeys(nodes, (pool, at))
            case NodeJoined(at=at, node=node) if node in ordered and node not in took_s:
                took_s[node] = at - ordered[node][1]
    usual_s, by_pool = mean(took_s.values()), dict[str, list[float]]()
    for node, (pool, _) in ordered.items():
        by_pool.setdefault(pool, []).append(took_s.get(node, usual_s))
    return by_pool


def _losses(messages: Sequence[Message]) -> tuple[set[NodeId], set[NodeId]]:
    """Return the machines that had notice, and others that were lost with something of the job on them."""
    noticed, released, unnoticed, held = set[NodeId](), set[NodeId](), set[NodeId](), set[NodeId]()
    for message in messages:
        match message:
            case NodeNoticed(node=node):
                noticed.add(node)
            case ReleaseMachines(nodes=nodes):
                released |= set(nodes)
            case JobStarted(granted=granted) | GrantApplied(granted=granted):
                held = set(granted)
            case NodeLost(node=node) if node in held - noticed - released:
                unnoticed.add(node)
    return noticed, unnoticed


def _n_redone(messages: Sequence[Message]) -> float:
    """Return the steps that were done again, as reported; a process that has just moved reports 0."""
    seen = [message.steps_done for message in messages if isinstance(message, ProgressReported) and message.steps_done]
    return sum(max(0.0, before - after) for before, after in pairwise(seen))


def _rates_sps(messages: Sequence[Message]) -> dict[int, float]:
    """Return the mean rate by the number of workers, over spans in which it stayed the same."""
    spans: dict[int, list[tuple[float, float]]] = {}
    n_workers, before = 0, None
    for message in messages:
        match message:
            case JobStarted(granted=granted) | GrantApplied(granted=granted) if len(granted) != n_workers:
                n_workers, before = len(granted), None
            case ProgressReported(unit_at=unit_at, steps_done=steps) if steps:
                if before is not None and steps > before[1] and n_workers:
                    spans.setdefault(n_workers, []).append((unit_at - before[0], steps - before[1]))
                before = unit_at, steps
    return {n: sum(steps for _, steps in some) / sum(s for s, _ in some) for n, some in spans.items()}
