"""Results of a study: a table of policies, a table of jobs, and a plot."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from punctual.core.errors import InvalidSpec
from punctual.sim.drawing.figures import overview
from punctual.sim.measures import MEASURES, Estimate, Measure
from punctual.sim.recorded import RecordedLoad
from punctual.sim.recording import LIVE, REPLAYED
from punctual.sim.scenario import Scenario
from punctual.sim.stored import StoredRun

if TYPE_CHECKING:
    import polars as pl
    from matplotlib.figure import Figure


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A run that failed.

    Attributes
    ----------
    invalid
        The four parts of an error that a user can repair; None: a bug, ours or a plug-in's.
    trace
        Traceback.
    """

    policy: str
    seed: int
    what: str
    trace: str
    invalid: tuple[str, str, str, str] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Faithfulness:
    """Agreement of the replay of the live policy with the recorded run.

    Attributes
    ----------
    n_landed
        Jobs that landed live and in the replay.
    shift_s
        Median of the absolute difference of their landings, seconds; None: no such job.
    n_with_deadline, n_same
        Jobs among them with a deadline, and those that kept or missed it in both.
    """

    n_landed: int
    shift_s: float | None
    n_with_deadline: int
    n_same: int


@dataclass(frozen=True)
class Result:
    """The finished runs of a scenario.

    Attributes
    ----------
    runs
        Policy by policy within a seed.
    folder
        Folder of the runs.
    failures
        Runs that could not be finished.
    n_bad_rows
        Rows of the trace that made no sense and were left out.
    load
        The load of the live journal that is the trace; None: the trace is another one.
    """

    scenario: Scenario
    runs: tuple[StoredRun, ...]
    folder: Path
    failures: tuple[Failure, ...] = ()
    n_bad_rows: int = 0
    load: RecordedLoad | None = None

    @cached_property
    def by_policy(self) -> dict[str, list[StoredRun]]:
        """The runs of each policy, by seed."""
        some: dict[str, list[StoredRun]] = {policy.shown: [] for policy in self.scenario.policies}
        for run in sorted(self.runs, key=lambda run: run.seed):
            some[run.policy].append(run)
        return {label: runs for label, runs in some.items() if runs}

    @property
    def measures(self) -> tuple[Measure, ...]:
        """Return the measures that some run has; omits counts that are zero in every run."""
        return tuple(measure for measure in MEASURES if any(_worth_showing(measure, run) for run in self.runs))

    def estimates(self, measure: Measure) -> list[Estimate | None]:
        """The number of each policy, in the order of `by_policy`."""
        return [Estimate.of([run.summary.get(measure.name) for run in runs]) for runs in self.by_policy.values()]

    @cached_property
    def summary(self) -> "pl.DataFrame":
        """Return one row for each policy: means over seeds, and 95 % intervals if there are several seeds."""
        import polars as pl

        columns: dict[str, Sequence[Any]] = {
            "policy": list(self.by_policy),
            "n_seeds": [len(runs) for runs in self.by_policy.values()],
        }
        for measure in self.measures:
            columns |= _columns(measure, self.estimates(measure))
        return pl.DataFrame(columns)

    @cached_property
    def by_seed(self) -> "pl.DataFrame":
        """A row for each policy and seed, with everything that was measured."""
        import polars as pl

        rows = [{"policy": run.policy, "seed": run.seed, **run.summary} for run in self.runs]
        return pl.DataFrame(rows, infer_schema_length=None)

    @cached_property
    def jobs(self) -> "pl.DataFrame":
        """Return one row for each job of each run; the first columns identify the run."""
        import polars as pl

        origins = [pl.select(policy=pl.lit(run.policy), seed=pl.lit(run.seed)) for run in self.runs]
        tables = [origin.join(run.jobs, how="cross") for origin, run in zip(origins, self.runs, strict=True)]
        return pl.concat(tables, how="vertical_relaxed")

    @cached_property
    def faithfulness(self) -> Faithfulness | None:
        """Agreement of the policy that ran, simulated, with the recorded run; None unless both were made."""
        rows = {policy.name: self.by_policy.get(policy.shown) for policy in self.scenario.policies}
        live, again = rows.get(LIVE), rows.get(REPLAYED)
        if not live or not again:
            return None
        both = live[0].jobs.join(again[0].jobs, on="id", suffix="_again").drop_nulls(["landed_at", "landed_at_again"])
        judged = both.drop_nulls(["on_time", "on_time_again"])
        shifts_s = (both["landed_at"] - both["landed_at_again"]).abs().to_list()
        return Faithfulness(
            n_landed=both.height,
            shift_s=median(shifts_s) if shifts_s else None,
            n_with_deadline=judged.height,
            n_same=int((judged["on_time"] == judged["on_time_again"]).sum()),
        )

    def plot(self) -> "Figure":
        """Job completion times, lateness, queue and utilisation of all policies."""
        if not self.runs:
            raise InvalidSpec(
                "a plot needs a finished run", "none", f"'{self.folder}'", "See `failures` for why there is none."
            )
        return overview(self.by_policy)

    def _repr_html_(self) -> str:
        return str(self.summary._repr_html_())


def _worth_showing(measure: Measure, run: StoredRun) -> bool:
    value = run.summary.get(measure.name)
    return value is not None and (value != 0 or measure.better != "neither")


def _columns(measure: Measure, estimates: Sequence[Estimate | None]) -> dict[str, list[float | None]]:
    means = [estimate.mean if estimate else None for estimate in estimates]
    widths = [estimate.half_width if estimate else None for estimate in estimates]
    if not any(width is not None for width in widths):
        return {measure.name: means}
    pairs = [(m, w) if m is not None and w is not None else None for m, w in zip(means, widths, strict=True)]
    return {
        measure.name: means,
        f"{measure.name}_low": [pair[0] - pair[1] if pair else None for pair in pairs],
        f"{measure.name}_high": [pair[0] + pair[1] if pair else None for pair in pairs],
    }
