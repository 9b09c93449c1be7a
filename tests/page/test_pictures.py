"""The pictures of the page in the documentation are of the page as it is: what makes them still does."""

from pathlib import Path

from playwright.sync_api import Browser
from tests.architecture.source import ROOT
from tests.page.pictures import FOLDER, LOOKS, PICTURES, hang, take

#: Bytes that all pictures of the page may have together: a repository keeps each version of them.
_BYTES_MAX = 1_200_000


def test_pictures_can_be_made_anew(browser: Browser, tmp_path: Path) -> None:
    """One of each size: that each state can be shown, the tests of states tell."""
    chosen = {picture.size: picture for picture in PICTURES}.values()
    take(browser, tmp_path, chosen)
    made = {path.name for path in tmp_path.glob("*.png") if path.read_bytes().startswith(b"\x89PNG")}
    assert made == {f"{picture.name}.png" for picture in chosen}


def test_the_gallery_has_a_state_in_each_look(browser: Browser, tmp_path: Path) -> None:
    hang(browser, tmp_path, ["submit, not feasible"], LOOKS[-2:])
    sheet = (tmp_path / "index.html").read_text(encoding="utf-8")
    made = [path.name for path in tmp_path.glob("*.png")]
    assert len(made) == 2
    assert all(f'src="{name}"' in sheet for name in made)


def test_each_picture_is_there_and_shown() -> None:
    text = (ROOT / "docs" / "reference" / "page-gallery.md").read_text(encoding="utf-8")
    for picture in PICTURES:
        assert (FOLDER / f"{picture.name}.png").is_file()
        assert f"![{picture.alt}](../images/{picture.name}.png)" in text
    assert sum((FOLDER / f"{picture.name}.png").stat().st_size for picture in PICTURES) < _BYTES_MAX
