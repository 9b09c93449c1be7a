"""Workers that come apart, in the script or in what they have: found at once, or at a checkpoint and at the end."""

from pathlib import Path

import pytest
from tests.elastic_training.stage import Script, play
from tests.elastic_training.wayward_trainings import AT_STEP, N_STEPS, PARAMETER, train

from punctual.elastic_training.checkpoint_store import newest
from punctual.elastic_training.member import differences


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    "way",
    ["break", "return", "run.finish", "an evaluation", "an evaluation after an epoch", "the end of the epochs", "a shorter dataset"],
)  # fmt: skip
def test_a_worker_that_goes_another_way_is_told_so_in_words(way: str, deterministic: bool) -> None:
    with pytest.raises(AssertionError) as caught:
        play(Script(2), train, way, deterministic)
    assert "all workers must go the same way through the script" in str(caught.value)
    assert "not from `run.rank` or `run.is_first`" in str(caught.value)


def test_of_three_that_go_apart_one_says_where_it_is() -> None:
    with pytest.raises(AssertionError, match=r"epoch [12], step [0123] \(both from 0\) in worker [012]"):
        play(Script(3), train, "break", False)


@pytest.mark.parametrize("deterministic", [False, True])
@pytest.mark.parametrize(
    ("way", "name"),
    [
        ("weights", f"model/{PARAMETER}"),
        ("the optimizer's state", f"model/{PARAMETER}"),
        ("an average", "extra/average/"),
        ("a setting", "optimizer'"),
    ],
)
def test_what_differs_between_workers_is_found_at_the_end(way: str, name: str, deterministic: bool) -> None:
    with pytest.raises(AssertionError) as caught:
        play(Script(3), train, way, deterministic)
    assert f"for step {N_STEPS}" in str(caught.value)
    assert f"got another '{name}" in str(caught.value).replace("\\", "")
    assert ("in worker 0 than in worker 1" if way == "an average" else "in worker 1 than in worker 0") in str(
        caught.value
    )


def test_what_differs_between_workers_is_found_before_the_next_checkpoint(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=f"'model/{PARAMETER}.* for step {AT_STEP}"):
        play(Script(2), train, "weights", False, str(tmp_path))
    kept = newest(tmp_path)
    assert kept is None or kept.values["position"]["n_steps"] < AT_STEP


@pytest.mark.parametrize("deterministic", [False, True])
def test_workers_that_stay_together_come_to_the_end(tmp_path: Path, deterministic: bool) -> None:
    script = Script(1, [(2, 3), (7, 2), (12, 1)])
    assert play(script, train, "together", deterministic, str(tmp_path)) == [N_STEPS]


def test_a_difference_names_the_tensor_and_who_has_another_one_than_most() -> None:
    usual = {"a": 1, "b": 2}
    assert differences([usual, usual]) == []
    assert differences([usual, {"a": 1, "b": 3}]) == [("b", [1], 0)]
    assert differences([{"a": 0, "b": 2}, usual, usual]) == [("a", [0], 1)]
    assert differences([usual, {"a": 1}, {**usual, "c": 4}]) == [("b", [1], 0), ("c", [2], 0)]
