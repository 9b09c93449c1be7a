"""Steps of `bench/dropout.py`: models of a usual size, plain and elastic, in turns."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from _training_turns import loss_of, turns_of
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from punctual.elastic_training.agent_client import NoAgent
from punctual.elastic_training.context import Context

N_WARM, N_TURNS = 3, 11
#: In an epoch, whose first step finds out what the model does: only the first epoch is gone through.
N_STEPS = N_WARM + N_TURNS + 1


class Transformer(nn.Module):
    """Tokens or patches through an encoder; `is_causal` and a score for each token, or one for the whole."""

    def __init__(
        self, first: nn.Module, n_places: int, width: int, n_layers: int, n_out: int, p: float, is_causal: bool
    ) -> None:
        super().__init__()
        self.first, self.places = first, nn.Parameter(torch.zeros(n_places, width))
        layer = nn.TransformerEncoderLayer(
            width, width // 64, 4 * width, p, functional.gelu, batch_first=True, norm_first=True
        )
        self.dropout, self.last = nn.Dropout(p), nn.Linear(width, n_out)
        self.encoder = nn.TransformerEncoder(layer, n_layers, enable_nested_tensor=False)
        self.mask = nn.Transformer.generate_square_subsequent_mask(n_places) if is_causal else None

    def forward(self, inputs: Tensor) -> Tensor:
        seen = self.dropout(self.first(inputs) + self.places)
        seen = self.encoder(seen, mask=self.mask, is_causal=self.mask is not None)
        scores: Tensor = self.last(seen if self.mask is not None else seen.mean(1))
        return scores


def language_model() -> nn.Module:
    return Transformer(nn.Embedding(65, 384), 256, 384, 6, 65, 0.2, is_causal=True)


def text_classifier() -> nn.Module:
    return Transformer(nn.Embedding(8000, 512), 128, 512, 4, 4, 0.1, is_causal=False)


def vision_transformer() -> nn.Module:
    patches = nn.Sequential(nn.Unfold(4, stride=4), Transposed(), nn.Linear(48, 192))
    return Transformer(patches, 64, 192, 6, 10, 0.1, is_causal=False)


class Transposed(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs.transpose(1, 2)


def vgg() -> nn.Module:
    layers: list[nn.Module] = []
    n_in = 3
    for n_out in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers += [nn.Conv2d(n_in, n_out, 3, padding=1), nn.ReLU()] if n_out else [nn.MaxPool2d(2)]
        n_in = n_out or n_in
    for _ in range(2):
        layers += [nn.Flatten(), nn.Dropout(0.5), nn.Linear(512, 512), nn.ReLU()]
    return nn.Sequential(*layers, nn.Linear(512, 10))


@dataclass(frozen=True)
class Case:
    """A model with the shape of its samples; whole numbers below `n_tokens`, or 0: images."""

    build: Callable[[], nn.Module]
    n_samples: int
    shape: tuple[int, ...]
    n_tokens: int = 0
    n_classes: int = 10
    scores_each: bool = False

    def data(self) -> TensorDataset:
        shape = (N_STEPS * self.n_samples, *self.shape)
        inputs = torch.randint(self.n_tokens, shape) if self.n_tokens else torch.randn(shape)
        return TensorDataset(inputs, torch.randint(self.n_classes, shape if self.scores_each else shape[:1]))


CASES = {
    "GPT, 6 × 384, 10.8 million, 16 × 256 tokens, dropout 0.2": Case(
        language_model, 16, (256,), 65, 65, scores_each=True
    ),
    "BERT, 4 × 512, 16.8 million, 32 × 128 tokens, 0.1": Case(text_classifier, 32, (128,), 8000, 4),
    "ViT, 6 × 192, 2.7 million, 64 images of 32 × 32, 0.1": Case(vision_transformer, 64, (3, 32, 32)),
    "VGG-11 without BatchNorm, 9.8 million, 128 images, 0.5": Case(vgg, 128, (3, 32, 32)),
}


def steps_of(case: Case, options: dict[str, Any] | None) -> Iterator[None]:
    """A step each time; without options plain."""
    torch.manual_seed(0)
    model, dataset = case.build(), case.data()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    if options is None:
        while True:
            for batch in torch.randperm(len(dataset)).split(case.n_samples):
                optimizer.zero_grad()
                loss = loss_of(model, *dataset[batch])
                torch.autograd.backward(loss)
                loss.item()
                optimizer.step()
                yield
    with Context(NoAgent()).elastic(model=model, optimizer=optimizer, **options) as run:
        for _ in run.epochs(1_000_000):
            for inputs, targets in run.batches(dataset, global_batch_size=case.n_samples):
                run.backward(loss_of(model, inputs, targets))
                if run.step():
                    yield


def measured(case: Case, ways: Iterable[dict[str, Any] | None], n_turns: int) -> list[list[float]]:
    """Return processor seconds of a step in each way, turn by turn; the options of an elastic step, or none of a plain one."""
    turns = turns_of([steps_of(case, options) for options in ways], N_WARM + n_turns)
    return [[cpu_s for _, cpu_s in turn] for turn in turns[N_WARM:]]
