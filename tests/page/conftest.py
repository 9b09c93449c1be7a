"""What the tests of the page share: a browser, and who reads in it."""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, BrowserContext
from tests.api.live_service import LiveService, live_service
from tests.page.live_page import Reader, system_browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with system_browser() as started:
        yield started


@pytest.fixture(scope="module")
def context(browser: Browser) -> BrowserContext:
    return browser.new_context()


@pytest.fixture
def service() -> Iterator[LiveService]:
    with live_service() as live:
        yield live


@pytest.fixture
def reader(browser: Browser, context: BrowserContext) -> Iterator[Reader]:
    """A reader in whose tabs no script must fail and nothing must be kept back."""
    reads = Reader(context)
    try:
        yield reads
    finally:
        reads.leave()
        for other in browser.contexts:
            if other is not context:
                other.close()
    assert reads.faults == []
