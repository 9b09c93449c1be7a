"""What each heuristic of sharing cores is worth: the same simulated plays with it, and with it alone taken away.

A heuristic that is worth nothing is removed; its row stays on record from the revision that had it. Seeds are not those by which it
was chosen what to remove. Promises that a crash of their own job broke do not count as broken.
"""

import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from math import sqrt
from statistics import fmean, stdev
from typing import Any
from unittest.mock import patch

import _sharing_worlds as worlds
from _common import Results, on_record, revision
from _report import Section, page_of, run

from punctual.policies._core_job_state import CoreJobState
from punctual.policies._core_promises import CorePromises, _raise, _weight

NAME = "ablation"
N_SEEDS = 4
#: Plays by the subject of a heuristic.
PROMISES = ("160 %", "160 %, told", "arriving", "fits, disturbed", "160 %, disturbed")
PLACES, WORKERS = ("arriving", "few places"), ("with workers", "fits")
_POLICIES = "punctual.policies"
_STATE, _PROMISES, _ALLOCATOR = (
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
    unmeasured = promises._in_turn()
    for member in unmeasured:
        free, member.cores = free + member.cores, 0.0
    return free - _raise(unmeasured, _weight, free - reserved_cores)


def _full_margins(promises: CorePromises, kept: Iterable[CoreJobState], *_: object) -> list[Any]:
    return [member.job() for member in kept]


HEURISTICS = (
    Heuristic("landing jobs come first", PROMISES, f"{_STATE}.CoreJobState.is_landing", False),
    Heuristic("cores that others take are nobody's", PROMISES, f"{_PROMISES}._undelivered_cores", lambda _: 0.0),
    Heuristic("new jobs wait for others to be measured", PROMISES, f"{_PROMISES}._is_new", lambda *_: False),
    Heuristic("jobs that start together are compared", PROMISES, f"{_POLICIES}._core_promises._TOGETHER_S", 0.0),
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


def sections(results: Results) -> list[Section]:
    heads = ["heuristic", "plays", "differ", "promised", "broken", "taken back", "on time", "weight on time", "completion time", "plans"]
    found = []
    for is_removed, name in ((False, "Kept: with it, and without"), (True, "Removed: with it, and without")):
        rows = [
            [
                one["name"], str(one["n_plays"]), str(one["n_differ"]),
                *("{:.0f}, {:.0f}".format(*one[key]) for key in ("n_promised", "n_broken", "n_lost", "n_met")),
                f"{one['weight_change']:+.0f} ± {one['weight_error']:.0f} of {one['weight'][0]:.0f}",
                f"{one['took_frac']:+.1%} ± {one['took_error']:.1%}", "{:.0f}, {:.0f}".format(*one["n_plans"]),
            ]
            for one in results["rows"] if one.get("removed", False) == is_removed
        ]  # fmt: skip
        found.append(Section(name, heads, rows))
    return found


def page(results: Results) -> str:
    return page_of(sections(results), results)


def main() -> int:
    return run(NAME, __doc__, measured, sections, page)


if __name__ == "__main__":
    sys.exit(main())
