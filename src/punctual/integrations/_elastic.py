"""Replace a library's own calls in an elastic training's loop: for the library, each worker is one process."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

from punctual.elastic_training.run import ElasticRun
from punctual.tracking.complaint import invalid

#: An object, a method of it, and what takes its place.
Replacement = tuple[object, str, Callable[..., Any]]

_ALL_WORKERS = "Sum it up with run.evaluate, which asks all workers."
_CLIPPED = "Give elastic(..., clip_norm=1.0)."


def stepping(run: ElasticRun, optimizer: object, clip_norm: float | None) -> list[Replacement]:
    """Make `optimizer.step` end a batch and return whether a step was taken; gradients are the run's to clear."""
    return [
        (optimizer, "step", lambda *_, **__: run.step(clip_norm=clip_norm)),
        (optimizer, "zero_grad", lambda *_, **__: None),
    ]


def refusing(library: object, *, clips: Sequence[str], gathers: Sequence[str]) -> list[Replacement]:
    """Make replacements that refuse a library's operations on this worker's gradients or tensors alone."""
    remedies = {**dict.fromkeys(clips, _CLIPPED), **dict.fromkeys(gathers, _ALL_WORKERS)}
    return [(library, name, _refused(name, remedy)) for name, remedy in remedies.items()]


@contextmanager
def replaced(*replacements: Replacement) -> Iterator[None]:
    """Replace attributes of objects while the block runs."""
    for owner, name, function in replacements:
        setattr(owner, name, function)
    try:
        yield
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
        raise invalid(
            "an elastic training must not scale its gradients",
            "a gradient scaler (float16)",
            library,
            "Train in bfloat16 or float32.",
        )


def _refused(name: str, remedy: str) -> Callable[..., NoReturn]:
    def refuse(*_: object, **__: object) -> NoReturn:
        raise invalid(
            "what concerns all workers of an elastic training must be done by the run",
            f"`{name}`, which knows this worker alone",
            "an elastic training",
            remedy,
        )

    return refuse
