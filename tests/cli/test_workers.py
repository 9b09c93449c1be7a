"""Jobs made of workers: what the options say, how grants are told, and one run of real workers."""

import os
import signal
import subprocess
from typing import Any

import pytest
from tests.cli.pieces import HERE, JOB, JobOfBoard
from tests.cli.programs import Terminal, objects
from tests.history.scene import chain
from tests.waiting import PATIENCE_S

from punctual.channel import WorkerStatus
from punctual.cli import ps
from punctual.cli._drive import worker_fields, workers_sentence
from punctual.cli._screens import Lines
from punctual.core.errors import InvalidSpec
from punctual.core.events import GrantApplied, JobStarted, JobSubmitted, Message, NodeJoined
from punctual.core.resources import Resources
from punctual.core.status import StatusBoard
from punctual.executors.local.job_signals import descendants
from punctual.request.job_options import JobOptions
from punctual.request.quantities import parse_gpu_frac, worker_range
from punctual.request.submission import DEFAULT_WORKER_CONTROLLER, submission_of

ELASTIC = """
import pathlib, sys, time, punctual

@punctual.on_stop
def save():
    print("saved", flush=True)

def train(context):
    import torch  # where it is needed: the process that looks after workers would load it too
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


@pytest.mark.parametrize(("text", "counts"), [("1..4", (1, 2, 3, 4)), ("3", (1, 2, 3)), (" 2 .. 2 ", (2,))])
def test_a_range_of_workers(text: str, counts: tuple[int, ...]) -> None:
    assert worker_range(text, None, None).counts == counts


@pytest.mark.parametrize("text", ["", "0..2", "4..1", "1.5", "a..b", "0"])
def test_what_is_no_range_of_workers(text: str) -> None:
    with pytest.raises(InvalidSpec, match="`--gpus` must be a range of whole numbers from 1 on"):
        worker_range(None, text, None)


def test_a_job_is_not_made_of_workers_unless_it_says_so() -> None:
    assert worker_range(None, None, None) is None
    with pytest.raises(InvalidSpec, match="must go with a number of workers"):
        worker_range(None, None, 0.5)
    assert worker_range(None, "0.5", None) is None
    with pytest.raises(InvalidSpec, match="either workers or GPUs"):
        worker_range("1..2", "1..2", None)


@pytest.mark.parametrize(("text", "part"), [("0.5", 0.5), (" .25", 0.25), ("1", 0.0), ("1..2", 0.0), ("", 0.0)])
def test_a_part_of_a_gpu(text: str, part: float) -> None:
    assert parse_gpu_frac(text) == part


def test_grants_are_told_in_workers() -> None:
    options = JobOptions(program=["true"], workers="1..4", name=JOB)
    submitted = JobSubmitted(at=0.0, spec=submission_of(options, 0.0, Resources(8)).spec)
    messages: list[Message] = [
        JobStarted(at=0.1, job=JOB, request=1, granted={HERE: Resources(cores=8)}),
        GrantApplied(at=5.0, job=JOB, request=2, granted={HERE: Resources(cores=1.9996)}),
    ]
    board = StatusBoard()
    board.fold(NodeJoined(at=0.0, node=HERE, capacity=Resources(8)))
    board.fold(submitted)
    told: list[str] = []
    lines = Lines(JobOfBoard(board), told.append)
    for message in messages:
        board.fold(message)
        lines.tell(message)
    assert board.job(JOB).n_workers == 1
    assert "grant 1 worker of 2.00 cores" in told[-1]
    assert ps._grant({"n_workers": 3, "grant_cores": 6.0}) == "3 workers"
    assert ps._grant({"n_workers": None, "grant_cores": 0.5}) == "0.50"
    assert chain([submitted, *messages], JOB)[0].kind == "submitted"


def test_what_changes_have_cost_is_told() -> None:
    assert worker_fields(None) is None
    assert worker_fields(WorkerStatus()) is None
    assert workers_sentence(WorkerStatus(agent_pid=7)) == ""
    status = WorkerStatus(agent_pid=7, n_resizes=3, longest_stop_ns=420_000_000)
    assert worker_fields(status) == {"n_resizes": 3, "longest_stop_s": 0.42, "n_steps_redone": 0, "n_workers_lost": 0}
    assert workers_sentence(status) == " Its workers changed 3 times; training stood still for 420 ms at most."


def begin(terminal: Terminal, *options: str, n_epochs: int) -> "subprocess.Popen[str]":
    """Start the program with at most two workers; it has trained for an epoch and waits for the file `go`."""
    return terminal.begin(ELASTIC.replace("sys.argv[1]", str(n_epochs)), "--workers", "1..2", *options)


def test_workers_train_under_the_command_and_one_may_be_killed(terminal: Terminal) -> None:
    run = begin(terminal, "--json", n_epochs=20)
    (job,) = terminal.jobs()
    assert (job["n_workers"], job["controller"]) == (2, DEFAULT_WORKER_CONTROLLER)
    _supervisor, _agent, _forkserver, *workers = descendants(run.pid)
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
    assert terminal.tell("stop").returncode == 0
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 143, errors
    assert output.split().count("saved") == 1, errors
