"""Fixtures of the tests of elastic trainings."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.elastic_training.agent_stage import Stage


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    made = Stage(tmp_path)
    yield made
    made.close()
