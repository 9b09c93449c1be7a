"""The kit finds what it is there to find, and a policy of another distribution goes through it like one of ours."""

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module, invalidate_caches
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from typer.testing import CliRunner

from punctual import registry
from punctual.cli._app import application
from punctual.core.cluster import Snapshot
from punctual.core.job import Allocation, JobView
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.core.reason import Reason
from punctual.core.resources import Resources, total
from punctual.testing.policy_kit import PolicyConformance
from punctual.testing.snapshots import snapshots

FEW = settings(max_examples=100, phases=[Phase.generate], suppress_health_check=list(HealthCheck), derandomize=True)

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-policy.md"


def conformance(policy: type[Any]) -> PolicyConformance:
    def make(self: PolicyConformance) -> Policy:
        made: Policy = policy()
        return made

    return type("Conformance", (PolicyConformance,), {"make": make})()


def checks(kit: PolicyConformance) -> dict[str, Callable[[], None]]:
    return {name: getattr(kit, name) for name in dir(kit) if name.startswith("test_")}


@pytest.fixture
def foreign(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A distribution that was installed beside Punctual: the policy of the how-to guide, word for word."""
    (source,) = re.findall(r"```python\n(# priority_first\.py\n.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    (entry_point,) = re.findall(r"^priority-first = \"(.+)\"$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    (tmp_path / "priority_first.py").write_text(source, encoding="utf-8")
    about = tmp_path / "priority_first-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: priority-first\nVersion: 1.0\n", encoding="utf-8")
    lines = f"[punctual.policies]\npriority-first = {entry_point}\n"
    (about / "entry_points.txt").write_text(lines, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    invalidate_caches()
    monkeypatch.delitem(sys.modules, "priority_first", raising=False)
    return "priority-first"


def test_a_foreign_policy_is_listed(foreign: str) -> None:
    done = CliRunner().invoke(application(["plugins"]), ["plugins", "policies"])
    assert done.exit_code == 0
    assert foreign in done.output
    assert "greatest weight" in done.output


def test_a_foreign_policy_passes_the_kit(foreign: str) -> None:
    policy = registry.load("policies", foreign)
    assert policy is import_module("priority_first").PriorityFirst
    for check in checks(conformance(policy)).values():
        check()


# Each of these policies breaks one promise.


@dataclass(frozen=True, slots=True, kw_only=True)
class Idle:
    """Changes nothing."""

    def allocate(self, snapshot: Snapshot) -> Plan:
        return Plan(revision=snapshot.revision, grants={}, keeps_others=True)


class Mutable:
    def allocate(self, snapshot: Snapshot) -> Plan:
        return Idle().allocate(snapshot)


def changing(change: Callable[[JobView, Snapshot], Allocation | None]) -> type[Any]:
    """A policy that gives each job what `change` says; None: what it has."""

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Changing:
        def allocate(self, snapshot: Snapshot) -> Plan:
            changes = {view.id: change(view, snapshot) for view in (*snapshot.holding, *snapshot.waiting)}
            grants = {id: allocation for id, allocation in changes.items() if allocation is not None}
            reasons = {id: Reason("changes", "because") for id in grants}
            return Plan(revision=snapshot.revision, grants=grants, reasons=reasons, keeps_others=True)

    return Changing


def pausing(view: JobView, snapshot: Snapshot) -> Allocation | None:
    return {} if view.planned else None


def overfilling(view: JobView, snapshot: Snapshot) -> Allocation | None:
    node = snapshot.nodes[-1] if snapshot.nodes else None
    amount = view.spec.worker or view.spec.ceiling
    return {node.id: amount} if node and not view.planned else None


def half_a_worker(view: JobView, snapshot: Snapshot) -> Allocation | None:
    worker = view.spec.worker
    return {node: replace(amount, cores=amount.cores / 2) for node, amount in view.planned.items()} if worker else None


def silent(snapshot: Snapshot) -> Plan:
    plan = changing(lambda view, _: {} if view.spec.preemptible and view.planned else None)().allocate(snapshot)
    return replace(plan, reasons={})


def first_comes_first(snapshot: Snapshot) -> Plan:
    chosen = next((view for view in snapshot.holding if view.spec.preemptible and view.planned), None)
    grants: dict[Any, Allocation] = {chosen.id: {}} if chosen else {}
    reasons = {id: Reason("first", "because") for id in grants}
    return Plan(revision=snapshot.revision, grants=grants, reasons=reasons, keeps_others=True)


def by(allocate: Callable[[Snapshot], Plan]) -> type[Any]:
    return dataclass(frozen=True)(type("By", (), {"allocate": lambda _, snapshot: allocate(snapshot)}))


def with_a_secret(snapshot: Snapshot) -> Plan:
    return Plan(revision=snapshot.revision, grants={}, keeps_others=True, carry=frozenset({1}))


def giving_up(snapshot: Snapshot) -> Plan:
    return Plan(revision=snapshot.revision, grants={}, keeps_others=True, status="infeasible")


def of_yesterday(snapshot: Snapshot) -> Plan:
    return Plan(revision=snapshot.revision - 1, grants={}, keeps_others=True)


def forgetting_to_say_so(snapshot: Snapshot) -> Plan:
    return Plan(revision=snapshot.revision, grants={})


def taking_turns() -> Callable[[Snapshot], Plan]:
    turns = count()

    def allocate(snapshot: Snapshot) -> Plan:
        return Plan(revision=snapshot.revision, grants={}, keeps_others=True, carry=next(turns))

    return allocate


def greedy_for_memory(snapshot: Snapshot) -> Plan:
    snapshot.free.clear()
    return Idle().allocate(snapshot)


@pytest.mark.parametrize(
    ("policy", "check"),
    [
        (changing(pausing), "check_pauses_only_jobs_that_may_be_paused"),
        (changing(overfilling), "check_fits_in_every_node"),
        (changing(half_a_worker), "check_keeps_to_what_each_job_may_have"),
        (by(silent), "check_gives_a_reason_for_each_change"),
        (by(first_comes_first), "check_does_not_depend_on_the_order_of_jobs_that_hold_something"),
        (by(with_a_secret), "check_carries_what_a_journal_can_keep"),
        (by(giving_up), "check_finds_a_plan"),
        (by(of_yesterday), "check_names_only_jobs_that_there_are"),
        (by(forgetting_to_say_so), "check_pauses_only_jobs_that_may_be_paused"),
        (by(taking_turns()), "check_is_deterministic"),
    ],
)
def test_a_broken_promise_is_found(policy: type[Any], check: str) -> None:
    kit = conformance(policy)

    @FEW
    @given(snapshots())
    def find(snapshot: Snapshot) -> None:
        getattr(kit, check)(snapshot, kit.plan(snapshot))

    with pytest.raises((AssertionError, KeyError, TypeError)):
        find()


@pytest.mark.parametrize(
    ("policy", "test"),
    [
        (Idle, "test_one_job_that_fits_gets_something"),
        (Idle, "test_one_job_of_workers_gets_some_of_them"),
        (Mutable, "test_is_a_frozen_dataclass_of_parameters"),
        (by(greedy_for_memory), "test_keeps_its_promises"),
        (by(silent), "test_keeps_its_promises"),
    ],
)
def test_a_broken_promise_fails_its_test(policy: type[Any], test: str) -> None:
    check = getattr(conformance(policy), test)
    if hasattr(check, "hypothesis"):  # without looking for a smaller example of what is found
        kit, inner = check.__self__, check.hypothesis.inner_test
        check = FEW(given(snapshots())(lambda snapshot: inner(kit, snapshot)))
    with pytest.raises((AssertionError, KeyError)):
        check()


_SEEN: set[str] = set()


class EverythingSeen(Exception):
    """No other snapshots are needed."""


@settings(FEW, max_examples=1000)  # what is drawn depends on the modules that are loaded; about 100 are enough
@given(snapshots())
def _look(snapshot: Snapshot) -> None:
    nodes = {node.id: node for node in snapshot.nodes}
    for view in (*snapshot.holding, *snapshot.waiting):
        held = total(view.planned.values())
        sights = {
            "workers on several nodes": view.spec.worker is not None and len(view.planned) > 1,
            "planned and not launched": bool(view.planned) and not view.granted,
            "being paused": bool(view.granted) and not view.planned,
            "paused": view.status == "running" and not view.granted and not view.planned,
            "deadline passed": view.deadline_at is not None and view.deadline_at < snapshot.at,
            "speed known": view.curve is not None,
            "only some counts": len(view.spec.counts) > 1,
            "two kinds of device": len({node.device for node in nodes.values()}) > 1,
            "devices held": held.gpus > 0,
            "room left": any(Resources(gpus=1).fits_in(room) for room in snapshot.free.values()),
        }
        _SEEN.update(name for name, seen in sights.items() if seen)
        if sights.keys() == _SEEN:
            raise EverythingSeen


def test_the_strategy_shows_every_situation() -> None:
    with pytest.raises(EverythingSeen):
        _look()
