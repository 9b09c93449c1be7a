"""Live trainings of `bench/forecasts.py`: what each was told on its way, and when it landed."""

import os
import sys
import time
from dataclasses import dataclass, field
from random import Random

from _common import EXAMPLES
from _processes import home

from punctual.core.control import Forecast
from punctual.core.ids import JobId
from punctual.core.lifecycle import about
from punctual.core.protocols import Message
from punctual.core.status import JobStatus
from punctual.daemon.capacity import capacity_here
from punctual.daemon.host_options import HostOptions
from punctual.daemon.local_host import LocalHost, local_host
from punctual.request.submission import JobRequest, checked_submission

APPS = ("vision", "language", "speech")
N_AT_A_TIME = 2
#: Core-seconds of a training, about; and its steps in an epoch while that is measured.
_FULL_CORE_S, _N_EPOCHS, _N_MEASURED_STEPS = 15.0, 3, 20


@dataclass
class Training:
    """One training: its forecasts as they were told, in seconds since submission.

    Attributes
    ----------
    end_s
        When it landed; None: it has failed.
    deadline_s
        None: it has none, to measure what it costs.
    """

    app: str
    n_epoch_steps: int
    deadline_s: float | None
    told: list[tuple[float, Forecast]] = field(default_factory=list)
    end_s: float | None = None
    used_core_s: float = 0.0


class Trainings:
    """Some trainings at a time, on a host of their own, one after another until all have landed."""

    def __init__(self, host: LocalHost, trainings: list[Training], n_at_a_time: int) -> None:
        self._host, self._left, self._n_at_a_time = host, trainings[::-1], n_at_a_time
        self._open: dict[JobId, Training] = {}
        self._n_submitted = 0
        host.subscribe(self._note)

    def run(self) -> None:
        self._fill()
        self._host.run(lambda: not self._open)

    def _fill(self) -> None:
        while self._left and len(self._open) < self._n_at_a_time:
            training = self._left.pop()
            self._n_submitted += 1
            argv = [sys.executable, str(EXAMPLES / f"{training.app}.py"), "--threads", "1", "--epochs", str(_N_EPOCHS)]
            request = JobRequest(
                argv=(*argv, "--steps-per-epoch", str(training.n_epoch_steps)), submitted_at=time.monotonic(),
                name=f"{training.app}-{training.n_epoch_steps}-{self._n_submitted}", deadline_s=training.deadline_s,
                inherited=dict(os.environ), floor_cores=0.1, ceiling_cores=1.0,
            )  # fmt: skip
            submission = checked_submission(request, capacity_here())
            self._open[submission.spec.id] = training
            self._host.submit(submission)

    def _note(self, message: Message) -> None:
        job = about(message) or getattr(getattr(message, "timer", None), "job", None)
        training = self._open.get(JobId(job)) if job else None
        if training is None:
            return
        status = self._host.status(JobId(str(job)))
        if status.forecast is not None and (not training.told or training.told[-1][1] != status.forecast):
            training.told.append((message.at - status.submitted_at, status.forecast))
        if status.ended:
            self._end(training, status)

    def _end(self, training: Training, status: JobStatus) -> None:
        if status.landed_at is not None:
            training.end_s = status.landed_at - status.submitted_at
        training.used_core_s = status.used_core_s
        del self._open[status.id]
        self._fill()


def live_trainings(n_runs: int, steered: tuple[float, float], late: tuple[float, float]) -> list[Training]:
    """`n_runs` trainings of which two of three have a deadline `steered` times what they take at one core, the others `late`."""
    with home("forecasts"):
        costs = _costs_core_s()
        random, trainings = Random("live"), list[Training]()
        for i_run in range(n_runs):
            app = APPS[i_run % len(APPS)]
            start_core_s, step_core_s = costs[app]
            full_core_s = _FULL_CORE_S * random.uniform(0.7, 1.5)
            slack = random.uniform(*(late if i_run // len(APPS) % 3 == 2 else steered))
            n_epoch_steps = max(5, round((full_core_s - start_core_s) / (_N_EPOCHS * step_core_s)))
            trainings.append(Training(app, n_epoch_steps, round(full_core_s * slack, 1)))
        _play("forecasts", trainings, N_AT_A_TIME)
    return trainings


def _costs_core_s() -> dict[str, tuple[float, float]]:
    """Of each application the core-seconds of all but its steps, and of a step."""
    few = [Training(app, _N_MEASURED_STEPS, None) for app in APPS]
    many = [Training(app, 5 * _N_MEASURED_STEPS, None) for app in APPS]
    _play("measured", [*few, *many], 1)
    costs = {}
    for less, more in zip(few, many, strict=True):
        step_core_s = (more.used_core_s - less.used_core_s) / (4 * _N_EPOCHS * _N_MEASURED_STEPS)
        costs[less.app] = (less.used_core_s - _N_EPOCHS * _N_MEASURED_STEPS * step_core_s, step_core_s)
    return costs


def _play(name: str, trainings: list[Training], n_at_a_time: int) -> None:
    with local_host(name, HostOptions(), output_of=lambda _: lambda _: None) as host:
        Trainings(host, trainings, n_at_a_time).run()
