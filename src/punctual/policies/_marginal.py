"""Workers and servers go one by one to the job that gains most time by them."""

from collections.abc import Callable, Iterable, Sequence
from heapq import heapify, heappop, heapreplace
from math import inf
from typing import NamedTuple

from punctual.core.job import JobView
from punctual.core.resources import NOTHING, TOLERANCE, Resources, total
from punctual.policies._jobs import seconds_for, seniority
from punctual.policies._plan_builder import PlanBuilder, Space

#: Numbers of workers and of servers; a job without servers has none of these at any time.
Parts = tuple[int, int]

_HOLDS_NOTHING: Parts = (0, 0)


class Step(NamedTuple):
    """One more worker (or the next allowed number of them), or one more server: what a job would have, and gain by it.

    Attributes
    ----------
    parts
        What the job would have.
    more
        What that is more than now.
    end_s
        Seconds that the job would still take; infinite where that is not known.
    known
        False where only jobs of which nothing is known can be compared by `gain_s`.
    gain_s
        Seconds, for each share of the cluster that the step takes of what it takes most of.
    """

    parts: Parts
    more: Resources
    end_s: float
    known: bool
    gain_s: float


class Runner:
    """One job made of workers on nodes of one kind: what it had, what it gets so far, and how it came there."""

    __slots__ = (
        "_counts", "_end_s", "_i_after", "_limit", "_pressure", "_server", "_shares", "_speed", "_steps",
        "_worker", "age", "before", "kind", "next_steps", "path", "view",
    )  # fmt: skip

    def __init__(self, builder: PlanBuilder, view: JobView, kind: str, before: Parts, pressure: float) -> None:
        spec = view.spec
        self.view, self.kind, self.before, self.age = view, kind, before, seniority(view)
        self._pressure = pressure
        self._worker, self._server = spec.worker or spec.ceiling, spec.server or NOTHING
        #: Dominant shares of a worker and of a server.
        self._shares = (1.0, 1.0)
        self._limit = spec.ceiling if spec.controller is None else view.demand.at_most(spec.ceiling)
        self._counts = builder.hardware.worker_counts(spec) if spec.server else builder.hardware.counts(spec)
        #: Index of the next larger number of workers.
        self._i_after = 1
        self._speed = builder.hardware.speed(view)
        self._steps = view.remaining_steps(builder.snapshot.at)
        #: All that it had in this race, its least first: what is tried where the last one does not fit on nodes.
        self.path: list[Parts] = [self.least] if self._counts else []
        self._end_s = inf
        #: What it could take next, the most useful first.
        self.next_steps: list[Step] = []

    @property
    def least(self) -> Parts:
        return self._counts[0], int(self._server is not NOTHING)

    @property
    def parts(self) -> Parts:
        return self.path[-1]

    def amount(self, parts: Parts) -> Resources:
        """What so many workers and servers hold."""
        workers = self._worker * parts[0]
        return workers + self._server * parts[1] if parts[1] else workers

    def end_s(self, parts: Parts) -> float:
        """Seconds the job would still take; infinite where that is not known."""
        return seconds_for(self._steps, self._rate_sps(parts))

    def keep(self) -> None:
        """Go on with what it had."""
        self.path = [self.before]

    def enter(self, whole: Resources) -> None:
        """Take part in sharing what is free of `whole`."""
        self._shares = dominant_share(self._worker, whole), dominant_share(self._server, whole)
        self._end_s = self.end_s(self.parts)
        self._look()

    def take(self, step: Step) -> None:
        if step.parts[0] > self.parts[0]:
            self._i_after += 1
        self.path.append(step.parts)
        self._end_s = step.end_s
        self._look()

    def _look(self) -> None:
        """Find what could be taken next and gains something."""
        (n, n_servers), found = self.parts, []
        if self._i_after < len(self._counts):
            after = self._counts[self._i_after]
            more = self._worker if after == n + 1 else self._worker * (after - n)
            found.append(self._step((after, n_servers), more, self._shares[0] * (after - n)))
        if n_servers:
            found.append(self._step((n, n_servers + 1), self._server, self._shares[1]))
        self.next_steps = sorted([step for step in found if step is not None and step.gain_s > 0], key=_turn)

    def _step(self, parts: Parts, more: Resources, share: float) -> Step | None:
        if not self._may_have(parts):
            return None
        end_s, known = self.end_s(parts), self._end_s < inf
        sooner = self._end_s - end_s if known else _guess(*self.parts) - _guess(*parts)
        return Step(parts, more, end_s, known, self._pressure * sooner / share)

    def _may_have(self, parts: Parts) -> bool:
        (n, n_servers), worker, server, limit = parts, self._worker, self._server, self._limit
        # Spelled out because it is asked twice for each step: whether `amount(parts)` fits in the limit.
        if (
            worker.gpus * n + server.gpus * n_servers > limit.gpus
            or worker.cores * n + server.cores * n_servers > limit.cores + TOLERANCE
            or worker.memory_bytes * n + server.memory_bytes * n_servers > limit.memory_bytes
        ):
            return False
        # Where a worker and a server hold the same kinds of hardware, an amount may read as other numbers of them.
        tells_apart = n_servers == 0 or (worker.gpus > 0 and server.gpus == 0)
        return tells_apart or self.view.spec.parts_of(self.amount(parts)) == parts

    def _rate_sps(self, parts: Parts) -> float:
        n, n_servers = parts
        if n_servers:
            rate_sps = self._speed.served_sps(n, n_servers, self.kind)
        else:
            rate_sps = self._speed.rate_sps(n, self._worker.cores * n, self.kind)
        if rate_sps <= 0 and self.view.rate_sps > 0 and self.before != _HOLDS_NOTHING:
            return self._scaled_sps(parts)
        return rate_sps

    def _scaled_sps(self, parts: Parts) -> float:
        """From the rate that it has, where only that is known."""
        if not self._speed.is_unknown(parts[0], self._worker.cores * parts[0], self.kind):
            return 0.0  # known not to run
        return self.view.rate_sps * _guess(*self.before) / _guess(*parts)


def dominant_share(amount: Resources, whole: Resources) -> float:
    """Share of the kind of hardware of which the amount takes most."""
    return max(
        amount.gpus / (whole.gpus or 1),
        amount.cores / (whole.cores or 1.0),
        amount.memory_bytes / (whole.memory_bytes or 1),
    )


def _guess(n_workers: int, n_servers: int) -> float:
    """Time of a step, in times of a worker, of a job of which nothing else is known."""
    return 1 / n_workers + (1 / n_servers if n_servers else 0.0)


def _turn(step: Step) -> tuple[bool, float]:
    return not step.known, -step.gain_s


#: A heap's entry, for a runner's best step: the greatest gain first, of equal ones the oldest job.
_Entry = tuple[tuple[bool, float], float, str, Runner]


class Race:
    """Who gets how many workers and servers, counted for each kind of nodes as if it were one large node.

    Parameters
    ----------
    builder
        What is free in it is there to be given.
    pressure
        Factor on a job's gains.
    """

    def __init__(self, builder: PlanBuilder, pressure: Callable[[JobView], float]) -> None:
        hardware = builder.hardware
        self._builder, self._pressure = builder, pressure
        self._wholes = {
            kind: total(hardware.capacity[node] for node in nodes) for kind, nodes in hardware.kinds.items()
        }
        self._spaces = {kind: Space(builder.free[node] for node in nodes) for kind, nodes in hardware.kinds.items()}
        self.runners: dict[str, list[Runner]] = {kind: [] for kind in hardware.kinds}

    def resume(self, views: Iterable[JobView], *, keep: bool) -> None:
        """Let jobs that hold something go on: with all of it (`keep`), or with the least, to share the rest anew."""
        for view in views:
            held = self._builder.held(view)
            parts = view.spec.parts_of(total(held.values()))
            if not held or parts is None or view.status == "stopping":
                continue
            kind = self._builder.hardware.kind_of[next(iter(held))]
            runner = Runner(self._builder, view, kind, parts, self._pressure(view))
            if keep:
                runner.keep()
            else:
                for amount in held.values():
                    self._spaces[kind].add(amount)
                self._spaces[kind].take(runner.amount(runner.least))
            self.runners[kind].append(runner)

    def admit(self, view: JobView) -> Resources | None:
        """Let a job take part with its least; None, or what it lacks room for.

        Nothing: there will never be room for it.
        """
        runner = Runner(self._builder, view, "", _HOLDS_NOTHING, self._pressure(view))
        if not runner.path:
            return NOTHING
        least = runner.amount(runner.least)
        kinds = [kind for kind in self._builder.kinds_for(view, least) if least.fits_in(self._wholes[kind])]
        if not kinds or not least.fits_in(view.spec.ceiling):
            return NOTHING
        for kind in kinds:
            if self._spaces[kind].may_hold(least):
                self._spaces[kind].take(least)
                runner.kind = kind
                self.runners[kind].append(runner)
                return None
        return least

    def run(self) -> None:
        """Give what is free, one by one, to those that gain most by it."""
        for kind, runners in self.runners.items():
            self._hand_out(self._spaces[kind], self._wholes[kind], runners)

    def _hand_out(self, space: Space, whole: Resources, runners: Sequence[Runner]) -> None:
        for runner in runners:
            runner.enter(whole)
        heap = [_entry(runner) for runner in runners if runner.next_steps]
        heapify(heap)
        while heap:
            runner = heap[0][-1]
            step = runner.next_steps[0]
            if space.may_hold(step.more):
                space.take(step.more)
                runner.take(step)
            else:  # what is free only becomes less: this step is tried no more, but the other may be smaller
                del runner.next_steps[0]
            if runner.next_steps:
                heapreplace(heap, _entry(runner))
            else:
                heappop(heap)


def _entry(runner: Runner) -> _Entry:
    return _turn(runner.next_steps[0]), *runner.age, runner
