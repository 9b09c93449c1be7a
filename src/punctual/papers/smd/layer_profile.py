"""A small profiler: seconds and bytes of each layer of a PyTorch model, for the rule of scaling ``layered``."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import accumulate, pairwise
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from punctual.core.errors import InvalidSpec
from punctual.papers.smd.layers import N_LAYERS_MAX, LayerProfile

if TYPE_CHECKING:
    from torch import Tensor, device
    from torch.nn import Module, Parameter

    Loss = Callable[[Module, Any], Tensor]

_WHERE = "a profile of layers"
#: Steps before the first that counts: allocators, caches and kernels get warm.
_N_WARM_UP = 2


def profile(model: "Module", batch: Any, loss: "Loss", *, n_repeats: int = 10) -> tuple[LayerProfile, ...]:
    """Measure the layers of `model` on one step, the first layer first.

    Parameters
    ----------
    batch
        The batch of a whole step, as all workers share it.
    loss
        Called with the model and the batch; returns the scalar from which gradients are computed.
    n_repeats
        Steps that are measured. Each time is the median of them.

    Returns
    -------
    tuple of LayerProfile
        A layer is a module that has parameters of its own and is called. What lies between the begins of two layers,
        activations and the loss too, belongs to the earlier one; its backward time lasts from the gradients of the layer
        behind it to its own. So the times add up to those of the step. The model's buffers and gradients stay as they are.
    """
    if n_repeats < 1:
        raise InvalidSpec("`n_repeats` must be 1 or more", str(n_repeats), _WHERE, "Leave it out for 10.")
    with _unchanged(model):
        steps = [_measured_step(model, batch, loss) for _ in range(_N_WARM_UP + n_repeats)][_N_WARM_UP:]
    names = [layer.layer for layer in steps[0]]
    if any([layer.layer for layer in step] != names for step in steps):
        raise InvalidSpec(
            "each step must run the same layers in the same order",
            "steps that differ",
            _WHERE,
            "Profile a model without layers that are skipped at random.",
        )
    return tuple(
        LayerProfile(
            name,
            median(layer.forward_s for layer in same),
            median(layer.backward_s for layer in same),
            same[0].parameter_bytes,
        )
        for name, same in zip(names, zip(*steps, strict=True), strict=True)
    )


def _measured_step(model: "Module", batch: Any, loss: "Loss") -> list[LayerProfile]:
    """Run one step, and note when each module begins and when each parameter's gradient is ready."""
    now = partial(_now, next(model.parameters()).device)
    begun: dict[str, float] = {}
    ready: dict[Parameter, float] = {}

    def begin(name: str, *_: object) -> None:
        if name not in begun:
            begun[name] = now()

    def note(parameter: "Parameter") -> None:
        ready[parameter] = now()

    hooks = [module.register_forward_pre_hook(partial(begin, name)) for name, module in model.named_modules()]
    hooks += [
        parameter.register_post_accumulate_grad_hook(note)
        for parameter in model.parameters()
        if parameter.requires_grad
    ]
    try:
        model.zero_grad(set_to_none=True)
        from_s = now()
        total = loss(model, batch)
        between_s = now()
        _check_loss(total)
        total.backward()
    finally:
        for hook in hooks:
            hook.remove()
    return _layers(model, begun, ready, (from_s, between_s, now()))


def _layers(
    model: "Module", begun: dict[str, float], ready: "dict[Parameter, float]", instants: tuple[float, float, float]
) -> list[LayerProfile]:
    """Layers of a step, from the instants of its forward pass, its backward pass, and its end."""
    parameters_of: dict[str, list[Parameter]] = {}
    for parameter, name in _owners(model, begun).items():
        if parameter in ready:
            parameters_of.setdefault(name, []).append(parameter)
    names = sorted(parameters_of, key=lambda name: begun[name])
    if not 1 <= len(names) <= N_LAYERS_MAX:
        raise InvalidSpec(
            f"a model must have 1 to {N_LAYERS_MAX:,} layers with parameters that get gradients",
            str(len(names)),
            _WHERE,
            "Profile the model that is called by `loss`, with parameters that require gradients.",
        )
    from_s, between_s, to_s = instants
    begins = [from_s, *(begun[name] for name in names[1:]), between_s]
    # A layer counts as ready no earlier than those behind it, and the first one at the end.
    latest = [max(ready[parameter] for parameter in parameters_of[name]) for name in reversed(names)]
    ends = [between_s, *accumulate(latest[:-1], max), to_s][::-1]
    return [
        LayerProfile(
            name or type(model).__name__,
            forward_s=after_s - begin_s,
            backward_s=ready_s - behind_s,
            parameter_bytes=sum(parameter.numel() * parameter.element_size() for parameter in parameters_of[name]),
        )
        for name, (begin_s, after_s), (ready_s, behind_s) in zip(names, pairwise(begins), pairwise(ends), strict=True)
    ]


def _owners(model: "Module", begun: dict[str, float]) -> "dict[Parameter, str]":
    """Return for each parameter the innermost module around it that is called; of several, the first called."""
    owners: dict[Parameter, str] = {}
    for path, parameter in model.named_parameters(remove_duplicate=False):
        name = path
        while name and name not in begun:
            name = name.rpartition(".")[0]
        if name in begun and (parameter not in owners or begun[name] < begun[owners[parameter]]):
            owners[parameter] = name
    return owners


def _check_loss(total: object) -> None:
    import torch

    if not (isinstance(total, torch.Tensor) and total.numel() == 1 and total.requires_grad):
        raise InvalidSpec(
            "`loss` must return a scalar tensor that depends on the model's parameters",
            type(total).__name__ + (f" of shape {tuple(total.shape)}" if isinstance(total, torch.Tensor) else ""),
            _WHERE,
            "Give a function of the model and the batch, as `lambda model, batch: cross_entropy(model(batch[0]), batch[1])`.",
        )


def _now(device: "device") -> float:
    """Return the instant after the device has finished all queued work."""
    import torch

    if device.type != "cpu":
        getattr(torch, device.type).synchronize(device)
    return perf_counter()


@contextmanager
def _unchanged(model: "Module") -> Iterator[None]:
    """Keep gradients and buffers as they are before."""
    import torch

    gradients = [(parameter, parameter.grad) for parameter in model.parameters()]
    if not gradients:
        raise InvalidSpec("a model must have parameters", "none", _WHERE, "Give a model that is trained.")
    buffers = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    try:
        yield
    finally:
        for parameter, gradient in gradients:
            parameter.grad = gradient
        with torch.no_grad():
            for buffer, before in buffers:
                buffer.copy_(before)
