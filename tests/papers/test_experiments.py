"""Which experiments there are."""

import pytest

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
