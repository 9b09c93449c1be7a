"""The page in a browser: what another policy would make of the jobs that there are."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.api.live_service import LiveService
from tests.page.live_page import PHONE, WIDE, Reader, barriers
from tests.page.test_one_job import stepper, submitted
from tests.waiting import wait_until

from punctual.api.limits import SingleFlight


def running(service: LiveService, name: str, awaited: Path, **more: object) -> None:
    """A job that counts its steps, and has told some."""
    submitted(service, name, stepper(awaited), **more)
    wait_until(lambda: (service.caller.get(f"/jobs/{name}").json()["stepsDone"] or 0) > 2)


def simulated(page: Page, policy: str) -> None:
    page.get_by_role("combobox", name="Policy").select_option(policy)
    page.get_by_role("button", name="Simulate").click()


def test_ends_under_two_policies_stand_side_by_side_and_nothing_changes(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    running(service, "counted", tmp_path / "go", deadline="3h", cores="0.1..1")
    before = service.caller.get("/jobs/counted").json()
    page = reader.open(service, place="#/what-if", size=WIDE)
    simulated(page, "fifo")
    row = page.locator("#what-if-jobs tr")
    expect(row).to_have_count(1)
    expect(page.locator("#what-if-changes")).to_contain_text("No deadline changes its verdict.")
    page.get_by_text("All ends, of 1 job").click()
    expect(row).to_contain_text("met")
    expect(page.locator("#what-if-today")).to_have_text("Under proportional, as today")
    expect(page.locator("#what-if-other")).to_have_text("Under fifo")
    expect(page.locator("#what-if-said")).to_contain_text(
        "Neither is better: of 1 deadline, 1 would be met under proportional and 1 under fifo."
    )
    expect(page.locator("#what-if-changes")).to_contain_text("proportional, as today: ")
    assert service.host.policy == "proportional"
    after = service.caller.get("/jobs/counted").json()
    assert (after["state"], after["leastCores"], after["weight"]) == ("running", before["leastCores"], before["weight"])
    for width, height in (WIDE, PHONE):
        page.set_viewport_size({"width": width, "height": height})
        assert barriers(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_jobs_it_says_what_to_do(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place="#/what-if")
    simulated(page, "fifo")
    expect(page.locator("#what-if-said")).to_contain_text("Submit one first")
    expect(page.locator("#what-if-result")).to_be_hidden()


@contextmanager
def _taken(_: SingleFlight) -> Iterator[int]:
    yield 3


def test_who_asks_while_another_question_is_answered_is_told_to_wait(
    service: LiveService, reader: Reader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SingleFlight, "turn", _taken)
    page = reader.open(service, place="#/what-if")
    simulated(page, "max-min")
    expect(page.locator("#what-if-fault")).to_contain_text("Ask again in some seconds")


def test_a_viewer_is_told_which_token_it_takes(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place="#/what-if", token=service.with_role("viewer").token)
    expect(page.locator("#what-if-reads-only")).to_be_visible()
    expect(page.locator("#what-if-form")).to_be_hidden()
