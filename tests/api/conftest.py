"""What the tests of the service share."""

from collections.abc import Iterator

import pytest
from tests.api.live_service import LiveService, live_service


@pytest.fixture
def service() -> Iterator[LiveService]:
    with live_service() as live:
        yield live
