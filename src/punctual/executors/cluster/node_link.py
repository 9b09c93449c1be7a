"""Link to one node's agent: greets it, sends commands and polls for events."""

import asyncio
import logging
from base64 import b64decode
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf
from typing import Any, NamedTuple, Protocol, TypeVar

from punctual.core.answers import not_started
from punctual.core.commands import JobCommand, LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, Message, NodeNoticed, NodeWarned, ProgressReported
from punctual.core.ids import JobId, NodeId
from punctual.core.instants import moved
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.units import span
from punctual.executors.cluster.channel import Answer, ChannelLost, NodeChannel, decode_message, encode_message
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.job_facts import JobFacts

_LOG = logging.getLogger(__name__)
M = TypeVar("M")
#: Position up to which a job's log is here, encoded as the agent does.
ToldPlace = list[int]

#: Seconds that an answer may take beyond the agent's waiting time, and seconds between two tries at a silent one.
_ANSWER_S_MAX, _AGAIN_S = 5.0, 0.2


class ClockOffset:
    """Offset of another clock to this one, from exchanges that both have stamped.

    A request that is sent at t₀ and received at r (the other clock) cannot have arrived before it was sent, so the offset is at
    most r − t₀; its answer, sent at s and received at t₁, says in the same way that it is at least s − t₁. The middle of the
    narrowest such interval is taken, as far as it is not too old and later ones do not contradict: one of the machines has slept.
    """

    def __init__(self) -> None:
        self._width_s, self._taken_at = inf, -inf
        self.offset_s = 0.0

    def take(self, sent_at: float, received: float, answered: float, heard_at: float) -> None:
        """Take one exchange into account: `received` and `answered` are of the other clock."""
        least_s, most_s = answered - heard_at, received - sent_at
        width_s, middle_s = most_s - least_s, (least_s + most_s) / 2.0
        # Greatest drift between two clocks, seconds a second.
        known_s = self._width_s + 1e-4 * (heard_at - self._taken_at)
        if width_s <= known_s or abs(middle_s - self.offset_s) > (width_s + known_s) / 2.0:
            self._width_s, self._taken_at, self.offset_s = width_s, heard_at, middle_s


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkOptions:
    """See `punctual.executors.cluster.executor.ClusterExecutor`."""

    generation: int
    now: Callable[[], float]
    lost_after_s: float
    version: str = ""


class FoundJob(NamedTuple):
    """A job found on a node when it is greeted: its resources there, None: it has ended; its launch, None: it is only a part."""

    job: JobId
    amount: Resources | None
    launch: LaunchJob | None


class NodeNews(NamedTuple):
    """News of a node for the user.

    * `silent_s`: seconds since the node's last answer, if it counts as silent; else 0.
    * `lost_in_s`: seconds until it counts as lost, if it stays silent.
    * `taken_cores`: cores of the node that other applications of the cluster hold.
    """

    silent_s: float
    lost_in_s: float
    taken_cores: float


NO_NEWS = NodeNews(0.0, 0.0, 0.0)


class LinkListener(Protocol):
    """Receives a node's messages in the loop's thread, and supplies what the node has to know."""

    def joined(self, link: "NodeLink", capacity: Resources, device: str, jobs: Sequence[FoundJob]) -> None:
        """Tell that the node is there, and set `link.is_joined` with it: no other thread reads the one before."""
        ...

    def lost(self, link: "NodeLink") -> None: ...

    def received(self, link: "NodeLink", event: Event) -> None:
        """Receive an event about the node, or of a job there."""
        ...

    def reported(self, link: "NodeLink", report: ProgressReported) -> None: ...

    def public_facts(self, link: "NodeLink", job: JobId, facts: JobFacts) -> None: ...

    def wrote(self, link: "NodeLink", job: JobId, place: ToldPlace, output: bytes) -> None: ...

    def poll_fields(self, node: NodeId) -> dict[str, Any]:
        """Return `wait_s`, `paused` and `logged` of the next poll; see `punctual.executors.cluster.channel`."""
        ...


class NodeLink:
    """Talks to the agent of one node, in the loop that all nodes share.

    * `resets`: whether nothing may be left of what the agent did before it is greeted for the first time.
    * `n_losses`: number of times that the node was lost before.

    * `is_joined`: whether the node has answered, and is not lost.
    * `has_answered`: whether the agent was heard since it was greeted; the ends of jobs with long logs may still be to
      come.
    * `is_silent`: whether it has not answered for a while, and that was told.
    """

    def __init__(
        self,
        node: NodeId,
        channel: NodeChannel,
        options: LinkOptions,
        listener: LinkListener,
        loop: LinkLoop,
        *,
        resets: bool,
        n_losses: int = 0,
    ) -> None:
        self.node, self._loop = node, loop
        self._channel, self._options, self._listener = channel, options, listener
        self._now = options.now
        self._resets = resets
        self.is_joined = self.has_answered = self.is_silent = False
        #: What the log has something of already.
        self._told: set[str] = set()
        self._taken_cores = 0.0
        #: Instant of the agent's clock at which the node is taken away, as last told; None: it stays.
        self._ends_at: float | None = None
        self._offset = ClockOffset()
        self._capacity: Resources | None = None
        #: The host's generation, and how often it has lost the node since: the agent must not obey earlier requests.
        self._generation = [options.generation, n_losses]
        self._incarnation = ""
        #: The incarnation that was asked to leave, because it is of another version, and when.
        self._leaving: tuple[str, float] | None = None
        self._last_number = 0
        self._stamp: float | None = None
        self._answered_at = options.now()
        #: Requests to perform commands, with these; None: the link is closed.
        self._outbox: asyncio.Queue[tuple[dict[str, Any], JobCommand] | None] = asyncio.Queue()
        self._is_over = False

    @property
    def n_losses(self) -> int:
        """Number of times that this host has lost the node."""
        return self._generation[1]

    @property
    def silent_s(self) -> float:
        """Seconds since the last answer."""
        return self._now() - self._answered_at

    @property
    def lost_in_s(self) -> float:
        """Seconds until the node counts as lost, if it stays silent."""
        return max(0.0, self._options.lost_after_s - self.silent_s)

    @property
    def news(self) -> NodeNews:
        """News of the node for the user."""
        return NodeNews(self.silent_s if self.is_silent else 0.0, self.lost_in_s, self._taken_cores)

    def start(self) -> None:
        for talk in (self._listen(), self._send()):
            self._loop.begin(talk)

    def send(self, command: JobCommand, more: Mapping[str, Any] | None = None) -> None:
        """Send a command to the agent; returns at once. It is repeated until it is answered or the node is lost."""
        sent = encode_message(moved(command, self._offset.offset_s))
        known = {"generation": self._generation, "incarnation": self._incarnation, "seen": self._last_number}
        request = {"verb": "do", "command": sent, **known, **(more or {})}
        self._loop.call(self._outbox.put_nowait, (request, command))

    async def end(self, limit_s: float) -> None:
        """End all jobs of the node; returns once the listener knows that they are gone, or after `limit_s` seconds."""
        give_up_at = self._now() + limit_s
        is_empty, last = False, 0
        while not (is_empty and self._last_number >= last) and self._now() < give_up_at and self.is_joined:
            try:
                answer = await self._ask({"verb": "end"})
            except ChannelLost:
                return
            is_empty, last = answer["is_empty"], answer["last"]
            await asyncio.sleep(_AGAIN_S / 4)

    def close(self) -> None:
        """Send the agent nothing more, and leave it running; requests in progress end with the loop or their answer."""
        self._is_over = True
        self._loop.call(self._outbox.put_nowait, None)

    def _goes_on(self) -> bool:
        return not self._is_over

    # What runs in the loop.

    async def _listen(self) -> None:
        is_greeted = False
        while self._goes_on():
            try:
                is_greeted = is_greeted or await self._greet()
                if is_greeted:
                    await self._poll()
                    continue
            except Exception as error:  # noqa: BLE001 -- what came may be no answer of an agent: it counts as silent
                if not isinstance(error, ChannelLost):
                    self._tell_once("answer", f"has answered something else ({type(error).__name__}: {error})")
                self._note_silence(error)
                is_greeted = False
            if self.is_joined and self.silent_s > self._options.lost_after_s:
                self._lose()
            await asyncio.sleep(_AGAIN_S)

    def _note_silence(self, error: Exception) -> None:
        # Seconds without an answer after which a node is reported as silent.
        if self.is_silent or self.silent_s < 5.0:
            return
        self.is_silent = True
        text = f"has not answered for {span(self.silent_s)}"
        if self.is_joined:
            text += f": nothing newer is known of it. If that lasts, the node counts as lost in {span(self.lost_in_s)}"
        _LOG.warning("node '%s' %s (%s)", self.node, text, str(error) or type(error).__name__)
        if self.is_joined:
            self._warn(Reason("silent-node", text, {"silent_s": self.silent_s, "lost_in_s": self.lost_in_s}))

    def _warn(self, reason: Reason) -> None:
        told = replace(reason, text=f"node '{self.node}', where the job runs, {reason.text}")
        self._listener.received(self, NodeWarned(at=self._now(), node=self.node, reason=told))

    async def _send(self) -> None:
        while (sent := await self._outbox.get()) is not None:
            request, command = sent
            # What was said before the node was lost is not to be obeyed any more.
            while self._goes_on() and self.is_joined and request["generation"] == self._generation:
                with suppress(Exception):  # no answer, or none of an agent, of which `_listen` hears too
                    answer = await self._ask(request)
                    if "refused" in answer:
                        self._refuse(command, InvalidSpec.from_fields(answer["refused"]))
                    if "fenced" not in answer:
                        break
                await asyncio.sleep(_AGAIN_S)

    def _refuse(self, command: JobCommand, why: InvalidSpec) -> None:
        """Answer a command that the agent cannot read: it is of another version."""
        _LOG.error("node '%s' has refused a command: %s", self.node, why)
        if isinstance(command, LaunchJob):
            self._listener.received(self, not_started(command, f"node '{self.node}' has refused the launch: {why}"))

    async def _greet(self) -> bool:
        """Greet the agent; return whether it accepts this host and has no earlier job left that must go."""
        answer = await self._ask({"verb": "greet", "reset": self._resets})
        if self._resets and not answer["is_empty"]:
            return False
        await self._have_replaced(answer)
        if answer["incarnation"] != self._incarnation:
            self._incarnation, self._last_number, self._stamp = answer["incarnation"], 0, answer["sent"]
        self._resets = False
        self._take_capacity(answer, [_job_of(JobId(job), *facts) for job, facts in answer["held"].items()])
        return True

    async def _have_replaced(self, answer: Answer) -> None:
        """Ask an agent of another version to leave, once; raises `ChannelLost` until it is gone."""
        version = answer.get("version", "")
        if not version or self._options.version in ("", version):
            return
        if self._leaving is None:
            self._leaving = answer["incarnation"], self._now()
            await self._ask({"verb": "leave"})
            raise ChannelLost(f"its agent is of version {version} and makes way for one of {self._options.version}")
        incarnation, asked_at = self._leaving
        # Seconds that an agent may take to leave when asked to.
        if answer["incarnation"] == incarnation and self._now() < asked_at + 20.0:
            raise ChannelLost(f"its agent is of version {version} and makes way")
        self._tell_once(
            "version", f"has Punctual {version}, and the service is {self._options.version}: update it there"
        )

    async def _poll(self) -> None:
        fields = self._listener.poll_fields(self.node)
        known = {"incarnation": self._incarnation, "seen": self._last_number, "stamp": self._stamp}
        answer = await self._ask({"verb": "poll", **known, **fields}, fields["wait_s"])
        if answer["incarnation"] != self._incarnation:
            raise ChannelLost
        self._take_capacity(answer, ())
        for sent in answer["reports"]:
            if isinstance(report := self._read(sent), ProgressReported):
                self._listener.reported(self, report)
        for job, place, text in answer["output"]:
            self._listener.wrote(self, JobId(job), place, b64decode(text))
        for job, facts in answer["facts"].items():
            self._listener.public_facts(self, JobId(job), JobFacts.from_fields(facts))
        for number, sent in answer["events"]:
            if number > self._last_number:
                self._last_number = number  # first: a launch that answers the event says that the host has heard it
                if isinstance(event := self._read(sent), Event):
                    self._listener.received(self, event)
        self.has_answered = True

    def _take_capacity(self, answer: Answer, jobs: Sequence[FoundJob]) -> None:
        self._taken_cores = answer.get("taken_cores", 0.0)
        capacity = Resources(**answer["capacity"])
        if capacity != self._capacity or not self.is_joined:
            self._capacity = capacity
            self._listener.joined(self, capacity, answer["device"], jobs)
        ends_at = answer.get("ends_at")
        if ends_at != self._ends_at:
            self._ends_at = ends_at
            here_at = None if ends_at is None else ends_at - self._offset.offset_s
            self._listener.received(self, NodeNoticed(at=self._now(), node=self.node, ends_at=here_at))

    def _lose(self) -> None:
        _LOG.warning("node '%s' is lost: it has not answered for %.0f s", self.node, self.silent_s)
        self.is_joined, self._ends_at = False, None
        self._generation, self._resets = [self._generation[0], self._generation[1] + 1], True
        self._listener.lost(self)

    async def _ask(self, request: Mapping[str, Any], wait_s: float = 0.0) -> Answer:
        sent_at = self._now()
        answer = await self._channel({"generation": self._generation, **request}, wait_s + _ANSWER_S_MAX)
        if answer.get("superseded", [0])[0] > self._options.generation:
            _LOG.warning("another host has taken node '%s' over", self.node)
            self._is_over = True
        if self._is_over or "superseded" in answer:
            raise ChannelLost
        silent_s, self._answered_at = self.silent_s, self._now()
        if self.is_silent:
            self.is_silent = False
            _LOG.warning("node '%s' answers again, after %.0f s", self.node, silent_s)
            if self.is_joined:
                self._warn(Reason("node-answers", "answers again"))
        self._stamp = max(self._stamp or answer["sent"], answer["sent"])
        # The machine may have been started again, and its clock with it.
        offset = self._offset if answer["incarnation"] == self._incarnation else ClockOffset()
        offset.take(sent_at, answer["received"], answer["sent"], self._answered_at)
        self._offset = offset
        return answer

    def _read(self, sent: list[str]) -> Message | None:
        """Decode a message of the agent; None: it is one of another version, which is left out."""
        try:
            return self._here(decode_message(sent))
        except InvalidSpec as error:
            self._tell_once(sent[0], f"sends what cannot be read, and is left out: {error}")
            return None

    def _tell_once(self, about: str, text: str) -> None:
        if about not in self._told:
            self._told.add(about)
            _LOG.warning("node '%s' %s", self.node, text)

    def _here(self, message: M) -> M:
        """Convert the agent's message to this clock, with none of its instants in the future."""
        here, now = moved(message, -self._offset.offset_s), self._now()
        late = [name for name in ("at", "unit_at", "landed_at") if getattr(here, name, now) > now]
        return replace(here, **dict.fromkeys(late, now)) if late else here  # type: ignore[type-var]


def _job_of(job: JobId, amount: Mapping[str, Any] | None, launch: list[str] | None) -> FoundJob:
    """Decode an agent's description of a job."""
    heard_launch = None if launch is None else decode_message(launch)
    assert heard_launch is None or isinstance(heard_launch, LaunchJob)
    return FoundJob(job, None if amount is None else Resources(**amount), heard_launch)
