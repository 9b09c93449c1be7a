"""Run every policy of a scenario on every seed's jobs; finished runs are on disk and not repeated."""

import json
import secrets
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.distribution import check_extras
from punctual.sim import fingerprint, parts
from punctual.sim.assembly import open_trace, recording_of
from punctual.sim.choice import PolicyChoice
from punctual.sim.declared import declared
from punctual.sim.one_run import simulate_one
from punctual.sim.processes import in_processes, in_this_process
from punctual.sim.result import Failure, Result
from punctual.sim.scenario import Scenario
from punctual.sim.stored import StoredRun, clear, read_run, write_run
from punctual.sim.traces.synthetic import FAMILY


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One run to do."""

    scenario: Scenario
    policy: PolicyChoice
    seed: int
    key: str
    folder: Path
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyProgress:
    """Progress of a study.

    Attributes
    ----------
    n_runs, n_done, n_found
        All runs; those that are finished; those among them that had been finished before.
    done_frac
        Share done of the work of runs that were not found; 1 if none was missing.
    """

    n_runs: int
    n_done: int
    n_found: int
    done_frac: float


class Study:
    """A scenario and the folder of its results.

    Parameters
    ----------
    out
        Results lie in ``out/runs/KEY``. The key is a hash of all a run depends on: the scenario, the contents of the
        trace and of measured tables, policy, seed, and the source of Punctual and of others' plug-ins. Several studies may
        share a folder.

    Raises
    ------
    InvalidSpec
        The trace cannot be read, or a library of the extra `sim` is missing.
    """

    def __init__(self, scenario: Scenario, out: Path) -> None:
        check_extras("a study", "sim")
        self.scenario = scenario
        self.out = out
        self._token = secrets.token_hex(4)
        self._trace, recording = open_trace(scenario), recording_of(scenario)
        self._load = recording.load() if recording is not None else None
        if scenario.job:
            declared(scenario.job, scenario.machines)

    @cached_property
    def assignments(self) -> tuple[Assignment, ...]:
        """All runs, seed by seed, so that the policies can be compared as early as possible."""
        common = self._common()
        return tuple(
            self._assignment(policy, seed, common) for seed in self.scenario.seeds for policy in self.scenario.policies
        )

    def run(self, *, n_processes: int = 1, tell: Callable[[StudyProgress], None] | None = None) -> Result:
        """Do the missing runs; an interrupted study keeps the finished ones.

        Parameters
        ----------
        n_processes
            Runs at a time. With more than one, a script must be importable (``if __name__ == "__main__":``).
        tell
            Is called whenever there is something new.

        Raises
        ------
        InvalidSpec
            A run could not be done for a reason that a user can repair.
        """
        missing = [assignment for assignment in self.assignments if read_run(assignment.folder) is None]
        watch = _ProgressSum(len(self.assignments), len(missing), tell or _tell_nobody)
        failures = []
        try:
            with closing(self._done(missing, watch, n_processes)) as outcomes:
                for i_run, failure in outcomes:
                    if failure is not None and failure.invalid is not None:
                        raise InvalidSpec(*failure.invalid)
                    watch.finished(i_run)
                    failures += [failure] if failure else []
        finally:
            clear(self.out / "runs", self._token)
            # Also what an interruption leaves can be compared.
            write_index(self.out, self.scenario, self.result().runs)
        return self.result(tuple(failures))

    def result(self, failures: tuple[Failure, ...] = ()) -> Result:
        """Return the results of this study on disk."""
        stored = (read_run(assignment.folder, assignment.policy.shown) for assignment in self.assignments)
        n_bad_rows = self._trace.bad.n_rows if self._trace else 0
        runs = tuple(run for run in stored if run is not None)
        return Result(self.scenario, runs, self.out, failures, n_bad_rows, self._load)

    def _done(
        self, missing: list[Assignment], watch: "_ProgressSum", n_processes: int
    ) -> Generator[tuple[int, Failure | None], None, None]:
        if n_processes == 1 or len(missing) < 2:
            return in_this_process(carry_out, missing, watch.working)
        return in_processes(carry_out, missing, watch.working, n_processes)

    def _common(self) -> dict[str, Any]:
        """Return the inputs common to all runs; a trace counts by its contents, wherever its file is."""
        keys = self.scenario.keys()
        for own in ("policies", "seeds"):
            keys.pop(own)
        if self._trace is not None:
            # The contents read, which may come from more than one file.
            keys["trace"] = {**keys["trace"], "file": fingerprint.of_values(self._trace)}
        if self._load is not None:
            keys["trace"] = {**keys["trace"], "file": fingerprint.of_values([self._load])}
        if self.scenario.pool:
            keys["pool"] = [
                {**pool, "trace": fingerprint.of_tables(Path(pool["trace"]))} if pool.get("trace") else pool
                for pool in keys["pool"]
            ]
        tables = self.scenario.scaling.parameters.get("tables")
        if tables is not None:
            keys["tables"] = fingerprint.of_tables(Path(tables))
        plug_ins = [fingerprint.of_plug_in(kind) for kind in self._plug_ins()]
        return {"program": fingerprint.of_program(), "scenario": keys, "plug_ins": plug_ins}

    def _plug_ins(self) -> list[type]:
        """The kinds of all plug-ins that the scenario names beside the policies."""
        scenario, generator = self.scenario, self.scenario.trace.generator
        controllers = {scenario.controller, *(table.get("controller") for table in scenario.job)}
        named: dict[str, list[str | None]] = {
            "controllers": sorted(name for name in controllers if name),
            "models": [scenario.scaling.parameters.get("model")],
            "scaling": [scenario.scaling.name],
            FAMILY: [generator.name] if generator else [],
        }
        return [parts.kind(family, name) for family, names in named.items() for name in names if name]

    def _assignment(self, policy: PolicyChoice, seed: int, common: Mapping[str, Any]) -> Assignment:
        own = {"name": policy.name, "parameters": policy.parameters, "seed": seed}
        source = fingerprint.of_plug_in(parts.kind("policies", policy.name))
        text = json.dumps({**common, **own, "source": source}, sort_keys=True)
        key = fingerprint.of_values([text])[:24]
        return Assignment(
            scenario=self.scenario, policy=policy, seed=seed, key=key, folder=self.out / "runs" / key, token=self._token
        )


def carry_out(assignment: Assignment, tell: Callable[[float], None]) -> Failure | None:
    """Simulate and store one run; return a failure as a value, because exceptions lose much between processes."""
    try:
        facts, history = simulate_one(assignment.scenario, assignment.policy, assignment.seed, tell)
        about = {
            "key": assignment.key,
            "policy": assignment.policy.shown,
            "seed": assignment.seed,
            "program": fingerprint.of_program(),
        }
        write_run(assignment.folder, {**about, **facts}, history, assignment.token)
    except InvalidSpec as error:
        invalid = (error.must, error.got, error.where, error.remedy)
        return _failure(assignment, error, invalid)
    except Exception as error:  # noqa: BLE001 -- a policy's bug must not cost the runs of the others
        return _failure(assignment, error)
    return None


class _ProgressSum:
    """Adds up how far all runs are."""

    def __init__(self, n_runs: int, n_missing: int, tell: Callable[[StudyProgress], None]) -> None:
        self._n_runs = n_runs
        self._fracs = dict.fromkeys(range(n_missing), 0.0)
        self._n_done = n_runs - n_missing
        self._tell = tell
        self._say()

    def working(self, i_run: int, done_frac: float) -> None:
        self._fracs[i_run] = max(self._fracs[i_run], done_frac)
        self._say()

    def finished(self, i_run: int) -> None:
        self._n_done += 1
        self.working(i_run, 1.0)

    def _say(self) -> None:
        n_missing = len(self._fracs)
        done_frac = sum(self._fracs.values()) / n_missing if n_missing else 1.0
        self._tell(
            StudyProgress(
                n_runs=self._n_runs, n_done=self._n_done, n_found=self._n_runs - n_missing, done_frac=done_frac
            )
        )


def _failure(assignment: Assignment, error: Exception, invalid: tuple[str, str, str, str] | None = None) -> Failure:
    what = f"{type(error).__name__}: {error}"
    trace = traceback.format_exc()
    return Failure(policy=assignment.policy.shown, seed=assignment.seed, what=what, trace=trace, invalid=invalid)


def write_index(out: Path, scenario: Scenario, runs: tuple[StoredRun, ...]) -> None:
    """Say in the folder of a study which runs it has, for `runs_in`."""
    out.mkdir(parents=True, exist_ok=True)
    index = {"scenario": scenario.keys(), "runs": [{"key": run.key, "policy": run.policy} for run in runs]}
    (out / "study.json").write_text(json.dumps(index, indent=1) + "\n", encoding="utf-8")


def _tell_nobody(progress: StudyProgress) -> None:
    pass
