"""Route of a job's output: all of it, a range, or a stream."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator
from contextlib import suppress
from math import inf
from queue import Empty, Full, Queue
from threading import Event
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query
from pydantic import AwareDatetime
from starlette.background import BackgroundTask
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from punctual.api.context import Context, CountedStream, ServiceContext, Viewer
from punctual.api.problems import Refused, answers
from punctual.core.ids import JobId
from punctual.daemon.log_snapshot import PIECE_BYTES, LogSnapshot
from punctual.request.submission import check_name

router = APIRouter(tags=["jobs"])

MEDIA_TYPE = "text/plain"
#: Seconds between two looks for more output, and whether the job has ended.
_POLL_INTERVAL_S = 0.1

_TEXT: dict[str, Any] = {"content": {MEDIA_TYPE: {"schema": {"type": "string"}}}}
_LOG_ANSWERS: dict[int | str, dict[str, Any]] = {
    200: {"description": "All that is kept, or as it comes", **_TEXT},
    206: {"description": "The range", **_TEXT},
}


@router.get("/jobs/{job}/logs", response_class=Response, responses={**answers(404, 410, 416), **_LOG_ANSWERS})
async def logs(
    job: str,
    context: Context,
    caller: Viewer,
    stream: Annotated[
        Literal["stdout", "stderr"], Query(description="`stderr` is empty where both go into one log.")
    ] = "stdout",
    follow: Annotated[bool, Query(description="Go on until the job has ended; ignores a range.")] = False,
    since: Annotated[
        AwareDatetime | None,
        Query(description="Only what was written from then on, to a second or some lines; a range goes before it."),
    ] = None,
    range: Annotated[str | None, Header(max_length=64, description="`bytes=0-999`, `bytes=-1000`.")] = None,
) -> Response:
    """Return the job's output; a full log drops its oldest part, and ranges then refer to the rest."""
    status = context.status(job)
    check_name(status.id)
    if status.ended and status.id in await run_in_threadpool(context.host.run_folder.removed_jobs):
        raise Refused(410, "its output was removed (`punctual clean`)")
    of_errors, since_s = stream == "stderr", None if since is None else since.timestamp()
    if follow:
        return CountedStream(_followed(context, status.id, of_errors, since_s), context, caller, MEDIA_TYPE)
    kept = await run_in_threadpool(LogSnapshot, context.host.log(status.id, of_errors=of_errors))
    chosen = _range(range, kept.n_bytes)
    if chosen is None:
        kept.close()
        raise Refused(416, "there is nothing in this range", {"Content-Range": f"bytes */{kept.n_bytes}"})
    begin, end = chosen
    if range is None and since_s is not None:
        begin = min(end, await run_in_threadpool(kept.n_bytes_before, since_s))
    headers = {"Content-Length": str(end - begin), "Accept-Ranges": "bytes"}
    is_part = range is not None and _RANGE.fullmatch(range) is not None
    if is_part:
        headers["Content-Range"] = f"bytes {begin}-{end - 1}/{kept.n_bytes}"
    status_code = 206 if is_part else 200
    if end - begin <= PIECE_BYTES:
        return Response(b"".join(kept.pieces(begin, end)), status_code, headers, MEDIA_TYPE)
    closing = BackgroundTask(kept.close)  # also where nothing of it is sent: the caller may have gone
    return StreamingResponse(kept.pieces(begin, end), status_code, headers, MEDIA_TYPE, closing)


_RANGE = re.compile(r"bytes=(\d{1,18})?-(\d{1,18})?(?<!=-)")


def _range(text: str | None, n_bytes: int) -> tuple[int, int] | None:
    """Return a range's first byte and the one behind its last; the whole if `text` has no valid range; None: empty."""
    told = _RANGE.fullmatch(text or "")
    if told is None:
        return 0, n_bytes
    if told[1] is None:
        begin, end = max(0, n_bytes - int(told[2])), n_bytes
    else:
        begin, end = int(told[1]), n_bytes if told[2] is None else min(n_bytes, int(told[2]) + 1)
    return (begin, end) if begin < end else None


# Following.


async def _followed(
    context: ServiceContext, job: JobId, of_errors: bool, since_s: float | None
) -> AsyncGenerator[bytes, None]:
    # Pieces that a slow reader may leave unread; then no more is read for it.
    pieces: Queue[bytes] = Queue(16)
    is_over, has_ended, give_up_at = Event(), False, inf

    def receive(piece: bytes) -> None:
        if since_s is not None and time.time() < since_s:
            return
        while not is_over.is_set():
            with suppress(Full):
                pieces.put(piece, timeout=_POLL_INTERVAL_S)
                return

    tail = context.host.tail(job, receive, of_errors=of_errors, since_s=since_s)
    try:
        while True:
            is_closing = context.is_closing.is_set()
            has_ended = has_ended or context.host.has_ended(job) or not context.host.knows(job)
            if is_closing and not has_ended:  # the reader is to know that there is more
                raise ConnectionAbortedError("the service ends before the job")
            if has_ended:
                # Seconds that a reader may take for the last output once the job has ended.
                give_up_at = min(give_up_at, time.monotonic() + (1.0 if is_closing else 60.0))
            # Asked first: nothing comes after that.
            is_last = has_ended and (tail.finish(0.0) or time.monotonic() >= give_up_at)
            with suppress(Empty):
                while True:
                    yield pieces.get_nowait()
            if is_last:
                return
            await asyncio.sleep(_POLL_INTERVAL_S)
    finally:
        is_over.set()
        tail.stop()
