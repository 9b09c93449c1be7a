"""Trainings that change more than weights, or leave their epochs, beside the same ones undisturbed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic_training import odd_trainings
from tests.elastic_training.odd_trainings import MEANS, ODD
from tests.elastic_training.stage import Script, play

from punctual.channel import Fault, ProgramState, SharedBlock
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.context import Context

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", ODD)
def test_what_a_script_changes_in_its_model_is_the_same_in_workers_that_come_later(name: str) -> None:
    weights, notes = odd_trainings.train(Context(AgentClient()), name)
    limit = 0.0 if ODD[name].deterministic else 1e-5
    for theirs, their_notes in play(Script(2, [(3, 1), (7, 3)]), odd_trainings.train, name):
        assert their_notes == notes
        torch.testing.assert_close(theirs, weights, rtol=0.0, atol=limit)


def test_samples_that_the_script_draws_for_an_epoch_are_the_same_in_a_worker_that_comes_amid_it() -> None:
    expected = odd_trainings.draw_samples(Context(AgentClient()))
    assert all(
        torch.equal(weight, expected) for weight in play(Script(1, [(4, 2), (8, 3)]), odd_trainings.draw_samples)
    )


@pytest.mark.parametrize("dies_at", [5, 8], ids=["in-an-epochs-first-step", "after-a-comparison"])
def test_a_worker_that_takes_a_dead_ones_place_has_the_loss_and_the_learning_rate(dies_at: int) -> None:
    losses, rates, weight = odd_trainings.follow_the_loss(Context(AgentClient()))
    script = Script(2, replaces=True)
    for theirs, their_rates, their_weight in play(script, odd_trainings.follow_the_loss, dies_at):
        assert theirs == losses[-len(theirs) :]
        assert their_rates == rates[-len(their_rates) :]
        assert torch.equal(their_weight, weight)


def test_a_parameter_that_the_model_sets_by_its_samples_is_found_in_that_step() -> None:
    with pytest.raises(AssertionError, match=r"got another .*model/shift.* for step 1\D"):
        play(Script(2, [(2, 1)]), odd_trainings.initialise)


def same(left: Any, right: Any) -> bool:
    return left[1] == right[1] and left[2].items() <= right[2].items() and all(map(torch.equal, left[0], right[0]))


def test_a_worker_that_comes_after_a_break_skips_the_rest_of_the_epoch_too() -> None:
    expected = odd_trainings.leave_epochs(Context(AgentClient()))
    assert expected[1] == 12
    outcomes = play(Script(2, [(3, 3)]), odd_trainings.leave_epochs, None, True)
    assert all(same(outcome, expected) for outcome in outcomes)


def test_a_checkpoint_after_a_break_begins_with_the_next_epoch(tmp_path: Path) -> None:
    expected = odd_trainings.leave_epochs(Context(AgentClient()))
    odd_trainings.leave_epochs(Context(AgentClient()), str(tmp_path), ends_at=2)
    assert same(odd_trainings.leave_epochs(Context(AgentClient()), str(tmp_path)), expected)


def test_the_steps_of_epochs_that_differ_in_length_are_declared_as_they_come(page: SharedBlock) -> None:
    assert odd_trainings.change_lengths(Context(AgentClient())) == 2 + 10 + 4
    declaration = page.declaration()
    assert (declaration.total_steps, declaration.state) == (16, ProgramState.LANDED)
    assert declaration.fault == Fault.NONE


def test_the_steps_of_epochs_that_are_left_are_not_missing(page: SharedBlock) -> None:
    odd_trainings.leave_epochs(Context(AgentClient()))
    declaration = page.declaration()
    assert (declaration.total_steps, declaration.state) == (12, ProgramState.LANDED)


def test_random_samples_of_an_evaluation_belong_to_the_virtual_rank_and_change_no_other_numbers() -> None:
    expected = odd_trainings.evaluate_noise(Context(AgentClient()))
    assert len(set(expected[1])) == 4
    assert play(Script(3), odd_trainings.evaluate_noise) == [expected] * 3


@pytest.mark.parametrize("n_samples", [12, 36])
def test_a_checkpoint_of_smaller_batches_goes_on_with_the_next_sample(n_samples: int, tmp_path: Path) -> None:
    before = odd_trainings.stop_and_go_on(str(tmp_path), 12, ends_at=6)
    assert len(before) == 72
    after = odd_trainings.stop_and_go_on(str(tmp_path), n_samples)
    assert sorted(before + after) == list(range(96))


@pytest.mark.parametrize(
    ("where", "script", "dies_at"),
    [
        ("before the loop", Script(2, replaces=True), 0),
        ("before each epoch", Script(1, [(4, 2), (8, 3)]), -1),
        ("before each epoch", Script(2, replaces=True), 5),
        ("before each epoch", Script(2, replaces=True), 7),
        ("after each epoch", Script(1, [(5, 2), (10, 3)]), -1),
        ("after each epoch", Script(2, replaces=True), 5),
        ("after each epoch and evaluate", Script(2, replaces=True), 10),
    ],
)
def test_weights_that_a_script_changes_outside_of_steps_are_changed_once_in_a_worker_that_comes(
    where: str, script: Script, dies_at: int
) -> None:
    expected = odd_trainings.shrink_weights(Context(AgentClient()), where)
    outcomes = play(script, odd_trainings.shrink_weights, where, dies_at)
    assert all(torch.equal(outcome, expected) for outcome in outcomes)


@pytest.mark.parametrize("where", ["before the loop", "before each epoch", "after each epoch"])
@pytest.mark.parametrize("ends_at", [5, 7])
def test_weights_that_a_script_changes_outside_of_steps_are_changed_once_from_a_checkpoint_on(
    where: str, ends_at: int, tmp_path: Path
) -> None:
    expected = odd_trainings.shrink_weights(Context(AgentClient()), where)
    with pytest.raises(InterruptedError):
        odd_trainings.shrink_weights(Context(AgentClient()), where, -1, str(tmp_path), ends_at)
    assert torch.equal(odd_trainings.shrink_weights(Context(AgentClient()), where, -1, str(tmp_path)), expected)


@pytest.mark.parametrize("ends_at", [0, 5, 10])
@pytest.mark.parametrize("n_workers", [1, 2])
def test_weights_that_a_script_changes_before_a_checkpoint_are_changed_once(
    ends_at: int, n_workers: int, tmp_path: Path
) -> None:
    expected = odd_trainings.shrink_and_save(Context(AgentClient()))
    with pytest.raises(InterruptedError):
        odd_trainings.shrink_and_save(Context(AgentClient()), str(tmp_path), ends_at)
    for outcome in play(Script(n_workers), odd_trainings.shrink_and_save, str(tmp_path)):
        assert torch.equal(outcome, expected)


@pytest.mark.parametrize("kind", MEANS)
def test_a_mean_over_something_else_than_samples_is_the_same_for_any_number_of_workers(kind: str) -> None:
    expected = odd_trainings.weigh_losses(Context(AgentClient()), kind)
    for outcome in play(Script(3), odd_trainings.weigh_losses, kind):
        torch.testing.assert_close(outcome, expected, rtol=0.0, atol=1e-5)
