"""Notices: which changes of a job are told, and once each."""

from dataclasses import replace

import pytest
from tests.core.test_verdict import FAILED, LANDED, STATUS, STOPPED, TURNED_AWAY, expecting

from punctual.api.notices import NoticeKind, kind_of, notices
from punctual.core.ids import JobId
from punctual.core.status import JobStatus

ON_TRACK = expecting(999.0, earliest_s=500.0)
AT_RISK = expecting(999.0, std_s=10.0, earliest_s=990.0)
LATE = expecting(1060.0, earliest_s=1060.0, feasible=False)
STALLED = replace(ON_TRACK, warnings={"stalled": "no step has come for 5 minutes"})


@pytest.mark.parametrize(
    ("status", "kind", "text"),
    [
        (STATUS, None, None),
        (ON_TRACK, None, None),
        (AT_RISK, "at-risk", "a may miss its deadline"),
        (LATE, "late", "a will be late: 1m00s after its deadline"),
        (expecting(float("inf"), earliest_s=float("inf"), feasible=False), "late", "a will be late"),
        (STALLED, "stalled", "a makes no steps any more"),
        (
            replace(FAILED, cause="its program ended with status 1"),
            "failed",
            "a failed: its program ended with status 1",
        ),
        (LANDED, "landed", "a landed 10.0s before its deadline"),
        (replace(LANDED, landed_at=1100.25), "landed", "a landed 250 ms after its deadline"),
        (STOPPED, None, None),
        (TURNED_AWAY, None, None),
    ],
)
def test_a_change_is_told_once(status: JobStatus, kind: NoticeKind | None, text: str | None) -> None:
    assert kind_of(status, 200.0) == kind
    told = [(notice.kind, notice.text) for notice in notices({JobId("a"): None}, [status], 200.0)]
    assert told == ([] if kind is None else [(kind, text)])
    assert list(notices({JobId("a"): kind}, [status], 200.0)) == []


def test_a_job_that_was_not_known_before_makes_no_notice() -> None:
    """A service that starts again tells nothing of what had happened before."""
    assert list(notices({}, [LATE, LANDED], 200.0)) == []


def test_a_deadline_that_has_passed_is_late() -> None:
    assert [notice.text for notice in notices({JobId("a"): "at-risk"}, [AT_RISK], 1101.0)] == [
        "a is late: its deadline has passed"
    ]
