"""The experiment `optimus`: its parts, on a few jobs."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.policies.pictures import decide, job

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.plan import Plan
from punctual.papers.optimus import experiment as optimus
from punctual.papers.reproduction import load, names


def test_it_is_found_by_its_name() -> None:
    assert "optimus" in names()
    assert load("optimus") is optimus.run


def test_a_run_is_its_seed() -> None:
    one, same, other = (optimus.simulated("optimus", seed, "", n_jobs=4) for seed in (0, 0, 1))
    assert one == same != other
    assert 0 < one.overhead_frac < 0.1
    assert one.jct_s < one.makespan_s


def test_it_is_faster_than_one_worker_and_one_server_for_everyone() -> None:
    ours, theirs = (
        optimus.simulated(name, 0, "", n_jobs=4, n_most=n_most) for name, n_most in [("optimus", 16), ("tetris", 1)]
    )
    assert ours.jct_s < 0.8 * theirs.jct_s


def test_wrong_declarations_change_the_outcome_but_not_the_work() -> None:
    right, wrong = (optimus.simulated("optimus", 0, "", n_jobs=4, rule={"size_sigma": sigma}) for sigma in (0.0, 0.5))
    assert right != wrong
    assert wrong.jct_s == pytest.approx(right.jct_s, rel=0.5)


def test_parameters_of_unbalanced_servers_pile_up_on_one() -> None:
    shares = optimus.busiest_frac(4)
    assert shares[0] == 1.0
    assert all(1 / n < share < 2 / n for n, share in enumerate(shares[1:], 2))
    assert sum(optimus.blocks_of_resnet()) == pytest.approx(25.5e6, rel=0.01)


def test_what_stays_on_a_node_makes_jobs_faster_and_a_busy_server_slower() -> None:
    placed, plain, unbalanced = (
        optimus.simulated("optimus", 0, "", n_jobs=4, rule=rule).jct_s
        for rule in ({"placed": True}, {}, {"busiest_frac": optimus.busiest_frac()})
    )
    assert placed < plain < unbalanced


@pytest.mark.parametrize("drop", [0.01, 0.03, 0.05])
def test_a_curve_converges_where_the_work_ends(drop: float) -> None:
    curve = optimus.Curve.reaching(1000.0, drop)
    epoch = curve.goal.epoch_steps

    def falls(at: float) -> float:
        return curve.loss(at - epoch / 2) - curve.loss(at + epoch / 2)

    assert curve.loss(0.0) == pytest.approx(1.1)
    assert falls(1000.0) == pytest.approx(drop, rel=0.15)
    assert falls(1000.0 - 2 * epoch) > drop > falls(1000.0 + 2 * epoch)


class Recording:
    """Keeps the lengths that it is shown."""

    def __init__(self) -> None:
        self.seen: dict[str, float | None] = {}

    def allocate(self, snapshot: Snapshot) -> Plan:
        self.seen = {str(view.id): view.spec.work_steps for view in snapshot.jobs}
        return Plan(revision=snapshot.revision, grants={})


def test_lengths_are_guessed_first_and_learned_later() -> None:
    recording = Recording()
    curve, id = optimus.Curve.reaching(1000.0, 0.02), JobId("a")
    policy = optimus.Guessing(
        recording, registry.load("convergence", "inverse-power")(), {id: curve}, {id: 2500.0}, seed=0
    )
    view = job("a", 1, steps=1000.0)
    decide(policy, [view], {"n": 1})
    assert recording.seen == {"a": 2500.0}
    decide(policy, [replace(view, done_steps=700.0)], {"n": 1})
    assert recording.seen["a"] == pytest.approx(1000.0, rel=0.2)


def test_lengths_learned_from_losses_lead_to_an_end() -> None:
    found = optimus.simulated("optimus", 0, "", n_jobs=3, learns_length=True)
    assert found.makespan_s > 0


def test_rows_say_what_was_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = {"optimus": optimus.Outcome(100.0, 1000.0, 0.02), "dominant-share": optimus.Outcome(239.0, 1630.0, 0.1)}
    monkeypatch.setattr(
        optimus, "simulated", lambda name, *_, **__: outcomes.get(name, optimus.Outcome(150.0, 1100.0, 0.0))
    )
    found = optimus.run(quick=True, seeds=2, data=tmp_path)
    by_name = {row.what: row for row in found.rows}
    fair = by_name["mean completion time, dominant-share over optimus"]
    assert (fair.published, fair.obtained) == (2.39, pytest.approx(2.39))
    assert fair.ratio == pytest.approx(1.0)
    assert by_name["makespan, dominant-share over optimus"].obtained == pytest.approx(1.63)
    assert by_name["time lost in restarts, %"].obtained == pytest.approx(2.0)
    assert "one assumed law" in found.note
    assert "config_speed.txt" in found.note
