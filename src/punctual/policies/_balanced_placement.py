"""From numbers of workers and servers to nodes: each job on the fewest, with an equal part on each."""

from collections.abc import Iterable
from math import isfinite
from operator import attrgetter

from punctual.core.job import Allocation
from punctual.core.resources import NOTHING, Resources
from punctual.core.story import Reason
from punctual.optim.placement import Rooms, place_apart, place_evenly
from punctual.policies._jobs import span_text, waits
from punctual.policies._marginal import Parts, Runner, dominant_share
from punctual.policies._plan_builder import PlanBuilder


class BalancedPlacement:
    """Finds nodes for the runners of one kind of nodes, one after another.

    What shrinks goes first. Then every job that starts gets room for its least, the oldest first; then these and those
    that grow for all that they are to have, the smallest first. Each is placed on what is free when it is its turn, so that
    the changes can also be carried out one after another: no two jobs wait for each other's room. A job that does not fit
    with what it was to have gets what it had before its last steps in the race; if it would end up with less than it has
    although it was to have more, or if nothing fits, it stays as it is.
    """

    def __init__(self, builder: PlanBuilder, kind: str) -> None:
        self._builder = builder
        nodes = builder.hardware.kinds[kind]
        self._whole = builder.hardware.total
        self._rooms = Rooms({node: builder.free[node] for node in nodes})

    def seat(self, runners: Iterable[Runner]) -> None:
        changed = [runner for runner in runners if runner.parts != runner.before and _pays(runner)]
        changed.sort(key=self._turn)
        for runner in changed:
            if _is_less(runner.parts, runner.before):
                self._seat(runner)
        starting = sorted((runner for runner in changed if not any(runner.before)), key=attrgetter("age"))
        homeless = {runner.view.spec.id for runner in starting if not self._start(runner)}
        for runner in changed:
            if not _is_less(runner.parts, runner.before) and runner.view.spec.id not in homeless:
                self._seat(runner)

    def _turn(self, runner: Runner) -> tuple[float, float, str]:
        return dominant_share(runner.amount(runner.parts), self._whole), *runner.age

    def _start(self, runner: Runner) -> bool:
        """Find room for the least that the job may have."""
        found = self._find(runner, runner.least, {})
        if found is None:
            self._builder.explain(runner.view, waits(runner.amount(runner.least), self._builder.free))
            return False
        self._take(found)
        self._builder.put(runner.view, found, _why(runner, runner.least, found))
        return True

    def _seat(self, runner: Runner) -> None:
        held = self._builder.held(runner.view)
        self._free(held)
        parts, found = self._most(runner, held)
        if found is None:
            self._take(held)
        else:
            self._take(found)
            self._builder.put(runner.view, found, _why(runner, parts, found))

    def _most(self, runner: Runner, held: Allocation) -> tuple[Parts, Allocation | None]:
        """The last step of the race with which the job fits, and where; found by bisection."""
        wishes = _wishes(runner)
        parts, best = runner.least, None
        fails, fits, i = -1, len(wishes), 0
        while fits - fails > 1:
            found = self._find(runner, wishes[i], held)
            if found is None:
                fails = i
            else:
                fits, parts, best = i, wishes[i], found
            i = (fits + fails) // 2
        return parts, best

    def _find(self, runner: Runner, parts: Parts, held: Allocation) -> Allocation | None:
        """An equal part on each of the fewest nodes, where the job is already if that takes no more of them."""
        worker, server = _worker_and_server(runner)
        home = Rooms({node: self._rooms.free[node] for node in held if node in self._rooms.free}) if held else None
        at_home = place_evenly(parts[0], worker, parts[1], server, home) if home else None
        fewer = None if at_home is None else len(at_home) - 1
        best = place_evenly(parts[0], worker, parts[1], server, self._rooms, fewer) or at_home
        if best is not None:
            return best
        if home and _is_less(parts, runner.before):  # where it is there must be room
            return place_apart(parts[0], worker, parts[1], server, home.free)
        # Of one worker and one server the equal parts are all there are.
        if parts != runner.least or parts[0] + parts[1] <= 2:
            return None
        return place_apart(parts[0], worker, parts[1], server, self._rooms.free)

    def _free(self, allocation: Allocation) -> None:
        for node, amount in allocation.items():
            if node in self._rooms.free:
                self._rooms.change(node, self._rooms.free[node] + amount)

    def _take(self, allocation: Allocation) -> None:
        for node, amount in allocation.items():
            if node in self._rooms.free:
                self._rooms.change(node, self._rooms.free[node] - amount)


def _wishes(runner: Runner) -> list[Parts]:
    """What the race gave, and before that; then nothing slower than what the job has, unless it was to shrink."""
    if _is_less(runner.parts, runner.before):
        return runner.path[::-1]
    has = runner.before if any(runner.before) else runner.least
    earlier = (parts for parts in runner.path[-2::-1] if not _is_less(parts, has))
    has_s = runner.end_s(has)
    return [runner.parts, *(parts for parts in earlier if runner.end_s(parts) <= has_s)] if runner.parts != has else []


def _is_less(parts: Parts, before: Parts) -> bool:
    """Whether there are no more of both."""
    return parts[0] <= before[0] and parts[1] <= before[1]


def _pays(runner: Runner) -> bool:
    """Whether a running job that is to have more gains more time than the change costs, as far as known."""
    if not any(runner.before) or not _is_less(runner.before, runner.parts):
        return True
    sooner_s = runner.end_s(runner.before) - runner.end_s(runner.parts)
    return not isfinite(sooner_s) or sooner_s > runner.view.spec.resize_cost_s


def _worker_and_server(runner: Runner) -> tuple[Resources, Resources]:
    spec = runner.view.spec
    return spec.worker or spec.ceiling, spec.server or NOTHING


def parts_text(parts: Parts) -> str:
    """Workers and servers for people: ``"2 workers, 1 server"``."""
    texts = [f"{n} {word}{'s' * (n != 1)}" for n, word in zip(parts, ("worker", "server"), strict=True) if n]
    return ", ".join(texts)


def _why(runner: Runner, parts: Parts, allocation: Allocation) -> Reason:
    """Why the job has other numbers: what it gains or gives up, if that is known."""
    facts = {
        "n_workers_before": float(runner.before[0]), "n_workers": float(parts[0]),
        "n_servers_before": float(runner.before[1]), "n_servers": float(parts[1]), "n_nodes": float(len(allocation)),
    }  # fmt: skip
    if not any(runner.before):
        verb = "starts" if runner.view.started_at is None else "goes on"
        return Reason("starts", f"{verb} with {parts_text(parts)} on {_nodes_text(allocation)}", facts)
    sooner_s = runner.end_s(runner.before) - runner.end_s(parts)
    change = f"{parts_text(runner.before)} -> {parts_text(parts)}"
    if not isfinite(sooner_s):
        return Reason("shifts", f"{change}; its speed or length is not known and taken as average", facts)
    facts["sooner_s"] = sooner_s
    if sooner_s >= 0:
        text = f"{change}: finishes {span_text(sooner_s)} earlier, more for what it takes than others would gain by it"
        return Reason("grows", text, facts)
    text = f"{change}: finishes {span_text(-sooner_s)} later, less for what it gives up than others gain by it"
    return Reason("shrinks", text, facts)


def _nodes_text(allocation: Allocation) -> str:
    n = len(allocation)
    return f"node '{next(iter(allocation))}'" if n == 1 else f"{n} nodes"
