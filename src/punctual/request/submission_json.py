"""Submissions as events and as JSON."""

import time
from collections.abc import Mapping
from typing import Any

from punctual.core.codec import decode, encode
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.units import span
from punctual.request.submission import Submission, check_plug_ins


def submitted(submission: Submission) -> JobSubmitted:
    """Return the event that announces a submission to the engine."""
    return JobSubmitted(at=submission.submitted_at, spec=submission.spec, program=submission.program, by=submission.by)


def encode_submission(submission: Submission) -> dict[str, Any]:
    """Encode a submission for a request."""
    event = submitted(submission)
    return {
        "submitted": encode(event),
        "inherited": dict(submission.inherited),
        "argv": submission.argv,
        "name": submission.name,
    }


def decode_submission(told: Mapping[str, Any]) -> Submission:
    """Decode a submission that `encode_submission` encoded; raises `InvalidSpec` for an impossible time or an unknown plug-in."""
    event = decode("JobSubmitted", told["submitted"])
    assert isinstance(event, JobSubmitted)
    assert event.program is not None
    if not 0.0 <= event.at <= time.monotonic():
        raise InvalidSpec(
            "a job must be submitted between the start of this machine and now",
            f"{span(event.at)} after its start",
            f"job '{event.spec.id}'",
            "Submit it with `punctual submit`, or over HTTP.",
        )
    check_plug_ins(event.spec)
    argv = told.get("argv")
    return Submission(
        submitted_at=event.at,
        spec=event.spec,
        program=event.program,
        inherited=told["inherited"],
        argv=None if argv is None else tuple(argv),
        name=told.get("name", ""),
        by=event.by,
    )
