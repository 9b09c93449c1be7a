"""The utility of a completion time."""

from math import e, inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.codec import decode, encode
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.core.utility import Sigmoid

CURVE = Sigmoid(height=80.0, steepness_per_s=0.1, middle_s=100.0)
TIMES_S = st.floats(0, 1e9)


@pytest.mark.parametrize(
    ("completion_s", "utility"),
    [(100.0, 40.0), (110.0, 80 / (1 + e)), (90.0, 80 * e / (1 + e)), (0.0, 80 / (1 + e**-10)), (1e9, 0.0), (inf, 0.0)],
)
def test_the_formula(completion_s: float, utility: float) -> None:
    assert CURVE.at_s(completion_s) == pytest.approx(utility, abs=1e-12)


@given(TIMES_S, TIMES_S, st.floats(0, 10), TIMES_S)
def test_later_is_never_worth_more(one_s: float, other_s: float, steepness: float, middle_s: float) -> None:
    curve = Sigmoid(height=3.0, steepness_per_s=steepness, middle_s=middle_s)
    early_s, late_s = sorted((one_s, other_s))
    assert 0 <= curve.at_s(late_s) <= curve.at_s(early_s) <= 3.0


def test_a_flat_one_still_says_that_never_is_too_late() -> None:
    flat = Sigmoid(height=2.0, steepness_per_s=0.0, middle_s=0.0)
    assert (flat.at_s(1e9), flat.at_s(inf)) == (1.0, 0.0)


@pytest.mark.parametrize(
    "wrong",
    [
        {"height": 0.0}, {"height": inf}, {"height": nan}, {"steepness_per_s": -1.0}, {"steepness_per_s": inf},
        {"middle_s": -1.0}, {"middle_s": nan},
    ],
)  # fmt: skip
def test_refuses_what_is_no_curve(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidSpec, match=next(iter(wrong))):
        Sigmoid(**{"height": 1.0, "steepness_per_s": 1.0, "middle_s": 1.0, **wrong})


def test_a_journal_keeps_it() -> None:
    spec = JobSpec(id=JobId("a"), ceiling=Resources(1.0), utility=CURVE)
    event = JobSubmitted(at=0.0, spec=spec)
    assert decode("JobSubmitted", encode(event)) == event
