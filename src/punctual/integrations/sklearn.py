"""scikit-learn: ``partial_fit(estimator, batches, epochs=10)`` in place of a loop that calls `estimator.partial_fit`."""

import os
import pickle
from collections.abc import Callable
from numbers import Real
from pathlib import Path
from typing import Any, Protocol, TypeVar

from punctual.integrations._loop import folder_of_checkpoints, is_used, replace_file, use
from punctual.tracking import stop
from punctual.tracking.complaint import invalid
from punctual.tracking.span import phase
from punctual.tracking.track import track

Estimator = TypeVar("Estimator")


class NumberedBatches(Protocol):
    """Arguments of each call, by number: (X,) or (X, y)."""

    def __len__(self) -> int: ...

    def __getitem__(self, i: int, /) -> tuple[Any, ...]: ...


def partial_fit(
    estimator: Estimator,
    batches: NumberedBatches,
    *,
    epochs: int = 1,
    checkpoint_dir: str | os.PathLike[str] | None = None,
    evaluate: Callable[[Estimator], object] | None = None,
    **options: Any,
) -> Estimator:
    """Fit `estimator` to all batches, `epochs` times, a batch a step; continues from the checkpoint in the folder.

    Parameters
    ----------
    estimator
        Anything with `partial_fit`.
    batches
        Each the arguments of one call: (X,) or (X, y). A list, or anything else with a length and numbered items.
    checkpoint_dir
        Folder for the estimator when Punctual asks the training to stop, as ``stopped.pickle``: give a folder that only
        you can write to. None: ``punctual run --checkpoint-dir``, and without that the training cannot be asked.
    evaluate
        Called with the estimator after each epoch, as the phase "evaluate". A number that it returns is the loss of
        ``punctual run --until``.
    options
        Given to each call, as ``classes=``.

    Returns
    -------
    Estimator
        The fitted estimator: `estimator`, or the one that was read from the checkpoint.

    Raises
    ------
    ValueError
        The estimator has no `partial_fit`, or the checkpoint is of another kind of estimator.
    """
    if not hasattr(estimator, "partial_fit"):
        raise invalid(
            "the estimator must be one that learns in batches",
            type(estimator).__name__,
            "`partial_fit`",
            "Use one with a method partial_fit, as SGDClassifier.",
        )
    folder = folder_of_checkpoints(checkpoint_dir)
    n_done = 0
    if folder is not None:
        estimator, n_done = _read(folder / "stopped.pickle", estimator)
    run = track(range(len(batches)), epochs=epochs, start_step=n_done, phases=("evaluate",) if evaluate else ())

    def save() -> None:
        assert folder is not None
        _write(folder / "stopped.pickle", (estimator, run.step + 1))

    if folder is not None:
        stop.on_stop(save)
    for _ in run:
        estimator.partial_fit(*batches[run.step % len(batches)], **options)
        if evaluate is not None and run.epoch_ended:
            with phase("evaluate"):
                score = evaluate(estimator)
            if isinstance(score, Real):
                run.report_loss(float(score))
    stop.forget(save)
    return estimator


def _read(path: Path, estimator: Estimator) -> tuple[Estimator, int]:
    if not path.exists() or is_used(path):
        return estimator, 0
    use(path)
    kept, n_done = pickle.loads(path.read_bytes())  # noqa: S301 -- the folder is the user's own, as the docstring says
    if type(kept) is not type(estimator):
        raise invalid(
            "the checkpoint must be of the same kind of estimator",
            type(kept).__name__,
            str(path),
            "Give another checkpoint_dir=, or remove the file.",
        )
    return kept, n_done


def _write(path: Path, content: object) -> None:
    replace_file(path, lambda name: Path(name).write_bytes(pickle.dumps(content)))
