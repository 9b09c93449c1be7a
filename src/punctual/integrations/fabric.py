"""Lightning Fabric: ``with elastic(context, fabric, model, optimizer) as run:``."""

from contextlib import AbstractContextManager
from typing import Any

from punctual.elastic_training.context import Context
from punctual.elastic_training.run import ElasticRun
from punctual.integrations._elastic import check_alone, elastic_run


def elastic(
    context: Context, fabric: Any, model: Any, optimizer: Any, *, clip_norm: float | None = None, **options: Any
) -> AbstractContextManager[ElasticRun]:
    """Return an elastic training of ``fabric.setup``'s results, with `fabric.backward` and `optimizer.step`.

    Parameters
    ----------
    context
        Context that `punctual.elastic` passes to the training function.
    fabric
        A `Fabric` with one device: to it, each worker is a training of its own.
    clip_norm
        The gradients' norm is cut to this at each step.
    options
        Options of `context.elastic`.

    Raises
    ------
    ValueError
        Fabric has several processes or scales gradients, or an argument cannot be used; in the block: it was asked for
        what would concern this worker alone.
    """
    strategy = fabric.strategy
    check_alone("Fabric", fabric.world_size, getattr(strategy.precision, "scaler", None))
    return elastic_run(
        context,
        fabric,
        model,
        optimizer,
        clip_norm,
        options,
        backward_of=strategy,  # beneath `fabric.backward`, which tells its modules that it is under way
        alone=("print", "save", "log", "log_dict"),
        clips=("clip_gradients",),
        gathers=("all_gather", "all_reduce"),
    )
