"""What tests of daemons share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.no_successor import hold_back_successors


@pytest.fixture
def no_successors(home: Path) -> Iterator[None]:
    """Keep jobs whose daemon is killed or stopped from starting another one."""
    lock = hold_back_successors(home)
    yield
    os.close(lock)
