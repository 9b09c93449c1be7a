"""Send Punctual's facts about a training to TensorBoard, MLflow or Weights & Biases.

All numbers are of the job that this process belongs to, as its host tells them; a process that is no job has none. They are
asked for and written by a thread, so that no step waits for it.
"""

import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from threading import Event, Thread
from typing import Any

from punctual.channel import JOB_VARIABLE

#: Takes numbers by their names, and the step that they belong to.
Write = Callable[[dict[str, float], int], object]


class MetricsReporter:
    """Fetches the job's standing every `period_s` seconds and writes it, until `close` or the end of the process.

    The numbers, of which those that are not known are left out:

    ========================== ==========================================================================
    punctual/deadline_left_s   until the deadline; below 0 behind it
    punctual/forecast_left_s   until the job is expected to be done
    punctual/forecast_late_s   how much later than its deadline it is expected; below 0: before it
    punctual/grant_cores       cores that it is granted
    punctual/usage_cores       cores that it uses
    ========================== ==========================================================================

    Parameters
    ----------
    write
        Called in the reporter's thread. Its exceptions end the reporting, and not the training.
    """

    def __init__(self, write: Write, *, period_s: float = 10.0) -> None:
        self._write = write
        self._period_s = period_s
        self._closed = Event()
        self._thread: Thread | None = None
        if job := os.environ.get(JOB_VARIABLE):
            self._thread = Thread(target=self._report, args=(job,), name="punctual-metrics", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Write once more, and stop."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()

    def _report(self, job: str) -> None:
        is_last = False
        while not is_last:
            is_last = self._closed.wait(self._period_s)
            told = standing_of(job)
            if told is not None and (numbers := numbers_of(told)):
                try:
                    self._write(numbers, int(told.get("steps_done") or 0))
                except Exception as error:  # noqa: BLE001 -- whatever a library raises
                    from punctual.tracking.complaint import warn

                    warn(
                        "numbers of Punctual must be writable", repr(error), "this training", "It goes on without them."
                    )
                    return


def standing_of(job: str) -> dict[str, Any] | None:
    """Return the standing of `job` from its host; None: it is not steered, or the host is silent."""
    from punctual.daemon.control_socket import ControlFailed, ask

    path = _socket_of(job)
    try:
        told = {} if path is None else ask(path, {"verb": "status", "jobs": [job]})
    except (ControlFailed, ValueError, OSError):  # refused, too, by a host of another version
        told = {}
    if not told:
        _socket_of.cache_clear()  # another host may steer it by the next time
    return next(iter(told.get("jobs", ())), None)


@cache
def _socket_of(job: str) -> Path | None:
    """Return the socket of the job's host; kept, as the journals of all runs are read to find it."""
    from punctual.daemon.runs import open_jobs

    return next((known.run.socket for known in open_jobs() if known.job == job), None)


def numbers_of(told: dict[str, Any]) -> dict[str, float]:
    """Return the numbers in a host's answer."""
    elapsed_s, forecast_s, deadline_s = (told.get(name) for name in ("elapsed_s", "forecast_s", "deadline_s"))
    numbers = {
        "deadline_left_s": told.get("left_s"),
        "forecast_left_s": None if forecast_s is None or elapsed_s is None else forecast_s - elapsed_s,
        "forecast_late_s": None if forecast_s is None or deadline_s is None else forecast_s - deadline_s,
        "grant_cores": told.get("grant_cores"),
        "usage_cores": told.get("usage_cores"),
    }
    return {f"punctual/{name}": float(number) for name, number in numbers.items() if number is not None}


def to_tensorboard(writer: Any, *, period_s: float = 10.0) -> MetricsReporter:
    """Write to a `SummaryWriter`, or any object with its `add_scalar`."""

    def write(numbers: dict[str, float], step: int) -> None:
        for name, number in numbers.items():
            writer.add_scalar(name, number, step)

    return MetricsReporter(write, period_s=period_s)


def to_mlflow(run_id: str | None = None, *, period_s: float = 10.0) -> MetricsReporter:
    """Write to an MLflow run; None: the active one of this thread, which is begun if there is none."""
    import mlflow

    run = run_id or (mlflow.active_run() or mlflow.start_run()).info.run_id
    return MetricsReporter(lambda numbers, step: mlflow.log_metrics(numbers, step=step, run_id=run), period_s=period_s)


def to_wandb(run: Any, *, period_s: float = 10.0) -> MetricsReporter:
    """Write to the run that ``wandb.init`` gave; the numbers appear with what the training logs next."""
    return MetricsReporter(lambda numbers, _: run.log(numbers, commit=False), period_s=period_s)
