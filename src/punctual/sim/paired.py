"""Paired comparison of runs: differences on their common jobs, and whether they could be chance."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.sim.bootstrap import PairedDifference, paired_difference
from punctual.sim.stored import StoredRun, runs_in

#: Column of the jobs -> what it is called.
COMPARED = {
    "jct_s": "JCT",
    "waiting_s": "waiting",
    "tardiness_s": "tardiness",
    "on_time": "deadlines met",
}

#: A job is the same in two runs if it has the same name, was submitted at the same instant with the same deadline, and
#: the runs have the same seed.
JobKey = tuple[int, str, float, float | None]

#: Number of seeds from which jobs of one seed are drawn together: fewer could not tell a difference from chance.
N_SEEDS_LEAST = 6


@dataclass(frozen=True, slots=True)
class Contender:
    """A policy's runs in one folder, one for each seed."""

    label: str
    runs: tuple[StoredRun, ...]

    def values(self, column: str) -> dict[JobKey, float]:
        """The number in `column` of each job that has one."""
        return {key: value for run in self.runs for key, value in _values(run, column)}

    def jobs(self) -> set[JobKey]:
        """Return the keys of all jobs."""
        return {key for run in self.runs for key in _keys(run)}

    def contents(self) -> dict[int, int]:
        """Return a hash of the jobs' results by seed."""
        return {run.seed: int(run.jobs.hash_rows().sum()) for run in self.runs}

    def without(self, seeds: set[int]) -> "Contender":
        """The others of its runs."""
        return Contender(self.label, tuple(run for run in self.runs if run.seed not in seeds))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Comparison of one contender with the first.

    A seed whose results equal those of an earlier seed for both adds nothing, and is left out.

    Attributes
    ----------
    n_common
        Number of jobs in both.
    by_seed
        Whether jobs of one seed were drawn together: the interval and p then speak of arrivals of this kind, and
        otherwise of these very arrivals.
    differences
        Column -> other minus first, over the common jobs for which both have a number.
    """

    first: str
    other: str
    n_common: int
    n_first: int
    n_other: int
    by_seed: bool
    differences: Mapping[str, PairedDifference]


def contenders_in(folders: Sequence[Path]) -> list[Contender]:
    """Return the policies of the last study in each folder; several folders prefix the labels with their names.

    Raises
    ------
    InvalidSpec
        A folder has no study.
    """
    contenders, names = [], [folder.name for folder in folders]
    for folder in folders:
        name = folder.name if names.count(folder.name) == 1 else str(folder)
        prefix = f"{name}/" if len(folders) > 1 else ""
        contenders += [Contender(prefix + label, runs) for label, runs in _by_policy(runs_in(folder)).items()]
    return contenders


def compare(first: Contender, others: Iterable[Contender], *, seed: int = 0) -> list[Comparison]:
    """Compare each of `others` with `first`; `seed` drives the resampling.

    Raises
    ------
    InvalidSpec
        Two have no job in common.
    """
    return [_against(*_with_distinct_seeds(first, other), seed) for other in others]


def _with_distinct_seeds(first: Contender, other: Contender) -> tuple[Contender, Contender]:
    """Return both without the seeds whose results equal those of an earlier seed for both."""
    own, two = first.contents(), other.contents()
    common = own.keys() & two.keys()
    earliest = {(own[seed], two[seed]): seed for seed in sorted(common, reverse=True)}
    repeated = common - set(earliest.values())
    return first.without(repeated), other.without(repeated)


def _against(first: Contender, other: Contender, seed: int) -> Comparison:
    own_jobs, other_jobs = first.jobs(), other.jobs()
    if not own_jobs & other_jobs:
        raise InvalidSpec(
            "runs must have jobs in common to be compared", "none", f"'{first.label}' and '{other.label}'",
            "Compare runs of the same trace, deadlines and seeds.",
        )  # fmt: skip
    by_seed = len({key[0] for key in own_jobs & other_jobs}) >= N_SEEDS_LEAST
    differences = {}
    for column in COMPARED:
        own, two = first.values(column), other.values(column)
        n_both = len(own.keys() & two.keys())
        if n_both:
            differences[column] = paired_difference(
                own, two, seed=seed, group=_seed_of if by_seed else None, n_resamples=_n_resamples(n_both)
            )
    return Comparison(
        first=first.label, other=other.label, n_common=len(own_jobs & other_jobs), n_first=len(own_jobs),
        n_other=len(other_jobs), by_seed=by_seed, differences=differences,
    )  # fmt: skip


def _seed_of(key: JobKey) -> int:
    return key[0]


def _n_resamples(n_jobs: int) -> int:
    # Resampling costs its number times the jobs; so much of it takes a second or two.
    return max(400, min(2_000, 40_000_000 // n_jobs))


def _keys(run: StoredRun) -> list[JobKey]:
    columns = (run.jobs[name].to_list() for name in ("id", "submitted_at", "deadline_s"))
    return [(run.seed, *row) for row in zip(*columns, strict=True)]


def _values(run: StoredRun, column: str) -> Iterable[tuple[JobKey, float]]:
    for key, value in zip(_keys(run), run.jobs[column].to_list(), strict=True):
        if value is not None:
            yield key, float(value)


def _by_policy(runs: Iterable[StoredRun]) -> dict[str, tuple[StoredRun, ...]]:
    contenders: dict[str, tuple[StoredRun, ...]] = {}
    for run in sorted(runs, key=lambda run: run.seed):
        contenders[run.policy] = (*contenders.get(run.policy, ()), run)
    return contenders
