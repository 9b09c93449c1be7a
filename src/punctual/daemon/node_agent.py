"""Agent of a node: its local executor, commanded by a host that may be elsewhere."""

import fcntl
import logging
import os
import secrets
import threading
import time
from base64 import b64encode
from collections import deque
from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeGuard

from punctual.channel import GROUP_VARIABLE, NODE_ADDRESS_VARIABLE
from punctual.core.answers import VARIABLES_GONE, not_started
from punctual.core.codec import decode, encode
from punctual.core.commands import JobCommand, LaunchJob, StopJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, JobFailed, JobFinished, ProgressReported
from punctual.core.failures import start_short_of
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobState
from punctual.core.lifecycle import end_state
from punctual.core.resources import Resources, total
from punctual.daemon.adoption import FENCED, actuator_of, adopted, claimed, recorded_end
from punctual.daemon.capacity import capacity_here, device_kind
from punctual.daemon.contained import Contained
from punctual.daemon.log_snapshot import LogPlace, read_on
from punctual.daemon.machine_notice import MachineNotice
from punctual.daemon.run_folder import RunFolder, agent_run, new_job
from punctual.distribution import __version__
from punctual.executors.cluster.channel import (
    KEEPER_FRAC,
    KILL_FRAC,
    STOP_FRAC,
    Answer,
    Request,
    decode_message,
    encode_message,
)
from punctual.executors.cluster.poll_schedule import LOST_AFTER_S
from punctual.executors.job_facts import JobFacts
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.executor import LocalExecutor
from punctual.executors.local.output import StartFacts
from punctual.executors.local.supervisor_client import LEASE_S
from punctual.journal.boot import suspended_s

_LOG = logging.getLogger(__name__)

#: Seconds between two looks of the agent at its jobs, which a host's polls make superfluous.
_POLL_INTERVAL_S = 0.25


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentOptions:
    """Options of an agent, as JSON values.

    * `name`: name of the agent's folder on the node; an agent started again under it continues the jobs there.
    * `node`: the node's name in grants.
    * `lost_after_s`: as for `punctual.executors.cluster.executor.ClusterExecutor`.
    * `address`: address at which other nodes reach this one; `PUNCTUAL_NODE_ADDRESS` overrides it. Empty: none.
    """

    name: str
    node: NodeId
    actuator: str = "auto"
    lost_after_s: float = LOST_AFTER_S
    address: str = ""


class NodeAgent:
    """Performs the commands of the newest host that it knows, and stores events until that host has them.

    Its jobs go on when it ends, and when nobody asks it anything for a while; see
    `punctual.executors.cluster.channel.STOP_FRAC` for how long. Its thread-safe `answer` takes all requests.

    Raises `InvalidSpec`: another process is this agent, or its folder or the actuator cannot be used.
    """

    def __init__(self, options: AgentOptions) -> None:
        self._options = options
        self._address = os.environ.get(NODE_ADDRESS_VARIABLE) or options.address
        self._run, self._notice = agent_run(options.name), MachineNotice()
        self._folder_lock = _locked(self._run)
        self._device, self._version = device_kind(), __version__
        self._incarnation = secrets.token_hex(8)
        self._generation: list[int] = self._run.facts().get("generation", [0, 0])
        #: Guards what follows; held for moments. Commands are performed under the other.
        self._changed = threading.Condition()
        self._commands = threading.RLock()
        self._events: deque[tuple[int, Event]] = deque()
        self._last_number = 0
        self._latest: dict[JobId, ProgressReported] = {}
        self._paused: Collection[str] = ()
        #: The jobs that the host is still to hear of, and how far it has the log of each.
        self._open: dict[JobId, LogPlace] = {}
        #: Whether the host has not been told all of the logs: it need not wait with its next question.
        self._has_more = False
        #: An instant of this clock of which the host is known to have heard.
        self._heard_at = self._looked_at = time.monotonic()
        self._suspended_s = suspended_s()
        #: The jobs that this agent ends by itself: they may be started again.
        self._fenced: set[JobId] = set()
        #: Number of the event that told the last end of each job, oldest first; not of ends that only an earlier host heard of.
        self._ended_at_number: dict[JobId, int] = {}
        self._is_over = self._is_leaving = False
        #: Whether a host polls that has greeted this agent: a command that was for the agent before may be old.
        self._is_polled = False
        self._clearing: threading.Thread | None = None
        self._ends = threading.Event()
        self._executor = self._adopting()
        self._contained = Contained(self._executor)
        self._beats = threading.Thread(target=self._beat, name=f"punctual-agent-{options.node}", daemon=True)
        self._beats.start()

    @property
    def is_idle(self) -> bool:
        """Whether the agent may end: no job runs, and no host polls any more or one has asked it to leave.

        What a host has not heard yet is known to the next agent too.
        """
        if self._is_leaving:
            return True
        is_alone = self._is_over or self._silent_s() > self._options.lost_after_s
        return is_alone and not self._executor.held()

    def answer(self, request: Request) -> Answer:
        """Return the answer to a request; see `punctual.executors.cluster.channel`."""
        received = time.monotonic()
        answers: dict[str, Callable[[Request], Answer]] = {
            "greet": self._greet,
            "do": self._do,
            "poll": self._hear,
            "end": self._end,
            "leave": self._leave,
        }
        with self._commands:
            generation = [int(number) for number in request["generation"]]
            if generation < self._generation:
                return {"superseded": self._generation}
            if generation > self._generation:
                self._run.record_facts(generation=generation, node=self._options.node)
                self._generation = generation
                # This host makes its commands anew, and hears of no end that another one has heard of.
                with self._changed:
                    untold = {number for number, _ in self._events}
                    self._ended_at_number = {
                        job: number for job, number in self._ended_at_number.items() if number in untold
                    }
            # Performed before a newer host can be heard; what a poll waits for changes nothing.
            answer = answers[request["verb"]](request)
        if request["verb"] == "poll":
            answer = self._news(request["wait_s"])
        return {**answer, "received": received, "sent": time.monotonic(), "incarnation": self._incarnation}

    def close(self) -> None:
        """Leave the jobs to the next agent."""
        self._ends.set()
        with self._changed:
            self._changed.notify_all()
        self._beats.join()
        self._executor.release()
        if not self._open:  # the host has all there was, the logs too
            self._run.remove()
        os.close(self._folder_lock)

    # Beginning: the jobs that an earlier agent has left.

    def _adopting(self) -> LocalExecutor:
        run, jobs = self._run, self._run.open_jobs()
        self._open.update(dict.fromkeys(jobs, LogPlace()))
        with ExitStack() as claims:
            kept = claimed(run, jobs, claims)
            context = ExecutorContext(
                node=self._options.node,
                runtime_dir=run.runtime_dir,
                actuator=actuator_of(kept, self._options.actuator),
                lease_s=LEASE_S,
                fence_s=max(LEASE_S, KEEPER_FRAC * self._options.lost_after_s),
                on_kept=run.record_supervisor,
                start_facts_of=self._start_facts,
                end_file_of=run.end_file,
                log_of=run.log,
            )
            executor = LocalExecutor(context)
            granted = adopted(run, executor, kept, lambda job: (self._launch_of(job), None), self._receive)
            claims.pop_all()
            executor.follow()
        for job in jobs:
            if job not in granted:  # it has ended, at the latest when it was to be adopted
                self._tell_end_of(job)
        for job in kept.keys() - granted.keys():
            kept[job].close()
        return executor

    def _start_facts(self, job: JobId) -> StartFacts | None:
        if (facts := self._run.start_facts(job)) is None:
            return None
        return replace(facts, environment={**facts.environment, NODE_ADDRESS_VARIABLE: self._address})

    def _is_part(self, job: JobId) -> bool:
        """Whether it is a part of a job whose first node is another one."""
        return (facts := self._run.start_facts(job)) is not None and GROUP_VARIABLE in facts.environment

    def _launch_of(self, job: JobId) -> LaunchJob:
        launch = decode(LaunchJob.__name__, self._run.submission(job) or "")
        assert isinstance(launch, LaunchJob)
        return replace(launch, request=0)

    def _tell_end_of(self, job: JobId) -> None:
        """Record the end of a job whose supervisor is gone."""
        now, record = time.monotonic(), self._run.end_record(job)
        if record is None:
            cause = "its agent and its supervisor were killed, and the job with them"
            self._receive(JobFailed(at=now, job=job, cause=cause, retryable=True, is_lost=True))
            return
        for event in recorded_end(job, record, at_least=now):
            if event is not None:
                self._receive(event)

    # Requests.

    def _greet(self, request: Request) -> Answer:
        self._is_over = False
        if request["reset"]:
            is_empty = self._cleared()
            if is_empty:
                self._forget_all()
        else:
            is_empty = not self._open
        held = self._executor.held()
        # An agent that was killed when it had heard that an end is known has left no more of that job than its name.
        jobs = [job for job in list(self._open) if self._run.submission(job) is not None]
        return {
            **self._offer(),
            "is_empty": is_empty,
            "version": self._version,
            "held": {
                job: [
                    _plain(held[job]) if job in held else None,
                    None if self._is_part(job) else encode_message(self._launch_of(job)),
                ]
                for job in jobs
            },
        }

    def _do(self, request: Request) -> Answer:
        if not self._is_polled or self._silent_s() >= STOP_FRAC * self._options.lost_after_s:
            # The host may have taken this node for lost since; its next poll says that it has not.
            return {"fenced": True}
        try:
            command: JobCommand = decoded_command(request["command"])
        except InvalidSpec as error:
            return {"refused": error.as_fields()}
        seen = self._seen(request)
        self._acknowledge(seen)
        # By this clock, and before the look: an end that comes meanwhile is then not one that the host knew of.
        command = replace(command, at=time.monotonic())
        with self._changed:
            is_stale = seen < self._ended_at_number.get(command.job, 0)
        if is_stale:
            return {}  # the host did not know of the end when it made the command: that is the answer
        if isinstance(command, LaunchJob) and not self._store(command, request):
            return {}
        self._contained.perform(command, self._receive)
        return {}

    def _seen(self, request: Request) -> int:
        """Number of the last event that the host has; those of an earlier incarnation had other numbers."""
        return int(request["seen"]) if request["incarnation"] == self._incarnation else 0

    def _store(self, launch: LaunchJob, request: Request) -> bool:
        """Store what a job needs to start; if that fails, report the failure and return False."""
        if launch.job in self._executor.held():
            return True
        environment, argv = request["environment"], request["argv"]
        if environment is None:
            self._receive(not_started(launch, VARIABLES_GONE))
            return False
        try:
            self._run.record_submitted([new_job(launch.job, encode(launch), environment, argv)])
            self._open.setdefault(launch.job, LogPlace())
        except (InvalidSpec, OSError) as error:
            self._receive(not_started(launch, str(error), start_short_of(error.__cause__ or error)))
            return False
        return True

    def _hear(self, request: Request) -> Answer:
        """Apply the fields of a host's poll."""
        if request["stamp"] is not None:
            self._heard_at = max(self._heard_at, min(float(request["stamp"]), time.monotonic()))
            self._suspended_s = suspended_s()
        self._paused = request["paused"]
        self._is_polled = self._is_polled or request["incarnation"] == self._incarnation
        self._acknowledge(self._seen(request))
        self._open.update({JobId(job): LogPlace(*at) for job, at in request["logged"].items() if job in self._open})
        return {}

    def _news(self, wait_s: float) -> Answer:
        """Return events, progress and output that the host lacks, as soon as there are events or after a while."""
        with self._changed:
            self._changed.wait_for(lambda: self._events or self._has_more or self._ends.is_set(), min(wait_s, 10.0))
        self._look()
        with self._changed:
            events, reports = list(self._events), list(self._latest.values())
        output, cut = self._output()
        # Who hears of the end of a job has its log: that is removed then.
        events = list(takewhile(lambda numbered: not (_is_end(numbered[1]) and numbered[1].job in cut), events))
        return {
            **self._offer(),
            "events": [[number, encode_message(event)] for number, event in events],
            "output": output,
            "reports": [encode_message(report) for report in reports],
            "facts": self._facts([event for _, event in events], [report.job for report in reports]),
        }

    def _end(self, _: Request) -> Answer:
        is_empty = self._is_over = self._cleared()
        with self._changed:
            return {"is_empty": is_empty, "last": self._events[-1][0] if self._events else 0}

    def _leave(self, _: Request) -> Answer:
        self._is_leaving = True
        return {}

    def _offer(self) -> Answer:
        return {
            "capacity": _plain(capacity_here()),
            "device": self._device,
            "holds": _plain(total(self._executor.held().values())),
            "ends_at": self._notice.ends_at(),
        }

    def _output(self) -> tuple[list[tuple[JobId, LogPlace, str]], set[JobId]]:
        """Return output that the host lacks, by job with its position in the log afterwards.

        Also return the jobs that have more output.
        """
        pieces, cut, logs = [], set(), list(self._open.items())
        for job, known in logs:
            with suppress(OSError):
                # Bytes of one log, and of all, that are sent at a time: more could not be passed on in the time for an answer.
                output, place, is_cut = read_on(self._run.log(job), known, min(1 << 20, (1 << 22) // len(logs)))
                if output:
                    pieces.append((job, place, b64encode(output).decode()))
                if is_cut:
                    cut.add(job)
        self._has_more = bool(cut)
        return pieces, cut

    def _facts(self, events: Collection[Event], jobs: Collection[JobId]) -> dict[str, Any]:
        """Return facts about jobs that only the executor has."""
        facts: dict[str, Any] = {}
        for job in (*jobs, *(event.job for event in events if isinstance(event, JobFinished))):
            known = self._contained.facts(job)
            if known.group is not None:
                known = replace(known, group=(self._address, *known.group[1:]))
            if known != JobFacts():
                facts[job] = known.as_fields()
        return facts

    # Events.

    def _receive(self, event: Event) -> None:
        with self._changed:
            if isinstance(event, ProgressReported):
                self._latest[event.job] = event
                return
            if _is_end(event):
                last = self._latest.pop(event.job, None)
                if last is not None:
                    self._add(last)
                if event.job in self._fenced:
                    self._fenced.discard(event.job)
                    if isinstance(event, JobFailed):
                        event = replace(event, cause=FENCED, exit_code=None, retryable=True, is_lost=True)
            self._add(event)
            self._changed.notify_all()

    def _add(self, event: Event) -> None:
        self._last_number += 1
        self._events.append((self._last_number, event))
        if _is_end(event):
            self._ended_at_number.pop(event.job, None)
            self._ended_at_number[event.job] = self._last_number
            # Bounds the memory of an agent of many years: while a command is repeated, for seconds, no node ends so many jobs.
            while len(self._ended_at_number) > 1000:
                del self._ended_at_number[next(iter(self._ended_at_number))]

    def _acknowledge(self, number: int) -> None:
        """Drop events up to `number`, which the host has, and the files of jobs that it knows to have ended."""
        acknowledged = []
        with self._changed:
            while self._events and self._events[0][0] <= number:
                acknowledged.append(self._events.popleft()[1])
        ended = [event for event in acknowledged if _is_end(event)]
        for event in ended:
            if event.job not in self._executor.held():
                self._open.pop(event.job, None)
                with suppress(OSError):  # a full disk: the end is then told once more after a restart
                    self._forget(event.job, end_state(event) or "failed")

    def _forget(self, job: JobId, state: JobState) -> None:
        """Remove the job's files and its log, so that a new start begins anew."""
        for file in self._run.outputs(job):
            file.unlink(missing_ok=True)
        self._run.record_end(job, state)

    # Ending jobs.

    def _cleared(self) -> bool:
        """Whether no job runs; if one does, end all by force."""
        if self._clearing is not None and self._clearing.is_alive():
            return False
        if not self._executor.held():
            return True
        self._clearing = threading.Thread(target=self._executor.close, name="punctual-clearing", daemon=True)
        self._clearing.start()
        return False

    def _forget_all(self) -> None:
        """Forget all earlier jobs and events."""
        with self._changed:
            self._events.clear()
            self._latest.clear()
        for job in list(self._open):
            self._forget(job, "failed")
        self._open.clear()

    # What the agent does by itself.

    def _beat(self) -> None:
        renewed_at = 0.0
        while not self._ends.wait(_POLL_INTERVAL_S):
            try:
                now = time.monotonic()
                # Seconds between two renewals of leases.
                if now >= renewed_at + 1.0:
                    renewed_at = now
                    self._contained.renew(lambda job: job in self._paused)
                if now >= self._looked_at + _POLL_INTERVAL_S:
                    self._look()
                self._fence()
            except Exception:  # noqa: BLE001 -- the next beat comes
                _LOG.exception("the agent of node '%s' has failed at a beat", self._options.node)

    def _look(self) -> None:
        """Read the jobs' progress, which also shows them that they are steered."""
        self._looked_at = time.monotonic()
        for job in self._executor.held():
            self._contained.observe(job, time.monotonic(), self._receive)

    def _fence(self) -> None:
        """End the jobs when the host may soon declare this node lost and start them elsewhere."""
        silent_s, lost_after_s = self._silent_s(), self._options.lost_after_s
        if silent_s < STOP_FRAC * lost_after_s:
            return
        new = self._executor.held().keys() - self._fenced
        self._fenced |= new
        for job in new:
            self._contained.perform(StopJob(at=time.monotonic(), job=job, cause=FENCED), self._receive)
        if silent_s >= KILL_FRAC * lost_after_s:
            self._cleared()

    def _silent_s(self) -> float:
        return time.monotonic() - self._heard_at + suspended_s() - self._suspended_s


def decoded_command(sent: list[str]) -> JobCommand:
    """Decode a host's command."""
    command = decode_message(sent)
    if not isinstance(command, JobCommand):
        raise InvalidSpec(
            "a command must be one for an executor", sent[0], "a node's agent", "Update Punctual everywhere."
        )
    return command


def _is_end(event: Event) -> TypeGuard[JobFinished | JobFailed]:
    return isinstance(event, JobFinished | JobFailed)


def _plain(amount: Resources) -> Mapping[str, float]:
    return {"cores": amount.cores, "gpus": amount.gpus, "memory_bytes": amount.memory_bytes}


def lock_file(run: RunFolder) -> Path:
    """Return the file that the process which is this agent has locked, and which has its process id."""
    return run.runtime_dir / "lock"


def _locked(run: RunFolder) -> int:
    """Make the agent's folder and lock it for this process; raises `InvalidSpec` if another process has it."""
    file = os.open(lock_file(run), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        raise InvalidSpec(
            "an agent must be the only one of its name on a machine",
            "another agent of this name",
            f"'{run.name}'",
            "End that process, or give this one another name.",
        ) from None
    with suppress(OSError):  # the disk is full: then nobody replaces this process if it hangs
        os.ftruncate(file, 0)
        os.pwrite(file, str(os.getpid()).encode(), 0)
    return file
