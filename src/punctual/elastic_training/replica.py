"""One worker's copy of the trained state: model, optimisers, and the user's extra objects."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from punctual.elastic_training import arguments
from punctual.tracking.complaint import invalid

#: Marks in place of what JSON cannot carry as such: a tensor's name, the pairs of a mapping, the items of a tuple.
_TENSOR, _PAIRS, _COUNTS, _TUPLE = "$tensor", "$pairs", "$counts", "$tuple"


def take_apart(value: Any, name: str, tensors: dict[str, Tensor]) -> Any:
    """Replace each tensor in `value` by its name, which begins with `name`; the tensors go into `tensors`.

    Raises `ValueError`: the value holds an object that is neither a tensor nor a number, a text, a list, a tuple or a
    mapping.
    """
    if isinstance(value, Tensor):
        tensors[name] = value.detach()
        return {_TENSOR: name}
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return _items_apart(value, name, tensors)
    if isinstance(value, tuple):
        return {_TUPLE: _items_apart(value, name, tensors)}
    if isinstance(value, Mapping):
        mark = _COUNTS if isinstance(value, Counter) else _PAIRS
        pairs = [
            [take_apart(key, f"{name}/{key}", tensors), take_apart(part, f"{name}/{key}", tensors)]
            for key, part in value.items()
        ]
        return {mark: pairs}
    raise invalid(
        "the state of a training must be made of tensors, numbers, texts, lists and mappings",
        f"{type(value).__name__}", f"'{name}'", "Leave it out of `extra`, or give it a state_dict() without it.",
    )  # fmt: skip


def _items_apart(items: Any, name: str, tensors: dict[str, Tensor]) -> list[Any]:
    return [take_apart(item, f"{name}/{i}", tensors) for i, item in enumerate(items)]


def put_together(value: Any, tensors: Mapping[str, Tensor]) -> Any:
    """Invert `take_apart`: mappings become dictionaries; tensors are those given, not copies."""
    if isinstance(value, list):
        return [put_together(item, tensors) for item in value]
    if not isinstance(value, dict):
        return value
    ((mark, content),) = value.items()
    if mark == _TENSOR:
        return tensors[content]
    if mark == _TUPLE:
        return tuple(put_together(item, tensors) for item in content)
    made = {put_together(key, tensors): put_together(part, tensors) for key, part in content}
    return Counter(made) if mark == _COUNTS else made


@dataclass(frozen=True, slots=True)
class TrainingState:
    """A training between two steps.

    * `tensors`: by name: "model/...", "optimizer/...", "extra/...". Not copies: they change with the next step. No two
      share storage, unless the user's own state does.
    * `values`: all the rest, as JSON can carry it: the optimiser's settings, states of schedulers, the position.
    * `origin`: the file that it was read from; empty: it was not.
    """

    tensors: dict[str, Tensor] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)
    origin: str = field(default="", compare=False)


class Stateful(Protocol):
    """Type of `extra` values besides tensors and plain values: a scheduler, an average of weights, a meter."""

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state_dict: dict[str, Any]) -> object: ...


#: One, or several that are all stepped in each step.
Optimizers = Optimizer | Sequence[Optimizer] | Mapping[str, Optimizer]


class Replica:
    """Model, optimizers and extra, as one `TrainingState`.

    * `optimizer`: one, or several as a list or by name.
    * `extra`: objects with `state_dict` and `load_state_dict`, by name.

    * `optimizers`: optimizers by the names that their states have.
    * `params`: parameters that the optimizers train.

    Raises `ValueError`: an argument cannot be used.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizers, extra: Mapping[str, Stateful]) -> None:
        arguments.check_model(model)
        arguments.check_extra(extra)
        self.model = model
        self.optimizers = arguments.named_optimizers(optimizer)
        self.params = arguments.params_of(self.optimizers.values())
        self.extra = dict(extra)
        arguments.check_places(self.params, model, extra)

    @property
    def named_params(self) -> list[tuple[str, nn.Parameter]]:
        """List `params`, each with its name in the model, if it has one."""
        names = {id(param): name for name, param in self.model.named_parameters()}
        return [(names.get(id(param), f"parameter {i}"), param) for i, param in enumerate(self.params)]

    def model_tensors(self) -> dict[str, Tensor]:
        """Return parameters and all buffers, each once however many names it has."""
        named = [*self.model.named_parameters(), *self.model.named_buffers()]
        return {f"model/{name}": tensor.detach() for name, tensor in named}

    def move(self, device: torch.device) -> None:
        """Move to `device`; parameters stay the same objects, so that the optimizer and the script still have them."""
        self.model.to(device)
        for optimizer in self.optimizers.values():
            if optimizer.state:  # some have one from the beginning; each tensor goes where torch wants it
                optimizer.load_state_dict(optimizer.state_dict())

    def collect(self) -> TrainingState:
        """Return the present state, without copying a tensor."""
        tensors = self.model_tensors()
        values = {
            name: take_apart(optimizer.state_dict(), name, tensors) for name, optimizer in self.optimizers.items()
        }
        values["extra"] = {
            name: take_apart(part.state_dict(), f"extra/{name}", tensors) for name, part in self.extra.items()
        }
        values["model"] = {
            "frozen": [name for name, param in self.model.named_parameters() if not param.requires_grad],
            # None: the script is just evaluating by itself.
            "evaluates": [name for name, module in self.model.named_modules() if not module.training]
            if self.model.training
            else None,
            # Those that are no part of a state_dict are often made, or grow, in the first pass that needs them.
            "buffers": [[name, self._is_cache(name)] for name, _ in self.model.named_buffers()],
        }
        return TrainingState(tensors, values)

    def _is_cache(self, buffer: str) -> bool:
        path, _, key = buffer.rpartition(".")
        return key not in self.model.get_submodule(path).state_dict()

    def put_back(self, state: TrainingState) -> None:
        """Load `state`. Parameters and buffers keep their places in memory; the optimiser's tensors are taken over.

        Raises `ValueError`: `state` is that of another model, or of other optimizers or parts of `extra`.
        """
        self._check_names(state.values)
        self._shape_model(state)
        self._fill_model(state.tensors)
        for name, optimizer in self.optimizers.items():
            _fill_optimizer(optimizer, put_together(state.values[name], state.tensors))
        for name, part in self.extra.items():
            part.load_state_dict(put_together(state.values["extra"][name], state.tensors))

    def _check_names(self, values: Mapping[str, Any]) -> None:
        kept = {name for name in values if name.startswith("optimizer")}
        missing = {f"extra['{name}']" for name in self.extra if name not in values["extra"]}
        if missing or kept != set(self.optimizers):
            raise invalid(
                "the training's state must hold the same optimizers and parts of `extra` as the script",
                ", ".join(sorted(kept)) + ", and no ".join(["", *sorted(missing)]),
                ", ".join(self.optimizers),
                "Give the same ones as before, or begin anew with another `checkpoint_dir`.",
            )

    def _shape_model(self, state: TrainingState) -> None:
        """Freeze what is frozen, set the mode of each module, and make buffers that came, or grew, while it trained."""
        if "model" not in state.values:  # a checkpoint of an earlier version
            return
        model = state.values["model"]
        frozen, evaluates = set(model["frozen"]), set(model["evaluates"] or ())
        for name, param in self.model.named_parameters():
            param.requires_grad_(name not in frozen)
        modules = dict(self.model.named_modules())
        for name, module in modules.items() if model["evaluates"] is not None else ():
            module.training = name not in evaluates
        buffers = dict(self.model.named_buffers())
        for name, is_cache in model["buffers"]:
            tensor, (path, _, key) = state.tensors[f"model/{name}"], name.rpartition(".")
            is_new = name not in buffers or (is_cache and buffers[name].shape != tensor.shape)
            if is_new and path in modules:
                place = next(self.model.parameters(), tensor).device
                modules[path].register_buffer(key, tensor.to(place, copy=True), persistent=not is_cache)

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


def _fill_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    optimizer.load_state_dict(saved)
    # Loading casts to the parameter's type; a state that is kept more precisely than its parameter must stay so.
    params = arguments.params_of([optimizer])
    for i, kept in saved["state"].items():
        for key, tensor in kept.items():
            loaded = optimizer.state[params[i]]
            if isinstance(tensor, Tensor) and loaded[key].dtype != tensor.dtype:
                loaded[key] = tensor.to(loaded[key].device)
