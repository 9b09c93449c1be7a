"""Trainings whose number of workers changes, beside the same ones undisturbed in a single process."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic_training import trainings
from tests.elastic_training.stage import Script, play
from tests.elastic_training.trainings import Outcome, Plan

from punctual.channel import BLOCK_VARIABLE, GOAL_VARIABLE, ProgramState, SharedBlock
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.context import Context

#: 1 to 3 to 2 to 1 workers; the third change is at the end of an epoch.
RESIZES = Script(1, [(2, 3), (7, 2), (12, 1)])


pytestmark = pytest.mark.usefixtures("one_thread")


@cache
def undisturbed(plan: Plan) -> Outcome:
    return trainings.train(Context(AgentClient()), plan)


def distance(left: Outcome, right: Outcome) -> float:
    pairs = [(left.tensors[name].double(), tensor.double()) for name, tensor in right.tensors.items()]
    return max(float((mine - other).abs().max()) for mine, other in pairs)


@pytest.mark.parametrize(
    ("script", "death"),
    [
        (RESIZES, None),
        (Script(5), None),
        (Script(3, [(6, 2)]), (1, 4, "step")),  # an epoch's first step is redone
        (Script(2, [(5, 3)]), (0, 7, "step")),  # the first worker dies, in an epoch's last step
        (Script(3), (1, 8, "evaluate")),
    ],
    ids=["resizes", "five", "a-death", "the-first-dies", "in-an-evaluation"],
)
def test_deterministic_training_is_the_same_to_the_last_bit(script: Script, death: tuple[int, int, str] | None) -> None:
    expected = undisturbed(Plan(has_norm=True))
    for outcome in play(script, trainings.train, Plan(has_norm=True, death=death)):
        assert_same(outcome, expected)


def assert_same(outcome: Outcome, expected: Outcome) -> None:
    assert distance(outcome, expected) == 0
    assert outcome.sums == expected.sums[-len(outcome.sums) :]
    assert outcome.rates == expected.rates[-len(outcome.rates) :]
    assert all(expected.losses[i] == loss for i, loss in outcome.losses.items())


@pytest.mark.parametrize("death", [None, (0, 7, "step")], ids=["resizes", "the-first-dies"])
def test_two_optimizers_and_a_schedule_for_each_are_the_same_to_the_last_bit(
    death: tuple[int, int, str] | None,
) -> None:
    expected = undisturbed(Plan(has_norm=True, has_muon=True))
    assert distance(expected, undisturbed(Plan(has_norm=True))) > 0
    for outcome in play(
        Script(2, [(5, 3)]) if death else RESIZES, trainings.train, Plan(has_norm=True, has_muon=True, death=death)
    ):
        assert_same(outcome, expected)


@pytest.mark.parametrize("n_ranks", [3, 5])
def test_as_many_virtual_ranks_as_workers_are_enough_for_that(n_ranks: int) -> None:
    plan = Plan(virtual_ranks=n_ranks, has_norm=True)
    script = Script(1, [(2, n_ranks), (7, 2), (10, n_ranks), (12, 1)])
    outcome, *_ = play(script, trainings.train, plan)
    assert set(outcome.n_workers.values()) == {1, 2, n_ranks}
    assert_same(outcome, undisturbed(plan))


@pytest.mark.parametrize(
    "plan", [Plan(deterministic=False, n_loaders=1), Plan(deterministic=False, fuse=False)], ids=["fused", "not"]
)
def test_by_default_the_results_differ_by_rounding_only(plan: Plan) -> None:
    expected = undisturbed(plan)
    outcome, *_ = play(RESIZES, trainings.train, plan)
    assert set(outcome.n_workers.values()) == {1, 2, 3}
    assert distance(outcome, expected) < 1e-5
    assert outcome.losses == pytest.approx(expected.losses, rel=1e-5)
    assert outcome.rates == expected.rates


def test_every_sample_comes_once_an_epoch() -> None:
    (seen,) = play(RESIZES, trainings.count, 4)
    full, rest = 1 / 32, 1 / (103 - 3 * 32)
    for weights in seen:
        counts = [int(((weights - each).abs() < 1e-6).sum()) for each in (full, rest)]
        assert counts == [96, 7], "each sample leaves its step's share, once"


@pytest.mark.parametrize("declares", [None, 1_000_000], ids=["drifts", "declares-most-steps"])
def test_a_worker_with_other_weights_ends_the_training_and_is_never_taken_over(declares: int | None) -> None:
    """The newcomer takes the weights of whom the agent names, whatever the worker that drifts says of itself."""
    plan = Plan(drifts_at=3, declares=declares)
    with pytest.raises(AssertionError, match=r"another .*model/0\.weight.* in worker 1 than in worker 0"):
        play(Script(2, [(5, 3)]), trainings.train, plan)


@pytest.mark.parametrize("i_call", [1, 5, 12, 16], ids=["before", "in-the-body", "after", "in-the-second-after"])
def test_an_evaluation_is_redone_wherever_a_worker_dies_in_it(i_call: int) -> None:
    expected = trainings.evaluate_within(Context(AgentClient()), None)
    outcomes = play(Script(3), trainings.evaluate_within, (1, i_call))
    assert len(outcomes) == 2
    for made, tensors in outcomes:
        assert made == expected[0]
        assert all(torch.equal(tensor, expected[1][name]) for name, tensor in tensors.items())


@pytest.mark.parametrize(
    ("script", "death"),
    [(RESIZES, None), (Script(2, [(7, 3)]), None), (Script(3, [(6, 2)]), (1, 4)), (Script(2), (0, 5))],
    ids=["resizes", "at-the-goal", "a-death", "the-first-dies"],
)
def test_all_end_where_the_goal_is_reached(tmp_path: Path, script: Script, death: tuple[int, int] | None) -> None:
    page = SharedBlock.create(str(tmp_path / "page"))
    environment = {BLOCK_VARIABLE: str(tmp_path / "page"), GOAL_VARIABLE: "5.0"}
    outcomes = play(script, trainings.fall, environment, death)
    assert [outcome[:2] for outcome in outcomes] == [(7, True)] * len(outcomes)
    assert all(epochs[-1] == 1 for _, _, epochs in outcomes)
    assert page.losses() == (7, [(i + 1, 10.0 - i) for i in range(7)])
    assert (page.declaration().total_steps, page.progress().n_steps, page.declaration().state) == (
        7,
        7,
        ProgramState.LANDED,
    )
    (entry,) = page.phases()
    assert entry.n_units_done == entry.units_planned == 16
    page.close()


@pytest.mark.parametrize(
    ("script", "death"),
    [(RESIZES, None), (Script(2), (0, 6)), (Script(2, [(8, 3)]), (1, 10)), (Script(3), (1, 11))],
    ids=["resizes", "the-first-dies", "with-a-newcomer", "in-the-last-evaluation"],
)
def test_a_loss_of_the_scripts_own_is_trained_to(tmp_path: Path, script: Script, death: tuple[int, int] | None) -> None:
    page = SharedBlock.create(str(tmp_path / "page"))
    environment = {BLOCK_VARIABLE: str(tmp_path / "page"), GOAL_VARIABLE: "2.5"}
    outcomes = play(script, trainings.fall_by_epochs, environment, death)
    assert [outcome[:2] for outcome in outcomes] == [(12, True)] * len(outcomes)  # the middle of 6, 2 and -2
    assert all(found == [6.0, 2.0, -2.0][-len(found) :] for _, _, found in outcomes)
    assert page.losses() == (3, [(4, 6.0), (8, 2.0), (12, -2.0)])
    assert (page.declaration().total_steps, page.progress().n_steps, page.declaration().state) == (
        12,
        12,
        ProgramState.LANDED,
    )
    page.close()


def test_more_workers_than_virtual_ranks_are_refused() -> None:
    with pytest.raises(AssertionError, match="`virtual_ranks` must be at least the number of workers"):
        _: Any = play(Script(9), trainings.train, Plan())
