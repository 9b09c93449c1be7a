"""Some of the faults of ``bench/service_faults.py``: SIGKILL for a service and its helpers when a given message comes."""

import pytest
from service_faults import KINDS, Fault, drawn, played


@pytest.mark.parametrize(
    "kinds",
    [
        # Jobs that were accepted, launches that were never done, and processes that nobody has been told of.
        ("at JobSubmitted", "at LaunchJob", "at JobStarted", "kill planner"),
        # A process that failed while nobody steered it is started again; one that looked after it cannot say so.
        ("at ProgressReported", "at JobFailed", "kill keeper", "kill job"),
        # What the journal tells already is not told again, and a new service may be killed as well.
        ("at StopRequested", "at GrantApplied", "at SteeringResumed", "at PlanProposed"),
    ],
)
def test_no_job_is_lost_or_run_twice_and_nothing_is_left(kinds: tuple[str, ...]) -> None:
    faults = [Fault(i, 0, kind) for i, kind in enumerate(kinds)]
    assert played(faults) == []
    assert [fault.faults for fault in faults] == [[]] * len(kinds)
    assert any(fault.has_hit for fault in faults)


def test_every_kind_of_fault_comes_before_any_comes_again() -> None:
    assert sorted(fault.kind for fault in drawn(0, len(KINDS))) == sorted(KINDS)
