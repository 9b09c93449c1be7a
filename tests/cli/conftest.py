"""Fixtures of the command line's tests."""

import pytest

from punctual.runtime.when import Now


@pytest.fixture
def now() -> Now:
    return Now.read()
