"""Every state of the page on its stage: nobody is kept out, it fits each screen, and it says what it must."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import combinations
from typing import Literal

import pytest
from playwright.sync_api import Browser, FloatRect, Page, expect
from tests.page.live_page import barriers, overflows
from tests.page.staged import ADDRESS, NOW, Stage, at, ended, job, many, several, tab
from tests.page.states import STATES
from tests.waiting import wait_until

from punctual.core.units import span

#: Width and height; the last is a window at 200 %, which has half the width and height.
SIZES = {"large": (1440, 900), "medium": (1024, 720), "phone": (390, 844), "200 %": (640, 450)}
Scheme = Literal["light", "dark"]


@contextmanager
def staged(
    browser: Browser,
    stage: Stage,
    place: str = "#/",
    size: str = "large",
    scheme: Scheme = "light",
    script: str = "",
) -> Iterator[Page]:
    """A tab that shows a view of a stage; no script in it must fail, and nothing must be kept back."""
    with tab(browser, SIZES[size], scheme, is_new=bool(script)) as page:
        stage.set(page.context)
        page.add_init_script(script)
        stage.open(page, place)
        yield page


@contextmanager
def tab_for_scripts(browser: Browser) -> Iterator[Page]:
    """A tab that may load the page's scripts, and shows no view."""
    with tab(browser, SIZES["large"], "light") as page:
        Stage().set(page.context)
        page.goto(f"{ADDRESS}/page/icon.svg")
        yield page


def later(page: Page, seconds: float = 10.0) -> None:
    """Have the page look again, so many seconds after it was opened."""
    page.clock.set_fixed_time(NOW + timedelta(seconds=seconds))


#: Texts of elements that are seen and say nothing: an empty dash, or a value that a script did not have.
NOTHING_SAID = r"""[...document.querySelectorAll("body *")].filter((each) => !each.children.length && each.checkVisibility())
    .map((each) => each.textContent.trim()).filter((text) => /^[–-]$|\b(NaN|undefined|null|Infinity)\b/.test(text))"""
LOOKS: list[tuple[str, Scheme]] = [("phone", "dark"), ("large", "light"), ("200 %", "light")]


@pytest.mark.parametrize("state", STATES)
def test_a_state_keeps_nobody_out_and_fits_each_screen(browser: Browser, state: str) -> None:
    """It is loaded on a phone, as the tests below load it on a large screen, and then has the other sizes: to load it costs most."""
    shown = STATES[state]
    with staged(browser, shown.stage(), shown.place, *LOOKS[0]) as page:
        shown.done(page)
        for size, scheme in LOOKS:
            width, height = SIZES[size]
            page.set_viewport_size({"width": width, "height": height})
            page.emulate_media(color_scheme=scheme)
            wait_until(lambda: not overflows(page))
            if size != "200 %":  # it is laid out as on a phone, and has the colours of the large screen
                assert barriers(page) == [], f"{size}, {scheme}"
            assert page.evaluate("document.getAnimations().length") == 0, "motion is reduced"
            assert page.evaluate(NOTHING_SAID) == [], f"{size}, {scheme}"


def test_the_overview_answers_at_a_glance(browser: Browser) -> None:
    with staged(browser, Stage()) as page:
        expect(page.locator("#jobs-title")).to_have_text("1 job will be late, 1 job is at risk, 1 failed today")
        expect(page).to_have_title("1 late – Punctual")
        expect(page.locator("link[rel=icon]")).to_have_attribute("href", "/page/icon-late.svg")
        names = page.locator("#jobs .name a").all_inner_texts()
        assert names == [
            "bert-large",
            "gan",
            "resnet",
            "fresh",
            "transformer",
            "sweep-3",
            "ablation",
            "sweep-4",
            "diffusion",
        ], "the last one failed today"
        late = page.locator("#jobs tr").first
        expect(late).to_contain_text("lands 6 min 40 s late")
        expect(late.get_by_role("link", name="See what would help")).to_be_visible()
        expect(page.locator("#figure-done")).to_contain_text("5done today (1 late), 1 failed")
        expect(page.locator("#figure-cores")).to_contain_text("1.9 of 2cores held, 0.6 of them promised")
        page.get_by_role("button", name="at risk").click()
        assert page.locator("#jobs .name a").all_inner_texts() == ["gan"]


def test_a_job_that_has_just_started_is_measured_and_has_no_verdict(browser: Browser) -> None:
    """Whatever its forecast says before a step was counted, or against its own pace while it waits more than it computes."""
    waits = job("waits", used_cores=0.05, steps_per_second=0.5, estimated_remaining_seconds=4.0, estimated_remaining_seconds_low=3.9, estimated_remaining_seconds_high=4.1)  # fmt: skip
    new = job("new", steps_per_second=None, progress_percentage=0.0)
    with staged(browser, Stage(jobs=[waits, new])) as page:
        STATES["lanes"].done(page)
        for row in page.locator("#jobs tr").all():
            expect(row.locator(".verdict")).to_have_text("measuring")
            expect(row.locator(".end")).to_be_empty()
            expect(row.locator(".spread")).to_have_count(0)
        expect(page.locator("#jobs-title")).to_have_text("Nothing can be said yet: 2 jobs are being measured")
        page.get_by_role("link", name="waits").click()
        expect(page.locator("#one-headline")).to_contain_text("Measuring: its speed is not known yet")
        expect(page.locator("#course-chart .interval")).to_have_count(0)


def test_times_in_the_service_s_sentence_are_those_of_the_reader_s_clock(browser: Browser) -> None:
    """The service is in another zone than the browser."""
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        expect(page.locator("#one-headline")).to_have_text("On track: lands 16:12:00, ± 20 s; due in 40 min; holds 0.6 of 2 cores, promised")  # fmt: skip
        page.goto("http://punctual.example/#/jobs/ablation")
        expect(page.locator("#one-headline")).to_have_text("Starts after resnet, not before 16:12; due in 2 h")


def test_the_decisive_reason_is_on_top_and_the_others_are_latest_first(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/bert-large") as page:
        items = page.locator("#one-reasons li")
        expect(items.first).to_contain_text("Decisive")
        expect(items.first).to_contain_text("deadline may be missed")
        expect(page.locator("#one-reasons .decisive")).to_have_count(1)
        kinds = [kind.split()[-1] for kind in items.locator("small").all_inner_texts()]
        assert kinds == ["warning", "grant", "grant", "submitted"]


def test_each_point_of_a_quote_says_whether_it_can_be_promised(browser: Browser) -> None:
    with staged(browser, Stage(), "#/submit/resnet") as page:
        STATES["submit"].done(page)
        points = page.locator("#quote-chart .point")
        titles = points.locator("title").all_text_contents()
        assert [title.rsplit(", ", 1)[1] for title in titles] == [*["can be promised"] * 4, "cannot be promised"]
        assert "sure" in (points.first.get_attribute("class") or "")
        assert "never" in (points.last.get_attribute("class") or "")
        expect(page.locator("#quote li", has_text="with 2 cores:")).to_contain_text("cannot be promised")


def test_a_late_job_says_at_once_what_would_help(browser: Browser) -> None:
    with staged(browser, Stage(is_feasible=False), "#/jobs/bert-large") as page:
        expect(page.locator("#steer-quote")).to_contain_text("Earliest deadline that can be promised: 16:05:10")
        expect(page.locator("#course-chart .quoted.words")).to_contain_text("earliest 16:05:10")
        expect(page.get_by_role("button", name="Change the deadline")).to_be_disabled()
        lines = page.locator("#help-actions li")
        expect(lines).to_have_count(2)
        expect(lines.nth(0)).to_contain_text("Use 16:05:10A deadline in 33 min can be promised; transformer would have")
        expect(lines.nth(1)).to_contain_text("Allow 2 coresIt has all 0.7 cores that it may have")
        help_, chart = page.locator("#help").bounding_box(), page.locator("#course-chart").bounding_box()
        assert help_ is not None
        assert chart is not None
        assert help_["y"] < chart["y"]
        page.get_by_role("button", name="Try 16:05:10").click()
        expect(page.get_by_role("button", name="Change the deadline")).to_be_enabled()
        page.goto("http://punctual.example/#/jobs/resnet")
        expect(page.locator("#steer-quote")).to_have_text("Type a deadline to see what it would take.")


def test_of_many_jobs_the_first_late_ones_say_why_and_those_that_wait_or_have_ended_are_folded(
    browser: Browser,
) -> None:
    with staged(browser, Stage(jobs=many())) as page:
        rows = page.locator("#jobs tr")
        expect(page.get_by_role("link", name="See what would help")).to_have_count(5)
        expect(rows.first.get_by_role("link", name="See what would help")).to_be_visible()
        expect(rows.filter(has_text="queued")).to_have_count(3)
        expect(rows).to_have_count(53)
        page.get_by_role("button", name="Show 297 more that wait").click()
        expect(rows).to_have_count(350)
        page.get_by_role("button", name="Show 150 ended jobs").click()
        expect(rows).to_have_count(500)
        page.get_by_role("button", name="Hide those that wait").click()
        expect(rows).to_have_count(203)
        page.get_by_label("Search", exact=True).fill("job-49")
        expect(rows).to_have_count(10)


def test_those_that_start_too_late_stand_before_others_that_wait(browser: Browser) -> None:
    waiting = [job(f"soon-{i}", "queued", deadline=at(30 + i)) for i in range(9)]
    hopeless = job("hopeless", "queued", after=["resnet"], deadline=at(39))
    with staged(browser, Stage(jobs=[job("resnet"), *waiting, hopeless])) as page:
        expect(page.locator("#jobs .name a")).to_have_text(["resnet", "hopeless", "soon-0", "soon-1"])


def test_lanes_without_a_forecast_say_so_and_the_headline_says_what_there_is(browser: Browser) -> None:
    with staged(browser, STATES["just started"].stage()) as page:
        expect(page.locator("#jobs-title")).to_have_text("Nothing can be said yet: 1 job is being measured")
        expect(page.locator("#jobs .lane text")).to_have_text(["its end is not known yet", *2 * ["its start is not known yet"]])  # fmt: skip
    with staged(browser, STATES["only waiting"].stage()) as page:
        expect(page.locator("#jobs-title")).to_have_text("3 jobs wait, and nothing runs yet")


def test_the_chart_of_a_job_without_progress_says_why_and_has_no_empty_panels(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/ablation") as page:
        chart = page.locator("#course-chart")
        expect(chart).to_contain_text("Starts after resnet, not before 16:12")
        expect(chart.locator(".title")).to_have_text(["Progress, %"])
        expect(chart.locator(".mark.start")).to_have_count(1)
        expect(page.locator("#course-legend")).to_contain_text("expected start")


def test_heads_stand_above_what_they_name(browser: Browser) -> None:
    with staged(browser, Stage()) as page:
        STATES["lanes"].done(page)
        for width, height in (SIZES["large"], SIZES["medium"]):
            page.set_viewport_size({"width": width, "height": height})
            heads, *rows = page.evaluate(
                "[...document.querySelectorAll('#all tr')].map((row) => [...row.cells].filter((cell) => cell.offsetWidth)"
                ".map((cell) => [cell.offsetLeft, cell.offsetWidth]))"
            )
            assert all(row == heads for row in rows)
            axis, lane = (page.locator(f"#all {cell}.lane svg").first.bounding_box() for cell in ("th", "td"))
            assert axis is not None
            assert lane is not None
            assert (axis["x"], axis["width"]) == (lane["x"], lane["width"])
            lines = page.evaluate(
                "[document.querySelector('#all th'), document.querySelector('.axis text')].map((each) => {"
                " const range = document.createRange(); range.selectNodeContents(each); return range.getBoundingClientRect().bottom; })"
            )
            assert abs(lines[0] - lines[1]) <= 2, "their words stand on one line"


def test_the_columns_of_all_reasons_are_the_same(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["landed"].done(page)
        for column in ("time", "small", "span"):
            lefts = page.locator(f"#one-reasons li > {column}").evaluate_all("all => all.map((each) => each.getBoundingClientRect().left)")  # fmt: skip
            assert len(lefts) > 1
            assert len(set(lefts)) == 1


def test_a_browser_is_asked_once_whether_it_may_tell_of_changes(browser: Browser) -> None:
    """The browser of the test has no notices to give, and its address is not one that may."""
    stands_in = """
        Object.defineProperty(window, "isSecureContext", { value: true });
        window.told = [];
        window.Notification = class {
            static permission = "default";
            static async requestPermission() { return (window.Notification.permission = "granted"); }
            constructor(title, { body }) { window.told.push(body); }
        };
    """
    stage = Stage()
    with staged(browser, stage, script=stands_in) as page:
        STATES["lanes"].done(page)
        asks = page.get_by_role("button", name="Tell me when that changes")
        asks.click()
        expect(asks).to_be_hidden()
        stage.jobs = [each if each.name != "gan" else ended("gan", 0.1, -40) for each in stage.jobs]
        later(page)
        wait_until(lambda: bool(page.evaluate("window.told.length")))
        assert page.evaluate("window.told") == ["gan: missed"]


def test_the_headline_tells_of_jobs_that_failed_today(browser: Browser) -> None:
    with staged(browser, Stage(jobs=[each for each in several() if each.name in {"resnet", "diffusion"}])) as page:
        expect(page.locator("#jobs-title")).to_have_text("1 job failed today; what runs is on track")


def test_the_crosshair_reads_the_marks_beside_it(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["landed"].done(page)
        mark = page.locator("#course-chart .mark.warning").bounding_box()
        assert mark is not None
        page.mouse.move(mark["x"] + 3, mark["y"] + 40)
        expect(page.locator("#course-readout")).to_contain_text("its deadline may be missed")
        page.mouse.move(mark["x"] + 20, mark["y"] + 40)
        expect(page.locator("#course-readout")).not_to_contain_text("its deadline may be missed")


def test_one_node_s_budget_is_chosen_where_there_are_several(browser: Browser) -> None:
    with staged(browser, Stage(nodes=("one", "two")), "#/budget") as page:
        STATES["budget"].done(page)
        expect(page.get_by_label("Node")).to_have_value("")
        expect(page.locator("#budget-chart")).to_contain_text("Cores, of 2")
        page.get_by_label("Node").select_option("two")
        expect(page.locator("#budget-chart")).to_contain_text("Cores, of 1")
    with staged(browser, Stage(), "#/budget") as page:
        STATES["budget"].done(page)
        expect(page.get_by_label("Node")).to_be_hidden()


@pytest.mark.parametrize("state", ["job", "late job"])
def test_what_the_chart_says_of_a_quote_lies_apart_and_within(browser: Browser, state: str) -> None:
    shown = STATES[state]
    with staged(browser, shown.stage(), shown.place) as page:
        shown.done(page)
        for width, height in (SIZES["large"], SIZES["phone"]):
            page.set_viewport_size({"width": width, "height": height})
            wait_until(lambda: _lie_apart_and_within(page))  # it is drawn anew for another width


def _lie_apart_and_within(page: Page) -> bool:
    texts = page.locator("#course-chart .quoted text, #course-chart .handle text").all()
    boxes = [box for text in texts if (box := text.bounding_box()) is not None]
    chart = page.locator("#course-chart").bounding_box()
    assert chart is not None
    return (
        len(boxes) == 3
        and all(chart["x"] <= box["x"] <= box["x"] + box["width"] <= chart["x"] + chart["width"] for box in boxes)
        and not any(_overlap(one, other) for one, other in combinations(boxes, 2))
    )


def _overlap(one: FloatRect, other: FloatRect) -> bool:
    """Whether two boxes have more than a pixel in common either way."""
    return all(
        min(one[at] + one[size], other[at] + other[size]) - max(one[at], other[at]) > 1.0
        for at, size in (("x", "width"), ("y", "height"))
    )


def test_the_items_of_a_quote_lie_apart(browser: Browser) -> None:
    """Also where a column is hardly as wide as they are."""
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["job, unfolded"].done(page)
        for width in range(360, 1600, 40):
            page.set_viewport_size({"width": width, "height": 1000})
            n_overlaps = page.evaluate(
                """() => {
                  const items = [...document.querySelectorAll('#steer-quote li')].map((li) => {
                    const range = document.createRange(), mark = parseFloat(getComputedStyle(li).fontSize) * 1.3;
                    range.selectNodeContents(li);
                    return [...range.getClientRects()].map(({ left, right, top, bottom }) => ({ left: left - mark, right, top, bottom }));
                  });
                  const touch = (a, b) => a.left < b.right && b.left < a.right && a.top < b.bottom - 1 && b.top < a.bottom - 1;
                  return items.flatMap((one, i) => items.slice(i + 1).filter((other) => one.some((a) => other.some((b) => touch(a, b))))).length;
                }"""
            )
            assert n_overlaps == 0, width


def test_a_key_changes_the_view_of_the_same_rows(browser: Browser) -> None:
    with staged(browser, Stage()) as page:
        STATES["lanes"].done(page)
        names = page.locator("#jobs .name a").all_inner_texts()
        page.get_by_role("link", name="gan").press("v")
        expect(page.get_by_role("columnheader", name="Memory")).to_be_visible()
        assert page.locator("#jobs .name a").all_inner_texts() == names
        page.get_by_label("Search", exact=True).press("v")
        expect(page.get_by_role("columnheader", name="Memory")).to_be_visible()


def test_a_bar_is_solid_from_the_start_to_now_whatever_is_done(browser: Browser) -> None:
    with staged(browser, (stage := Stage(jobs=[job("one", progress_percentage=2.0)]))) as page:
        for seconds, progress in ((0.0, 2.0), (10.0, 90.0)):
            stage.jobs = [job("one", progress_percentage=progress)]
            later(page, seconds)
            expect(page.locator("#jobs .name")).to_contain_text(f"{progress:.1f} % done")
            cut = page.locator("#jobs .gone").evaluate("bar => getComputedStyle(bar).clipPath")
            now = page.locator("#jobs td.lane").evaluate("lane => getComputedStyle(lane).getPropertyValue('--now')")
            right = float(cut.removeprefix("inset(0px ").split("%")[0])
            assert abs(100 - right - float(now.removesuffix("%"))) < 0.2, (cut, now)
        legend, lanes = page.locator("#legend").bounding_box(), page.locator("#jobs").bounding_box()
        assert legend is not None
        assert lanes is not None
        assert legend["y"] + legend["height"] <= lanes["y"]


def test_a_lane_is_drawn_again_only_where_it_changes(browser: Browser) -> None:
    jobs = several()
    with staged(browser, (stage := Stage(jobs=jobs))) as page:
        STATES["lanes"].done(page)
        page.evaluate(
            "for (const svg of document.querySelectorAll('.lane svg')) svg.firstElementChild?.setAttribute('data-old', '')"
        )
        keys = [f"estimated_remaining_seconds{end}" for end in ("", "_low", "_high")]
        stage.jobs = [
            each.model_copy(update={key: value - 10 for key in keys if (value := getattr(each, key)) is not None})
            for each in jobs
        ]
        stage.jobs[1] = stage.jobs[1].model_copy(update={"progress_percentage": 70.0, "deadline": at(55)})
        stage.now += timedelta(seconds=10)
        later(page)
        expect(page.locator("#jobs tr").nth(1)).to_contain_text("70.0 %")
        assert page.locator("#jobs tr:nth-child(2) .lane [data-old]").count() == 0
        assert page.locator("#jobs .lane [data-old]").count() >= 5


def test_a_waiting_job_says_when_it_can_start_and_a_failed_one_shows_its_last_lines_first(browser: Browser) -> None:
    with staged(browser, Stage()) as page:
        row = page.locator("#jobs tr").filter(has_text="ablation")
        expect(row).to_contain_text("starts in 40 min")
        expect(row).to_contain_text("after resnet")
        page.goto("http://punctual.example/#/jobs/diffusion")
        expect(page.locator("#last-lines")).to_contain_text("RuntimeError: CUDA error")
        last, chart = page.locator("#last-lines").bounding_box(), page.locator("#course-chart").bounding_box()
        assert last is not None
        assert chart is not None
        assert last["y"] < chart["y"]


def test_when_the_service_is_away_what_is_shown_is_dated(browser: Browser) -> None:
    with staged(browser, (stage := Stage())) as page:
        STATES["lanes"].done(page)
        stage.is_away = True
        later(page)
        expect(page.get_by_role("alert")).to_contain_text("What is shown is of 15:32:10, 10 s ago.")
        assert barriers(page) == []
        stage.is_away = False
        page.clock.set_fixed_time(NOW + timedelta(seconds=30))
        expect(page.get_by_role("alert")).to_be_hidden()


def test_the_whole_reason_is_seen_on_hover_on_focus_and_pressed(browser: Browser) -> None:
    with staged(browser, Stage()) as page:
        button = page.locator("#jobs tr").filter(has_text="transformer").get_by_role("button")
        button.hover()
        expect(page.get_by_role("tooltip")).to_contain_text("0.1 cores bring the job to its deadline")
        page.keyboard.press("Escape")
        expect(page.get_by_role("tooltip")).to_be_hidden()
        button.focus()
        expect(page.get_by_role("tooltip")).to_be_visible()
        button.press("Enter")
        expect(button).to_have_attribute("aria-expanded", "true")
        later(page)
        page.wait_for_timeout(1500)
        expect(button).to_have_attribute("aria-expanded", "true")


def _axis(page: Page) -> list[str]:
    return page.locator("#course-chart .frames > text").all_inner_texts()


def test_a_part_of_the_course_is_read_and_seen_larger_by_keyboard(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["landed"].done(page)
        chart, readout, whole = page.locator("#course-chart"), page.locator("#course-readout"), _axis(page)
        chart.press("Home")
        chart.press("Shift+ArrowRight")
        chart.press("Shift+ArrowRight")
        for name in ("progress", "granted", "used", "demanded", "loss"):
            expect(readout).to_contain_text(name)
        chart.press("+")
        expect(page.get_by_role("button", name="Show all")).to_be_visible()
        assert _axis(page) != whole
        chart.press("0")
        expect(page.get_by_role("button", name="Show all")).to_be_hidden()
        assert _axis(page) == whole


def test_a_part_of_the_course_is_seen_larger_by_pointer(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["landed"].done(page)
        box, whole = page.locator("#course-chart").bounding_box(), _axis(page)
        assert box is not None
        page.mouse.move(box["x"] + 100, box["y"] + 150)
        expect(page.locator("#course-readout")).to_contain_text("progress")
        page.mouse.down()
        page.mouse.move(box["x"] + 300, box["y"] + 150)
        page.mouse.up()
        expect(page.get_by_role("button", name="Show all")).to_be_visible()
        page.mouse.dblclick(box["x"] + 300, box["y"] + 150)
        expect(page.get_by_role("button", name="Show all")).to_be_hidden()
        assert _axis(page) == whole


def test_the_log_is_shown_from_a_time_that_is_picked_in_the_chart(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["landed"].done(page)
        asked = list[str]()
        page.on("request", lambda request: asked.append(request.url) if "/logs?" in request.url else None)
        log, count, chart = page.locator("#one-log"), page.locator("#log-count"), page.locator("#course-chart")
        expect(count).to_have_text("6 lines.")
        box = chart.bounding_box()
        assert box is not None
        page.mouse.click(box["x"] + 200, box["y"] + 150)
        expect(log).to_be_focused()
        expect(count).to_have_text(re.compile(r"^3 lines from 15:\d\d:\d\d on\.$"))
        expect(log).not_to_contain_text("epoch 1/10")
        expect(page.get_by_label("Follow")).not_to_be_checked()
        assert "since=2026-11-27T14%3A" in asked[-1]
        page.get_by_role("button", name="Read all of it").click()
        expect(count).to_have_text("6 lines.")
        chart.press("Home")
        chart.press("Enter")
        expect(log).to_be_focused()
        expect(count).to_have_text("3 lines from 15:11:10 on.")
        n_asked = len(asked)
        chart.scroll_into_view_if_needed()
        box = chart.bounding_box()
        assert box is not None
        page.mouse.dblclick(box["x"] + 300, box["y"] + 150)  # shows all of the chart, and is no click
        page.wait_for_timeout(500)
        assert len(asked) == n_asked


def test_the_log_is_coloured_and_seen_by_level(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        log = page.locator("#one-log")
        expect(log.locator(".ansi-3")).to_have_text("WARNING")
        expect(log.locator(".ansi-bold").first).to_have_text("epoch 1/10")
        page.locator("#log-level").select_option("warning")
        expect(log).to_have_text("WARNING: the learning rate is above 0.1")
        page.locator("#log-level").select_option("error")
        expect(page.locator("#log-count")).to_have_text("0 of 6 lines.")


def test_an_earlier_job_fills_the_form(browser: Browser) -> None:
    with staged(
        browser, Stage(jobs=[job("resnet", program=["python", "train.py", "--token=***"])]), "#/jobs/resnet"
    ) as page:
        page.get_by_role("link", name="Submit again").click()
        expect(page.locator("#job-program")).to_have_value("python train.py '--token=***'")
        expect(page.locator("#job-cwd")).to_have_value("/home/me/project")
        expect(page.locator("#job-cores")).to_have_value("0.1..2")
        expect(page.locator("#job-deadline")).to_have_value("1h1m")
        for field, text in (("memory", "4096MiB"), ("steps", "1200"), ("until", "loss<0.1"), ("margin", "")):
            expect(page.locator(f"#job-{field}")).to_have_value(text)
        expect(page.locator("#job-guarantee")).to_be_checked()
        expect(page.locator("#fault-program")).to_contain_text("type it in place of ***")


def test_a_clock_of_the_reader_that_is_wrong_moves_nothing(browser: Browser) -> None:
    told = list[str]()
    for ahead_s in (0.0, -7200.0, 7200.0):
        with staged(browser, Stage(ahead_s=ahead_s)) as page:
            expect(page.locator("#jobs tr").first).to_be_visible()
            told.append("\n".join(page.locator("#jobs tr").all_inner_texts()))
    assert told[0] == told[1] == told[2]
    assert " ago" in told[0]


def test_a_job_that_has_landed_fills_in_the_work_that_it_took(browser: Browser) -> None:
    with staged(browser, Stage(), "#/submit/vgg") as page:
        expect(page.locator("#job-work")).to_have_value("13m20s")
        page.goto("http://punctual.example/#/submit/resnet")
        expect(page.locator("#job-work")).to_have_value("")


def test_what_has_the_focus_by_pointer_has_no_box(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["landed"].done(page)
        box = page.locator("#course-chart .handle .grip").bounding_box()
        assert box is not None
        page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 60)
        page.mouse.down()
        page.mouse.move(box["x"] - 40, box["y"] + 60)
        page.mouse.up()
        page.mouse.click(box["x"] - 200, box["y"] + 60)
        for place in ("#course-chart", "#course-chart .handle"):
            assert page.locator(place).evaluate("(each) => (each.focus({ focusVisible: false }), getComputedStyle(each).outlineStyle)") == "none"  # fmt: skip


def test_what_would_change_is_said_first_which_policy_is_better_and_that_a_job_waits(browser: Browser) -> None:
    with staged(browser, Stage(), "#/what-if") as page:
        STATES["what if"].done(page)
        expect(page.locator("#what-if-changes h3")).to_have_text("2 deadlines change their verdict.")
        expect(page.locator("#what-if-changes h3 + p")).to_contain_text("bert-large: missed → met (7 min 40 s earlier)")
        expect(page.locator("#what-if-jobs")).to_contain_text("it still waits for 1.00 cores")
        expect(page.locator("#what-if-said")).to_contain_text(
            "Neither is better: of 6 deadlines, 5 would be met under promises-first and 5"
        )
        expect(page.locator("#what-if-changes")).to_contain_text("promises-first, as today: Promises every deadline")


def test_what_becomes_late_fails_or_lands_is_worth_a_notice(browser: Browser) -> None:
    pairs = [("good", "running", "risk", "running", "at risk"), ("risk", "running", "late", "running", "will be late"), ("good", "running", "good", "running", "on track"),
             ("good", "running", "failed", "failed", "failed"), ("good", "running", "met", "finished", "met"), ("good", "running", "risk", "stalled", "stalled"), ("risk", "running", "risk", "stalled", "stalled"), ("measuring", "running", "good", "running", "on track")]  # fmt: skip
    with tab_for_scripts(browser) as page:
        told = page.evaluate(
            """async (pairs) => {
              const { notices } = await import("/page/judge.js");
              return pairs.map(([was, had, kind, state, word]) => notices(new Map([["a", { kind: was, state: had }]]), [{ name: "a", kind, state, word }]).map(({ text }) => text));
            }""",
            pairs,
        )
    assert told == [
        ["a: at risk"],
        ["a: will be late"],
        [],
        ["a: failed"],
        ["a: met"],
        ["a: stalled"],
        ["a: stalled"],
        [],
    ]


def test_spans_are_written_in_two_units_here_and_by_the_service(browser: Browser) -> None:
    written = {0.0: "0 s", 0.0412: "41 ms", 0.9996: "1 s", 4.84: "4.8 s", 59.7: "1 min", 90: "1 min 30 s", 3599: "1 h", 3661: "1 h 1 min", 90000: "25 h", 200000: "2 d 8 h", 258300: "3 d"}  # fmt: skip
    assert {seconds: span(seconds) for seconds in written} == written
    with tab_for_scripts(browser) as page:
        told = page.evaluate(
            "async (all) => { const { span } = await import('/page/texts.js'); return all.map((each) => span(each)); }",
            list(written),
        )
    assert told == list(written.values())


def test_axes_have_round_values(browser: Browser) -> None:
    with tab_for_scripts(browser) as page:
        values, times = page.evaluate(
            """async () => {
              const { timeTicks, valueTicks } = await import("/page/ticks.js"), from = Date.parse("2026-11-27T14:32:10Z");
              return [valueTicks(0, 0.84, 3), timeTicks(from, from + 95 * 60000, 5).map(({ text }) => text)];
            }"""
        )
    assert values == [0, 0.5]
    assert times == ["16:00", "16:30", "17:00"]


def test_all_of_a_job_s_times_are_far_away_without_harm(browser: Browser) -> None:
    with staged(browser, Stage(jobs=[job("endless", progress_percentage=33.0, estimated_remaining_seconds=1e300, estimated_remaining_seconds_low=None, estimated_remaining_seconds_high=None, deadline=at(9e6))])) as page:  # fmt: skip
        STATES["lanes"].done(page)
        expect(page.locator("#jobs tr")).to_contain_text("far away")
        page.get_by_role("link", name="endless").click()
        STATES["landed"].done(page)


def test_the_longest_name_fits_each_screen(browser: Browser) -> None:
    name = "n" * 64
    with staged(browser, Stage(jobs=[job(name)]), f"#/jobs/{name}", "phone") as page:
        STATES["landed"].done(page)
        assert not overflows(page)
        for width, height in (SIZES["200 %"], (320, 600)):
            page.set_viewport_size({"width": width, "height": height})
            wait_until(lambda: not overflows(page))


def test_long_names_of_others_are_not_in_the_way(browser: Browser) -> None:
    """They are chosen from a list, and stand in a table beside numbers and in the chart beside each other."""
    jobs = [job("short"), *(job(sign * 64, granted_cores=0.01) for sign in "nm")]
    with staged(browser, Stage(jobs=jobs), "#/jobs/short", "phone") as page:
        STATES["landed"].done(page)
        expect(page.get_by_label("Compare with")).to_be_visible()
        assert not overflows(page)
    with staged(browser, Stage(jobs=jobs), "#/budget", "medium") as page:
        STATES["budget"].done(page)
        crossed = (
            "(row) => row.querySelector('a').getBoundingClientRect().right > row.cells[1].getBoundingClientRect().left"
        )
        assert page.locator("#budget-jobs tr").evaluate_all(f"all => all.filter({crossed}).length") == 0
        words = page.locator("#budget-chart text:not(.title, .name, .on-layer)").evaluate_all(
            "all => all.filter((each) => /^[mn]+$/.test(each.textContent)).map((each) => [each.getBBox().x, each.getBBox().x + each.getBBox().width])"
        )
        assert all(a[1] <= b[0] or b[1] <= a[0] for a, b in combinations(words, 2))
        assert page.locator("#budget .wide").evaluate("each => each.scrollWidth <= each.clientWidth")


def test_sentences_end_once(browser: Browser) -> None:
    with staged(
        browser, Stage(jobs=[job("gan", verdict="at_risk", warnings={"slow": "is it waiting for data?"})])
    ) as page:
        expect(page.locator("#jobs .why p")).to_contain_text("Is it waiting for data? It has 0.6 cores.")


def test_an_address_that_is_cut_within_a_sign_is_that_of_no_job(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/%E0%A4%A") as page:
        expect(page.locator("#one-problem")).to_contain_text("There is no job %E0%A4%A")


def test_the_budget_in_dollars_is_read_by_pool_and_no_column_of_it_is_cut_off(browser: Browser) -> None:
    with staged(browser, STATES["budget in dollars"].stage(), "#/budget") as page:
        STATES["budget in dollars"].done(page)
        readout = page.locator("#budget-readout")
        expect(readout).to_contain_text(re.compile(r"spot \$1\.84/h until 16:12:10, \$\d\.\d\d by then"))
        page.locator("#budget-chart").press("Home")
        expect(readout).to_contain_text("spot $0.00 so far")
        for _ in range(10):
            page.locator("#budget-chart").press("ArrowRight")
        expect(readout).to_contain_text(re.compile(r"spot \$2\.76/h until 16:12:10, \$0\.\d\d so far"))
        expect(page.locator("#budget-chart")).to_contain_text("Dollars an hour")
        expect(page.locator("#budget-pools tr")).to_have_text(["spot2$0.92$1.87$0.69", "on-demand1$3.06$2.04$0.75"])
        expect(page.locator("#budget-jobs tr").first).to_contain_text("$0.24")
        expect(page.locator("#budget-caption")).to_contain_text("Machines have cost $1.43 since 15:10:10")
        expect(page.locator("#budget-caption")).to_contain_text("$2.50 more if the machines that are there stay")
        expect(page.locator("#cluster")).to_contain_text("$4.90 an hour, $1.43 spent")
        width, height = SIZES["medium"]
        page.set_viewport_size({"width": width, "height": height})
        table = page.locator("#budget .wide")
        wait_until(lambda: table.evaluate("each => each.scrollWidth <= each.clientWidth"))


def test_where_nothing_has_a_price_nothing_is_said_of_dollars(browser: Browser) -> None:
    with staged(browser, Stage(), "#/budget") as page:
        STATES["budget"].done(page)
        expect(page.locator("body")).not_to_contain_text("$")
        expect(page.locator("#budget-pools-table")).to_be_hidden()
        page.goto("http://punctual.example/#/jobs/resnet")
        STATES["compared"].done(page)
        expect(page.locator("#one-job")).not_to_contain_text(re.compile(r"\$|Cost"))


def test_a_job_s_cost_is_drawn_by_pool_and_told(browser: Browser) -> None:
    with staged(browser, STATES["job in dollars"].stage(), "#/jobs/resnet") as page:
        STATES["job in dollars"].done(page)
        expect(page.locator("#one-facts")).to_contain_text("Cost$0.72 so far")
        expect(page.locator("#course-chart polygon title")).to_have_text(["spot", "on-demand"])
        page.locator("#course-chart").press("Home")
        for _ in range(10):
            page.locator("#course-chart").press("ArrowRight")
        expect(page.locator("#course-readout")).to_contain_text(re.compile(r"spot \$\d\.\d\d/h, \$0\.\d+ so far"))
        expect(page.locator("#course-chart .on-layer")).to_have_text(["spot", "on-demand"])
        expect(page.locator("#cost-caption")).to_contain_text(
            re.compile(r"Cost: \$0\.31 on spot, \$0\.34 on on-demand")
        )


def test_a_layer_of_the_budget_is_named_beside_the_title_if_it_is_thin_and_late_jobs_are_marked(
    browser: Browser,
) -> None:
    with staged(browser, Stage(), "#/budget") as page:
        STATES["budget"].done(page)
        rows = page.locator("#budget-jobs tr")
        expect(rows.filter(has_text="bert-large")).to_contain_text(
            "16:03:50 (in 32 min), expected, will be late: due 15:57:10"
        )
        expect(rows.filter(has_text="resnet").first).to_contain_text("16:12:10 (in 40 min), promised")
        expect(rows.filter(has_text="sweep-4")).to_contain_text("none yetWaits for room")
        on_layers = set(page.locator("#budget-chart .on-layer").all_text_contents())
        assert "sweep-3" not in on_layers
        named = set(page.locator("#budget-chart g[clip-path] text:not(.on-layer)").all_text_contents())
        names = {name.strip() for name in page.locator("#budget-jobs tr:not(:has(.none)) th").all_inner_texts()}
        assert (on_layers | named, on_layers & named) == (names, set())


def test_the_price_of_a_deadline_is_a_curve_with_the_budget_and_the_deadline_that_is_tried(browser: Browser) -> None:
    with staged(browser, STATES["submit, with prices"].stage(), "#/submit/resnet") as page:
        STATES["submit, with prices"].done(page)
        curve = page.get_by_role("img", name="Expected cost by deadline")
        titles = curve.locator(".point title").all_text_contents()
        assert titles == [
            "$4.10 by 16:05:10", "$2.60 by 16:16:10", "$1.60 by 16:36:10", "$1.05 by 17:12:10", "$0.90 by 18:12:10",
        ]  # fmt: skip
        expect(curve).to_contain_text("budget $2.00")
        expect(page.locator("#quote li").filter(has_text="cannot be by 15:56:10")).to_have_count(1)
        expect(curve).to_contain_text("deadline 16:33:10, about $1.75")
        expect(curve.locator(".never")).to_have_count(0)
        expect(curve.locator(".title")).to_be_empty()
        times = [text.rsplit(" by ", 1)[1] for text in page.locator("#quote li").all_inner_texts() if " by " in text]
        assert times == sorted(times)


def test_the_first_job_that_is_late_is_on_a_phone_s_first_screen_with_names_of_its_values(browser: Browser) -> None:
    with staged(browser, Stage(), size="phone") as page:
        STATES["lanes"].done(page)
        late = page.locator("#jobs tr").first
        assert late.locator(".due").inner_text() == "due in 25 min"
        assert late.locator(".end").inner_text() == "lands in 32 min"
        box = late.bounding_box()
        assert box is not None
        assert box["y"] + box["height"] <= SIZES["phone"][1]


def test_who_may_only_read_is_not_led_to_what_would_help(browser: Browser) -> None:
    for role, n_links in (("viewer", 0), ("owner", 2)):
        with staged(browser, Stage(role=role)) as page:
            STATES["lanes"].done(page)
            expect(page.get_by_role("link", name="See what would help")).to_have_count(n_links)


def test_times_that_differ_by_minutes_are_told_apart(browser: Browser) -> None:
    """A landing eight minutes after a deadline in two hours is in two hours, too."""
    late = job("late", verdict="infeasible", deadline=at(125), estimated_remaining_seconds=60 * 133.0)
    with staged(browser, Stage(jobs=[late])) as page:
        STATES["lanes"].done(page)
        expect(page.locator("#jobs .due")).to_have_text("due in 2 h 5 min")
        expect(page.locator("#jobs .end")).to_have_text("lands in 2 h 13 min")


def test_lines_of_time_go_through_no_words_of_the_course(browser: Browser) -> None:
    """The deadline's alone goes up to its flag."""
    crossed = r"""() => {
        const marks = [...document.querySelectorAll("#course-chart .mark:not(.kept)")].map((mark) => [Number(/^M([\d.]+)/.exec(mark.getAttribute("d"))[1]), [...mark.getAttribute("d").matchAll(/M[\d.]+ ([\d.]+)v([\d.]+)/g)].map(([, top, height]) => [Number(top), Number(top) + Number(height)])]);
        const words = [...document.querySelectorAll("#course-chart .frames text:not([text-anchor])")].map((text) => text.getBBox());
        return [words.length, marks.length, words.flatMap((a, i) => words.slice(i + 1).filter((b) => a.y === b.y && a.x < b.x + b.width && b.x < a.x + a.width)).length,
            marks.filter(([x, parts]) => words.some((box) => x > box.x && x < box.x + box.width && (!parts.length || parts.some(([top, foot]) => top < box.y + box.height - 4 && foot > box.y + 4)))).length];
    }"""
    with staged(browser, Stage(), "#/jobs/resnet", "phone") as page:
        STATES["compared"].done(page)
        n_words, n_marks, n_overlaps, n_crossed = page.evaluate(crossed)
        assert (n_words > 5, n_marks > 2, n_overlaps, n_crossed) == (True, True, 0, 0)


def test_each_kind_of_job_is_counted_and_waiting_ones_that_start_too_late_are_told(browser: Browser) -> None:
    waits = job("waits", "queued", after=["resnet"], deadline=at(20))
    with staged(browser, Stage(jobs=[job("resnet"), job("free", deadline=None, verdict=None), waits])) as page:
        expect(page.locator("#jobs-title")).to_have_text("1 waiting job cannot start in time; what runs is on track")
        expect(page.locator("#figure-good")).to_contain_text("1 waiting too long, 1 without a deadline")
        expect(page.locator("#figure-late")).to_have_class(re.compile("is-none"))


def test_a_late_job_names_who_holds_the_cores_and_tells_its_lateness_once(browser: Browser) -> None:
    with staged(browser, Stage()) as page:
        STATES["lanes"].done(page)
        late, risk = page.locator("#jobs .why").nth(0), page.locator("#jobs .why").nth(1)
        assert late.inner_text().count(" late") == 1
        expect(late).to_contain_text("It has all 0.7 cores that it may have.")
        expect(late).not_to_contain_text("after it")
        expect(risk).to_contain_text(
            "It has 0.2 cores; resnet has 0.6, promised; bert-large has 0.7; 3 others have the rest."
        )


def test_what_would_help_is_done_at_its_button(browser: Browser) -> None:
    with staged(browser, Stage(is_feasible=False), "#/jobs/bert-large") as page:
        with page.expect_request(lambda request: request.method == "PATCH") as asked:
            page.get_by_role("button", name="Use 16:05:10").click()
        assert asked.value.post_data_json == {"deadline": "1981s"}
        expect(page.locator("#help")).to_be_hidden()
    with staged(browser, Stage(), "#/jobs/gan") as page:
        expect(page.locator("#help")).to_contain_text("Pause sweep-3 on its page")
        page.goto("http://punctual.example/#/jobs/resnet")
        expect(page.locator("#steer-quote")).to_have_text("Type a deadline to see what it would take.")
        expect(page.locator("#help")).to_be_hidden()


def test_every_mark_of_the_course_is_named_and_the_present_deadline_stays(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/resnet") as page:
        STATES["job"].done(page)
        legend = page.locator("#course-legend")
        for name in (
            "phase: evaluate",
            "warning",
            "earlier deadline",
            "present deadline",
            "cannot be promised before 15:44:10",
        ):
            expect(legend).to_contain_text(name)
        trial, kept, now = (
            page.locator(f"#course-chart {mark}").first for mark in (".handle", ".mark.kept", ".mark.now")
        )
        colours = {mark.evaluate("mark => getComputedStyle(mark).stroke") for mark in (trial, kept, now)}
        assert len(colours) == 3
        expect(page.locator("#course-chart .words rect")).to_have_count(2)


def test_a_failed_job_has_no_countdown_and_its_log_opens_at_the_errors(browser: Browser) -> None:
    with staged(browser, Stage(), "#/jobs/diffusion") as page:
        expect(page.locator("#one-log")).to_contain_text("RuntimeError: CUDA error")
        expect(page.get_by_label("Stream")).to_have_value("stderr")
        deadline = page.locator("#one-facts .fact").filter(has_text="Deadline")
        expect(deadline).to_have_text("Deadline16:12:10")
        page.goto("http://punctual.example/#/jobs/resnet")
        expect(page.locator("#one-log")).to_contain_text("epoch 1/10")
        expect(page.get_by_label("Stream")).to_have_value("stdout")


def test_who_has_no_jobs_is_led_to_submit(browser: Browser) -> None:
    with staged(browser, Stage(jobs=[])) as page:
        page.get_by_role("link", name="use the form").click()
        expect(page.get_by_role("heading", name="Submit a job")).to_be_visible()


def test_data_of_a_service_that_is_away_have_an_age_and_no_colour(browser: Browser) -> None:
    with staged(browser, Stage()) as page:
        STATES["disconnected"].done(page)
        expect(page.get_by_role("alert")).to_contain_text("What is shown is of 15:32:10, 10 s ago.")
        assert page.locator("#overview").evaluate("view => getComputedStyle(view).filter") == "grayscale(1)"
