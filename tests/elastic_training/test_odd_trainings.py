"""Trainings that change more than weights, or leave their epochs, beside the same ones undisturbed."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic_training import odd_trainings
from tests.elastic_training.odd_trainings import ODD
from tests.elastic_training.stage import Script, play

from punctual.channel import Fault, ProgramState, SharedBlock
from punctual.elastic_training.agent_client import NoAgent
from punctual.elastic_training.context import Context

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", ODD)
def test_what_a_script_changes_in_its_model_is_the_same_in_workers_that_come_later(name: str) -> None:
    weights, notes = odd_trainings.train(Context(NoAgent()), name)
    limit = 0.0 if ODD[name].deterministic else 1e-5
    for theirs, their_notes in play(Script(2, [(3, 1), (7, 3)]), odd_trainings.train, name):
        assert their_notes == notes
        assert theirs.keys() == weights.keys()
        assert all(float((theirs[key] - tensor).abs().max()) <= limit for key, tensor in weights.items())


def same(left: Any, right: Any) -> bool:
    return left[1] == right[1] and left[2].items() <= right[2].items() and all(map(torch.equal, left[0], right[0]))


def test_a_worker_that_comes_after_a_break_skips_the_rest_of_the_epoch_too() -> None:
    expected = odd_trainings.leave_epochs(Context(NoAgent()))
    assert expected[1] == 12
    outcomes = play(Script(2, [(3, 3)]), odd_trainings.leave_epochs, None, True)
    assert all(same(outcome, expected) for outcome in outcomes)


def test_a_checkpoint_after_a_break_begins_with_the_next_epoch(tmp_path: Path) -> None:
    expected = odd_trainings.leave_epochs(Context(NoAgent()))
    odd_trainings.leave_epochs(Context(NoAgent()), str(tmp_path), ends_at=2)
    assert same(odd_trainings.leave_epochs(Context(NoAgent()), str(tmp_path)), expected)


def test_the_steps_of_epochs_that_differ_in_length_are_declared_as_they_come(page: SharedBlock) -> None:
    assert odd_trainings.change_lengths(Context(NoAgent())) == 2 + 10 + 4
    declaration = page.declaration()
    assert (declaration.total_steps, declaration.state) == (16, ProgramState.LANDED)
    assert declaration.fault == Fault.NONE


def test_the_steps_of_epochs_that_are_left_are_not_missing(page: SharedBlock) -> None:
    odd_trainings.leave_epochs(Context(NoAgent()))
    declaration = page.declaration()
    assert (declaration.total_steps, declaration.state) == (12, ProgramState.LANDED)


def test_random_samples_of_an_evaluation_belong_to_the_virtual_rank_and_change_no_other_numbers() -> None:
    expected = odd_trainings.evaluate_noise(Context(NoAgent()))
    assert len(set(expected[1])) == 4
    assert play(Script(3), odd_trainings.evaluate_noise) == [expected] * 3


@pytest.mark.parametrize("n_samples", [12, 36])
def test_a_checkpoint_of_smaller_batches_goes_on_with_the_next_sample(n_samples: int, tmp_path: Path) -> None:
    before = odd_trainings.stop_and_go_on(str(tmp_path), 12, ends_at=6)
    assert len(before) == 72
    after = odd_trainings.stop_and_go_on(str(tmp_path), n_samples)
    assert sorted(before + after) == list(range(96))
