"""What the tests of the page share: a browser, and who reads in it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser
from tests.api.live_service import LiveService, live_service
from tests.page.live_page import Reader, system_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with system_browser() as started:
        yield started


@pytest.fixture
def service() -> Iterator[LiveService]:
    with live_service() as live:
        yield live


@pytest.fixture
def reader(browser: Browser) -> Iterator[Reader]:
    """A reader in whose tabs no script must fail and nothing must be kept back."""
    reads = Reader(browser)
    try:
        yield reads
    finally:
        for context in browser.contexts:
            context.close()
    assert reads.faults == []
