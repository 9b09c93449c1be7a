"""One JSON object per line on standard output, for machines."""

from collections.abc import Mapping
from typing import Any

from punctual.cli._shown_job import ShownJob
from punctual.cli._streams import write_out
from punctual.core.commands import WarnUser
from punctual.core.events import GrantApplied, JobStarted, ProgressReported, SteeringResumed
from punctual.core.job import JobSpec
from punctual.core.protocols import Message
from punctual.core.recent_messages import NOTICES
from punctual.core.resources import total
from punctual.daemon.status_reader import measured
from punctual.history.user_requests import told_request
from punctual.request.json_text import json_text


def write(kind: str, fields: Mapping[str, Any]) -> None:
    """Write one object; `type` comes first, so that lines can be told apart at a glance."""
    write_out(json_text({"type": kind, **fields}) + "\n")


class JsonLines:
    """Writes an object for each message a machine may follow; `elapsed_s` counts from the start of the command."""

    def __init__(self, job: ShownJob) -> None:
        self._job = job
        self._progress_at = float("-inf")
        self._verb = "started"
        #: Declaration of the job before the next message.
        self._spec: JobSpec | None = None

    def tell(self, message: Message) -> None:
        status = self._job.status()
        told = {"elapsed_s": message.at - status.submitted_at, "job": status.spec.id}
        # Readings come up to ten times a second; a machine that follows needs fewer.
        match message:
            case SteeringResumed():
                self._verb = "resumed"  # the answer to being launched again has all that there is to tell
            case JobStarted():
                fields = {"deadline_s": status.spec.deadline_s, "grant_cores": status.held.cores}
                write(self._verb, {**told, **self._job.facts(), **fields})
            case ProgressReported(at=at) if at - self._progress_at >= 0.5 or message.landed:
                self._progress_at = at
                write("progress", {**told, **measured(status)})
            case GrantApplied(granted=granted):
                why = {"reason": status.reason.text, "code": status.reason.code} if status.reason else {}
                held = {"grant_cores": total(granted.values()).cores, "n_workers": status.n_workers or None}
                write("grant", {**told, **held, **why})
            case WarnUser(reason=reason):
                fields_of_reason = {"code": reason.code, "text": reason.text, "facts": dict(reason.facts)}
                write("notice" if reason.code in NOTICES else "warning", {**told, **fields_of_reason})
            case _ if (request := told_request(message, self._spec)) is not None and not status.ended:
                write(request.kind, {**told, **request.facts, "text": request.text})
        self._spec = status.spec
