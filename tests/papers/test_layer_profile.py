"""The profiler of layers on small models."""

from collections.abc import Callable
from pathlib import Path
from time import sleep
from typing import Any

import pytest
import torch
from torch import nn

from punctual.core.errors import InvalidSpec
from punctual.papers.smd.layer_profile import profile
from punctual.papers.smd.layered import LayeredServers
from punctual.papers.smd.layers import LayerProfile, read_table, write_table

#: Longer than anything else in a step of these models.
SLOW_S = 0.02


class Slow(torch.autograd.Function):
    """Passes numbers on, slowly."""

    @staticmethod
    def forward(context: Any, numbers: Any, forward_s: float, backward_s: float) -> Any:
        context.backward_s = backward_s
        sleep(forward_s)
        return numbers.clone()

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        sleep(context.backward_s)
        return gradient, None, None


class SlowLinear(nn.Linear):
    """A layer whose passes take at least so many seconds."""

    def __init__(self, n: int, forward_s: float = 0.0, backward_s: float = 0.0) -> None:
        super().__init__(n, n)
        self.seconds = forward_s, backward_s

    def forward(self, numbers: Any) -> Any:
        return super().forward(Slow.apply(numbers + 0 * self.bias, *self.seconds))


class Tied(nn.Module):
    """Parameters of the model itself, shared ones, ones within a module that is not called, and unused ones."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(8, 20)
        self.embedding = nn.Embedding(20, 8)
        self.head.weight = self.embedding.weight
        self.position = nn.Parameter(torch.zeros(8))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.unused = nn.Linear(3, 3)
        self.frozen = nn.Linear(8, 8).requires_grad_(False)

    def forward(self, words: Any) -> Any:
        numbers = self.frozen(self.embedding(words) + self.position)
        return self.head(self.attention(numbers, numbers, numbers)[0])


def squared(model: Any, batch: Any) -> Any:
    return model(batch).square().mean()


def test_where_the_time_goes_is_found() -> None:
    model = nn.Sequential(SlowLinear(4), nn.ReLU(inplace=True), SlowLinear(4, SLOW_S), SlowLinear(4, 0.0, 2 * SLOW_S))
    layers = profile(model, torch.ones(2, 4), squared, n_repeats=3)
    assert [layer.layer for layer in layers] == ["0", "2", "3"]
    assert [layer.parameter_bytes for layer in layers] == [4 * (16 + 4)] * 3
    assert all(layer.forward_s > 0 and layer.backward_s > 0 for layer in layers)
    assert layers[1].forward_s >= SLOW_S
    assert layers[2].backward_s >= 2 * SLOW_S


def test_each_parameter_with_a_gradient_belongs_to_one_layer() -> None:
    model = Tied()
    layers = profile(model, torch.zeros(2, 5, dtype=torch.long), squared, n_repeats=1)
    sizes = {layer.layer: layer.parameter_bytes for layer in layers}
    assert sizes == {"Tied": 4 * 8, "embedding": 4 * 160, "attention": 4 * (192 + 24 + 64 + 8), "head": 4 * 20}
    assert [layer.layer for layer in layers] == list(sizes)


def test_the_model_stays_as_it_was() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    squared(model, torch.rand(8, 4)).backward()
    gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
    copies = [gradient.clone() for gradient in gradients]
    state = {name: value.clone() for name, value in model.state_dict().items()}
    profile(model, torch.rand(8, 4), squared, n_repeats=1)
    assert all(parameter.grad is before for parameter, before in zip(model.parameters(), gradients, strict=True))
    assert all(torch.equal(after, before) for after, before in zip(gradients, copies, strict=True))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())


class Skipping(nn.Module):
    """Every other step leaves out a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.n_steps = nn.Linear(4, 4), nn.Linear(4, 4), 0

    def forward(self, numbers: Any) -> Any:
        self.n_steps += 1
        return self.second(self.first(numbers)) if self.n_steps % 2 else self.first(numbers)


@pytest.mark.parametrize(
    ("make", "loss", "n_repeats", "complaint"),
    [
        (lambda: nn.Linear(4, 4), squared, 0, "`n_repeats`"),
        (nn.ReLU, squared, 1, "must have parameters"),
        (lambda: nn.Linear(4, 4), lambda model, batch: model(batch), 1, r"scalar.*\(2, 4\)"),
        (lambda: nn.Linear(4, 4), lambda model, batch: 1.0, 1, "scalar.*float"),
        (lambda: nn.Linear(4, 4).requires_grad_(False), squared, 1, "depends on the model"),
        (lambda: nn.Linear(4, 4), lambda model, batch: torch.ones(1, requires_grad=True), 1, "layers with parameters"),
        (Skipping, squared, 3, "the same layers"),
    ],
)
def test_what_cannot_be_profiled_is_told(
    make: Callable[[], Any], loss: Callable[[Any, Any], Any], n_repeats: int, complaint: str
) -> None:
    with pytest.raises(InvalidSpec, match=complaint):
        profile(make(), torch.ones(2, 4), loss, n_repeats=n_repeats)


def test_a_profile_is_a_table_of_the_rule_of_scaling(tmp_path: Path) -> None:
    layers = profile(nn.Linear(4, 4), torch.ones(2, 4), squared, n_repeats=1)
    write_table(tmp_path / "net.csv", layers)
    assert read_table(tmp_path / "net.csv") == layers
    assert isinstance(layers[0], LayerProfile)
    assert LayeredServers(tables=str(tmp_path)).laws["net"].times.forward_s == (layers[0].forward_s,)
