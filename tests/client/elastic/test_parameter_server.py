"""Training with parameter servers: as good as a plain loop, and no process is left waiting for one that has gone."""

import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from itertools import product
from pathlib import Path
from threading import Thread

import pytest
import torch
from tests.waiting import wait_until
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from punctual.client.elastic._shares import shared_out
from punctual.client.elastic.parameter_server import Context, PeerLost, launch
from punctual.client.elastic.sample_order import SampleOrder

BATCH = 23

Trained = tuple[list[Tensor], list[float]]


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As in the processes: the bits of a product depend on the number of threads."""
    n_before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_before)


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(7, 33), nn.Tanh(), nn.Linear(33, 5), nn.Linear(5, 1))


def make_optimizer(kind: str, model: nn.Module) -> torch.optim.Optimizer:
    if kind == "sgd":
        return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01)
    first, *others = model.parameters()
    groups: list[dict[str, object]] = [{"params": [first], "lr": 0.003}, {"params": others}]
    return torch.optim.AdamW(groups, lr=0.01)


def dataset() -> TensorDataset:
    """One sample more than six batches have: in the last batch of an epoch there is none for the second worker."""
    inputs = torch.randn(6 * BATCH + 1, 7, generator=torch.Generator().manual_seed(1))
    return TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())


def loss_of(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return nn.functional.mse_loss(model(inputs), targets)


def plainly(kind: str) -> Trained:
    """The same training without servers."""
    model = make_model()
    optimizer = make_optimizer(kind, model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses = []
    order = SampleOrder(len(dataset()), BATCH, seed=3)
    for epoch, i_batch in product(range(2), range(order.n_steps)):
        loss = loss_of(model, *dataset()[order.samples(epoch, i_batch)])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.item())
    return [one.detach() for one in model.parameters()], losses


def train(kind: str, context: Context) -> Trained:
    torch.set_num_threads(1)
    model = make_model()
    if context.rank:
        nn.init.zeros_(next(model.parameters()))  # the first worker's parameters count
    optimizer = make_optimizer(kind, model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses = []
    with context.elastic(model=model, optimizer=optimizer) as run:
        for _ in run.epochs(2):
            for inputs, targets in run.batches(dataset(), global_batch_size=BATCH, seed=3):
                loss = loss_of(run.model, inputs, targets)
                run.backward(loss)
                run.step()
                scheduler.step()
                losses.append(loss.item())
    return [one.detach() for one in model.parameters()], losses


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_one_worker_trains_exactly_as_without_servers(kind: str) -> None:
    (found,) = launch(partial(train, kind), n_workers=1, n_servers=2)
    expected = plainly(kind)
    assert found[1] == expected[1]
    assert all(torch.equal(one, other) for one, other in zip(found[0], expected[0], strict=True))


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_two_workers_train_as_one_would(kind: str) -> None:
    one, other = launch(partial(train, kind), n_workers=2, n_servers=2)
    expected, _ = plainly(kind)
    assert all(torch.equal(a, b) for a, b in zip(one[0], other[0], strict=True))
    assert all(torch.allclose(a, b, atol=1e-5) for a, b in zip(one[0], expected, strict=True))


def train_and_keep(kind: str, folder: str, ends_at: int, how: str, context: Context) -> Trained:
    """The same, with checkpoints; the first worker ends after so many steps."""
    torch.set_num_threads(1)
    model = make_model()
    optimizer = make_optimizer(kind, model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses = []
    every_s = 1e-6 if how == "killed" else 1000.0
    with context.elastic(
        model=model, optimizer=optimizer, extra={"rate": scheduler}, checkpoint_dir=folder, checkpoint_every_s=every_s
    ) as run:
        for _ in run.epochs(2):
            for inputs, targets in run.batches(dataset(), global_batch_size=BATCH, seed=3):
                loss = loss_of(run.model, inputs, targets)
                run.backward(loss)
                run.step()
                scheduler.step()
                losses.append(loss.item())
                if how == "failed" and run.step_number == 5:
                    run.checkpoint()
                if run.step_number == ends_at and context.rank == 0:
                    _end(how)
    return [one.detach() for one in model.parameters()], losses


def _end(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise ZeroDivisionError("in the script")


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
def test_a_training_started_again_goes_on_from_its_checkpoint(kind: str, tmp_path: Path) -> None:
    begin, go_on = (partial(train_and_keep, kind, str(tmp_path), ends_at, "failed") for ends_at in (9, 0))
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        launch(begin, n_workers=1, n_servers=2)
    (found,) = launch(go_on, n_workers=1, n_servers=3)  # who cut the parameters in another way
    expected = plainly(kind)
    assert found[1] == expected[1][5:]
    assert all(torch.equal(one, other) for one, other in zip(found[0], expected[0], strict=True))


def test_whenever_it_is_killed_it_ends_as_it_would_have(tmp_path: Path) -> None:
    """With fewer workers than before, what is summed up differs by rounding."""
    begin, go_on = (partial(train_and_keep, "adamw", str(tmp_path), ends_at, "killed") for ends_at in (9, 0))
    with pytest.raises(PeerLost, match="got exit code -9 for worker 0"):
        launch(begin, n_workers=2, n_servers=2)
    (found,) = launch(go_on, n_workers=1, n_servers=1)
    expected = plainly("adamw")
    assert len(found[1]) < len(expected[1])
    assert found[1] == pytest.approx(expected[1][-len(found[1]) :], abs=1e-5)
    assert all(torch.allclose(one, other, atol=1e-5) for one, other in zip(found[0], expected[0], strict=True))


def regress(folder: Path | None, context: Context) -> tuple[float, int, int]:
    """Least squares with a gradient a sample at a time; with a folder, one gradient of the second worker comes late."""
    torch.set_num_threads(1)
    drawn = torch.Generator().manual_seed(context.rank)
    model = nn.Linear(4, 1)
    n_steps, staleness_max = 150 if context.rank == 0 else 50, 0
    truth = torch.tensor([[1.0, -2.0, 3.0, 0.5]])
    with context.elastic(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.05)) as run:
        for i in range(n_steps):
            inputs = torch.randn(8, 4, generator=drawn)
            nn.functional.mse_loss(model(inputs), inputs @ truth.t()).backward()
            if folder is not None:
                _meet(folder, context.rank, i)
            run.step()
            staleness_max = max(staleness_max, run.staleness)
    return (model.weight.detach() - truth).abs().max().item(), run.step_number, staleness_max


def _meet(folder: Path, rank: int, i: int) -> None:
    """Have the first worker do ten steps while the second one has a gradient that it has not sent yet."""
    if (rank, i) == (1, 5):
        (folder / "has-gradient").touch()
        wait_until((folder / "went-on").exists)
    elif (rank, i) == (0, 10):
        wait_until((folder / "has-gradient").exists)
    elif (rank, i) == (0, 20):
        (folder / "went-on").touch()


def test_asynchronous_training_converges_though_gradients_are_stale(tmp_path: Path) -> None:
    found = launch(partial(regress, tmp_path), n_workers=2, n_servers=2, is_synchronous=False)
    assert [one[1] for one in found] == [150, 50]
    assert max(one[2] for one in found) > 0
    assert min(one[0] for one in found) < 0.02


def test_a_synchronous_step_is_never_stale_and_those_who_stay_go_on() -> None:
    found = launch(partial(regress, None), n_workers=2, n_servers=2)
    assert [one[1:] for one in found] == [(150, 0), (50, 0)]


def die(role: str, number: int, victim: str, trains: Path) -> None:
    """End the process `victim` once there is the file `trains`."""
    if f"{role} {number}" == victim:
        Thread(target=_die_after, args=(trains,), daemon=True).start()


def _die_after(trains: Path) -> None:
    wait_until(trains.exists)
    os.kill(os.getpid(), signal.SIGKILL)


def train_on_and_on(trains: Path | None, context: Context) -> None:
    model = nn.Linear(4, 1)
    with context.elastic(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0)) as run:
        while True:
            model(torch.ones(1, 4)).sum().backward()
            run.step()
            if trains is not None and context.rank == 0:
                trains.touch()


@pytest.mark.parametrize("victim", ["server 1", "worker 1"])
@pytest.mark.parametrize("is_synchronous", [True, False])
def test_whoever_is_lost_ends_the_training_with_its_name(victim: str, is_synchronous: bool, tmp_path: Path) -> None:
    trains = tmp_path / "trains"
    with pytest.raises(PeerLost, match=f"must stay until the training ends: got exit code -9 for {victim}"):
        launch(
            partial(train_on_and_on, trains),
            n_workers=2,
            n_servers=2,
            is_synchronous=is_synchronous,
            at_start=partial(die, victim=victim, trains=trains),
        )


def fail(context: Context) -> None:
    if context.rank == 1:
        raise ZeroDivisionError("in the script")
    train_on_and_on(None, context)


def test_an_error_in_the_script_is_shown() -> None:
    with pytest.raises(RuntimeError, match=r"worker 1 has failed:(.|\n)*ZeroDivisionError: in the script"):
        launch(fail, n_workers=2, n_servers=1)


def mix(context: Context) -> None:
    model = nn.ParameterList([torch.ones(2), torch.ones(2, dtype=torch.float64)])
    context.elastic(model=model, optimizer=torch.optim.SGD(model.parameters()))


def test_parameters_of_two_types_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"must be of one type.*float32 on cpu; torch.float64 on cpu"):
        launch(mix, n_workers=1, n_servers=1)


@pytest.mark.parametrize(("n_workers", "n_servers"), [(0, 1), (1, 0)])
def test_there_must_be_workers_and_servers(n_workers: int, n_servers: int) -> None:
    with pytest.raises(ValueError, match="must be 1 or more"):
        launch(mix, n_workers=n_workers, n_servers=n_servers)


# Who keeps what.


def test_every_element_has_one_server() -> None:
    drawn = random.Random(1)
    for _ in range(200):
        sizes = [drawn.choice([0, 1, 5, 100, 999, 20_000]) for _ in range(drawn.randrange(1, 12))]
        kept = sorted(
            (one.i_parameter, one.start, one.end)
            for server in shared_out(sizes, drawn.randrange(1, 9))
            for one in server
        )
        for i, size in enumerate(sizes):
            bounds = [(start, end) for j, start, end in kept if j == i]
            assert [start for start, _ in bounds] == [0, *(end for _, end in bounds)][: len(bounds)]
            assert bounds[-1][1] == size


def test_parameters_fill_servers_up_to_the_mean() -> None:
    """Mean 6: 5 and 4 on empty servers, 2 beside the 4 and not beside the 5, 1 beside the 5."""
    sizes = [200, 500, 100, 400]
    servers = [[kept.n_elements for kept in server] for server in shared_out(sizes, 2)]
    assert [sorted(server) for server in servers] == [[100, 500], [200, 400]]


def test_tiny_parameters_level_the_requests() -> None:
    """A server with one large parameter has one request: it gets the tiny ones."""
    assert [len(server) for server in shared_out([9000, 3000, 3000, 3000, *([10] * 4)], 2)] == [4, 4]


def test_no_server_has_more_than_twice_the_mean_load() -> None:
    drawn = random.Random(2)
    for _ in range(200):
        n_servers = drawn.randrange(1, 6)
        sizes = [drawn.choice([1, 50, 1000, 30_000]) for _ in range(drawn.randrange(1, 10))]
        mean = sum(sizes) / n_servers
        loads = [sum(kept.n_elements for kept in server) for server in shared_out(sizes, n_servers)]
        assert max(loads) <= 2 * mean + sum(size for size in sizes if size < 0.01 * mean) + 1
