import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from punctual.channel import Directives, ProgramState, SharedBlock

pytest.importorskip("optuna", reason="Optuna is not installed (extra `adapters`)")

import optuna

from punctual.integrations import optuna as adapter
from punctual.integrations.optuna import optimize, optimize_until

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own


def study(**options: Any) -> Any:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=0), **options)


def test_trials_are_steps(page: SharedBlock) -> None:
    found = study()
    optimize(found, lambda trial: trial.suggest_float("x", 0, 1), 5)
    assert len(found.trials) == 5
    assert (page.declaration().state, page.declaration().total_steps, page.progress().n_steps) == (
        ProgramState.LANDED,
        5,
        5,
    )


def test_a_study_that_is_stopped_goes_on(page: SharedBlock, restart: Callable[[], None], tmp_path: Path) -> None:
    storage: dict[str, Any] = {
        "storage": f"sqlite:///{tmp_path}/study.db", "study_name": "study", "load_if_exists": True,
    }  # fmt: skip

    def objective(trial: Any) -> float:
        if trial.number == 2:
            page.send(Directives(stop=True))
        return float(trial.suggest_float("x", 0, 1))

    with pytest.raises(SystemExit) as stopped:
        optimize(study(**storage), objective, 5)
    assert (stopped.value.code, page.progress().n_steps) == (143, 3)
    restart()
    found = study(**storage)
    optimize(found, objective, 5)
    assert len(found.trials) == 5
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.LANDED, 5)


def landed_with(page: SharedBlock, n_steps: int) -> bool:
    declared = page.declaration()
    return (declared.state, declared.total_steps, page.progress().n_steps) == (ProgramState.LANDED, n_steps, n_steps)


@pytest.mark.parametrize("by", ["objective", "callback"])
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_a_study_that_stops_itself_has_landed(page: SharedBlock, by: str, n_jobs: int) -> None:
    def objective(trial: Any) -> float:
        if by == "objective" and trial.number == 3:
            trial.study.stop()
        return float(trial.suggest_float("x", 0, 1))

    def plateau(found: Any, trial: Any) -> None:
        if by == "callback" and trial.number == 3:
            found.stop()

    found = study()
    optimize(found, objective, 50, callbacks=[plateau], n_jobs=n_jobs)
    assert 4 <= len(found.trials) < 50
    assert landed_with(page, len(found.trials))


def test_a_study_ends_at_its_timeout(page: SharedBlock) -> None:
    found = study()

    def objective(trial: Any) -> float:
        time.sleep(0.2)
        return 0.0

    optimize(found, objective, 1000, timeout=0.5)
    assert 1 <= len(found.trials) < 1000
    assert landed_with(page, len(found.trials))


def test_trials_that_fail_in_a_way_that_is_caught_are_steps_too(page: SharedBlock) -> None:
    def objective(trial: Any) -> float:
        if trial.number % 2:
            raise KeyError
        return float(trial.suggest_float("x", 0, 1))

    found = study()
    optimize(found, objective, 6, catch=(KeyError,))
    assert states(found) == ["COMPLETE", "FAIL"] * 3
    assert landed_with(page, 6)


def test_trials_side_by_side_are_steps(page: SharedBlock) -> None:
    found = study()
    optimize(found, lambda trial: trial.suggest_float("x", 0, 1), 20, n_jobs=3)
    assert len(found.trials) == 20
    assert landed_with(page, 20)


def test_a_study_that_is_stopped_ends_after_the_trials_under_way(page: SharedBlock) -> None:
    def objective(trial: Any) -> float:
        if trial.number == 4:
            page.send(Directives(stop=True))
        return float(trial.suggest_float("x", 0, 1))

    found = study()
    with pytest.raises(SystemExit) as stopped:
        optimize(found, objective, 100, n_jobs=2)
    assert stopped.value.code == 143
    assert len(found.trials) == page.progress().n_steps < 100


class Clock:
    """Time that passes only when a trial says so; trials are told to begin at it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = time.time()
        monkeypatch.setattr(adapter, "time", SimpleNamespace(time=lambda: self.now))
        prune = adapter.TimePruner._is_late

        def began(pruner: Any, study: Any, trial: Any) -> bool:
            start = SimpleNamespace(timestamp=lambda: self.began)
            return prune(pruner, study, SimpleNamespace(datetime_start=start, last_step=trial.last_step))

        monkeypatch.setattr(adapter.TimePruner, "_is_late", began)

    def steps(self, s_each: Callable[[int], float], n_steps: int = 4) -> Callable[[Any], float]:
        """Make an objective whose trial number i takes `s_each(i)` seconds a step."""

        def objective(trial: Any) -> float:
            self.began = self.now
            for step in range(n_steps):
                self.now += s_each(trial.number)
                trial.report(1.0, step)
                if trial.should_prune():
                    raise optuna.TrialPruned
            return float(trial.suggest_float("x", 0, 1))

        return objective


def states(found: Any) -> list[str]:
    return [trial.state.name for trial in found.trials]


def test_no_trial_begins_that_would_be_late(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, found = Clock(monkeypatch), study(pruner=optuna.pruners.NopPruner())
    end_at = clock.now + 10.0
    assert optimize_until(found, clock.steps(lambda i: 1.0), end_at=end_at) == 2  # a third would be done after 12 s
    assert states(found) == ["COMPLETE", "COMPLETE"]
    assert isinstance(found.pruner, optuna.pruners.NopPruner)


def test_trials_that_wait_in_the_study_are_not_taken_for_the_one_that_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, found = Clock(monkeypatch), study()
    for _ in range(3):
        found.enqueue_trial({"x": 0.5})

    def objective(trial: Any) -> float:
        clock.now += 4.0
        return float(trial.suggest_float("x", 0, 1))

    assert optimize_until(found, objective, end_at=clock.now + 10.0) == 2
    assert states(found) == ["COMPLETE", "COMPLETE", "WAITING"]


def test_a_trial_that_turns_out_to_be_late_is_pruned(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, found = Clock(monkeypatch), study(pruner=optuna.pruners.NopPruner())
    end_at = clock.now + 10.0
    optimize_until(found, clock.steps(lambda i: 1.0 if i == 0 else 2.0), end_at=end_at)
    assert states(found) == ["COMPLETE", "PRUNED", "PRUNED"][: len(found.trials)]
    assert clock.now <= end_at


def test_the_first_trial_is_pruned_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, found = Clock(monkeypatch), study()
    end_at = clock.now + 10.0
    assert optimize_until(found, clock.steps(lambda i: 4.0), end_at=end_at) == 1
    assert (states(found), clock.now) == (["PRUNED"], end_at + 2.0)


def test_a_study_with_an_end_stops_itself_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, found = Clock(monkeypatch), study()
    callbacks = [lambda found, trial: found.stop() if trial.number == 1 else None]
    assert optimize_until(found, clock.steps(lambda i: 1.0), end_at=clock.now + 100.0, callbacks=callbacks) == 2


def test_a_study_with_an_end_has_trials_side_by_side_and_such_as_fail() -> None:
    def objective(trial: Any) -> float:
        time.sleep(0.05)
        if trial.number % 2:
            raise KeyError
        return 0.0

    found = study()
    n_begun = optimize_until(found, objective, end_at=time.time() + 1.0, catch=KeyError, n_jobs=2)
    assert n_begun == len(found.trials) >= 2


def test_a_time_that_has_passed_is_refused() -> None:
    with pytest.raises(ValueError, match="must be in the future"):
        optimize_until(study(), lambda trial: 0.0, end_at=time.time() - 1)
