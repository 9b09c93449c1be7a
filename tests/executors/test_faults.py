"""What is said of a job that did not do what it had declared."""

import pytest

from punctual.channel import Fault
from punctual.core.ids import JobId
from punctual.executors.local.ending import found_faults

A = JobId("a")


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"reported": False}, "a job must report its progress"),
        ({"reported": True, "steps_done": 3.0, "steps_total": 5.0}, "must take the 5 steps it declared"),
        ({"reported": True, "steps_done": 7.0, "steps_total": 5.0}, "must not take more steps"),
        ({"reported": True, "faults": {Fault.ZERO_STEPS}}, "at least one step"),
    ],
)
def test_each_fault_has_its_own_words(fields: dict[str, object], words: str) -> None:
    known: dict[str, object] = {"faults": frozenset(), "reported": True, "steps_done": 0.0, "steps_total": None}
    (fault,) = found_faults(A, **(known | fields))  # type: ignore[arg-type]
    assert words in fault.must


def test_a_job_that_did_what_it_said_has_none() -> None:
    assert found_faults(A, faults=frozenset(), reported=True, steps_done=5.0, steps_total=5.0) == []
