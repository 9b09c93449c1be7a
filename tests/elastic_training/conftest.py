"""Fixtures of the tests of elastic trainings."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.elastic_training.agent_stage import Stage
from tests.tracking.conftest import fresh_process, pace, page, restart

#: The fixtures of the tests of tracking that these need as well.
__all__ = ["fresh_process", "pace", "page", "restart", "stage"]


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()
