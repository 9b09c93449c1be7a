"""Planners: run the policy in this process or in a worker process."""

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from queue import SimpleQueue
from threading import Lock, Thread
from typing import Any, Protocol, TypeVar

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.codec import decode, decode_fields
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, PlanProposed
from punctual.core.plan import Plan
from punctual.core.protocols import Policy, Sink
from punctual.core.quoting import Quote, QuoteRequest, refusing_guarantees
from punctual.core.units import span
from punctual.daemon.policy_worker import Channel

T = TypeVar("T")

#: A worker process may take this long to start, in seconds; plans are the fallback's meanwhile.
_START_S_MAX = 60.0
#: Seconds before a worker that was lost is replaced: the first time, and at most; doubled from loss to loss.
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.5, 60.0


class Planner(Protocol):
    """Makes a plan of a snapshot and sends it, or the failure, to `sink` as `PlanProposed`."""

    def request(self, snapshot: Snapshot, sink: Sink) -> None: ...

    def use(self, policy: str, parameters: Mapping[str, Any]) -> None:
        """Plan with this policy from now on; plans that were requested before may not come."""
        ...


class QuotingPlanner(Planner, Protocol):
    """Planner that also makes quotes."""

    def quote(self, request: QuoteRequest, limit_s: float) -> Quote:
        """Return the policy's quote to a waiting thread; plans are made first.

        Raises `QuoteFailed`: there is no answer within `limit_s` seconds.
        """
        ...


class QuoteFailed(Exception):
    """Raised if there is no quote; its text says why."""


class InlinePlanner:
    """Runs the policy at once, in the engine's thread; right for policies that take microseconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        #: A policy object is asked by one thread at a time.
        self._lock = Lock()

    def use(self, policy: str, parameters: Mapping[str, Any]) -> None:
        self._policy = registry.load("policies", policy)(**parameters)

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        with self._lock:
            plan, cause = _allocate(self._policy, snapshot)
        plan = None if plan is None else refusing_guarantees(plan, snapshot)
        sink(PlanProposed(at=snapshot.at, plan=plan, revision=snapshot.revision, cause=cause))

    def quote(self, request: QuoteRequest, limit_s: float) -> Quote:
        del limit_s  # it takes microseconds
        try:
            with self._lock:
                return request.answer(self._policy)
        except Exception as error:
            raise QuoteFailed(f"the policy failed: {type(error).__name__}: {error}") from error


class SwitchingPlanner:
    """Plans for a single job at once; for several, or where machines are asked for, has the policy plan in a worker process.

    With one job there is nothing to share: what it demands it gets from the policy that takes microseconds. The worker
    is started when the second job comes, and stays until another policy is to be used. There is none where that is the
    policy for a single job.

    * `policy`, `parameters`: registered name of the policy for several jobs, and its parameters: plain values.
    * `alone`: registered name of the policy for a single one, which plans also while there is no worker.
    * `now`: clock of snapshots and plans.
    """

    def __init__(
        self,
        policy: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        alone: str = "proportional",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy, self._parameters, self._alone_name = policy, dict(parameters or {}), alone
        self._alone: Policy = registry.load("policies", alone)()
        self._inline = InlinePlanner(self._alone)
        self._together: ProcessPlanner | None = None
        self._now = now
        #: A worker may be begun by the engine's thread, and by one that asks for a quote.
        self._lock = Lock()

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._together is not None:
            self._together.close()

    def use(self, policy: str, parameters: Mapping[str, Any]) -> None:
        with self._lock:
            self.close()
            self._policy, self._parameters, self._together = policy, dict(parameters), None

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        if self._is_simple():
            self._inline.request(snapshot, sink)
        elif (
            len(snapshot.holding) + len(snapshot.waiting) <= 1
            and not snapshot.pools
            and not any(view.spec.guarantee for view in (*snapshot.holding, *snapshot.waiting))
        ):
            sink(_stand_in(self._alone, snapshot, snapshot.at))
        elif self._together is not None:
            self._together.request(snapshot, sink)
        else:
            with suppress(RuntimeError):  # no thread can be had: it is begun for a later plan
                self._begun()
            sink(_stand_in(self._alone, snapshot, snapshot.at, is_for_now=True))

    def quote(self, request: QuoteRequest, limit_s: float) -> Quote:
        try:
            planner = self._inline if self._is_simple() else self._begun()
        except RuntimeError as error:  # no thread can be had
            raise QuoteFailed(f"the policy '{self._policy}' could not be started: {error}") from error
        return planner.quote(request, limit_s)

    def _is_simple(self) -> bool:
        """Whether the policy for several jobs is the one for a single job."""
        return self._policy == self._alone_name and not self._parameters

    def _begun(self) -> "ProcessPlanner":
        with self._lock:
            if self._together is None:
                self._together = ProcessPlanner(
                    self._policy, self._parameters, fallback=self._alone_name, now=self._now
                )
            return self._together


def _allocate(policy: Policy, snapshot: Snapshot) -> tuple[Plan | None, str]:
    try:
        return policy.allocate(snapshot), ""
    except Exception as error:  # noqa: BLE001 -- a policy is a plug-in: its failure is an event like any other
        return None, f"{type(error).__name__}: {error}"


def _stand_in(policy: Policy, snapshot: Snapshot, at: float, *, is_for_now: bool = False) -> PlanProposed:
    """Make the plan of a stand-in policy and keep the memory of the replaced one, such as its promises.

    `is_for_now`: the plan is to be replaced as soon as the chosen policy has started.
    """
    plan, cause = _allocate(policy, snapshot)
    if plan is not None:
        # While a worker starts another plan is asked for after so many seconds.
        ask_again_at = snapshot.at + 0.5 if is_for_now else plan.ask_again_at
        plan = replace(plan, carry=snapshot.carry, ask_again_at=ask_again_at)
    return PlanProposed(at=at, plan=plan, revision=snapshot.revision, cause=cause)


class ProcessPlanner:
    """Runs the policy in a worker process; if its plan is late, another policy makes one.

    A policy that hangs, crashes, raises, answers something else than a plan or is not there holds up nobody: the plan
    is then `fallback`'s, and the event's `cause` says why; it says nothing where the worker has only to start, and the
    plan then asks for another one soon. A worker that is lost or too late is killed and replaced,
    after a pause that doubles from loss to loss up to a minute. Answers come from a thread of the planner's own.

    * `policy`, `parameters`: registered name, and parameters: plain values.
    * `limit_s`: seconds that a plan may take, from the request on.
    * `fallback`: registered name of a policy that takes microseconds.
    * `now`: clock of snapshots and plans.
    """

    def __init__(
        self,
        policy: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        limit_s: float = 2.0,
        fallback: str = "proportional",
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._policy = policy
        self._parameters = json.dumps(dict(parameters or {}))
        self._limit_s, self._now = limit_s, now
        self._fallback_name = fallback
        self._fallback: Policy = registry.load("policies", fallback)()
        self._requests: SimpleQueue[tuple[Snapshot, Sink] | _PendingQuote | None] = SimpleQueue()
        self._worker: _PolicyProcess | None = None
        #: Why there is no worker, and until when there will be none.
        self._loss, self._replace_at, self._pause_s = "", 0.0, _PAUSE_S_MIN
        self._thread = Thread(target=self._run, name="planner", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the worker. Requests that wait are not answered; the one in progress may be."""
        self._requests.put(None)
        if (worker := self._worker) is not None:
            worker.kill()
        self._thread.join()

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        self._requests.put((snapshot, sink))

    def quote(self, request: QuoteRequest, limit_s: float) -> Quote:
        question = _PendingQuote(request, time.monotonic() + limit_s)
        self._requests.put(question)
        try:
            return question.answer.result(limit_s)
        except TimeoutError:
            raise QuoteFailed(f"the policy '{self._policy}' had no answer within {span(limit_s)}") from None

    # In the planner's thread, with which the worker ends.

    def _run(self) -> None:
        questions: deque[_PendingQuote] = deque()
        try:
            with suppress(_LostError):  # it is told where a plan is asked for
                self._present_worker()
            while True:
                newest, is_closing = self._newest_request(questions)
                if is_closing:
                    return
                if newest is not None:
                    snapshot, sink = newest
                    sink(self._proposal(snapshot))
                elif questions:
                    self._answer(questions)
        finally:
            self._lose("")

    def _newest_request(self, questions: "deque[_PendingQuote]") -> tuple[tuple[Snapshot, Sink] | None, bool]:
        """Wait for requests; return the newest one for a plan, if any, and whether the planner is to end.

        Questions are added to `questions`. The scheduler asks for another plan only when it has given up the one
        before.
        """
        newest = None
        while not (questions or newest) or not self._requests.empty():
            request = self._requests.get()
            if request is None:
                return None, True
            if isinstance(request, _PendingQuote):
                questions.append(request)
            else:
                newest = request
        return newest, False

    def _answer(self, questions: "deque[_PendingQuote]") -> None:
        """Answer the first question; one that needs the worker's start is repeated until its time limit."""
        question = questions.popleft()
        try:
            until_at = min(question.until_at, time.monotonic() + self._limit_s)
            question.answer.set_result(self._ask(lambda worker: worker.quote(question.request, until_at)))
        except _StartingError:
            if time.monotonic() < question.until_at:
                questions.append(question)
        except _NoPlanError as failure:
            question.answer.set_exception(QuoteFailed(f"the policy '{self._policy}' {failure}"))

    def _proposal(self, snapshot: Snapshot) -> Event:
        try:
            until_at = time.monotonic() + self._limit_s
            plan = self._ask(lambda worker: worker.plan(snapshot, until_at))
        except _StartingError:
            return _stand_in(self._fallback, snapshot, self._now(), is_for_now=True)
        except _NoPlanError as failure:
            event = _stand_in(self._fallback, snapshot, self._now())
            cause = f"the policy '{self._policy}' {failure}; '{self._fallback_name}' planned instead"
            if event.plan is None:
                cause = f"the policy '{self._policy}' {failure}, and '{self._fallback_name}' failed: {event.cause}"
            return replace(event, cause=cause)
        return PlanProposed(at=self._now(), plan=plan, revision=snapshot.revision)

    def _ask(self, question: "Callable[[_PolicyProcess], T]") -> T:
        worker = self._present_worker()
        try:
            answer = question(worker)
        except _LostError as loss:
            self._lose(str(loss))
            raise
        self._pause_s = _PAUSE_S_MIN
        return answer

    def _present_worker(self) -> "_PolicyProcess":
        if self._worker is None:
            if time.monotonic() < self._replace_at:
                raise _NoPlanError(self._loss)
            try:
                self._worker = _PolicyProcess(self._policy, self._parameters)
            except (OSError, MemoryError, RuntimeError) as error:  # no memory, or no more processes or files may be had
                loss = f"could not be started: {error.strerror if isinstance(error, OSError) else error}"
                self._lose(loss)
                raise _LostError(loss) from error
        return self._worker

    def _lose(self, loss: str) -> None:
        """Drop the worker; the first request after a pause starts another one."""
        if self._worker is not None:
            self._worker.end()
        self._worker, self._loss = None, loss
        self._replace_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)


@dataclass(frozen=True, slots=True)
class _PendingQuote:
    """A quote that a thread waits for until an instant."""

    request: QuoteRequest
    until_at: float
    answer: "Future[Quote]" = field(default_factory=Future)


class _NoPlanError(Exception):
    """Raised if there is no plan; its text says what the policy did."""


class _StartingError(_NoPlanError):
    """Raised while the worker has not started yet."""


class _LostError(_NoPlanError):
    """Raised if there is no plan and the worker is unusable."""


class _PolicyProcess:
    """A process that runs a policy.

    What is imported for its first plan may take long, so until that has come the worker is starting, not too late.
    """

    def __init__(self, policy: str, parameters: str) -> None:
        connection, worker_end = socket.socketpair()
        self._channel = Channel(connection)
        self._give_up_at = time.monotonic() + _START_S_MAX
        self._is_starting = True
        #: Whether an answer is to come: at first that the policy could be made.
        self._is_awaited = True
        with worker_end:
            # A session of its own: what a terminal sends to all its processes is not meant for it.
            words = [str(worker_end.fileno()), str(os.getpid()), policy, parameters]
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "punctual.daemon.policy_worker", *words],
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def plan(self, snapshot: Snapshot, until_at: float) -> Plan:
        """Return the policy's plan by instant `until_at`; raises `_NoPlanError`."""
        event = self._asked(snapshot, until_at, lambda answer: decode("PlanProposed", answer["plan"]))
        plan = event.plan if isinstance(event, PlanProposed) else None
        if plan is None or plan.revision != snapshot.revision:
            raise _NoPlanError(f"gave no plan of revision {snapshot.revision}")
        return plan

    def quote(self, request: QuoteRequest, until_at: float) -> Quote:
        """Return the policy's quote by instant `until_at`; raises `_NoPlanError`."""
        return self._asked(request, until_at, lambda answer: decode_fields(Quote, answer["quote"]))

    def _asked(self, question: object, until_at: float, read: Callable[[dict[str, Any]], T]) -> T:
        limit_s = until_at - time.monotonic()
        try:
            answer = self._answer(_pickled(question), until_at)
            told = None if "failure" in answer else read(answer)
        except TimeoutError:
            if self._is_starting and time.monotonic() < self._give_up_at:
                raise _StartingError("has not started yet") from None
            raise _LostError(f"took more than {span(limit_s)}") from None
        except (OSError, EOFError):
            raise _LostError(f"ended: {self._exit_cause()}") from None
        except (KeyError, TypeError, ValueError, InvalidSpec) as error:
            raise _LostError(f"gave a wrong answer: {str(error)[:300]}") from error
        if told is None:
            raise _NoPlanError(f"failed: {answer['failure']}")
        return told

    def _answer(self, request: bytes, until_at: float) -> dict[str, Any]:
        if self._is_awaited:
            self._receive(until_at)
        self._channel.set_timeout(_left_s(until_at))
        self._channel.send(request)
        self._is_awaited = True
        return self._receive(until_at)

    def _receive(self, until_at: float) -> dict[str, Any]:
        self._channel.set_timeout(_left_s(until_at))
        answer = json.loads(self._channel.receive())
        self._is_awaited = False
        if not isinstance(answer, dict):
            raise ValueError(f"it is no object: {answer!r:.100}")  # noqa: TRY004 -- as where it is no JSON
        if "unmade" in answer:
            raise _LostError(f"could not be made: {answer['unmade']}")
        self._is_starting = "ready" in answer
        return answer

    def _exit_cause(self) -> str:
        """Describe in words how the process ended."""
        try:
            # A process that has closed its channel is about to end, and is given so long to.
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return "it closed its channel"
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """End the worker process and remove its files."""
        self.kill()
        self._process.wait()
        self._channel.close()


def _pickled(question: object) -> bytes:
    try:
        return pickle.dumps(question, protocol=5)
    except Exception as error:
        raise _NoPlanError(f"cannot be told what there is: {type(error).__name__}: {error}") from error


def _left_s(until_at: float) -> float:
    """Seconds until the instant; a little above 0 if it has passed, because a timeout of 0 would mean not to wait."""
    return max(1e-3, until_at - time.monotonic())
