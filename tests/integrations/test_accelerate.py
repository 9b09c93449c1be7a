"""Accelerate; its libraries are loaded where a test needs them: each worker of xdist collects all tests."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

import punctual
from punctual.channel import GOAL_VARIABLE, Directives, ProgramState, SharedBlock

pytestmark = [
    pytest.mark.skipif(find_spec("accelerate") is None, reason="Accelerate is not installed (extra `adapters`)"),
    pytest.mark.filterwarnings("ignore"),  # the library's own
]


def train(
    folder: Path | None,
    at_batch: Callable[[int], None] = lambda i: None,
    loss: float | None = None,
    *,
    shuffled: list[float] | None = None,
) -> float:
    """Three epochs of four batches; the weight, which sums up what it has seen. `shuffled` gets the samples in their order."""
    from accelerate import Accelerator
    from accelerate.utils import DataLoaderConfiguration

    from punctual.integrations.accelerate import AcceleratedLoop

    seeded = DataLoaderConfiguration(use_seedable_sampler=True, data_seed=0)
    accelerator = Accelerator(cpu=True, dataloader_config=seeded)
    weight = torch.nn.Linear(1, 1, bias=False)
    torch.nn.init.zeros_(weight.weight)
    data = DataLoader(TensorDataset(torch.arange(1.0, 5.0).reshape(4, 1)), batch_size=1, shuffle=shuffled is not None)
    model, optimizer, loader = accelerator.prepare(weight, torch.optim.SGD(weight.parameters(), lr=1.0), data)
    loop = AcceleratedLoop(accelerator, loader, epochs=3, checkpoint_dir=folder, phases=("evaluate",))
    for (x,) in loop:
        if shuffled is not None:
            shuffled.append(x.item())
        at_batch(loop.step)
        accelerator.backward(-model(x).sum())
        optimizer.step()
        optimizer.zero_grad()
        if loss is not None:
            loop.report_loss(loss)
        if loop.epoch_ended:
            with punctual.phase("evaluate"):
                pass
    return weight.weight.item()


def test_batches_and_phases_are_told(page: SharedBlock, tmp_path: Path) -> None:
    could_stop: list[bool] = []
    assert train(tmp_path, lambda _: could_stop.append(page.declaration().can_stop)) == 30.0
    assert (page.declaration().state, page.declaration().total_steps, page.progress().n_steps) == (
        ProgramState.LANDED,
        12,
        12,
    )
    assert (page.phases()[0].n_units_done, page.phases()[0].units_planned) == (3, 3)
    assert all(could_stop)
    assert not page.declaration().can_stop, "nobody makes a checkpoint any more"


@pytest.mark.parametrize("i", [0, 3, 5, 11])
def test_a_training_that_is_stopped_goes_on_with_the_next_batch(
    i: int, page: SharedBlock, restart: Callable[[], None], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stopped:
        train(tmp_path, lambda step: page.send(Directives(stop=True)) if step == i else None)
    assert (stopped.value.code, page.progress().n_steps) == (143, i + 1)
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == [f"step-{i + 1:012}"]
    restart()
    assert train(tmp_path) == 30.0
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.LANDED, 12)


def test_an_order_that_follows_from_a_seed_is_gone_on_with(
    page: SharedBlock, restart: Callable[[], None], tmp_path: Path
) -> None:
    seen: list[float] = []
    torch.manual_seed(1)
    with pytest.raises(SystemExit):
        train(tmp_path, lambda step: page.send(Directives(stop=True)) if step == 5 else None, shuffled=seen)
    restart()
    torch.manual_seed(2)
    train(tmp_path, shuffled=seen)
    assert [sorted(seen[i : i + 4]) for i in (0, 4, 8)] == [[1.0, 2.0, 3.0, 4.0]] * 3
    assert len({tuple(seen[i : i + 4]) for i in (0, 4, 8)}) > 1, "it is shuffled"


def test_a_loss_that_is_reached_ends_the_loop(page: SharedBlock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "0.5")
    train(None, loss=0.4)
    assert (page.declaration().state, page.progress().n_steps) == (ProgramState.LANDED, 3)


def test_a_training_does_not_go_on_from_a_checkpoint_of_another_one_in_its_script(
    page: SharedBlock, tmp_path: Path
) -> None:
    from accelerate import Accelerator

    from punctual.integrations.accelerate import AcceleratedLoop

    accelerator, model = Accelerator(cpu=True), torch.nn.Linear(1, 1)
    data = DataLoader(TensorDataset(torch.ones(4, 1)), batch_size=1)
    steps = []
    for _ in range(2):
        loop = AcceleratedLoop(accelerator, accelerator.prepare(data), epochs=1, checkpoint_dir=tmp_path)
        for (x,) in loop:
            accelerator.backward(model(x).sum())
            steps.append(loop.step)
        loop.save()
    assert steps == [0, 1, 2, 3] * 2


def test_without_a_folder_it_cannot_be_asked(page: SharedBlock) -> None:
    train(None)
    assert not page.declaration().can_stop


#: Trains in one of two processes; says how many batches it has seen, also if it is stopped.
RANK = """
import atexit, warnings
warnings.simplefilter("ignore")
import torch
from accelerate import Accelerator
from punctual.integrations.accelerate import AcceleratedLoop
torch.set_num_threads(1)
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(1, 1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(16, 1)), batch_size=2)
model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), data)
loop = AcceleratedLoop(accelerator, loader, epochs=3, checkpoint_dir="kept")
seen = []
atexit.register(lambda: print(len(seen), flush=True))
for (x,) in loop:
    accelerator.backward(model(x).sum())
    optimizer.step()
    optimizer.zero_grad()
    seen.append(loop.step)
    if loop.step == 4 and accelerator.is_main_process:
        from punctual.channel import Directives, SharedBlock
        SharedBlock.open("page").send(Directives(stop=True))
"""


def both(folder: Path) -> list[tuple[int, str]]:
    """Exit codes and batches seen of two processes that train together."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    shared = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "ACCELERATE_USE_CPU": "true"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", RANK], cwd=folder, text=True, stdout=subprocess.PIPE,
            env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for rank in "01"
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    return [(process.returncode, output.strip()) for process, output in zip(processes, outputs, strict=True)]


def test_two_processes_end_after_the_same_batch(page: SharedBlock, tmp_path: Path) -> None:
    (code, n_seen), other = both(tmp_path)
    assert (code, n_seen) == other == (143, n_seen)
    assert n_seen in {"5", "6"}, "the one that has the page may hear of it a batch later"
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [f"step-{n_seen:0>12}"]


def test_without_punctual_nothing_changes() -> None:
    assert train(None) == 30.0
