"""Optuna: report trials as steps (`optimize`), or end a study at a time (`optimize_until`)."""

import threading
import time
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

from optuna import Study, Trial
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from punctual.integrations._loop import FrameworkLoop
from punctual.tracking.complaint import invalid

Objective = Callable[[Trial], float | Sequence[float]]
StudyCallback = Callable[[Study, FrozenTrial], None]


def optimize(
    study: Study, objective: Objective, n_trials: int, *, callbacks: Iterable[StudyCallback] = (), **options: Any
) -> None:
    """Run a study to `n_trials` trials, each a step, of which those that it has already count.

    It ends before where `study.stop` or a `timeout` says so. Asked to stop, the study ends after the trials under way; one with
    a storage goes on from there.

    Parameters
    ----------
    study
        One that other processes work on as well is counted by this process alone.
    n_trials
        Trials of the whole study that completed or were pruned.
    callbacks, options
        Arguments of `study.optimize`: `timeout`, `n_jobs`, `catch` and others.
    """
    ended = study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
    n_done = min(n_trials, len(ended))
    loop = FrameworkLoop(n_trials, start_step=n_done, save=lambda: None)  # the study keeps its trials itself
    steps = _TrialSteps(loop, objective)
    if n_done < n_trials:
        study.optimize(steps.run, n_trials=n_trials - n_done, callbacks=[*callbacks, steps.ended], **options)
    if steps.asked:
        loop.end(steps.asked)
    loop.finish()


class _TrialSteps:
    """Trials as steps; several may run at once, in threads."""

    def __init__(self, loop: FrameworkLoop, objective: Objective) -> None:
        self._loop = loop
        self._objective = objective
        self._lock = threading.Lock()
        #: The code to exit with; 0: Punctual has not asked.
        self.asked = 0

    def run(self, trial: Trial) -> float | Sequence[float]:
        self._begin()
        return self._objective(trial)

    def ended(self, study: Study, _: FrozenTrial) -> None:
        self._begin()
        with self._lock:
            self._loop.step_ended()
            self.asked = self.asked or self._loop.end_asked()
        if self.asked:
            study.stop()

    def _begin(self) -> None:
        with self._lock:
            if not self._loop.is_in_step:
                self._loop.step_began()


def optimize_until(
    study: Study, objective: Objective, *, end_at: float, callbacks: Iterable[StudyCallback] = (), **options: Any
) -> int:
    """Run trials until none would be done by `end_at` any more.

    A trial begins if the median of the trials completed in this call takes no longer than the time that is left. One that
    reports intermediate values, and asks `trial.should_prune`, is pruned as soon as it would be late: it has reported up to
    step k after t seconds, and the longest completed trial reported up to step K, so it takes t (K + 1)/(k + 1). The pruner
    of the study is asked as well. The first trial always begins, and is pruned at its first report after `end_at`. A trial
    that reports nothing is not interrupted.

    Parameters
    ----------
    end_at
        Instant, in seconds since 1970, as `time.time` has them.
    callbacks, options
        Arguments of `study.optimize`: `n_trials`, `n_jobs`, `catch` and others. `study.stop` ends this too.

    Returns
    -------
    int
        Trials begun.

    Raises
    ------
    ValueError
        `end_at` has passed.
    """
    if end_at <= time.time():
        raise invalid(
            "`end_at` must be in the future",
            f"{end_at - time.time():.0f} s from now",
            "`optimize_until`",
            "Give an instant as time.time() + 3600.",
        )
    given, times = study.pruner, _TrialTimes(objective, end_at)
    study.pruner = TimePruner(given, end_at)
    try:
        study.optimize(times.run, callbacks=[*callbacks, times.ended], **options)
    finally:
        study.pruner = given
    return times.n_ended


class _TrialTimes:
    """Durations of trials; a study is stopped when no other one would be done by `end_at`."""

    def __init__(self, objective: Objective, end_at: float) -> None:
        self._objective = objective
        self._end_at = end_at
        self._began_at: dict[int, float] = {}
        self._lasted_s: list[float] = []
        self._lock = threading.Lock()
        self.n_ended = 0

    def run(self, trial: Trial) -> float | Sequence[float]:
        self._began_at[trial.number] = time.time()
        return self._objective(trial)

    def ended(self, study: Study, trial: FrozenTrial) -> None:
        now = time.time()
        with self._lock:
            self.n_ended += 1
            lasted_s = now - self._began_at.pop(trial.number)
            if trial.state == TrialState.COMPLETE:
                self._lasted_s.append(lasted_s)
            ends_at = now + (median(self._lasted_s) if self._lasted_s else 0.0)
        if ends_at > self._end_at:
            study.stop()


class TimePruner(BasePruner):
    """Prunes trials that would not be done in time, and those that another pruner prunes."""

    def __init__(self, other: BasePruner, end_at: float) -> None:
        self._other = other
        self._end_at = end_at

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether to end the trial, which has just reported."""
        return self._is_late(study, trial) or self._other.prune(study, trial)

    def _is_late(self, study: Study, trial: FrozenTrial) -> bool:
        now, began = time.time(), trial.datetime_start
        if now >= self._end_at:
            return True
        last = max((done.last_step or 0 for done in study.get_trials(deepcopy=False, states=_COMPLETE)), default=None)
        if last is None or trial.last_step is None or began is None:
            return False
        total_s = (now - began.timestamp()) * (last + 1) / (trial.last_step + 1)
        return began.timestamp() + total_s > self._end_at


_COMPLETE = (TrialState.COMPLETE,)
