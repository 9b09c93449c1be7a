"""Share between benchmarks the option, the table, the file of results with its stamp, the page made of it, the last line."""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
_ROOT = Path(__file__).parents[1]
#: Folder of the programs that benchmarks train with.
EXAMPLES = _ROOT / "examples"
sys.path += [str(EXAMPLES), str(_ROOT)]  # some benchmarks import these programs, and instances of the tests
#: Of the project: a result depends on these paths, and not on earlier results.
_MEASURED_PATHS = ("src", "bench", "examples", ":(exclude)bench/results")

#: One file of results, as JSON gives it back.
Results = dict[str, Any]
#: Makes bench/results/NAME.md of bench/results/NAME.json, and of nothing else.
PageOf = Callable[[Results], str]


def parser(description: str) -> argparse.ArgumentParser:
    """A command line with `--quick`, to which a benchmark adds its own options."""
    revision()  # the one with which the command began, whatever is committed while it runs
    made = argparse.ArgumentParser(description=description)
    made.add_argument("--quick", action="store_true", help="fewer repetitions: for a look, not for the record")
    return made


def json_lines(output: str) -> list[dict[str, Any]]:
    """The objects that a command has written with `--json`, among other output, also behind a line without its end."""
    found: list[dict[str, Any]] = []
    for line in output.splitlines():
        begin = 0
        while line.startswith("{", begin):
            one, begin = json.JSONDecoder().raw_decode(line, begin)
            found.append(one)
    return found


def report_of(output: str, exit_code: int, more: str = "") -> dict[str, Any]:
    """The report that `punctual run --json` ends with; raise `RuntimeError`, with the end of what it said, if there is none."""
    reports = [line for line in json_lines(output) if line.get("type") == "report"]
    if not reports:
        raise RuntimeError(f"exit code {exit_code}: {output[-2000:]}{more[-2000:]}")
    return reports[-1]


# The stamp.


@cache
def revision() -> str:
    """The last revision that changed src or bench, with a `+` if there are changes on top; empty outside a checkout."""
    last = _git("log", "-1", "--format=%h", "--abbrev=10", "--", *_MEASURED_PATHS)
    return last + "+" * bool(last and _git("status", "--porcelain", "--", *_MEASURED_PATHS))


def _git(*words: str) -> str:
    try:
        found = subprocess.run(["git", *words], cwd=_ROOT, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return found.stdout.strip()


def stamp() -> dict[str, Any]:
    """The code, the machine and the time of a measurement."""
    return {
        "revision": revision(), "at": datetime.now(UTC).isoformat(timespec="seconds"), "processor": _processor(),
        "n_cores": len(os.sched_getaffinity(0)), "memory_gib": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30,
        "system": platform.platform(), "python": platform.python_version(), "torch": _version("torch"),
        "load": os.getloadavg(),
    }  # fmt: skip


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def stamp_text(results: Results) -> str:
    """The stamp in a sentence, with the revisions of all parts; earlier results lack parts of it."""
    found, named = results.get("stamp", {}), sorted(set(revisions(results)))
    parts = [f"Measured at revision{'s' * (len(named) > 1)} {', '.join(named) or 'unknown'}"]
    if "processor" in found:
        parts.append(f"on {found['processor']}, {found['n_cores']} cores, {found['memory_gib']:.0f} GiB")
    parts += [f"{name} {found[key]}" for name, key in (("Python", "python"), ("torch", "torch")) if found.get(key)]
    if "load" in found:
        parts.append(f"load {found['load'][-1]:.1f}")
    if "at" in found:
        parts.append(found["at"][:10])
    return ", ".join(parts) + "."


def revisions(results: object) -> Iterator[str]:
    """Every revision that is named in results: that of the stamp, and those of parts that were measured by themselves."""
    if isinstance(results, dict):
        for key, value in results.items():
            yield from [value] if key == "revision" else revisions(value)
    elif isinstance(results, list):
        for value in results:
            yield from revisions(value)


# Results.


def write_results(name: str, results: Results, page: PageOf | None = None, *, quick: bool = False) -> Results:
    """Write bench/results/NAME.json with its stamp, and NAME.md by `page`; of a quick run NAME-quick.json alone.

    Results that have a stamp keep it: of parts of an earlier run, to which others were added. Returned is what a reader finds.
    """
    RESULTS.mkdir(exist_ok=True)
    text = json.dumps({"stamp": stamp(), **results}, indent=1) + "\n"
    path = RESULTS / f"{name}{'-quick' * quick}.json"
    scratch = path.with_suffix(".tmp")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(path)
    written: Results = json.loads(text)
    if page is not None and not quick:
        (RESULTS / f"{name}.md").write_text(page(written), encoding="utf-8")
    return written


def on_record(name: str) -> Results:
    """Return what bench/results/NAME.json has; nothing if there is none."""
    path = RESULTS / f"{name}.json"
    found: Results = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    return found


def conclude(figures: str, short: Sequence[str]) -> int:
    """Print the last line: the key figure beside its target, and the targets that were missed. Return the exit status."""
    verdict = "SHORT: " + "; ".join(short) if short else "met"
    print(f"{figures}: {verdict}")
    return int(bool(short))


# Tables.


def mean(values: Sequence[float]) -> float | None:
    """Return the arithmetic mean; None of no values."""
    return statistics.fmean(values) if values else None


def print_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as their widest cell; all but the first to the right."""
    cells = [[str(cell) for cell in row] for row in [heads, *rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(heads))]
    for row in cells:
        rest = [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *rest]).rstrip())


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    """Lines of a table; all columns but the first to the right."""
    lines = ["| " + " | ".join(heads) + " |", "|---" + "|--:" * (len(heads) - 1) + "|"]
    return [*lines, *("| " + " | ".join(map(str, row)) + " |" for row in rows)]
