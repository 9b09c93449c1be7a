"""Executor of a cluster: passes every command to the agent of the job's node."""

import logging
import threading
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from concurrent.futures import wait
from dataclasses import replace
from math import inf
from typing import Any

from punctual.core.answers import not_started, unknown_job
from punctual.core.commands import (
    AskMachines,
    JobCommand,
    LaunchJob,
    MachineCommand,
    ReleaseMachines,
    ResizeJob,
    StopJob,
)
from punctual.core.events import (
    Event,
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobWarned,
    NodeJoined,
    NodeLost,
    NodeWarned,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.pools import HeldMachines
from punctual.core.protocols import Sink
from punctual.core.reason import Reason
from punctual.core.resources import NOTHING, Resources
from punctual.core.units import span
from punctual.executors.cluster.channel import Bundle, ChannelLost, Members, NodeChannel
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.cluster.machines import MachineProvider
from punctual.executors.cluster.node_link import FoundJob, LinkOptions, NodeLink, NodeNews, ToldPlace
from punctual.executors.cluster.poll_schedule import LOST_AFTER_S, PollSchedule
from punctual.executors.cluster.pool_machines import PoolMachines
from punctual.executors.cluster.spread_job import SpreadJob, can_spread
from punctual.executors.job_facts import JobFacts
from punctual.executors.local.output import StartFacts

_LOG = logging.getLogger(__name__)

_POLL_INTERVAL_S = 1.0
#: Seconds to wait for the first node before jobs are accepted: its agent has to start.
_FIRST_S_MAX = 20.0
#: Seconds that jobs may take to end at once, and then machines of pools.
_END_S_MAX = 20.0
#: Seconds to wait for requests in progress.
_LEAVE_S_MAX = 2.0


class ClusterExecutor:
    """Performs commands on the nodes of a cluster; reports its nodes by `NodeJoined`, `NodeNoticed` and `NodeLost`.

    A job lies on its first node, which is where it is granted most when it is launched. An elastic one without parameter servers
    has parts on the others (`spread_job`); any other gets what it is granted on the first one, and says so. One that is to hold
    nothing on its first node any more is ended, after a checkpoint if it can make one, and its process counts as lost.

    * `generation`: larger than that of every host before.
    * `known`: the nodes on which jobs of an earlier host may run; nothing is left of what runs on others.
    * `start_facts_of`: as for `punctual.executors.local.executor.LocalExecutor`.
    * `on_output`: called with the output of jobs, as it comes and from other threads.
    * `lost_after_s`: seconds without an answer until a node is lost, and its jobs may start elsewhere. Its agent must
      know it too.
    * `report_s`: seconds between an agent's reports while a job of it is observed often. Otherwise they are rarer, but
      always at once when something happens.
    * `version`: version of Punctual; agents of another one are replaced. Empty: they are not.
    * `provider`, `held`: starts and ends machines of pools; those of an earlier host, by pool. None: there are no
      pools.
    * `on_machines_ended`: called once it is known that no machine is left.

    Raises `InvalidSpec`: the cluster cannot be reached.
    """

    #: Name of the actuator, and the reason for its choice.
    actuator, actuator_reason = "by node", "Each node uses the first that is usable there."

    def __init__(
        self,
        members: Members,
        *,
        generation: int,
        now: Callable[[], float] = time.monotonic,
        known: Collection[NodeId] = (),
        start_facts_of: Callable[[JobId], StartFacts | None] = lambda _: StartFacts(),
        on_output: Callable[[JobId, bytes], None] = lambda *_: None,
        lost_after_s: float = LOST_AFTER_S,
        report_s: float = 0.1,
        jobs_at_once: Callable[[Resources], int | None] = lambda _: None,
        version: str = "",
        provider: MachineProvider | None = None,
        held: Mapping[str, HeldMachines] = {},
        on_machines_ended: Callable[[], None] = lambda: None,
    ) -> None:
        self._jobs_at_once = jobs_at_once
        self._members, self._now, self._known = members, now, set(known)
        self._machines = None if provider is None else PoolMachines(provider, held, now, self, on_machines_ended)
        self._start_facts_of, self._on_output = start_facts_of, on_output
        self._options = LinkOptions(generation=generation, now=now, lost_after_s=lost_after_s, version=version)
        self._loop = LinkLoop()
        try:
            members.open(self._loop, None if self._machines is None else self._machines.named)
        except BaseException:
            self._loop.close(_LEAVE_S_MAX)
            raise
        # Longest time between two reports of a node, as a share of the silence after which it is lost.
        self._looks = PollSchedule(report_s, lost_after_s / 30)
        self._lock = threading.RLock()
        self._links: dict[NodeId, NodeLink] = {}
        #: Number of losses of each node that is absent now.
        self._n_losses: dict[NodeId, int] = {}
        #: Node of each open job, and the receiver of its events; events of no job go to the sink of `start`.
        self._node_of: dict[JobId, NodeId] = {}
        self._sinks: dict[JobId, Sink] = {}
        #: Allocations that jobs of an earlier host were found to hold.
        self._held_before: dict[JobId, Allocation] = {}
        self._early: list[Event] = []
        #: Whether what an earlier host has left is known.
        self._has_resumed = False
        self._sink: Sink = self._early.append
        #: Jobs whose launch is not answered yet.
        self._starting: set[JobId] = set()
        self._latest: dict[JobId, ProgressReported] = {}
        self._paused: frozenset[JobId] = frozenset()
        #: Position in the logs of each node's jobs up to which they are here.
        self._logged: dict[NodeId, dict[JobId, ToldPlace]] = {}
        self._facts: dict[JobId, JobFacts] = {}
        #: Instant at which a job's end was reported; an earlier command was made without knowing it.
        self._told_end_at: dict[JobId, float] = {}
        #: Jobs that may have parts on other nodes than their first.
        self._spread: dict[JobId, SpreadJob] = {}
        #: Parts of running jobs found on nodes beside their first.
        self._found_parts: dict[JobId, dict[NodeId, Resources]] = {}
        #: Last node and progress of each job that is started again on another node.
        self._was_at: dict[JobId, tuple[NodeId, float]] = {}
        #: Bundles last requested from the cluster; None: none were.
        self._requested: list[Bundle] | None = None
        self._ends = threading.Event()
        self._watcher = threading.Thread(target=self._watch, name="punctual-nodes", daemon=True)
        if self._machines is not None:
            self._machines.open()
        self._watcher.start()

    # Beginning.

    def resume(self) -> tuple[dict[JobId, Allocation], list[Event]]:
        """Return the allocations of an earlier host's running jobs, and the events since; to be called before `start`.

        Returns when every known node has answered, or may be declared lost: then `NodeLost` is one of the events.
        """
        give_up_at = self._now() + self._options.lost_after_s
        while self._silent() and self._now() < give_up_at:
            self._ends.wait(_POLL_INTERVAL_S / 20)
        with self._lock:
            for node in self._silent():
                if (link := self._links.pop(node, None)) is not None:
                    link.close()
                self._n_losses[node] = 1  # if it comes back, nothing is to be left of its jobs
                self._lose(node, Reason("lost-node", "it does not answer the host that has come back"))
            self._adopt_parts()
            held = {job: self._held_before[job] for job in self._node_of}
            events, self._early[:] = list(self._early), []
        return held, [event for event in events if _is_news(event, held)]

    def start(self, sink: Sink) -> None:
        """Send the sink all events, earlier ones first; returns once there is a node or pools are known, or after a while."""
        with self._lock:
            self._adopt_parts()
        give_up_at = self._now() + _FIRST_S_MAX
        while not self._is_ready() and self._now() < give_up_at:
            self._ends.wait(_POLL_INTERVAL_S / 20)
        with self._lock:
            early, self._sink = list(self._early), sink
            self._early.clear()
            for event in early:
                self._tell(event)

    # The contract of executors.

    def perform(self, command: JobCommand | MachineCommand, sink: Sink) -> None:
        """Perform the command and answer through `sink`; never blocks."""
        if isinstance(command, AskMachines | ReleaseMachines):
            if self._machines is not None:
                self._machines.perform(command)
            return
        with self._lock:
            node = self._node_of.get(command.job)
            if isinstance(command, LaunchJob):
                self._launch(command, node, sink)
            elif node is not None:
                self._change(command, node, sink)
            elif not self._is_stale(command):
                sink(unknown_job(command))

    def observe(self, job: JobId, at: float, sink: Sink) -> None:
        """Report the job's progress as last received from its agent, stamped with the time of that report."""
        with self._lock:
            report = self._latest.get(job)
            if (node := self._node_of.get(job)) is not None:
                self._looks.looked(node, job, at)
        if report is not None:
            sink(report)

    def _launch(self, command: LaunchJob, present: NodeId | None, sink: Sink) -> None:
        """Launch a job; again on its `present` node if it has one."""
        job, grant = command.job, command.grant
        if self._is_stale(command):
            return
        node = present or max(grant, key=lambda on: (grant[on].gpus, grant[on].cores), default=NodeId(""))
        if not self.is_joined(node):
            sink(not_started(command, f"node '{node}' is not there"))
            return
        if present is None:
            self._starting.add(job)
        self._node_of[job], self._sinks[job] = node, sink
        if can_spread(command.spec):
            self._spread_of(command, node).ask(command)
        else:
            self._send_to(node, command, {})

    def _spread_of(self, launch: LaunchJob, first: NodeId) -> SpreadJob:
        """Return what has the parts of a job with this first node; a new one if it had another one."""
        spread = self._spread.get(launch.job)
        if spread is None or spread.first != first:
            spread = SpreadJob(launch, first, self._now, self._send_to, self._tell_of)
            self._spread[launch.job] = spread
        return spread

    def _change(self, command: ResizeJob | StopJob, node: NodeId, sink: Sink) -> None:
        """Resize or stop a job with this first node; where that is not there it is lost, and with it the job: that is the answer."""
        spread = self._spread.get(command.job)
        if isinstance(command, ResizeJob):
            self._sinks[command.job] = sink
            if command.grant and node not in command.grant:
                cause = f"it was moved to node '{next(iter(command.grant))}'"
                command = StopJob(at=command.at, job=command.job, cause=cause, restarts=True, moves=True)
            elif spread is not None and spread.concerns(command):
                spread.ask(command)
                return
        self._send_to(node, command, {})

    def _send_to(self, node: NodeId, command: JobCommand, variables: Mapping[str, str]) -> bool:
        """Send a command to a node's agent, with more variables for a new process; return whether the node is there."""
        if not self.is_joined(node):
            return False
        job, more = command.job, dict[str, Any]()
        if isinstance(command, LaunchJob):
            facts = self._start_facts_of(job)
            more["environment"] = None if facts is None else {**facts.environment, **variables}
            more["argv"] = None if facts is None else facts.argv
        if not (isinstance(command, StopJob) or job in self._spread):
            command = replace(command, grant={node: command.grant[node]} if node in command.grant else {})
        self._links[node].send(command, more)
        return True

    def _is_stale(self, command: JobCommand) -> bool:
        """Whether a command was made before its maker heard of the job's end, which is its answer."""
        return command.at < self._told_end_at.get(command.job, -inf) - 1e-6  # two shifts of clocks round it

    # What a host asks beside.

    def renew(self, is_paused_by_user: Callable[[JobId], bool] = lambda _: False) -> None:
        """Tell the agents which jobs a user has paused: those stay paused even if no host polls."""
        with self._lock:
            jobs = list(self._node_of)
        self._paused = frozenset(job for job in jobs if is_paused_by_user(job))

    def facts(self, job: JobId) -> JobFacts:
        """Return the facts about a job that its agent has told last, with the workers of all its parts."""
        facts, spread = self._facts.get(job, JobFacts()), self._spread.get(job)
        if facts.workers is None or spread is None:
            return facts
        with self._lock:
            silent = {node for node, link in self._links.items() if link.is_silent}
            return replace(facts, workers=spread.with_parts(facts.workers, silent))

    def news(self) -> dict[NodeId, NodeNews]:
        """News for the user of the nodes that are present."""
        with self._lock:
            return {node: link.news for node, link in self._links.items() if link.is_joined}

    def want(self, bundles: Sequence[Bundle]) -> None:
        """Request room for all of these from the cluster, unless they were requested last. Empty: withdraw the request."""
        if bundles != self._requested:
            self._requested = list(bundles)
            self._members.request(bundles)

    def release(self) -> None:
        """Leave running jobs to the next host; no further events are sent."""
        self._leave(for_good=False)

    def _leave(self, *, for_good: bool) -> None:
        self._ends.set()
        with self._lock:
            links = list(self._links.values())
        for link in links:
            link.close()
        self._watcher.join(_LEAVE_S_MAX)
        if self._machines is not None:
            self._machines.close(for_good=for_good, limit_s=_END_S_MAX)
        if self._requested is not None:
            self.want([])
        self._members.close(for_good=for_good)
        self._loop.close(_LEAVE_S_MAX)

    def close(self) -> None:
        """End the jobs that still run; returns when none is left on the nodes that answer."""
        with self._lock:
            links = [link for link in self._links.values() if link.is_joined]
        wait([self._loop.begin(link.end(_END_S_MAX)) for link in links])
        self._leave(for_good=True)

    # Which nodes there are; in a thread of its own.

    def _watch(self) -> None:
        told = ""
        while not self._ends.is_set():
            why = ""
            try:
                self._link_to(self._members.channels())
            except ChannelLost as error:
                why = str(error)  # it says itself what to do
            except Exception:  # noqa: BLE001 -- whatever it is, the nodes that are known go on
                _LOG.exception("it cannot be found out which nodes there are")
            if bool(why) != bool(told):
                _LOG.warning("%s", why or "the cluster answers again")
            told = why
            self._ends.wait(_POLL_INTERVAL_S)

    def _link_to(self, channels: Mapping[NodeId, NodeChannel]) -> None:
        """Open links to new nodes, and close those to nodes that are lost and absent."""
        with self._lock:
            for node, channel in channels.items():
                if (
                    node not in self._links
                    and not self._ends.is_set()
                    and (self._machines is None or self._machines.may_use(node))
                ):
                    n_losses = self._n_losses.pop(node, 0)
                    resets = node not in self._known or n_losses > 0
                    link = NodeLink(node, channel, self._options, self, self._loop, resets=resets, n_losses=n_losses)
                    self._links[node] = link
                    link.start()
            for node in self._links.keys() - channels.keys():
                link = self._links[node]
                if not link.is_joined:
                    self._n_losses[node] = link.n_losses
                    self._links.pop(node).close()
            for spread in list(self._spread.values()):
                spread.look()

    def _is_ready(self) -> bool:
        if self._machines is not None:
            return self._machines.has_looked()
        with self._lock:
            return any(link.is_joined for link in self._links.values())

    def _silent(self) -> list[NodeId]:
        """Return the known nodes that have not answered yet, and may be there."""
        with self._lock:
            answered = {node for node, link in self._links.items() if link.has_answered}
            return sorted(self._known - answered)

    # What the links tell.

    def joined(self, link: NodeLink, capacity: Resources, device: str, jobs: Sequence[FoundJob]) -> None:
        with self._lock:
            if self._links.get(link.node) is not link:  # it was given up while the node answered
                return
            link.is_joined = True
            for job, amount, launch in jobs:
                if launch is None:
                    spread = self._spread.get(job)
                    if spread is None or link.node not in spread.parts:  # its first node may not have answered yet
                        self._found_parts.setdefault(job, {})[link.node] = amount or NOTHING
                    continue
                is_elsewhere = self._node_of.get(job, link.node) != link.node
                if is_elsewhere and (amount is None or self._has_resumed):
                    continue  # it has ended here, and was started there since
                self._node_of[job] = link.node
                if can_spread(launch.spec):
                    self._spread_of(launch, link.node)
                self._held_before[job] = {link.node: amount} if amount else {}
            at, at_once = self._now(), self._jobs_at_once(capacity)
            self._tell(NodeJoined(at=at, node=link.node, capacity=capacity, device=device, jobs_at_once=at_once))
            if self._has_resumed:
                self._adopt_parts()

    def _adopt_parts(self) -> None:
        """Adopt the found parts of running jobs; the others are ended."""
        self._has_resumed = True
        for job, parts in self._found_parts.items():
            spread = self._spread.get(job)
            if spread is not None and job in self._node_of and job in self._held_before:
                spread.adopt(self._held_before[job], parts)
                self._held_before[job] = {**self._held_before[job], **parts}
                continue
            for node in parts:
                stop = StopJob(at=self._now(), job=job, cause="its job does not run on its first node any more")
                self._send_to(node, stop, {})
        self._found_parts.clear()

    def lost(self, link: NodeLink) -> None:
        if self._machines is not None and self._machines.forget(link.node):  # it never comes back
            link.close()
            with self._lock:
                self._links.pop(link.node, None)
        text = f"it has not answered for {span(link.silent_s)}"
        self._lose(link.node, Reason("lost-node", text, {"silent_s": link.silent_s}))

    def _lose(self, node: NodeId, why: Reason) -> None:
        """Tell that a node is gone, and with it all that was on it; nobody is warned if the text of `why` is empty."""
        with self._lock:
            if why.text:
                text = f"node '{node}', where the job ran, is lost: {why.text}"
                self._tell(NodeWarned(at=self._now(), node=node, reason=replace(why, text=text)))
            self._logged.pop(node, None)
            for job in [job for job, first in self._node_of.items() if first == node]:
                at, cause = self._now(), f"node '{node}', the first of its nodes, is lost"
                end = JobFailed(at=at, job=job, cause=cause, retryable=True, is_lost=True)
                if job not in self._spread or not self._spread[job].end(end):
                    self._forget(job)
            self._tell(NodeLost(at=self._now(), node=node))
            for spread in list(self._spread.values()):
                if node in spread.parts:
                    spread.lose(node)

    # What becomes of machines of pools, and of nodes.

    def receive(self, event: Event) -> None:
        with self._lock:
            self._tell(event)

    def is_joined(self, node: NodeId) -> bool:
        with self._lock:
            return node in self._links and self._links[node].is_joined

    def machine_lost(self, node: NodeId, cause: str) -> None:
        with self._lock:
            self._known.discard(node)
            if (link := self._links.pop(node, None)) is not None:
                link.close()
            self._lose(node, Reason("lost-node", cause))

    def received(self, link: NodeLink, event: Event) -> None:
        with self._lock:
            job: JobId | None = getattr(event, "job", None)
            if isinstance(event, JobFinished | JobFailed):
                self._logged.get(link.node, {}).pop(event.job, None)  # what it writes next will be in another log
            spread = None if job is None else self._spread.get(job)
            if spread is not None and link.node in spread.parts:
                spread.hear(link.node, event)
                return
            if job is not None and self._node_of.get(job) != link.node:
                return  # it lies elsewhere now
            is_start_failed = isinstance(event, GrantFailed) and event.job in self._starting and not event.granted
            if isinstance(event, JobStarted):
                self._starting.discard(event.job)
            elif isinstance(event, GrantFailed) and is_start_failed:
                self._forget(event.job)  # there is no process; the next launch may be elsewhere
            if spread is not None and not is_start_failed:
                if isinstance(event, JobFinished | JobFailed) and spread.end(event):
                    return  # its parts are to end first
                if isinstance(event, JobStarted | GrantApplied | GrantFailed) and spread.is_asked(event):
                    spread.hear_first(event)
                    return
            self._tell_of(event)

    def _tell_of(self, event: Event) -> None:
        """Send an event that holds for a job, or for none, on all nodes."""
        job: JobId | None = getattr(event, "job", None)
        if isinstance(event, JobFinished | JobFailed):
            self._forget(event.job)
            # So many ended jobs are remembered, with their facts and the instants at which their ends were told.
            for ended in (self._told_end_at, self._facts):
                while len(ended) > 1000:
                    del ended[next(iter(ended))]
            if isinstance(event, JobFinished) or not event.retryable:
                self._was_at.pop(event.job, None)
        if job is None or job in self._node_of:
            self._tell(event)
            return
        self._told_end_at[job] = now = self._now()
        if isinstance(event, JobFailed | GrantFailed):  # the next launch is made at the instant of this news
            event = replace(event, at=now)
        self._tell(event)
        self._sinks.pop(job, None)

    def reported(self, link: NodeLink, report: ProgressReported) -> None:
        job = report.job
        with self._lock:
            spread = self._spread.get(job)
            if spread is not None and link.node in spread.parts:
                spread.hear(link.node, report)
            if self._node_of.get(job) != link.node:
                return
            if spread is not None:
                report = spread.with_usage(report)
            self._latest[job] = report
            was_at = self._was_at.get(job)
            if was_at is None or was_at[0] == link.node or report.steps_done <= 0:
                return
            del self._was_at[job]
            if report.steps_done < was_at[1]:
                text = (
                    f"it goes on at step {report.steps_done:.12g} on node '{link.node}', after step {was_at[1]:.12g} on node "
                    f"'{was_at[0]}': the steps between are done again. If it had a later checkpoint, that does not lie "
                    "where both nodes can read it"
                )
                self._tell(JobWarned(at=report.at, job=job, reason=Reason("other-node", text)))

    def public_facts(self, link: NodeLink, job: JobId, facts: JobFacts) -> None:
        with self._lock:
            spread = self._spread.get(job)
            if spread is not None and (part := spread.parts.get(link.node)) is not None:
                part.workers = facts.workers or part.workers
                return
            self._facts[job] = facts
            if spread is not None and self._node_of.get(job) == link.node:
                spread.hear_facts(facts, self._latest[job].steps_done if job in self._latest else 0.0)

    def wrote(self, link: NodeLink, job: JobId, place: ToldPlace, output: bytes) -> None:
        with self._lock:
            # In any case: its agent tells nothing of the end before.
            self._logged.setdefault(link.node, {})[job] = place
            spread = self._spread.get(job)
            if self._node_of.get(job) != link.node and (spread is None or link.node not in spread.parts):
                return
        self._on_output(job, output)

    def poll_fields(self, node: NodeId) -> dict[str, Any]:
        with self._lock:
            paused = [job for job in self._paused if self._node_of.get(job) == node]
            return {"wait_s": self._looks.wait_s(node), "paused": paused, "logged": dict(self._logged.get(node, {}))}

    def _forget(self, job: JobId) -> None:
        """Forget a job that is on no node any more."""
        node, latest = self._node_of.pop(job), self._latest.pop(job, None)
        self._spread.pop(job, None)
        self._starting.discard(job)
        self._looks.forget(node, job)
        if latest is not None:
            self._was_at[job] = node, latest.steps_done

    def _tell(self, event: Event) -> None:
        self._sinks.get(getattr(event, "job", JobId("")), self._sink)(event)


def _is_news(event: Event, held: Container[JobId]) -> bool:
    """Whether a host that has come back is to hear an event of which an agent does not know whether the earlier one has.

    Answers to commands of the earlier one are not; nor is an end after which that has started the job again.
    """
    if isinstance(event, JobFinished | JobFailed):
        return event.job not in held
    return not hasattr(event, "request")
