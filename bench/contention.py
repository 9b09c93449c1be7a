"""Eight real trainings on two cores: who is on time under which rule, at what price; and what is saved of 160 %.

*Eight that fit.* The machine has two cores. Eight trainings come at different instants, most with a deadline; one
deadline is tightened while the training runs, one training is stopped by its user, one is killed half-way and started again from
its checkpoint, one is made of one or two workers, one has no deadline. What they need is some 70 % of the machine for whoever knows
all that will come, but the sum of their constant demands, work over time, is above what there is. Each is a `punctual run`
of its own, as from eight terminals; all join one host. The same trainings are played under each policy in turn, in an order drawn for each seed,
and as plain processes that share the machine as its kernel likes.

*160 %.* Eight trainings that are there at once and want 1.6 times what the machine has until the last deadline. The bound is the most
weight that can be on time for whoever knows what each training costs. They are played twice: in *160 %, told* each says at its submission
what it is made to cost (`--work`), as of a training that has run before; in *160 %* nobody knows.

What a training costs is measured beforehand, each of three applications beside as many others as in a play. All times and all work
are longer in proportion to what it costs to start one, above 2 core-seconds: what is compared is how trainings share a machine, not
how PyTorch is imported. `--quick` trains regressions in NumPy, which start at once.
"""

import random
import statistics
import sys
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import _contention_jobs as jobs
from _common import PageOf, Results, markdown_table, on_record, parser, print_table, revision, stamp_text, write_results
from _contention_jobs import TOLERANCE_FRAC, Load
from _contention_runs import KERNEL, SCALED, Outcome, Profile, calibrate, play
from _report import TARGET_HEADS, Target, conclude_targets, target_rows, targets_table

NAME = "contention"
OURS = "promises-first"
#: Policy -> what it is called in the tables.
RULES = {
    OURS: "promises-first",
    "proportional": "proportional, by deadlines",
    SCALED: "proportional, by one factor",
    "earliest-deadline": "earliest-deadline",
    KERNEL: "the kernel, without Punctual",
}
#: Deviation of jobs that had room, core-seconds over those of the clairvoyant plan, weight missed over the bound.
DEVIATION_LIMIT, CORE_SECONDS_LIMIT, MISSES_LIMIT = 0.005, 1.05, 1.05
#: An overload in which each training says what it costs; and both kinds.
TOLD = "160 %, told"
OVERLOADS = ("160 %", TOLD)
#: After the last deadline of an overloaded machine, what is late anyhow is stopped.
AFTERWARDS_S = 3.0

#: One play as it is kept: kind, seed, policy, loads, outcomes.
Play = dict[str, Any]


def plays(options: Namespace, record: "Record") -> Iterator[Play]:
    """All plays, those that are on record first."""
    wanted = [("fits", seed, policy) for seed in range(options.seeds) for policy in _in_drawn_order(seed)]
    wanted += [(kind, seed, OURS) for kind in OVERLOADS for seed in range(options.seeds)]
    if options.quick:
        wanted = [("fits", 0, OURS)]
    for kind, seed, policy in wanted:
        if record.find(kind, seed, policy) is None:
            record.add(_play(kind, seed, policy, record.profiles, quick=options.quick))
    yield from record.plays


def _in_drawn_order(seed: int) -> list[str]:
    return random.Random(seed).sample(list(RULES), len(RULES))


def _play(kind: str, seed: int, policy: str, profiles: Mapping[str, Profile], *, quick: bool) -> Play:
    scale = jobs.time_scale(statistics.fmean(profile.startup_core_s for profile in profiles.values()))
    if kind == "fits":
        loads, ends_at = jobs.contention(seed, scale, quick=quick), None
    else:
        loads = jobs.overload(seed, scale)
        ends_at = max(load.due_at or 0.0 for load in loads) + AFTERWARDS_S
    outcomes = play(loads, policy, profiles, ends_at=ends_at, declare=kind == TOLD)
    told = {"kind": kind, "seed": seed, "policy": policy, "revision": revision()}
    return told | {"loads": [asdict(load) for load in loads], "outcomes": [asdict(outcome) for outcome in outcomes]}


class Record:
    """Plays so far, on disk after each one."""

    def __init__(self, *, resume: bool, quick: bool) -> None:
        self._quick = quick
        kept = on_record(NAME) if resume and not quick else {}
        self.plays: list[Play] = kept.get("plays", [])
        found = kept.get("profiles") or {app: asdict(profile) for app, profile in calibrate(quick=quick).items()}
        self.profiles = {app: Profile(**profile) for app, profile in found.items()}

    def find(self, kind: str, seed: int, policy: str) -> Play | None:
        return next(
            (one for one in self.plays if (one["kind"], one["seed"], one["policy"]) == (kind, seed, policy)), None
        )

    def add(self, one: Play) -> None:
        self.plays.append(one)
        self.write()
        print_table(_JOB_HEADS, _job_rows(one))
        print(flush=True)

    def write(self, page_of: PageOf | None = None) -> Results:
        profiles = {app: asdict(profile) for app, profile in self.profiles.items()}
        return write_results(NAME, {"profiles": profiles, "plays": self.plays}, page_of, quick=self._quick)


class Seen:
    """A play, read."""

    def __init__(self, one: Play) -> None:
        self.kind, self.seed, self.policy = one["kind"], one["seed"], one["policy"]
        self.loads = [Load(**load) for load in one["loads"]]
        self.outcomes = [Outcome(**outcome) for outcome in one["outcomes"]]

    @property
    def counted(self) -> list[tuple[Load, Outcome]]:
        """Jobs that can be on time or late."""
        return [pair for pair in zip(self.loads, self.outcomes, strict=True) if pair[0].counts()]

    @property
    def promised(self) -> list[Outcome]:
        """Outcomes of jobs whose deadlines were promised."""
        return [outcome for _, outcome in self.counted if outcome.was_promised]

    @property
    def n_late(self) -> int:
        return sum(not outcome.is_on_time for _, outcome in self.counted)

    @property
    def used_core_s(self) -> float:
        return sum(outcome.used_core_s for outcome in self.outcomes)

    @property
    def granted_frac(self) -> float | None:
        """Core-seconds granted over those used: a clairvoyant plan grants what is used."""
        granted = [outcome.granted_core_s for outcome in self.outcomes]
        return None if None in granted else sum(filter(None, granted)) / self.used_core_s

    @property
    def used_frac(self) -> float:
        """Core-seconds used over those of the clairvoyant plan, which knows what each job was made to cost."""
        return self.used_core_s / sum(jobs.needed(load, {}) for load in self.loads)

    @property
    def works(self) -> dict[str, float]:
        """Return what each job turned out to cost; for one that has not landed, what it was made for."""
        return {
            load.name: load.work_core_s if outcome.took_s is None else outcome.used_core_s
            for load, outcome in zip(self.loads, self.outcomes, strict=True)
        }


_JOB_HEADS = [
    "job",
    "application",
    "from",
    "D, s",
    "work",
    "took, s",
    "deviation",
    "used",
    "granted",
    "retries",
    "told",
]


def _job_rows(one: Play) -> list[list[str]]:
    seen = Seen(one)
    rows = []
    for load, outcome in zip(seen.loads, seen.outcomes, strict=True):
        deadline_s = None if load.deadline_s is None else load.deadline_s + load.moved_s
        rows.append(
            [
                load.name, load.app, f"{load.at:.1f}", _shown(deadline_s, "{:.1f}"), f"{load.work_core_s:.1f}",
                _shown(outcome.took_s, "{:.2f}"), _shown(outcome.late_frac, "{:+.2%}"), f"{outcome.used_core_s:.1f}",
                _shown(outcome.granted_core_s, "{:.1f}"), str(outcome.n_retries), ", ".join(sorted(set(outcome.warnings))),
            ]
        )  # fmt: skip
    return rows


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _mean_and_range(values: Sequence[float], form: str) -> str:
    if not values:
        return "–"
    mean = form.format(statistics.fmean(values))
    return mean if len(values) == 1 else f"{mean} ({form.format(min(values))} to {form.format(max(values))})"


def rule_rows(seen: Sequence[Seen]) -> list[list[str]]:
    """A row for each rule, over all seeds."""
    rows = []
    kernel = {one.seed: one.used_core_s for one in seen if one.policy == KERNEL}
    for policy, label in RULES.items():
        runs = [one for one in seen if one.policy == policy]
        if not runs:
            continue
        late = [outcome.late_frac for run in runs for _, outcome in run.counted if outcome.late_frac is not None]
        missed = [value for value in late if value > TOLERANCE_FRAC]
        n_counted = sum(len(run.counted) for run in runs)
        rows.append(
            [
                label, f"{sum(run.n_late for run in runs)} of {n_counted}",
                _mean_and_range([float(run.n_late) for run in runs], "{:.1f}"),
                _shown(max(missed, default=None), "{:+.1%}"), _shown(min(late, default=None), "{:+.2%}"),
                _mean_and_range([run.used_frac for run in runs], "{:.3f}"),
                _mean_and_range([run.granted_frac for run in runs if run.granted_frac], "{:.3f}"),
                _mean_and_range([run.used_core_s / kernel[run.seed] for run in runs if run.seed in kernel], "{:.3f}"),
            ]
        )  # fmt: skip
    return rows


RULE_HEADS = [
    "rule", "late", "late in a play", "latest", "earliest", "used over the plan's", "granted over used",
    "used over the kernel's",
]  # fmt: skip


def overload_rows(seen: Sequence[Seen]) -> list[list[str]]:
    rows = []
    for run in seen:
        promised = run.promised
        total, on_time, most = weights(run)
        rows.append(
            [
                run.kind, str(run.seed), f"{len(promised)} of {len(run.counted)}",
                str(sum(outcome.lost_promise for outcome in promised)),
                str(sum(not outcome.is_on_time for outcome in promised)), f"{total:g}", f"{on_time:g}", f"{most:g}",
            ]
        )  # fmt: skip
    return rows


OVERLOAD_HEADS = ["play", "seed", "promised", "taken back", "promised and late", "weight", "on time", "bound"]


def weights(run: Seen) -> tuple[float, float, float]:
    """Return the weight of all jobs, of those on time, and of those that could have been."""
    total = sum(load.weight for load, _ in run.counted)
    on_time = sum(load.weight for load, outcome in run.counted if outcome.is_on_time)
    return total, on_time, jobs.most_weight(run.loads, run.works)


def targets(fits: Sequence[Seen], overloads: Sequence[Seen]) -> list[Target]:
    ours = [run for run in fits if run.policy == OURS]
    pairs = [pair for run in ours for pair in run.counted]
    n_on_time = sum(outcome.is_on_time for _, outcome in pairs)
    deviations = [abs(outcome.late_frac) for _, outcome in pairs if outcome.late_frac is not None]
    granted = [run.granted_frac for run in ours if run.granted_frac]
    found = [
        Target(
            "jobs on time under promises-first", 1.0, n_on_time / len(pairs) if pairs else None, "{:.1%}".format,
            at_least=True,
        ),
        Target("their deviation from the deadline, largest", DEVIATION_LIMIT, max(deviations, default=None), "{:.2%}".format),
        Target(
            "core-seconds used over the clairvoyant plan's, mean", CORE_SECONDS_LIMIT,
            statistics.fmean(run.used_frac for run in ours) if ours else None, "{:.3f}".format,
        ),
        Target(
            "core-seconds granted over those used, mean", CORE_SECONDS_LIMIT, statistics.fmean(granted) if granted else None,
            "{:.3f}".format,
        ),
    ]  # fmt: skip
    for kind in OVERLOADS:
        runs = [run for run in overloads if run.kind == kind]
        found += _overload_targets(kind, runs) if runs else []
    return found


def _overload_targets(kind: str, runs: Sequence[Seen]) -> list[Target]:
    promised = [outcome for run in runs for outcome in run.promised]
    total, on_time, most = (sum(values) for values in zip(*(weights(run) for run in runs), strict=True))
    n_kept = sum(outcome.is_on_time for outcome in promised)
    return [
        Target(f"{kind}: promised jobs on time", 1.0, n_kept / max(1, len(promised)), "{:.1%}".format, at_least=True),
        Target(
            f"{kind}: weight missed over the least possible", MISSES_LIMIT, (total - on_time) / (total - most), "{:.3f}".format
        ),
    ]  # fmt: skip


def reached(plays: Sequence[Seen]) -> list[Target]:
    fits, overloads = ([one for one in plays if (one.kind == "fits") is fit] for fit in (True, False))
    return targets(fits, overloads)


def page(results: Results) -> str:
    found: list[Play] = results["plays"]
    plays = [Seen(one) for one in found]
    fits = [one for one in plays if one.kind == "fits"]
    overloads = [one for one in plays if one.kind != "fits"]
    lines = targets_table(reached(plays))
    seeds = {run.seed: run for run in fits}
    peaks = [jobs.least_peak(run.loads) for run in seeds.values()]
    demands = [jobs.most_demanded(run.loads) for run in seeds.values()]
    lines += ["", f"## Eight that fit, draws: {len(seeds)}", ""]
    peak, demand = _mean_and_range(peaks, "{:.0%}"), _mean_and_range(demands, "{:.0%}")
    lines += [f"The clairvoyant plan needs {peak} of the machine, constant demands {demand}.", ""]
    lines += markdown_table(RULE_HEADS, rule_rows(fits))
    shown = next((one for one in found if one["kind"] == "fits" and one["policy"] == OURS), None)
    if shown is not None:
        lines += [
            "",
            f"## Draw {shown['seed']} under promises-first",
            "",
            *markdown_table(_JOB_HEADS, _job_rows(shown)),
        ]
    if overloads:
        lines += ["", "## 160 % of what fits, under promises-first", ""]
        lines += markdown_table(OVERLOAD_HEADS, overload_rows(overloads))
    return "\n".join([*lines, "", stamp_text(results), ""])


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--seeds", type=int, default=3, help="draws of the trainings")
    made.add_argument("--resume", action="store_true", help="go on after what is on record")
    options = made.parse_args()
    record = Record(resume=options.resume, quick=options.quick)
    found = list(plays(options, record))
    record.write(page)
    targets = reached([Seen(one) for one in found])
    print_table(TARGET_HEADS, target_rows(targets))
    return conclude_targets(targets, targets[0], quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
