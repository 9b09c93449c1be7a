"""A job on several nodes: its first process on one node, and a part on each of the others.

The job's process on the first node looks after its workers everywhere, and listens for its parts once it is granted something
on another node. A *part* is the same program, started by the agent of its node and told where the first process listens; it
has the workers there. To its agent it is a job like any other, with a grant of its own. What the host asks for all of them is
answered when all have answered.
"""

from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from punctual.channel import GROUP_KEY_VARIABLE, GROUP_VARIABLE, WorkerStatus
from punctual.core.commands import JobCommand, LaunchJob, ResizeJob, StopJob
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobWarned,
    ProgressReported,
)
from punctual.core.ids import NodeId
from punctual.core.job import Allocation, JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources
from punctual.core.units import span
from punctual.executors.job_facts import JobFacts

#: Seconds until the first process reports its address for the parts; it loads its script before.
_GROUP_S_MAX = 120.0

#: A part is *waiting* until its first process listens, *starting* until its own has been started, *joining* until its
#: workers train, *changing* until it has answered another grant, and *leaving* once it was told to.
PartState = Literal["waiting", "starting", "joining", "there", "changing", "leaving"]

#: Has the agent of a node perform a command, with more variables for the job's process if it is a launch; whether the
#: node is there.
Send = Callable[[NodeId, JobCommand, Mapping[str, str]], bool]

Answer = JobStarted | GrantApplied | GrantFailed


def can_spread(spec: JobSpec) -> bool:
    """Whether a job can have workers on several nodes.

    Parameter servers are connected with workers of their own node; so are GPUs, as NCCL between nodes could not be tried.
    """
    return spec.worker is not None and spec.server is None and not spec.worker.gpus


@dataclass(slots=True)
class JobPart:
    """Part of a job on a node beside its first: its state, and its wanted and granted resources."""

    state: PartState
    amount: Resources
    granted: Resources = NOTHING
    used_core_s: float = 0.0
    memory_bytes: int = 0
    workers: WorkerStatus | None = None


class SpreadJob:
    """The parts of one job.

    * `launch`: launch of the job, which its parts copy.
    * `first`: its first node.
    * `tell`: called with the answers, and the end of the job.
    """

    def __init__(
        self, launch: LaunchJob, first: NodeId, now: Callable[[], float], send: Send, tell: Callable[[Event], None]
    ) -> None:
        self.first = first
        self._launch, self._now, self._send, self._tell = launch, now, send, tell
        self.parts: dict[NodeId, JobPart] = {}
        #: Allocation of the last command beside the first node, its number, and whether its answer is due.
        self._wanted: Allocation = {}
        self._request = launch.request
        self._is_due = False
        self._first_answer: Answer | None = None
        self._failure = ""
        #: Whether its program was found not to be made of workers.
        self._is_rigid = False
        #: Command to send the first node once no part is left.
        self._deferred: ResizeJob | None = None
        self._group: tuple[str, int, str] | None = None
        self._asked_at = now()
        self._refused: dict[NodeId, tuple[float, str]] = {}
        #: Workers on the first node.
        self._n_first = 1
        #: CPU seconds of the parts that have ended.
        self._used_before_core_s = 0.0
        #: The end of the job, which is told when no part is left.
        self._end: JobFinished | JobFailed | None = None

    @property
    def is_ending(self) -> bool:
        """Whether the first process has ended, and parts have not."""
        return self._end is not None

    def concerns(self, command: LaunchJob | ResizeJob) -> bool:
        """Whether a command concerns more than the first node."""
        return bool(self.parts) or len(command.grant) > 1

    # What is asked.

    def ask(self, command: LaunchJob | ResizeJob) -> None:
        """Carry out a command on all nodes; if the job is to hold nothing, the first waits until the parts are gone."""
        if self.is_ending:
            return  # that is the answer
        self._request, self._is_due, self._failure = command.request, True, ""
        self._first_answer, self._asked_at = None, command.at
        others = {} if self._is_rigid else command.grant
        self._wanted = {node: amount for node, amount in others.items() if node != self.first}
        for node in self.parts.keys() - self._wanted.keys():
            self._let_go(node, "its job is to have nothing on this node")
        for node, amount in self._wanted.items():
            self._want(node, amount)
        if isinstance(command, ResizeJob) and not command.grant and self.parts:
            self._deferred = command  # a first process that stands still could not let its parts go
        else:
            self._deferred = None
            self._send(self.first, command, {})
        self._advance()

    def _want(self, node: NodeId, amount: Resources) -> None:
        part = self.parts.get(node)
        refused_until, cause = self._refused.get(node, (0.0, ""))
        if part is None:
            if self._now() < refused_until:
                self._failure = cause
            else:
                self.parts[node] = JobPart("waiting", amount)
            return
        part.amount = amount
        if part.state in ("there", "changing", "joining"):
            part.state = "joining" if part.state == "joining" else "changing"
            self._resize(node, part)

    def _resize(self, node: NodeId, part: JobPart) -> None:
        reason = self._launch.reason
        at, request = self._now(), self._request
        self._send(
            node, ResizeJob(at=at, job=self._launch.job, request=request, grant={node: part.amount}, reason=reason), {}
        )

    def _let_go(self, node: NodeId, cause: str) -> None:
        part = self.parts[node]
        if part.state == "waiting":
            del self.parts[node]
            return
        part.state = "leaving"
        self._send(node, StopJob(at=self._now(), job=self._launch.job, cause=cause), {})

    def _advance(self, *, starts: bool = True) -> None:
        """Take the next possible steps; `starts`: parts may be started now."""
        if self._group is not None and starts:
            for node, part in list(self.parts.items()):
                if part.state == "waiting":
                    self._start(node, part, self._group)
        if self._deferred is not None and not self.parts:
            command, self._deferred = self._deferred, None
            self._send(self.first, command, {})
        if self._end is not None and not self.parts:
            self._tell(self._end)
        elif self._is_due and self._first_answer is not None and self._is_settled():
            self._answer(self._first_answer)

    def _start(self, node: NodeId, part: JobPart, group: tuple[str, int, str]) -> None:
        address, port, key = group
        command = replace(self._launch, at=self._now(), request=self._request, grant={node: part.amount})
        part.state = "starting"
        if not self._send(node, command, {GROUP_VARIABLE: f"{address}:{port}", GROUP_KEY_VARIABLE: key}):
            self._drop(node, f"node '{node}' is not there")

    def _is_settled(self) -> bool:
        return all(part.state == "there" for part in self.parts.values())

    def _answer(self, first: Answer) -> None:
        self._is_due = False
        there = {node: part.granted for node, part in self.parts.items() if part.granted}
        granted = {**first.granted, **there}
        at, job = self._now(), self._launch.job
        cause = self._failure or (first.cause if isinstance(first, GrantFailed) else "")
        if cause:
            self._tell(GrantFailed(at=at, job=job, request=self._request, granted=granted, cause=cause))
        elif isinstance(first, GrantApplied):
            self._tell(replace(first, at=at, request=self._request, granted=granted))

    # What is heard of the first process.

    def is_asked(self, answer: Answer) -> bool:
        """Whether the answer is due to a command that this object has carried out."""
        return self._is_due and answer.request >= self._request

    def hear_first(self, answer: Answer) -> None:
        """Take an answer of the first node; a started job is reported to hold its parts' grants too."""
        if answer.request < self._request or self.is_ending:
            return
        self._first_answer = answer
        if isinstance(answer, JobStarted):
            wanted = {node: amount for node, amount in self._wanted.items() if node in self.parts}
            self._tell(replace(answer, granted={**answer.granted, **wanted}))
        elif isinstance(answer, GrantFailed):
            self._give_up(answer.cause)
        self._advance()

    def hear_facts(self, facts: JobFacts, steps_done: float) -> None:
        """Take facts of the first process: its number of workers, and its address for the parts, if it has one."""
        self._n_first = 1 if facts.workers is None else max(1, facts.workers.n_workers)
        if facts.group is not None:
            self._group = facts.group
            self._advance()
        elif steps_done > 0 and facts.workers is not None and facts.workers.agent_pid == 0:
            self._stay()

    def _stay(self) -> None:
        """Keep a program without `punctual.elastic` on its first node, like any other job."""
        waiting = [node for node, part in self.parts.items() if part.state == "waiting"]
        if not self._is_rigid and waiting:
            text = (
                f"its program does not train with `punctual.elastic`, so it has only what it is granted on node "
                f"'{self.first}', and nothing on others"
            )
            self._tell(JobWarned(at=self._now(), job=self._launch.job, reason=Reason("one-node", text)))
        self._is_rigid = True
        for node in waiting:
            del self.parts[node]
        if waiting and isinstance(self._first_answer, JobStarted):  # it was said to hold more
            first = self._first_answer
            self._first_answer = GrantApplied(at=first.at, job=first.job, request=first.request, granted=first.granted)
        self._advance()

    def look(self) -> None:
        """Give up parts that have waited too long."""
        if self._now() > self._asked_at + _GROUP_S_MAX:
            self._give_up(
                f"its first process has not said within {span(_GROUP_S_MAX)} where workers of other nodes join it"
            )

    def _give_up(self, cause: str) -> None:
        waiting = [node for node, part in self.parts.items() if part.state == "waiting"]
        for node in waiting:
            self._drop(node, cause)
        if waiting:
            self._advance()

    def end(self, event: JobFinished | JobFailed) -> bool:
        """Note the first process's end; False: there is no part. Otherwise it is reported once no part is left."""
        self._end = self._end or event  # what was heard of the first process is so also if its node is lost since
        for node in list(self.parts):
            if self.parts[node].state != "leaving":
                self._let_go(node, "its job has ended on the first node")
        if not self.parts:
            return False
        self._is_due = False
        return True

    # What is heard of the parts.

    def hear(self, node: NodeId, event: Event) -> None:
        """Take an event of a part."""
        part = self.parts[node]
        match event:
            case ProgressReported():
                part.used_core_s, part.memory_bytes = event.used_core_s, event.memory_bytes
            case JobStarted():
                if part.state == "starting":
                    part.state, part.granted = "joining", event.granted.get(node, NOTHING)
                    self._resize(node, part)  # answered when its workers train
            case GrantApplied():
                if event.request >= self._request and part.state in ("joining", "changing"):
                    part.state, part.granted = "there", event.granted.get(node, NOTHING)
            case GrantFailed():
                self._fail(node, part, event)
            case JobFinished() | JobFailed():
                cause = event.cause if isinstance(event, JobFailed) else "it has ended"
                self._ended(node, part, cause)
        self._advance(starts=False)  # its agent obeys a launch only when it knows that the end before was heard

    def _fail(self, node: NodeId, part: JobPart, event: GrantFailed) -> None:
        if event.request < self._request:
            return
        cause = f"on node '{node}': {event.cause}"
        if part.state == "starting":
            self._drop(node, cause)
        elif part.state == "joining":
            self._failure = cause
            # Seconds before a node is tried again whose part could not join.
            self._refused[node] = self._now() + 60.0, cause
            self._let_go(node, "it could not join its job")
        elif part.state == "changing":
            part.state, part.granted, self._failure = "there", event.granted.get(node, NOTHING), cause

    def _ended(self, node: NodeId, part: JobPart, cause: str) -> None:
        self._used_before_core_s += part.used_core_s
        if part.state == "leaving" or self.is_ending:
            del self.parts[node]
            if node in self._wanted and not self._failure and not self.is_ending:  # it was wanted again meanwhile
                self.parts[node] = JobPart("waiting", self._wanted[node])
        else:
            self._drop(node, f"on node '{node}': {cause}")

    def lose(self, node: NodeId) -> None:
        """Forget a part, and its grant, whose node is lost; the host knows of the loss."""
        part = self.parts.pop(node)
        self._used_before_core_s += part.used_core_s
        self._wanted.pop(node, None)
        self._advance()

    def _drop(self, node: NodeId, cause: str) -> None:
        """Drop a wanted part of a node; the due answer, or another one to the last command, reports it."""
        del self.parts[node]
        self._failure = cause
        is_told = self._first_answer is not None and not self._is_due
        if is_told and not self.is_ending:
            self._is_due = True

    # Taking over.

    def adopt(self, first: Allocation, parts: Allocation) -> None:
        """Adopt the allocation found on the first node, and the parts that an earlier host has started."""
        self.parts.update({node: JobPart("there", amount, amount) for node, amount in parts.items()})
        self._wanted = dict(parts)
        self._first_answer = GrantApplied(at=self._now(), job=self._launch.job, request=self._request, granted=first)

    def with_usage(self, report: ProgressReported) -> ProgressReported:
        """Add the parts' CPU time and memory to the first node's report; each worker shares in a step in flight."""
        n_others = sum(part.workers.n_workers for part in self.parts.values() if part.workers is not None)
        in_flight_core_s = report.in_flight_core_s * (1.0 + n_others / self._n_first)
        others_core_s = self._used_before_core_s + sum(part.used_core_s for part in self.parts.values())
        used_core_s = report.used_core_s + others_core_s
        memory_bytes = report.memory_bytes + sum(part.memory_bytes for part in self.parts.values())
        return replace(report, used_core_s=used_core_s, in_flight_core_s=in_flight_core_s, memory_bytes=memory_bytes)

    def with_parts(self, status: WorkerStatus, silent: Container[NodeId]) -> WorkerStatus:
        """Return the worker status summed over all nodes but the `silent` ones."""
        parts = [part for node, part in self.parts.items() if node not in silent]
        others = [part.workers for part in parts if part.workers is not None]
        return replace(
            status,
            n_workers=status.n_workers + sum(other.n_workers for other in others),
            n_workers_lost=status.n_workers_lost + sum(other.n_workers_lost for other in others),
        )
