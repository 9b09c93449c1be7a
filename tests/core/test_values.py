"""The small values: amounts, specifications, errors."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.ledger import larger
from punctual.core.resources import NOTHING, Resources, largest, resource_names, total

#: Some of the disk rates are so large that their sums are rounded by more than the tolerance of cores.
others = st.dictionaries(st.sampled_from(["disk_mbps", "disk_bytes", "licences"]), st.floats(0, 1e13))
amounts = st.builds(
    Resources, cores=st.floats(0, 1e4), gpus=st.integers(0, 64), memory_bytes=st.integers(0, 2**40), others=others
)
parts = amounts.filter(bool)


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
    # What was so little beside the other that only rounding would tell it is nothing.
    kept = {name for name, amount in one.others if amount > 1e-8 * max(1.0, other.of(name))}
    assert {name: left.of(name) for name in kept} == pytest.approx({name: one.of(name) for name in kept}, rel=1e-4)


@given(part=parts, n=st.integers(1, 40))
def test_so_many_times_a_part_is_what_fits(part: Resources, n: int) -> None:
    amount = part * n
    assert amount.n_times(part) == n
    assert round(amount.ratio_to(part)) == n
    assert total([part] * n).fits_in(amount)
    assert amount.fits_in(total([part] * n))
    assert not (amount + part).fits_in(amount) or part.fits_in(Resources(cores=1e-8))


@given(one=amounts, other=amounts)
@example(one=Resources(others={"disk_mbps": 1e12}), other=Resources(others={"disk_bytes": 1e-5}))
def test_what_fits_comes_first_in_order_of_size(one: Resources, other: Resources) -> None:
    assert one.at_most(other).size <= one.size <= one.at_least(other).size


@given(one=amounts, other=amounts)
def test_a_vector_has_every_kind_in_play(one: Resources, other: Resources) -> None:
    names = resource_names([one, other])
    together = dict(zip(names, (one + other).vector(names), strict=True))
    assert together == pytest.approx({name: one.of(name) + other.of(name) for name in names}, abs=1e-8)
    assert all(dict(largest([one, other]).others)[name] >= amount for name, amount in (*one.others, *other.others))


def test_an_amount_of_a_kind_with_a_name_reads_well_and_lacks_nothing_that_is_not_there() -> None:
    amount = Resources(0.5, 2, others={"network_mbps": 0.0, "disk_mbps": 100.0})
    assert str(amount) == "0.5 cores, 2 GPUs, 100 disk_mbps"
    assert amount == Resources(0.5, 2, others=(("disk_mbps", 100.0),))
    assert len({amount, Resources(0.5, 2, others={"disk_mbps": 100.0})}) == 1
    assert not amount.fits_in(Resources(8, 8))
    assert (Resources(8, 8).n_times(amount), Resources(8, 8, others={"disk_mbps": 250.0}).n_times(amount)) == (0, 2)
    assert repr(Resources(1)) == "Resources(cores=1, gpus=0, memory_bytes=0)"
    assert eval(repr(amount)) == amount


@pytest.mark.parametrize("name", ["", "disk mbps", "gpus", "memory_bytes", "2nd_disk", "disk-mbps"])
def test_the_name_of_a_kind_is_checked(name: str) -> None:
    with pytest.raises(InvalidSpec, match="letters, digits and `_`") as caught:
        Resources(others={name: 1.0})
    assert all([caught.value.must, caught.value.got, caught.value.where, caught.value.remedy])


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
    with pytest.raises(InvalidSpec, match="must be finite and not negative"):
        Resources(others={"disk_mbps": amount})


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
