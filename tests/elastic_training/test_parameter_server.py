"""Training with parameter servers: as good as a plain loop, and it goes on whoever is lost."""

import json
import os
import random
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic_training.agent_stage import Stage
from tests.elastic_training.server_training import BATCH, dataset, loss_of, make_model, make_optimizer
from tests.waiting import PATIENCE_S, wait_until
from torch import nn

from punctual.channel import EXIT_PREEMPTED
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.collectives import GroupFault
from punctual.elastic_training.context import Context
from punctual.elastic_training.member import _with_newest_state
from punctual.elastic_training.membership import Membership, Progress
from punctual.elastic_training.prefetcher import SampleOrder
from punctual.elastic_training.replica import put_together, take_apart
from punctual.elastic_training.servers.parameter_server import Push, SliceServer, receive, send
from punctual.elastic_training.servers.served_sum import ServedSum
from punctual.elastic_training.servers.slices import shared_out

SCRIPT = str(Path(__file__).parent / "server_script.py")

Trained = tuple[list[list[Any]], list[float]]


pytestmark = pytest.mark.usefixtures("one_thread")


def plainly(kind: str, n_steps: int = 14) -> Trained:
    """The same training without servers."""
    model = make_model()
    optimizer = make_optimizer(kind, model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    losses = []
    order = SampleOrder(len(dataset()), BATCH, seed=3)
    samples = dataset()
    for i in range(n_steps):
        loss = loss_of(model, *samples[order.samples(*divmod(i, order.n_steps))])
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        scheduler.step()
        losses.append(loss.item())
    return [one.tolist() for one in model.parameters()], losses


# A server and its workers, without processes.


class Servers:
    """Servers in threads, and a connection of each of `n_workers` to each of them."""

    def __init__(self, n_workers: int, n_servers: int) -> None:
        self.ends: list[list[Connection]] = [[] for _ in range(n_workers)]
        self.faults: list[BaseException] = []
        self._threads = []
        for _ in range(n_servers):
            peers = []
            for own in self.ends:
                mine, theirs = socket.socketpair()
                own.append(Connection(mine.detach()))
                peers.append(Connection(theirs.detach()))
            self._threads.append(threading.Thread(target=self._run, args=(peers,)))
            self._threads[-1].start()

    def _run(self, peers: Sequence[Connection]) -> None:
        try:
            SliceServer(peers).run()
        except (EOFError, OSError) as error:
            self.faults.append(error)
        for peer in peers:
            peer.close()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., Servers]]:
    made: list[Servers] = []

    def start(n_workers: int, n_servers: int) -> Servers:
        made.append(Servers(n_workers, n_servers))
        return made[-1]

    yield start
    for servers in made:
        for connection in (one for own in servers.ends for one in own):
            connection.close()
        servers.join()


def step(served: ServedSum, optimizer: torch.optim.Optimizer, loss: torch.Tensor, notes: Sequence[float] = ()) -> Any:
    loss.backward()
    served.end_rank(0, loss.item())
    return served.finish(notes, 1.0)


@pytest.mark.parametrize("kind", ["sgd", "adamw"])
@pytest.mark.parametrize("n_servers", [1, 2, 5])
def test_servers_step_to_the_last_bit_as_the_optimizer_would(
    serve: Callable[..., Servers], kind: str, n_servers: int
) -> None:
    model = make_model()
    optimizer = make_optimizer(kind, model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    order, losses = SampleOrder(len(dataset()), BATCH, seed=3), []
    servers = serve(1, n_servers)
    served = ServedSum(optimizer, servers.ends[0], is_first=True, is_synchronous=True)
    for i, (epoch, i_batch) in enumerate(product(range(2), range(order.n_steps))):
        if i == 5:  # others go on with what they had
            assert served.leave()
            served.close()
            servers.join()
            more = serve(1, n_servers + 1)
            served = ServedSum(optimizer, more.ends[0], is_first=True, is_synchronous=True)
        loss = loss_of(model, *dataset()[order.samples(epoch, i_batch)])
        *_, told = step(served, optimizer, loss)
        scheduler.step()
        losses.append(told)
    assert served.leave()
    assert ([one.tolist() for one in model.parameters()], losses) == plainly(kind)
    assert optimizer.state_dict()["state"], "the first worker has it back"


def test_synchronous_gradients_are_summed_and_never_stale(serve: Callable[..., Servers]) -> None:
    servers, models = serve(2, 2), [make_model(), make_model()]
    optimizers = [torch.optim.SGD(model.parameters(), lr=0.1) for model in models]
    reference = make_model()
    inputs, targets = dataset()[:20]
    sums: list[Any] = [None, None]

    def work(rank: int) -> None:
        served = ServedSum(optimizers[rank], servers.ends[rank], is_first=rank == 0, is_synchronous=True)
        part = slice(0, 12) if rank == 0 else slice(12, 20)
        for _ in range(4):
            share = (part.stop - part.start) / 20
            loss = share * loss_of(models[rank], inputs[part], targets[part])
            sums[rank] = (*step(served, optimizers[rank], loss, (1.0, float(rank))), served.staleness)
        served.leave()

    threads = [threading.Thread(target=work, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    plain = torch.optim.SGD(reference.parameters(), lr=0.1)
    for _ in range(4):
        plain.zero_grad()
        loss = loss_of(reference, inputs, targets)
        loss.backward()
        plain.step()
    assert sums[0] == sums[1]
    assert sums[0] == (2.0, 1.0, pytest.approx(loss.item(), rel=1e-5), 0)
    for one, other, expected in zip(*(model.parameters() for model in (*models, reference)), strict=True):
        assert torch.equal(one, other)
        assert torch.allclose(one, expected, atol=1e-6)


def test_asynchronous_gradients_are_applied_as_they_come_and_may_be_stale(serve: Callable[..., Servers]) -> None:
    servers, models = serve(2, 2), [nn.Linear(4, 1, bias=False), nn.Linear(4, 1, bias=False)]
    for model in models:
        nn.init.zeros_(model.weight)
    optimizers = [torch.optim.SGD(model.parameters(), lr=1.0) for model in models]
    first, second = (
        ServedSum(optimizer, ends, is_first=rank == 0, is_synchronous=False)
        for rank, (optimizer, ends) in enumerate(zip(optimizers, servers.ends, strict=True))
    )
    for _ in range(3):  # nobody waits for the other one
        step(first, optimizers[0], models[0].weight.sum())
        assert first.staleness == 0
    step(second, optimizers[1], models[1].weight.sum())
    assert second.staleness == 3
    assert models[1].weight.tolist() == [[-4.0] * 4]
    assert models[0].weight.tolist() == [[-3.0] * 4]
    first.exit_code = 79
    step(first, optimizers[0], models[0].weight.sum())
    step(second, optimizers[1], models[1].weight.sum())
    assert (first.exit_code, second.exit_code) == (79, 79)
    second.exit_code = 0
    step(second, optimizers[1], models[1].weight.sum())
    assert second.exit_code == 0, "it is told once"
    assert second.leave()
    assert first.leave()
    assert models[0].weight.tolist() == [[-7.0] * 4], "who takes the state has all steps"


def test_a_parameter_without_a_gradient_is_left_alone(serve: Callable[..., Servers]) -> None:
    model = nn.ModuleList([nn.Linear(3, 1), nn.Linear(3, 1)])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    before = [one.tolist() for one in model[1].parameters()]
    served = ServedSum(optimizer, serve(1, 2).ends[0], is_first=True, is_synchronous=True)
    step(served, optimizer, model[0](torch.ones(2, 3)).mean())
    assert [one.tolist() for one in model[1].parameters()] == before
    assert served.leave()


def test_a_checkpoint_is_taken_without_stopping_the_servers(serve: Callable[..., Servers]) -> None:
    model = make_model()
    optimizer = make_optimizer("adamw", model)
    served = ServedSum(optimizer, serve(1, 3).ends[0], is_first=True, is_synchronous=True)
    step(served, optimizer, loss_of(model, *dataset()[:4]))
    assert served.fetch_state()
    assert {float(one["step"]) for one in optimizer.state_dict()["state"].values()} == {1.0}
    served.drop_state()
    assert not optimizer.state_dict()["state"]
    step(served, optimizer, loss_of(model, *dataset()[:4]))
    assert served.fetch_state()
    assert {float(one["step"]) for one in optimizer.state_dict()["state"].values()} == {2.0}


def test_a_checkpoint_is_taken_while_a_server_waits_for_a_worker_that_pushes_to_another(
    serve: Callable[..., Servers],
) -> None:
    n_elements = 1 << 20  # for each server; more than a socket holds
    params = [nn.Parameter(torch.zeros(n_elements)) for _ in range(2)]
    servers = serve(2, 2)
    ends = servers.ends[1]
    served = ServedSum(torch.optim.SGD(params, lr=1.0), servers.ends[0], is_first=True, is_synchronous=False)
    push, gradient = Push(0, (), (True, True)), torch.ones(n_elements)
    send(ends[0], push, gradient)
    assert ends[0].poll(PATIENCE_S), "the first server waits until its answer is read"
    fetching = threading.Thread(target=served.fetch_state)
    fetching.start()
    assert servers.ends[0][1].poll(PATIENCE_S), "the second one waits until its state is read"
    pushing = threading.Thread(target=send, args=(ends[1], push, gradient))
    pushing.start()
    pushing.join(5.0)
    has_pushed = not pushing.is_alive()
    receive(ends[0]), ends[0].recv_bytes()  # as a worker does then; that ends the waiting in any case
    for thread in (pushing, fetching):
        thread.join()
    assert has_pushed
    assert [param.sum() for param in params] == [-n_elements, 0.0]


def test_the_servers_state_goes_with_the_settings_of_the_last_boundary() -> None:
    model = make_model()
    optimizer = make_optimizer("adamw", model)
    boundary = take_apart(optimizer.state_dict(), "optimizer", {})
    loss_of(model, *dataset()[:4]).backward()
    optimizer.step()
    optimizer.param_groups[0]["lr"] = 0.5
    tensors: dict[str, torch.Tensor] = {}
    merged = put_together(
        _with_newest_state(boundary, take_apart(optimizer.state_dict(), "optimizer", tensors)), tensors
    )
    assert merged["param_groups"][0]["lr"] == 0.003
    assert {float(kept["step"]) for kept in merged["state"].values()} == {1.0}


def test_a_worker_that_is_lost_is_told_by_the_servers_to_all(serve: Callable[..., Servers]) -> None:
    servers, model = serve(2, 2), make_model()
    optimizer = make_optimizer("sgd", model)
    served = ServedSum(optimizer, servers.ends[0], is_first=True, is_synchronous=True)
    for connection in servers.ends[1]:
        connection.close()
    with pytest.raises(GroupFault, match="a parameter server is gone"):
        step(served, optimizer, loss_of(model, *dataset()[:4]))
    assert not served.leave()
    servers.join()
    assert len(servers.faults) == 2


def test_parameters_of_two_types_are_refused() -> None:
    params = [nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(2, dtype=torch.float64))]
    with pytest.raises(ValueError, match=r"must be of one type.*float32 on cpu; torch.float64 on cpu"):
        ServedSum(torch.optim.SGD(params), [], is_first=True, is_synchronous=True)


# Real processes under an agent.


def start(stage: Stage, folder: Path, n_workers: int, n_servers: int, **options: Any) -> None:
    argument = json.dumps({"folder": str(folder), "kind": "adamw", **options})
    stage.start(SCRIPT, argument, n_workers=n_workers, n_servers=n_servers)


def result(folder: Path, rank: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / f"{rank}.json").read_text())
    return found


def assert_weights(found: dict[str, Any], expected: Trained) -> None:
    for one, other in zip(found["weights"], expected[0], strict=True):
        assert torch.allclose(torch.tensor(one), torch.tensor(other), atol=1e-5)


def test_workers_and_servers_come_and_go_and_nothing_changes(stage: Stage, tmp_path: Path) -> None:
    start(stage, tmp_path, 1, 1, n_epochs=1_000_000, step_s=0.01, kept=str(tmp_path / "kept"))
    status = stage.await_status(lambda status: status.request == 1)
    assert (status.n_workers, status.n_servers) == (1, 1)
    for n_workers, n_servers in ((2, 2), (1, 3), (1, 0), (2, 1)):
        stage.await_step(stage.page.progress().n_steps + 2)
        status = stage.resize(n_workers, n_servers)
        assert (status.n_workers, status.n_servers, status.cause) == (n_workers, n_servers, "")
    stage.leave()
    assert stage.exit_code() == EXIT_PREEMPTED, stage.output()
    status = stage.page.worker_status()
    assert (status.n_resizes, status.n_steps_redone, status.n_workers_lost) == (4, 0, 0)
    ended = result(tmp_path)
    assert ended["n_steps"] == stage.page.progress().n_steps
    assert_weights(ended, plainly("adamw", ended["n_steps"]))


def test_after_a_worker_is_killed_all_begin_again_at_the_checkpoint(stage: Stage, tmp_path: Path) -> None:
    start(stage, tmp_path, 2, 2, kept=str(tmp_path / "kept"), save_at=5, hurt_at=9, how="killed")
    assert stage.exit_code() == 0, stage.output()
    status = stage.page.worker_status()
    assert status.n_workers_lost == 1
    assert "an end by SIGKILL" in stage.output()
    assert "Training begins again at the last checkpoint" in stage.output()
    found, expected = result(tmp_path), plainly("adamw")
    assert found["losses"] == pytest.approx(expected[1][-len(found["losses"]) :], abs=1e-5)
    assert len(found["losses"]) == 9
    assert_weights(found, expected)


def test_after_a_server_is_killed_all_begin_again_at_the_checkpoint(stage: Stage, tmp_path: Path) -> None:
    start(stage, tmp_path, 1, 1, kept=str(tmp_path / "kept"), save_at=5, wait_at=8)
    wait_until(lambda: (tmp_path / "waits").exists() and list((tmp_path / "kept").glob("*.safetensors")))
    (server,) = set(stage.workers()) - {int((tmp_path / "waits").read_text())}
    os.kill(server, signal.SIGKILL)
    (tmp_path / "go").touch()
    assert stage.exit_code() == 0, stage.output()
    assert stage.page.worker_status().n_workers_lost == 1
    assert "parameter server 2" in stage.output()
    assert_weights(result(tmp_path), plainly("adamw"))
    assert len(result(tmp_path)["losses"]) == 9


def test_asynchronous_workers_each_go_their_own_way(stage: Stage, tmp_path: Path) -> None:
    start(stage, tmp_path, 2, 1, synchronous=False, kind="sgd", n_epochs=5)
    assert stage.exit_code() == 0, stage.output()
    first, second = (result(tmp_path, rank)["losses"] for rank in (0, 1))
    assert (len(first), len(second)) == (35, 35)
    assert min(first[7:]) < first[0]


def test_an_error_in_the_script_is_shown(stage: Stage, tmp_path: Path) -> None:
    start(stage, tmp_path, 2, 1, hurt_at=3, how="failed", n_epochs=100)
    assert stage.exit_code() == 1
    assert stage.output().count("ZeroDivisionError: in the script") == 1


# Who keeps what.


def test_two_optimizers_with_servers_are_refused() -> None:
    here, there = socket.socketpair()

    class Served(AgentClient):
        def join(
            self, *, n_steps: int, progress: Progress = None, after_fault: bool = False, has_state: bool = True
        ) -> Membership:
            return Membership(generation=0, rank=0, n_workers=1, peers=(Connection(os.dup(here.fileno())),))

    model = make_model()
    first, *others = model.parameters()
    run = Context(Served()).elastic(model=model, optimizer=[torch.optim.SGD([first]), torch.optim.SGD(others)])
    with (
        here,
        there,
        pytest.raises(ValueError, match="a training with parameter servers must have one optimizer: got 2"),
        run,
    ):
        pass


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
            assert (bounds[-1][1] if bounds else 0) == size  # one without elements needs no server


def test_no_server_has_much_more_than_others() -> None:
    drawn = random.Random(2)
    for _ in range(200):
        n_servers = drawn.randrange(1, 6)
        sizes = [drawn.choice([10, 300, 2520, 25_200, 1_000_000]) for _ in range(drawn.randrange(1, 10))]
        loads = [sum(one.n_elements for one in server) for server in shared_out(sizes, n_servers)]
        mean = sum(sizes) / n_servers
        assert max(loads) < mean + 1
