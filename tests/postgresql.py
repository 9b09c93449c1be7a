"""A PostgreSQL server of a test's own."""

from collections.abc import Iterator
from contextlib import contextmanager

import _postgresql_server
import pytest
from _postgresql_server import BINARIES, Server

__all__ = ["Server", "running_server"]


@contextmanager
def running_server() -> Iterator[Server]:
    """A server without tables; skips the test where PostgreSQL is not installed."""
    if not BINARIES:
        pytest.skip("PostgreSQL is not installed here")
    pytest.importorskip("psycopg")
    pytest.importorskip("sqlalchemy")
    with _postgresql_server.running_server() as server:
        yield server
