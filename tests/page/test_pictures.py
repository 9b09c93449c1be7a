"""The pictures of the page in the documentation are of the page as it is: what makes them still does."""

from pathlib import Path

from playwright.sync_api import Browser
from tests.api.live_service import live_service
from tests.architecture.source import ROOT
from tests.page.pictures import FOLDER, OPTIONS, PICTURES, submit_all, take


def test_all_pictures_can_be_made_anew(browser: Browser, tmp_path: Path) -> None:
    with live_service(OPTIONS) as service:
        submit_all(service, tmp_path)
        take(service, browser, tmp_path)
    made = {path.name for path in tmp_path.glob("*.png") if path.read_bytes().startswith(b"\x89PNG")}
    assert made == {f"{name}.png" for name, *_ in PICTURES}


def test_each_picture_is_there_and_shown() -> None:
    text = (ROOT / "docs" / "how-to" / "the-page.md").read_text(encoding="utf-8")
    for name, *_ in PICTURES:
        assert (FOLDER / f"{name}.png").is_file()
        assert f"../images/{name}.png" in text
