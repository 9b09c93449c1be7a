"""The page in a browser: one job, what it says and what it can be told."""

import re
import sys
from datetime import datetime
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect
from tests.api.live_service import LiveService, program
from tests.page.live_page import Reader, away, barriers, fact
from tests.waiting import wait_until

from punctual.core.ids import JobId


def submitted(service: LiveService, name: str, command: list[str], **more: object) -> None:
    reply = service.caller.post("/jobs", {"program": command, "name": name, **more})
    assert reply.status == 201, reply.body


def talker(awaited: Path) -> list[str]:
    """A program that writes two lines, and one more before it ends."""
    waits = f"import os,time\nprint('red line', flush=True)\nprint('blue line', flush=True)\nwhile not os.path.exists({str(awaited)!r}): time.sleep(0.05)\nprint('last line')"
    return [sys.executable, "-c", waits]


def test_a_row_leads_to_its_job_and_back_by_keyboard(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    submitted(service, "shown", program(tmp_path / "go"), deadline="1h", weight=2.5)
    page = reader.open(service)
    page.get_by_role("link", name="shown", exact=True).press("Enter")
    expect(page.locator("#one-title")).to_be_focused()
    expect(fact(page, "State")).to_have_text("running")
    expect(fact(page, "Weight")).to_have_text("2.5")
    expect(page.locator("#one-reasons li").first).to_be_visible()
    (tmp_path / "go").touch()
    expect(fact(page, "Verdict")).to_have_text("met")
    page.get_by_role("link", name="Back to all jobs").press("Enter")
    expect(page.locator("#jobs")).to_contain_text("shown")


def test_a_job_that_is_not_there_is_told(service: LiveService, reader: Reader) -> None:
    page = reader.open(service, place="#/jobs/missing")
    expect(page.locator("#one-problem")).to_contain_text("There is no job missing")
    expect(page.locator("#one-found")).to_be_hidden()


def test_the_log_is_followed_and_searched(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    submitted(service, "talker", talker(tmp_path / "go"))
    page = reader.open(service, place="#/jobs/talker")
    log = page.locator("#one-log")
    expect(log).to_have_text("red line\nblue line")
    page.get_by_label("Search in the log").fill("BLUE")
    expect(log).to_have_text("blue line")
    expect(page.locator("#log-count")).to_contain_text("1 of 2 lines")
    (tmp_path / "go").touch()
    page.get_by_label("Search in the log").fill("last")
    expect(log).to_have_text("last line")


def test_the_log_is_shown_from_a_time_of_the_chart_on(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    submitted(service, "talker", talker(tmp_path / "go"), deadline="1h")
    page = reader.open(service, place="#/jobs/talker")
    log, chart = page.locator("#one-log"), page.locator("#course-chart")
    expect(log).to_have_text("red line\nblue line")
    for key, said in (("Home", "2 lines from"), ("End", "0 lines from")):
        chart.press(key)
        chart.press("Enter")
        expect(page.locator("#log-count")).to_contain_text(said)
    (tmp_path / "go").touch()
    expect(log).to_have_text("last line")


STEPS = """
import os, sys, time, punctual
for i in punctual.track(range(100_000)):
    time.sleep(0.02)
    if os.path.exists({awaited!r}): break
"""


def stepper(awaited: Path) -> list[str]:
    """A program that counts steps until `awaited` is there."""
    return [sys.executable, "-c", STEPS.format(awaited=str(awaited))]


def curve(page: Page, name: str) -> Locator:
    return page.locator("#course-chart path.curve").filter(has=page.locator("title", has_text=re.compile(f"^{name}$")))


def test_the_course_of_a_job_is_drawn_and_told(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    submitted(service, "drawn", stepper(tmp_path / "go"), deadline="1h", cores="0.1..1")
    page = reader.open(service, place="#/jobs/drawn")
    expect(page.locator("#progress-caption")).to_contain_text(re.compile(r"Progress: .* % at .*The deadline is"))
    for name in ("progress", "line to the deadline", "granted"):
        expect(curve(page, name)).to_have_attribute("d", re.compile("^M.+"))
    expect(curve(page, "used")).to_have_attribute("d", re.compile("^M.+L.+"))
    expect(page.locator("#cores-caption")).to_contain_text("granted now")
    page.get_by_text("Changes of the grant").click()
    assert page.locator("#grants tr").count() >= 1
    expect(page.locator("#loss-caption")).to_be_hidden()
    (tmp_path / "go").touch()


EPOCHS = """
import time, punctual
run = punctual.track(range(int(__import__("sys").argv[1])))
for i in run:
    run.report_loss(1 / (1 + i))
    time.sleep(0.01)
    if i % 20 == 19:
        with punctual.phase("evaluate"):
            time.sleep(0.2)
"""


def test_phases_and_what_changes_took_are_drawn_and_another_run_of_the_program_is_compared(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(EPOCHS)
    for name, n_steps in (("short", 60), ("long", 100)):
        submitted(service, name, [sys.executable, str(tmp_path / "train.py"), str(n_steps)], deadline="1h")
    submitted(service, "unlike", program(tmp_path / "go"))
    for name in ("short", "long"):
        wait_until(lambda name=name: service.caller.get(f"/jobs/{name}").json()["ended"])  # type: ignore[misc]
    page = reader.open(service, place="#/jobs/long")
    expect(page.locator("#progress-caption")).to_contain_text("Bands are phases: evaluate")
    assert page.locator("#course-chart .phase").count() >= 1
    assert page.locator("#course-chart .resize").count() >= 1
    expect(page.locator("#cores-caption")).to_contain_text("the start included")
    assert page.get_by_label("Compare with").locator("option").all_inner_texts() == ["none", "short"]
    page.get_by_label("Compare with").select_option("short")
    for name in ("progress of short", "granted to short", "loss of short"):
        expect(curve(page, name)).to_have_attribute("d", re.compile("^M.+"))
    expect(page.locator("#compared-rows tr").filter(has_text="Steps")).to_have_text("Steps10060")
    page.get_by_label("Compare with").select_option("")
    expect(page.locator("#compared")).to_be_hidden()
    (tmp_path / "go").touch()


@pytest.mark.parametrize("value", [-1.5, 0.0012])
def test_a_loss_below_zero_and_a_small_one_are_drawn_and_told(
    service: LiveService, reader: Reader, value: float
) -> None:
    reports = f"import punctual\nrun = punctual.track(range(3))\nfor i in run: run.report_loss({value})"
    submitted(service, "losing", [sys.executable, "-c", reports])
    page = reader.open(service, place="#/jobs/losing")
    expect(page.locator("#loss-caption")).to_have_text(f"Loss: from {value} to {value}, the least {value}.")
    line = curve(page, "loss").get_attribute("d") or ""
    box = (page.locator("#course-chart").get_attribute("viewBox") or "").split()
    assert all(0 <= float(y) <= float(box[3]) for y in re.findall(r"[ML]\S+ (\S+?)(?=L|$)", line))


def test_a_job_that_has_ended_is_not_asked_for_again(service: LiveService, reader: Reader) -> None:
    submitted(service, "ended", program())
    wait_until(lambda: service.host.has_ended(JobId("ended")))
    page = reader.open(service, place="#/jobs/ended")
    expect(page.locator("#one-reasons li").first).to_contain_text("The job finished")
    page.wait_for_timeout(1000)
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(5000)
    assert not [url for url in asked if "/jobs/ended" in url]


def test_program_and_environment_are_told_without_secrets(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    program_of = [*program(tmp_path / "go"), "--token=t0p"]
    submitted(service, "told", program_of, env={"WHAT": "hidden-value"})
    page = reader.open(service, place="#/jobs/told")
    page.get_by_text("Program and environment").click()
    expect(page.locator("#one-program")).to_contain_text("--token=***")
    expect(page.locator("#one-program")).to_contain_text("WHAT")
    assert "hidden-value" not in page.content()
    expect(page.locator("#compare-none")).to_be_visible()
    (tmp_path / "go").touch()


def test_what_a_submitter_wrote_is_shown_as_it_is_typed(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    """Signs that turn others around, or are not shown, would make another command line of it."""
    submitted(service, "told", [*program(tmp_path / "go"), "a\u202eb\u200bc\x1bd"])
    page = reader.open(service, place="#/jobs/told")
    page.get_by_text("Program and environment").click()
    expect(page.locator("#one-program")).to_contain_text(r"'a\u202eb\u200bc\u001bd'")
    service.caller.post("/jobs/told/stop", {"cause": "by\u202e me\u2066"})
    expect(page.locator("#one-reasons")).to_contain_text(r"by\u202e me\u2066")
    (tmp_path / "go").touch()


def deadline(service: LiveService, job: str) -> datetime:
    """To less than a second: instants of the wall clock are derived anew for each answer."""
    return datetime.fromisoformat(service.caller.get(f"/jobs/{job}").json()["deadline"])


def test_the_deadline_is_moved_on_the_chart_by_keyboard(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    page = opened(service, reader, tmp_path / "go")
    before = deadline(service, "steered")
    handle = page.get_by_role("slider", name="Deadline")
    handle.press("Shift+ArrowRight")
    expect(page.locator("#steer-change-deadline")).to_be_enabled()
    expect(page.locator("#steer-quote")).to_contain_text("Deadline")
    unchanged_s = abs((deadline(service, "steered") - before).total_seconds())
    assert unchanged_s < 1, "nothing is done before it is confirmed"
    page.get_by_role("slider", name="Deadline").press("Escape")
    expect(page.locator("#steer-deadline")).to_have_value("")
    expect(page.locator("#steer-change-deadline")).to_be_disabled()
    page.get_by_role("slider", name="Deadline").press("Shift+ArrowRight")
    expect(page.locator("#steer-change-deadline")).to_be_enabled()
    page.get_by_role("slider", name="Deadline").press("Enter")
    expect(page.locator("#steer-done")).to_contain_text("The deadline is now")
    assert (deadline(service, "steered") - before).total_seconds() > 60


def test_the_deadline_is_moved_on_the_chart_by_pointer(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    page = opened(service, reader, tmp_path / "go")
    before = deadline(service, "steered")
    page.get_by_role("slider", name="Deadline").scroll_into_view_if_needed()
    box = page.locator("#course-chart .handle .grip").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.mouse.down()
    page.mouse.move(box["x"] - 100, box["y"] + box["height"] / 2)
    expect(page.locator("#steer-quote")).to_contain_text("Deadline")
    assert abs((deadline(service, "steered") - before).total_seconds()) < 1, "nothing is done before it is confirmed"
    page.mouse.up()
    expect(page.locator("#steer-change-deadline")).to_be_enabled()
    told = datetime.fromisoformat(page.locator("#steer-deadline").input_value())
    assert (deadline(service, "steered") - told).total_seconds() > 60


# Steering.


def opened(service: LiveService, reader: Reader, awaited: Path, **more: object) -> Page:
    """The view of a running job `steered` with a deadline in an hour."""
    submitted(service, "steered", program(awaited), deadline="1h", **more)
    page = reader.open(service, place="#/jobs/steered")
    expect(fact(page, "State")).to_have_text("running")
    expect(page.locator("#steer")).to_be_visible()
    return page


def standing(service: LiveService) -> dict[str, object]:
    return dict(service.caller.get("/jobs/steered").json())


def hours_left(service: LiveService) -> float:
    """Hours from the submission of `steered` to its deadline; instants of two answers may differ by a little."""
    told = standing(service)
    instants = [datetime.fromisoformat(str(told[key])) for key in ("submitted", "deadline")]
    return (instants[1] - instants[0]).total_seconds() / 3600


def button(page: Page, name: str) -> Locator:
    return page.get_by_role("button", name=name, exact=True)


def test_a_deadline_is_quoted_before_it_is_changed_and_can_be_taken_back(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    page = opened(service, reader, tmp_path / "go")
    page.get_by_label("New deadline").press("Enter")
    expect(button(page, "Change the deadline")).to_be_disabled()
    page.get_by_label("New deadline").fill("3h")
    expect(page.locator("#steer-quote")).to_contain_text("forecasts are all there is")
    assert hours_left(service) == pytest.approx(1, abs=0.01), "asking has changed nothing"
    page.get_by_label("New deadline").press("Enter")
    expect(page.locator("#steer-done")).to_contain_text("The deadline is now")
    assert hours_left(service) > 2.9
    page.get_by_role("button", name="Undo: deadline").click()
    expect(page.locator("#steer-done")).to_contain_text("again")
    assert hours_left(service) == pytest.approx(1, abs=0.01)


def test_weight_and_bounds_are_changed_and_taken_back_in_turn(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    page = opened(service, reader, tmp_path / "go", cores="0.1..1")
    page.get_by_text("Change weight, cores, workers or budget").click()
    page.get_by_label("New weight").fill("3")
    button(page, "Change the weight").click()
    expect(page.locator("#steer-done")).to_have_text("The weight is now 3; it was 1.")
    page.get_by_label("New bounds of cores").fill("0.2..0.5")
    button(page, "Change the cores").click()
    expect(page.locator("#steer-done")).to_contain_text("it was 0.1 to 1")
    told = standing(service)
    assert (told["weight"], told["leastCores"], told["mostCores"]) == (3.0, 0.2, 0.5)
    button(page, "Undo: cores back to 0.1 to 1").click()
    button(page, "Undo: weight back to 1").click()
    expect(page.locator("#steer-undo")).to_be_hidden()
    told = standing(service)
    assert (told["weight"], told["leastCores"], told["mostCores"]) == (1.0, 0.1, 1.0)


def test_what_another_has_changed_since_is_not_taken_back(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    page = opened(service, reader, tmp_path / "go")
    page.get_by_text("Change weight, cores, workers or budget").click()
    page.get_by_label("New weight").fill("3")
    button(page, "Change the weight").click()
    expect(page.locator("#steer-done")).to_contain_text("The weight is now 3")
    assert service.caller.send("PATCH", "/jobs/steered", {"weight": 5.0}).status == 200
    page.get_by_role("button", name="Undo").click()
    expect(page.locator("#steer-done")).to_contain_text("was changed again since")
    assert standing(service)["weight"] == 5.0


def test_what_is_wrong_is_told_whole_beside_what_was_asked(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    page = opened(service, reader, tmp_path / "go")
    refused = service.caller.send("PATCH", "/jobs/steered", {"cores": "2..1"}).json()
    page.get_by_text("Change weight, cores, workers or budget").click()
    page.get_by_label("New bounds of cores").fill("2..1")
    button(page, "Change the cores").click()
    for part in ("must", "got", "where", "remedy"):
        expect(page.locator("#steer-fault-cores")).to_contain_text(refused[part])
    expect(page.get_by_label("New bounds of cores")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("New deadline").fill("nonsense")
    expect(page.locator("#steer-fault-deadline")).to_contain_text("nonsense")
    expect(button(page, "Change the deadline")).to_be_disabled()


def test_a_job_is_paused_resumed_and_stopped_when_that_is_confirmed(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    page = opened(service, reader, tmp_path / "go")
    button(page, "Pause").click()
    expect(fact(page, "State")).to_have_text("paused")
    button(page, "Resume").click()
    expect(fact(page, "State")).to_have_text("running")
    button(page, "Stop").click()
    button(page, "Let it run").click()
    assert standing(service)["state"] == "running"
    button(page, "Stop").click()
    assert barriers(page) == []
    button(page, "Stop it").click()
    expect(page.locator("#steer")).to_be_hidden()
    expect(fact(page, "Why")).to_contain_text("stopped over HTTP")


def test_a_job_s_controls_are_shown_once_the_service_says_who_the_reader_is(
    service: LiveService, reader: Reader, tmp_path: Path
) -> None:
    submitted(service, "steered", program(tmp_path / "go"))
    page = reader.open(service)
    expect(page.locator("#submit-link")).to_be_visible()
    with away(page, "**/v1/health"):
        page.get_by_role("link", name="steered", exact=True).click()
    expect(page.locator("#steer")).to_be_visible()


def test_a_viewer_sees_no_controls(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    submitted(service, "steered", program(tmp_path / "go"))
    page = reader.open(service, place="#/jobs/steered", token=service.with_role("viewer").token)
    expect(fact(page, "State")).to_have_text("running")
    expect(page.locator("#steer")).to_be_hidden()
