"""Repeat the experiments of papers: published figures beside ours, one table for each paper.

With `--quick` the smaller experiments. Data sets are looked for in $PUNCTUAL_DATA; without them, experiments leave out real
traces, or are left out themselves. With a NAME one experiment is repeated, and the results of the others stay as they are.
"""

import os
import sys
import time
from pathlib import Path
from typing import Any

from _common import Results, conclude, on_record, parser, print_table, stamp, stamp_text, write_results

from punctual.core.errors import InvalidSpec
from punctual.papers.reproduction import load, names, text_of

HEADS = ["what", "published", "obtained", "ratio", "why it differs"]
Record = dict[str, Any]


def measured(name: str, *, quick: bool, n_seeds: int, data: Path | None) -> Record:
    """An experiment with its ratios, and what it cost."""
    begun_s = time.process_time()
    found = load(name)(quick=quick, seeds=n_seeds, data=data)
    cost = {"cpu_s": time.process_time() - begun_s}
    return {"stamp": stamp(), **found.record(), "n_seeds": n_seeds, **cost}


def cells(row: Record) -> list[str]:
    return [row["what"], *(text_of(row[key]) for key in ("published", "obtained", "ratio")), row["why"]]


def experiments_of(results: Results) -> dict[str, Record]:
    return {name: one for name, one in sorted(results.items()) if name != "stamp"}


def page(results: Results) -> str:
    lines = ["# Published experiments, run again", ""]
    for name, one in experiments_of(results).items():
        lines += [f"## {one['title']}", "", "| " + " | ".join(HEADS) + " |", "|---|--:|--:|--:|---|"]
        lines += ["| " + " | ".join(cells(row)) + " |" for row in one["rows"]]
        command = f"`python bench/reproduce.py {name} --seeds {one['n_seeds']}`"
        lines += [
            "",
            one["note"],
            "",
            f"{command} makes this table in {one['cpu_s']:.0f} CPU seconds. {stamp_text(one)}",
            "",
        ]
    return "\n".join(lines)


def main() -> int:
    options = parser(__doc__ or "")
    options.add_argument("--seeds", type=int, help="of each experiment [default: 3; quick: 1]")
    options.add_argument("name", nargs="?", choices=names(), help="one experiment; all if left out")
    given = options.parse_args()
    n_seeds = given.seeds or (1 if given.quick else 3)
    data = Path(os.environ["PUNCTUAL_DATA"]) if os.environ.get("PUNCTUAL_DATA") else None
    records = experiments_of(on_record("reproduce")) if given.name and not given.quick else {}
    left_out = []
    for name in [given.name] if given.name else names():
        try:
            one = records[name] = measured(name, quick=given.quick, n_seeds=n_seeds, data=data)
        except InvalidSpec as error:
            left_out.append(f"{name} is left out: {error}")
            continue
        print(f"{one['title']}: {one['cpu_s']:.1f} CPU seconds")
        print_table(HEADS[:-1], [cells(row)[:-1] for row in one["rows"]])
        print()
        write_results("reproduce", records, quick=given.quick)
    write_results("reproduce", records, page, quick=given.quick)
    n_rows = sum(row["published"] is not None for one in records.values() for row in one["rows"])
    return conclude(f"{len(records)} experiments, {n_rows} published figures beside ours (no target)", left_out)


if __name__ == "__main__":
    sys.exit(main())
