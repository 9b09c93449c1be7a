"""A journal of each kind, for tests that are for both."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgresql import Server, running_server

from punctual.store.place import StorePlace


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture(params=["sqlite", "postgresql"])
def where(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty journal of each kind, as `tests.store.opening.opened` takes it."""
    if request.param == "sqlite":
        return str(tmp_path / "journal.db")
    server: Server = request.getfixturevalue("server")
    return json.dumps(StorePlace(url=server.url, journal=tmp_path.name).told())
