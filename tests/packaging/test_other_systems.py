"""What works where there is no Linux. There is none to try here: what only Linux has is hidden, in a process of its own."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.source import ROOT

#: Libraries are loaded before: they may look at the system, and are not what is tried.
COMMANDS = (
    "multiprocessing",
    "numpy",
    "platformdirs",
    "pydantic",
    "pydantic.functional_validators",
    "pydantic.main",
    "pydantic.types",
    "rich",
    "socketserver",
    "subprocess",
    "typer",
)
SIMULATOR = (*COMMANDS, "matplotlib", "polars", "scipy.optimize")
EVERYTHING = (
    *SIMULATOR, "asyncio", "ctypes", "fastapi", "ray", "torch", "uvicorn",
)  # fmt: skip

ALL_MODULES = """
import punctual
for module in pkgutil.walk_packages(punctual.__path__, "punctual."):
    if not module.name.startswith("punctual.integrations.") and module.name != "punctual.__main__":
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as missing:
            if missing.name.startswith("punctual"):
                raise
"""

#: Sixty steps on a line of 5 ms a step.
PACED = """
import punctual
from punctual.channel import BLOCK_VARIABLE, Directives, SharedBlock
page = SharedBlock.create("page")
os.environ[BLOCK_VARIABLE] = "page"
began_ns = time.monotonic_ns()
page.send(Directives(pacing=True, end_ns=began_ns + 300_000_000, end_work=60.0, ns_per_step=5e6))
page.heartbeat(began_ns + 3600 * 10**9)
for _ in punctual.track(range(60)):
    pass
assert time.monotonic_ns() >= began_ns + 300_000_000
assert page.progress().n_steps == 60
child = os.fork()
if not child:  # a second process of the job keeps silent
    from punctual.tracking import session
    os._exit(session.connect() is not None)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""

COMMAND = """
from punctual.cli import main
sys.argv = ["punctual", *{arguments}]
main()
"""


def run(libraries: tuple[str, ...], text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `text` in a process that takes itself for one of another system."""
    begin = f"import importlib, os, pkgutil, sys, time\nsys.path.insert(0, {str(ROOT)!r})\n"
    begin += "".join(f"try: import {name}\nexcept ModuleNotFoundError: pass\n" for name in libraries)
    pretend = "from tests.packaging.elsewhere import pretend\npretend()\n"
    return subprocess.run(
        [sys.executable, "-c", begin + pretend + text], cwd=folder, capture_output=True, text=True, check=False
    )


def test_every_module_can_be_imported(tmp_path: Path) -> None:
    done = run(EVERYTHING, ALL_MODULES, tmp_path)
    assert done.returncode == 0, done.stderr


def test_a_training_can_be_told_and_paced(tmp_path: Path) -> None:
    done = run((), PACED, tmp_path)
    assert done.returncode == 0, done.stderr


def test_jobs_are_refused_with_what_to_do(tmp_path: Path) -> None:
    done = run(COMMANDS, COMMAND.format(arguments=["run", "--", "true"]), tmp_path)
    assert done.returncode == 2
    assert "jobs must be run on Linux" in done.stderr
    assert "Traceback" not in done.stderr


def test_policies_can_be_compared(tmp_path: Path) -> None:
    done = run(SIMULATOR, COMMAND.format(arguments=["simulate", "--policy", "fifo", "--jobs", "5", "--json"]), tmp_path)
    assert done.returncode == 0, done.stderr
