"""Every experiment of `punctual reproduce`, published figures beside ours, as one table for each.

With `--quick` the smaller experiments; where there is no folder of data sets ($PUNCTUAL_DATA), experiments on real traces
leave those out and say so.
"""

import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from _common import RESULTS, commit, parser, print_table, write_results

from punctual.sim.reproduce._base import Reproduction, Row, load, names

HEADS = ["what", "published", "obtained", "ratio", "why it differs"]


def measured(name: str, *, quick: bool, n_seeds: int, data: Path | None) -> tuple[Reproduction, dict[str, Any]]:
    """An experiment, and the same with its ratios and what it cost, for the record."""
    begun_s = time.process_time()
    found = load(name)(quick=quick, seeds=n_seeds, data=data)
    rows = [{**asdict(row), "ratio": row.ratio} for row in found.rows]
    return found, {**asdict(found), "rows": rows, "cpu_s": time.process_time() - begun_s}


def cells(row: Row) -> list[str]:
    return [row.what, _text(row.published), _text(row.obtained), _text(row.ratio), row.why]


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def markdown(found: dict[str, Reproduction], n_seeds: int) -> str:
    lines = ["# Published experiments, run again", ""]
    for name, one in found.items():
        lines += [f"## {name}: {one.title}", "", "| " + " | ".join(HEADS) + " |", "|---|--:|--:|--:|---|"]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in one.rows]
        lines += ["", one.note, "", f"`punctual reproduce {name} --seeds {n_seeds}` prints this table.", ""]
    return "\n".join([*lines, f"Measured at revision {commit()}.", ""])


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--seeds", type=int, default=None, help="of each experiment [default: 3; quick: 1]")
    options.add_argument("--only", choices=names(), default=None, help="one experiment; nothing is written")
    given = options.parse_args()
    n_seeds = given.seeds or (1 if given.quick else 3)
    data = Path(os.environ["PUNCTUAL_DATA"]) if os.environ.get("PUNCTUAL_DATA") else None
    found, records = {}, {}
    for name in [given.only] if given.only else names():
        found[name], records[name] = measured(name, quick=given.quick, n_seeds=n_seeds, data=data)
        print(f"{name}: {found[name].title}, {records[name]['cpu_s']:.1f} CPU s")
        print_table(HEADS[:-1], [cells(row)[:-1] for row in found[name].rows])
        print()
    if not given.only:
        result = "reproduce-quick" if given.quick else "reproduce"
        write_results(result, {"commit": commit(), "n_seeds": n_seeds, "experiments": records})
        if not given.quick:
            (RESULTS / "reproduce.md").write_text(markdown(found, n_seeds), encoding="utf-8")
    n_rows = sum(row.published is not None for one in found.values() for row in one.rows)
    print(f"{len(found)} experiments, {n_rows} published figures beside ours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
