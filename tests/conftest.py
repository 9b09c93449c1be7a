"""What holds for all tests."""

from pathlib import Path

import pytest
from hypothesis import Phase, settings

TESTS = Path(__file__).parent

# Before Python 3.12 the explain phase traces every line: it turns the failure of a long test into a timeout.
settings.register_profile("punctual", phases=set(Phase) - {Phase.explain}, print_blob=True, deadline=None)
settings.load_profile("punctual")

#: Tests of these folders start processes and watch them in real time.
REAL_TIME = {"apps", "cli", "client", "executors"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests that run in real time to one worker: two of them at once would take each other's processor."""
    for item in items:
        if item.path.relative_to(TESTS).parts[0] in REAL_TIME or item.get_closest_marker("cgroup"):
            item.add_marker(pytest.mark.xdist_group("real-time"))
