"""The page in a browser: the budget over time."""

import re
from pathlib import Path

from playwright.sync_api import expect
from tests.api.live_service import LiveService, program
from tests.page.live_page import Reader

PLACE = "#/budget"


def test_who_holds_cores_is_drawn_and_told(service: LiveService, reader: Reader, tmp_path: Path) -> None:
    page = reader.open(service, place=PLACE)
    expect(page.locator("#budget-caption")).to_contain_text("No job has held any cores")
    for name in ("first", "second"):
        asked = {"program": program(tmp_path / "go"), "name": name, "cores": "0.1..1", "deadline": "1h"}
        assert service.caller.post("/jobs", asked).status == 201
    rows = page.locator("#budget-jobs tr:not(:has(.none))")  # a job that waits has no colour yet
    expect(rows).to_have_count(2)
    names = [name.strip() for name in page.locator("#budget-jobs th").all_inner_texts()]
    assert sorted(names) == ["first", "second"], "in the order in which they were granted something"
    expect(page.locator("#budget-chart polygon:not(.planned)")).to_have_count(2)
    expect(page.locator("#budget-chart polygon:not(.planned) title")).to_have_text(names)
    heights = page.locator("#budget-chart polygon:not(.planned)").evaluate_all(
        "areas => areas.map(area => area.getBBox().height)"
    )
    assert all(height > 0 for height in heights)


def test_a_promise_is_drawn_to_the_right_of_now(service: LiveService, reader: Reader) -> None:
    assert service.caller.send("PUT", "/policy", {"name": "promises-first"}).status == 200
    asked = {"program": ["sleep", "100"], "name": "a", "deadline": "20h", "work": "1h", "cores": "1", "guarantee": True}
    assert service.caller.post("/jobs", asked).status == 201
    page = reader.open(service, place=PLACE)
    expect(page.locator("#budget-jobs")).to_contain_text(re.compile("a.*promised"))
    area = page.locator("#budget-chart polygon.planned").first
    box, now = area.bounding_box(), page.locator("#budget-chart .mark.now").bounding_box()
    assert box is not None
    assert now is not None
    assert box["x"] >= now["x"] - 2
    page.get_by_label("Past").select_option("24")
    expect(page.locator("#budget-jobs")).to_contain_text("promised")
