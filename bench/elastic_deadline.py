"""Do whole workers land on the deadline, with few changes of their number and no more workers than needed?

*Simulated*: drawn trainings of one to five minutes in five kinds of world. *Live*: real trainings by one to three
workers of an equal share of cores each, beside runs with constant numbers that tell what the best mix would have cost.
The cost is worker-seconds over those of the best mix of any numbers, changed without loss and with the true speeds known.

`--simulated` and `--live` make only one of the parts; `--quick` a few simulated runs, or with `--live` one live run.
Without `--quick` the figures are written to bench/results/elastic_deadline.json and .md.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict

import _common
import _elastic_live
import _elastic_worlds
from _elastic_live import LiveRun
from _elastic_worlds import Row
from _report import TARGET_HEADS, Target, conclude_targets, target_rows

#: Mean deviation, share of late runs, mean number of changes, mean cost: what is to be reached where nothing unforeseen happens.
TARGETS = (0.001, 0.0, 3.0, 1.05)
RATIOS = (1.2, 1.5)
NAME = "elastic_deadline"


def simulate(n_runs: int, worlds: tuple[str, ...], controllers: tuple[str, ...]) -> list[Row]:
    found = []
    for controller in controllers:
        for world in worlds:
            if controller == _elastic_worlds.WITH_MODEL and world not in _elastic_worlds.FORESEEN:
                continue
            found.append(_elastic_worlds.row(world, controller, n_runs))
            print("  ".join(_elastic_worlds.cells(found[-1])), flush=True)
    return found


def record(rows: list[Row], runs: list[LiveRun]) -> None:
    """Replace the parts that were made; keep the others as they are on record."""
    content = {name: part for name, part in _common.on_record(NAME).items() if name != "stamp"}
    if rows:
        content["simulated"] = {"stamp": _common.stamp(), "rows": [asdict(row) for row in rows]}
    if runs:
        content["live"] = {"stamp": _common.stamp(), "runs": [asdict(run) for run in runs]}
    _common.write_results(NAME, content, page)


def page(results: _common.Results) -> str:
    lines = []
    if "simulated" in results:
        part = results["simulated"]
        cells = [_elastic_worlds.cells(Row(**row)) for row in part["rows"]]
        lines += [
            "## Simulated",
            "",
            *_common.markdown_table(_elastic_worlds.HEADS, cells),
            "",
            _common.stamp_text(part),
            "",
        ]
    if "live" in results:
        part = results["live"]
        cells = [_elastic_live.cells(LiveRun(**run)) for run in part["runs"]]
        lines += ["## Live", "", *_common.markdown_table(_elastic_live.HEADS, cells), "", _common.stamp_text(part), ""]
    return "\n".join(lines)


def targets(rows: list[Row]) -> list[Target]:
    """Of the simulated part, where nothing unforeseen happens."""
    ours = [row for row in rows if row.controller == _elastic_worlds.OURS and row.world in _elastic_worlds.FORESEEN]
    names = {
        "deviation_frac": "deviation",
        "late_frac": "late",
        "n_resizes": "changes",
        "cost": "worker-seconds of the best mix",
    }
    shown = ("{:.3%}".format, "{:.1%}".format, "{:.2f}".format, "{:.3f}".format)
    return [
        Target(f"two-level: {text}", most, sum(getattr(row, name) for row in ours) / len(ours) if ours else None, how)
        for (name, text), most, how in zip(names.items(), TARGETS, shown, strict=True)
    ]


def live(n_repeats: int, *, quick: bool) -> list[LiveRun]:
    if quick:
        return _elastic_live.block(0, 20.0, (1.6,), (_elastic_worlds.OURS,))
    runs = []
    for repeat in range(n_repeats):
        for run in _elastic_live.block(repeat, 75.0, RATIOS, (_elastic_worlds.OURS, _elastic_worlds.DECOR)):
            runs.append(run)
            print("  ".join(_elastic_live.cells(run)), flush=True)
    return runs


def main() -> int:
    options = _options()
    rows, runs = [], []
    if not options.live:
        ours, decor = _elastic_worlds.OURS, _elastic_worlds.DECOR
        rows = (
            simulate(40, _elastic_worlds.FORESEEN, (ours, decor))
            if options.quick
            else simulate(100, _elastic_worlds.WORLDS, tuple(_elastic_worlds.CONTROLLERS))
        )
    if options.live or not (options.simulated or options.quick):
        runs = live(options.repeats, quick=options.quick)
        _common.print_table(_elastic_live.HEADS, [_elastic_live.cells(run) for run in runs])
    if not options.quick:
        record(rows, runs)
    found = targets(rows)
    _common.print_table(TARGET_HEADS, target_rows(found))
    return conclude_targets(found, found[0], quick=options.quick or not rows)


def _options() -> argparse.Namespace:
    parser = _common.parser("How exactly, how steadily and how cheaply whole workers land. See the head of this file.")
    parser.add_argument("--simulated", action="store_true", help="only the simulated part")
    parser.add_argument("--live", action="store_true", help="only the live part")
    parser.add_argument("--repeats", type=int, default=2, help="of the live part")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
