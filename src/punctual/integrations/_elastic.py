"""Replace a library's own calls in an elastic training's loop: for the library, each worker is one process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from punctual.elastic_training.arguments import kind_of, scaled
from punctual.elastic_training.context import Context
from punctual.elastic_training.run import ElasticRun
from punctual.tracking.complaint import invalid

_ALL_WORKERS = "Sum it up with run.evaluate, which asks all workers."
_CLIPPED = "Give elastic(..., clip_norm=1.0)."


@contextmanager
def elastic_run(
    context: Context,
    library: Any,
    model: Any,
    optimizer: Any,
    clip_norm: float | None,
    options: Mapping[str, Any],
    *,
    backward_of: object,
    alone: Sequence[str],
    clips: Sequence[str],
    gathers: Sequence[str],
) -> Iterator[ElasticRun]:
    """Yield an elastic training with a library's `backward` and `optimizer.step`.

    * `library`: the object that has prepared `model` and `optimizer`.
    * `options`: options of `context.elastic`.
    * `backward_of`: the object whose `backward` adds gradients.
    * `alone`: names of operations that one worker does for all.
    * `clips`, `gathers`: names of operations on this worker's gradients, or tensors, alone, which are refused.

    Raises `ValueError`: the library has not prepared the optimizer.
    """
    if not hasattr(optimizer, "optimizer"):
        raise invalid(
            "`optimizer` must be one that the library has prepared",
            kind_of(optimizer),
            type(library).__name__,
            "Give what its `setup`, or `prepare`, has returned. Several optimizers need `context.elastic` itself.",
        )
    remedies = {**dict.fromkeys(clips, _CLIPPED), **dict.fromkeys(gathers, _ALL_WORKERS)}
    with context.elastic(model=model, optimizer=optimizer.optimizer, **options) as run:
        replacements = [
            (backward_of, "backward", lambda loss, *_, **__: run.backward(loss)),
            # Ends a batch, and returns whether a step was taken; gradients are the run's to clear.
            (optimizer, "step", lambda *_, **__: run.step(clip_norm=clip_norm)),
            (optimizer, "zero_grad", lambda *_, **__: None),
            *((library, name, _by_first_worker(run, getattr(library, name))) for name in alone),
            *((library, name, _refused(name, remedy)) for name, remedy in remedies.items()),
        ]
        for owner, name, function in replacements:
            setattr(owner, name, function)
        try:
            yield run
        finally:
            for owner, name, _ in replacements:
                delattr(owner, name)


def check_alone(library: str, n_processes: int, scaler: object) -> None:
    """Raise `ValueError` if the library itself would train in several processes, or would scale gradients."""
    if n_processes != 1:
        raise invalid(
            "in an elastic training each worker must be one process to the library",
            f"{n_processes} processes",
            library,
            "Start the script without a launcher, with one device, and let `punctual run --workers` say how many there are.",
        )
    if scaler is not None:
        raise scaled(library)


def _by_first_worker(run: ElasticRun, operation: Callable[..., Any]) -> Callable[..., Any]:
    """Make `operation` one of the first worker: to the library, each is the main process, and would write the same files."""
    return lambda *arguments, **options: operation(*arguments, **options) if run.is_first else None


def _refused(name: str, remedy: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise invalid(
            "what concerns all workers of an elastic training must be done by the run",
            f"`{name}`, which knows this worker alone",
            "an elastic training",
            remedy,
        )

    return refuse
