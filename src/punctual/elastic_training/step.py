"""One step in one worker: parts go through the model, gradients are summed over all workers, the optimiser steps."""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, Self
from zlib import crc32

import torch
from torch import Tensor, nn
from torch.nn.utils import clip_grad_norm_

from punctual.elastic_training.collectives import Apart
from punctual.elastic_training.dropout import SEED_MAX, RankDropout
from punctual.elastic_training.gradient_guard import GradientGuard, versions
from punctual.elastic_training.member import WorkerSession
from punctual.elastic_training.random_state import mixed, seed_all
from punctual.elastic_training.reduction import FlatSum, Reduction, TreeTotal, clear, total_over_workers
from punctual.elastic_training.replica import overlaps
from punctual.elastic_training.sample_means import Weights, are_alike, weights
from punctual.elastic_training.virtual_ranks import Part, TreeSum, cut, share
from punctual.tracking.complaint import invalid, warn

if TYPE_CHECKING:
    from punctual.elastic_training.servers.served_sum import ServedSum

#: Numbers sent with the gradients besides the loss: votes to leave the generation, requests to stop, against fusing,
#: requests to compare, and each worker's epoch and step.
_N_NOTES = 6


_BODY = "the body of `run.batches`"


class MovingBuffers:
    """Buffers of a model through the virtual ranks of a step: each rank finds them as they were when the step began.

    After the step they are averaged over the virtual ranks, each with the weight of its samples; whole numbers, such as
    counters, advance by their average change, rounded.

    `names`: buffers that move; None: any may, and `moved` tells which did.
    """

    def __init__(self, model: nn.Module, n_virtual_ranks: int, names: Sequence[str] | None) -> None:
        self._is_known = names is not None
        # Nothing can write to one whose elements overlap.
        every = (name for name, buffer in model.named_buffers() if not overlaps(buffer))
        self._names = list(every if names is None else names)
        #: Module and name in it of each: a script may put another tensor there.
        self._places = [(model.get_submodule(name.rpartition(".")[0]), name.rpartition(".")[2]) for name in self._names]
        self._first = [module.get_buffer(name).detach() for module, name in self._places]
        self._n_virtual_ranks = n_virtual_ranks
        self._start = [buffer.clone() for buffer in self._buffers]
        #: Of each virtual rank: its number, its weight, and the buffers that it has moved.
        self._ends: list[tuple[int, float, dict[str, Tensor]]] = []

    @property
    def _buffers(self) -> list[Tensor]:
        """Their present tensors; of one that has got another size, which is a cache, the one before."""
        present = [module.get_buffer(name).detach() for module, name in self._places]
        return [now if now.shape == first.shape else first for now, first in zip(present, self._first, strict=True)]

    def moved(self) -> list[str]:
        """Return the buffers that a virtual rank has changed since the step began; if known before, all that move."""
        moved = {name for _, _, ends in self._ends for name in ends}
        return [name for name in self._names if self._is_known or name in moved]

    @torch.no_grad()
    def begin_rank(self) -> None:
        """Reset the buffers to the step's start."""
        for (module, name), first, start in zip(self._places, self._first, self._start, strict=True):
            first.copy_(start)
            if module.get_buffer(name).shape == first.shape:
                setattr(module, name, first)

    def end_rank(self, virtual_rank: int, weight: float) -> None:
        """Record a virtual rank's buffers and its weight, 0 if it has no samples."""
        watched = zip(self._names, self._buffers, self._start, strict=True) if weight else ()
        ends = {
            name: buffer.clone() for name, buffer, start in watched if self._is_known or not torch.equal(buffer, start)
        }
        self._ends.append((virtual_rank, weight, ends))

    @torch.no_grad()
    def end_step(self, names: Sequence[str], mean_of: Callable[[TreeSum[Tensor]], Tensor]) -> None:
        """Average the buffers `names` over the virtual ranks; `mean_of` returns the total of a tree of their weighted values."""
        watched = zip(self._names, self._buffers, self._start, strict=True)
        moving = [(name, buffer, start) for name, buffer, start in watched if name in names]
        if not moving:
            return
        tree: TreeSum[Tensor] = TreeSum(self._n_virtual_ranks, Tensor.add_)
        for virtual_rank, weight, ends in self._ends:
            parts = [_wide(ends.get(name, start), start) for name, _, start in moving]
            # Not a product with 0, which is no number for an infinite value.
            tree.put_leaf(virtual_rank, torch.cat(parts).mul_(weight) if weight else torch.zeros_like(torch.cat(parts)))
        means = mean_of(tree).split([_wide(start, start).numel() for _, _, start in moving])
        for (_, buffer, start), mean in zip(moving, means, strict=True):
            if buffer.is_complex() or buffer.is_floating_point():
                _real(buffer).copy_(mean.view_as(_real(buffer)))
            else:
                buffer.copy_(start.long() + mean.view_as(buffer).round().long())


def _real(buffer: Tensor) -> Tensor:
    return torch.view_as_real(buffer) if buffer.is_complex() else buffer


def _wide(buffer: Tensor, start: Tensor) -> Tensor:
    """Return a buffer's values, or of whole numbers their change since the start, as flat float64."""
    is_whole = not (buffer.is_complex() or buffer.is_floating_point())
    return (buffer.long() - start.long() if is_whole else _real(buffer)).reshape(-1).double()


class RandomProbe:
    """Watches one pass through the model for random numbers drawn other than for dropout.

    `seeds`: seeds of the pass, set just before.
    """

    def __init__(self, dropout: RankDropout, *seeds: int) -> None:
        self._dropout = dropout
        self._n_draws = dropout.n_draws
        self._seed = mixed(*seeds)
        self._others = _others()

    def drew(self) -> bool:
        """Whether the pass has changed a random state in another way than dropout does."""
        state = torch.get_rng_state()
        return not any(torch.equal(state, expected) for expected in self._expected()) or self._others != _others()

    def _expected(self) -> Iterator[Tensor]:
        """Yield the random states that dropout alone may have left; draws of a repeated pass are taken back."""
        generator = torch.Generator().manual_seed(self._seed)
        yield generator.get_state()
        for _ in range(self._dropout.n_draws - self._n_draws):
            torch.randint(SEED_MAX, (), generator=generator)
            yield generator.get_state()


def _others() -> list[Any]:
    """Return the random states that dropout does not touch."""
    numpy = sys.modules.get("numpy")
    states: list[Any] = [random.getstate()]
    if numpy is not None:
        kind, keys, *rest = numpy.random.get_state()
        states.append((kind, keys.tobytes(), *rest))
    if torch.cuda.is_initialized():
        states += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return states


@dataclass(slots=True)
class Step:
    """A step in progress.

    * `places`: each virtual rank's places in the global batch.
    * `parts`: this worker's share.
    * `buffers`: the model's buffers, which each virtual rank moves from where they were when it began.
    * `versions`: versions of the parameters when it began, which rise with each change in place.
    * `has_begun`: whether there are gradients of it.
    * `is_over`: whether the step has been taken, or given up.
    * `part`: part under way; None: `run.step` has ended it.
    * `is_backward_done`: whether the part has had its backward.
    * `rank_loss`: what the losses of the present virtual rank add up to.
    * `probe`: watches the part, if it is to be found out what the model does; `drew`: whether one has drawn random numbers.
    * `weights`: how the parts weight what their losses add up, if that is to be found out.
    * `settings`: settings of the optimizers, and what is in `extra`, after the first part; if that is to be looked at.
    """

    places: list[range]
    seed: int
    parts: list[Part]
    buffers: MovingBuffers
    versions: list[int]
    has_begun: bool = False
    is_over: bool = False
    part: Part | None = None
    is_backward_done: bool = False
    rank_loss: float = 0.0
    probe: RandomProbe | None = None
    drew: bool = False
    weights: list[Weights] = field(default_factory=list)
    settings: list[Any] = field(default_factory=list)


class Stepper:
    """Takes steps. A context manager: inside, dropout belongs to the virtual ranks.

    `draws_dropout`: whether masks of dropout are drawn here, or by torch: then virtual ranks must be kept apart.

    * `leaves`: since the last step it is known that this generation ends here.
    * `exit_code`: exit code with which Punctual wants the processes to end, as all know since the last step; 0: none.
    * `wants_comparison`: this worker wants all to compare what they have, after the next step.
    * `compares`: all do so now, as all know since the last step.
    """

    def __init__(self, member: WorkerSession, *, is_deterministic: bool, draws_dropout: bool = True) -> None:
        self.leaves = False
        self.exit_code = 0
        self.wants_comparison = self.compares = False
        self._n_no_number = 0
        self._member = member
        self._is_deterministic = is_deterministic
        self._draws_dropout = draws_dropout
        replica = member.replica
        self._params = replica.params
        self._guard = GradientGuard(replica.named_params, list(replica.optimizers.values()))
        self._reduction = Reduction(self._params)
        #: The same, if parameter servers do it.
        self.served: ServedSum | None = None
        self._sent: list[Tensor] = []  # memory of gradients that are sent; making it takes as long as sending
        self._dropout = RankDropout()
        self._step = Step([], 0, [], MovingBuffers(replica.model, member.n_virtual_ranks, ()), [], is_over=True)

    def __enter__(self) -> Self:
        self._guard.__enter__()
        if self._draws_dropout:
            self._dropout.install()
        return self

    def __exit__(self, *_: object) -> None:
        self._dropout.uninstall()
        self._guard.__exit__()

    # Generations.

    def connect(self) -> None:
        """Sum over a new group from now on."""
        group = self._member.group
        self.leaves = False
        peers = group.membership.peers
        if peers:
            from punctual.elastic_training.servers import served_sum  # only with `--servers`

            optimizers = [*self._member.replica.optimizers.values()]
            optimizer = served_sum.only_optimizer(optimizers, is_deterministic=self._is_deterministic)
            self.served = self._reduction = served_sum.ServedSum(
                optimizer, peers, is_first=group.rank == 0, is_synchronous=not self._member.is_asynchronous
            )
        elif self._is_deterministic:
            self._reduction = TreeTotal(self._params, group, _N_NOTES, self._member.n_virtual_ranks)
        elif group.n_workers == 1:
            self._reduction = Reduction(self._params)
        else:
            self._reduction = FlatSum(self._params, group, _N_NOTES, self._sent)

    def disconnect(self, *, after_fault: bool = False) -> bool:
        """Disconnect from the group; return whether the workers have the state, not lost with its servers."""
        served, reduction = self.served, self._reduction
        self.served, self._reduction = None, Reduction(self._params)
        has_state = True
        if served is not None:
            # Servers may have stepped with what the workers take for given up, unless each worker goes its own way.
            has_state = (not after_fault or self._member.is_asynchronous) and served.leave()
        reduction.close()
        return has_state

    # A step, in the order of the calls.

    def parts(self, places: list[range], n_samples_max: int | None, *, can_fuse: bool) -> list[Part]:
        """Return the worker's present share of a step."""
        is_fused = bool(self._member.position.fuses) and can_fuse and self._member.can_fuse
        return share(places, self._ranks, is_fused=is_fused, n_samples_max=n_samples_max)

    def begin(self, places: list[range], seed: int, n_samples_max: int | None, *, can_fuse: bool) -> Step:
        """Begin the step at the training's position.

        In an epoch's first step, and where the script has switched a module's mode, it is found out, by all workers alike, what
        the model does: whether it moves buffers or draws random numbers, and whether its loss is a weighted mean. So that
        step's virtual ranks go through it one by one.
        """
        member = self._member
        modes = crc32(bytes(module.training for module in member.replica.model.modules()))
        if member.position.i_step == 0 or modes != member.position.modes:
            member.position.fuses = member.position.moving = None
        member.position.modes = modes
        parts = self.parts(places, n_samples_max, can_fuse=can_fuse)
        buffers = MovingBuffers(member.replica.model, member.n_virtual_ranks, member.position.moving)
        self._step = Step(places, seed, parts, buffers, versions(self._params))
        clear(self._params)  # of what the script may have tried between two steps
        self._guard.note()
        return self._step

    @property
    def _ranks(self) -> range:
        """Return the worker's virtual ranks."""
        group = self._member.group
        return cut(self._member.n_virtual_ranks, group.n_workers)[group.rank]

    def begin_part(self, part: Part) -> None:
        """Begin a part whose samples have been fetched: the script's code follows."""
        member, step, first = self._member, self._step, part.pieces[0]
        member.agent.stamp(member.position.n_steps, waiting=False)
        if first.i_piece == 0:
            step.buffers.begin_rank()
        # Stands for all virtual ranks.
        rank = -1 if member.position.fuses else first.virtual_rank
        seeds = (step.seed, member.position.n_steps, rank, first.i_piece, 1)
        seed_all(*seeds)
        self._dropout.begin_part(part.pieces if self._draws_dropout else (), part.n_samples)
        is_known = member.position.fuses is not None or not member.can_fuse
        step.probe = None if is_known else RandomProbe(self._dropout, *seeds)
        step.part, step.is_backward_done = part, False

    def backward(self, loss: Tensor) -> None:
        step, part = self._step, self._step.part
        if part is None or step.is_backward_done:
            raise invalid(
                "each batch must get one backward",
                "another one",
                _BODY,
                "Add the losses up, and call run.backward once.",
            )
        if loss.numel() != 1:
            raise invalid(
                "`loss` must be one number", f"shape {tuple(loss.shape)}", "`run.backward`",
                "Take the mean over the samples: loss.mean().",
            )  # fmt: skip
        step.is_backward_done = step.has_begun = True
        self._guard.check(partial(self._where, part))
        if part.weight:
            if step.probe is not None:
                step.weights.append(weights(loss, part.n_samples))
            torch.autograd.backward(loss, None if part.weight == 1 else torch.full_like(loss, part.weight))
            step.rank_loss += part.weight * float(loss.detach())
        self._guard.note()

    def _where(self, part: Part) -> str:
        parts = self._step.parts
        return f"part {parts.index(part) + 1} of {len(parts)} of step {self._member.position.n_steps + 1}"

    def end_part(self, *, clip_norm: float | None, exit_code: int) -> bool:
        """End a part; return whether a step was taken with it.

        Raises `GroupFault`: a worker is gone, and the step is not taken.
        """
        if clip_norm is not None and self.served is not None:
            raise invalid(
                "`clip_norm` must not go with parameter servers, each of which sees a part of the gradients",
                f"{clip_norm:g}",
                "`run.step`",
                "Leave it out, or train without `--servers`.",
            )
        step, part = self._step, self._step.part
        step.part = None
        if part is None or not step.is_backward_done:
            raise invalid(
                "`run.step` must be called once for each batch, after `run.backward`",
                "a call without it" if part else "another call", _BODY,
                "Write run.backward(loss) and then run.step(), instead of loss.backward() and optimizer.step().",
            )  # fmt: skip
        self._guard.check(partial(self._where, part))
        self._check_settings(part)
        if step.probe is not None:
            step.drew = step.probe.drew() or step.drew
        if part.ends_rank and part.weight:
            self._end_rank(part.pieces[-1].virtual_rank, part.weight)
        if not part.is_last:
            self._guard.note()
            if self._member.position.fuses is None and not step.settings:
                step.settings = self._member.settings()
            return False
        self._end_step(clip_norm=clip_norm, exit_code=exit_code)
        return True

    def _end_rank(self, virtual_rank: int, weight: float) -> None:
        self._step.buffers.end_rank(virtual_rank, weight)
        self._reduction.end_rank(virtual_rank, self._step.rank_loss)
        self._step.rank_loss = 0.0

    def _end_step(self, *, clip_norm: float | None, exit_code: int) -> None:
        member, step = self._member, self._step
        for i in self._ranks:
            if not step.places[i]:  # the last step of an epoch may not have samples for all
                self._end_rank(i, 0.0)
        moved = step.buffers.moved()
        votes = float(bool(moved) or step.drew)
        leaves = float(member.agent.generation_wanted > member.group.membership.generation)
        member.agent.stamp(member.position.n_steps, waiting=True)
        # Only the first worker hears what Punctual wants, so the sum of exit codes is the one.
        share_frac = sum(len(step.places[i]) for i in self._ranks) / sum(map(len, step.places))
        compares = float(self._is_comparison_due())
        n_leaving, code, n_against, n_comparing, loss = self._sum_up(
            (leaves, float(exit_code), votes, compares), share_frac
        )
        if member.is_asynchronous:  # over this worker's virtual ranks, which have that share of the step's samples
            if share_frac:
                step.buffers.end_step(
                    moved, lambda tree: torch.stack([root.total for root in tree.roots]).sum(0) / share_frac
                )
        else:
            if member.position.moving is None:  # a virtual rank may have moved others
                everyones = member.group.gather((moved, step.weights))
                moved = sorted({name for names, _ in everyones for name in names})
                step.weights = [terms for _, own in everyones for terms in own]
            step.buffers.end_step(
                moved, partial(total_over_workers, member.group, n_virtual_ranks=member.n_virtual_ranks)
            )
        self._learn(clip_norm)
        self.leaves, self.exit_code = n_leaving > 0, round(code)
        self.wants_comparison, self.compares = False, n_comparing > 0
        if not isfinite(loss):
            self._warn_loss(loss)
        if member.position.fuses is None:
            member.position.fuses = member.can_fuse and not n_against and are_alike(step.weights)
        member.position.moving = moved
        member.position.advance(loss)
        member.pass_boundary()
        step.is_over = True
        # Stands for none, in what comes after a step.
        seed_all(step.seed, member.position.n_steps, -2)

    def _warn_loss(self, loss: float) -> None:
        """Warn of a loss that is not finite: the first one, the tenth, the hundredth and so on."""
        self._n_no_number += 1
        if self._member.group.rank == 0 and str(self._n_no_number).strip("0") == "1":
            warn(
                "the loss of a step must be a number",
                f"{loss} ({self._n_no_number} so far)",
                f"step {self._member.position.n_steps + 1}",
                "Training goes on, but may learn nothing any more. Lower the learning rate, give run.step(clip_norm=1.0), or "
                "look for samples that are no numbers, and for means over nothing, as where all samples of a part are masked.",
            )

    def _is_comparison_due(self) -> bool:
        """Whether weights must be compared after this step: a checkpoint follows, or the model has changed them itself."""
        member = self._member
        is_due = member.store is not None and member.group.rank == 0 and member.store.is_due()
        return is_due or self.wants_comparison or versions(self._params) != self._step.versions

    def _sum_up(self, notes: tuple[float, ...], share_frac: float) -> list[float]:
        """Return the sums of the notes and, as the last, of the losses; the gradients are summed up, too.

        Raises `ValueError`: the workers are not at the same step: one of them has left a loop, say.
        """
        member, served = self._member, self.served
        # Their sums over thousands of workers are exact as float32.
        place = [float(member.position.epoch % 4096), float(member.position.i_step % 4096)]
        if served is not None:
            served.exit_code = round(notes[1])
        try:
            *sums, epochs, steps, loss = (served or self._reduction).finish((*notes, *place), share_frac)
        except Apart:
            raise self._apart() from None
        if not member.is_asynchronous and [epochs, steps] != [member.group.n_workers * number for number in place]:
            raise self._apart()
        if served is not None:
            sums[1] = served.exit_code
        return [*sums, loss]

    def _apart(self) -> ValueError:
        member = self._member
        here = (
            f"epoch {member.position.epoch}, step {member.position.i_step} (both from 0) in worker {member.group.rank}"
        )
        return member.apart(f"{here}, and another place in another")

    def _learn(self, clip_norm: float | None) -> None:
        if self.served is not None:  # the servers have
            return
        if clip_norm is not None:
            clip_grad_norm_(self._params, clip_norm)
        with self._guard.learning():
            for optimizer in self._member.replica.optimizers.values():
                optimizer.step()
        clear(self._params)

    def check_body(self, part: Part) -> None:
        """Check that the loop's body has called what it must."""
        self._dropout.begin_part((), 0)
        if self._step.part is not None:
            raise invalid(
                "each batch must get `run.backward` and `run.step`", "a batch without them", _BODY,
                "Call both for every batch; to leave samples out, multiply their losses by zero.",
            )  # fmt: skip
        if not part.is_last:
            self._check_settings(part)

    def _check_settings(self, part: Part) -> None:
        """Check, in an epoch's first step, that the script has not done amid it what it is to do once a step."""
        if self._step.settings and self._step.settings != self._member.settings():
            raise invalid(
                "schedulers, averages of weights and whatever else belongs to a step must go on once a step",
                "a learning rate, or a part of `extra`, that has changed",
                self._where(part),
                "Write `if run.step():` above it: a worker's share of a step may come in several batches.",
            )

    # Faults.

    def give_up(self) -> None:
        """Give up the step and undo its effects."""
        self._step.buffers.begin_rank()
        self._reduction.forget()
        self.compares = False  # as in a worker that comes now
        self._step.is_over = True
