"""Fixtures of the command line's tests."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs import Terminal

from punctual.request.deadlines import Now


@pytest.fixture
def now() -> Now:
    return Now.read()


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """Where a test gives its commands; nothing of them is left behind."""
    made = Terminal(tmp_path)
    yield made
    made.close()
    assert made.left_behind() == []
