"""A scheduler whose invariants are checked when a test is over."""

from collections.abc import Iterator

import pytest
from tests.core.desk import Desk


@pytest.fixture
def desk() -> Iterator[Desk]:
    desk = Desk()
    yield desk
    desk.scheduler.validate()
