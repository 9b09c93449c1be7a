"""The report's page and picture."""

from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from punctual.cli import _plot
from punctual.cli._plot import Section, check_can_plot, save
from punctual.core.errors import InvalidSpec
from punctual.metrics.run import RunSeries

SERIES = RunSeries(
    progress=((3.0, 0.0), (30.0, 0.5), (55.5, 1.0)),
    grant=((0.1, 2.0), (4.0, 0.95), (30.0, 1.1)),
    usage=((2.0, 0.9), (30.0, 1.0), (50.0, 1.1)),
    deadlines=((0.0, 62.0), (30.0, 55.6)),
    forecasts=(),
)
SECTION = Section(series=SERIES, landed_s=55.5, ended_s=56.0, title="a", paragraph="", table={})
NOTHING = RunSeries(progress=(), grant=(), usage=(), deadlines=(), forecasts=())
EMPTY = replace(SECTION, series=NOTHING, landed_s=None, ended_s=0.1)
ELASTIC = replace(SECTION, series=replace(SERIES, workers=((0.1, 1.0), (30.0, 3.0))))


@pytest.mark.parametrize("section", [SECTION, EMPTY, ELASTIC], ids=["whole", "empty", "elastic"])
def test_a_page_is_one_file_that_suits_light_and_dark(tmp_path: Path, section: Section) -> None:
    path = tmp_path / "out.html"
    save(path, replace(section, title="a <job>", paragraph="Landed.", table={"deadline": "1m00s"}))
    page = path.read_text()
    assert "a &lt;job&gt;" in page
    assert "prefers-color-scheme: dark" in page
    assert _plot.INK not in page
    assert "currentColor" in page
    assert (">workers<" in page) == bool(section.series.workers)
    assert "<img" not in page
    assert "src=" not in page
    assert "<link" not in page
    ET.fromstring(page[page.index("<svg") : page.index("</svg>") + 6])


def test_a_picture_is_a_png(tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    save(path, SECTION)
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["out.pdf", "missing/out.png", "folder.png"])
def test_what_cannot_be_drawn_is_refused_beforehand(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InvalidSpec, match="report"):
        check_can_plot(tmp_path / name)


def test_the_option_that_is_meant_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"`--out .*out\.pdf`"):
        check_can_plot(tmp_path / "out.pdf", "--out")


@pytest.mark.parametrize("suffix", [".html", ".png"])
def test_a_file_that_cannot_be_written_is_told_and_not_raised_as_such(tmp_path: Path, suffix: str) -> None:
    with pytest.raises(InvalidSpec, match="must be a file that can be written"):
        save(tmp_path / f"gone/out{suffix}", SECTION)


def test_missing_matplotlib_is_refused_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plot, "find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match=r"pip install 'punctual\[report\]'"):
        check_can_plot(tmp_path / "out.png")
