"""Fixtures of the command line's tests."""

import pytest

from punctual.request.deadlines import Now


@pytest.fixture
def now() -> Now:
    return Now.read()
