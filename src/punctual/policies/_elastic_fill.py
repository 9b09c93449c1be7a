"""Share the nodes among jobs with variable amounts."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heapreplace
from typing import Any, Protocol, TypeVar

from punctual.core.ids import NodeId
from punctual.core.job import JobView
from punctual.core.plan import Plan
from punctual.core.reason import Reason
from punctual.core.resources import Resources, same_amount, total
from punctual.policies._hardware import steps_between
from punctual.policies._jobs import least, n_workers, never_fits, seniority, starts, waits
from punctual.policies._layout import lay_out
from punctual.policies._plan_builder import PlanBuilder, Space
from punctual.policies._repair import all_waiting, follows_demand, repair


class HasView(Protocol):
    """The state of a job while something is shared."""

    @property
    def view(self) -> JobView: ...


J = TypeVar("J", bound=HasView)


def share_by_rank(jobs: Iterable[J], rank: Callable[[J], Any], take: Callable[[J], bool]) -> None:
    """Let the job with the lowest rank take its next step, again and again, until no job can. O(steps log jobs).

    Free capacity only shrinks, so a job that could not take a step is not asked again.

    Parameters
    ----------
    rank
        Rank of the job's next step; of equal ranks the oldest job comes first. None: it takes no more steps.
    take
        Lets the job take its next step; False if it cannot.
    """
    heap = [(first, *seniority(job.view), job) for job in jobs if (first := rank(job)) is not None]
    heapify(heap)
    while heap:
        job = heap[0][-1]
        following = rank(job) if take(job) else None
        if following is None:
            heappop(heap)
        else:
            heapreplace(heap, (following, *heap[0][1:]))


_FLOOR = Reason("floor", "the job is at its floor")


@dataclass(slots=True)
class Participant:
    """A job and its amount so far, `rungs[i]`; `rungs` are the amounts that it can hold, ascending.

    `steps` are the differences between them; `spaces` are those that it draws on; `n_before` is the number of workers it had.
    """

    view: JobView
    rungs: tuple[Resources, ...]
    steps: tuple[Resources, ...]
    spaces: tuple[Space, ...]
    n_before: int = 0
    i: int = 0

    @property
    def amount(self) -> Resources:
        return self.rungs[self.i]

    def grow(self) -> bool:
        """Take the next rung if it exists and fits."""
        if self.i + 1 >= len(self.rungs):
            return False
        more = self.steps[self.i]
        for space in self.spaces:
            if not space.may_hold(more):
                return False
        for space in self.spaces:
            space.take(more)
        self.i += 1
        return True


class ElasticFill:
    """Gives every job that runs or can be started its least amount, and the rest step by step.

    Jobs that run keep their place. Waiting jobs are admitted in order of submission, each if its least amount fits; one
    that does not fit lets later ones pass. How much a job with workers has is first decided for each kind of device as
    if it were one large node; what then does not fit on nodes is not given.

    Parameters
    ----------
    n_parts
        Between its floor and its demand a job without workers grows in so many equal parts.
    """

    def __init__(self, builder: PlanBuilder, *, least_cores: float, n_parts: int = 16) -> None:
        self.builder = builder
        self._least_cores, self._n_parts = least_cores, n_parts
        self.workers: list[Participant] = []
        self.fractions: list[Participant] = []
        self._n_waiting = 0
        idle = repair(builder)
        running = [view for view in builder.snapshot.holding if builder.held(view) and view.status != "stopping"]
        self._lower([view for view in running if view.spec.worker is None])
        hardware, free = builder.hardware, builder.free
        self.spaces = {kind: Space([free[node] for node in nodes]) for kind, nodes in hardware.kinds.items()}
        self._node_spaces: dict[NodeId, Space] = {}
        #: Demand of jobs without workers beyond their floors, in cores.
        self._wanted_cores: dict[NodeId, float] = {}
        for view in running:
            self._continue(view)
        waiting = all_waiting(builder, idle)
        for view in waiting:
            if view.status != "stopping":
                self._admit(view)

    def grow(self, participants: Iterable[Participant], key: Callable[[Participant], float]) -> None:
        """Let the participant with the lowest `key` grow by one rung, again and again, while one can."""
        share_by_rank(participants, key, Participant.grow)

    def filled(self, key: Callable[[Participant], float]) -> Plan:
        """Let all grow, the one with the lowest `key` first, until none can."""
        self.grow([*self.workers, *self.fractions], key)
        self.lay_out_workers()
        self.lay_out_fractions()
        return self.builder.build()

    def lay_out_workers(self) -> None:
        """Find nodes for the chosen numbers of workers."""
        lay_out(
            self.builder,
            [(each.view, each.n_before, n_workers(each.view.spec, {NodeId(""): each.amount})) for each in self.workers],
        )

    def lay_out_fractions(self) -> None:
        """Give jobs without workers their chosen amounts, as far as their node has them; the oldest first."""
        for participant in sorted(self.fractions, key=lambda participant: seniority(participant.view)):
            self.give(participant, participant.amount)

    def node_of(self, participant: Participant) -> NodeId:
        """Return the node of a job without workers."""
        return next(iter(self.builder.held(participant.view)))

    def give(self, participant: Participant, amount: Resources, reason: Reason | None = None) -> None:
        """Raise a job without workers from its floor to `amount`, as far as its node has it.

        The reason is kept also if the job has as much already: it may be less than it demands.
        """
        view, node = participant.view, self.node_of(participant)
        room = self.builder.free[node] + participant.rungs[0]
        given = amount if amount.fits_in(room) else amount.at_most(room)
        allocation = {node: given}
        if node in view.planned and same_amount(given, total(view.planned.values())):
            allocation = view.planned
        if reason is None:
            reason = follows_demand(participant.rungs[-1], given, node) if view.planned else starts(view, allocation)
        self.builder.put(view, allocation, reason)
        self.builder.explain(view, reason)

    # Participants.

    def _lower(self, views: Iterable[JobView]) -> None:
        """Bring running jobs without workers down to their floor: they grow again after all have their least."""
        for view in views:
            held = self.builder.held(view)
            if len(held) == 1:
                node, amount = next(iter(held.items()))
                self.builder.put(view, {node: least(view.spec, self._least_cores).at_most(amount)}, _FLOOR)

    def _continue(self, view: JobView) -> None:
        """A job that runs goes on with its least amount."""
        builder, held = self.builder, self.builder.held(view)
        space = self.spaces[builder.hardware.kind_of[next(iter(held))]]
        if view.spec.worker is None:
            if len(held) == 1:  # over several nodes it was put by somebody else, who knows why
                self.fractions.append(self._fraction(view, space))
            return
        n_before = builder.hardware.n_held(view) if held is view.planned else n_workers(view.spec, held)
        rungs = builder.hardware.amounts_wanted(view)
        if rungs:
            space.add(view.spec.unit or rungs[0], n_before)
            space.take(rungs[0])
            self.workers.append(self._participant(view, rungs, space, n_before))

    def _admit(self, view: JobView) -> None:
        if view.spec.worker is None:
            self._admit_fraction(view)
            return
        rungs = self.builder.hardware.amounts_wanted(view)
        if not rungs:
            self.builder.explain(view, never_fits(view))
            return
        for kind in self.builder.kinds_for(view, rungs[0]):
            if self.spaces[kind].may_hold(rungs[0]):
                self.spaces[kind].take(rungs[0])
                self.workers.append(self._participant(view, rungs, self.spaces[kind], 0))
                return
        self._leave_out(view, rungs[0])

    def _participant(self, view: JobView, rungs: tuple[Resources, ...], space: Space, n_before: int) -> Participant:
        return Participant(view, rungs, self.builder.hardware.worker_steps(view.spec), (space,), n_before)

    def _leave_out(self, view: JobView, amount: Resources) -> None:
        """Record the reason of the first job that waits; the others wait for the same."""
        self._n_waiting += 1
        if self._n_waiting == 1:
            self.builder.explain(view, waits(amount, self.builder.free))

    def _admit_fraction(self, view: JobView) -> None:
        floor = least(view.spec, self._least_cores)
        node = self._roomiest(view, floor)
        space = None if node is None else self.spaces[self.builder.hardware.kind_of[node]]
        if node is None or space is None or not space.may_hold(floor):
            self._leave_out(view, floor)
            return
        space.take(floor)
        if node in self._node_spaces:
            self._node_spaces[node].take(floor)
        self.builder.put(view, {node: floor}, _FLOOR)
        self.fractions.append(self._fraction(view, space))

    def _roomiest(self, view: JobView, floor: Resources) -> NodeId | None:
        """The node on which the demands of the jobs without workers leave the most cores, of those with room."""
        free, wanted = self.builder.open_to(view), self._wanted_cores
        nodes = [node for node, room in free.items() if floor.fits_in(room)]
        # Rounded, because the last digit of a sum depends on the order of its terms, which means nothing here.
        return min(nodes, key=lambda node: (round(wanted.get(node, 0.0) - free[node].cores, 9), node), default=None)

    def _fraction(self, view: JobView, space: Space) -> Participant:
        ((node, floor),) = self.builder.held(view).items()
        on_node = self._node_spaces.setdefault(node, Space([self.builder.free[node]]))
        rungs = fraction_rungs(view, floor, self._n_parts)
        participant = Participant(view, rungs, steps_between(rungs), (space, on_node))
        self._wanted_cores[node] = self._wanted_cores.get(node, 0.0) + participant.rungs[-1].cores - floor.cores
        return participant


def fraction_rungs(view: JobView, floor: Resources, n_parts: int) -> tuple[Resources, ...]:
    """Return the amounts a job without workers can hold: cores in `n_parts` equal parts, all else over the floor at the end."""
    top = view.demand.at_most(view.spec.ceiling).at_least(floor)
    part_cores = (top.cores - floor.cores) / n_parts
    between = [replace(floor, cores=floor.cores + i * part_cores) for i in range(1, n_parts)]
    return (floor, *(between if part_cores > 0 else ()), top)
