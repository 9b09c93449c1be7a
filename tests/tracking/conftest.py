import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from punctual.channel import BLOCK_VARIABLE, Directives, SharedBlock
from punctual.tracking import session, stop


@pytest.fixture(autouse=True)
def fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process of its own as far as the client can tell."""
    monkeypatch.setattr(session, "_session", None)
    monkeypatch.setattr(stop, "_hooks", [])
    monkeypatch.delenv(BLOCK_VARIABLE, raising=False)


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SharedBlock]:
    """Punctual's side of the page that the client finds in the environment."""
    path = tmp_path / "page"
    made = SharedBlock.create(str(path))
    monkeypatch.setenv(BLOCK_VARIABLE, str(path))
    yield made
    made.close()


@pytest.fixture
def pace(page: SharedBlock) -> Callable[..., None]:
    """Order a pacing line from now on, and tick."""

    def send(steps_s: float, end_work: float, phase_cost_steps: tuple[float, ...] = ()) -> None:
        now_ns = time.monotonic_ns()
        end_ns = now_ns + int(end_work * steps_s * 1e9)
        page.send(Directives(True, False, False, end_ns, end_work, steps_s * 1e9, phase_cost_steps))
        page.heartbeat(now_ns + 3600 * 10**9)  # a controller that lives on, however long the test is not scheduled

    return send


@pytest.fixture
def restart(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Go on as a new process of the same job: it finds the page claimed by its own id, as after `exec`."""

    def forget() -> None:
        monkeypatch.setattr(session, "_session", None)

    return forget
