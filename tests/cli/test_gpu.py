"""Trainings on GPUs under the command. Without a GPU all of this is skipped."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import Terminal, objects
from tests.waiting import PATIENCE_S

from punctual.daemon.capacity import usable_gpus
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.process_tree import stat_of

pytestmark = pytest.mark.gpu


def n_gpus() -> int:
    """Those of the machine that torch can use; torch is loaded only where there are any."""
    n_devices = usable_gpus()
    if not n_devices:
        return 0
    torch = pytest.importorskip("torch")
    return min(n_devices, int(torch.cuda.device_count()))


one_gpu = pytest.mark.skipif(n_gpus() < 1, reason="there is no GPU")
two_gpus = pytest.mark.skipif(n_gpus() < 2, reason="there are no two GPUs")

TRACKED = """
import time, punctual, torch

model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024) for _ in range(4)]).to("cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in punctual.track(range(400), epochs=1):
    until = time.monotonic() + 0.01  # as long on any device
    while time.monotonic() < until:
        loss = model(torch.ones(512, 1024, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
print("trained", i + 1, flush=True)
"""

#: Says the sum of its weights' bits at the end. With an argument that is not empty it puts the model on the GPU itself.
ELASTIC = """
import pathlib, time, punctual, torch

device = "cuda" if torch.cuda.is_available() else "cpu"  # asking is allowed, also where workers are forked from

def train(context):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(64, 1))
    if sys.argv[1:]:
        model.to(device)
    optimizer = torch.optim.Adagrad(model.parameters(), lr=0.01)  # has a state from its beginning
    dataset = torch.utils.data.TensorDataset(torch.rand(256, 8), torch.ones(256, 1))
    with context.elastic(model=model, optimizer=optimizer, deterministic=True, virtual_ranks=4) as run:
        for epoch in run.epochs(20):
            for inputs, targets in run.batches(dataset, global_batch_size=32, seed=0):
                run.backward((run.model(inputs) - targets).square().mean())
                run.step()
            pathlib.Path("begun").touch()
            while not pathlib.Path("go").exists():
                time.sleep(0.01)
        bits = sum(int(param.detach().view(torch.int32).to(torch.int64).sum()) for param in model.parameters())
        run.print("trained", run.step_number, "on", run.device.type, "to", bits)

if __name__ == "__main__":
    punctual.elastic(train)
"""


def workers_of(pid: int) -> list[int]:
    """The workers of the job of command `pid`, the oldest first."""
    below = descendants(pid)
    command_of = {one: Path(f"/proc/{one}/cmdline").read_bytes() for one in below}
    parent_of = {one: int(stat_of(one)[1]) for one in below}
    forked = [one for one in below if b"elastic.forkserver" in command_of[one] and parent_of[one] in below]
    return sorted(one for one in forked if parent_of[one] in forked)


def train_elastically(terminal: Terminal, *options: str, argument: str = "", i_killed: int | None = None) -> int:
    """The bits of the weights in the end; a worker may be killed after the first epoch."""
    for name in ("begun", "go"):
        (terminal.folder / name).unlink(missing_ok=True)
    run = terminal.begin(ELASTIC.replace("sys.argv[1:]", repr(argument)), "--json", *options)
    if i_killed is not None:
        os.kill(workers_of(run.pid)[i_killed], signal.SIGKILL)
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    report: dict[str, Any] = objects(output)[-1]
    assert (report["steps_done"], report["status"]) == (160, "finished")
    assert report["workers"]["n_workers_lost"] == (i_killed is not None)
    (line,) = [line for line in errors.splitlines() if line.startswith("trained")]
    assert line.startswith("trained 160 on cuda to ")
    return int(line.rpartition(" ")[2])


@one_gpu
def test_a_job_on_a_gpu_lands_by_pacing(terminal: Terminal) -> None:
    done = terminal.punctual(
        "run", "--deadline", "40s", "--actuator", "pacing", "--json", "--", *terminal.script(TRACKED)
    )
    assert done.returncode == 0, done.stderr
    report = objects(done.stdout)[-1]
    assert (report["steps"], report["actuator"]) == (400, "pacing")
    assert report["deviation_s"] > -4  # by itself it takes a few seconds


@one_gpu
def test_two_jobs_share_a_gpu_and_none_lands_early(terminal: Terminal) -> None:
    script = terminal.script(TRACKED)
    jobs = [
        terminal.start("run", "--deadline", deadline, "--actuator", "pacing", "--json", "--", *script)
        for deadline in ("40s", "55s")
    ]
    for job in jobs:
        output, errors = job.communicate(timeout=PATIENCE_S)
        assert job.returncode == 0, errors
        assert objects(output)[-1]["deviation_s"] > -4


@one_gpu
def test_workers_that_share_a_gpu_are_as_good_as_one(terminal: Terminal) -> None:
    bits = train_elastically(terminal, "--gpus", "1..1")
    assert train_elastically(terminal, "--workers", "2..2", argument="itself") == bits
    assert train_elastically(terminal, "--workers", "2..2", argument="itself", i_killed=0) == bits


@one_gpu
def test_a_worker_on_a_gpu_is_replaced(terminal: Terminal) -> None:
    options = ("--gpus", "1..1", "--checkpoint-dir")
    bits = train_elastically(terminal, *options, str(terminal.folder / "one"))
    assert train_elastically(terminal, *options, str(terminal.folder / "other"), i_killed=0) == bits


@two_gpus
@pytest.mark.parametrize("i_killed", [None, 0, 1])
def test_workers_with_a_gpu_each_form_their_group_again(terminal: Terminal, i_killed: int | None) -> None:
    bits = train_elastically(terminal, "--gpus", "1..1")
    assert train_elastically(terminal, "--gpus", "2..2", i_killed=i_killed) == bits
