"""Measure what the page of a service costs: its first paint, an update of all jobs, its size, and the service beside an open page.

`bench/page.md` says how. *An update* is CPU time of the page's thread but for style and layout, over how often the page has asked
for all jobs: what the browser tells as time in scripts alone leaves out what goes on once an answer has come, and wall time says
how long a script waited. Beside each target in seconds stands what the same machine took for something bare.
"""

import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from _common import Results, parser
from _reference import TURNS, turn_s
from _report import Section, Target, conclude_report
from service import Service, service

from punctual.api.frozen import FOLDER

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

PAINT_S, SCRIPT_S, SIZE_BYTES, COST_FRAC = 1.0, 0.05, 300_000, 0.01
#: The same as multiples: of a page of one line; of filling a bare table; and 1 % of a core where a turn takes 3.3 µs.
PAINT_TIMES, SCRIPT_TIMES, COST_TURNS = 10.0, 5.0, 3000.0
TIMES = "{:.1f}x".format
N_CELLS = 9
PLACES = ("all jobs", "one job")

#: In a task of its own: what a debugger evaluates is not counted as script.
BARE_TABLE = """([rows, cells]) => new Promise((resolve) => setTimeout(() => {
  const body = document.createElement("tbody");
  for (let i = 0; i < rows; i++) {
    const row = body.insertRow();
    for (let n = 0; n < cells; n++) row.insertCell().textContent = `${i} ${n}`;
  }
  document.body.append(body);
  resolve();
}))"""
N_BARE = 5
FIRST_PAINT = """() => new Promise((resolve) => new PerformanceObserver((list, observer) => {
  const found = list.getEntriesByName("first-contentful-paint")[0];
  if (found) { observer.disconnect(); resolve(found.startTime / 1000); }
}).observe({ type: "paint", buffered: true }))"""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Amounts to be measured."""

    n_jobs: int
    n_paints: int
    n_blocks: int
    block_s: float


FULL = Sizes(n_jobs=500, n_paints=10, n_blocks=3, block_s=30.0)
#: A block is longer than the page ever waits before it asks for all jobs again.
QUICK = Sizes(n_jobs=120, n_paints=2, n_blocks=1, block_s=6.0)


def tell(text: str) -> None:
    """Say on standard error what comes now, and when."""
    print(f"{time.strftime('%H:%M:%S')} {text}", file=sys.stderr, flush=True)


def opened(browser: "Browser", live: Service) -> "Page":
    """The page with all jobs, in a context of its own."""
    shown = browser.new_context().new_page()
    shown.goto(f"http://127.0.0.1:{live.server.port}/#token={live.server.token}")
    return shown


def unfold(shown: "Page") -> None:
    """Show a lane for each job, also of those that wait."""
    shown.wait_for_selector("#jobs tr")
    shown.locator("#more-waiting").click()
    shown.locator("#more-waiting[aria-expanded=true]").wait_for()


def closed(shown: "Page") -> None:
    shown.context.close()


def paints(sizes: Sizes, live: Service, browser: "Browser") -> dict[str, list[float]]:
    found: dict[str, list[float]] = {"the page": [], "a page of one line": []}
    for _ in range(sizes.n_paints):
        shown = opened(browser, live)
        found["the page"].append(shown.evaluate(FIRST_PAINT))
        closed(shown)
        bare = browser.new_context().new_page()
        bare.route("**/*", lambda route: route.fulfill(body="<!doctype html><p>one line", content_type="text/html"))
        bare.goto("http://127.0.0.1/")
        found["a page of one line"].append(bare.evaluate(FIRST_PAINT))
        closed(bare)
    return found


def updates(sizes: Sizes, live: Service, browser: "Browser") -> dict[str, float]:
    looks: list[str] = []
    shown = opened(browser, live)
    unfold(shown)
    shown.on("response", lambda answer: looks.append(answer.url) if "/v1/jobs?" in answer.url else None)
    spent_s = _meter(shown)
    shown.wait_for_timeout(2000)
    looks.clear()
    before_s = spent_s()
    shown.wait_for_timeout(1e3 * sizes.block_s)
    each_s = {name: (value - before_s[name]) / max(len(looks), 1) for name, value in spent_s().items()}
    closed(shown)
    return {"n_updates": len(looks), **each_s, "a bare table": _bare_table_s(sizes, browser)}


def _meter(shown: "Page") -> Callable[[], dict[str, float]]:
    """Return a function that tells how much CPU time the page's thread has used since it was opened, in seconds."""
    session = shown.context.new_cdp_session(shown)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent_s() -> dict[str, float]:
        told = {part["name"]: part["value"] for part in session.send("Performance.getMetrics")["metrics"]}
        drawing_s = told["RecalcStyleDuration"] + told["LayoutDuration"]
        return {"script": told["TaskDuration"] - drawing_s, "style and layout": drawing_s}

    return spent_s


def _bare_table_s(sizes: Sizes, browser: "Browser") -> float:
    shown = browser.new_context().new_page()
    spent_s = _meter(shown)
    before_s = spent_s()["script"]
    for _ in range(N_BARE):
        shown.evaluate(BARE_TABLE, [sizes.n_jobs, N_CELLS])
    taken_s = (spent_s()["script"] - before_s) / N_BARE
    closed(shown)
    return taken_s


def files() -> dict[str, int]:
    """The size of each."""
    return {path.name: path.stat().st_size for path in sorted(FOLDER.iterdir()) if path.is_file()}


def cost(sizes: Sizes, live: Service, browser: "Browser") -> dict[str, list[float]]:
    """Return what the service pays for a page with all jobs, and for one with a job that runs."""
    places = {PLACES[0]: "#/", PLACES[1]: f"#/jobs/{live.names[0]}"}
    turns_s, blocks = [turn_s()], {name: list[float]() for name in (*places, "no page")}
    for i in range(sizes.n_blocks):
        for name, place in places.items():
            tell(f"the service beside an open page, block {i + 1} of {sizes.n_blocks}: {name}, {sizes.block_s:.0f} s")
            shown = opened(browser, live)
            unfold(shown)
            shown.goto(f"http://127.0.0.1:{live.server.port}/{place}")
            shown.wait_for_timeout(3000)  # what it takes to open it comes once
            blocks[name].append(_used_frac(live, sizes.block_s))
            closed(shown)
        tell(f"the service without a page, block {i + 1} of {sizes.n_blocks}: {sizes.block_s:.0f} s")
        blocks["no page"].append(_used_frac(live, sizes.block_s))
    turns_s.append(turn_s())
    return {**blocks, "turn_s": turns_s}


def _used_frac(live: Service, lasts_s: float) -> float:
    """CPU time of the service's process over wall time, for so long."""
    begun_s, begun_at = _cpu_s(live), time.perf_counter()
    time.sleep(lasts_s)
    return (_cpu_s(live) - begun_s) / (time.perf_counter() - begun_at)


def _cpu_s(live: Service) -> float:
    """CPU time that the service's process has used, to the nanosecond: the clock that Linux has for it."""
    return time.clock_gettime((~int(live.run.record()["pid"]) << 3) | 2)


# What it comes to.


def sections(results: Results) -> list[Section]:
    return [
        _paints_section(results["paints"]), _updates_section(results["updates"], results["sizes"]["n_jobs"]),
        _cost_section(results["cost"]), _size_section(results["files"]),
    ]  # fmt: skip


def _paints_section(found: dict[str, list[float]]) -> Section:
    rows = [
        [name, *(f"{1e3 * value:.0f}" for value in (min(each), statistics.median(each), max(each)))]
        for name, each in found.items()
    ]
    medians = {name: statistics.median(each) for name, each in found.items()}
    ratio = medians["the page"] / medians["a page of one line"]
    return Section("First paint", ["what", "least, ms", "median", "most"], rows, [
        Target("first paint, slowest", PAINT_S, max(found["the page"]), "{:.2f} s".format),
        Target("first paint, medians, to a page of one line", PAINT_TIMES, ratio, TIMES),
    ])  # fmt: skip


def _updates_section(found: dict[str, float], n_jobs: int) -> Section:
    n_updates = found["n_updates"]
    rows = [[name, f"{1e3 * value:.1f}"] for name, value in found.items() if name != "n_updates"]
    script_s = found["script"] if n_updates else None
    ratio = found["script"] / found["a bare table"] if n_updates else None
    return Section(f"An update, mean of {n_updates}", ["what", "ms"], rows, [
        Target(f"script of an update with {n_jobs} jobs", SCRIPT_S, script_s, lambda value: f"{1e3 * value:.1f} ms"),
        Target("script of an update, to filling a bare table", SCRIPT_TIMES, ratio, TIMES),
    ])  # fmt: skip


def _cost_section(found: dict[str, list[float]]) -> Section:
    each_s, bare_frac = statistics.mean(found["turn_s"]), statistics.mean(found["no page"])
    rows, targets = [], list[Target]()
    for name in (*PLACES, "no page"):
        each = found[name]
        mean = statistics.mean(each)
        told = f"{(mean - bare_frac) / each_s:,.0f}" if name in PLACES else f"a turn: {1e6 * each_s:.1f} µs"
        rows.append([name, f"{mean:.2%}", f"{min(each):.2%} to {max(each):.2%}", told])
        if name in PLACES:
            text, cost_frac = f"service's CPU time for an open page, {name}", mean - bare_frac
            targets.append(Target(f"{text}, of a core", COST_FRAC, cost_frac, "{:.2%}".format))
            targets.append(Target(f"{text}, turns of the reference a second", COST_TURNS, cost_frac / each_s, TURNS))
    heads = ["page", "of a core", "each", "turns a second more than without"]
    return Section("The service beside it", heads, rows, targets)


def _size_section(found: dict[str, int]) -> Section:
    target = Target("size of the page's files", SIZE_BYTES, sum(found.values()), "{:,.0f} bytes".format)
    return Section("Size", ["file", "bytes"], [[name, f"{value:,}"] for name, value in found.items()], [target])


def main() -> int:
    options = parser("What the page of a service costs.").parse_args()
    sizes = QUICK if options.quick else FULL
    # The browser of the tests.
    from tests.page.live_page import PROGRAMS, browser_of, chromium_here

    program = chromium_here()
    if program is None:
        raise SystemExit(f"this benchmark needs Chromium: none of {', '.join(PROGRAMS)} is in PATH")
    results: Results = {"sizes": asdict(sizes)}
    tell(f"starting a service with {sizes.n_jobs} jobs")
    with (
        tempfile.TemporaryDirectory(prefix="punctual-bench-") as name,
        service(Path(name) / "home", sizes.n_jobs) as live,
    ):
        time.sleep(2.0)  # the last of the submitted trainings start
        with browser_of(program) as browser:
            tell(f"{sizes.n_paints} first paints")
            results["paints"] = paints(sizes, live, browser)
            tell(f"updates with all jobs, {sizes.block_s:.0f} s")
            results["updates"] = updates(sizes, live, browser)
            results["cost"] = cost(sizes, live, browser)
    results["files"] = files()
    return conclude_report("page", results, sections, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
