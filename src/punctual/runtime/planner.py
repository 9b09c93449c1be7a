"""Who runs the policy."""

import json
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol, Self

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, PlanProposed
from punctual.core.plan import Plan
from punctual.core.protocols import Policy, Sink
from punctual.runtime.policy_worker import BadFrameError, Channel
from punctual.store.codec import decode

#: A worker process may take this long to start, in seconds; plans are the fallback's meanwhile.
_START_S_MAX = 60.0
#: Seconds before a worker that was lost is replaced: the first time, and at most; doubled from loss to loss.
_PAUSE_S_MIN, _PAUSE_S_MAX = 0.5, 60.0
#: While a worker starts another plan is asked for after so many seconds.
_ASK_AGAIN_S = 0.5
#: A process that has closed its channel is about to end, and is given so long to.
_EXIT_S_MAX = 1.0


class Planner(Protocol):
    """Has a plan made of a snapshot and sends it, or the failure, to `sink` as `PlanProposed`."""

    def request(self, snapshot: Snapshot, sink: Sink) -> None: ...


class InlinePlanner:
    """Runs the policy at once, in the engine's thread; right for policies that take microseconds."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        plan, cause = _allocate(self._policy, snapshot)
        sink(PlanProposed(at=snapshot.at, plan=plan, revision=snapshot.revision, cause=cause))


class SharingPlanner:
    """Plans for a single job at once, and has the policy plan in a worker process once there are several.

    With one job there is nothing to share: what it demands it gets from the policy that takes microseconds. The worker
    is started when the second job comes, and stays.

    Parameters
    ----------
    policy
        Registered name of the policy for several jobs.
    alone
        Registered name of the policy for a single one, which plans also while there is no worker.
    """

    def __init__(self, policy: str, *, alone: str = "proportional") -> None:
        self._policy, self._alone_name = policy, alone
        self._alone: Policy = registry.load("policies", alone)()
        self._together: ProcessPlanner | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker, if there is one."""
        if self._together is not None:
            self._together.close()

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        if len(snapshot.holding) + len(snapshot.waiting) <= 1:
            self._stand_in(snapshot, sink)
        elif self._together is not None:
            self._together.request(snapshot, sink)
        else:
            self._together = ProcessPlanner(self._policy, fallback=self._alone_name)
            self._stand_in(snapshot, lambda event: sink(_to_be_asked_again(event, snapshot)))

    def _stand_in(self, snapshot: Snapshot, sink: Sink) -> None:
        plan, cause = _stand_in_plan(self._alone, snapshot)
        sink(PlanProposed(at=snapshot.at, plan=plan, revision=snapshot.revision, cause=cause))


def _to_be_asked_again(event: Event, snapshot: Snapshot) -> Event:
    """The plan of a policy that stands in for another one that starts."""
    if not isinstance(event, PlanProposed) or event.plan is None:
        return event
    return replace(event, plan=replace(event.plan, ask_again_at=snapshot.at + _ASK_AGAIN_S))


def _allocate(policy: Policy, snapshot: Snapshot) -> tuple[Plan | None, str]:
    try:
        return policy.allocate(snapshot), ""
    except Exception as error:  # noqa: BLE001 -- a policy is a plug-in: its failure is an event like any other
        return None, f"{type(error).__name__}: {error}"


def _stand_in_plan(policy: Policy, snapshot: Snapshot) -> tuple[Plan | None, str]:
    """The plan of a policy in another one's place, which finds in the next snapshot what it has handed on: its promises."""
    plan, cause = _allocate(policy, snapshot)
    return (None if plan is None else replace(plan, carry=snapshot.carry)), cause


class ProcessPlanner:
    """Runs the policy in a worker process; where that has no plan in time, another policy makes it.

    A policy that hangs, crashes, raises, answers something else than a plan or is not there holds up nobody: the plan
    is then `fallback`'s, and the event's `cause` says why; it says nothing where the worker has only to start, and the
    plan then asks for another one soon. A worker that is lost or too late is killed and replaced,
    after a pause that doubles from loss to loss up to a minute. Answers come from a thread of the planner's own.

    Parameters
    ----------
    policy, parameters
        Registered name, and what it is made with: plain values.
    limit_s
        Seconds that a plan may take, from the request on.
    fallback
        Registered name of a policy that takes microseconds.
    """

    def __init__(
        self,
        policy: str,
        parameters: Mapping[str, Any] | None = None,
        *,
        limit_s: float = 2.0,
        fallback: str = "proportional",
    ) -> None:
        self._policy = policy
        self._parameters = json.dumps(dict(parameters or {}))
        self._limit_s = limit_s
        self._fallback_name = fallback
        self._fallback: Policy = registry.load("policies", fallback)()
        self._requests: SimpleQueue[tuple[Snapshot, Sink] | None] = SimpleQueue()
        self._worker: _Worker | None = None
        #: Why there is no worker, and until when there will be none.
        self._loss, self._replace_at, self._pause_s = "", 0.0, _PAUSE_S_MIN
        self._thread = Thread(target=self._run, name="planner", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the worker. Requests that wait are not answered; the one under way may be."""
        self._requests.put(None)
        if (worker := self._worker) is not None:
            worker.kill()
        self._thread.join()

    def request(self, snapshot: Snapshot, sink: Sink) -> None:
        self._requests.put((snapshot, sink))

    # In the planner's thread, with which the worker ends.

    def _run(self) -> None:
        try:
            self._worker = _Worker(self._policy, self._parameters)
            while (request := self._newest_request()) is not None:
                snapshot, sink = request
                sink(self._proposal(snapshot))
        finally:
            self._lose("")

    def _newest_request(self) -> tuple[Snapshot, Sink] | None:
        """Wait for a request. The scheduler asks again only when it has given up what it asked before."""
        request = self._requests.get()
        while request is not None and not self._requests.empty():
            request = self._requests.get()
        return request

    def _proposal(self, snapshot: Snapshot) -> Event:
        plan: Plan | None
        try:
            plan, cause = self._ask(snapshot, time.monotonic() + self._limit_s), ""
        except _StartingError:
            plan, cause = _stand_in_plan(self._fallback, snapshot)
            event = PlanProposed(at=time.monotonic(), plan=plan, revision=snapshot.revision, cause=cause)
            return _to_be_asked_again(event, snapshot)
        except _NoPlanError as failure:
            plan, why_not = _stand_in_plan(self._fallback, snapshot)
            cause = f"the policy '{self._policy}' {failure}; '{self._fallback_name}' planned instead"
            if plan is None:
                cause = f"the policy '{self._policy}' {failure}, and '{self._fallback_name}' failed: {why_not}"
        return PlanProposed(at=time.monotonic(), plan=plan, revision=snapshot.revision, cause=cause)

    def _ask(self, snapshot: Snapshot, until_at: float) -> Plan:
        worker = self._present_worker()
        try:
            plan = worker.plan(snapshot, until_at)
        except _LostError as loss:
            self._lose(str(loss))
            raise
        self._pause_s = _PAUSE_S_MIN
        return plan

    def _present_worker(self) -> "_Worker":
        if self._worker is None:
            if time.monotonic() < self._replace_at:
                raise _NoPlanError(self._loss)
            self._worker = _Worker(self._policy, self._parameters)
        return self._worker

    def _lose(self, loss: str) -> None:
        """Give up the worker; another one is started for the first request after a pause."""
        if self._worker is not None:
            self._worker.end()
        self._worker, self._loss = None, loss
        self._replace_at = time.monotonic() + self._pause_s
        self._pause_s = min(2 * self._pause_s, _PAUSE_S_MAX)


class _NoPlanError(Exception):
    """There is no plan; says why, as what the policy did."""


class _StartingError(_NoPlanError):
    """The worker has not started yet."""


class _LostError(_NoPlanError):
    """And the worker is of no use any more."""


class _Worker:
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
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-P",
                    "-m",
                    "punctual.runtime.policy_worker",
                    str(worker_end.fileno()),
                    str(os.getpid()),
                    policy,
                    parameters,
                ],
                pass_fds=[worker_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def plan(self, snapshot: Snapshot, until_at: float) -> Plan:
        """The policy's plan, by instant `until_at`; raises `_NoPlanError`."""
        limit_s = until_at - time.monotonic()
        try:
            answer = self._answer(_pickled(snapshot), until_at)
        except TimeoutError:
            if self._is_starting and time.monotonic() < self._give_up_at:
                raise _StartingError("has not started yet") from None
            raise _LostError(f"took more than {limit_s:.3g} s") from None
        except (OSError, EOFError):
            raise _LostError(f"ended: {self._exit_cause()}") from None
        except (BadFrameError, ValueError) as error:
            raise _LostError(f"gave a wrong answer: {error}") from error
        if "failure" in answer:
            raise _NoPlanError(f"failed: {answer['failure']}")
        return _plan_in(answer, snapshot.revision)

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
        """How the process has ended, in words."""
        try:
            code = self._process.wait(_EXIT_S_MAX)
        except subprocess.TimeoutExpired:
            return "it closed its channel"
        return f"killed by signal {-code}" if code < 0 else f"exit code {code}"

    def kill(self) -> None:
        self._process.kill()

    def end(self) -> None:
        """Kill the process and remove what is left of it."""
        self.kill()
        self._process.wait()
        self._channel.close()


def _pickled(snapshot: Snapshot) -> bytes:
    try:
        return pickle.dumps(snapshot, protocol=5)
    except Exception as error:
        raise _NoPlanError(f"cannot be told what there is: {type(error).__name__}: {error}") from error


def _plan_in(answer: dict[str, Any], revision: int) -> Plan:
    try:
        event = decode("PlanProposed", answer["plan"])
    except (KeyError, TypeError, InvalidSpec) as error:
        raise _LostError(f"gave a wrong answer: {str(error)[:300]}") from error
    plan = event.plan if isinstance(event, PlanProposed) else None
    if plan is None or plan.revision != revision:
        raise _NoPlanError(f"gave no plan of revision {revision}")
    return plan


def _left_s(until_at: float) -> float:
    """Seconds until then; a little where it has passed, because a timeout of 0 would mean not to wait."""
    return max(1e-3, until_at - time.monotonic())
