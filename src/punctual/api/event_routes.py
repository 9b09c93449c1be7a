"""Route of the journal's messages as server-sent events; each id is the message's number, to continue from."""

import asyncio
import json
from collections.abc import AsyncGenerator, Collection
from time import monotonic
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from punctual.api.context import Context, CountedStream, ServiceContext, Viewer
from punctual.api.problems import answers
from punctual.core import lifecycle
from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.journal.compaction import Row
from punctual.journal.errors import StoreUnreachable
from punctual.journal.sqlite import About, SqliteJournal
from punctual.request.deadlines import Now
from punctual.request.json_text import finite

router = APIRouter(tags=["events"])

MEDIA_TYPE = "text/event-stream"
KINDS = sorted(lifecycle.KINDS.keys() - {"SetTimer"})
#: Told only if they are asked for: there are many, and they say nothing about a job.
UNASKED_KINDS = frozenset({"TimerFired", "RequestPlan", "PlanProposed"})

#: Seconds without an event until a sign of life is sent.
_SILENCE_S = 15.0
_SEQUENCE_MAX = 2**63 - 2

_STREAM: dict[int | str, dict[str, Any]] = {
    200: {"description": "The stream", "content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
}


@router.get("/events", response_class=Response, responses={**answers(404), **_STREAM})
async def events(
    context: Context,
    caller: Viewer,
    job: Annotated[str | None, Query(max_length=64, description="Only what is about this job.")] = None,
    kind: Annotated[
        list[str],
        Query(
            max_length=len(KINDS), description="Only messages of these kinds.", json_schema_extra={"examples": [KINDS]}
        ),
    ] = [],  # noqa: B006 -- FastAPI copies it
    after: Annotated[
        int | None,
        Query(ge=0, le=_SEQUENCE_MAX, description="Begin behind the message of this number; 0: with the first."),
    ] = None,
    last_event_id: Annotated[
        int | None, Header(ge=0, le=_SEQUENCE_MAX, description="The same; what a browser sends by itself.")
    ] = None,
) -> Response:
    """Stream messages as they come, after a given number or, without one or after the last, from now on.

    Timers and most progress reports of long ago are not kept.
    """
    begin_after, n_written = last_event_id if last_event_id is not None else after, context.host.n_written
    begin_after = n_written if begin_after is None else min(begin_after, n_written)
    if job is not None:
        context.status(job)
    if unknown := sorted(set(kind) - set(KINDS)):
        remedy = f"{did_you_mean(unknown[0], KINDS)}The description of `kind` in `/openapi.json` lists them."
        raise InvalidSpec("`kind` must be a kind of message", f"'{unknown[0]}'", "`GET /v1/events`", remedy)
    kinds = frozenset(kind) or frozenset(KINDS) - UNASKED_KINDS
    # Before the answer begins: where the journal cannot be read, that is the answer.
    journal = await run_in_threadpool(context.host.run_folder.read_journal)
    pieces = _event_stream(context, journal, begin_after, job, kinds)
    return CountedStream(pieces, context, caller, MEDIA_TYPE, journal.close)


async def _event_stream(
    context: ServiceContext, journal: SqliteJournal, sequence: int, job: str | None, kinds: Collection[str]
) -> AsyncGenerator[bytes, None]:
    wanted = About(kinds=tuple(kinds))
    # Rows fetched at once.
    n_at_once = 200

    def read(begin: int) -> tuple[list[Row], int]:
        """Read the next rows; return them and the number of the last message examined."""
        n_written = journal.last_sequence
        rows = journal.rows_from(begin, n_at_once, wanted)
        return rows, rows[-1][0] if rows else max(begin - 1, n_written)

    # Milliseconds that a client waits before it connects again.
    yield b"retry: 2000\n\n"
    told_at = monotonic()
    while not context.is_closing.is_set():
        rows: list[Row] = []
        # Seconds of messages that are read together: looking for each alone would cost much of a core.
        wait_s = 0.2
        if context.host.n_written > sequence:
            try:
                rows, sequence = await run_in_threadpool(read, sequence + 1)
            except StoreUnreachable:  # what comes meanwhile is told once it is back
                # A store that is away is asked again after so many seconds.
                wait_s = 1.0
        now = context.host.clocks()
        for number, kind, body in rows:
            if told := _event(number, kind, json.loads(body), job, now):
                yield told
                told_at = monotonic()
        if len(rows) < n_at_once:
            await asyncio.sleep(wait_s)
        if monotonic() >= told_at + _SILENCE_S:  # also where much happens that was not asked for
            yield b": nothing new\n\n"
            told_at = monotonic()


def _event(sequence: int, kind: str, message: dict[str, Any], job: str | None, now: Now) -> bytes:
    """Encode one event; empty if it is not about `job`."""
    about = message.get("job") or message.get("spec", {}).get("id")
    if job is not None and about != job:
        return b""
    told = {
        "sequence": sequence,
        "kind": kind,
        "job": about,
        "time": now.wall_of(message["at"]).isoformat(),
        "message": finite(message),
    }
    return f"id: {sequence}\nevent: {kind}\ndata: {json.dumps(told)}\n\n".encode()
