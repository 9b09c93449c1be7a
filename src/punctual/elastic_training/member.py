"""A worker among the others: its group, its copy of the training, and how both are restored after a change."""

import json
from collections.abc import Callable, Sequence
from typing import Any
from zlib import crc32

import torch
from torch import Tensor

from punctual.elastic_training import evaluation, state_transfer
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.collectives import Apart
from punctual.elastic_training.evaluation import Totals
from punctual.elastic_training.group import GroupFault, WorkerGroup
from punctual.elastic_training.membership import Membership, Progress
from punctual.elastic_training.position import Place, Position
from punctual.elastic_training.replica import Replica, TrainingState
from punctual.elastic_training.virtual_ranks import RankNumber, TreeSum
from punctual.tracking.complaint import invalid, tell

#: Place in the script of an evaluation, in words for users.
_IN_WORDS: dict[str, str] = {
    "before": "before the loop", "top": "in the loop", "bottom": "in the loop", "after": "behind the loop",
}  # fmt: skip


class WorkerReleased(BaseException):
    """Raised to end a dismissed worker. No `Exception`: the script must not take it for one of its own."""


class WorkerSession:
    """A worker and its state, through all generations.

    * `fuses`, `moving`: findings about the model: whether virtual ranks may go through it together, and which buffers
      it moves; None: not known, or to be found out anew.
    * `can_fuse`: whether they are ever to go together.
    * `place`: place of this worker in the script.
    """

    def __init__(
        self,
        agent: AgentClient,
        replica: Replica,
        store: CheckpointStore | None,
        rank_number: RankNumber,
        *,
        can_fuse: bool,
        is_synchronous: bool = True,
    ) -> None:
        self.agent = agent
        self.replica = replica
        self.store = store
        self.n_virtual_ranks = rank_number.n
        self._rank_number = rank_number
        self.can_fuse = can_fuse
        self._is_synchronous = is_synchronous
        self.fuses: bool | None = None
        self.moving: list[str] | None = None
        self.position = Position()
        self.place: Place = "before"
        self.device = torch.device("cpu")
        self.group = WorkerGroup(Membership(generation=-1, rank=0, n_workers=1), self.device)
        self.is_beginning = False
        self._is_new = True
        self._boundary: TrainingState | None = None
        #: Ranks of workers in the midst of an evaluation after a fault; None: all.
        self._evaluators: list[int] | None = None

    @property
    def is_asynchronous(self) -> bool:
        """Whether parameter servers step with each worker's gradients separately."""
        return not self._is_synchronous and bool(self.group.membership.peers)

    # Generations.

    def reform(self, *, after_fault: bool = False, evaluates: bool = False, has_state: bool = True) -> None:
        """Join the next generation, with the training's state.

        * `has_state`: the state is with the workers, and was not lost with its servers.
        * `evaluates`: this worker was in an evaluation when its group failed, and will go on with it.

        Raises `Leave`: the worker is not wanted in it.
        """
        while True:
            self.group.drop(after_fault=after_fault)
            membership = self.agent.join(
                n_steps=self.position.n_steps, progress=self._progress(), after_fault=after_fault, has_state=has_state
            )
            if membership is None:
                raise WorkerReleased
            try:
                return self._enter(membership, evaluates=evaluates)
            except GroupFault:
                after_fault = True

    def _progress(self) -> Progress:
        if self._is_new:
            return None
        # Asynchronous workers differ, and it is the first of them that Punctual hears.
        return () if self.is_asynchronous else _progress_at(self.position.values())

    def _enter(self, membership: Membership, *, evaluates: bool) -> None:
        if self._is_new:
            # Move the model to its worker's device, which is known only now.
            if membership.i_device is not None:
                device = torch.device("cuda", membership.i_device)
                torch.cuda.set_device(device)  # the script's own "cuda" is the worker's, too
                self.replica.move(device)
            first = next(self.replica.model.parameters(), None)
            self.device = torch.device("cpu") if first is None else first.device
        self.group = WorkerGroup.form(membership, self.agent, self.device)
        self._agree(evaluates=evaluates)
        if membership.n_workers > self.n_virtual_ranks:
            raise invalid(
                "`virtual_ranks` must be at least the number of workers", f"{self.n_virtual_ranks}",
                f"{membership.n_workers} workers", "Give context.elastic(virtual_ranks=...) the most there may ever be.",
            )  # fmt: skip

    def _agree(self, *, evaluates: bool) -> None:
        """Take the state of the member that the agent names: it knows each one's progress."""
        membership = self.group.membership
        mine = {
            "evaluates": evaluates, "place": self.place, "n_steps": self.position.n_steps,
            "results": self.position.values()["results"],
        }  # fmt: skip
        members = self.group.gather(mine)
        self.is_beginning = membership.source == -1
        source = 0 if self.is_beginning else membership.source
        if self.is_beginning:
            self._begin()
        all_lack = self.is_beginning or not self._is_synchronous
        if all_lack or membership.lacking:
            received = self._share(source, self.state, wants=all_lack or self.group.rank in membership.lacking)
            if received is not None:
                self._become(received)
        if not self.is_beginning:
            self.position.results = Position.of(members[source]).results
        self._is_new = False
        self.compare("a new generation", with_extra=False)
        self._help_evaluate(members, members[source])

    def _begin(self) -> None:
        """Begin without a state in any worker: from the last checkpoint, or anew."""
        state = self.store.latest() if self.store is not None and self.group.rank == 0 else None
        if state is not None:
            self._become(state)
            tell(
                f"training goes on at step {self.position.n_steps}, from '{state.origin}'; give another folder to begin anew"
            )

    def _share(self, source: int, state: Callable[[], TrainingState], *, wants: bool) -> TrainingState | None:
        """Send the state of member `source` to those who want it; return the received state."""
        if self.group.n_workers == 1:
            return None
        is_source = self.group.rank == source
        return state_transfer.share(self.group, source, state() if is_source else None, wants=wants and not is_source)

    def _become(self, state: TrainingState) -> None:
        self.replica.put_back(state)
        self.position = Position.of(state.values["position"])
        self.fuses, self.moving = state.values["fuses"], state.values["moving"]
        self.n_virtual_ranks = self._rank_number.after(state.values.get("n_virtual_ranks", self.n_virtual_ranks))
        if self.position.n_steps:  # else torch warns a worker that comes to the end of an epoch before its first step
            for optimizer in self.replica.optimizers.values():
                optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001
        self._boundary = None

    def gather(self, what: str, value: Any) -> list[Any]:
        """Return each worker's value, by rank; all must have come to the same place of the script.

        * Raises `ValueError`: another worker is somewhere else.
        * Raises `GroupFault`: a worker is gone.
        """
        n_steps = 0 if self.is_asynchronous else self.position.n_steps
        self.agent.stamp(self.position.n_steps, waiting=True)
        try:
            everyones = self.group.gather([what, n_steps, value])
        except Apart:
            raise self.apart(f"{what} after step {n_steps} in worker {self.group.rank}, and none in another") from None
        places = [(what, n_steps) for what, n_steps, _ in everyones]
        self.agent.stamp(self.position.n_steps, waiting=False)
        if len(set(places)) > 1:
            where = [f"{what} after step {n} in worker {rank}" for rank, (what, n) in enumerate(places)]
            raise self.apart(", ".join(where))
        return [value for _, _, value in everyones]

    def apart(self, got: str) -> ValueError:
        """Return the exception for workers that have come to different places of the script."""
        return invalid(
            "all workers must go the same way through the script",
            got,
            "this training",
            "Have `break`, `return`, `run.finish()`, evaluations and datasets follow from `run.loss` or from what "
            "`run.evaluate` returns, which are the same in all, and not from `run.rank` or `run.is_first`.",
        )

    def compare(self, what: str, *, with_extra: bool = True) -> None:
        """Check that all workers have the same state.

        `with_extra`: whether tensors in `extra` are compared too: not while a newcomer has yet to repeat what comes
        after a step.

        * Raises `ValueError`: they do not, and nobody can tell whose is right: no step is taken with them.
        * Raises `GroupFault`: a worker is gone.
        """
        sums = state_transfer.checksums(self._compared(with_extra=with_extra))
        if len(set(self.gather(what, crc32(json.dumps(sums).encode())))) > 1:
            self._refuse_differences(state_transfer.differences(self.gather(what, sums)))

    def _refuse_differences(self, different: list[tuple[str, list[int], int]]) -> None:
        name, ranks, usual = different[0]
        more = f", and {len(different) - 1} more" if different[1:] else ""
        raise invalid(
            "all workers must have the same model, optimizer and `extra`",
            f"another '{name}' in worker {_listed(ranks)} than in worker {usual}{more}",
            f"step {self.position.n_steps}",
            "Change weights through the optimizer only, or in all workers alike: not under `if run.is_first`.",
        )

    def _compared(self, *, with_extra: bool) -> dict[str, Tensor]:
        has_servers = bool(self.group.membership.peers)  # whose state one of the workers has
        is_compared = {"model": True, "optimizer": not has_servers, "extra": with_extra}
        tensors = self.replica.collect().tensors
        return {name: tensor for name, tensor in tensors.items() if is_compared[name.partition("/")[0]]}

    # The state as others may take it over.

    def state(self) -> TrainingState:
        """Return the training's state at the last point from which the script can be continued."""
        state = self.replica.collect()
        values = {**state.values, **self._values()}
        if self._boundary is None:
            return TrainingState(state.tensors, values)
        newest = {key: values["position"][key] for key in ("results", "finished")}
        position = {**self._boundary.values["position"], **newest}
        optimizers = {
            name: _with_newest_state(self._boundary.values[name], values[name]) for name in self.replica.optimizers
        }
        return TrainingState(
            {**state.tensors, **self._boundary.tensors},
            {**self._boundary.values, "position": position, **optimizers},
        )

    def _values(self) -> dict[str, Any]:
        return {
            "position": self.position.values(), "fuses": self.fuses, "moving": self.moving,
            "n_virtual_ranks": self.n_virtual_ranks,
        }  # fmt: skip

    def mark_boundary(self) -> None:
        """Mark the point at which new workers start: they repeat the script's work up to the end of the next step."""
        state = self.replica.collect()
        tensors = {name: tensor.clone() for name, tensor in state.tensors.items() if name.startswith("extra/")}
        self._boundary = TrainingState(tensors, {**state.values, **self._values()})

    def pass_boundary(self) -> None:
        """Note the end of a step, which is the next point to continue from."""
        self._boundary = None

    # Evaluations.

    @property
    def evaluators(self) -> list[int]:
        """Return the ranks of the workers that make the present evaluation, or the next one."""
        return list(range(self.group.n_workers)) if self._evaluators is None else self._evaluators

    def sum_up(self, tree: TreeSum[Totals] | None, place: str, *, is_tuple: bool = False) -> dict[str, Any]:
        """Return the result of the evaluation at `place` from the evaluators' trees; None: this worker is no evaluator.

        Raises `GroupFault`: a worker is gone.
        """
        roots = [] if tree is None else evaluation.plain_roots(tree)
        everyones = self.gather(f"an evaluation {_IN_WORDS[place]}", {"roots": roots, "is_tuple": is_tuple})
        whole: TreeSum[Totals] = TreeSum(self.n_virtual_ranks, evaluation.add)
        for rank in self.evaluators:
            evaluation.put_roots(whole, everyones[rank]["roots"])
        self._evaluators = None
        return {"totals": evaluation.plain(whole.total), "is_tuple": any(one["is_tuple"] for one in everyones)}

    def record(self, place: str, result: dict[str, Any]) -> None:
        self.position.results.setdefault(place, []).append(result)

    def _help_evaluate(self, members: list[dict[str, Any]], furthest: dict[str, Any]) -> None:
        """Take part in the end of an evaluation that this worker does not make, or has yet to reach."""
        making = [
            rank for rank, member in enumerate(members)
            if member["evaluates"] and _progress_at(member) == _progress_at(furthest)
        ]  # fmt: skip
        self._evaluators = making or None
        if making and self.group.rank not in making:
            place = members[making[0]]["place"]
            self.record(place, self.sum_up(None, place))


def _with_newest_state(optimizer: dict[str, Any], newest: dict[str, Any]) -> dict[str, Any]:
    """Combine the settings of one state with the values of the newest; both as `plain.take_apart` makes them."""
    ((mark, pairs),) = optimizer.items()
    states = dict(newest[mark])
    return {mark: [[name, states[name] if name == "state" else value] for name, value in pairs]}


def _listed(ranks: Sequence[int]) -> str:
    return " and ".join(map(str, ranks))


def _progress_at(position: dict[str, Any]) -> tuple[int, int]:
    """Steps done, and evaluations since the last one."""
    return position["n_steps"], sum(len(made) for made in position["results"].values())
