import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.cli.programs import Terminal
from tests.waiting import wait_until

from punctual.daemon import control_socket, runs
from punctual.integrations import metrics
from punctual.integrations.metrics import MetricsReporter, numbers_of, standing_of, to_mlflow, to_tensorboard, to_wandb

TOLD = {
    "job": "a", "steps_done": 7.0, "elapsed_s": 10.0, "left_s": 50.0, "deadline_s": 60.0, "forecast_s": 63.0, "grant_cores": 0.5,
    "usage_cores": None,
}  # fmt: skip
NUMBERS = {
    "punctual/deadline_left_s": 50.0, "punctual/forecast_left_s": 53.0, "punctual/forecast_late_s": 3.0,
    "punctual/grant_cores": 0.5,
}  # fmt: skip


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is a job, whose host tells `TOLD`."""
    monkeypatch.setenv("PUNCTUAL_JOB", "a")
    monkeypatch.setattr(metrics, "standing_of", lambda job: TOLD)


def test_what_is_not_known_is_left_out() -> None:
    assert numbers_of(TOLD) == NUMBERS
    assert numbers_of({"job": "a", "state": "silent"}) == {}


def test_a_host_is_looked_for_again_only_after_it_was_silent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    n_looks, is_silent = 0, False

    def open_jobs() -> list[Any]:
        nonlocal n_looks
        n_looks += 1
        return [SimpleNamespace(job="looked-for", run=SimpleNamespace(socket=tmp_path))] if n_looks > 1 else []

    def ask(path: Path, words: object) -> dict[str, Any]:
        if is_silent:
            raise OSError
        return {"jobs": [TOLD]}

    monkeypatch.setattr(runs, "open_jobs", open_jobs)
    monkeypatch.setattr(control_socket, "ask", ask)
    assert standing_of("looked-for") is None  # no host has it yet
    assert [standing_of("looked-for") for _ in range(3)] == [TOLD] * 3
    assert n_looks == 2
    is_silent = True
    assert standing_of("looked-for") is None
    is_silent = False
    assert standing_of("looked-for") == TOLD
    assert n_looks == 3


def test_a_process_that_is_no_job_has_nothing_to_write(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PUNCTUAL_JOB", raising=False)
    n_threads = threading.active_count()
    MetricsReporter(lambda numbers, step: pytest.fail("written")).close()
    assert threading.active_count() == n_threads


def test_what_a_library_raises_ends_the_reporting_only(job: None, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(numbers: Any, step: int) -> None:
        raise OSError("no room")

    MetricsReporter(fail, period_s=0.01).close()
    assert "no room" in capsys.readouterr().err


def test_tensorboard_has_them(job: None, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed (extra `adapters`)")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    writer = SummaryWriter(str(tmp_path))
    to_tensorboard(writer).close()
    writer.close()
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    assert {tag: events.Scalars(tag)[0].value for tag in events.Tags()["scalars"]} == NUMBERS
    assert events.Scalars("punctual/grant_cores")[0].step == 7


@pytest.mark.filterwarnings("ignore")
def test_mlflow_has_them(job: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="MLflow is not installed: mlflow-skinny is enough")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    mlflow.set_tracking_uri(f"file://{tmp_path}/mlruns")
    with mlflow.start_run() as run:
        to_mlflow().close()
    assert mlflow.get_run(run.info.run_id).data.metrics == NUMBERS


@pytest.mark.filterwarnings("ignore")
def test_weights_and_biases_has_them(job: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wandb = pytest.importorskip("wandb", reason="Weights & Biases is not installed")
    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(mode="offline", dir=str(tmp_path), project="punctual") as run:
        to_wandb(run).close()
        run.log({"loss": 1.0})
        wait_until(lambda: set(NUMBERS) <= set(run.summary.keys()))
        assert run.summary["punctual/grant_cores"] == 0.5


SCRIPT = """
import json, pathlib, time, punctual
from punctual.integrations.metrics import MetricsReporter
told = []
reporter = MetricsReporter(lambda numbers, step: told.append([numbers, step]), period_s=0.1)
for i in punctual.track(range(1000000)):
    time.sleep(0.01)
    if i > 10 and told and "punctual/forecast_late_s" in told[-1][0]:
        break
reporter.close()
pathlib.Path("told.json").write_text(json.dumps(told))
"""


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()


def test_a_job_hears_how_it_stands_from_its_host(terminal: Terminal, tmp_path: Path) -> None:
    terminal.punctual("run", "--deadline", "5m", "--actuator", "pacing", "--", *terminal.script(SCRIPT))
    numbers, step = json.loads((tmp_path / "told.json").read_text())[-1]
    assert 0 < numbers["punctual/deadline_left_s"] <= 300
    assert numbers["punctual/grant_cores"] > 0
    assert step > 0
