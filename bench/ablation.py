"""What each heuristic of sharing cores is worth: the same simulated plays with it, and with it alone taken away.

A heuristic that is worth nothing is removed; its row stays on record from the revision that had it. The same draws served to choose;
the row of all together is of others. Promises that a crash of their own job broke do not count as broken.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

import _sharing_worlds as worlds
from _common import Results, on_record, revision
from _report import Section, Target, page_of, run

from punctual.policies._core_job_state import CoreJobState
from punctual.policies._core_promises import CorePromises, _raise
from punctual.solvers.core_deadlines import CoreJob

NAME = "ablation"
N_SEEDS = 4
#: Plays by the subject of a heuristic.
PROMISES = ("160 %", "160 %, told", "arriving", "fits, disturbed", "160 %, disturbed")
PLACES, WORKERS = ("arriving", "few places"), ("with workers", "fits")
_POLICIES = "punctual.policies"
_STATE, _PROMISED, _ALLOCATOR = (
    f"{_POLICIES}._core_job_state", f"{_POLICIES}._core_promises.CorePromises", f"{_POLICIES}._core_allocator.CoreAllocator"
)  # fmt: skip


@dataclass(frozen=True)
class Heuristic:
    """A heuristic, and how the code is without it: `target` is replaced by `without`."""

    name: str
    kinds: Sequence[str]
    target: str
    without: object


def _side_by_side(promises: CorePromises, free: float, reserved_cores: float) -> float:
    unmeasured = [member for member in promises.members if member.unmeasured]
    for member in unmeasured:
        free, member.cores = free + member.cores, 0.0
    return free - _raise(unmeasured, free - reserved_cores)


def _without_margins(_: CorePromises, kept: Iterable[CoreJobState], *_more: object) -> list[CoreJob]:
    return [member.job() for member in kept]


def _chosen_anew(promises: CorePromises, members: Sequence[CoreJobState]) -> list[CoreJobState]:
    promises.planned = set()
    chosen: list[CoreJobState] = _LIKELY(promises, members)
    return chosen


def _unhurried(promises: CorePromises, reserved_cores: float = 0.0, **_: bool) -> None:
    _SHARE(promises, reserved_cores)


_LIKELY, _SHARE = vars(CorePromises)["_likely"], CorePromises.share

HEURISTICS = (
    Heuristic("a job due within a second has its demand first", PROMISES, f"{_STATE}.CoreJobState.is_landing", False),
    Heuristic(
        "what promised jobs fall short of is given to nobody",
        PROMISES,
        f"{_PROMISED}._undelivered_cores",
        lambda _: 0.0,
    ),
    Heuristic(
        "new jobs wait until all that came with them are measured", PROMISES, f"{_PROMISED}._is_new", lambda *_: False
    ),
    Heuristic("jobs that start within 2 s are compared", PROMISES, f"{_POLICIES}._core_promises._TOGETHER_S", 0.0),
    Heuristic("jobs of unknown work are measured in turn", PROMISES, f"{_PROMISED}._measure_in_turn", _side_by_side),
    Heuristic("jobs without a promise are planned for", PROMISES, f"{_PROMISED}._likely", lambda *_: []),
    Heuristic("of these, those of the last plan come first", PROMISES, f"{_PROMISED}._likely", _chosen_anew),
    Heuristic(
        "the others share by weight over the time left",
        PROMISES,
        f"{_PROMISED}._urgency",
        lambda _, member: member.view.spec.weight,
    ),
    Heuristic("a new promise leaves others their margins", PROMISES, f"{_PROMISED}._with_margins", _without_margins),
    Heuristic("work left may cost a fifth more", PROMISES, f"{_STATE}._DOUBT_FRAC", 0.0),
    Heuristic("a promise is kept if a tenth less work would do", PROMISES, f"{_STATE}._HOPE_FRAC", 0.0),
    Heuristic("a promise is kept if it is missed by a hundredth", PROMISES, f"{_STATE}._LATE_FRAC", 0.0),
    Heuristic("a job that is due sooner takes a place", PLACES, f"{_ALLOCATOR}._take_place", lambda *_: []),
    Heuristic(
        "one place is left to jobs without a deadline",
        PLACES,
        f"{_POLICIES}._core_allocator._undated",
        lambda members: [*members],
    ),
    Heuristic("running jobs hurry while others wait for a place", PLACES, f"{_PROMISED}.share", _unhurried),
    Heuristic("floors leave promises kept", PLACES, f"{_ALLOCATOR}._leaves_promises_kept", lambda *_: True),
    Heuristic(
        "jobs on shares leave waiting workers their smallest number",
        WORKERS,
        f"{_ALLOCATOR}._wait_for_workers",
        lambda *_: None,
    ),
    Heuristic("cores of stopping jobs will be free", WORKERS, f"{_ALLOCATOR}._returning_cores", lambda *_: 0.0),
)


def plays(kinds: Iterable[str], seeds: Iterable[int]) -> list[dict[str, float]]:
    return [worlds.play(kind, seed) for kind in kinds for seed in seeds]


def measured(*, quick: bool) -> Results:
    """Play with all heuristics, then without each; rows of removed heuristics are kept."""
    seeds = range(100, 101 if quick else 100 + N_SEEDS)
    with_all = {kind: plays([kind], seeds) for kind in dict.fromkeys(kind for one in HEURISTICS for kind in one.kinds)}
    rows = []
    for one in HEURISTICS:
        with patch(one.target, one.without):
            rows.append(row(one.name, [play for kind in one.kinds for play in with_all[kind]], plays(one.kinds, seeds)))
    names = {one.name for one in HEURISTICS}
    removed = [{**one, "removed": True} for one in on_record(NAME).get("rows", []) if one["name"] not in names]
    return {"rows": [*rows, *removed]}


def row(name: str, before: Sequence[Mapping[str, float]], after: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Compare the plays without a heuristic to those with it."""
    pairs = list(zip(before, after, strict=True))
    weight = [b["weight_met"] - a["weight_met"] for a, b in pairs]
    took = [b["took_s"] / a["took_s"] - 1.0 for a, b in pairs]
    n = len(pairs)
    sums = {key: [sum(play[key] for play in side) for side in (before, after)] for key in before[0]}
    return {
        "name": name, "n_plays": n, "n_differ": sum(a != b for a, b in pairs), **sums, "revision": revision(),
        "weight_change": sum(weight), "weight_error": stdev(weight) * sqrt(n) if n > 1 else 0.0,
        "took_frac": fmean(took), "took_error": stdev(took) / sqrt(n) if n > 1 else 0.0,
    }  # fmt: skip


def is_missed(one: Mapping[str, Any]) -> bool:
    """Whether plays lose something without it: weight on time, promises, or time beyond what chance explains."""
    is_broken = any(without > with_it for with_it, without in (one["n_broken"], one["n_lost"]))
    return is_broken or one["weight_change"] < 0 or one["took_frac"] > 2.0 * one["took_error"]


def sections(results: Results) -> list[Section]:
    heads = [
        "heuristic",
        "plays",
        "differ",
        "promised",
        "broken",
        "taken back",
        "on time",
        "weight on time",
        "mean completion",
        "plans",
    ]
    kept, removed = ([one for one in results["rows"] if ("removed" in one) == gone] for gone in (False, True))
    idle = sum(not is_missed(one) for one in kept)
    target = Target("heuristics kept without which plays lose nothing", 0, idle, "{:.0f}".format)
    return [
        Section("Kept", heads, _cells(kept), [target], "Each figure with the heuristic, and without it."),
        Section("Removed, at the revisions that had them", heads, _cells(removed)),
    ]


def _cells(rows: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    return [
        [
            one["name"], str(one["n_plays"]), str(one["n_differ"]),
            *("{:.0f}, {:.0f}".format(*one[key]) for key in ("n_promised", "n_broken", "n_lost", "n_met")),
            f"{one['weight_change']:+.0f} ± {one['weight_error']:.0f} of {one['weight'][0]:.0f}",
            f"{one['took_frac']:+.1%} ± {one['took_error']:.1%}", "{:.0f}, {:.0f}".format(*one["n_plans"]),
        ]
        for one in rows
    ]  # fmt: skip


def page(results: Results) -> str:
    return page_of(sections(results), results)


def main() -> int:
    return run(NAME, __doc__, measured, sections, page)


if __name__ == "__main__":
    sys.exit(main())
