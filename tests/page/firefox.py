"""The system's Firefox, driven by WebDriver BiDi, which it speaks itself: playwright drives Chromium, and its own Firefox alone."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from tests.page.live_page import NEEDS_BROWSER
from tests.waiting import PATIENCE_S, wait_until
from websockets.sync.client import ClientConnection, connect

PROGRAMS = ("firefox-esr", "firefox")
_LISTENS = "WebDriver BiDi listening on "


class Firefox:
    """One tab.

    Attributes
    ----------
    faults
        What the browser complained about.
    """

    def __init__(self, connection: ClientConnection) -> None:
        self._connection, self._numbers = connection, count(1)
        self.faults: list[str] = []
        self._ask("session.new", capabilities={})
        self._ask("session.subscribe", events=["log.entryAdded"])
        (context,) = self._ask("browsingContext.getTree")["contexts"]
        self._tab = context["context"]

    def open(self, address: str) -> None:
        """Show `address` in the tab."""
        self._ask("browsingContext.navigate", context=self._tab, url=address, wait="complete")

    def said(self, script: str) -> Any:
        """The value of an expression: a text, a number, or whether something holds."""
        told = self._ask("script.evaluate", expression=script, target={"context": self._tab}, awaitPromise=True)
        assert told["type"] == "success", told
        return told["result"].get("value")

    def wait_for(self, script: str) -> Any:
        """The value of an expression, once it is true."""
        return wait_until(lambda: self.said(script))

    def _ask(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        self._connection.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            answer = json.loads(self._connection.recv(PATIENCE_S))
            if answer.get("method") == "log.entryAdded":
                self._note(answer["params"])
            elif answer.get("id") == number:
                assert answer["type"] == "success", answer
                return answer["result"]

    def _note(self, entry: dict[str, Any]) -> None:
        if entry["level"] == "error":
            self.faults.append(str(entry["text"]))


@contextmanager
def system_firefox(folder: Path) -> Iterator[Firefox]:
    """Firefox with a profile in `folder`, until this is left. Without one the test is skipped, or fails where it must be there."""
    program = next((found for name in PROGRAMS if (found := shutil.which(name))), None)
    if program is None:
        reason = f"needs Firefox, and none of {', '.join(PROGRAMS)} is in PATH"
        if os.environ.get(NEEDS_BROWSER):
            pytest.fail(reason)
        pytest.skip(reason)
    command = [
        program,
        "--headless",
        "--no-remote",
        "--profile",
        str(folder),
        "--remote-debugging-port=0",
        "about:blank",
    ]
    errors = folder / "errors.txt"
    with errors.open("w") as written:
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=written, env={**os.environ, "HOME": str(folder)}
        )
    try:
        address = wait_until(lambda: _address(errors) or process.poll() is not None)
        assert isinstance(address, str), errors.read_text()
        with connect(f"{address}/session", max_size=None, proxy=None) as connection:
            yield Firefox(connection)
    finally:
        process.terminate()
        process.wait(PATIENCE_S)


def _address(errors: Path) -> str:
    """Where it listens; empty: it does not say so yet."""
    lines = errors.read_text().splitlines()
    return next((line.partition(_LISTENS)[2].strip() for line in lines if _LISTENS in line), "")
