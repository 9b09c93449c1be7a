"""The picture of a run, and what can be no report."""

from dataclasses import replace
from pathlib import Path

import pytest

from punctual.cli import _plot
from punctual.cli._plot import DrawnRun, check_can_plot, save
from punctual.core.errors import InvalidSpec
from punctual.history.run import RunSeries

SERIES = RunSeries(
    progress=((3.0, 0.0), (30.0, 0.5), (55.5, 1.0)),
    grant=((0.1, 2.0), (4.0, 0.95), (30.0, 1.1)),
    usage=((2.0, 0.9), (30.0, 1.0), (50.0, 1.1)),
    deadlines=((0.0, 62.0), (30.0, 55.6)),
    forecasts=(),
)
DRAWN = DrawnRun(SERIES, 55.5, 56.0)
EMPTY = DrawnRun(RunSeries(progress=(), grant=(), usage=(), deadlines=(), forecasts=()), None, 0.1)
ELASTIC = replace(DRAWN, series=replace(SERIES, workers=((0.1, 1.0), (30.0, 3.0))))


@pytest.mark.parametrize("run", [DRAWN, EMPTY, ELASTIC], ids=["whole", "empty", "elastic"])
def test_a_picture_is_a_png(tmp_path: Path, run: DrawnRun) -> None:
    path = tmp_path / "out.png"
    save(path, run, "a job")
    assert path.read_bytes().startswith(b"\x89PNG")


def test_what_is_told_of_a_run_is_below_its_plots_in_lines_that_fit() -> None:
    texts = [
        "Landed. " + "It used what it was given. " * 10,
        "Command: sh -c 'echo $HOME $PATH'",
        "Host: " + "x " * 9999,
    ]
    figure = _plot._draw(DRAWN, "a job", texts)
    title, below = figure.texts
    figure.draw_without_rendering()
    lines = below.get_text().splitlines()
    assert title.get_text() == "a job"
    assert " ".join(lines[:3]).startswith(texts[0].strip())
    assert texts[1] in lines
    assert len(lines) == 3 + 1 + 4  # of each text at most four lines
    box = below.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.width
    assert 0 <= box.y0 < box.y1 <= min(axes.get_tightbbox().y0 for axes in figure.axes)


def test_a_command_with_signs_of_no_font_and_an_argument_that_is_no_text_is_drawn(tmp_path: Path) -> None:
    path = tmp_path / "out.png"
    save(path, DRAWN, "a job", ["Command: python 中.py \x1b \udcff"])
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", ["out.pdf", "missing/out.png", "folder.png"])
def test_what_cannot_be_drawn_is_refused_beforehand(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InvalidSpec, match="report"):
        check_can_plot(tmp_path / name)


def test_the_option_that_is_meant_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"`--out .*out\.pdf`"):
        check_can_plot(tmp_path / "out.pdf", "--out")


def test_missing_matplotlib_is_refused_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("punctual.distribution.find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match="pip install matplotlib"):
        check_can_plot(tmp_path / "out.png")
    check_can_plot(tmp_path / "out.html")
