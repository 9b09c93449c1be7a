"""Eight real trainings on two cores: who is on time under which rule, at what price; and what is saved of 160 %.

`bench/contention.md` says how. In *160 %, told* each training says at its submission what it is made to cost (`--work`); in *160 %*
nobody knows. `--quick` trains regressions in NumPy, which start at once.
"""

import statistics
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from random import Random
from typing import Any

import _contention_jobs as jobs
from _common import Results, mean, on_record, parser, revision, write_results
from _contention_jobs import TOLERANCE_FRAC, Load
from _contention_runs import KERNEL, SCALED, Outcome, Profile, calibrate, play
from _report import Column, Section, Target, conclude_report, print_sections, table_of

NAME = "contention"
#: Draws of the trainings.
N_SEEDS = 3
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


def plays(*, resume: bool, quick: bool) -> Results:
    """Make the plays that are not on record; all are on disk after each one."""
    kept = on_record(NAME) if resume and not quick else {}
    profiles = kept.get("profiles") or {app: asdict(profile) for app, profile in calibrate(quick=quick).items()}
    found: Results = {"profiles": profiles, "plays": kept.get("plays", [])}
    wanted = [("fits", seed, policy) for seed in range(N_SEEDS) for policy in Random(seed).sample([*RULES], len(RULES))]
    wanted += [(kind, seed, OURS) for kind in OVERLOADS for seed in range(N_SEEDS)]
    made = {(one["kind"], one["seed"], one["policy"]) for one in found["plays"]}
    for kind, seed, policy in [("fits", 0, OURS)] if quick else wanted:
        if (kind, seed, policy) not in made:
            found["plays"].append(
                _play(kind, seed, policy, {app: Profile(**one) for app, one in profiles.items()}, quick=quick)
            )
            write_results(NAME, found, quick=quick)
            print_sections([job_section(found["plays"][-1])])
    return found


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
    def landed_core_s(self) -> dict[str, float]:
        """What each job that has landed turned out to cost."""
        return {outcome.name: outcome.used_core_s for outcome in self.outcomes if outcome.took_s is not None}

    @property
    def works(self) -> dict[str, float]:
        """What each job turned out to cost; for one that has not landed, what it was made for."""
        return {load.name: load.work_core_s for load in self.loads} | self.landed_core_s


def _shown(value: float | None, form: str) -> str:
    return "–" if value is None else form.format(value)


def _mean_and_range(form: str) -> Callable[[Sequence[float]], str]:
    def shown(values: Sequence[float]) -> str:
        mean = form.format(statistics.fmean(values))
        return mean if len(values) == 1 else f"{mean} ({form.format(min(values))} to {form.format(max(values))})"

    return shown


def job_section(one: Play) -> Section:
    """The jobs of a play under promises-first."""
    heads = ["job", "application", "from", "D, s", "work", "took, s", "deviation", "used", "granted", "retries", "told"]
    rows = []
    for load, outcome in zip(Seen(one).loads, Seen(one).outcomes, strict=True):
        rows.append([
            load.name, load.app, f"{load.at:.1f}", _shown(load.deadline_s and load.deadline_s + load.moved_s, "{:.1f}"),
            f"{load.work_core_s:.1f}", _shown(outcome.took_s, "{:.2f}"), _shown(outcome.late_frac, "{:+.2%}"),
            f"{outcome.used_core_s:.1f}", _shown(outcome.granted_core_s, "{:.1f}"), str(outcome.n_retries),
            ", ".join(sorted(set(outcome.warnings))),
        ])  # fmt: skip
    return Section(f"Draw {one['seed']} under {RULES[one['policy']]}", heads, rows)


def rules_section(seen: Sequence[Seen]) -> Section:
    """A row for each rule, over all seeds."""
    kernel = {one.seed: one.used_core_s for one in seen if one.policy == KERNEL}
    rows = []
    for run in sorted(seen, key=lambda run: [*RULES].index(run.policy)):
        late = [outcome.late_frac for _, outcome in run.counted if outcome.late_frac is not None]
        rows.append({
            "rule": RULES[run.policy], "late": (run.n_late, len(run.counted)), "n_late": run.n_late,
            "latest": max((value for value in late if value > TOLERANCE_FRAC), default=None), "earliest": min(late, default=None),
            "used": run.used_frac, "granted": run.granted_frac,
            "over_kernel": run.used_core_s / kernel[run.seed] if run.seed in kernel else None,
        })  # fmt: skip
    columns = [
        Column("late", "late", str, lambda pairs: " of ".join(str(sum(part)) for part in zip(*pairs, strict=True))),
        Column("late in a play", "n_late", str, _mean_and_range("{:.1f}")), Column("latest", "latest", "{:+.1%}".format, max),
        Column("earliest", "earliest", "{:+.2%}".format, min), Column("used over the plan's", "used", str, _mean_and_range("{:.3f}")),
        Column("granted over used", "granted", str, _mean_and_range("{:.3f}")),
        Column("used over the kernel's", "over_kernel", str, _mean_and_range("{:.3f}")),
    ]  # fmt: skip
    draws = list({run.seed: run.loads for run in seen}.values())
    peak, demand = (
        _mean_and_range("{:.0%}")([peak(loads) for loads in draws]) for peak in (jobs.least_peak, jobs.most_demanded)
    )
    found = [jobs.least_peak(run.loads, run.landed_core_s) for run in seen if run.policy == OURS]
    name = f"Eight that fit, draws: {len(draws)}; the clairvoyant plan needs {peak} of the machine, constant demands {demand}; "
    name += f"with what trainings turned out to cost under {RULES[OURS]} it needs {_mean_and_range('{:.0%}')(found)}"
    return Section(name, *table_of(rows, {"rule": "rule"}, columns))


def overload_section(seen: Sequence[Seen]) -> Section:
    heads = ["play", "seed", "promised", "taken back", "promised and late", "weight", "on time", "bound"]
    rows = [
        [
            run.kind, str(run.seed), f"{len(run.promised)} of {len(run.counted)}", str(sum(one.lost_promise for one in run.promised)),
            str(sum(not one.is_on_time for one in run.promised)), *(f"{weight:g}" for weight in weights(run)),
        ]
        for run in seen
    ]  # fmt: skip
    return Section("160 % of what fits, under promises-first", heads, rows)


def weights(run: Seen) -> tuple[float, float, float]:
    """Return the weight of all jobs, of those on time, and of those that could have been."""
    total = sum(load.weight for load, _ in run.counted)
    on_time = sum(load.weight for load, outcome in run.counted if outcome.is_on_time)
    return total, on_time, jobs.most_weight(run.loads, run.works)


def reached(plays: Sequence[Seen]) -> list[Target]:
    ours = [run for run in plays if run.kind == "fits" and run.policy == OURS]
    outcomes = [outcome for run in ours for _, outcome in run.counted]
    deviations = [abs(outcome.late_frac) for outcome in outcomes if outcome.late_frac is not None]
    granted = [run.granted_frac for run in ours if run.granted_frac]
    found = [
        Target(
            "jobs on time under promises-first", 1.0, mean([float(outcome.is_on_time) for outcome in outcomes]), "{:.1%}".format,
            at_least=True,
        ),
        Target("their deviation from the deadline, largest", DEVIATION_LIMIT, max(deviations, default=None), "{:.2%}".format),
        Target(
            "core-seconds used over the clairvoyant plan's, mean", CORE_SECONDS_LIMIT, mean([run.used_frac for run in ours]),
            "{:.3f}".format,
        ),
        Target("core-seconds granted over those used, mean", CORE_SECONDS_LIMIT, mean(granted), "{:.3f}".format),
    ]  # fmt: skip
    for kind in OVERLOADS:
        runs = [run for run in plays if run.kind == kind]
        if not runs:
            continue
        promised = [outcome for run in runs for outcome in run.promised]
        total, on_time, most = (sum(values) for values in zip(*(weights(run) for run in runs), strict=True))
        n_kept = sum(outcome.is_on_time for outcome in promised)
        missed = (total - on_time) / (total - most)
        found += [
            Target(
                f"{kind}: promised jobs on time", 1.0, n_kept / max(1, len(promised)), "{:.1%}".format, at_least=True
            ),
            Target(f"{kind}: weight missed over the least possible", MISSES_LIMIT, missed, "{:.3f}".format),
        ]
    return found


def sections(results: Results) -> list[Section]:
    plays = [Seen(one) for one in results["plays"]]
    fits, overloads = ([one for one in plays if (one.kind == "fits") is fit] for fit in (True, False))
    shown = next(one for one in results["plays"] if one["kind"] == "fits" and one["policy"] == OURS)
    rules = rules_section(fits)
    return [
        replace(rules, targets=reached(plays)),
        job_section(shown),
        *([overload_section(overloads)] if overloads else []),
    ]


def main() -> int:
    made = parser(__doc__ or "")
    made.add_argument("--resume", action="store_true", help="go on after what is on record")
    options = made.parse_args()
    found = plays(resume=options.resume, quick=options.quick)
    return conclude_report(NAME, found, sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
