"""Optuna: a study that ends at a time, ``optimize_until(study, objective, end_at=...)``, or has its trials as steps."""

import time
from collections.abc import Callable, Sequence
from statistics import median

from optuna import Study, Trial
from optuna.pruners import BasePruner
from optuna.trial import FrozenTrial, TrialState

from punctual.client.complaint import invalid
from punctual.client.stop import on_stop
from punctual.client.track import track

Objective = Callable[[Trial], float | Sequence[float]]


def optimize(study: Study, objective: Objective, n_trials: int) -> None:
    """Run a study to `n_trials` trials, each a step, of which those that it has already count.

    Asked to stop, the study ends after the trial under way; one with a storage goes on from there.

    Parameters
    ----------
    study
        One that other processes work on as well is counted by this process alone.
    n_trials
        Trials of the whole study that completed or were pruned.
    """
    run = track(range(n_trials), start_step=min(n_trials, len(_ended(study))))
    on_stop(lambda: None)  # the study keeps its trials itself
    for _ in run:
        study.optimize(objective, n_trials=1)


def optimize_until(study: Study, objective: Objective, *, end_at: float) -> int:
    """Run trials until no other one would be done by `end_at`.

    A trial begins if the median of the trials completed in this call takes no longer than the time that is left. One that
    reports intermediate values, and asks `trial.should_prune`, is pruned as soon as it would be late: it has reported up to
    step k after t seconds, and the longest completed trial reported up to step K, so it takes t (K + 1)/(k + 1). The pruner
    of the study is asked as well. The first trial always begins, and is pruned at its first report after `end_at`. A trial
    that reports nothing is not interrupted.

    Parameters
    ----------
    end_at
        Instant, in seconds since 1970, as `time.time` has them.

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
    given, lasted_s, ended = study.pruner, list[float](), list[FrozenTrial]()
    study.pruner = TimePruner(given, end_at)
    try:
        while not lasted_s or time.time() + median(lasted_s) <= end_at:
            if time.time() >= end_at:
                break
            began_at = time.time()
            study.optimize(objective, n_trials=1, callbacks=[lambda _, trial: ended.append(trial)])
            if ended[-1].state == TrialState.COMPLETE:
                lasted_s.append(time.time() - began_at)
    finally:
        study.pruner = given
    return len(ended)


class TimePruner(BasePruner):
    """Prunes trials that would not be done in time, and those that another pruner prunes."""

    def __init__(self, other: BasePruner, end_at: float) -> None:
        self._other = other
        self._end_at = end_at

    def prune(self, study: Study, trial: FrozenTrial) -> bool:
        """Whether the trial, which has just reported, is to end."""
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


def _ended(study: Study) -> list[FrozenTrial]:
    return study.get_trials(deepcopy=False, states=(TrialState.COMPLETE, TrialState.PRUNED))
