"""What the page of a service costs: its first paint, an update of all jobs, its size, and the service beside an open page.

`punctual up` has 500 jobs: a few trainings with deadlines, steered, and the rest waiting for one of them (`after`).

*First paint.* In contexts without memory, as the browser tells it (first contentful paint), in turns with a page of one line.

*An update.* CPU time of the page's thread but for style and layout while the page is open and events come, over how often it
has asked for all jobs: scripts, and what the browser does for them, such as reading an answer. What it tells as time in scripts
alone leaves out what goes on once an answer has come. Beside it stands what a script takes in the same browser to fill a bare table of as
many cells anew. CPU time, because on a machine that others use too the wall time of a script says how long it waited.

*The service.* CPU time of its process with a page open on all jobs, or on one that runs, less that without, in blocks in turns: of a core, and in turns of
the reference (`bench/_reference.py`), measured before and after.

Targets in seconds are those of the issue that asked for the page; beside each stands what the same machine took for
something bare, since a busy or slow machine misses the former and not the latter.
"""

import statistics
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from os import getloadavg
from pathlib import Path

from _common import RESULTS, commit, parser, write_results
from _deadline_tables import Target
from _reference import TURNS, turn_s
from host import Report
from playwright.sync_api import Browser, Page
from service import Service, service
from simulator import got, limit, verdict

sys.path.append(str(Path(__file__).parents[1]))  # the browser of the tests

from tests.page.live_page import PROGRAMS, browser_of, chromium_here

from punctual.service import page as page_module

PAINT_S, SCRIPT_S, SIZE_BYTES, COST_FRAC = 1.0, 0.05, 300_000, 0.01
#: The same as multiples: of a page of one line; of filling a bare table; and 1 % of a core where a turn takes 3.3 µs.
PAINT_TIMES, SCRIPT_TIMES, COST_TURNS = 10.0, 5.0, 3000.0
TIMES = "{:.1f}x".format
N_CELLS = 9

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
    """How much is measured."""

    n_jobs: int
    n_paints: int
    n_blocks: int
    block_s: float


FULL = Sizes(n_jobs=500, n_paints=10, n_blocks=3, block_s=30.0)
QUICK = Sizes(n_jobs=120, n_paints=2, n_blocks=1, block_s=12.0)


def opened(browser: Browser, live: Service) -> Page:
    """The page with all jobs, in a context of its own."""
    shown = browser.new_context().new_page()
    shown.goto(f"http://127.0.0.1:{live.server.port}/#token={live.server.token}")
    return shown


def closed(shown: Page) -> None:
    shown.context.close()


def paints(report: Report, sizes: Sizes, live: Service, browser: Browser) -> None:
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
    rows = [
        [name, *(f"{1e3 * value:.0f}" for value in (min(each), statistics.median(each), max(each)))]
        for name, each in found.items()
    ]
    target = Target("first paint, slowest", PAINT_S, max(found["the page"]), "{:.2f} s".format)
    medians = {name: statistics.median(each) for name, each in found.items()}
    ratio = medians["the page"] / medians["a page of one line"]
    relative = Target("first paint, medians, to a page of one line", PAINT_TIMES, ratio, TIMES)
    report.add("First paint", ["what", "least, ms", "median", "most"], rows, found, [target, relative])


def updates(report: Report, sizes: Sizes, live: Service, browser: Browser) -> None:
    looks: list[str] = []
    shown = opened(browser, live)
    shown.wait_for_selector("#jobs tr")
    shown.on("response", lambda answer: looks.append(answer.url) if "/v1/jobs?" in answer.url else None)
    spent_s = _meter(shown)
    shown.wait_for_timeout(2000)
    looks.clear()
    before_s = spent_s()
    shown.wait_for_timeout(1e3 * sizes.block_s)
    each_s = {name: (value - before_s[name]) / max(len(looks), 1) for name, value in spent_s().items()}
    closed(shown)
    each_s["a bare table"] = _bare_table_s(sizes, browser)
    rows = [[name, f"{1e3 * value:.1f}"] for name, value in each_s.items()]
    text = f"script of an update with {sizes.n_jobs} jobs"
    target = Target(text, SCRIPT_S, each_s["script"] if looks else None, lambda value: f"{1e3 * value:.1f} ms")
    ratio = each_s["script"] / each_s["a bare table"] if looks else None
    relative = Target("script of an update, to filling a bare table", SCRIPT_TIMES, ratio, TIMES)
    told = {"n_updates": len(looks), **each_s}
    report.add(f"An update, mean of {len(looks)}", ["what", "ms"], rows, told, [target, relative])


def _meter(shown: Page) -> Callable[[], dict[str, float]]:
    """What tells how much CPU time the page's thread has used since it was opened, in seconds."""
    session = shown.context.new_cdp_session(shown)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent_s() -> dict[str, float]:
        told = {part["name"]: part["value"] for part in session.send("Performance.getMetrics")["metrics"]}
        drawing_s = told["RecalcStyleDuration"] + told["LayoutDuration"]
        return {"script": told["TaskDuration"] - drawing_s, "style and layout": drawing_s}

    return spent_s


def _bare_table_s(sizes: Sizes, browser: Browser) -> float:
    shown = browser.new_context().new_page()
    spent_s = _meter(shown)
    before_s = spent_s()["script"]
    for _ in range(N_BARE):
        shown.evaluate(BARE_TABLE, [sizes.n_jobs, N_CELLS])
    taken_s = (spent_s()["script"] - before_s) / N_BARE
    closed(shown)
    return taken_s


def size(report: Report) -> None:
    folder = Path(page_module.__file__).with_name("page_files")
    found = {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.is_file()}
    target = Target("size of the page's files", SIZE_BYTES, sum(found.values()), "{:,.0f} bytes".format)
    report.add("Size", ["file", "bytes"], [[name, f"{value:,}"] for name, value in found.items()], found, [target])


def cost(report: Report, sizes: Sizes, live: Service, browser: Browser) -> None:
    """What the service pays for a page with all jobs, and for one with a job that runs."""
    places = {"all jobs": "#/", "one job": f"#/jobs/{live.names[0]}"}
    turns_s, blocks = [turn_s()], {name: list[float]() for name in (*places, "no page")}
    for _ in range(sizes.n_blocks):
        for name, place in places.items():
            shown = opened(browser, live)
            shown.wait_for_selector("#jobs tr")
            shown.goto(f"http://127.0.0.1:{live.server.port}/{place}")
            shown.wait_for_timeout(3000)  # what it takes to open it comes once
            blocks[name].append(_used_frac(live, sizes.block_s))
            closed(shown)
        blocks["no page"].append(_used_frac(live, sizes.block_s))
    turns_s.append(turn_s())
    each_s, bare_frac = statistics.mean(turns_s), statistics.mean(blocks["no page"])
    rows, targets = [], list[Target]()
    for name, each in blocks.items():
        mean = statistics.mean(each)
        told = f"{(mean - bare_frac) / each_s:,.0f}" if name in places else f"a turn: {1e6 * each_s:.1f} µs"
        rows.append([name, f"{mean:.2%}", f"{min(each):.2%} to {max(each):.2%}", told])
        if name in places:
            text, cost_frac = f"service's CPU time for an open page, {name}", mean - bare_frac
            targets.append(Target(f"{text}, of a core", COST_FRAC, cost_frac, "{:.2%}".format))
            targets.append(Target(f"{text}, turns of the reference a second", COST_TURNS, cost_frac / each_s, TURNS))
    heads = ["page", "of a core", "each", "turns a second more than without"]
    report.add("The service beside it", heads, rows, {**blocks, "turn_s": turns_s}, targets)


def _used_frac(live: Service, lasts_s: float) -> float:
    """CPU time of the service's process over wall time, for so long."""
    begun_s, begun_at = _cpu_s(live), time.perf_counter()
    time.sleep(lasts_s)
    return (_cpu_s(live) - begun_s) / (time.perf_counter() - begun_at)


def _cpu_s(live: Service) -> float:
    """CPU time that the service's process has used, to the nanosecond: the clock that Linux has for it."""
    return time.clock_gettime((~int(live.run.record()["pid"]) << 3) | 2)


def main() -> int:
    options = parser("What the page of a service costs.").parse_args()
    sizes = QUICK if options.quick else FULL
    program = chromium_here()
    if program is None:
        raise SystemExit(f"this benchmark needs Chromium: none of {', '.join(PROGRAMS)} is in PATH")
    report = Report()
    with (
        tempfile.TemporaryDirectory(prefix="punctual-bench-") as name,
        service(Path(name) / "home", sizes.n_jobs) as live,
    ):
        time.sleep(2.0)  # the last of the submitted trainings start
        with browser_of(program) as browser:
            paints(report, sizes, live, browser)
            updates(report, sizes, live, browser)
            cost(report, sizes, live, browser)
    size(report)
    return _close(report, options, sizes)


def _close(report: Report, options: Namespace, sizes: Sizes) -> int:
    name = "page-quick" if options.quick else "page"
    write_results(name, {"commit": commit(), "load": getloadavg(), "sizes": asdict(sizes), **report.results})
    if not options.quick:
        (RESULTS / "page.md").write_text(report.markdown(), encoding="utf-8")
    for target in report.targets:
        print(f"{verdict(target)}: {target.text}: {got(target)} ({limit(target)})")
    print(f"load: {', '.join(f'{load:.1f}' for load in getloadavg())}")
    n_reached = sum(target.reached is True for target in report.targets)
    print(f"{n_reached} of {len(report.targets)} targets reached")
    return int(n_reached < len(report.targets))


if __name__ == "__main__":
    sys.exit(main())
