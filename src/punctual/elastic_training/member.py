"""A worker among the others: its group, its copy of the training, and how both are restored after a change."""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from math import isfinite, nan
from typing import Any, Literal
from zlib import crc32

import torch
from torch import Tensor

from punctual.elastic_training import evaluation
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.checkpoint_store import CheckpointStore
from punctual.elastic_training.collectives import Apart
from punctual.elastic_training.evaluation import Totals
from punctual.elastic_training.gradient_guard import versions
from punctual.elastic_training.group import WorkerGroup
from punctual.elastic_training.membership import Membership, Progress
from punctual.elastic_training.replica import Replica, TrainingState
from punctual.elastic_training.virtual_ranks import RankNumber
from punctual.tracking.complaint import invalid, tell
from punctual.tracking.losses import N_ARRIVED

#: Small tensors are sent together; one as large as this goes alone, without being copied.
_PARCEL_BYTES = 1 << 20


#: Place of an evaluation in the script: before the first loop; in a loop's body, before and after the step is
#: taken; after a loop.
Place = Literal["before", "top", "bottom", "after"]


#: Point of the script that a worker comes to: the loop of an epoch, the next step, an evaluation, a checkpoint, or the end.
Point = tuple[str, int]


#: Place in the script of an evaluation, in words for users.
_IN_WORDS: dict[str, str] = {
    "before": "before the loop", "top": "in the loop", "bottom": "in the loop", "after": "behind the loop",
}  # fmt: skip


def share(
    group: WorkerGroup, source: int, state_here: Callable[[], TrainingState], *, wants: bool
) -> TrainingState | None:
    """Send the source's state to all members.

    * `state_here`: returns the state of this member, if it is the source.
    * `wants`: whether this member needs the state; if not, what it receives is thrown away.

    Returns the state received, in memory of its own; None if it was not wanted, or is this member's.
    """
    if group.n_workers == 1:
        return None
    state = state_here() if group.rank == source else None
    header = group.gather(None if state is None else _header(state))[source]
    received: dict[str, Tensor] = {}
    for parcel in _parcels(header["tensors"]):
        packed = _room(parcel) if state is None else _packed(parcel, state.tensors)
        group.together.send_from(source, packed)
        if wants and state is None:
            received.update(_unpacked(parcel, packed, group.device))
    return TrainingState(received, header["values"]) if wants and state is None else None


#: Description of tensors that are sent at once, a tuple each: name, element type, shape, kind of device, and bytes.
_Parcel = list[tuple[str, str, list[int], str, int]]


def _header(state: TrainingState) -> dict[str, object]:
    entries = [
        (name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), tensor.device.type, tensor.nbytes)
        for name, tensor in state.tensors.items()
    ]
    return {"values": state.values, "tensors": entries}


def _parcels(entries: _Parcel) -> list[_Parcel]:
    small = [entry for entry in entries if entry[-1] < _PARCEL_BYTES]
    return [*([entry] for entry in entries if entry[-1] >= _PARCEL_BYTES), *([small] if small else [])]


def _packed(parcel: _Parcel, tensors: Mapping[str, Tensor]) -> Tensor:
    bytes_of_each = [_as_bytes(tensors[name].cpu()) for name, *_ in parcel]
    return bytes_of_each[0] if len(parcel) == 1 else torch.cat(bytes_of_each)


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _room(parcel: _Parcel) -> Tensor:
    return torch.empty(sum(n_bytes for *_, n_bytes in parcel), dtype=torch.uint8)


def _unpacked(parcel: _Parcel, packed: Tensor, device: torch.device) -> Iterator[tuple[str, Tensor]]:
    parts = packed.split([n_bytes for *_, n_bytes in parcel])
    for (name, kind, shape, device_type, _), part in zip(parcel, parts, strict=True):
        # A copy of what came with others: their places in the parcel need not be multiples of their size.
        own = part if len(parcel) == 1 else part.clone()
        tensor = own.view(getattr(torch, kind)).view(shape)
        yield name, tensor if device_type == "cpu" else tensor.to(device)


def checksums(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return a checksum of each tensor; unequal tensors hardly ever share one."""
    sums = [_bits(tensor).sum(dtype=torch.int64).cpu() for tensor in tensors.values()]
    return dict(zip(tensors, torch.stack(sums).tolist() if sums else (), strict=True))


def differences(everyones: Sequence[Mapping[str, int]]) -> list[tuple[str, list[int], int]]:
    """Return the tensors whose sums differ: name, ranks with another sum than most, and a rank with the usual one.

    `everyones`: results of `checksums`, by rank.
    """
    different = []
    for name in dict.fromkeys(name for sums in everyones for name in sums):
        column = [sums.get(name) for sums in everyones]
        usual = Counter(column).most_common(1)[0][0]  # of equally many that of the lowest rank
        others = [rank for rank, value in enumerate(column) if value != usual]
        if others:
            different.append((name, others, column.index(usual)))
    return different


def _bits(tensor: Tensor) -> Tensor:
    """View the tensor's memory as integers: of 64 bits if they fit, whose sum is the fastest by far, else bytes."""
    flat = _as_bytes(tensor)
    if flat.numel() % 8:
        return flat
    is_aligned = flat.storage_offset() % 8 == 0  # which may differ between workers, and the sum must not
    return (flat if is_aligned else flat.clone()).view(torch.int64)


@dataclass(slots=True)
class Position:
    """Steps done, and the results of evaluations that a worker which starts from here would have to repeat.

    A worker starts at the begin of the script and goes on in the loop of `epoch`, after `i_step` steps of it. The
    evaluations that it comes to on its way there have been made, by all workers together: it takes their results.

    * `seed`: seed that the script had at the beginning.
    * `n_steps`: steps done since the training began.
    * `n_samples`: samples of each of the `i_step` steps; 0: not known.
    * `loss`: mean loss of the last step; NaN before the first.
    * `results`: results by place, in the order of making: those before the first loop, and those since the last step.
    * `losses`: the last ones reported, as many as tell whether the training has come to its goal: all workers tell it
      alike.
    * `finished`: whether the script has said that the training is done.
    * `fuses`, `moving`: findings about the model: whether virtual ranks may go through it together, and which buffers
      it moves; None: not known, or to be found out anew.
    * `modes`: checksum of its modules' modes at the last step.
    """

    seed: int = 0
    n_steps: int = 0
    epoch: int = 0
    i_step: int = 0
    n_samples: int = 0
    loss: float = nan
    results: dict[str, list[Any]] = field(default_factory=dict)
    losses: list[float] = field(default_factory=list)
    finished: bool = False
    fuses: bool | None = None
    moving: list[str] | None = None
    modes: int | None = None

    @classmethod
    def of(cls, values: dict[str, Any]) -> "Position":
        """Make a position from `values`; it does not share lists with them."""
        return cls(**deepcopy(values))

    def values(self) -> dict[str, Any]:
        """Return the position as JSON values."""
        return asdict(self)

    def note(self, loss: float) -> None:
        """Note a reported loss; NaN and infinity do not count."""
        if isfinite(loss):
            self.losses = [*self.losses, loss][-N_ARRIVED:]

    def go_on_with(self, n_samples: int) -> None:
        """Convert the steps of the present epoch to steps of so many samples: a checkpoint's may have had others."""
        if self.n_samples:
            self.i_step = self.i_step * self.n_samples // n_samples
        self.n_samples = n_samples

    def advance(self, loss: float) -> None:
        """Note the end of a step, and its loss."""
        self.loss = loss
        self.n_steps += 1
        self.i_step += 1
        self.results = {place: made for place, made in self.results.items() if place == "before"}


class WorkerReleased(BaseException):
    """Raised to end a dismissed worker. No `Exception`: the script must not take it for one of its own."""


class WorkerSession:
    """A worker and its state, through all generations.

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
        self.position = Position(torch.initial_seed())
        self.place: Place = "before"
        self.device = torch.device("cpu")
        self.group = WorkerGroup(Membership(generation=-1, rank=0, n_workers=1), self.device)
        self.is_beginning = False
        self._is_new = True
        self._boundary: TrainingState | None = None
        #: State that this worker has come with, and the point of the script at which it was taken; None: it is past that.
        self._ahead: tuple[TrainingState, Point] | None = None
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

        * Raises `WorkerReleased`: the worker is not wanted in it.
        * Raises `GroupFault`: it has failed already.
        """
        self.group.drop(after_fault=after_fault)
        membership = self.agent.join(
            n_steps=self.position.n_steps, progress=self._progress(), after_fault=after_fault, has_state=has_state
        )
        if membership is None:
            raise WorkerReleased
        self._enter(membership, evaluates=evaluates)

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
        self.group = WorkerGroup(membership, self.device, self.agent)
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
            wants = all_lack or self.group.rank in membership.lacking
            received = share(self.group, source, self.state, wants=wants)
            if received is not None:
                self._become(received)
                if self._is_new and ("point" in received.values or not self.is_beginning):
                    self._note_ahead(received, _point_of(members[source], received.values))
        if not self.is_beginning:
            self.position.results = members[source]["results"]
        self._is_new = False
        self.compare("a new generation", with_extra=False)
        self._help_evaluate(members, members[source])

    def _begin(self) -> None:
        """Begin without a state in any worker: from the last checkpoint, or anew."""
        state = self.store.latest() if self.store is not None and self.group.rank == 0 else None
        if state is not None:
            self._become(state)
            self._note_ahead(state, _point_of({}, state.values))
            tell(
                f"training goes on at step {self.position.n_steps}, from '{state.origin}'; give another folder to begin anew"
            )

    def _become(self, state: TrainingState) -> None:
        self.replica.put_back(state)
        self.position = Position.of(state.values["position"])
        self.n_virtual_ranks = self._rank_number.after(state.values.get("n_virtual_ranks", self.n_virtual_ranks))
        if self.position.n_steps:  # else torch warns a worker that comes to the end of an epoch before its first step
            for optimizer in self.replica.optimizers.values():
                optimizer._opt_called = True  # type: ignore[attr-defined]  # noqa: SLF001
        self._boundary = None

    def _note_ahead(self, state: TrainingState, point: Point) -> None:
        """Keep the state until this worker comes to the point at which it was taken."""
        tensors = {name: tensor.clone() if _is_repeated(name) else tensor for name, tensor in state.tensors.items()}
        self._ahead = TrainingState(tensors, {**state.values, "point": point}), point

    def arrive(self, *point: Any) -> None:
        """Take the state over once more if it was taken at this point: the script may have changed it on the way here."""
        if self._ahead is None:
            return
        (state, there), n_steps = self._ahead, self.position.n_steps
        # A state from behind a loop holds for the loop, too.
        if point[0] == "loop" and (point == there or (n_steps and point[1] == state.values["position"]["epoch"])):
            self.replica.put_back(state)
        elif point == there:  # the script has repeated what it does to the rest
            self.replica.fill_model(state.tensors)
        if point == there:
            self._ahead = None

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

        `with_extra`: whether tensors in `extra`, and learning rates, are compared too: not while a newcomer has yet to
        repeat what comes after a step.

        * Raises `ValueError`: they do not, and nobody can tell whose is right: no step is taken with them.
        * Raises `GroupFault`: a worker is gone.
        """
        if self.group.n_workers == 1:
            return
        sums = self._sums(with_extra=with_extra)
        if len(set(self.gather(what, crc32(json.dumps(sums).encode())))) > 1:
            self._refuse_differences(differences(self.gather(what, sums)))

    def _refuse_differences(self, different: list[tuple[str, list[int], int]]) -> None:
        name, ranks, usual = different[0]
        more = f", and {len(different) - 1} more" if different[1:] else ""
        raise invalid(
            "all workers must have the same model, optimizer and `extra`",
            f"another '{name}' in worker {' and '.join(map(str, ranks))} than in worker {usual}{more}",
            f"step {self.position.n_steps}",
            "Change weights through the optimizer only, and the rest by what is the same in all workers, as `run.loss` and the "
            "results of `run.evaluate`: not by a batch's loss, and not under `if run.is_first`.",
        )

    def _sums(self, *, with_extra: bool) -> dict[str, int]:
        has_servers = bool(self.group.membership.peers)  # whose state one of the workers has
        state = self.replica.collect()
        sums = checksums(
            {name: tensor for name, tensor in state.tensors.items() if with_extra or not _is_repeated(name)}
        )
        if with_extra:
            sums |= {name: crc32(text.encode()) for name, text in self.replica.texts(state).items()}
        return {name: value for name, value in sums.items() if not (has_servers and name.startswith("optimizer"))}

    def settings(self) -> list[Any]:
        """Return what tells whether the settings of optimizers, or a part of `extra`, have changed."""
        state = self.replica.collect()
        return [
            self.replica.texts(state),
            versions(tensor for name, tensor in state.tensors.items() if _is_repeated(name)),
        ]

    # The state as others may take it over.

    def state(self, point: Point | None = None) -> TrainingState:
        """Return the training's state at the last point from which the script can be continued.

        `point`: the present one; a worker that starts from the state makes up to there what the script has done since.
        """
        if self._ahead is not None:
            return self._ahead[0]
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
            {**self._boundary.values, "position": position, **optimizers, "is_repeated": True}
            | ({"point": point} if point else {}),
        )

    def _values(self) -> dict[str, Any]:
        return {"position": self.position.values(), "n_virtual_ranks": self.n_virtual_ranks}

    def mark_boundary(self) -> None:
        """Mark the point at which new workers start: they repeat the script's work up to the end of the next step."""
        state = self.replica.collect()
        tensors = {name: tensor.clone() for name, tensor in state.tensors.items() if _is_repeated(name)}
        self._boundary = TrainingState(tensors, {**state.values, **self._values()})

    def pass_boundary(self) -> None:
        """Note the end of a step, which is the next point to continue from."""
        self._boundary = self._ahead = None

    # Evaluations.

    @property
    def evaluators(self) -> list[int]:
        """Return the ranks of the workers that make the present evaluation, or the next one."""
        return list(range(self.group.n_workers)) if self._evaluators is None else self._evaluators

    def sum_up(self, sums: Sequence[Totals], place: str, *, is_tuple: bool = False) -> dict[str, Any]:
        """Return the result of the evaluation at `place` from the sums of each evaluator's virtual ranks.

        They are added up in the order of virtual ranks, whoever has made them. Raises `GroupFault`: a worker is gone.
        """
        mine = {"sums": [evaluation.plain(one) for one in sums], "is_tuple": is_tuple}
        everyones = self.gather(f"an evaluation {_IN_WORDS[place]}", mine)
        total: Totals = None
        for kept in (kept for told in everyones for kept in told["sums"]):
            total = evaluation.add(total, evaluation.unplain(kept))
        self._evaluators = None
        return {"totals": evaluation.plain(total), "is_tuple": any(told["is_tuple"] for told in everyones)}

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
            self.record(place, self.sum_up((), place))


def _point_of(source: dict[str, Any], state: Mapping[str, Any]) -> Point:
    """Return the point at which a worker was that told `source` of itself and sent `state`."""
    if "point" in state:
        kind, number = state["point"]
        return kind, number
    if not state.get("is_repeated") or not source:
        return "loop", state["position"]["epoch"]
    place = source["place"]
    if place in {"top", "bottom"}:
        return "step", 0
    return (place, len(source["results"].get(place, ()))) if source["evaluates"] else ("end", 0)


def _is_repeated(name: str) -> bool:
    """Whether a tensor is changed by what a new worker repeats: in `extra`, or a learning rate that is a tensor."""
    return name.startswith("extra/") or "/param_groups/" in name


def _with_newest_state(optimizer: dict[str, Any], newest: dict[str, Any]) -> dict[str, Any]:
    """Combine the settings of one state with the values of the newest; both as `plain.take_apart` makes them."""
    ((mark, pairs),) = optimizer.items()
    states = dict(newest[mark])
    return {mark: [[name, states[name] if name == "state" else value] for name, value in pairs]}


def _progress_at(position: dict[str, Any]) -> tuple[int, int]:
    """Steps done, and evaluations since the last one."""
    return position["n_steps"], sum(len(made) for made in position["results"].values())
