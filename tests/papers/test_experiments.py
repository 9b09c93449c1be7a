"""Which experiments there are."""

from pathlib import Path

import pytest

from punctual.cli.reproduce import reproduce
from punctual.core.errors import InvalidSpec
from punctual.papers.reproduction import Row, load, names


def test_every_experiment_can_be_loaded() -> None:
    assert "smd" in names()
    assert all(callable(load(name)) for name in names())
    with pytest.raises(InvalidSpec, match="smd"):
        load("nobody")


def test_a_ratio_needs_a_published_figure() -> None:
    assert Row("faster by", 2.0, 1.5).ratio == 0.75
    assert Row("jobs", None, 12345.0).ratio is None


def test_a_folder_of_data_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="`--data` must name a folder"):
        reproduce("smd", data=tmp_path / "gone")
