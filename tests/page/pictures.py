"""The pictures of the page in the documentation, made of its stage: ``python -m tests.page.pictures``."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page, expect
from tests.architecture.source import ROOT
from tests.page.live_page import browser_of, chromium_here
from tests.page.staged import NOW, Stage, at, job, many
from tests.waiting import PATIENCE_S

FOLDER = ROOT / "docs" / "images"

LARGE, MEDIUM, PHONE = (1440, 900), (1024, 720), (390, 844)


def _with_jobs(page: Page) -> None:
    expect(page.locator("#jobs tr").first).to_be_visible()


def _with_course(page: Page) -> None:
    expect(page.locator("#course-chart .progress").first).to_be_attached()
    expect(page.locator("#one-log")).not_to_be_empty()


def _with_quote(page: Page) -> None:
    _with_course(page)
    page.get_by_role("slider", name="Deadline").press("Shift+ArrowLeft")
    expect(page.locator("#steer-quote li").first).to_be_visible()


def _with_budget(page: Page) -> None:
    expect(page.locator("#budget-jobs tr").first).to_be_visible()


def _with_curve(page: Page) -> None:
    expect(page.locator("#quote-chart .granted")).to_be_attached()


def _with_outlook(page: Page) -> None:
    page.get_by_role("button", name="Simulate").click()
    expect(page.locator("#what-if-changes p").first).to_be_visible()


def _with_advice(page: Page) -> None:
    _with_course(page)
    expect(page.locator("#steer-quote li").first).to_be_visible()


def _with_another_run(page: Page) -> None:
    _with_course(page)
    page.get_by_label("Compare with").select_option("gan")
    expect(page.locator("#compared")).to_be_visible()
    expect(page.locator("#course-chart .other").first).to_be_attached()


def _as_table(page: Page) -> None:
    _with_jobs(page)
    page.get_by_role("button", name="Table", exact=True).click()
    expect(page.locator("#jobs .gauge").first).to_be_visible()


def _with_refusal(page: Page) -> None:
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_visible()


def _disconnected(page: Page) -> None:
    _with_jobs(page)
    page.route("**/v1/**", lambda route: route.abort())
    page.clock.set_fixed_time(NOW + timedelta(seconds=10))
    expect(page.get_by_role("alert")).to_contain_text("What is shown is of")


def _while_loading(page: Page) -> None:
    expect(page.locator("#loading")).to_be_visible()


def _with_headline(page: Page) -> None:
    expect(page.locator("#one-headline")).not_to_be_empty()


def _with_blank(page: Page) -> None:
    expect(page.locator("#empty")).to_be_visible()


@dataclass(frozen=True)
class Picture:
    """A view of a stage, what is waited for and done there, and how it is looked at."""

    name: str
    alt: str
    done: Callable[[Page], None]
    place: str = "#/"
    size: tuple[int, int] = MEDIUM
    scheme: Literal["dark", "light"] = "light"
    stage: Callable[[], Stage] = field(default=Stage)


PICTURES = [
    Picture("page-jobs", "All jobs: figures, and a lane for each", _with_jobs, size=LARGE),
    Picture("page-jobs-dark", "The same in the dark, on a smaller screen", _with_jobs, scheme="dark"),
    Picture("page-phone", "All jobs on a phone", _with_jobs, size=PHONE, scheme="dark"),
    Picture("page-many", "500 jobs", _with_jobs, size=LARGE, stage=lambda: Stage(jobs=many())),
    Picture("page-empty", "No jobs yet", _with_blank, stage=lambda: Stage(jobs=[])),
    Picture("page-one", "One job alone", _with_jobs, stage=lambda: Stage(jobs=[job("resnet", promised_until=at(40))])),
    Picture("page-table", "The same jobs as a table", _as_table, size=LARGE, scheme="dark"),
    Picture("page-refused", "Without a token", _with_refusal, size=PHONE, stage=lambda: Stage(refusal=401)),
    Picture("page-loading", "Loading", _while_loading, size=PHONE, scheme="dark", stage=lambda: Stage(is_slow=True)),
    Picture("page-away", "Disconnected", _disconnected),
    Picture("page-late", "A late job says at once what would help", _with_advice, "#/jobs/bert-large", (1440, 1000), stage=lambda: Stage(is_feasible=False)),
    Picture("page-fresh", "A job that has just started is measured", _with_headline, "#/jobs/fresh"),
    Picture("page-waiting", "A waiting job says why and when", _with_headline, "#/jobs/ablation", PHONE, "dark"),
    Picture("page-viewer", "A job as somebody sees it who may only read", _with_course, "#/jobs/gan", scheme="dark", stage=lambda: Stage(role="viewer")),
    Picture("page-compared", "Two runs of a program, aligned by time", _with_another_run, "#/jobs/resnet", LARGE),
    Picture("page-job", "One job: headline, course, and the quote of a deadline that is moved", _with_quote, "#/jobs/resnet", (1440, 1000)),
    Picture("page-job-phone", "One job on a phone", _with_course, "#/jobs/resnet", PHONE),
    Picture("page-failed", "A failed job shows its last lines first", _with_course, "#/jobs/diffusion", scheme="dark"),
    Picture("page-budget", "The budget: held, planned, and promised cores", _with_budget, "#/budget"),
    Picture("page-submit", "Submitting as an earlier job, with the quote as a curve", _with_curve, "#/submit/resnet", scheme="dark"),
    Picture("page-what-if", "Another policy: which deadlines change their verdict", _with_outlook, "#/what-if"),
]  # fmt: skip


def take(browser: Browser, folder: Path) -> None:
    """Write the pictures to `folder`."""
    for picture in PICTURES:
        width, height = picture.size
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=picture.scheme, reduced_motion="reduce",
            locale="en-GB", timezone_id="Europe/Berlin",
        )  # fmt: skip
        context.set_default_timeout(1000 * PATIENCE_S)
        stage, page = picture.stage(), context.new_page()
        stage.set(context)
        stage.open(page, picture.place)
        picture.done(page)
        shot = Image.open(BytesIO(page.screenshot())).convert("RGB")
        # A half of the bytes: there are few colours, and a repository keeps each version.
        shot.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(
            folder / f"{picture.name}.png", optimize=True
        )
        for routed in (page, context):
            routed.unroute_all(behavior="ignoreErrors")
        context.close()


def main() -> None:
    """Make all pictures anew, where the documentation has them."""
    program = chromium_here()
    if program is None:
        raise SystemExit("the pictures need Chromium")
    with browser_of(program) as browser:
        take(browser, FOLDER)


if __name__ == "__main__":
    main()
