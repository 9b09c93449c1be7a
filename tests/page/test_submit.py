"""The page in a browser: submitting a job, with the quote beside the form."""

import re
import shlex
from pathlib import Path

from playwright.sync_api import APIResponse, Page, Route, expect
from tests.api.live_service import LiveService, program
from tests.page.live_page import Reader, away
from tests.waiting import wait_until

FORM = "#/submit"


def filled(page: Page, **texts: str) -> None:
    page.locator("#more-fields").evaluate("options => { options.open = true; }")
    for name, text in texts.items():
        page.locator(f"#job-{name}").fill(text)


def test_a_quote_with_prices_tells_them(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place=FORM)

    def priced(route: Route) -> None:
        answer = route.fetch()
        prices = [
            {"deadline": "2099-01-01T18:00:00+00:00", "usd": 41.5},
            {"deadline": "2099-01-01T12:00:00+00:00", "usd": None},
        ]
        fields = {**answer.json(), "prices": prices, "budgetUsd": 50, "bought": "2099-01-01T15:00:00+00:00"}
        route.fulfill(response=answer, json=fields)

    page.route("**/v1/quote", priced)
    filled(page, program="true", deadline="1h")
    for text in ("What it is expected to cost", "$41.50 by ", "cannot be by ", "$50.00 buy it by "):
        expect(page.locator("#quote")).to_contain_text(text)


def test_the_quote_changes_while_one_types(service: LiveService, reader: Reader) -> None:
    assert service.caller.send("PUT", "/policy", {"name": "promises-first"}).status == 200
    page = reader.open(service, place=FORM)
    quote = page.locator("#quote")
    filled(page, program=shlex.join(program()), work="10h", cores="1", deadline="1m")
    expect(quote).to_contain_text("✗")
    expect(quote).to_contain_text("Earliest deadline that can be promised")
    quote.get_by_role("button", name=re.compile("^Use ")).click()
    expect(quote).to_contain_text("✓")
    assert service.caller.get("/jobs").json()["jobs"] == [], "asking has submitted nothing"


def test_the_last_question_s_answer_is_shown(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place=FORM)
    held: list[Route] = []

    def hold_first(route: Route) -> None:
        if held:
            route.continue_()
        else:
            held.append(route)

    page.route("**/v1/quote", hold_first)
    filled(page, program="true", deadline="nonsense")
    wait_until(lambda: page.evaluate("true") and held)  # its events come while it is asked
    filled(page, deadline="1h")
    expect(page.locator("#quote")).to_contain_text("forecasts are all there is")
    held[0].continue_()
    filled(page, deadline="2h")
    expect(page.locator("#quote")).to_contain_text("forecasts are all there is")
    expect(page.locator("#fault-deadline")).to_be_empty()


def test_a_job_is_submitted_with_what_the_form_says(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    page = reader.open(service, place=FORM)
    command = program(tmp_path / "go")
    filled(
        page,
        program=shlex.join(command),
        name="typed",
        deadline="1h",
        cores="0.1..1",
        weight="2.5",
        steps="40",
        cwd=str(tmp_path),
    )
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#submitted")).to_contain_text("typed was submitted")
    told = service.caller.get("/jobs/typed").json()
    assert told["program"] == command
    assert (told["weight"], told["leastCores"], told["mostCores"], told["stepsTotal"]) == (2.5, 0.1, 1.0, 40.0)
    page.get_by_role("link", name="See all jobs").click()
    expect(page.locator("#jobs")).to_contain_text("typed")


def test_the_command_line_says_the_same(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    page = reader.open(service, place=FORM, permissions=["clipboard-read", "clipboard-write"])
    words = ["python3", "it's.py", "a b", "two\nlines", '"', "$HOME", "", "\\", "-x"]
    filled(
        page, program=" \\\n ".join(map(shlex.quote, words)), deadline="18:00", weight="2", cwd=str(tmp_path / "a b")
    )
    page.locator("#job-guarantee").check()
    page.get_by_role("button", name="Copy").click()
    expect(page.locator("#copied")).to_have_text("Copied.")
    copied = shlex.split(page.evaluate("navigator.clipboard.readText()"))
    options = ["--deadline=18:00", "--weight=2", "--guarantee"]
    assert copied == ["cd", str(tmp_path / "a b"), "&&", "punctual", "submit", *options, "--", *words]


def test_what_is_wrong_is_told_beside_its_field_in_four_parts(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place=FORM)
    filled(page, program="true", deadline="soon", weight="-1")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#fault-weight")).not_to_be_empty()
    expect(page.locator("#job-weight")).to_have_attribute("aria-invalid", "true")
    filled(page, weight="1")
    page.get_by_role("button", name="Submit").click()
    reply = service.caller.post("/jobs", {"program": ["true"], "deadline": "soon", "weight": 1}).json()
    for part in ("must", "got", "where", "remedy"):
        expect(page.locator("#fault-deadline")).to_contain_text(reply[part])
    expect(page.locator("#fault-weight")).to_be_empty()
    filled(page, program="'open")
    expect(page.locator("#fault-program")).to_contain_text("not closed")
    assert service.caller.get("/jobs").json()["jobs"] == []


def test_a_form_sent_again_after_a_lost_answer_is_the_same_job(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place=FORM)
    filled(page, program="true", name="once")
    lost: list[APIResponse] = []

    def lose_first(route: Route) -> None:
        if lost:
            route.continue_()
        else:
            lost.append(route.fetch())
            route.abort()

    page.route("**/v1/jobs", lambda route: lose_first(route) if route.request.method == "POST" else route.continue_())
    with page.expect_event("requestfailed", lambda request: request.url.endswith("/v1/quote")):
        page.route("**/v1/quote", lambda route: route.abort())
        filled(page, deadline="1h")  # a quote is asked for soon, and its answer is lost as well
        page.get_by_role("button", name="Submit").click()
        expect(page.locator("#fault-all")).to_contain_text("may have been submitted")
    expect(page.locator("#quote")).to_contain_text("There is no quote")
    expect(page.locator("#fault-all")).to_contain_text("may have been submitted")
    page.get_by_role("button", name="Submit").click()
    expect(page.locator("#submitted")).to_contain_text("once was submitted")
    assert [job["name"] for job in service.caller.get("/jobs").json()["jobs"]] == ["once"]


def test_the_form_is_shown_once_the_service_says_who_the_reader_is(service: LiveService, reader: Reader) -> None:
    page = reader.open(service)
    expect(page.get_by_role("link", name="Submit")).to_be_visible()
    with away(page, "**/v1/health"):
        page.get_by_role("link", name="Submit").click()
    expect(page.locator("#job")).to_be_visible()


def test_a_viewer_is_told_that_it_takes_another_token(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place=FORM, token=service.with_role("viewer").token)
    expect(page.get_by_text("This token may only read. To submit")).to_be_visible()
    expect(page.locator("#job")).to_be_hidden()


def test_a_job_is_submitted_by_keyboard(service: LiveService, reader: Reader) -> None:
    page = reader.open(service)
    expect(page.locator("#overview")).to_be_visible()
    page.get_by_role("link", name="Submit").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Submit a job")).to_be_focused()
    expect(page.locator("#job")).to_be_visible()
    page.keyboard.press("Tab")
    page.keyboard.type("true")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    expect(page.locator("#submitted")).to_contain_text("was submitted")
