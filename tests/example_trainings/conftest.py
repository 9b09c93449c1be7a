from collections.abc import Callable

import pytest
import torch

from punctual.channel import BLOCK_VARIABLE
from punctual.tracking import session, stop


@pytest.fixture
def start_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """What comes next is another process as far as the client can tell."""

    def forget() -> None:
        monkeypatch.setattr(session, "_session", None)
        monkeypatch.setattr(stop, "_hooks", [])

    return forget


@pytest.fixture(autouse=True)
def alone(start_process: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test is a process of its own, and one of several on this machine."""
    start_process()
    monkeypatch.delenv(BLOCK_VARIABLE, raising=False)
    torch.set_num_threads(1)
