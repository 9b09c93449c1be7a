"""What the users of a service do between faults, and what they may count on since: all that was acknowledged."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import _faults_training
from _faults_training import Job

from punctual.client.client import Client, ServiceFailed
from punctual.client.schema import JobStanding
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted, PauseRequested, ResumeRequested, SpecChanged, StopRequested
from punctual.core.lifecycle import ended_by
from punctual.core.protocols import Message
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.run_folder import RunFolder

#: The job that is there from the first fault of a session to its last: it waits until it is let go.
ANCHOR = "anchor"
#: Steps, and seconds that each of them computes and sleeps.
_N_STEPS, _COMPUTE_S, _SLEEP_S = 80, 0.004, 0.05
_ANCHOR_STEPS, _ANCHOR_WAITS_AT = 60, 30
#: So many jobs beside it are open when a fault comes.
N_OPEN = 3
_ANSWER_S_MAX = 20.0
#: What two wishes for deadlines differ in, in seconds, so that each can be told from all others.
_DEADLINE_STEP_S = 1000.0
#: Between the clock by which a service reads a deadline and the instant that its journal has for it.
_READING_S = 60.0
_KINDS = {
    "pause": PauseRequested, "resume": ResumeRequested, "stop": StopRequested, "change": SpecChanged,
}  # fmt: skip


@dataclass
class Wish:
    """Something that was asked of the service.

    Attributes
    ----------
    from_at, to_at
        Monotonic instants between which it was asked and answered.
    is_acknowledged
        The service has said that it is so; else it has refused, or was not heard.
    """

    kind: str
    job: str
    mark: str
    deadline_s: float
    from_at: float
    to_at: float = 0.0
    is_acknowledged: bool = False
    may_be_done: bool = True


class Users:
    """Ask a service for things by its HTTP socket and by its control socket, and write down what it has acknowledged."""

    def __init__(self, folder: Path, run: RunFolder) -> None:
        self._folder, self._run = folder, run
        self.wishes: list[Wish] = []
        self.jobs: dict[str, Job] = {}
        #: Asks nothing but how jobs stand.
        self.client = Client(timeout_s=_ANSWER_S_MAX)

    def submit(self, name: str) -> None:
        """Submit a job; said again with the same key until it is acknowledged."""
        is_anchor = name == ANCHOR
        job = Job(
            n_steps=_ANCHOR_STEPS if is_anchor else _N_STEPS, compute_s=_COMPUTE_S, sleep_s=_SLEEP_S,
            waits_at=_ANCHOR_WAITS_AT if is_anchor else None,
        )  # fmt: skip
        self.jobs[name] = job
        place = self._folder / name
        self._wish("submit", name, lambda _: self.client.submit(
            job.command(place), idempotency_key=name, name=name, checkpoint_dir=str(place), retries=9,
            env={"PYTHONPATH": str(Path(_faults_training.__file__).parent)},
        ))  # fmt: skip

    def open_jobs(self) -> list[str]:
        """Those that have not ended, the one that waits left out."""
        return [job.name for job in self.client.jobs() if job.ended is None and job.name != ANCHOR]

    def act(self, rng: random.Random, jobs: Sequence[str]) -> None:
        """Ask for something that is drawn."""
        kind = rng.choices(("pause", "resume", "change", "stop"), (3, 3, 3, 1))[0]
        job, by_http = rng.choice([*jobs, *([ANCHOR] if kind == "change" else [])]), rng.random() < 0.5
        ways = self._over_http() if by_http else self._by_socket()
        self._wish(kind, job, ways[kind])

    def let_go(self, job: JobStanding) -> None:
        """Have nothing hold up a job: no pause, and no deadline for which it may take its time."""
        with suppress(InvalidSpec, ServiceFailed):
            if job.ended is None and job.state in ("paused", "queued"):
                self.client.resume(job.name)
        with suppress(InvalidSpec, ServiceFailed):
            if job.ended is None and job.deadline is not None:
                self.client.change(job.name, deadline=None)

    def _over_http(self) -> dict[str, Callable[[Wish], object]]:
        client = self.client
        return {
            "pause": lambda wish: client.pause(wish.job, wish.mark),
            "resume": lambda wish: client.resume(wish.job),
            "change": lambda wish: client.change(wish.job, deadline=f"{wish.deadline_s:.0f}s"),
            "stop": lambda wish: client.stop(wish.job, wish.mark),
        }

    def _by_socket(self) -> dict[str, Callable[[Wish], object]]:
        def told(verb: str) -> Callable[[Wish], object]:
            return lambda wish: ask(self._run.socket, {
                "verb": verb, "job": wish.job,
                **({"when": f"{wish.deadline_s:.0f}s", "change": {}} if verb == "change" else {"cause": wish.mark}),
            })  # fmt: skip

        return {verb: told(verb) for verb in _KINDS}

    def _wish(self, kind: str, job: str, way: Callable[[Wish], object]) -> None:
        number = len(self.wishes) + 1
        wish = Wish(kind, job, f"wish {number}.", 1e4 + number * _DEADLINE_STEP_S, time.monotonic())
        self.wishes.append(wish)
        try:
            way(wish)
            wish.is_acknowledged = True
        except InvalidSpec:
            wish.may_be_done = False
        except ServiceFailed as error:
            wish.may_be_done = error.status in {None, 503}
        except ControlFailed:
            pass
        wish.to_at = time.monotonic()

    # What must hold since.

    def faults(self, messages: Sequence[Message]) -> Iterator[str]:
        """What the journal does not have though it was acknowledged, or has twice."""
        for wish in self.wishes:
            n_times = self._n_times(wish, messages)
            if wish.is_acknowledged and not n_times and not self._had_ended(wish, messages):
                yield f"job '{wish.job}': an acknowledged {wish.kind} is forgotten"
            if n_times > 1:
                yield f"job '{wish.job}': {wish.kind} was done {n_times} times"

    def paused(self) -> list[str]:
        """The jobs that stand paused for sure: nothing was asked since that may have been done."""
        last = {wish.job: wish for wish in self.wishes if wish.kind in ("pause", "resume") and wish.may_be_done}
        return [job for job, wish in last.items() if wish.kind == "pause" and wish.is_acknowledged]

    def was_submitted(self, name: str) -> bool:
        """Whether the service has acknowledged the job."""
        return any(wish.kind == "submit" and wish.job == name and wish.is_acknowledged for wish in self.wishes)

    def was_stopped(self, name: str) -> bool:
        """Whether somebody asked that, heard or not."""
        return any(wish.kind == "stop" and wish.job == name and wish.may_be_done for wish in self.wishes)

    def _n_times(self, wish: Wish, messages: Sequence[Message]) -> int:
        if wish.kind == "submit":
            return sum(isinstance(message, JobSubmitted) and message.spec.id == wish.job for message in messages)
        return sum(_is_about(wish, message, messages) for message in messages)

    def _had_ended(self, wish: Wish, messages: Sequence[Message]) -> bool:
        """Whether there was nothing to be done about the job any more; its stop is then acknowledged as well."""
        return wish.kind == "stop" and any(
            ended_by(message) == wish.job and message.at <= wish.to_at for message in messages
        )


def _is_about(wish: Wish, message: Message, messages: Sequence[Message]) -> bool:
    if not isinstance(message, _KINDS[wish.kind]):
        return False
    if isinstance(message, PauseRequested | StopRequested):
        return message.job == wish.job and message.cause.endswith(wish.mark)
    if isinstance(message, ResumeRequested):
        return message.job == wish.job and wish.from_at <= message.at <= wish.to_at
    assert isinstance(message, SpecChanged)
    if message.spec.id != wish.job or message.spec.deadline_s is None:
        return False
    submitted_at = next(told.at for told in messages if isinstance(told, JobSubmitted) and told.spec.id == wish.job)
    return abs(submitted_at + message.spec.deadline_s - message.at - wish.deadline_s) < _READING_S
