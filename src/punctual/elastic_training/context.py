"""Context of a worker's training function, and the run of one worker."""

from collections.abc import Callable, Mapping

from torch import nn

from punctual.elastic_training import checkpoint_store
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.arguments import is_of_process_groups, normalises_batches, not_whole
from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.member import WorkerReleased, WorkerSession
from punctual.elastic_training.replica import Optimizers, Replica, Stateful
from punctual.elastic_training.run import ElasticRun
from punctual.elastic_training.step import Stepper
from punctual.elastic_training.virtual_ranks import RankNumber
from punctual.tracking.complaint import invalid


def run_worker(train: Callable[["Context"], object], agent: AgentClient) -> None:
    """Run one worker, from the beginning of `train` to its end, or until the worker is dismissed."""
    try:
        train(Context(agent))
    except WorkerReleased:
        return
    except Exception as error:
        if is_of_process_groups(error):
            raise not_whole(f"'{error}'").with_traceback(error.__traceback__) from None
        raise
    agent.finish()


class Context:
    """Argument of a training function.

    Parameters
    ----------
    store
        Keeps checkpoints; None: as the script or the environment says.
    """

    def __init__(self, agent: AgentClient, store: CheckpointStore | None = None) -> None:
        self._agent = agent
        self._store = store
        self._has_training = False

    def elastic(
        self,
        *,
        model: nn.Module,
        optimizer: Optimizers,
        extra: Mapping[str, Stateful] | None = None,
        virtual_ranks: int | None = None,
        deterministic: bool = False,
        fuse: bool = True,
        checkpoint_dir: str | None = None,
        checkpoint_every_s: float | None = None,
        reports_loss: bool = True,
        synchronous: bool = True,
    ) -> ElasticRun:
        """Return the training of `model`, for use in a ``with`` statement.

        Parameters
        ----------
        optimizer
            One, or a list or dictionary of several with parameters of their own: `ElasticRun.step` steps them all.
        extra
            Other objects, by name, that must be alike in all workers and outlive them: schedulers, averages of weights;
            all with `state_dict` and `load_state_dict`.
        virtual_ranks
            Parts that each global batch is cut into, at least as many as there are ever workers. They are part of the
            training: with another number it is another training. None: eight, or as many as Punctual may have workers
            if those are more; if `deterministic`, exactly as many as those. A training that goes on from a checkpoint
            keeps the number that it has.
        deterministic
            Whether weights must be the same to the last bit for any number of workers. Otherwise they differ by
            rounding.
        fuse
            Whether virtual ranks may go through the model together where that makes no difference but for rounding.
        checkpoint_dir
            Folder of checkpoints, from which a training goes on that has lost all its workers or was stopped. None:
            the one that the environment names, if any.
        checkpoint_every_s
            Seconds between checkpoints. None: so that they cost less than 1 % of the time.
        reports_loss
            Whether each step's loss is what may be trained to (``punctual run --until "loss<0.1"``). Otherwise it is what
            the script says with `ElasticRun.report_loss`.
        synchronous
            With parameter servers (``punctual run --servers``), whether a step takes the gradients of all workers. Otherwise
            servers step with each worker's gradients when they come, which were computed with parameters that others may
            have changed since.

        Raises
        ------
        ValueError
            An argument cannot be used, or the function has begun another training before.
        """
        if self._has_training:
            raise invalid(
                "a training function must have one elastic training",
                "a second `context.elastic`",
                "the training function",
                "Do both parts in one `with`, or start a script for each.",
            )
        self._has_training = True
        rank_number = RankNumber.chosen(virtual_ranks, is_deterministic=deterministic)
        store = self._store or checkpoint_store.chosen(checkpoint_dir, every_s=checkpoint_every_s)
        replica = Replica(model, optimizer, extra or {})
        can_fuse = fuse and not deterministic and not normalises_batches(model)
        member = WorkerSession(self._agent, replica, store, rank_number, can_fuse=can_fuse, is_synchronous=synchronous)
        stepper = Stepper(member, is_deterministic=deterministic, draws_dropout=fuse)
        return ElasticRun(member, stepper, reports_loss=reports_loss)
