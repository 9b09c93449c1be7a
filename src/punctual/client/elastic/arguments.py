"""Checks of what a script gives to `context.elastic`: what would fail later, or go wrong without a word, is refused here."""

import inspect
from collections.abc import Iterable, Mapping, Sequence

from torch import nn
from torch.optim import Optimizer

from punctual.client.complaint import invalid

_WHERE = "`context.elastic`"
#: Classes of torch by which a model has its gradients summed, or its parameters kept, by several processes or devices.
_TORCH_WRAPPERS = {"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DTensor"}


def check_model(model: object) -> None:
    """Raise `ValueError` unless `model` is one module, whole in each worker, with dense gradients."""
    if not isinstance(model, nn.Module):
        raise invalid("`model` must be one module", kind_of(model), _WHERE, "Put several into one torch.nn.ModuleDict.")
    parts = (*model.modules(), *model.parameters())
    wrappers = sorted(_TORCH_WRAPPERS & {kind.__name__ for one in parts for kind in _torch_kinds(one)})
    if wrappers:
        raise not_whole(wrappers[0])
    if any(getattr(module, "sparse", False) is True for module in model.modules()):
        raise invalid("gradients must be dense", "a layer with sparse=True", _WHERE, "Build it with sparse=False.")


def not_whole(got: str) -> ValueError:
    """The exception for a model, or a process group, that several processes share in torch's way."""
    return invalid(
        "each worker of an elastic training must hold the whole model, and no process group of its own",
        got,
        _WHERE,
        "Leave it out: `run.backward` and `run.step` sum gradients over all workers, and `run.batches` deals the samples. "
        "A model that must be sharded cannot be elastic: start it with torchrun, and count its steps with `punctual.track`.",
    )


def _torch_kinds(part: object) -> Iterable[type]:
    return (kind for kind in type(part).__mro__ if kind.__module__.startswith("torch."))


def named_optimizers(given: object) -> dict[str, Optimizer]:
    """The optimizers by the names that their states have in a checkpoint.

    Raises
    ------
    ValueError
        One of them is none, needs a closure, or has a parameter that another one has too.
    """
    if isinstance(given, Mapping):
        optimizers = {f"optimizer/{name}": one for name, one in given.items()}
    elif isinstance(given, Sequence):
        optimizers = {f"optimizer/{i}": one for i, one in enumerate(given)}
    else:
        optimizers = {"optimizer": given}
    if not optimizers or not all(isinstance(one, Optimizer) for one in optimizers.values()):
        raise invalid(
            "`optimizer` must be a torch optimizer, or a list or dictionary of some", kind_of(given), _WHERE,
            "Give what torch.optim has made.",
        )  # fmt: skip
    seen: set[int] = set()
    for one in optimizers.values():
        _check_closure(one)
        ids = {id(param) for param in params_of([one])}
        if ids & seen:
            raise invalid(
                "each parameter must be in one optimizer", f"one that {kind_of(one)} shares with another", _WHERE,
                "Give each optimizer parameters of its own. A training that steps several in turn, as a GAN, cannot be "
                "elastic: run it as one process, with `punctual.track`.",
            )  # fmt: skip
        seen |= ids
    return optimizers


def params_of(optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
    """All that they train, in order."""
    return [param for one in optimizers for group in one.param_groups for param in group["params"]]


def _check_closure(optimizer: Optimizer) -> None:
    step = inspect.signature(type(optimizer).step)
    if any(parameter.default is parameter.empty for parameter in list(step.parameters.values())[1:]):
        raise invalid(
            "an optimizer must step without a closure, which would go through the model some times a step",
            kind_of(optimizer),
            _WHERE,
            "Give another one, as torch.optim.AdamW; or run the training as one process, with `punctual.track`.",
        )


def check_places(params: Iterable[nn.Parameter], model: nn.Module, extra: Mapping[str, object]) -> None:
    """Raise `ValueError` if a parameter is trained that no newcomer and no checkpoint would have."""
    modules = [model, *(part for part in extra.values() if isinstance(part, nn.Module))]
    kept = {id(param) for module in modules for param in module.parameters()}
    missing = [param for param in params if id(param) not in kept]
    if missing:
        raise invalid(
            "each parameter of the optimizer must be in `model`, or in a module in `extra`",
            f"{len(missing)} elsewhere, one of shape {tuple(missing[0].shape)}", _WHERE,
            "Put all that is trained into `model`, as one torch.nn.ModuleDict, before the optimizer is made.",
        )  # fmt: skip


def check_extra(extra: Mapping[str, object]) -> None:
    """Raise `ValueError` if a part of `extra` has no state."""
    for name, part in extra.items():
        if not (hasattr(part, "state_dict") and hasattr(part, "load_state_dict")):
            raise invalid(
                "each part of `extra` must have state_dict() and load_state_dict()",
                type(part).__name__, f"extra['{name}']", "Give the scheduler itself: extra={'scheduler': scheduler}.",
            )  # fmt: skip


def kind_of(given: object) -> str:
    """What was given, in words."""
    return f"a {type(given).__name__}" + (f" of {len(given)}" if isinstance(given, list | tuple | dict) else "")
