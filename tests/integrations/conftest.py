from collections.abc import Callable

import pytest
from tests.tracking.conftest import fresh_process, page

from punctual.channel import GOAL_VARIABLE, Directives, SharedBlock
from punctual.tracking import session, stop

__all__ = ["fresh_process", "page"]


@pytest.fixture(autouse=True)
def no_goal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(GOAL_VARIABLE, raising=False)


@pytest.fixture
def restart(page: SharedBlock, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Go on as a new process of the same job, which is not asked to stop any more."""

    def forget() -> None:
        page.send(Directives())
        monkeypatch.setattr(session, "_session", None)
        monkeypatch.setattr(stop, "_hooks", [])

    return forget
