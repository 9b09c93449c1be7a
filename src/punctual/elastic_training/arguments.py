"""Checks of arguments to `context.elastic`: mistakes are refused here that would fail later, or silently go wrong."""

import inspect
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn
from torch.optim import Optimizer

from punctual.elastic_training import group
from punctual.tracking.complaint import invalid

_WHERE = "`context.elastic`"
#: Classes of torch by which a model has its gradients summed, or its parameters kept, by several processes or devices.
_TORCH_WRAPPERS = {"DataParallel", "DistributedDataParallel", "FullyShardedDataParallel", "FSDPModule", "DTensor"}


def check_model(model: object) -> None:
    """Raise `ValueError` unless `model` is one module, whole in each worker, with dense gradients."""
    if not isinstance(model, nn.Module):
        raise invalid("`model` must be one module", kind_of(model), _WHERE, "Put several into one torch.nn.ModuleDict.")
    parts = (*model.modules(), *model.parameters())
    wrappers = sorted(_TORCH_WRAPPERS & {kind.__name__ for part in parts for kind in _torch_kinds(part)})
    if wrappers:
        raise not_whole(wrappers[0])
    if any(isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse for module in model.modules()):
        raise invalid("gradients must be dense", "a layer with sparse=True", _WHERE, "Build it with sparse=False.")


def normalises_batches(model: nn.Module) -> bool:
    """Whether a layer normalises by the batch without keeping averages, which would show in its buffers."""
    layers = (module for module in model.modules() if isinstance(module, nn.modules.batchnorm._BatchNorm))  # noqa: SLF001
    return any(layer.running_mean is None for layer in layers)


def not_whole(got: str) -> ValueError:
    """Return the exception for a model, or process group, that several processes share in torch's way."""
    return invalid(
        "each worker of an elastic training must hold the whole model, and no process group of its own",
        got,
        "this training",
        "Leave out DistributedDataParallel, FSDP, DistributedSampler and init_process_group: `run.backward` and `run.step` sum "
        "gradients over all workers, and `run.batches` deals the samples. "
        "A model that must be sharded cannot be elastic: start it with torchrun, and count its steps with `punctual.track`.",
    )


def scaled(where: str) -> ValueError:
    """Return the exception for gradients that are scaled."""
    return invalid(
        "an elastic training must not scale its gradients",
        "a gradient scaler (float16)",
        where,
        "Train in bfloat16 or float32, without a scaler: torch.autocast(..., dtype=torch.bfloat16).",
    )


def is_of_process_groups(error: BaseException) -> bool:
    """Whether an error comes from torch's own process groups."""
    files = {frame.f_code.co_filename for frame, _ in traceback.walk_tb(error.__traceback__)}
    folder = Path(torch.distributed.__file__).parent
    checkpoints = str(folder / "checkpoint")  # of one process, too
    is_distributed = any(file.startswith(str(folder)) for file in files)
    return is_distributed and group.__file__ not in files and not any(file.startswith(checkpoints) for file in files)


def _torch_kinds(part: object) -> Iterable[type]:
    return (kind for kind in type(part).__mro__ if kind.__module__.startswith("torch."))


def named_optimizers(given: object) -> dict[str, Optimizer]:
    """Return the optimizers by the names that their states have in a checkpoint.

    Raises `ValueError`: an element is no optimizer, needs a closure, or shares a parameter with another one.
    """
    if isinstance(given, Mapping):
        optimizers = {f"optimizer/{name}": optimizer for name, optimizer in given.items()}
    elif isinstance(given, Sequence):
        optimizers = {f"optimizer/{i}": optimizer for i, optimizer in enumerate(given)}
    else:
        optimizers = {"optimizer": given}
    if not optimizers or not all(isinstance(optimizer, Optimizer) for optimizer in optimizers.values()):
        raise invalid(
            "`optimizer` must be a torch optimizer, or a list or dictionary of some", kind_of(given), _WHERE,
            "Give what torch.optim has made.",
        )  # fmt: skip
    seen: set[int] = set()
    for optimizer in optimizers.values():
        step = inspect.signature(type(optimizer).step)
        if any(parameter.default is parameter.empty for parameter in list(step.parameters.values())[1:]):
            raise invalid(
                "an optimizer must step without a closure, which would go through the model several times a step",
                type(optimizer).__name__,
                _WHERE,
                "Give another one, as torch.optim.AdamW; or run the training as one process, with `punctual.track`.",
            )
        ids = {id(param) for param in params_of([optimizer])}
        if ids & seen:
            raise invalid(
                "each parameter must be in one optimizer", f"one that {type(optimizer).__name__} shares with another", _WHERE,
                "Give each optimizer parameters of its own. A training that steps several in turn, as a GAN, cannot be "
                "elastic: run it as one process, with `punctual.track`.",
            )  # fmt: skip
        seen |= ids
    return optimizers


def params_of(optimizers: Iterable[Optimizer]) -> list[nn.Parameter]:
    """List the parameters of the optimizers, in order."""
    return [param for optimizer in optimizers for group in optimizer.param_groups for param in group["params"]]


def check_places(params: Iterable[nn.Parameter], model: nn.Module, extra: Mapping[str, object]) -> None:
    """Raise `ValueError` if a trained parameter would be missing in new workers and checkpoints."""
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
    """Describe an argument's kind in words."""
    return f"a {type(given).__name__}" + (f" of {len(given)}" if isinstance(given, list | tuple | dict) else "")
