"""The picture of a run, and what can be no report."""

from dataclasses import replace
from pathlib import Path

import pytest

from punctual.cli import _plot
from punctual.cli._plot import DrawnRun, check_can_plot, save
from punctual.core.errors import InvalidSpec
from punctual.metrics.run import RunSeries

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


@pytest.mark.parametrize("name", ["out.pdf", "missing/out.png", "folder.png"])
def test_what_cannot_be_drawn_is_refused_beforehand(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder.png").mkdir()
    with pytest.raises(InvalidSpec, match="report"):
        check_can_plot(tmp_path / name)


def test_the_option_that_is_meant_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match=r"`--out .*out\.pdf`"):
        check_can_plot(tmp_path / "out.pdf", "--out")


def test_missing_matplotlib_is_refused_beforehand(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_plot, "find_spec", lambda name: None)
    with pytest.raises(InvalidSpec, match=r"pip install 'punctual\[report\]'"):
        check_can_plot(tmp_path / "out.png")
    check_can_plot(tmp_path / "out.html")
