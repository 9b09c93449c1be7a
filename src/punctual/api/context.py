"""Context that routes share: the host, the caller, and the caches."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, aclosing, contextmanager
from functools import partial
from threading import Event, Lock
from typing import TYPE_CHECKING, Annotated

from fastapi import Depends, Request, Response
from starlette.concurrency import iterate_in_threadpool
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from punctual.api.budget_cache import BudgetCache
from punctual.api.guard import Caller
from punctual.api.history_response import N_POINTS_MAX
from punctual.api.limits import Limits, OpenStreams, RequestRate, SingleFlight
from punctual.api.metrics_text import job_metrics
from punctual.api.problems import Refused
from punctual.api.standing import standing_json
from punctual.api.status_json_cache import StatusJsonCache
from punctual.api.tokens import Role
from punctual.client.schema import AnswerBody
from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.daemon.host import Host
from punctual.daemon.run_folder import RunFolder
from punctual.history.job import JobHistory
from punctual.request.words import visible

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

#: Steps of the decision trace that can be asked for.
N_STEPS_MAX = 10_000


_LOG = logging.getLogger(__name__)


class HistoryCache:
    """Histories of some jobs of a run; only new messages of the journal are read. Thread-safe."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._lock = Lock()
        #: History, and number of the first message that was not read for it; the one asked for last is the last.
        self._kept: dict[JobId, tuple[JobHistory, int]] = {}

    @contextmanager
    def of(self, job: JobId) -> Iterator[JobHistory]:
        """Yield the job's history, up to the end of the journal; no other thread has it before the block ends.

        Raises `InvalidSpec` where the journal cannot be read.
        """
        with self._lock:
            with self._run.read_journal() as journal:
                begun = self._kept.pop(job, None)
                history, sequence = begun or (JobHistory(job), journal.period_of(job)[0])
                n_written = journal.last_sequence
                for number, message in journal.read_of([job], sequence):
                    history.take(message)
                    sequence = number + 1
            if history.curves is not None:
                history.curves.thin(N_POINTS_MAX, N_STEPS_MAX)
            # The messages about other jobs are not looked through again either.
            self._kept[job] = history, max(sequence, n_written + 1)
            # Histories that are kept, the last ones requested.
            if len(self._kept) > 32:
                del self._kept[next(iter(self._kept))]
            yield history


class ServiceContext:
    """A host, and its service's caches.

    * `limits`: limits on its callers; `streams`, `rate`: what they use of them.
    * `is_closing`: set once streams must end.
    * `standings`, `metrics`: cached texts of each job: as JSON, and as lines of metrics.
    * `histories`: cached histories of jobs.
    * `budget`: cache of cores held by each job over time.
    * `what_ifs`: turns of callers to simulate other policies.
    * `submitting`: held while a request with a key is answered: the second of two with one key waits for the first.
    * `tracer`: makes a span of each request; None: none is made.
    """

    def __init__(self, host: Host, limits: Limits, tracer: "Tracer | None" = None) -> None:
        self.host, self.limits, self.tracer = host, limits, tracer
        self.streams, self.rate = OpenStreams(limits), RequestRate(limits)
        self.is_closing = Event()
        self.standings = StatusJsonCache(host, partial(standing_json, host))
        self.metrics = StatusJsonCache(host, job_metrics)
        self.histories, self.budget = HistoryCache(host.run_folder), BudgetCache(host.run_folder)
        self.what_ifs, self.submitting = SingleFlight(), Lock()

    def status(self, name: str) -> JobStatus:
        """Return the job's status; raises `Refused` if there is no job of that name."""
        if not self.host.knows(JobId(name)):
            raise Refused(404, f"there is no job '{visible(name[:64])}'; `GET /v1/jobs` lists those that there are")
        return self.host.status(JobId(name))

    def check_takes_changes(self) -> None:
        """Raise `Refused` if the host is leaving, or another process has its jobs."""
        if not self.host.takes_changes:
            raise Refused(503, "the host is just leaving; jobs go on, and nothing was changed", {"Retry-After": "1"})


def note_change(caller: Caller, what: str) -> None:
    """Log a change and the caller who made it."""
    _LOG.info("%s, by %s", visible(what), caller)


def json_answer(body: bytes, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Wrap an encoded answer: the framework does not check it again."""
    return Response(body, code, headers=headers, media_type="application/json")


def encoded(answer: AnswerBody, code: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Encode an answer."""
    return json_answer(answer.model_dump_json(by_alias=True).encode(), code, headers)


async def _context(request: Request) -> ServiceContext:
    context: ServiceContext = request.app.state.context
    return context


def _role(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    async def caller_of(request: Request) -> Caller:
        caller: Caller = request.state.caller
        if not caller.may(role):
            raise Refused(403, f"the role '{role}' is needed, and this token has '{caller.role}'")
        return caller

    return caller_of


Context = Annotated[ServiceContext, Depends(_context)]
Viewer = Annotated[Caller, Depends(_role("viewer"))]
Submitter = Annotated[Caller, Depends(_role("submitter"))]
Operator = Annotated[Caller, Depends(_role("operator"))]


class CountedStream(StreamingResponse):
    """A stream that counts as open until it has ended in any way; raises `Refused` if there are too many.

    `close` is called then, and also where the stream is refused or nothing of it is sent.
    """

    def __init__(
        self,
        pieces: AsyncGenerator[bytes, None],
        context: ServiceContext,
        caller: Caller,
        media_type: str,
        close: Callable[[], None] = lambda: None,
    ) -> None:
        if not context.streams.has_room(caller.name):
            close()
            raise Refused(429, "too many streams are open", {"Retry-After": "5"})
        super().__init__(pieces, media_type=media_type)
        self._pieces, self._context, self._caller, self._close = pieces, context, caller, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with ExitStack() as ending:
            ending.callback(self._close)
            ending.enter_context(self._context.streams.counted(self._caller.name))
            async with aclosing(self._pieces):
                if "is_head" in scope:
                    self.body_iterator = iterate_in_threadpool(())
                await super().__call__(scope, receive, send)
