import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import wait_until

pytest.importorskip("IPython", reason="IPython is not installed (extra `adapters`)")

from IPython.core.error import UsageError
from IPython.core.interactiveshell import InteractiveShell
from traitlets.config import Config

from punctual.integrations import notebook

pytestmark = pytest.mark.filterwarnings("ignore")  # the library's own

CELL = """
import pathlib, sys, time, punctual

@punctual.on_stop
def save():
    pathlib.Path("saved").touch()

pathlib.Path("begun").touch()
for i in punctual.track(range({n})):
    time.sleep(0.01)
print("trained", "variable" in globals())
"""


@pytest.fixture
def shell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.chdir(tmp_path)
    shell = InteractiveShell(config=Config({"HistoryManager": {"enabled": False}}))
    shell.run_cell("%load_ext punctual")
    yield shell
    InteractiveShell.clear_instance()


def test_a_cell_is_run_to_its_deadline(shell: Any, capfd: pytest.CaptureFixture[str]) -> None:
    shell.run_cell("variable = 1")
    shell.run_cell_magic("deadline", "2s --actuator pacing", CELL.format(n=20))
    shown = capfd.readouterr().out
    assert "trained False" in shown
    assert "punctual: started job cell-" in shown


@pytest.mark.parametrize("option", ["--report run.html", "--report=run.html", "--report {folder}/run.html"])
def test_the_page_of_the_run_is_shown_below(
    option: str, shell: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its place from the notebook: that is what the notebook's server can be asked for."""
    shown = list[Any]()
    monkeypatch.setattr(notebook, "display", shown.append)
    shell.run_cell_magic("deadline", f"2s --actuator pacing {option.format(folder=tmp_path)}", CELL.format(n=20))
    (frame,) = shown
    assert frame.src == "run.html"
    assert "punctual/overview.js" in Path("run.html").read_text()


def test_an_interrupt_asks_it_to_stop(shell: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt() -> None:
        wait_until((tmp_path / "begun").exists)
        os.kill(os.getpid(), signal.SIGINT)  # to the process: its main thread waits for output

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(UsageError, match="exit code 130"):
            shell.run_cell_magic("deadline", "10m --actuator pacing", CELL.format(n=10**6))
    finally:
        signal.signal(signal.SIGINT, before)
        thread.join()
    assert (tmp_path / "saved").exists()


@pytest.mark.parametrize("line", ["", "--cores 2"])
def test_a_deadline_must_be_given(line: str, shell: Any) -> None:
    with pytest.raises(UsageError, match="needs a deadline"):
        shell.run_cell_magic("deadline", line, "pass")


def test_what_is_wrong_is_told(shell: Any, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match="exit code 2"):
        shell.run_cell_magic("deadline", "soon", "pass")
    assert "`deadline` must be a duration or a time" in capfd.readouterr().out
