"""Jobs made of workers: what the options say, how grants are told, and one run of real workers."""

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.pieces import HERE, JOB
from tests.cli.programs import Terminal, objects
from tests.waiting import PATIENCE_S

from punctual.cli import ps
from punctual.cli._chain import chain
from punctual.cli._compose import DEFAULT_WORKER_CONTROLLER, Wishes, _environment, _spec
from punctual.cli._lines import Lines
from punctual.cli._picture import picture_of
from punctual.cli._workers import WorkerWishes, told_of, worker_fields, worker_in, worker_wishes
from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantApplied, JobStarted, JobSubmitted
from punctual.core.protocols import Message
from punctual.core.resources import Resources
from punctual.executors.local.keeper import descendants
from punctual.runtime.capacity import usable_gpus
from punctual.wire import WORKERS_VARIABLE, WorkerStatus

MACHINE = Resources(cores=8, gpus=2)
ELASTIC = """
import pathlib, sys, time, punctual, torch

@punctual.on_stop
def save():
    print("saved", flush=True)

def train(context):
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataset = torch.utils.data.TensorDataset(torch.ones(64, 8), torch.ones(64, 1))
    with context.elastic(model=model, optimizer=optimizer) as run:
        for epoch in run.epochs(int(sys.argv[1])):
            for inputs, targets in run.batches(dataset, global_batch_size=32, seed=0):
                run.backward((run.model(inputs) - targets).square().mean())
                run.step()
            pathlib.Path("begun").touch()
            while not pathlib.Path("go").exists():
                time.sleep(0.01)
        run.print("trained", run.step_number)

if __name__ == "__main__":
    punctual.elastic(train)
"""


def wishes(
    n_least: int = 1, n_most: int = 4, cores_each: float | None = None, option: str = "--workers"
) -> WorkerWishes:
    return WorkerWishes(option=option, n_least=n_least, n_most=n_most, cores_each=cores_each)


@pytest.mark.parametrize(("text", "counts"), [("1..4", (1, 2, 3, 4)), ("3", (1, 2, 3)), (" 2 .. 2 ", (2,))])
def test_a_range_of_workers(text: str, counts: tuple[int, ...]) -> None:
    assert worker_wishes(text, None, None).counts == counts


@pytest.mark.parametrize("text", ["", "0..2", "4..1", "1.5", "a..b", "0"])
def test_what_is_no_range_of_workers(text: str) -> None:
    with pytest.raises(InvalidSpec, match="`--gpus` must be a range of whole numbers from 1 on"):
        worker_wishes(None, text, None)


def test_a_job_is_not_made_of_workers_unless_it_says_so() -> None:
    assert worker_wishes(None, None, None) is None
    with pytest.raises(InvalidSpec, match="must go with a number of workers"):
        worker_wishes(None, None, 0.5)
    with pytest.raises(InvalidSpec, match="either workers or GPUs"):
        worker_wishes("1..2", "1..2", None)


def test_a_worker_has_an_equal_part_of_the_machine() -> None:
    assert worker_in(wishes(), MACHINE) == Resources(cores=2)
    assert worker_in(wishes(cores_each=0.5), MACHINE) == Resources(cores=0.5)
    assert worker_in(wishes(n_most=2, option="--gpus"), MACHINE) == Resources(cores=4, gpus=1)


def test_more_than_there_is_cannot_be_asked_for() -> None:
    with pytest.raises(InvalidSpec, match="4 workers of 3 cores"):
        worker_in(wishes(cores_each=3), MACHINE)
    with pytest.raises(InvalidSpec, match="may use 2"):
        worker_in(wishes(option="--gpus"), MACHINE)
    with pytest.raises(InvalidSpec, match="Train on cores"):
        worker_in(wishes(option="--gpus"), Resources(cores=8))


def test_gpus_are_counted_without_loading_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert usable_gpus(tmp_path) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,10")
    assert usable_gpus(tmp_path) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert usable_gpus(tmp_path) == 0


def test_the_job_that_is_declared() -> None:
    spec = _spec(Wishes(argv=("x",), started_at=0.0, workers=wishes(2, 4)), JOB, MACHINE)
    assert (spec.worker, spec.counts) == (Resources(cores=2), (2, 3, 4))
    assert (spec.floor, spec.ceiling) == (Resources(cores=4), Resources(cores=8))
    assert spec.controller == DEFAULT_WORKER_CONTROLLER
    assert spec.worker_counts() == (2, 3, 4)


def test_a_job_is_told_the_most_workers_it_may_have() -> None:
    assert _environment(Wishes(argv=("x",), started_at=0.0, workers=wishes(2, 4)))[WORKERS_VARIABLE] == "4"
    assert WORKERS_VARIABLE not in _environment(Wishes(argv=("x",), started_at=0.0))


def test_grants_are_told_in_workers() -> None:
    spec = _spec(Wishes(argv=("x",), started_at=0.0, workers=wishes(1, 4)), JOB, MACHINE)
    submitted = JobSubmitted(at=0.0, spec=spec)
    messages: list[Message] = [
        JobStarted(at=0.1, job=JOB, request=1, granted={HERE: Resources(cores=8)}),
        GrantApplied(at=5.0, job=JOB, request=2, granted={HERE: Resources(cores=1.9996)}),
    ]
    picture = picture_of(submitted)
    told: list[str] = []
    lines = Lines(picture, lambda: "", told.append)
    for message in messages:
        picture.fold(message)
        lines.tell(message)
    assert picture.n_workers == 1
    assert "grant 1 worker of 2.00 cores" in told[-1]
    assert ps._grant({"n_workers": 3, "grant_cores": 6.0}) == "3 workers"
    assert ps._grant({"n_workers": None, "grant_cores": 0.5}) == "0.50"
    assert chain([submitted, *messages], JOB)[0].kind == "submitted"


def test_what_changes_have_cost_is_told() -> None:
    assert worker_fields(None) is None
    assert worker_fields(WorkerStatus()) is None
    assert told_of(WorkerStatus(agent_pid=7)) == ""
    status = WorkerStatus(agent_pid=7, n_resizes=3, longest_stop_ns=420_000_000)
    assert worker_fields(status) == {"n_resizes": 3, "longest_stop_s": 0.42, "n_steps_redone": 0, "n_workers_lost": 0}
    assert told_of(status) == " Its workers changed 3 times; training stood still for 420 ms at most."


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal(tmp_path)
    yield made
    made.close()
    assert made.left_behind() == []


def begin(terminal: Terminal, *options: str, n_epochs: int) -> "subprocess.Popen[str]":
    """Start the program with at most two workers; it has trained for an epoch and waits for the file `go`."""
    return terminal.begin(ELASTIC.replace("sys.argv[1]", str(n_epochs)), "--workers", "1..2", *options)


def test_workers_train_under_the_command_and_one_may_be_killed(terminal: Terminal) -> None:
    run = begin(terminal, "--json", n_epochs=20)
    (job,) = terminal.jobs()
    assert (job["n_workers"], job["controller"]) == (2, DEFAULT_WORKER_CONTROLLER)
    _keeper, _agent, _forkserver, *workers = descendants(run.pid)
    os.kill(max(workers), signal.SIGKILL)
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    assert "trained 40" in errors
    assert "an end by SIGKILL" in errors
    report: dict[str, Any] = objects(output)[-1]
    assert (report["steps_done"], report["status"]) == (40, "finished")
    assert (report["workers"]["n_workers_lost"], report["workers"]["n_steps_redone"]) == (1, 1)
    assert "1 lost and 1 steps done again" in report["text"]


def test_workers_end_together_at_the_loss_that_was_asked_for(terminal: Terminal) -> None:
    terminal.go_on()
    run = begin(terminal, "--json", "--until", "loss<0.001", n_epochs=100_000)
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    report: dict[str, Any] = objects(output)[-1]
    assert report["status"] == "finished"
    assert f"trained {report['steps_done']:.0f}\n" in errors
    assert report["steps_done"] < 1000


def test_a_job_of_workers_that_is_stopped_saves_first(terminal: Terminal) -> None:
    run = begin(terminal, n_epochs=100_000)
    terminal.go_on()
    assert terminal.punctual("stop").returncode == 0
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 143, errors
    assert output.split().count("saved") == 1, errors
