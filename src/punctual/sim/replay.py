"""Replay the live jobs of a journal under other policies, beside the recorded run and a replay of its own policy."""

import json
import shutil
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from punctual.core.cluster import Node
from punctual.core.commands import RequestPlan
from punctual.core.errors import InvalidSpec
from punctual.core.events import PlanProposed
from punctual.core.lifecycle import about
from punctual.core.protocols import Message
from punctual.history.cluster import ClusterHistory
from punctual.history.decisions import DecisionRecord
from punctual.history.job import JobRecord
from punctual.sim import fingerprint, parts
from punctual.sim.choice import made
from punctual.sim.ideal import Ideal
from punctual.sim.one_run import facts_of
from punctual.sim.physics import Physics
from punctual.sim.recorded import ALWAYS, Period, RecordedLoad, recorded_load
from punctual.sim.result import Failure, Result
from punctual.sim.scenario import PolicyChoice, Scenario
from punctual.sim.simulation import Simulation
from punctual.sim.stored import StoredRun, read_run, write_run
from punctual.sim.study import check_libraries, write_index

#: Name of the row that shows the recorded run.
AS_IT_WAS = "as it was live"
_SAME = ", replayed"
_GIB_BYTES = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Faithfulness:
    """Agreement of the replay of the live policy with the recorded run.

    Attributes
    ----------
    n_landed
        Jobs that landed live and in the replay.
    shift_s
        Median of the absolute difference of their landings, seconds; None: no such job.
    n_with_deadline, n_same
        Jobs among them with a deadline, and those that kept or missed it in both.
    """

    n_landed: int
    shift_s: float | None
    n_with_deadline: int
    n_same: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Replay:
    """Result of a replay.

    Attributes
    ----------
    result
        The recorded run first, then the policy that ran, then the others.
    faithfulness
        None: the policy that ran could not be replayed.
    """

    result: Result
    load: RecordedLoad
    faithfulness: Faithfulness | None


def replay(
    read: Callable[[], Iterable[Message]],
    source: str,
    policy: str,
    others: Sequence[str],
    out: Path,
    *,
    period: Period = ALWAYS,
) -> Replay:
    """Play the jobs of a journal under the policy that ran, and under others.

    Parameters
    ----------
    read
        Reads the messages of the journal from its beginning; the same ones at each call.
    source
        Name of the journal, for the results.
    policy
        The policy that ran; where it was changed, the journal says with which it began.
    others
        Policies as `Scenario` takes them: a name with or without parameters.
    out
        Folder of the results, as of a study.
    period
        Jobs that were submitted in it are played, until they end.

    Raises
    ------
    InvalidSpec
        The journal has no job to replay, the policy is unknown, or a library of the extra `sim` is missing.
    """
    check_libraries()
    load = recorded_load(read(), period)
    _check_playable(load, source)
    first = load.policy_changes[0].before if load.policy_changes else ""
    scenario = _scenario(load, source, first or policy, others)
    studied = _Studied(load, scenario, out)
    live, again, *rest = scenario.policies
    runs = [studied.live(live, read(), period)]
    failures: list[Failure] = []
    for choice in (again, *rest):
        outcome = studied.played(choice, is_live_one=choice is again)
        if isinstance(outcome, Failure):
            failures.append(outcome)
        else:
            runs.append(outcome)
    write_index(out, scenario, tuple(runs))
    result = Result(scenario, tuple(runs), out, tuple(failures))
    return Replay(result=result, load=load, faithfulness=studied.faithfulness())


def _check_playable(load: RecordedLoad, source: str) -> None:
    got = f"{len(load.left_out)} jobs, none of which can be played" if load.left_out else "no jobs"
    got += f", and {load.n_outside} that were not submitted in the time asked for" if load.n_outside else ""
    example = next(iter(load.left_out.items()), None)
    remedy = "Name a journal in which jobs have ended."
    if example is not None:
        remedy = f"'{example[0]}' for example: {example[1]}. {remedy}"
    if not load.jobs:
        raise InvalidSpec("a journal must have jobs whose work is known", got, f"'{source}'", remedy)
    if not load.nodes:
        raise InvalidSpec("a journal must say what the machine had", "no node", f"'{source}'", "Name another journal.")


def _scenario(load: RecordedLoad, source: str, policy: str, others: Sequence[str]) -> Scenario:
    """Return the replay as a study; its first policy stands for the recorded run."""
    ran = " and others" if load.policy_changes else ""
    same = {"name": policy, "label": f"{policy}{ran}{_SAME}"}
    keys = {
        "policies": [{"name": policy, "label": AS_IT_WAS}, same, *others],
        "seeds": [0],
        "trace": {"file": source},
        "cluster": [_group(node) for node in load.nodes],
        "physics": {"startup_s": load.startup_s, "resize_s": load.resize_s, "solver_s": load.solver_s},
    }
    return Scenario.of(keys, "the replay")


def _group(node: Node) -> dict[str, Any]:
    amount = node.capacity
    group = {
        "gpus": int(amount.gpus),
        "cores": amount.cores or None,
        "memory_gib": amount.memory_bytes / _GIB_BYTES or None,
        "device": node.device,
        "jobs_at_once": node.jobs_at_once,
        "others": dict(amount.others),
    }
    return {key: value for key, value in group.items() if value is not None}


class _Studied:
    """Makes the runs of a replay, and keeps what became of each job live and under the policy that ran."""

    def __init__(self, load: RecordedLoad, scenario: Scenario, out: Path) -> None:
        self._load, self._scenario, self._out = load, scenario, out
        self._ideal = Ideal(load.jobs, scenario.cluster)
        self._live: list[JobRecord] = []
        self._again: list[JobRecord] = []

    def live(self, choice: PolicyChoice, messages: Iterable[Message], period: Period) -> StoredRun:
        """Return the recorded run of the replayed jobs, and the plans of `period`."""
        kept = {job.spec.id for job in self._load.jobs}
        record, decisions = ClusterHistory(details=True), DecisionRecord()
        begun_s, n_messages = time.perf_counter(), 0
        for message in messages:
            is_plan = isinstance(message, RequestPlan | PlanProposed)
            if about(message) in kept or (about(message) is None and (not is_plan or period.has(message.at))):
                record.add(message)
                decisions.add(message)
                n_messages += 1
        self._live = record.jobs()
        return self._stored(choice, record, decisions, begun_s, n_messages)

    def played(self, choice: PolicyChoice, *, is_live_one: bool) -> StoredRun | Failure:
        """Return a simulated run of the jobs under a policy."""
        record, decisions = ClusterHistory(details=True), DecisionRecord()
        begun_s, n_messages = time.perf_counter(), 0

        def count(_: Message) -> None:
            nonlocal n_messages
            n_messages += 1

        try:
            self._simulation(choice, (record.add, decisions.add, count), is_live_one=is_live_one).run()
        except InvalidSpec:
            raise
        except Exception as error:  # noqa: BLE001 -- a policy's bug must not cost the runs of the others
            what = f"{type(error).__name__}: {error}"
            return Failure(policy=choice.shown, seed=0, what=what, trace=traceback.format_exc())
        if is_live_one:
            self._again = record.jobs()
        return self._stored(choice, record, decisions, begun_s, n_messages)

    def _simulation(
        self, choice: PolicyChoice, listeners: tuple[Callable[[Message], None], ...], *, is_live_one: bool
    ) -> Simulation:
        load = self._load
        return Simulation(
            load.jobs,
            (),  # they join by events, as they did
            made(parts.policy(choice.name), choice.parameters, f"policies.{choice.name}"),
            controllers=parts.controllers({job.spec.controller for job in load.jobs}),
            models=parts.models({job.spec.model for job in load.jobs}),
            physics=made(Physics, self._scenario.physics, "physics"),
            events=(*load.events, *(load.policy_changes if is_live_one else ())),
            listeners=listeners,
        )

    def _stored(
        self, choice: PolicyChoice, record: ClusterHistory, decisions: DecisionRecord, begun_s: float, n_messages: int
    ) -> StoredRun:
        about_run = {"policy": choice.shown, "seed": 0, "program": fingerprint.of_program()}
        key = fingerprint.of_text(json.dumps([about_run, choice.keys()], sort_keys=True))[:24]
        wall_s = time.perf_counter() - begun_s
        facts = {
            **about_run,
            "key": key,
            **facts_of(record, self._ideal),
            "plans": asdict(decisions.gaps()),
            "cost": {"wall_s": wall_s, "n_messages": n_messages},
        }
        folder = self._out / "runs" / key
        shutil.rmtree(folder, ignore_errors=True)  # of another journal, or of this one when it was shorter
        write_run(folder, facts, record, decisions, "replay")
        stored = read_run(folder)
        assert stored is not None
        return stored

    def faithfulness(self) -> Faithfulness | None:
        """Return the agreement of the live policy's replay with the recorded run; None without such a replay."""
        if not self._again:
            return None
        again = {job.id: job for job in self._again}
        pairs = [(job, again[job.id]) for job in self._live if job.id in again]
        shifts_s, judged = [], []
        for before, after in pairs:
            if before.landed_at is None or after.landed_at is None:
                continue
            shifts_s.append(abs(before.landed_at - after.landed_at))
            if before.on_time is not None and after.on_time is not None:
                judged.append(before.on_time == after.on_time)
        return Faithfulness(
            n_landed=len(shifts_s),
            shift_s=median(shifts_s) if shifts_s else None,
            n_with_deadline=len(judged),
            n_same=sum(judged),
        )
