"""A training without workers: the same calls, in this process."""

import ctypes
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.elastic_training.trainings import fall, tensors
from tests.waiting import PATIENCE_S
from torch import Tensor, nn
from torch.nn import functional
from torch.optim.lr_scheduler import LinearLR, ReduceLROnPlateau
from torch.optim.swa_utils import AveragedModel
from torch.utils.data import Dataset

from punctual.channel import GOAL_VARIABLE, Directives, SharedBlock
from punctual.channel import ProgramState as Stage
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.context import Context
from punctual.elastic_training.dropout import draw
from punctual.elastic_training.evaluation import EvaluationProgress
from punctual.elastic_training.replica import Replica, TrainingState, put_together, take_apart
from punctual.elastic_training.run import ElasticRun
from punctual.elastic_training.sample_means import are_alike, weights

Loss = Callable[[nn.Module, Tensor, Tensor], Tensor]


pytestmark = pytest.mark.usefixtures("one_thread")


class MemoryStore(CheckpointStore):
    """A store of checkpoints in memory."""

    def __init__(self, state: TrainingState | None = None) -> None:
        super().__init__("nowhere")
        self.state = state
        self.is_closed = False

    def latest(self) -> TrainingState | None:
        return self.state

    def save(self, state: TrainingState) -> None:
        self.state = TrainingState({name: tensor.clone() for name, tensor in state.tensors.items()}, dict(state.values))

    def is_due(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True


def mean_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(model(inputs), targets)


def optimizer_of(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.1)


def run_of(model: nn.Module, store: CheckpointStore | None = None, **options: Any) -> ElasticRun:
    optimizer = options.pop("optimizer", None) or optimizer_of(model)
    return Context(AgentClient(), store).elastic(model=model, optimizer=optimizer, **options)


def train(
    model: nn.Module,
    loss_of: Loss = mean_loss,
    *,
    n_epochs: int = 2,
    loop: dict[str, Any] | None = None,
    **options: Any,
) -> ElasticRun:
    with run_of(model, **options) as run:
        for _ in run.epochs(n_epochs):
            for inputs, targets in run.batches(tensors(), **{"global_batch_size": 32, **(loop or {})}):
                run.backward(loss_of(run.model, inputs, targets))
                run.step()
    return run


def linear() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(6, 3)


def test_one_worker_trains_as_a_plain_loop_does() -> None:
    model, plain = linear(), linear()
    optimizer = torch.optim.SGD(plain.parameters(), lr=0.1)
    run = train(model, n_epochs=1, virtual_ranks=1, loop={"shuffle": False})
    for i in range(0, 103, 32):
        inputs, targets = tensors()[i : i + 32]
        optimizer.zero_grad()
        loss = mean_loss(plain, inputs, targets)
        torch.autograd.backward(loss)
        optimizer.step()
    assert (run.step_number, run.loss) == (4, loss.item())
    assert all(torch.equal(mine, other) for mine, other in zip(model.parameters(), plain.parameters(), strict=True))


class Noisy(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs + 0.1 * torch.randn_like(inputs)


class DroppedWeights(nn.Module):
    """Drops weights, not features; there are as many rows as samples."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(32, 6))

    def forward(self, inputs: Tensor) -> Tensor:
        return inputs @ functional.dropout(self.weight, 0.5, self.training).t()[:, :6]


def parts_each_step(model: nn.Module, loss_of: Loss = mean_loss, **options: Any) -> list[int]:
    """Parts that each step of the second half of an epoch was made of."""
    n_parts: Counter[int] = Counter()

    def counted(of: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
        n_parts[run.step_number] += 1
        return loss_of(of, inputs, targets)

    with run_of(model, **options) as run:
        for inputs, targets in run.batches(tensors(96), global_batch_size=32):
            run.backward(counted(run.model, inputs, targets))
            run.step()
    return [n_parts[i] for i in range(3)]


def noisy_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    return mean_loss(model, inputs * (1 + 0.1 * random.random()), targets)


def masked_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    mask = inputs[:, 0] > 0
    return (functional.cross_entropy(model(inputs), targets, reduction="none") * mask).sum() / mask.sum()


def penalised_loss(model: nn.Module, inputs: Tensor, targets: Tensor) -> Tensor:
    """A mean by hand of means that each belong to a sample, and a penalty of the weights."""
    losses = functional.mse_loss(model(inputs), torch.zeros(len(inputs), 3), reduction="none").mean(1)
    penalty = sum(param.square().sum() + 0.1 * param.norm() for param in model.parameters())
    return 0.5 * losses.sum() / len(inputs) + mean_loss(model, inputs, targets).mean() + 0.01 * penalty


@pytest.mark.parametrize(
    ("layer", "loss_of", "options", "n_parts"),
    [
        (nn.Identity(), mean_loss, {}, [8, 1, 1]),
        (nn.Dropout(0.5), mean_loss, {}, [8, 1, 1]),
        (nn.Dropout(0.5), mean_loss, {"fuse": False}, [8, 8, 8]),
        (nn.Dropout(0.5), mean_loss, {"deterministic": True}, [8, 8, 8]),
        (nn.Dropout(0.5), mean_loss, {"virtual_ranks": 1}, [1, 1, 1]),
        (nn.BatchNorm1d(6), mean_loss, {}, [8, 8, 8]),
        (nn.BatchNorm1d(6, track_running_stats=False), mean_loss, {}, [8, 8, 8]),
        (nn.LayerNorm(6), mean_loss, {}, [8, 1, 1]),
        (Noisy(), mean_loss, {}, [8, 8, 8]),
        (nn.AlphaDropout(0.5), mean_loss, {}, [8, 8, 8]),
        (DroppedWeights(), mean_loss, {}, [8, 8, 8]),
        (nn.Identity(), noisy_loss, {}, [8, 8, 8]),
        (nn.Identity(), masked_loss, {}, [8, 8, 8]),
        (nn.Identity(), penalised_loss, {"virtual_ranks": 5}, [5, 1, 1]),
    ],
    ids=[
        "plain",
        "dropout",
        "told-not-to",
        "deterministic",
        "one-rank",
        "batch-norm",
        "batch-norm-without-averages",
        "layer-norm",
        "noise",
        "alpha",
        "weights",
        "body",
        "masked",
        "penalised",
    ],
)
def test_virtual_ranks_go_together_only_where_that_makes_no_difference(
    layer: nn.Module, loss_of: Loss, options: dict[str, Any], n_parts: list[int]
) -> None:
    assert parts_each_step(nn.Sequential(layer, nn.Linear(6, 3)), loss_of, **options) == n_parts


@pytest.mark.filterwarnings("ignore")  # torch's own, as it compiles
def test_dropout_that_is_compiled_keeps_virtual_ranks_apart() -> None:
    model: Any = torch.compile(nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), backend="aot_eager")
    assert parts_each_step(model) == [8, 8, 8]


def test_a_mean_over_nothing_is_no_mean_over_samples() -> None:
    values = torch.ones(4, requires_grad=True)
    assert are_alike([weights(values.mean(), 4), weights(values[:2].mean(), 2)])
    assert not are_alike([weights(values.mean(), 4), weights(values[:0].mean(), 4)])


@pytest.mark.parametrize("kind", ["dropout", "attention"])
def test_fused_or_not_the_masks_belong_to_the_virtual_rank(kind: str) -> None:
    def model() -> nn.Module:
        torch.manual_seed(0)
        if kind == "dropout":
            return nn.Sequential(nn.Linear(6, 64), nn.Dropout(0.5), nn.Linear(64, 3))
        layer = nn.TransformerEncoderLayer(6, 2, 16, dropout=0.3, batch_first=True)
        return nn.Sequential(nn.Unflatten(1, (1, 6)), layer, nn.Flatten(), nn.Linear(6, 3))

    # With micro-batches of 8 samples two virtual ranks of 4 fit into each part, without any all eight do.
    whole, halves = model(), model()
    train(whole)
    train(halves, loop={"micro_batch_size": 8})
    for mine, other in zip(whole.parameters(), halves.parameters(), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-6)


def test_a_recomputed_forward_has_the_masks_it_had() -> None:
    class Recomputed(nn.Sequential):
        def forward(self, inputs: Tensor) -> Tensor:
            from torch.utils.checkpoint import checkpoint

            return checkpoint(super().forward, inputs, use_reentrant=False)

    made = []
    for kind in (nn.Sequential, Recomputed):
        torch.manual_seed(0)
        model = kind(nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))
        train(model)
        made.append([param.detach().clone() for param in model.parameters()])
    assert all(torch.equal(mine, other) for mine, other in zip(*made, strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_mask_has_ones_with_their_probability(dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(7)
    mask = torch.full((101, 999), torch.nan, dtype=dtype)
    for p in (1e-12, 0.1, 0.5, 0.75, 1 - 1e-12):
        draw(mask, p, generator)
        assert set(mask.unique().tolist()) <= {0.0, 1.0}
        assert mask.double().mean().item() == pytest.approx(p, abs=0.006)  # four standard deviations
        together = (mask[:, 1:] * mask[:, :-1]).double().mean().item()
        assert together == pytest.approx(p * p, abs=0.01), "neighbours have nothing to do with each other"


def test_dropout_is_torchs_own_again_afterwards() -> None:
    own = functional.dropout, functional.scaled_dot_product_attention
    with run_of(linear()):
        assert functional.dropout is not own[0]
    assert (functional.dropout, functional.scaled_dot_product_attention) == own
    store = MemoryStore()
    store.state = TrainingState({}, {"extra": {}})
    with pytest.raises(ValueError, match="must hold a tensor"), run_of(linear(), store):
        pass
    assert (functional.dropout, functional.scaled_dot_product_attention) == own, "also if it cannot begin"


class Shift:
    """A transform with generators of its own."""

    def __init__(self) -> None:
        self.numpys, self.torchs = np.random.default_rng(0), torch.Generator()
        self.others: dict[str, Any] = {"python": random.Random(0), "old": np.random.RandomState(0)}

    def __call__(self, inputs: Tensor) -> Tensor:
        drawn = [self.numpys.random(), *(other.uniform(0, 1) for other in self.others.values())]
        return inputs + sum(drawn) + torch.rand((), generator=self.torchs)


class Augmented(Dataset[tuple[Tensor, int]]):
    """Each sample drawn anew."""

    def __init__(self) -> None:
        self.transforms = [Shift()]

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> tuple[Tensor, int]:
        return self.transforms[0](torch.randn(6) + random.random()), i % 3


def test_augmentation_belongs_to_the_virtual_rank_whoever_fetches_it() -> None:
    def all_inputs(*, fuse: bool, n_loaders: int = 0) -> Tensor:
        seen = []
        with run_of(linear(), fuse=fuse) as run:
            for _ in run.epochs(2):
                for inputs, targets in run.batches(Augmented(), global_batch_size=32, n_loaders=n_loaders):
                    seen.append(inputs)
                    torch.randn(run.step_number)  # whatever the script draws
                    run.backward(mean_loss(run.model, inputs, targets))
                    run.step()
        return torch.cat(seen)

    expected = all_inputs(fuse=False)
    assert torch.equal(all_inputs(fuse=True), expected)
    assert torch.equal(all_inputs(fuse=False, n_loaders=2), expected)


def test_loaders_follow_when_virtual_ranks_go_together() -> None:
    def all_inputs(n_loaders: int) -> list[Tensor]:
        with run_of(linear()) as run:
            seen = []
            for inputs, targets in run.batches(Augmented(), global_batch_size=16, n_loaders=n_loaders):
                seen.append(inputs)
                run.backward(mean_loss(run.model, inputs, targets))
                run.step()
        return seen

    alone, ahead = all_inputs(0), all_inputs(1)
    assert [len(inputs) for inputs in alone] == [2] * 8 + [16] * 3
    assert all(torch.equal(mine, other) for mine, other in zip(alone, ahead, strict=True))


class DeathSignal(Dataset[int]):
    """Samples are the signal that the process which fetches them gets at its parent's end."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, i: int) -> int:
        number = ctypes.c_int()
        assert ctypes.CDLL(None).prctl(2, ctypes.byref(number)) == 0
        return number.value


def test_loaders_end_with_their_worker() -> None:
    """A loader that outlives it finds its connections broken, and shows that to the user."""
    model = nn.Linear(1, 1)
    with run_of(model) as run:
        for numbers in run.batches(DeathSignal(), global_batch_size=32, n_loaders=1):
            assert numbers.unique().tolist() == [signal.SIGKILL]
            run.backward(model(torch.ones(1, 1)).mean())
            run.step()


class WithSpare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.spare = nn.Linear(6, 3), nn.Linear(6, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        scores: Tensor = self.used(inputs)
        return scores


@pytest.mark.parametrize("deterministic", [False, True])
def test_a_parameter_that_is_not_used_is_left_alone(deterministic: bool) -> None:
    model = WithSpare()
    before = model.spare.weight.detach().clone()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, weight_decay=0.5)
    train(model, optimizer=optimizer, deterministic=deterministic)
    assert torch.equal(model.spare.weight, before)


def test_gradients_are_cut_before_the_step() -> None:
    model = linear()
    before = model.weight.detach().clone()
    with run_of(model, optimizer=torch.optim.SGD(model.parameters(), lr=1.0)) as run:
        for inputs, targets in run.batches(tensors(32), global_batch_size=32):
            run.backward(100 * mean_loss(run.model, inputs, targets))
            run.step(clip_norm=0.25)
    assert float((model.weight.detach() - before).norm()) <= 0.2501


@pytest.mark.parametrize("options", [{}, {"deterministic": True}, {"fuse": False}, {"virtual_ranks": 3}])
@pytest.mark.parametrize("n_samples_max", [None, 3])
def test_the_loss_of_a_step_is_the_mean_over_its_batch(options: dict[str, Any], n_samples_max: int | None) -> None:
    model, losses = linear(), []
    with run_of(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.0), **options) as run:
        for inputs, targets in run.batches(
            tensors(), global_batch_size=32, shuffle=False, micro_batch_size=n_samples_max
        ):
            run.backward(mean_loss(run.model, inputs, targets))
            if run.step():
                losses.append(run.loss)
    expected = [mean_loss(model, *tensors()[i : i + 32]).item() for i in range(0, 103, 32)]  # the last one of seven
    assert losses == pytest.approx(expected, rel=1e-6)


def resumable(
    store: CheckpointStore, save_at: int, epochs_from: list[int], *, has_two: bool = False
) -> tuple[nn.Module, list[float], list[float]]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Dropout(0.3), nn.Linear(16, 3))
    rest = [*model.parameters()][has_two:]
    optimizer = torch.optim.AdamW(rest, lr=0.01)
    more = [torch.optim.SGD([model.get_parameter("0.weight")], lr=0.1, momentum=0.9)] if has_two else []
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, total_steps=12)
    by_epoch = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    losses, sums = [], []
    with run_of(model, store, optimizer=[optimizer, *more], extra={"a": scheduler, "b": by_epoch}) as run:
        for epoch in run.epochs(3):
            epochs_from.append(epoch)
            for inputs, targets in run.batches(tensors(), global_batch_size=32):
                if run.step_number == save_at:
                    run.checkpoint()
                run.backward(mean_loss(run.model, inputs, targets))
                if run.step():
                    scheduler.step()
                    losses.append(run.loss)
            by_epoch.step()
            sums.append(float(run.evaluate(lambda of, batch: of(batch[0]).sum(), tensors(), batch_size=9)))
            if save_at == -run.step_number:
                run.checkpoint()
    return model, losses, sums


@pytest.mark.parametrize(
    ("save_at", "has_two"), [*((at, False) for at in (0, 2, 4, 7, -4, -8, -12)), (2, True), (7, True), (-8, True)]
)
def test_a_resumed_training_goes_on_as_if_nothing_had_happened(
    save_at: int, has_two: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    store = MemoryStore()
    whole, losses, sums = resumable(store, save_at, [], has_two=has_two)
    assert store.state is not None
    assert store.is_closed
    epochs: list[int] = []
    again, rest, sums_of_rest = resumable(MemoryStore(store.state), 100, epochs, has_two=has_two)
    assert f"training goes on at step {abs(save_at)}, from" in capsys.readouterr().err
    assert rest == losses[len(losses) - len(rest) :]
    assert len(rest) == 12 - abs(save_at)
    assert sums_of_rest == sums[len(sums) - len(sums_of_rest) :]
    for mine, other in zip(whole.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize("ends_by", ["an exception", "a loop that is held"])
def test_a_checkpoint_in_the_body_has_what_the_rest_of_the_body_does(ends_by: str) -> None:
    def rate(store: CheckpointStore, ends_at: int = -1) -> float:
        model = linear()
        optimizer = optimizer_of(model)
        schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.5)
        with suppress(InterruptedError), run_of(model, store, optimizer=optimizer, extra={"schedule": schedule}) as run:
            for _ in run.epochs(2):
                held = run.batches(tensors(), global_batch_size=32) if ends_by == "a loop that is held" else None
                for inputs, targets in held or run.batches(tensors(), global_batch_size=32):
                    run.backward(mean_loss(run.model, inputs, targets))
                    if run.step():
                        if run.step_number == 3:
                            run.checkpoint()
                        schedule.step()
                        if run.step_number == ends_at:
                            raise InterruptedError
        return float(optimizer.param_groups[0]["lr"])

    store = MemoryStore()
    assert rate(store, 3) == 0.1 / 8
    assert rate(store) == 0.1 / 256


def test_the_states_of_two_optimizers_are_in_one_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    whole, _, _ = resumable(CheckpointStore(tmp_path, every_s=3600.0), -8, [], has_two=True)
    again, rest, _ = resumable(CheckpointStore(tmp_path, every_s=3600.0), 100, [], has_two=True)
    assert len(rest) == 4
    assert f"training goes on at step 8, from '{tmp_path}/00000001.safetensors'" in capsys.readouterr().err
    for mine, other in zip(whole.state_dict().values(), again.state_dict().values(), strict=True):
        assert torch.equal(mine, other)


@pytest.mark.parametrize(
    ("before", "after"), [(False, True), (True, False)], ids=["another-optimizer", "one-optimizer-less"]
)
def test_a_checkpoint_of_other_optimizers_is_refused(before: bool, after: bool) -> None:
    store = MemoryStore()
    resumable(store, 2, [], has_two=before)
    with pytest.raises(ValueError, match=r"Give the same ones as before"):
        resumable(MemoryStore(store.state), 100, [], has_two=after)


def replica(layers: str = "12", kind: Any = torch.optim.SGD, part: Any = None, **options: Any) -> Replica:
    modules: dict[str, nn.Module] = {"1": nn.Linear(6, 3, **options), "2": nn.Linear(3, 3), "3": nn.Linear(3, 3)}
    model = nn.ModuleDict({name: modules[name] for name in layers})
    optimizer = kind(model["1"].parameters(), lr=0.1)
    return Replica(model, optimizer, {"part": part(optimizer)} if part else {})


@pytest.mark.parametrize(
    ("before", "after", "part"),
    [
        ({"kind": torch.optim.Adam}, {}, "got Adam for optimizer, SGD in the script"),
        ({}, {"bias": False}, "SGD of other parameters, or in another order, for optimizer"),
        (
            {"layers": "123"},
            {},
            "must hold no tensor: got a tensor of shape (3, 3) and type float32 for 'model/3.weight'",
        ),
        ({}, {"layers": "123"}, "a tensor of shape (3, 3) and type float32: got no tensor for 'model/3.weight'"),
        (
            {"dtype": torch.float64},
            {},
            "type float32: got a tensor of shape (3, 6) and type float64 for 'model/1.weight'",
        ),
        ({"part": ReduceLROnPlateau}, {}, "got ReduceLROnPlateau for extra['part'], nothing in the script"),
        ({}, {"part": ReduceLROnPlateau}, "got nothing for extra['part'], ReduceLROnPlateau in the script"),
        (
            {"part": ReduceLROnPlateau},
            {"part": LinearLR},
            "got ReduceLROnPlateau for extra['part'], LinearLR in the script",
        ),
    ],
)
def test_the_state_of_another_training_is_refused(before: dict[str, Any], after: dict[str, Any], part: str) -> None:
    state = replica(**before).collect()
    replica(**before).put_back(state)
    with pytest.raises(ValueError, match=re.escape(part)):
        replica(**after).put_back(state)


def test_tensors_keep_apart_whatever_their_keys() -> None:
    state: dict[Any, Any] = {
        1: torch.zeros(1),
        "1": torch.ones(1),
        "a/b": torch.full((1,), 2.0),
        "a": {"b": torch.full((1,), 3.0)},
    }
    tensors: dict[str, Tensor] = {}
    assert put_together(take_apart(state, "extra", tensors), tensors) == state
    assert len(tensors) == 4


def test_a_resumed_training_keeps_its_number_of_virtual_ranks() -> None:
    def last(of: MemoryStore, **options: Any) -> nn.Linear:
        model = linear()
        with run_of(model, of, deterministic=True, **options) as run:
            for inputs, targets in run.batches(tensors(96), global_batch_size=32):
                if run.step_number == 1:
                    run.checkpoint()
                run.backward(mean_loss(run.model, inputs, targets))
                run.step()
        return model

    store = MemoryStore()
    whole = last(store, virtual_ranks=2)
    assert torch.equal(last(store).weight, whole.weight)
    assert not torch.equal(last(MemoryStore()).weight, whole.weight)


def test_on_its_way_to_a_device_an_optimizer_keeps_its_state_and_its_parameters() -> None:
    model = linear()
    optimizer = torch.optim.Adagrad(model.parameters(), initial_accumulator_value=0.5)
    replica = Replica(model, optimizer, {})
    replica.move(torch.device("cpu"))
    assert optimizer.param_groups[0]["params"][0] is model.weight
    assert torch.equal(optimizer.state[model.weight]["sum"], torch.full((3, 6), 0.5))


def test_a_state_that_is_kept_more_precisely_than_its_parameter_stays_so() -> None:
    def replica() -> Replica:
        param = nn.Linear(2, 2).bfloat16()
        optimizer = torch.optim.AdamW(param.parameters())
        for tensor in param.parameters():
            optimizer.state[tensor] = {
                "step": torch.tensor(3.0), "exp_avg": torch.rand_like(tensor, dtype=torch.float32),
                "exp_avg_sq": torch.rand_like(tensor, dtype=torch.float32),
            }  # fmt: skip
        return Replica(param, optimizer, {})

    one, other = replica(), replica()
    other.put_back(one.collect())
    left, right = one.collect().tensors, other.collect().tensors
    assert left.keys() == right.keys()
    assert all(left[name].dtype == right[name].dtype and torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize(
    ("body", "parts"),
    [
        (lambda run, x, y: run.step(), ("must be called once for each batch", "a call without it")),
        (lambda run, x, y: None, ("each batch must get `run.backward` and `run.step`", "a batch without them")),
        (lambda run, x, y: [run.backward(run.model(x).mean()) for _ in "ab"], ("one backward", "another one")),
        (lambda run, x, y: run.backward(run.model(x)), ("`loss` must be one number", "shape (4, 3)", "loss.mean()")),
    ],
)
def test_a_body_that_does_something_else_is_told(body: Callable[..., object], parts: tuple[str, ...]) -> None:
    with pytest.raises(ValueError) as caught, run_of(linear()) as run:  # noqa: PT012
        for inputs, targets in run.batches(tensors(), global_batch_size=32):
            body(run, inputs, targets)
    assert all(part in str(caught.value) for part in parts), caught.value


def test_a_loop_that_is_left_amid_a_step_is_an_error() -> None:
    """Its gradients so far would be lost, and after how many batches that is depends on the number of workers."""

    def leave(i_part: int) -> ElasticRun:
        with run_of(linear()) as run:
            for _ in run.epochs(2):
                for i, (inputs, targets) in enumerate(run.batches(tensors(), global_batch_size=32)):
                    run.backward(mean_loss(run.model, inputs, targets))
                    run.step()
                    if i == i_part:
                        break
        return run

    assert leave(8).step_number == 4  # after a step of eight parts and one of one; the second epoch the same
    with pytest.raises(ValueError, match=r"left between two steps: got a step .* after 0 others.* `if run\.step\(\):`"):
        leave(5)


@pytest.mark.parametrize("n_epochs", [1, 2])
def test_a_loop_that_is_left_at_the_top_of_its_body_has_no_steps_missing(page: SharedBlock, n_epochs: int) -> None:
    with run_of(linear()) as run:
        for _ in run.epochs(n_epochs):
            for inputs, targets in run.batches(tensors(), global_batch_size=32):
                if run.step_number == 4 * n_epochs - 1:
                    break
                run.backward(mean_loss(run.model, inputs, targets))
                run.step()
    n_steps = 4 * n_epochs - 1
    assert (page.declaration().state, page.declaration().total_steps, run.step_number) == (
        Stage.LANDED,
        n_steps,
        n_steps,
    )


def test_a_batch_may_be_looked_at_before_the_loop() -> None:
    with run_of(linear()) as run:
        assert len(next(iter(run.batches(tensors(), global_batch_size=32)))[0]) == 4
        for inputs, targets in run.batches(tensors(), global_batch_size=32):
            run.backward(mean_loss(run.model, inputs, targets))
            run.step()
    assert run.step_number == 4


def each_part(run: ElasticRun, change: Callable[[], object]) -> None:
    for inputs, targets in run.batches(tensors(), global_batch_size=32):
        run.backward(mean_loss(run.model, inputs, targets))
        run.step()
        change()


@pytest.mark.filterwarnings("ignore:Detected call")  # torch's own, where a scheduler comes before the first step
@pytest.mark.parametrize("options", [{}, {"deterministic": True}])
@pytest.mark.parametrize("kind", ["a scheduler", "an average of weights", "a meter"])
def test_what_belongs_to_a_step_is_not_done_in_each_part_of_it(kind: str, options: dict[str, Any]) -> None:
    """How many parts a step has depends on the number of workers."""
    model = linear()
    optimizer = optimizer_of(model)
    extra: Any = {
        "a scheduler": lambda: torch.optim.lr_scheduler.ConstantLR(optimizer),
        "an average of weights": lambda: AveragedModel(model),
        "a meter": Meter,
    }[kind]()
    change = extra.update_parameters if kind == "an average of weights" else extra.step
    arguments = (model,) if kind == "an average of weights" else ()
    with (
        pytest.raises(
            ValueError, match=r"must go on once a step: got .* for part 1 of 8 of step 1\. Write `if run\.step"
        ),
        run_of(model, optimizer=optimizer, extra={"part": extra}, **options) as run,
    ):
        each_part(run, lambda: change(*arguments))


def test_a_rate_that_follows_from_the_step_may_be_set_anywhere() -> None:
    model = linear()
    optimizer = optimizer_of(model)
    with run_of(model, optimizer=optimizer, deterministic=True) as run:
        each_part(run, lambda: optimizer.param_groups[0].update(lr=0.1 / (1 + run.step_number)))
    assert optimizer.param_groups[0]["lr"] == 0.1 / 5


class Meter:
    """A part of `extra` that counts."""

    n = 0

    def step(self) -> None:
        self.n += 1

    def state_dict(self) -> dict[str, int]:
        return {"n": self.n}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.n = state["n"]


def test_a_second_loop_in_an_epoch_is_refused() -> None:
    """Its samples would be taken for those that were seen already."""
    with run_of(linear()) as run:
        for inputs, _ in run.batches(tensors(), global_batch_size=32):
            run.backward(run.model(inputs).mean())
            run.step()
        with pytest.raises(ValueError, match="each epoch must have one loop"):
            next(run.batches(tensors(), global_batch_size=32))


def evaluated(function: Callable[[nn.Module, Any], Any], batch_size: int = 16) -> Any:
    with run_of(linear()) as run:
        return run.evaluate(function, tensors(), batch_size=batch_size)


def test_an_evaluation_may_return_whole_numbers_for_some_batches_and_others_for_others() -> None:
    assert float(evaluated(lambda _, batch: 1 if len(batch[0]) == 13 else 0.5)) == 7 + 0.5


@pytest.mark.parametrize(
    ("start", "part"),
    [
        (lambda: run_of(linear(), virtual_ranks=0), "`virtual_ranks` must be 1 or more"),
        (lambda: run_of([linear()], optimizer=optimizer_of(linear())), "one module: got a list of 1"),  # type: ignore[arg-type]
        (lambda: run_of(linear(), extra={"rate": 3}), "must have state_dict() and load_state_dict()"),
        (
            lambda: list(run_of(linear()).batches(tensors(), global_batch_size=4)),
            "at least the number of virtual ranks",
        ),
        (lambda: evaluated(lambda _, batch: batch[0], batch_size=0), "`batch_size` must be 1 or more"),
        (lambda: evaluated(lambda _, batch: batch[0].sum(1)), "got [(12,)] after [(13,)] for `run.evaluate`"),
        (lambda: evaluated(lambda _, batch: (1,) * len(batch[0])), "tensors of the same shapes, for each batch"),
        (lambda: run_of(linear()).report_loss(1.0), "Give context.elastic(reports_loss=False)"),
        (lambda: run_of(linear()).epochs(-1).__next__(), "`n_epochs` must be 0 or more"),
    ],
)
def test_an_argument_that_cannot_be_used_is_told(start: Callable[[], object], part: str) -> None:
    with pytest.raises(ValueError) as caught:
        start()
    assert part in str(caught.value)


@pytest.mark.parametrize("options", [{}, {"deterministic": True}])
def test_losses_that_are_no_numbers_are_told(options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    """The first and the tenth of twelve steps whose loss is none."""
    train(linear(), lambda model, x, y: mean_loss(model, x, y) * torch.nan, n_epochs=3, **options)
    told = capsys.readouterr().err
    assert "the loss of a step must be a number: got nan (1 so far) for step 1" in told
    assert "got nan (10 so far) for step 10" in told
    assert told.count("punctual: warning") == 2


def test_punctual_hears_of_steps_and_evaluations(page: SharedBlock) -> None:
    model = linear()
    with run_of(model) as run:
        for _ in run.epochs(2, phases=("evaluate",)):
            for inputs, targets in run.batches(tensors(), global_batch_size=32):
                run.backward(mean_loss(run.model, inputs, targets))
                run.step()
            assert page.declaration().total_steps == 8
            assert page.phases()[0].units_planned >= 2  # both are in the plan from the first step on
            run.evaluate(lambda of, batch: of(batch[0]).sum(), tensors(), batch_size=16)
    assert (page.progress().n_steps, page.declaration().state) == (8, Stage.LANDED)
    (entry,) = page.phases()
    assert (entry.name, entry.n_units_done) == ("evaluate", 16)


def test_an_evaluation_is_known_before_the_first_step(page: SharedBlock) -> None:
    n_batches = []

    def total(of: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
        n_batches.append(len(batch[0]))
        return of(batch[0]).sum()

    with run_of(linear()) as run:
        run.rehearse(total, tensors(), batch_size=5)
        assert n_batches == [5, 5]
        assert page.progress().n_steps == 0
        for _ in run.epochs(2, phases=("evaluate",)):
            for inputs, targets in run.batches(tensors(), global_batch_size=32):
                if run.step_number == 0:
                    (entry,) = page.phases()  # eight shards of 12 or 13 samples are three batches each
                    assert (entry.n_units_measured, entry.n_units_done, entry.units_planned) == (2, 0, 2 * 24)
                    assert entry.wall_ns > 0
                run.backward(mean_loss(run.model, inputs, targets))
                run.step()
            run.evaluate(total, tensors(), batch_size=5)
    (entry,) = page.phases()
    assert (entry.n_units_done, entry.units_planned, entry.n_units_measured) == (48, 48, 50)
    assert page.declaration().state == Stage.LANDED


def test_an_evaluation_is_not_done_before_there_is_its_result() -> None:
    told: list[int] = []
    telling = EvaluationProgress(24, told.append, lambda: None)
    for n_done in range(1, 7):
        telling.but_the_last(n_done, 6)  # one worker of four
    assert told == [4] * 5
    for n_done in range(1, 13):
        telling.but_the_last(n_done, 12)  # two are lost, and it begins anew
    assert sum(told) == 22
    telling.end()
    assert sum(told) == 24


def test_whatever_others_may_have_to_wait_for_is_excused(page: SharedBlock, pace: Callable[..., None]) -> None:
    class Watched(AgentClient):
        is_excused = False
        n_excuses = 0

        @contextmanager
        def excused(self) -> Iterator[None]:
            self.is_excused, self.n_excuses = True, self.n_excuses + 1
            yield
            self.is_excused = False

    link, store, model = Watched(), MemoryStore(), linear()
    store.save = lambda state: seen.append(link.is_excused)  # type: ignore[method-assign]
    seen: list[bool] = []
    context = Context(link, store)
    with context.elastic(model=model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1)) as run:
        with run.phase("upload"):
            seen.append(link.is_excused)
        run.checkpoint()
        assert seen == [True, True]
        pace(0.5, 4)  # far slower than it works, also on a loaded machine
        n_before = link.n_excuses
        for inputs, targets in run.batches(tensors(), global_batch_size=32):
            assert not link.is_excused
            run.backward(mean_loss(run.model, inputs, targets))
            run.step()
        assert link.n_excuses > n_before


def test_with_each_batch_the_agent_sees_that_a_worker_goes_on() -> None:
    seen: list[str] = []

    class Watched(AgentClient):
        def stamp(self, n_steps: int, *, waiting: bool) -> None:
            seen.append(f"step {n_steps}" + " waits" * waiting)

    def counted(model: nn.Module, batch: Any) -> float:
        seen.append("batch")
        return 0.0

    model = linear()
    with Context(Watched()).elastic(model=model, optimizer=optimizer_of(model), virtual_ranks=2, fuse=False) as run:
        seen.clear()
        run.evaluate(counted, tensors(8), batch_size=2)
        assert seen == [*["batch", "step 0"] * 4, "step 0 waits", "step 0"]
        seen.clear()
        for inputs, targets in run.batches(tensors(8), global_batch_size=8, micro_batch_size=2):
            run.backward(mean_loss(run.model, inputs, targets))
            run.step()
        assert seen == [*["step 0"] * 4, "step 0 waits", "step 1"]


@pytest.mark.parametrize("deterministic", [False, True])
def test_it_ends_in_the_epoch_in_which_the_goal_is_reached(
    page: SharedBlock, monkeypatch: pytest.MonkeyPatch, deterministic: bool
) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "5.0")
    outcome = fall(Context(AgentClient()), deterministic=deterministic)
    assert outcome == (7, True, [0, 1])  # the middle of 6, 5 and 4; four steps each
    assert page.losses() == (7, [(i + 1, 10.0 - i) for i in range(7)])
    assert (page.declaration().total_steps, page.progress().n_steps, page.declaration().state) == (7, 7, Stage.LANDED)
    (entry,) = page.phases()
    assert entry.n_units_done == entry.units_planned == 16


def test_a_training_that_has_reached_its_goal_does_not_go_on_when_it_is_resumed(
    page: SharedBlock, monkeypatch: pytest.MonkeyPatch, restart: Callable[[], None]
) -> None:
    monkeypatch.setenv(GOAL_VARIABLE, "5.0")
    store = MemoryStore()
    fall(Context(AgentClient(), store), saves=True)
    restart()
    assert fall(Context(AgentClient(), MemoryStore(store.state))) == (7, True, [1])
    assert (page.declaration().total_steps, page.progress().n_steps) == (7, 7)


def test_without_a_goal_no_losses_are_told(page: SharedBlock) -> None:
    assert fall(Context(AgentClient())) == (12, False, [0, 1, 2])
    assert page.losses() == (0, [])


def test_asked_to_stop_it_makes_a_checkpoint_and_leaves(page: SharedBlock) -> None:
    store = MemoryStore()
    with pytest.raises(SystemExit) as caught, run_of(linear(), store) as run:  # noqa: PT012
        for inputs, targets in run.batches(tensors(), global_batch_size=32):
            run.backward(mean_loss(run.model, inputs, targets))
            if run.step() and run.step_number == 1:
                assert page.declaration().can_stop
                page.send(Directives(stop=True))
    assert caught.value.code == 143
    assert store.state is not None
    assert store.state.values["position"]["n_steps"] == 2  # heard at the end of the first step, agreed on in the second
    assert store.is_closed


def test_a_script_is_the_same_without_punctual(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import sys, punctual\n"
        "def train(context):\n"
        "    print('torch' in sys.modules, context is not None)\n"
        "assert not {'torch', 'numpy'} & set(sys.modules)\n"
        "if __name__ == '__main__':\n"
        "    punctual.elastic(train)\n"
    )
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=PATIENCE_S, check=True)
    assert (done.stdout, done.stderr) == ("True True\n", "")
