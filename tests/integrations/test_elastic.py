"""Elastic trainings in the words of Fabric and Accelerate, beside the same one without them."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic_training.stage import Script, play
from tests.integrations import elastic_trainings
from tests.integrations.elastic_trainings import CLIP_NORM, OPTIONS, Seen, made, trained
from torch.optim.lr_scheduler import StepLR

from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.context import Context
from punctual.elastic_training.membership import Membership

pytestmark = [
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.usefixtures("one_thread"),
]  # warnings are the libraries' own

LIBRARIES = {"lightning": elastic_trainings.by_fabric, "accelerate": elastic_trainings.by_accelerate}


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    pytest.importorskip(name, reason=f"{name} is not installed (extra `adapters`)")
    return name


@cache
def expected() -> Seen:
    return elastic_trainings.direct(Context(AgentClient()))


def assert_same(seen: Seen) -> None:
    tensors, sums, _ = seen
    expected_tensors, expected_sums, _ = expected()
    assert all(torch.equal(tensors[name], tensor) for name, tensor in expected_tensors.items())
    assert len(tensors) == len(expected_tensors)
    assert sums == expected_sums[-len(sums) :]


def test_alone_it_is_the_same_to_the_last_bit(library: str) -> None:
    assert_same(LIBRARIES[library](Context(AgentClient())))


def test_with_workers_that_come_and_go_it_is_the_same_to_the_last_bit(library: str) -> None:
    outcomes = play(Script(1, [(2, 2), (6, 1)]), LIBRARIES[library])
    assert outcomes[0][2] == {1, 2}
    for outcome in outcomes:
        assert_same(outcome)


def prepared(library: str) -> tuple[Any, Any, Any, Any]:
    """What begins an elastic training with the library, the library itself, and what it has made."""
    model, optimizer, _ = made()
    if library == "lightning":
        from lightning.fabric import Fabric

        from punctual.integrations.fabric import elastic

        fabric = Fabric(accelerator="cpu", devices=1)
        return elastic, fabric, *fabric.setup(model, optimizer)
    from accelerate import Accelerator

    from punctual.integrations.accelerate import elastic as accelerate_elastic

    accelerator = Accelerator(cpu=True)
    return accelerate_elastic, accelerator, *accelerator.prepare(model, optimizer)


def test_what_would_concern_one_worker_alone_is_refused(library: str) -> None:
    elastic, asked, model, optimizer = prepared(library)
    with elastic(Context(AgentClient()), asked, model, optimizer):
        clip = asked.clip_gradients if library == "lightning" else asked.clip_grad_norm_
        with pytest.raises(ValueError, match=r"clip_norm=1\.0"):
            clip(model, optimizer, max_norm=1.0)
        gather = asked.all_gather if library == "lightning" else asked.gather
        with pytest.raises(ValueError, match=r"run\.evaluate"):
            gather(torch.ones(1))
    gather = asked.all_gather if library == "lightning" else asked.gather
    assert gather(torch.ones(1)).item() == 1.0  # as before


def test_an_optimizer_that_the_library_has_not_prepared_is_refused(library: str) -> None:
    elastic, asked, model, optimizer = prepared(library)
    for given in (optimizer.optimizer, [optimizer]):
        with (
            pytest.raises(ValueError, match=r"must be one that the library has prepared: got a (AdamW|list of 1) for"),
            elastic(Context(AgentClient()), asked, model, given),
        ):
            pass


class Second(AgentClient):
    """The agent of a worker that is not the first."""

    def join(self, **_: Any) -> Membership:
        return Membership(generation=0, rank=1, n_workers=1, source=-1)


@pytest.mark.parametrize("agent", [AgentClient, Second])
def test_the_first_worker_alone_saves(library: str, agent: type[AgentClient], tmp_path: Path) -> None:
    elastic, asked, model, optimizer = prepared(library)
    with elastic(Context(agent()), asked, model, optimizer):
        if library == "lightning":
            asked.save(tmp_path / "kept", {"model": model})
        else:
            asked.save({"a": 1}, str(tmp_path / "kept"))
    assert (tmp_path / "kept").exists() == (agent is AgentClient)


def test_the_precision_of_fabric_is_that_of_the_training() -> None:
    """Its modules insist on `fabric.backward` where something else than float32 is computed with."""
    fabric = pytest.importorskip("lightning.fabric", reason="lightning is not installed (extra `adapters`)")
    from punctual.integrations.fabric import elastic

    mixed, (model, optimizer, _) = fabric.Fabric(accelerator="cpu", devices=1, precision="bf16-mixed"), made()
    module, wrapped = mixed.setup(model, optimizer)
    with elastic(Context(AgentClient()), mixed, module, wrapped, clip_norm=CLIP_NORM, **OPTIONS) as run:
        tensors, sums, _ = trained(run, module, mixed.backward, wrapped.step, StepLR(optimizer, 1, gamma=0.9))
    assert not torch.equal(tensors["0.weight"], expected()[0]["0.weight"])
    assert sums == pytest.approx(expected()[1], rel=0.2)


def test_several_processes_or_a_scaler_are_refused(library: str) -> None:
    from punctual.integrations._elastic import check_alone

    with pytest.raises(ValueError, match=r"one process to the library: got 2 processes"):
        check_alone("Fabric", 2, None)
    with pytest.raises(ValueError, match="bfloat16"):
        check_alone("Fabric", 1, object())


def test_gradients_are_not_accumulated_by_accelerate() -> None:
    pytest.importorskip("accelerate")
    elastic, accelerator, model, optimizer = prepared("accelerate")
    accelerator.gradient_accumulation_steps = 2
    try:
        with (
            pytest.raises(ValueError, match="global_batch_size"),
            elastic(Context(AgentClient()), accelerator, model, optimizer),
        ):
            pass
    finally:
        accelerator.gradient_accumulation_steps = 1
