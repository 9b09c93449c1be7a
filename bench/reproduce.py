"""Repeat the experiments of papers: published figures beside ours, one table for each paper.

With `--quick` the smaller experiments. Data sets are looked for in $PUNCTUAL_DATA; without them, experiments leave out real
traces, or are left out themselves. With a NAME one experiment is repeated, and the results of the others stay as they are.
"""

import json
import os
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from _common import RESULTS, commit, parser, print_table, write_results
from experiments._base import load, names

from punctual.core.errors import InvalidSpec

HEADS = ["what", "published", "obtained", "ratio", "why it differs"]
Record = dict[str, Any]


def measured(name: str, *, quick: bool, n_seeds: int, data: Path | None) -> Record:
    """An experiment with its ratios, and what it cost."""
    begun_s = time.process_time()
    found = load(name)(quick=quick, seeds=n_seeds, data=data)
    rows = [{**asdict(row), "ratio": row.ratio} for row in found.rows]
    cost = {"cpu_s": time.process_time() - begun_s}
    return {**asdict(found), "rows": rows, "commit": commit(), "n_seeds": n_seeds, **cost}


def cells(row: Record) -> list[str]:
    return [row["what"], *(_text(row[key]) for key in ("published", "obtained", "ratio")), row["why"]]


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def markdown(records: dict[str, Record]) -> str:
    lines = ["# Published experiments, run again", ""]
    for name, one in records.items():
        lines += [f"## {one['title']}", "", "| " + " | ".join(HEADS) + " |", "|---|--:|--:|--:|---|"]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in one["rows"]]
        lines += ["", one["note"], "", _origin(name, one), ""]
    return "\n".join(lines)


def _origin(name: str, one: Record) -> str:
    command = f"`python bench/reproduce.py {name} --seeds {one['n_seeds']}`"
    return f"{command} makes this table; measured at revision {one['commit']} in {one['cpu_s']:.0f} CPU seconds."


def earlier(result: str) -> dict[str, Record]:
    """The experiments that were recorded before."""
    path = RESULTS / f"{result}.json"
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--seeds", type=int, help="of each experiment [default: 3; quick: 1]")
    options.add_argument("name", nargs="?", choices=names(), help="one experiment; all if left out")
    given = options.parse_args()
    n_seeds = given.seeds or (1 if given.quick else 3)
    data = Path(os.environ["PUNCTUAL_DATA"]) if os.environ.get("PUNCTUAL_DATA") else None
    result = "reproduce-quick" if given.quick else "reproduce"
    records = earlier(result) if given.name else {}
    for name in [given.name] if given.name else names():
        try:
            one = records[name] = measured(name, quick=given.quick, n_seeds=n_seeds, data=data)
        except InvalidSpec as error:
            print(f"{name} is left out: {error}\n")
            continue
        print(f"{one['title']}: {one['cpu_s']:.1f} CPU seconds")
        print_table(HEADS[:-1], [cells(row)[:-1] for row in one["rows"]])
        print()
        records = dict(sorted(records.items()))
        write_results(result, records)
        if not given.quick:
            (RESULTS / "reproduce.md").write_text(markdown(records), encoding="utf-8")
    n_rows = sum(row["published"] is not None for one in records.values() for row in one["rows"])
    print(f"{len(records)} experiments, {n_rows} published figures beside ours")
    return 0


if __name__ == "__main__":
    sys.exit(main())
