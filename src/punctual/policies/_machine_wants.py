"""The need of one job for machines of pools, and what its budget makes of it, for `least-cost`."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf

from punctual.core.ids import NodeId
from punctual.core.job import STOP_GRACE_S, JobView
from punctual.core.pools import SPENT, Pool
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.units import span
from punctual.policies._earliest import in_danger
from punctual.policies._jobs import has_promise
from punctual.solvers.machine_market import LONGEST_S, Need, Outlook, Supply, usd_text


@dataclass(frozen=True, slots=True)
class Machines:
    """Machines of one pool, or the nodes of no pool that are alike.

    Attributes
    ----------
    name
        Name of the pool, or one that no pool has.
    n_most
        Most machines that there may ever be.
    source
        The pool; None: they are paid for already, and there at once.
    """

    name: str
    capacity: Resources
    device: str
    nodes: tuple[NodeId, ...]
    obtainable: int
    n_most: int
    price_usd_s: float = 0.0
    startup_s: float = 0.0
    source: Pool | None = None

    @property
    def stays(self) -> bool:
        return self.source is None or self.source.spec.market != "spot"

    def n_held(self, view: JobView) -> int:
        """Return how many of them the job has."""
        return sum(node in self.nodes for node in view.planned)


@dataclass(slots=True, kw_only=True)
class Want(Need):
    """The need of one job, and its machines."""

    view: JobView
    places: Sequence[Machines] = ()
    n_machines: tuple[int, ...] = ()
    #: Largest number of workers that it can run with on 0, 1, ... machines.
    counts: Sequence[int] = ()
    #: Its speed with the most machines that stay.
    sure_sps: float = 0.0
    mode: str = "free"
    price: float = 0.0
    bound_usd: float = 0.0
    #: Dollars that it may still spend, and that the rest of its work costs on its most machines that stay.
    budget_usd: float = inf
    certain_usd: float = 0.0
    #: Where the deadline costs more than the budget: seconds until the earliest one that it buys; infinite: it buys none.
    bought_s: float | None = None
    #: Whether it could not pay for one machine more.
    is_spent: bool = False

    @property
    def has_spot(self) -> bool:
        return any(not place.stays for place in self.places)

    @property
    def lost_s(self) -> float:
        """Seconds of a start, and until the next decision, in which nothing is done."""
        return max((place.startup_s for place in self.places), default=0.0) + self.view.spec.startup_s + self.look_s

    @property
    def start_s(self) -> float:
        """Seconds until the first machine that stays is there; 0 for a job that has one."""
        starts_s = [place.startup_s for place in self.places if place.stays]
        return 0.0 if self.view.planned else max(starts_s, default=0.0)

    def is_safe(self) -> bool:
        """Whether machines that stay do its work in time, and its budget pays for that."""
        is_in_time = self.sure_sps > 0 and self.slack_s >= self.start_s
        return is_in_time and self.certain_usd <= self.budget_usd


def given_way(want: Want, outlook: Outlook) -> tuple[float, float]:
    """Return the work that the rest of the budget buys, and the seconds until the deadline that it has in place of its own.

    If it buys the whole work later, the deadline gives way. If it never does, it buys as much as it can by the deadline.
    """
    bought_s = outlook.affordable_s(want.work, want.budget_usd)
    want.bought_s = inf if bought_s is None else bought_s
    if bought_s is not None:
        return want.work, bought_s
    if want.left_s > want.look_s:
        return outlook.affordable_work(want.work, want.left_s, want.budget_usd), want.left_s
    work = outlook.affordable_work(want.work, LONGEST_S, want.budget_usd)
    return work, LONGEST_S if want.has_spot else work / want.sure_sps  # nothing cheaper will come


def paid(want: Want, supplies: Sequence[Supply]) -> tuple[int, ...]:
    """Return the machines, without the dearest that its budget does not pay for until it has decided again and left them."""
    grace_s = want.view.spec.ends.grace_s
    leave_s = STOP_GRACE_S if grace_s is None else grace_s

    def usd(numbers: Sequence[int]) -> float:
        speed = want.speeds[sum(numbers)] if sum(numbers) < len(want.speeds) else 0.0
        rest_s = want.work / speed if speed > 0 else inf
        over_s = leave_s + (min(want.look_s, rest_s) if any(numbers) else 0.0)
        waits = any(n > supply.n_held for supply, n in zip(supplies, numbers, strict=True))
        total_usd = 0.0
        for place, supply, n in zip(want.places, supplies, numbers, strict=True):
            billed_s = 0.0 if place.source is None else place.source.spec.least_billed_s
            begun_s = max(supply.startup_s, billed_s)
            # A machine that works for a shorter time than it starts is not worth it.
            new_s = max(begun_s, over_s + 2 * supply.startup_s)
            n_begun = max(0, supply.n_held - place.n_held(want.view))
            n_new, n_kept = max(0, n - supply.n_held), supply.n_held if waits else min(n, supply.n_held)
            old_s = n_kept * over_s + (supply.n_held - n_kept) * leave_s
            total_usd += supply.price_usd_s * (old_s + n_begun * begun_s + n_new * new_s)
        return total_usd

    numbers = list(want.n_machines)
    while any(numbers) and (usd(numbers) > want.budget_usd or not want.counts[min(sum(numbers), len(want.counts) - 1)]):
        numbers[max((i for i, n in enumerate(numbers) if n), key=lambda i: supplies[i].price_usd_s)] -= 1
    singles = [[int(i == k) for i in range(len(numbers))] for k in range(len(numbers))]
    want.is_spent = not any(numbers) and all(usd(single) > want.budget_usd for single in singles)
    return tuple(numbers)


def budget_warning(want: Want, at: float) -> Reason | None:
    """Return what its user is to know of its budget; None: it pays for the deadline."""
    left = usd_text(max(0.0, want.budget_usd))
    facts = {"budget_usd": want.view.spec.budget_usd or 0.0, "left_usd": want.budget_usd}
    if want.is_spent:
        return Reason(SPENT, f"the {left} that are left of its budget pay for no machine: it waits", facts)
    if want.bought_s is None:
        return None
    text = f"its deadline gives way to its budget: the {left} that are left of it do not pay for the work by then"
    if want.bought_s == inf:
        text += ", nor by any later time; it does as much as they pay for"
    else:
        late_s = want.bought_s - want.left_s
        facts["late_s"] = late_s
        text += f", but are expected to by {span(late_s)} after it"
    return Reason("promise-lost" if has_promise(want.view, at) else "over-budget", text, facts)


def danger(want: Want, at: float) -> Reason | None:
    """Return the warning that its promise is in danger; None: it has none, or machines that stay can keep it."""
    until_at = want.view.promised_until_at
    if until_at is None or not at < until_at or want.work <= want.sure_sps * (until_at - at):
        return None
    needed_s = want.work / want.sure_sps if want.sure_sps > 0 else inf
    needs = f"needs {span(needed_s)}" if needed_s < inf else "cannot run"
    return in_danger(until_at - at, f"on all machines that stay it still {needs}", needed_s=needed_s)


def lacking(want: Want, at: float) -> str:
    """Return how spot machines are lacking, of those that the job could use; empty if it could use none."""
    pools = [place.source for place in want.places if place.source is not None and not place.stays]
    n_now = sum(pool.obtainable for pool in pools)
    if not pools:
        return ""
    if n_now:
        return f"{n_now} spot machine{'s' if n_now > 1 else ''} can be had for the {want.n_best} that it needs"
    gone_at = [after for pool in pools for (_, n), (after, _) in pairwise(pool.counts) if n]
    return f"spot was last had {span(at - max(gone_at))} ago" if gone_at else "spot was never had"
