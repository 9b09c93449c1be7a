"""What holds for all tests."""

import gc
import os
import signal
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, settings
from tests.examples import N_EXAMPLES

# No limit on time: an example takes as long as the machine is busy with something else. Before Python 3.12 the explain
# phase traces every line, which makes the failure of a long test a hang.
settings.register_profile(
    "punctual", phases=set(Phase) - {Phase.explain}, print_blob=True, deadline=None,
    suppress_health_check=[HealthCheck.too_slow], max_examples=N_EXAMPLES,
)  # fmt: skip
settings.load_profile("punctual")

# A suite that was started in the background ignores Ctrl-C, and so would all that it starts.
signal.signal(signal.SIGINT, signal.default_int_handler)

#: What a test may know of the user who runs it: where traces lie, and whether a browser must be there.
KEPT_VARIABLES = {"PUNCTUAL_DATA", "PUNCTUAL_NEEDS_BROWSER"}
#: What would change how commands print.
TERMINAL_VARIABLES = {"COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "CLICOLOR_FORCE"}

#: Tests that share what takes longer to make than most tests: those of a cluster, by the fixture that starts it, and those
#: that read the whole source, by their folder.
SHARED = ("ray_cluster", "network", "slurm_session", "ray_head", "architecture")

_numbers = count()

# What is made while tests are collected, libraries included, stays until the end: it is looked through for garbage neither
# meanwhile nor later. Nor is what the tests of a module have imported: each simulation begins with a search of everything.
gc.disable()


@pytest.hookimpl(trylast=True)  # once they are in random order
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Have tests that share something begin the list of one process of the run, which then has them all.

    Each process has an equal part of the list at first. What it has not begun others take over once they have nothing left.
    """
    n_processes = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    parts: list[list[pytest.Item]] = [[] for _ in range(n_processes)]
    others: list[pytest.Item] = []
    for item in items:
        names = {*getattr(item, "fixturenames", ()), item.path.parent.name}
        i_shared = next((i for i, name in enumerate(SHARED) if name in names), None)
        (others if i_shared is None else parts[i_shared % n_processes]).append(item)
    n_left = len(items)
    items.clear()
    for i, part in enumerate(parts):
        n_own = n_left // (n_processes - i)
        n_others = max(0, n_own - len(part))
        items += part + others[:n_others]
        n_left, others = n_left - n_own, others[n_others:]
    items += others


def pytest_collection_finish(session: pytest.Session) -> None:
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="module", autouse=True)
def searches_of_what_is_new_alone() -> Iterator[None]:
    yield
    gc.collect()
    gc.freeze()


@pytest.fixture
def one_thread() -> Iterator[None]:
    """Compute with one thread, as workers do: with more, torch adds up in another order."""
    import torch

    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


@pytest.fixture(scope="session", autouse=True)
def environment_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Take the user's folders, jobs and terminal out of the environment, also of the processes that tests start."""
    with pytest.MonkeyPatch.context() as patch:
        for name in set(os.environ):
            if name in TERMINAL_VARIABLES or (name.startswith("PUNCTUAL_") and name not in KEPT_VARIABLES):
                patch.delenv(name)
        for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
            patch.setenv(name, str(tmp_path_factory.mktemp(name.lower(), numbered=False)))
        yield


@pytest.fixture(autouse=True)
def home(
    environment_of_its_own: None, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Give each test a home of Punctual that no other test and no user has; it is made by whoever needs it."""
    home = tmp_path_factory.getbasetemp() / f"home-{next(_numbers)}"
    monkeypatch.setenv("PUNCTUAL_HOME", str(home))
    return home
