"""The page that `punctual run --page` names, while the job runs, and the page frozen as the report of a run."""

import json
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect
from tests.cli.programs import Terminal
from tests.page.live_page import PHONE, WIDE, Reader, barriers, fact, overflows
from tests.page.pictures import Scheme, Size, take_report
from tests.waiting import wait_until

#: Writes what a page must not read as its own, and is done soon once a file is there.
PROGRAM = """
import pathlib, sys, time, punctual
print("<b>red</b> line </script>", flush=True)
for i in punctual.track(range(int(sys.argv[1]))):
    if not pathlib.Path("go").exists(): time.sleep(0.02)
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM)
    yield made
    made.close()
    assert made.left_behind() == []


def opened(reader: Reader, address: str, size: Size = WIDE, scheme: Scheme = "light") -> tuple[Page, list[str]]:
    """A tab that shows `address`, and what it asks of anybody."""
    asked: list[str] = []
    page = reader.tab(size)
    page.emulate_media(color_scheme=scheme)
    page.on("request", lambda request: asked.append(request.url))
    page.goto(address)
    return page, asked


def test_a_run_is_seen_and_steered_at_the_page_of_its_daemon_which_ends_soon_after_it(
    terminal: Terminal, reader: Reader
) -> None:
    command = terminal.start(
        "run", "--page", "--name", "mine", "--deadline", "1h", "--", *terminal.script(PROGRAM), "9999"
    )
    assert command.stderr is not None
    told = next(line for line in command.stderr if "page: http" in line)
    address = told.split("page: ")[1].strip()
    page, _ = opened(reader, address)
    expect(page.locator("#one-title")).to_have_text("Job mine")
    assert "token" not in page.url
    expect(fact(page, "State")).to_have_text("running")
    expect(page.get_by_role("link", name="Submit", exact=True)).to_be_visible()
    page.get_by_text("Change weight, cores, workers or budget").click()
    page.get_by_label("New weight").fill("3")
    page.get_by_role("button", name="Change the weight").click()
    expect(page.locator("#steer-done")).to_contain_text("The weight is now 3")
    (terminal.folder / "go").touch()
    assert command.wait(200) == 0
    expect(fact(page, "Verdict")).to_have_text("met")
    wait_until(lambda: terminal.daemons() == [])
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(address.split("#")[0], timeout=10)


def test_a_second_job_can_be_submitted_at_the_page_of_a_run(terminal: Terminal) -> None:
    command = terminal.start("run", "--page", "--name", "mine", "--", *terminal.script(PROGRAM), "9999")
    assert command.stderr is not None
    told = next(line for line in command.stderr if "page: http" in line)
    place, token = re.findall(r"(http://.*)/#token=(\S+)&job=mine", told)[0]
    body = json.dumps({"program": ["true"], "name": "second"}).encode()
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    request = urllib.request.Request(f"{place}/v1/jobs", body, headers)
    with urllib.request.urlopen(request, timeout=100) as answer:
        assert json.load(answer)["name"] == "second"
    (terminal.folder / "go").touch()
    assert command.wait(200) == 0
    wait_until(lambda: terminal.daemons() == [])
    assert "second" in terminal.tell("ps", "--all").stdout


def drawn_at(page: Page, curve: str) -> list[tuple[float, float]]:
    """The ends of a line on the chart of progress, in pixels from its left and top."""
    path = page.locator("#course-chart path.goal").filter(has=page.locator("title", has_text=re.compile(f"^{curve}$")))
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path.get_attribute("d") or "")]


def test_a_report_bends_the_line_where_the_deadline_was_changed_and_begins_it_at_the_first_step(
    terminal: Terminal, reader: Reader
) -> None:
    """As the picture of the run does."""
    command = terminal.start("run", "--name", "mine", "--deadline", "5m", "--", *terminal.script(PROGRAM), "500")
    terminal.wait_for_job(lambda job: job.get("steps_done", 0) >= 5)
    assert terminal.tell("deadline", "mine", "4m").returncode == 0
    terminal.wait_for_job(lambda job: job.get("steps_done", 0) >= 10)
    (terminal.folder / "go").touch()
    assert command.wait(200) == 0
    assert terminal.tell("report", "mine", "--out", "out.html").returncode == 0
    page, _ = opened(reader, f"file://{terminal.folder / 'out.html'}")
    expect(page.locator("#course-chart .goal title")).to_have_count(2)
    earlier, last = drawn_at(page, "line to an earlier deadline"), drawn_at(page, "line to the deadline")
    assert 0 < earlier[0][0] < earlier[1][0] == last[0][0] < last[1][0]
    former = page.locator("#course-chart .former").first.get_attribute("d") or ""
    top, height = map(float, re.findall(r"^M[\d.]+ ([\d.]+)v([\d.]+)", former)[0])
    assert last[0][1] < top + height, "it begins where the job was"
    assert last[1][1] < last[0][1]
    expect(page.locator("#course-chart .former title")).to_contain_text("deadline before it was changed")


def test_the_report_is_the_page_and_asks_nobody(terminal: Terminal, reader: Reader, browser: Browser) -> None:
    done = terminal.punctual("run", "--name", "mine", "--deadline", "60s", "--", *terminal.script(PROGRAM), "40")
    assert done.returncode == 0, done.stderr
    assert terminal.tell("report", "mine", "--out", "out.html").returncode == 0
    report = (terminal.folder / "out.html").as_uri()
    looks: list[tuple[Size, Scheme]] = [(WIDE, "light"), (PHONE, "dark")]
    for size, scheme in looks:
        page, asked = opened(reader, report, size, scheme)
        a_report_of_one_job_is_shown(page)
        assert [url.split("#")[0] for url in asked if not url.startswith("data:")] == [report]
    take_report(browser, terminal.folder / "out.html", picture := terminal.folder / "demo.png")
    assert picture.read_bytes().startswith(b"\x89PNG"), "that of the demo can be made of its report"


def a_report_of_one_job_is_shown(page: Page) -> None:
    expect(page.locator("#one-title")).to_have_text("Job mine")
    expect(page.locator("#one-said")).to_contain_text("before the deadline of 1 min")
    expect(fact(page, "Verdict")).to_have_text("met")
    expect(page.locator("#progress-caption")).to_contain_text("Progress: 100 %")
    expect(page.locator("#one-log")).to_have_text("<b>red</b> line </script>")
    expect(page.locator("#one-reasons li").first).to_contain_text("The job finished")
    expect(page.locator("#heard")).to_contain_text("As it stood")
    for name in ("Budget", "Submit", "What if"):
        expect(page.get_by_role("link", name=name)).to_be_hidden()
    assert barriers(page) == []
    assert not overflows(page)
    page.get_by_role("link", name="All jobs", exact=True).click()
    expect(page.locator("#jobs tr")).to_have_count(1)


def test_the_report_of_several_jobs_has_them_all(terminal: Terminal, reader: Reader) -> None:
    program = json.dumps([*terminal.script(PROGRAM), "10"])
    (terminal.folder / "jobs.toml").write_text(
        "".join(f'[[job]]\nname = "{name}"\nprogram = {program}\n' for name in "ab")
    )
    done = terminal.punctual("run", "--jobs", "jobs.toml", "--report", "out.html")
    assert done.returncode == 0, done.stderr
    page, _ = opened(reader, (terminal.folder / "out.html").as_uri())
    expect(page.locator("#jobs tr")).to_have_count(2)
    page.get_by_role("link", name="b", exact=True).click()
    expect(page.locator("#one-title")).to_have_text("Job b")
