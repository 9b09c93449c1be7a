"""The pictures of the page in the documentation, of a service with real trainings: ``python -m tests.page.pictures``."""

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from playwright.sync_api import Browser, Page, expect
from tests.api.live_service import LiveService, live_service
from tests.architecture.source import ROOT
from tests.page.live_page import browser_of, chromium_here
from tests.waiting import PATIENCE_S, wait_until

from punctual.daemon.local_host import HostOptions
from punctual.daemon.paths import HOME_VARIABLE

FOLDER = ROOT / "docs" / "images"
OPTIONS = HostOptions(policy="promises-first")

#: Computes in one thread, evaluates now and then, and tells its loss.
TRAINING = """
import sys, time, punctual
def compute(core_s):
    until = time.thread_time() + core_s
    while time.thread_time() < until: pass
run = punctual.track(range(int(sys.argv[2])), total_steps=int(sys.argv[2]))
for i in run:
    compute(0.01)
    run.report_loss(2 / (1 + i / 40) + 0.02 * (i % 3))
    if i % 40 == 39:
        print(f"step {i + 1}", flush=True)
        with punctual.phase("evaluate"):
            compute(0.1)
"""

#: What is submitted, in this order: name, steps, and options.
JOBS: list[tuple[str, int, dict[str, Any]]] = [
    ("baseline", 80, {"deadline": "20s", "cores": "0.1..1"}),
    ("resnet", 1500, {"deadline": "2m", "cores": "0.1..1", "work": "25s"}),
    ("transformer", 6000, {"deadline": "10m", "cores": "0.1..1", "work": "100s"}),
    ("too-soon", 9000, {"deadline": "30s", "work": "10m", "guarantee": True, "cores": "0.1..1"}),
    ("ablation", 300, {"after": ["resnet"]}),
]


def submit_all(service: LiveService, folder: Path) -> None:
    """Have the jobs run, up to where the first has ended and another one is well under way."""
    (folder / "train.py").write_text(TRAINING)
    for name, n_steps, options in JOBS:
        program = [sys.executable, "train.py", f"--model={name}", str(n_steps)]
        reply = service.caller.post("/jobs", {"name": name, "program": program, "cwd": str(folder), **options})
        assert reply.status == 201, reply.body
    wait_until(lambda: service.caller.get("/jobs/baseline").json()["ended"])
    wait_until(lambda: (service.caller.get("/jobs/resnet").json()["progressPercentage"] or 0) > 20)


def of_jobs(page: Page) -> None:
    expect(page.locator("#jobs tr")).to_have_count(len(JOBS))


def of_one_job(page: Page) -> None:
    expect(page.locator("#progress-chart .phase").first).to_be_visible()
    page.get_by_label("Compare with").select_option("baseline")
    expect(page.locator("#compared")).to_be_visible()
    page.evaluate("document.getElementById('compare').previousElementSibling.scrollIntoView()")


def of_what_if(page: Page) -> None:
    page.get_by_role("combobox", name="Policy").select_option("max-min")
    page.get_by_role("button", name="Simulate").click()
    expect(page.locator("#what-if-jobs tr").first).to_be_visible()


#: Name of the file, view, what is waited for and done there, size and scheme. Without a height it is as high as the view.
PICTURES: list[tuple[str, str, Callable[[Page], None], tuple[int, int | None], Literal["dark", "light"]]] = [
    ("page-jobs", "#/", of_jobs, (1480, None), "light"),
    ("page-job", "#/jobs/resnet", of_one_job, (1000, 900), "light"),
    ("page-what-if", "#/what-if", of_what_if, (1280, None), "light"),
    ("page-phone", "#/jobs/resnet", of_one_job, (360, 740), "dark"),
]
_LEAST_HEIGHT = 100


def take(service: LiveService, browser: Browser, folder: Path) -> None:
    """Write the pictures to `folder`."""
    page = browser.new_page()  # one for all: to open it costs the most
    page.set_default_timeout(1000 * PATIENCE_S)
    page.goto(f"{service.served.url}/#token={service.caller.token}")
    for name, place, wait, (width, height), scheme in PICTURES:
        page.set_viewport_size({"width": width, "height": height or _LEAST_HEIGHT})
        page.emulate_media(color_scheme=scheme)
        page.goto(f"{service.served.url}/{place}")
        wait(page)
        page.locator("h2:visible").first.blur()
        page.screenshot(path=folder / f"{name}.png", full_page=height is None)
    page.context.close()


def main() -> None:
    """Make all pictures anew, where the documentation has them."""
    program = chromium_here()
    if program is None:
        raise SystemExit("the pictures need Chromium")
    with tempfile.TemporaryDirectory(prefix="pictures-") as home:
        os.environ[HOME_VARIABLE] = home
        with live_service(OPTIONS) as service, browser_of(program) as browser:
            submit_all(service, Path(home))
            take(service, browser, FOLDER)


if __name__ == "__main__":
    main()
