"""Every state of the page: a view of a stage, and what is waited for and done there."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from playwright.sync_api import Page, expect
from tests.page.staged import NOW, Stage, at, job, many


def _jobs(page: Page) -> None:
    expect(page.locator("#jobs tr").first).to_be_visible()


def _table(page: Page) -> None:
    _jobs(page)
    page.get_by_role("button", name="Table", exact=True).click()
    expect(page.locator("#jobs .gauge").first).to_be_visible()


def _unfolded(page: Page) -> None:
    _jobs(page)
    page.get_by_role("button", name="Show 5 ended jobs").click()
    for each in page.locator("#jobs .why button").all():
        each.click()
    expect(page.locator("#jobs")).to_contain_text("landed 483 ms late")


def _empty(page: Page) -> None:
    expect(page.locator("#empty code")).to_be_visible()


def _disconnected(page: Page) -> None:
    _jobs(page)
    page.context.route("**/v1/**", lambda route: route.abort())
    page.clock.set_fixed_time(NOW + timedelta(seconds=10))
    expect(page.get_by_role("alert")).to_contain_text("What is shown is of")


def _loading(page: Page) -> None:
    expect(page.locator("#loading")).to_be_visible()


def _refused(page: Page) -> None:
    expect(page.get_by_label("Token")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_visible()


def _course(page: Page) -> None:
    expect(page.locator("#course-chart .progress").first).to_be_attached()
    expect(page.locator("#one-reasons li").first).to_be_visible()


def _logged(page: Page) -> None:
    _course(page)
    expect(page.locator("#one-log")).not_to_be_empty()


def _moved(page: Page) -> None:
    _logged(page)
    page.get_by_role("slider", name="Deadline").press("Shift+ArrowLeft")
    expect(page.locator("#steer-quote li").first).to_be_visible()
    expect(page.locator("#course-chart .quoted text").first).to_be_attached()


def _all_of_a_job(page: Page) -> None:
    _moved(page)
    for summary in page.locator("#one-found summary").all():
        summary.click()


def _advised(page: Page) -> None:
    _course(page)
    expect(page.locator("#steer-quote li").first).to_be_visible()


def _log_from_a_time(page: Page) -> None:
    _course(page)
    page.locator("#course-chart").press("Home")
    page.locator("#course-chart").press("Enter")
    expect(page.locator("#log-count")).to_contain_text("from 15:11:10 on")


def _compared(page: Page) -> None:
    _course(page)
    page.get_by_label("Compare with").select_option("gan")
    expect(page.locator("#compared")).to_be_visible()
    expect(page.locator("#course-chart .other").first).to_be_attached()


def _compared_by_progress(page: Page) -> None:
    _compared(page)
    page.get_by_label("Aligned by").select_option("progress")


def _headline(page: Page) -> None:
    expect(page.locator("#one-headline")).not_to_be_empty()


def _missing(page: Page) -> None:
    expect(page.locator("#one-problem")).to_contain_text("There is no job")


def _budget(page: Page) -> None:
    expect(page.locator("#budget-jobs tr").first).to_be_visible()


def _costs(page: Page) -> None:
    _budget(page)
    page.locator("#budget-chart").press("Home")
    for _ in range(4):
        page.locator("#budget-chart").press("Shift+ArrowRight")
    expect(page.locator("#budget-pools tr").first).to_be_visible()


def _no_budget(page: Page) -> None:
    expect(page.locator("#budget-caption")).to_contain_text("No job has held any cores")
    expect(page.locator("#budget-chart")).to_be_hidden()


def _quoted(page: Page) -> None:
    expect(page.locator("#quote-chart .granted")).to_be_attached()


def _all_fields(page: Page) -> None:
    _quoted(page)
    page.locator("#more-fields summary").click()


def _wrong(page: Page) -> None:
    _quoted(page)
    page.locator("#job-program").fill("'open")
    expect(page.locator("#fault-program")).to_contain_text("not closed")


def _reads_only(page: Page) -> None:
    expect(page.get_by_text("This token may only read").locator("visible=true")).to_be_visible()


def _simulated(page: Page) -> None:
    page.get_by_role("button", name="Simulate").click()
    expect(page.locator("#what-if-changes p").first).to_be_visible()


def _all_simulated(page: Page) -> None:
    _simulated(page)
    page.locator("#what-if-rest summary").click()


@dataclass(frozen=True)
class State:
    """A view of a stage, and what is waited for and done there."""

    done: Callable[[Page], None]
    place: str = "#/"
    stage: Callable[[], Stage] = Stage


def _infeasible() -> Stage:
    return Stage(is_feasible=False)


def _viewer() -> Stage:
    return Stage(role="viewer")


def _priced() -> Stage:
    return Stage(has_prices=True, nodes=("spot-0", "spot-1", "on-demand-0"))


def _nothing() -> Stage:
    return Stage(jobs=[])


def _just_started() -> Stage:
    first = job(
        "first",
        estimated_remaining_seconds=None,
        progress_percentage=None,
        started=at(-0.2),
        submitted=at(-0.3),
        granted_cores=0.2,
    )
    return Stage(jobs=[first, job("second", "queued", submitted=at(-0.1), deadline=at(90)), job("third", "queued", deadline=None, submitted=at(-0.1))])  # fmt: skip


def _only_waiting() -> Stage:
    return Stage(jobs=[job(f"run-{i}", "queued", after=["last"] if i else [], submitted=at(-i), deadline=at(20 + 30 * i)) for i in range(3)])  # fmt: skip


STATES = {
    "lanes": State(_jobs),
    "table": State(_table),
    "unfolded": State(_unfolded),
    "empty": State(_empty, stage=_nothing),
    "one job": State(_jobs, stage=lambda: Stage(jobs=[job("resnet", promised_until=at(40))])),
    "just started": State(_jobs, stage=_just_started),
    "only waiting": State(_jobs, stage=_only_waiting),
    "500 jobs": State(_jobs, stage=lambda: Stage(jobs=many())),
    "loading": State(_loading, stage=lambda: Stage(is_slow=True)),
    "refused": State(_refused, stage=lambda: Stage(refusal=401)),
    "disconnected": State(_disconnected),
    "job": State(_moved, "#/jobs/resnet"),
    "job, as it is": State(_logged, "#/jobs/resnet"),
    "job, unfolded": State(_all_of_a_job, "#/jobs/resnet"),
    "read-only": State(_logged, "#/jobs/gan", _viewer),
    "fresh": State(_headline, "#/jobs/fresh"),
    "late job": State(_advised, "#/jobs/bert-large", _infeasible),
    "log from a time": State(_log_from_a_time, "#/jobs/resnet"),
    "compared": State(_compared, "#/jobs/resnet"),
    "compared by progress": State(_compared_by_progress, "#/jobs/resnet"),
    "failed": State(_logged, "#/jobs/diffusion"),
    "waiting": State(_headline, "#/jobs/ablation"),
    "landed": State(_course, "#/jobs/wav2vec"),
    "missing": State(_missing, "#/jobs/nowhere"),
    "budget": State(_budget, "#/budget"),
    "budget of nodes": State(_budget, "#/budget", lambda: Stage(nodes=("one", "two"))),
    "lanes of machines with prices": State(_jobs, stage=_priced),
    "budget in dollars": State(_costs, "#/budget", _priced),
    "job in dollars": State(_moved, "#/jobs/resnet", _priced),
    "submit, with prices": State(_quoted, "#/submit/resnet", _priced),
    "no budget": State(_no_budget, "#/budget", _nothing),
    "submit": State(_quoted, "#/submit/resnet"),
    "submit, not feasible": State(_all_fields, "#/submit/resnet", _infeasible),
    "submit, wrong": State(_wrong, "#/submit/resnet"),
    "submit, read-only": State(_reads_only, "#/submit", _viewer),
    "what if": State(_simulated, "#/what-if"),
    "what if, unfolded": State(_all_simulated, "#/what-if"),
    "what if, read-only": State(_reads_only, "#/what-if", _viewer),
}
