"""What a script must not give to an elastic training: refused in words that say what is possible."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from tests.elastic_training.trainings import n_right_and_loss, tensors
from torch import nn
from torch.optim import SGD, AdamW
from torch.utils.data import DataLoader, IterableDataset

import punctual
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.context import Context, run_worker
from punctual.elastic_training.run import ElasticRun


def linear() -> nn.Linear:
    return nn.Linear(6, 3)


def made(model: Any, kind: Callable[..., Any] = AdamW) -> ElasticRun:
    return Context(AgentClient()).elastic(model=model, optimizer=kind(model.parameters()))


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


def batch_of(dataset: Any) -> object:
    return next(made(linear()).batches(dataset, global_batch_size=32))


def second() -> object:
    context, model = Context(AgentClient()), linear()
    context.elastic(model=model, optimizer=AdamW(model.parameters()))
    return context.elastic(model=model, optimizer=AdamW(model.parameters()))


class Endless(IterableDataset[int]):
    """A dataset that has a length, but no numbers."""

    def __len__(self) -> int:
        return 64

    def __iter__(self) -> Iterator[int]:
        return iter(range(64))


@pytest.mark.parametrize(
    ("start", "told"),
    [
        (second, "must have one elastic training: got a second `context.elastic`"),
        (lambda: made(linear(), lambda _: []), "or a list or dictionary of some: got a list of 0"),
        (lambda: made(linear(), lambda _: [linear()]), "must be a torch optimizer"),
        (lambda: made(linear(), lambda _: {"a": None}), "must be a torch optimizer"),
        (lambda: made(linear(), lambda params: [SGD(params)] * 2), "each parameter must be in one optimizer"),
        (lambda: made(linear(), lambda _: SGD(linear().parameters())), "must be in `model`, or in a module in `extra`"),
        (lambda: made(linear(), torch.optim.LBFGS), "must step without a closure"),
        (lambda: made(linear(), lambda params: [torch.optim.LBFGS(params)]), "must step without a closure"),
        (lambda: made(nn.DataParallel(linear())), "must hold the whole model"),
        (lambda: made(nn.Sequential(nn.DataParallel(linear()))), "got DataParallel"),
        (lambda: made(compiled(nn.DataParallel(linear()))), "got DataParallel"),
        (lambda: made(nn.Embedding(3, 2, sparse=True)), "gradients must be dense"),
        (lambda: batch_of([]), "a dataset must have samples: got a list of none for `run.batches`"),
        (lambda: batch_of(DataLoader(tensors())), "Give the loader's dataset"),
        (lambda: batch_of(Endless()), "a dataset must have a length, and a sample for each number: got a Endless"),
        (lambda: batch_of(itertools.count()), "a dataset must have a length, and a sample for each number"),
        (lambda: made(linear()).evaluate(n_right_and_loss, [], batch_size=3), "got a list of none for `run.evaluate`"),
        (lambda: made(linear()).rehearse(n_right_and_loss, [], batch_size=3), "got a list of none for `run.evaluate`"),
    ],
)
def test_what_cannot_be_trained_is_told(start: Callable[[], object], told: str) -> None:
    with pytest.raises(ValueError) as caught:
        start()
    assert told in str(caught.value)


def test_a_module_in_extra_may_be_trained_too() -> None:
    model, head = linear(), nn.Linear(3, 2)
    optimizer = SGD([*model.parameters(), *head.parameters()], lr=0.1)
    run = Context(AgentClient()).elastic(model=model, optimizer=optimizer, extra={"head": head})
    with run:
        for inputs, targets in run.batches(tensors(), global_batch_size=32):
            run.backward(nn.functional.cross_entropy(head(model(inputs)), targets % 2))
            run.step()
    assert run.step_number == 4


def sharded(model: nn.Module) -> Any:
    from torch.distributed.fsdp import fully_shard  # takes half a second

    return fully_shard(model)


WRAPPERS: dict[str, Callable[[nn.Module], Any]] = {"DDP": nn.parallel.DistributedDataParallel, "FSDP": sharded}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_model_for_several_processes_cannot_be_made_and_it_is_said_why(name: str) -> None:
    with pytest.raises(
        ValueError, match=r"must hold the whole model.* got '.*' for this training\. Leave out .* torchrun"
    ):
        run_worker(lambda _: WRAPPERS[name](linear()), AgentClient())


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_model_for_several_processes_is_refused_where_there_is_a_process_group(name: str) -> None:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        model = linear()
        wrapped = WRAPPERS[name](model) or model
        for given in (wrapped, compiled(wrapped)):
            with pytest.raises(ValueError, match="must hold the whole model"):
                made(given)
    finally:
        dist.destroy_process_group()


@pytest.mark.filterwarnings("ignore")  # torch's own, of a checkpoint without a process group
def test_what_else_goes_wrong_in_the_script_is_told_as_it_is(tmp_path: Path) -> None:
    def train(_: Context) -> None:
        raise ValueError("no such layer")

    def load(_: Context) -> None:
        from torch.distributed import checkpoint

        checkpoint.load({}, checkpoint_id=str(tmp_path / "none"), no_dist=True)

    with pytest.raises(ValueError, match=r"^no such layer$"):
        run_worker(train, AgentClient())
    with pytest.raises(BaseException, match=r"\.metadata"):
        run_worker(load, AgentClient())


def test_a_script_that_a_launcher_starts_several_times_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[Context] = []
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ValueError, match="must be started as one process: got 2 of a launcher"):
        punctual.elastic(begun.append)
    assert begun == []
    monkeypatch.setenv("WORLD_SIZE", "1")
    punctual.elastic(begun.append)
    assert len(begun) == 1
