"""All results: `python bench/_results.py make` measures them, `check` compares what is printed of them, `pages` prints them anew.

*make* runs every benchmark in full, one after the other, and skips those that have a result of this revision of src and bench:
the file of results has that revision in every stamp, and its page says what it says. So it goes on where it was interrupted. A
benchmark that falls short of its target, or fails, does not stop the others; the exit status tells whether all have a result.
Those that need what is not there (a GPU, Ray, published traces) are told at the end.

*check* makes each page anew from its file of results and compares it with the one on record, and compares figures that are typed
in documentation, beside benchmarks and in papers' folders with the files of results that stand beside them (see `_typed_figures.py`). It imports no torch.
"""

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import _typed_figures
from _common import RESULTS, PageOf, Results, on_record, revision, revisions
from _report import page_of

HERE = Path(__file__).parent
#: Of it others are made.
_WITHOUT_PAGE = ("forecasts_live",)


@dataclass(frozen=True)
class Benchmark:
    """A script, what it writes, and how it is run in full; `resume` is given where results of this revision are on record."""

    script: str
    results: tuple[str, ...] = ()
    commands: tuple[str, ...] = ("",)
    resume: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its files of results."""
        return self.results or (self.script,)

    def is_made(self) -> bool:
        return all(is_current(name) and differing_lines(self.script, name) == [] for name in self.names)


#: First those that only compute, then those that run trainings, the longest last.
BENCHMARKS = (
    Benchmark("walks"), Benchmark("overhead"), Benchmark("reading"), Benchmark("models"), Benchmark("goodput"), Benchmark("simulator"),
    Benchmark("elasticflow"), Benchmark("solvers"), Benchmark("ablation"), Benchmark("reproduce"), Benchmark("promises"), Benchmark("money"), Benchmark("judges"),
    Benchmark("resize"), Benchmark("elastic_training"),
    Benchmark("page"), Benchmark("service"), Benchmark("host"), Benchmark("kills", ("kills", "kills_random"), ("", "--random")),
    Benchmark("elastic_deadline"), Benchmark("gpu", ("gpu-cuda",), ("--only-gpu",)),
    *(Benchmark("ray_cluster", (f"ray_{part}",), (f"--part {part}",)) for part in ("scale", "resize")),
    Benchmark("service_faults"),
    Benchmark("contention", resume="--resume"), Benchmark("allocators", commands=("--seeds 2",), resume="--resume"),
    # Its `--resume` keeps runs of this revision only.
    Benchmark("deadline", commands=("--lanes 2 --resume",)),
    Benchmark("forecasts", ("forecasts_live", "forecasts"), ("--live 36",)),
)  # fmt: skip


def is_current(name: str) -> bool:
    """Whether everything in a file of results was measured at this revision, with no changes on top."""
    return set(revisions(on_record(name))) == {revision()} and not revision().endswith("+")


def differing_lines(script: str, name: str) -> list[str]:
    """Lines of bench/results/NAME.md that its file of results does not say, each with what it says instead."""
    if name in _WITHOUT_PAGE:
        return []
    path = RESULTS / f"{name}.md"
    printed = path.read_text(encoding="utf-8").split("\n") if path.exists() else []
    try:
        told = _page(script, on_record(name)).split("\n")
    except (KeyError, TypeError, ValueError) as error:
        return [f"{name}.json does not have what its page is made of: {type(error).__name__}: {error}"]
    longer = max(len(printed), len(told))
    pairs = zip(*(lines + ["(nothing)"] * (longer - len(lines)) for lines in (printed, told)), strict=True)
    return [f"{path.name}, line {i}: {a!r}, and the JSON says {b!r}" for i, (a, b) in enumerate(pairs, 1) if a != b]


def _page(script: str, results: Results) -> str:
    """The page of a file of results: what its script makes of it, or all of its sections."""
    module = import_module(script)
    page: PageOf | None = getattr(module, "page", None)
    return page_of(module.sections(results), results) if page is None else page(results)


def make() -> int:
    """Run those that have no result of this revision; 1 if one still has none."""
    if revision().endswith("+"):
        print("there are changes that are not committed: results are told with a + and are made again")
    lacking = []
    for benchmark in BENCHMARKS:
        title = f"{benchmark.script}: {', '.join(benchmark.names)}"
        if benchmark.is_made():
            print(f"== {title}: on record", flush=True)
            continue
        begun_at = time.monotonic()
        statuses = [_run(benchmark, command) for command in benchmark.commands]
        ended = f"{time.monotonic() - begun_at:.0f} s, exit status {', '.join(map(str, statuses))}"
        is_new = all(
            set(revisions(on_record(name))) == {revision()} and not differing_lines(benchmark.script, name)
            for name in benchmark.names
        )
        print(f"== {title}: {'measured' if is_new else 'NO RESULT'}, {ended}", flush=True)
        lacking += [] if is_new else [title]
    for title in lacking:
        print(f"no result of {revision()}: {title}")
    print(f"{len(BENCHMARKS) - len(lacking)} of {len(BENCHMARKS)} benchmarks have a result of {revision()}")
    return int(bool(lacking))


def _run(benchmark: Benchmark, command: str) -> int:
    resumes = all(map(is_current, benchmark.names))
    words = [
        sys.executable,
        str(HERE / f"{benchmark.script}.py"),
        *command.split(),
        *(benchmark.resume.split() if resumes else []),
    ]
    print(f"== {' '.join(words[1:])}", flush=True)
    return subprocess.run(words, check=False).returncode


def findings() -> Iterator[str]:
    """Yield figures that are printed and were not measured."""
    for benchmark in BENCHMARKS:
        for name in benchmark.names:
            if on_record(name) or (RESULTS / f"{name}.md").exists():
                yield from differing_lines(benchmark.script, name)
    known = {name for benchmark in BENCHMARKS for name in benchmark.names}
    for path in sorted(RESULTS.glob("*.*")):
        if path.stem not in known and not path.stem.endswith("-quick"):
            yield f"{path.name}: no benchmark in bench/_results.py makes it"
    scripts = {name: import_module(benchmark.script) for benchmark in BENCHMARKS for name in benchmark.names}
    for path in documents():
        yield from _typed_figures.findings(path, scripts)


def documents() -> list[Path]:
    """Return every page of the project that may state a figure; tables made from results are compared as a whole instead."""
    root = HERE.parent
    pages = [*root.glob("*.md"), *(path for name in ("docs", "bench", "src") for path in (root / name).rglob("*.md"))]
    return sorted(path for path in pages if "_build" not in path.parts and path.parent != RESULTS)


def check() -> int:
    found = list(findings())
    for finding in found:
        print(finding)
    print(f"{len(found)} differences between what is printed and what was measured")
    return int(bool(found))


def pages() -> int:
    """Make each page anew from its file of results, after a change of what it is to look like."""
    for benchmark in BENCHMARKS:
        for name in benchmark.names:
            if on_record(name) and name not in _WITHOUT_PAGE:
                (RESULTS / f"{name}.md").write_text(_page(benchmark.script, on_record(name)), encoding="utf-8")
    return 0


ACTIONS = {"make": make, "check": check, "pages": pages}

if __name__ == "__main__":
    chosen = argparse.ArgumentParser(description="Measure all results, or compare what is printed of them.")
    chosen.add_argument("action", choices=ACTIONS)
    sys.exit(ACTIONS[chosen.parse_args().action]())
