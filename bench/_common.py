"""What the benchmarks share: the option, the table, the file of results, the last line."""

import argparse
import json
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"


def parser(description: str) -> argparse.ArgumentParser:
    """A command line with `--quick`, to which a benchmark adds its own options."""
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--quick", action="store_true", help="fewer repetitions: for a look, not for the record")
    return made


def json_lines(output: str) -> list[dict[str, Any]]:
    """The objects that a command has written with `--json`, among other output."""
    return [json.loads(line) for line in output.splitlines() if line.startswith("{")]


@cache
def commit() -> str:
    """The revision that is measured, with a `+` if there are changes on top; empty outside a checkout."""
    here = Path(__file__).parent
    found = subprocess.run(
        ["git", "rev-parse", "--short=10", "HEAD"], cwd=here, capture_output=True, text=True, check=False
    )
    changed = subprocess.run(
        ["git", "status", "--porcelain", "../src"], cwd=here, capture_output=True, text=True, check=False
    )
    return found.stdout.strip() + ("+" if changed.stdout else "")


def write_results(name: str, results: object) -> Path:
    """Write bench/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps(results, indent=1) + "\n")
    return path


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; all but the first to the right."""
    cells = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())
