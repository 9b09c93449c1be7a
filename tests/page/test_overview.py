"""The page in a browser: all jobs against their deadlines."""

import sys
from pathlib import Path

from playwright.sync_api import Locator, Page, expect
from tests.api.live_service import Caller, LiveService, program, steered_host
from tests.page.live_page import Reader

from punctual.api.server import serve


def submitted(service: LiveService, name: str, awaited: Path | None = None, **more: object) -> None:
    reply = service.caller.post("/jobs", {"program": program(awaited), "name": name, **more})
    assert reply.status == 201, reply.body


def row(page: Page, name: str) -> Locator:
    return page.locator("#jobs tr").filter(has=page.get_by_text(name, exact=True))


def names(page: Page) -> list[str]:
    return page.locator("#jobs .name a").all_inner_texts()


def test_a_job_appears_and_its_end_is_seen_without_a_reload(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    page = reader.open(service)
    expect(page.locator("#empty")).to_contain_text("Submit one")
    submitted(service, "first", tmp_path / "go", deadline="1h")
    expect(row(page, "first")).to_contain_text("running")
    (tmp_path / "go").touch()
    expect(row(page, "first")).to_contain_text("finished")
    expect(row(page, "first")).to_contain_text("met")


def test_the_token_is_taken_out_of_the_address(service: LiveService, reader: Reader) -> None:
    page = reader.open(service)
    expect(page.locator("#overview")).to_be_visible()
    assert "token" not in page.url
    page.reload()
    expect(page.locator("#overview")).to_be_visible()


def test_a_token_that_is_put_into_the_address_of_an_open_page_is_used_and_taken_out(
    service: LiveService, reader: Reader
) -> None:
    submitted(service, "named")
    page = reader.tab()
    page.goto(service.served.url)
    expect(page.get_by_label("Token")).to_be_visible()
    page.goto(f"{service.served.url}/#token={service.caller.token}")
    expect(page.locator("#overview")).to_be_visible()
    expect(page.locator("#entry")).to_be_hidden()
    assert "token" not in page.url
    page.goto(f"{service.served.url}/#token={service.caller.token}&job=named")
    expect(page.locator("#one-title")).to_have_text("Job named")
    assert "token" not in page.url


def test_a_wrong_token_is_refused_and_another_one_asked_for(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, token="wrong")
    expect(page.get_by_role("alert")).to_be_visible()
    expect(page.locator("#overview")).to_be_hidden()
    page.get_by_label("Token").fill(str(service.caller.token))
    page.keyboard.press("Enter")
    expect(page.locator("#overview")).to_be_visible()
    expect(page.get_by_role("alert")).to_be_hidden()


def test_a_viewer_sees_the_jobs(service: LiveService, reader: Reader) -> None:
    submitted(service, "seen")
    page = reader.open(service, token=service.with_role("viewer").token)
    expect(row(page, "seen")).to_be_visible()


def test_the_page_goes_on_after_the_service_was_away(reader: Reader) -> None:
    with steered_host() as host:
        with serve(host, "127.0.0.1:0") as served:
            page = reader.open(LiveService(host, served, Caller(served, served.token_file.read_text().strip())))
            expect(page.locator("#overview")).to_be_visible()
        expect(page.get_by_role("alert")).to_contain_text("does not answer")
        expect(page.locator("#heard")).to_contain_text("Last heard")
        with serve(host, served.url.removeprefix("http://")) as again:
            submitted(LiveService(host, again, Caller(again, again.token_file.read_text().strip())), "later")
            expect(row(page, "later")).to_be_visible()
            expect(page.get_by_role("alert")).to_be_hidden()


def test_jobs_are_sorted_found_and_chosen(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    submitted(service, "beta", tmp_path / "go", deadline="2h")
    submitted(service, "alpha", tmp_path / "go", deadline="1h")
    submitted(service, "gamma")
    page = reader.open(service)
    expect(row(page, "gamma")).to_contain_text("finished")
    assert names(page) == ["alpha", "beta", "gamma"], "by what wants attention"
    page.get_by_label("Sort by").select_option("submitted")
    assert names(page) == ["beta", "alpha", "gamma"]
    page.get_by_label("Sort by").select_option("name")
    assert names(page) == ["alpha", "beta", "gamma"]
    page.get_by_label("Sort by").select_option("deadline")
    assert names(page) == ["alpha", "beta", "gamma"]
    page.get_by_label("State").select_option("finished")
    assert names(page) == ["gamma"]
    page.get_by_label("State").select_option("")
    page.get_by_label("Search", exact=True).fill("ALP")
    assert names(page) == ["alpha"]
    page.get_by_label("Search", exact=True).fill("no such job")
    expect(page.locator("#empty")).to_contain_text("No job matches")


def test_everything_is_reached_by_keyboard(service: LiveService, reader: Reader) -> None:
    submitted(service, "one")
    page = reader.open(service)
    expect(row(page, "one")).to_be_visible()
    reached = set()
    for _ in range(16):
        page.keyboard.press("Tab")
        reached.add(page.evaluate("document.activeElement.id || document.activeElement.getAttribute('aria-label')"))
    figures = {f"figure-{kind}" for kind in ("good", "risk", "late", "done")}
    assert {"search", "state", "sort", "as-lanes", "as-table", "Table of jobs", *figures} <= reached


def test_progress_is_shown_against_the_line_to_the_deadline(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    reports = "import sys, time, pathlib\nprint('step 30/100', flush=True)\nwhile not pathlib.Path(sys.argv[1]).exists(): time.sleep(0.02)"
    asked = {"program": [sys.executable, "-c", reports, str(tmp_path / "go")], "name": "half", "deadline": "10h"}
    pattern = r"step (?P<step>\d+)/(?P<total>\d+)"
    assert service.caller.post("/jobs", {**asked, "progressRegex": pattern}).status == 201
    page = reader.open(service)
    expect(row(page, "half")).to_contain_text("running · 30.0 %")
    page.get_by_role("button", name="Table", exact=True).click()
    expect(row(page, "half")).to_contain_text("30.0 %, line 30 %")
    expect(row(page, "half").locator("svg .due")).to_have_count(1)


def test_a_job_that_would_end_beyond_the_calendar_keeps_no_other_from_being_seen(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    steps = f"import os, sys, time, punctual\nfor i in punctual.track(range({sys.maxsize}), total_steps={sys.maxsize}):\n    time.sleep(0.02)\n    if os.path.exists({str(tmp_path / 'go')!r}): break"
    asked = {"program": [sys.executable, "-c", steps], "name": "endless", "deadline": "1h"}
    assert service.caller.post("/jobs", asked).status == 201
    page = reader.open(service)
    expect(row(page, "endless")).to_contain_text("far away")
    submitted(service, "other")
    expect(row(page, "other")).to_be_visible()
    page.get_by_role("link", name="endless").click()
    page.get_by_role("slider", name="Deadline").press("ArrowRight")
    expect(page.locator("#steer-deadline")).not_to_have_value("")
    expect(page.locator("#one-problem")).to_have_text("")
    (tmp_path / "go").touch()


def test_a_refusal_names_the_deadline_that_would_have_been_accepted(service: LiveService, reader: Reader) -> None:
    assert service.caller.send("PUT", "/policy", {"name": "promises-first"}).status == 200
    submitted(service, "refused", deadline="1m", work="10h", cores="1", guarantee=True)
    page = reader.open(service)
    page.get_by_role("button", name="turned away").click()
    expect(row(page, "refused")).to_contain_text("The earliest that would have been accepted: ")


def test_times_are_in_the_reader_s_zone(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    submitted(service, "far", tmp_path / "go", deadline="2031-01-01T12:00:00+00:00")
    page = reader.open(service, timezone_id="Asia/Tokyo", locale="de-DE")
    expect(row(page, "far")).to_contain_text("01.01.31, 21:00")
