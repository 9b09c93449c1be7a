"""The page of a live service in a real browser, for the tests of the page."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, Locator, Page, Route, expect, sync_playwright
from tests.api.live_service import LiveService
from tests.page.staged import HOST, stage_door
from tests.waiting import PATIENCE_S, wait_until

#: Set where a browser must be there, in continuous integration: tests of the page then fail without one.
NEEDS_BROWSER = "PUNCTUAL_NEEDS_BROWSER"
#: The system's, under its usual names: first the one without windows, to which a page costs less than half the processor time.
PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
#: What WCAG 2.2 AA asks for.
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
WIDE, PHONE = (1280, 800), (360, 740)

expect.set_options(timeout=1000 * PATIENCE_S)


@contextmanager
def system_browser() -> Iterator[Browser]:
    """Chromium, until this is left. Without one the test is skipped, or fails where there must be one.

    Notes
    -----
    Playwright leaves an event loop marked as running in this thread until this is left: other tests of the same process
    could not run one of their own. That is why it lasts for one file of tests only.
    """
    program = chromium_here()
    if program is None:
        reason = f"needs Chromium, and none of {', '.join(PROGRAMS)} is in PATH"
        if os.environ.get(NEEDS_BROWSER):
            pytest.fail(reason)
        pytest.skip(reason)
    with browser_of(program) as browser:
        yield browser


def chromium_here() -> str | None:
    """The system's Chromium; None: there is none."""
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


@contextmanager
def browser_of(program: str) -> Iterator[Browser]:
    """The browser that this program is, until this is left; it finds stages at their address."""
    with stage_door() as port, sync_playwright() as playwright:
        # Without its sandbox, which root has none of; it sees pages of this repository alone.
        options = ["--no-sandbox", "--disable-gpu", f"--host-resolver-rules=MAP {HOST}:80 127.0.0.1:{port}"]
        browser = playwright.chromium.launch(executable_path=program, args=options)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Reader:
    """Somebody who opens the page of a service in tabs of their own.

    Attributes
    ----------
    context
        Where the tabs are, unless they have options: what the browser knows of the scripts is known there.
    tabs
        Those in use. The first is one that an earlier reader has left, if there is any: with a new one a test takes a ninth more
        processor time.
    faults
        What browsers complained about: exceptions of scripts, and what the content policy did not let through.
    """

    context: BrowserContext
    tabs: list[Page] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def open(
        self,
        service: LiveService,
        *,
        place: str = "",
        token: str | None = None,
        size: tuple[int, int] = WIDE,
        **options: Any,
    ) -> Page:
        """A new tab without memory of others that shows `place`, such as ``#/submit``; None: with the owner's token."""
        page = self.tab(size, **options)
        page.goto(f"{service.served.url}/#token={service.caller.token if token is None else token}")
        if place:
            page.goto(f"{service.served.url}/{place}")
        return page

    def tab(self, size: tuple[int, int] = WIDE, **options: Any) -> Page:
        """A new tab whose faults are noted."""
        assert self.context.browser is not None
        if options:
            page = self.context.browser.new_context(**options).new_page()
        else:
            left = [page for page in self.context.pages if page not in self.tabs]
            page = left[0] if left else self.context.new_page()
            self.tabs.append(page)
        page.set_default_timeout(1000 * PATIENCE_S)
        page.set_viewport_size({"width": size[0], "height": size[1]})
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("console", self._note)
        return page

    def leave(self) -> None:
        """Leave one tab to the next reader, without memory."""
        for page in self.tabs[1:]:
            page.close()
        for page in self.tabs[:1]:
            page.unroute_all(behavior="ignoreErrors")
            page.mouse.move(0, 0)
            page.evaluate("() => { try { sessionStorage.clear(); localStorage.clear(); } catch {} }")
            page.goto("about:blank")
            page.emulate_media(color_scheme="null")

    def _note(self, message: Any) -> None:
        # That a request was refused or came to nothing is told there too, and is what some tests are about.
        if message.type == "error" and "Failed to load resource" not in message.text:
            self.faults.append(message.text)


@contextmanager
def away(page: Page, pattern: str) -> Iterator[None]:
    """Within, requests to `pattern` come to nothing; it is left when one has been made."""
    lost: list[Route] = []

    def lose(route: Route) -> None:
        lost.append(route)
        route.abort()

    page.route(pattern, lose)
    yield
    wait_until(lambda: page.evaluate("true") and lost)  # its events come while it is asked
    page.unroute(pattern)


def fact(page: Page, term: str) -> Locator:
    """What the view of a job says of `term`."""
    return page.locator("#one-found .fact").filter(has=page.get_by_text(term, exact=True)).locator("dd")


def overflows(page: Page) -> bool:
    """Whether all of the page, and not a table in it alone, must be scrolled to the side."""
    return bool(page.evaluate("document.documentElement.scrollWidth > innerWidth"))


def barriers(page: Page) -> list[str]:
    """What keeps people out, by axe-core: rule, and where it is broken."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(files("axe_playwright_python").joinpath("axe.min.js").read_text())
    told = page.evaluate(
        """async (rules) => {
          const { passes, violations } = await axe.run(document, { runOnly: rules, resultTypes: ["violations"] });
          return [passes.length, violations];
        }""",
        RULES,
    )
    n_passed, violations = told
    assert n_passed, "nothing was checked"
    return [f"{rule['id']}: {node['html']} {node['failureSummary']}" for rule in violations for node in rule["nodes"]]
