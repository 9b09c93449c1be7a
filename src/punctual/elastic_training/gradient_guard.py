"""Guard against lines of a plain loop that spoil an elastic one: `zero_grad`, clipping, `optimizer.step`, a scaler.

From the first part of a step to the last the gradients are the run's. To assign to `grad` leaves another tensor there, and to
change it in place raises its version; both are read in a tenth of a microsecond. A change of `grad.data` raises none, so
the first numbers of the smallest gradient are compared too, where that does not have to wait for a device.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Self

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from punctual.elastic_training import arguments
from punctual.tracking.complaint import invalid

_BODY = "the body of `run.batches`"
_scale = torch.amp.GradScaler.scale


class GradientGuard:
    """Refuses changes of gradients, and steps of optimizers, that are not the run's; a context manager.

    `named`: the parameters that are trained, by name.
    """

    def __init__(self, named: Sequence[tuple[str, nn.Parameter]], optimizers: Sequence[Optimizer]) -> None:
        self._names = [name for name, _ in named]
        self._params = [param for _, param in named]
        self._i_smallest = min(range(len(named)), key=lambda i: self._params[i].numel(), default=None)
        self._optimizers = optimizers
        self._hooks: list[Any] = []
        self._is_learning = False
        self._grads: list[Tensor | None] = []
        self._versions: list[int] = []
        self._sample = ""

    def __enter__(self) -> Self:
        self._hooks = [
            optimizer.register_step_pre_hook(self._check_step)
            for optimizer in self._optimizers
            if hasattr(optimizer, "_optimizer_step_pre_hooks")  # one around another may not have called its base
        ]
        torch.amp.GradScaler.scale = _refuse_scaling  # type: ignore[assignment, method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        torch.amp.GradScaler.scale = _scale  # type: ignore[method-assign]
        for hook in self._hooks:
            hook.remove()
        self._forget()

    # Gradients.

    def note(self) -> None:
        """Record the present gradients as the run's."""
        self._grads = [param.grad for param in self._params]
        self._versions = versions(self._grads)
        self._sample = self._sampled()

    def check(self, where: Callable[[], str]) -> None:
        """Check that the gradients are unchanged; until the next `note` the run may change them.

        Raises `ValueError`: the script has changed them.
        """
        for i, (grad, version) in enumerate(zip(self._grads, versions(self._grads), strict=True)):
            if self._params[i].grad is not grad or version != self._versions[i]:
                self._refuse_change(i, where)
        if self._i_smallest is not None and self._sample != self._sampled():
            self._refuse_change(self._i_smallest, where)
        self._forget()

    def _forget(self) -> None:
        """Release the recorded gradients."""
        self._grads, self._versions, self._sample = [], [], ""

    def _sampled(self) -> str:
        """Return some numbers as text, in which NaN equals itself; empty if reading them would cost too much."""
        grad = None if self._i_smallest is None else self._params[self._i_smallest].grad
        if grad is None or grad.device.type != "cpu" or grad.layout != torch.strided:
            return ""
        return str(grad.detach().reshape(-1)[:8].tolist())

    def _refuse_change(self, i: int, where: Callable[[], str]) -> NoReturn:
        grad = self._params[i].grad
        is_cleared = grad is None or not grad.any()
        raise invalid(
            "a step's gradients must be left alone from `run.backward` in its first part to `run.step` in its last",
            f"{'a cleared one' if is_cleared else 'another one'} of '{self._names[i]}'",
            where(),
            "Delete `optimizer.zero_grad()`, `model.zero_grad()` or whatever else clears gradients in the loop: `run.step` does."
            if is_cleared
            else "Delete what changes them in the loop: clip with run.step(clip_norm=...), add losses up instead of calling "
            "their backward(), and take gradients of other things with torch.autograd.grad.",
        )

    # Steps.

    @contextmanager
    def learning(self) -> Iterator[None]:
        """Let the run step the optimizers inside the block; raises `ValueError` if they have unknown parameters."""
        n_params = sum(len(group["params"]) for optimizer in self._optimizers for group in optimizer.param_groups)
        if n_params != len(self._params):
            raise invalid(
                "the optimizers must have all their parameters before `context.elastic`",
                f"{n_params} instead of {len(self._params)}",
                "this training",
                "Add parameter groups before it; let those wait that are to learn later, with a learning rate of 0.",
            )
        self._is_learning = True
        try:
            yield
        finally:
            self._is_learning = False

    def _check_step(self, *_: object) -> None:
        if not self._is_learning:
            raise invalid(
                "optimizers must be stepped by `run.step`, with the gradients of all workers",
                "a step by the script itself",
                _BODY,
                "Delete `optimizer.step()`, or `scaler.step(optimizer)`: `run.step` does it.",
            )


def versions(tensors: Iterable[Tensor | None]) -> list[int]:
    """Return a number for each tensor that rises when it is changed in place; 0 for none."""
    return [0 if tensor is None else tensor._version for tensor in tensors]  # noqa: SLF001 -- it has no other name


def _refuse_scaling(scaler: torch.amp.GradScaler, outputs: Any) -> Any:
    if not scaler.is_enabled():
        return outputs
    raise arguments.scaled("`context.elastic`")
