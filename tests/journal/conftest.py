"""A journal of a test's own."""

from pathlib import Path

import pytest


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where a journal may be begun."""
    return tmp_path / "journal.db"
