"""The small values: amounts, specifications, errors."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.ledger import larger
from punctual.core.resources import NOTHING, Resources, total

amounts = st.builds(Resources, cores=st.floats(0, 1e4), gpus=st.integers(0, 64), memory_bytes=st.integers(0, 2**40))


@given(one=amounts, other=amounts)
def test_the_larger_holds_both_and_the_smaller_fits_in_both(one: Resources, other: Resources) -> None:
    assert one.fits_in(one.at_least(other))
    assert other.fits_in(one.at_least(other))
    assert one.at_most(other).fits_in(one)
    assert one.at_most(other).fits_in(other)


@given(one=amounts, other=amounts)
def test_taking_away_what_was_added_leaves_what_was_there(one: Resources, other: Resources) -> None:
    left = (one + other) - other
    assert left.cores == pytest.approx(one.cores, abs=1e-9, rel=1e-6)
    assert (left.gpus, left.memory_bytes) == (one.gpus, one.memory_bytes)


def test_a_deficit_is_not_an_amount() -> None:
    assert Resources(cores=1) - Resources(cores=2, gpus=1) == NOTHING
    assert not NOTHING


def test_total_of_many() -> None:
    assert total([Resources(cores=0.5), Resources(gpus=1)]) == Resources(cores=0.5, gpus=1)


def test_larger_joins_nodes() -> None:
    a, b = NodeId("a"), NodeId("b")
    one, other = {a: Resources(cores=1)}, {a: Resources(cores=0.5, gpus=1), b: Resources(cores=2)}
    assert larger(one, other) == {a: Resources(cores=1, gpus=1), b: Resources(cores=2)}


@pytest.mark.parametrize("amount", [float("nan"), float("inf"), -1.0])
def test_an_amount_is_finite_and_not_negative(amount: float) -> None:
    with pytest.raises(InvalidSpec, match="must be finite and not negative"):
        Resources(cores=amount)


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("id", "", "`id` must not be empty"),
        ("work_steps", 0, "`work_steps` must be above zero"),
        ("deadline_s", -3.0, "`deadline` must be later than the submission"),
        ("deadline_s", float("inf"), "`deadline` must be later"),
        ("ceiling", NOTHING, "`ceiling` must not be empty"),
        ("floor", Resources(cores=9), "`floor` must fit in `ceiling`"),
        ("weight", 0.0, "`weight` must be above zero"),
        ("margin_frac", 0.7, "`margin` must be from 0"),
    ],
)
def test_a_bad_specification_says_four_things(field: str, value: Any, words: str) -> None:
    fields: dict[str, Any] = {"id": JobId("resnet-7"), "ceiling": Resources(cores=2), field: value}
    with pytest.raises(InvalidSpec, match=words) as caught:
        JobSpec(**fields)
    assert all([caught.value.must, caught.value.got, caught.value.where, caught.value.remedy])
    assert "job '" in str(caught.value)
