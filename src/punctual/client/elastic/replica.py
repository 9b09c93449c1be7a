"""One worker's copy of all that the training has learned: model, optimiser, and what the user adds."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from punctual.client.complaint import invalid
from punctual.client.elastic.plain import put_together, take_apart


@dataclass(frozen=True, slots=True)
class TrainingState:
    """A training between two steps.

    Attributes
    ----------
    tensors
        By name: "model/...", "optimizer/...", "extra/...". Not copies: they change with the next step. No two share
        storage, unless the user's own state does.
    values
        All the rest, as JSON can carry it: the optimiser's settings, states of schedulers, the position.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)


class Stateful(Protocol):
    """What `extra` may hold besides tensors and plain values: a scheduler, an average of weights, a meter."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object: ...


_WHERE = "`context.elastic`"


class Replica:
    """Model, optimiser and extra, as one `TrainingState`.

    Parameters
    ----------
    extra
        Objects with `state_dict` and `load_state_dict`, by name.

    Raises
    ------
    ValueError
        `model` is not one module, `optimizer` not one optimiser, or a part of `extra` has no state.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, extra: Mapping[str, Stateful]) -> None:
        if not isinstance(model, nn.Module):
            raise invalid(
                "`model` must be one module", _kind_of(model), _WHERE, "Put several into one torch.nn.ModuleDict."
            )
        if not isinstance(optimizer, Optimizer):
            raise invalid(
                "`optimizer` must be one optimizer", _kind_of(optimizer), _WHERE,
                "Give each part of the model a parameter group of one optimizer. A training that steps several in turn, as "
                "a GAN, cannot be elastic: run it as one process, with `punctual.track`.",
            )  # fmt: skip
        for name, part in extra.items():
            if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
                raise invalid(
                    "each part of `extra` must have state_dict() and load_state_dict()",
                    type(part).__name__, f"extra['{name}']", "Give the scheduler itself: extra={'scheduler': scheduler}.",
                )  # fmt: skip
        self.model = model
        self.optimizer = optimizer
        self.extra = dict(extra)

    def model_tensors(self) -> dict[str, Tensor]:
        """Parameters and all buffers, each once however many names it has."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return {f"model/{name}": tensor.detach() for name, tensor in named}

    def move(self, device: torch.device) -> None:
        """Go to `device`; parameters stay the same objects, so that the optimizer and the script still have them."""
        self.model.to(device)
        if self.optimizer.state:  # some optimizers have one from the beginning; each tensor goes where torch wants it
            self.optimizer.load_state_dict(self.optimizer.state_dict())

    def collect(self) -> TrainingState:
        """The state now, without copying a tensor."""
        tensors = self.model_tensors()
        values = {"optimizer": take_apart(self.optimizer.state_dict(), "optimizer", tensors)}
        values["extra"] = {
            name: take_apart(part.state_dict(), f"extra/{name}", tensors) for name, part in self.extra.items()
        }
        return TrainingState(tensors, values)

    def put_back(self, state: TrainingState) -> None:
        """Become `state`. Parameters and buffers keep their places in memory; the optimiser's tensors are taken over.

        Raises
        ------
        ValueError
            `state` is that of another model.
        """
        self._fill_model(state.tensors)
        self._fill_optimizer(put_together(state.values["optimizer"], state.tensors))
        for name, part in self.extra.items():
            part.load_state_dict(put_together(state.values["extra"][name], state.tensors))

    @torch.no_grad()
    def _fill_model(self, tensors: Mapping[str, Tensor]) -> None:
        for name, mine in self.model_tensors().items():
            theirs = tensors.get(name)
            if theirs is None or theirs.shape != mine.shape:
                got = "none" if theirs is None else f"shape {tuple(theirs.shape)}"
                raise invalid(
                    f"the training's state must hold a tensor of shape {tuple(mine.shape)}", got, f"'{name}'",
                    "Build the same model in every worker, and begin anew if the model has changed.",
                )  # fmt: skip
            if theirs.data_ptr() != mine.data_ptr():
                mine.copy_(theirs)

    def _fill_optimizer(self, saved: dict[str, Any]) -> None:
        self.optimizer.load_state_dict(saved)
        # Loading casts to the parameter's type; a state that is kept more precisely than its parameter must stay so.
        params = [param for group in self.optimizer.param_groups for param in group["params"]]
        for i, kept in saved["state"].items():
            for key, tensor in kept.items():
                loaded = self.optimizer.state[params[i]]
                if isinstance(tensor, Tensor) and loaded[key].dtype != tensor.dtype:
                    loaded[key] = tensor.to(loaded[key].device)


def _kind_of(given: object) -> str:
    """What was given, in words."""
    return f"a {type(given).__name__}" + (f" of {len(given)}" if isinstance(given, list | tuple | dict) else "")
