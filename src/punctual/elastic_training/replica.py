"""One worker's copy of the trained state: model, optimisers, and the user's extra objects."""

import json
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
        while name in tensors:  # of the keys 1 and "1", say
            name += "'"
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
        #: What each part is, and for an optimizer the parameters of each group.
        self._kinds: dict[str, list[Any]] = {f"extra['{name}']": [type(part).__name__] for name, part in extra.items()}
        names = iter(name for name, _ in self.named_params)
        for name, trained in self.optimizers.items():
            groups = [[next(names) for _ in group["params"]] for group in trained.param_groups]
            self._kinds[name] = [type(trained).__name__, groups]

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
        values["kinds"] = self._kinds
        values["extra"] = {
            name: take_apart(part.state_dict(), f"extra/{name}", tensors) for name, part in self.extra.items()
        }
        values["model"] = {
            "frozen": [name for name, param in self.model.named_parameters() if not param.requires_grad],
            # None: the script is just evaluating by itself.
            "evaluates": [name for name, module in self.model.named_modules() if not module.training]
            if self.model.training
            else None,
            "states": {
                name: take_apart(module.get_extra_state(), f"states/{name}", tensors)
                for name, module in self.model.named_modules()
                if type(module).get_extra_state is not nn.Module.get_extra_state
            },
            # Those that are no part of a state_dict are often made, or grow, in the first pass that needs them.
            "buffers": [[name, self._is_cache(name)] for name, _ in self.model.named_buffers()],
        }
        return TrainingState(tensors, values)

    def _is_cache(self, buffer: str) -> bool:
        path, _, key = buffer.rpartition(".")
        return key not in self.model.get_submodule(path).state_dict()

    def texts(self, state: TrainingState) -> dict[str, str]:
        """Return what is no tensor in the state of each optimizer and each part of `extra`, as text."""
        parts = {f"extra/{name}": value for name, value in state.values["extra"].items()}
        parts |= {name: state.values[name] for name in self.optimizers}
        return {name: json.dumps(value) for name, value in parts.items()}

    def put_back(self, state: TrainingState) -> None:
        """Load `state`. Parameters and buffers keep their places in memory; the optimiser's tensors are taken over.

        Raises `ValueError`: `state` is that of another model, or of other optimizers or parts of `extra`.
        """
        self._check_kinds(state.values.get("kinds", self._kinds))
        self._shape_model(state)
        self.fill_model(state.tensors)
        for name, optimizer in self.optimizers.items():
            _fill_optimizer(optimizer, put_together(state.values[name], state.tensors))
        for name, part in self.extra.items():
            part.load_state_dict(put_together(state.values["extra"][name], state.tensors))

    def _check_kinds(self, saved: Mapping[str, list[Any]]) -> None:
        for name in {**self._kinds, **saved}:
            before, now = saved.get(name, ["nothing"]), self._kinds.get(name, ["nothing"])
            if before != now:
                raise invalid(
                    "the training's state must hold the same optimizers and parts of `extra` as the script",
                    f"{before[0]} of other parameters, or in another order," if before[0] == now[0] else before[0],
                    f"{name}, {now[0]} in the script",
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
        for name, kept in model.get("states", {}).items():
            modules[name].set_extra_state(put_together(kept, state.tensors))
        buffers = dict(self.model.named_buffers())
        for name, is_cache in model["buffers"]:
            tensor, (path, _, key) = state.tensors[f"model/{name}"], name.rpartition(".")
            is_new = (
                name not in buffers or (is_cache and buffers[name].shape != tensor.shape) or overlaps(buffers[name])
            )
            if is_new and path in modules:
                place = next(self.model.parameters(), tensor).device
                modules[path].register_buffer(key, tensor.to(place, copy=True), persistent=not is_cache)

    @torch.no_grad()
    def fill_model(self, tensors: Mapping[str, Tensor]) -> None:
        """Copy parameters and buffers from the tensors of a state.

        Raises `ValueError`: they are those of another model.
        """
        present = self.model_tensors()
        for name in dict.fromkeys((*present, *(name for name in tensors if name.startswith("model/")))):
            mine, theirs = present.get(name), tensors.get(name)
            if mine is None or theirs is None or theirs.shape != mine.shape or theirs.dtype != mine.dtype:
                raise invalid(
                    f"the training's state must hold {_described(mine)}", _described(theirs), f"'{name}'",
                    "Build the same model in every worker, and begin anew if the model has changed.",
                )  # fmt: skip
            if theirs.data_ptr() != mine.data_ptr():
                mine.copy_(theirs)


def _described(tensor: Tensor | None) -> str:
    """Describe a tensor of a model for users."""
    kind = "" if tensor is None else str(tensor.dtype).removeprefix("torch.")
    return "no tensor" if tensor is None else f"a tensor of shape {tuple(tensor.shape)} and type {kind}"


def overlaps(tensor: Tensor) -> bool:
    """Whether elements share memory, as of an expanded tensor: none can be written alone."""
    return any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _fill_optimizer(optimizer: Optimizer, saved: dict[str, Any]) -> None:
    optimizer.load_state_dict(saved)
    # Loading casts to the parameter's type; a state that is kept more precisely than its parameter must stay so. One that lay
    # in memory as its parameter does must again: what adds it up does so in that order.
    params = arguments.params_of([optimizer])
    for i, kept in saved["state"].items():
        loaded = optimizer.state[params[i]]
        for key, tensor in kept.items():
            if isinstance(tensor, Tensor):
                loaded[key] = tensor.to(loaded[key].device)
                if tensor.shape == params[i].shape:
                    place = torch.empty_like(params[i], dtype=tensor.dtype, device=loaded[key].device)
                    loaded[key] = place.copy_(tensor)
