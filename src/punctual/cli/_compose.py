"""A run put together: scheduler, executor, planner, journal, loop and control socket around one job."""

import re
import secrets
import shutil
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol, Self

from punctual import registry
from punctual.cli._door import Door
from punctual.cli._picture import Picture
from punctual.cli._workers import WorkerWishes, worker_in
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted, NodeJoined, SteeringResumed, StopRequested, TimerFired
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.loss import LossGoal
from punctual.core.program import Program
from punctual.core.protocols import ConvergenceModel, Message, Sink
from punctual.core.resources import Resources
from punctual.core.scheduler import Scheduler
from punctual.executors.local import LocalExecutor
from punctual.executors.local.context import OnOutput
from punctual.executors.local.progress_text import ProgressText
from punctual.runtime import paths
from punctual.runtime.capacity import FLOOR_CORES, usable_cores, usable_gpus
from punctual.runtime.control_socket import ControlSocket
from punctual.runtime.live import LiveEngine
from punctual.runtime.mailbox import MonotonicClock
from punctual.runtime.planner import InlinePlanner
from punctual.store.sqlite import SqliteJournal
from punctual.wire import CHECKPOINT_VARIABLE, GOAL_VARIABLE, WORKERS_VARIABLE

DEFAULT_CONTROLLER = "remaining-cost"
#: The same for a job made of workers, and what learns how fast it is with how many. The controller also does without:
#: models need numpy, which may be installed for the training alone.
DEFAULT_WORKER_CONTROLLER = "two-level"
WORKER_MODEL = "all-reduce"

#: This machine.
HERE = NodeId("local")


class Display(Protocol):
    """Shows what happens; called in the loop's thread, after the picture has taken the message in."""

    def tell(self, message: Message) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Wishes:
    """What a user wants run, and how.

    Attributes
    ----------
    argv
        The program and its arguments.
    started_at
        Instant from which the deadline counts.
    deadline_s
        Seconds from `started_at`; None: no deadline.
    workers
        How many workers the job may have; None: it is not made of workers, and holds cores.
    controller
        None: the default for such a job.
    """

    argv: tuple[str, ...]
    started_at: float
    deadline_s: float | None = None
    floor_cores: float | None = None
    ceiling_cores: float | None = None
    workers: WorkerWishes | None = None
    controller: str | None = None
    margin_frac: float | None = None
    actuator: str = "auto"
    progress_pattern: str | None = None
    n_steps: int | None = None
    goal: LossGoal | None = None
    checkpoint_dir: Path | None = None
    name: str | None = None


class Origin(Protocol):
    """Where the job of a run comes from: it is new, or it runs already and is taken over."""

    @property
    def picture(self) -> Picture:
        """The job as it stands."""
        ...

    @property
    def scheduler(self) -> Scheduler:
        """What it has been told so far."""
        ...

    @property
    def program(self) -> Program:
        """What the job runs."""
        ...

    def places(self, ending: ExitStack) -> paths.Run:
        """Where the run is kept; what has to be done about it at its end, however it ends, is left with `ending`."""
        ...

    def executor(self, places: paths.Run) -> LocalExecutor:
        """Who will run the job."""
        ...

    def begin(self, executor: LocalExecutor, post: Sink) -> None:
        """Have the job begin or go on; what fails here leaves a running job as it was."""
        ...


class LiveRun:
    """One job with everything around it; enter it, add displays, `drive` it.

    Leaving it ends whatever is left of the job and removes all that only a running job needs.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._ending = ExitStack()
        self._displays: list[Display] = []
        self._abandoned = False
        self._begun = False
        #: CPU time that steering the job took, without starting this program and reading its journal at the end.
        self.controller_cpu_s = 0.0
        self.picture, self._scheduler = origin.picture, origin.scheduler
        self.job, self._controller = self.picture.spec.id, self.picture.spec.controller

    def __enter__(self) -> Self:
        with ExitStack() as opened:
            self.places = self._origin.places(opened)
            self._journal = opened.enter_context(SqliteJournal(self.places.journal))
            self.executor = opened.enter_context(self._origin.executor(self.places))
            self._engine = self._make_engine()
            door = Door(lambda: self.picture, self._engine.post, self.facts)
            opened.enter_context(ControlSocket(self.places.socket, door.answer))
            self._origin.begin(self.executor, self._engine.post)
            self._ending = opened.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ending.close()

    def show(self, display: Display) -> None:
        """Let `display` see each message."""
        self._displays.append(display)

    def drive(self) -> None:
        """Run the job to its end."""
        begun_s = time.process_time()
        self._engine.run(lambda: self._abandoned or self._ended())
        self.controller_cpu_s = time.process_time() - begun_s

    def _ended(self) -> bool:
        """Whether the job has ended; one that was stopped before its launch ends without a message."""
        ended = ("finished", "failed")
        return self._begun and self._scheduler.job(self.job).status in ended

    def stop(self, cause: str) -> None:
        """Ask the job to end; may be called from a signal's code."""
        self._engine.post(StopRequested(at=time.monotonic(), job=self.job, cause=cause))

    def abandon(self, cause: str) -> None:
        """End the job at once, without a checkpoint; may be called from a signal's code."""
        self._abandoned = True
        self.stop(cause)  # wakes the loop, which then finds that it is to leave

    def messages(self) -> Iterator[Message]:
        """The journal up to now, one at a time: that of a long run is large."""
        return (message for _, message in self._journal.read_from(1))

    def facts(self) -> dict[str, Any]:
        """What does not change while the job runs."""
        return {"controller": self._controller, "actuator": self._actuator_name()}

    def steered_by(self) -> str:
        """Controller and actuator, in words."""
        return f"controller {self._controller}, actuator {self._actuator_name()}{self._but()}"

    def steered_by_and_why(self) -> str:
        """The same, and why it is this actuator."""
        reason = self.executor.actuator_reason(self.job).rstrip(".")
        return f"controller {self._controller}, actuator {self._actuator_name()}: {reason}{self._but()}"

    def _actuator_name(self) -> str:
        return self.executor.actuator_name(self.job)

    def _but(self) -> str:
        """Nobody in a program without the client would wait; its user is not to learn that from when it lands."""
        powerless = self._actuator_name() == "pacing" and self._origin.program.progress_pattern is not None
        return ", but a program whose output is read cannot be paced and runs at full speed" if powerless else ""

    def _make_engine(self) -> LiveEngine:
        planner = InlinePlanner(registry.load("policies", "proportional")())
        return LiveEngine(self._scheduler, self.executor, planner, self._journal, listeners=[self._listen])

    def _steps_expected(self) -> float | None:
        if self.picture.spec.goal is None or self._ended():
            return None
        expected, _ = self._scheduler.steps_total(self.job)
        return None if expected == self.picture.steps_total else expected

    def _listen(self, message: Message) -> None:
        self.picture.fold(message)
        if isinstance(message, TimerFired):
            demand = self._scheduler.demand(self.job)
            self.picture.forecast = demand.forecast if demand else None
            self.picture.steps_expected = self._steps_expected()
        self._begun |= isinstance(message, JobSubmitted | SteeringResumed)
        for display in self._displays:
            display.tell(message)


class NewJob:
    """The origin of a job that is wished for."""

    def __init__(self, wishes: Wishes, on_output: OnOutput) -> None:
        self._wishes = wishes
        self._capacity = Resources(usable_cores(), usable_gpus())
        job = JobId(_new_name(wishes.argv) if wishes.name is None else wishes.name)
        spec = _spec(wishes, job, self._capacity)
        self.picture = Picture(spec=spec, submitted_at=wishes.started_at, steps_total=wishes.n_steps)
        self.scheduler = scheduler_for(spec)
        if wishes.progress_pattern is not None:
            ProgressText(wishes.progress_pattern)
        self.program = Program(
            argv=wishes.argv, progress_pattern=wishes.progress_pattern, environment=_environment(wishes)
        )
        self._on_output = on_output

    def places(self, ending: ExitStack) -> paths.Run:
        places = paths.create_run(self.picture.spec.id, {"argv": self._wishes.argv, "wall": _wall_text()})

        def forget_if_refused(kind: object, *_: object) -> None:
            """A run that could not even be put together leaves no journal behind."""
            if kind is not None:
                shutil.rmtree(places.state_dir, ignore_errors=True)

        ending.push(forget_if_refused)
        ending.callback(paths.remove_live_places, places)
        return places

    def executor(self, places: paths.Run) -> LocalExecutor:
        return LocalExecutor(
            node=HERE, actuator=self._wishes.actuator, runtime_dir=places.runtime_dir, clock=MonotonicClock(),
            on_kept=lambda _, pid: paths.record_keeper(places, pid), output_of=lambda _: self._on_output,
        )  # fmt: skip

    def begin(self, executor: LocalExecutor, post: Sink) -> None:
        post(NodeJoined(at=time.monotonic(), node=HERE, capacity=self._capacity))
        post(JobSubmitted(at=self._wishes.started_at, spec=self.picture.spec, program=self.program))


def scheduler_for(spec: JobSpec) -> Scheduler:
    """One that can steer a job of this specification."""
    controller, model = spec.controller or DEFAULT_CONTROLLER, spec.model
    return Scheduler(
        {controller: registry.load("controllers", controller)()},
        models={model: registry.load("models", model)()} if model is not None else {},
        convergences=_convergences(spec),
    )


def _new_name(argv: Sequence[str]) -> str:
    """The script's name and four characters more: `train-3f2a`."""
    words = [word for word in argv if not word.startswith("-")]
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    module = argv[argv.index("-m") + 1].rpartition(".")[2] if "-m" in argv[:-1] else None
    stem = module or Path((scripts or words or ["job"])[0]).stem
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._") or "job"
    return f"{cleaned[:40]}-{secrets.token_hex(2)}"


def _spec(wishes: Wishes, job: JobId, capacity: Resources) -> JobSpec:
    return (
        _spec_of_cores(wishes, job, capacity.cores)
        if wishes.workers is None
        else _spec_of_workers(wishes, job, wishes.workers, capacity)
    )


def _spec_of_workers(wishes: Wishes, job: JobId, workers: WorkerWishes, capacity: Resources) -> JobSpec:
    worker = worker_in(workers, capacity)
    return JobSpec(
        id=job,
        ceiling=worker * workers.n_most,
        floor=worker * workers.n_least,
        worker=worker,
        counts=workers.counts,
        work_steps=wishes.n_steps,
        goal=wishes.goal,
        deadline_s=wishes.deadline_s,
        controller=wishes.controller or DEFAULT_WORKER_CONTROLLER,
        model=WORKER_MODEL if find_spec("numpy") is not None else None,
        margin_frac=wishes.margin_frac,
    )


def _spec_of_cores(wishes: Wishes, job: JobId, capacity_cores: float) -> JobSpec:
    ceiling_cores = capacity_cores if wishes.ceiling_cores is None else wishes.ceiling_cores
    if ceiling_cores > capacity_cores:
        raise InvalidSpec(
            "`--cores` must not ask for more than there is", f"{ceiling_cores:g} cores",
            f"this machine, of which this process may use {capacity_cores:g}",
            f"Lower the ceiling (`--cores {capacity_cores:g}`), or leave it out.",
        )  # fmt: skip
    floor_cores = min(FLOOR_CORES, ceiling_cores) if wishes.floor_cores is None else wishes.floor_cores
    return JobSpec(
        id=job,
        ceiling=Resources(ceiling_cores),
        floor=Resources(floor_cores),
        work_steps=wishes.n_steps,
        goal=wishes.goal,
        deadline_s=wishes.deadline_s,
        controller=wishes.controller or DEFAULT_CONTROLLER,
        margin_frac=wishes.margin_frac,
    )


def _convergences(spec: JobSpec) -> dict[str, ConvergenceModel[Any]]:
    """The model that the job needs; it brings numpy, so a job without a goal goes without it."""
    return {} if spec.goal is None else {spec.convergence: registry.load("convergence", spec.convergence)()}


def _environment(wishes: Wishes) -> dict[str, str]:
    """Variables that the job is given on top of those of this process."""
    given = {}
    if wishes.checkpoint_dir is not None:
        given[CHECKPOINT_VARIABLE] = str(wishes.checkpoint_dir.absolute())
    if wishes.goal is not None:
        given[GOAL_VARIABLE] = repr(wishes.goal.target)
    if wishes.workers is not None:
        given[WORKERS_VARIABLE] = str(wishes.workers.n_most)
    return given


def _wall_text() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
