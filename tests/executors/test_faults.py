"""What is said of a job that did not do what it had declared."""

import pytest

from punctual.channel import Fault
from punctual.core.ids import JobId
from punctual.executors.local.ending import found_faults
from punctual.executors.local.progress import ProgressSample

A = JobId("a")


@pytest.mark.parametrize(
    ("noticed", "sample", "words"),
    [
        (None, ProgressSample(), "a job must report its progress"),
        (None, ProgressSample(unit_at=1.0, steps_done=3.0, steps_total=5.0), "must take the 5 steps it declared"),
        (None, ProgressSample(unit_at=1.0, steps_done=7.0, steps_total=5.0), "must not take more steps"),
        (Fault.ZERO_STEPS, ProgressSample(unit_at=1.0), "at least one step"),
    ],
)
def test_each_fault_has_its_own_words(noticed: Fault | None, sample: ProgressSample, words: str) -> None:
    (fault,) = found_faults(A, set() if noticed is None else {noticed}, sample)
    assert words in fault.must


def test_a_job_that_did_what_it_said_has_none() -> None:
    assert found_faults(A, set(), ProgressSample(unit_at=1.0, steps_done=5.0, steps_total=5.0)) == []
