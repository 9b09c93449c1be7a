"""Run the tests as `make test` and `make test-all` do: beside each other, and those that fail then once more alone.

A test that its neighbours have starved gets a second chance; a fault does not get away. The exit status is 0 if every
test has passed, in the first run or alone. It is not 0 if

* a test fails alone too;
* more tests have failed than chance can explain (they are not run again);
* a file could not be collected, a worker of xdist has died, or no test has run.

Both runs have the same seed, so that what depends on a drawn number fails again.

Without an argument it runs the tests of the product, with ``--all`` also those that take long for what they tell of it:
papers', benchmarks', Ray's, Slurm's, the page's in browsers, adapters'. With ``--light`` those alone that need few packages and
little time, with few drawn examples: what may differ between versions of Python.
"""

import os
import random
import signal
import subprocess
import sys

import pytest

#: Three times the processors of a small machine: tests of processes wait much of their time.
N_WORKERS = 6
#: More failures than these are not run again.
N_AGAIN_MAX = 10
#: What only `--all` runs.
ONLY_ALL = tuple(f"--ignore=tests/{part}" for part in ("bench", "integrations", "page", "papers", "ray", "slurm"))
#: What needs no more than numpy and scipy, but for what takes long; and a real job that lands.
LIGHT = (
    *(
        f"tests/{part}"
        for part in (
            "channel",
            "controllers",
            "core",
            "history",
            "estimators",
            "solvers",
            "policies",
            "progress_text",
            "tracking",
        )
    ),
    "tests/executors/test_supervisor.py",
    "tests/executors/test_page_progress.py",
    "tests/cli/test_run.py::test_it_does_not_land_before_its_deadline_and_says_so_in_json",
    *(
        f"--ignore=tests/{simulations}.py"
        for simulations in (
            "controllers/test_dear_steps",
            "controllers/test_remaining_cost",
            "policies/test_budgets",
            "policies/test_guarantees",
            "policies/test_in_hostile_worlds",
            "policies/test_kept_promises",
            "policies/test_no_job_waits_beside_room",
            "policies/test_overload",
            "policies/test_promises_property",
            "progress_text/test_corpus",
        )
    ),
)
N_EXAMPLES_LIGHT = 5


class Record:
    """A plug-in of the first run's main process: which tests failed, and whether the run itself did."""

    def __init__(self) -> None:
        self.failed: dict[str, None] = {}
        self.is_broken = False

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        self.is_broken |= report.failed

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object, error: object) -> None:
        """Note that a worker of xdist has died."""
        self.is_broken |= error is not None


def keep_bytecode() -> None:
    """Have each module compiled once, and not by each of the many processes that tests start."""
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False


def heed_signals() -> None:
    """Restore SIGINT and SIGQUIT, which a shell ignores in background processes: tests send both to their processes."""
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)


def main() -> int:
    """Run the tests; the exit status."""
    keep_bytecode()
    heed_signals()
    chosen: tuple[str, ...] = () if "--all" in sys.argv else ONLY_ALL
    if "--light" in sys.argv:
        chosen, os.environ["PUNCTUAL_EXAMPLES"] = LIGHT, str(N_EXAMPLES_LIGHT)
    seed, record = f"--randomly-seed={random.randrange(2**32)}", Record()
    status = int(pytest.main(["-n", str(N_WORKERS), "--dist", "worksteal", seed, *chosen], plugins=[record]))
    if record.is_broken:
        return status or int(pytest.ExitCode.INTERNAL_ERROR)
    if status != pytest.ExitCode.TESTS_FAILED or not 0 < len(record.failed) <= N_AGAIN_MAX:
        return status
    print("\nfailed beside others; run again alone:", *record.failed, sep="\n  ", flush=True)
    return subprocess.call([sys.executable, "-m", "pytest", "-n", "0", seed, *record.failed])


if __name__ == "__main__":
    sys.exit(main())
