"""Each deadline at the least expected cost, on machines of several prices that come and go."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import MARGIN_FRAC, Allocation, JobView, awaits_promise
from punctual.core.plan import Plan
from punctual.core.pools import Pool
from punctual.core.recent_messages import Reason
from punctual.core.resources import Resources
from punctual.core.speed import made_shape
from punctual.policies._base import PolicyBase
from punctual.policies._carried import amounts_in
from punctual.policies._jobs import has_promise, is_protected, n_workers, seniority, span_text, waits
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._rigid import Order, serve
from punctual.solvers.machine_market import Need, Outlook, Seen, Supply, choose, quotes_usd

#: Name of the nodes that belong to no pool: they are paid for already. No pool has it.
_OWN = ""
_HOUR_S = 3600.0
#: Slots of time in which the machines of later deadlines are set aside.
_N_SLOTS = 240


@dataclass(frozen=True, slots=True, kw_only=True)
class LeastCost(PolicyBase):
    """Keeps every promise at the least expected cost where a cluster has pools of machines, spot and on demand.

    Use it where machines are paid for by the hour. Without pools there is nothing to choose: it is `earliest-deadline`.

    Parameters
    ----------
    look_s
        Seconds after which it decides again if nothing has happened.
    reserve_factor
        Slack that is set aside for losses of spot machines, as a multiple of what they are expected to cost.

    Raises
    ------
    InvalidSpec
        A number is not finite, or below zero.

    Notes
    -----
    *Formula.* A job has argmax_n λ·s(n) − cost(n) machines, with its price of progress λ, the mean over what was seen of
    spot pools. Once its slack is down to what losses will cost it has its most machines, on demand where spot is lacking.

    *Source.* The reserve and the elastic rule are ours; the price of progress as a value over time is that of [skynomad2027].

    *Differs.* See the page of this policy.

    *Properties.* Deterministic. A job that could be done in time on machines that stay is not late, however spot machines
    come and go, as long as machines that stay come when asked for.

    *Fails when* on-demand machines cannot be had at the last safe moment, or a job is slower than its curve says.
    """

    look_s: float = 300.0
    reserve_factor: float = 3.0

    def __post_init__(self) -> None:
        self._check_not_negative("look_s", "s")
        self._check_not_negative("reserve_factor")

    def allocate(self, snapshot: Snapshot) -> Plan:
        if not snapshot.pools:
            return serve(
                self._builder(snapshot), Order(waiting=lambda view, _: _due_at(view), running=_due_at), size="largest"
            )
        return _Round(self, snapshot, self._builder(snapshot)).plan()

    def deadline_prices_usd(
        self, snapshot: Snapshot, view: JobView, deadlines_at: Sequence[float]
    ) -> list[float | None]:
        """Return the expected cost of the job's rest for each deadline; None: it cannot be done by then on machines that stay."""
        return _Round(self, snapshot, self._builder(snapshot)).prices_usd(view, deadlines_at)


@dataclass(frozen=True, slots=True)
class _Machines:
    """Machines of one pool, or the nodes of no pool that are alike."""

    pool: str
    key: str
    price_usd_s: float
    capacity: Resources
    device: str
    nodes: tuple[NodeId, ...]
    obtainable: int
    source: Pool | None = None


@dataclass(slots=True)
class _Want:
    """The need of one job, and its machines."""

    view: JobView
    places: list[_Machines]
    n_machines: tuple[int, ...] = ()
    n_most: int = 0
    speeds: tuple[float, ...] = ()
    work: float = inf
    left_s: float = inf
    start_at_s: float | None = None
    mode: str = "free"
    price: float = 0.0
    bound_usd: float = 0.0

    @property
    def n_best(self) -> int:
        return max(range(len(self.speeds)), key=lambda n: (self.speeds[n], -n))


class _Round:
    """One plan."""

    def __init__(self, policy: LeastCost, snapshot: Snapshot, builder: PlanBuilder) -> None:
        self._policy, self._snapshot, self._builder = policy, snapshot, builder
        self._at = snapshot.at
        self._groups = [*_own(snapshot), *map(_pooled, snapshot.pools)]
        carry = snapshot.carry if isinstance(snapshot.carry, dict) else {}
        asked = carry.get("asked")
        #: Machines of each pool that each job was to have by the last plan: some may start still.
        self._asked = {job: amounts_in(n) for job, n in asked.items()} if isinstance(asked, dict) else {}
        stopping = [view for view in snapshot.holding if view.status == "stopping"]
        #: Nodes that a job has, which this plan does not give away.
        self._taken = {node: view.id for view in stopping for node in view.planned}
        #: Machines that jobs decided before want, by pool.
        self._n_taken: dict[str, int] = {}

    def plan(self) -> Plan:
        wants = [self._want(view) for view in self._snapshot.jobs if view.status != "stopping"]
        self._set_aside(wants)
        wants.sort(key=lambda want: (self._slack_s(want), *seniority(want.view)))
        promises, declines = dict[JobId, float](), dict[JobId, Reason]()
        kept = {want.view.id: self._choose(want) for want in wants}
        for want in wants:
            view, deadline_at = want.view, want.view.deadline_at
            is_safe = deadline_at is not None and deadline_at > self._at and self._slack_s(want) >= 0
            if deadline_at is not None and (is_safe or has_promise(view, self._at)):
                promises[view.id] = deadline_at
            elif awaits_promise(view.spec, view.status, view.started_at):
                declines[view.id] = Reason(
                    "no-promise", "its deadline cannot be promised: too few machines stay, or too little time"
                )
                kept[view.id] = {}
        self._place(wants, kept, declines)
        machines = {pool.spec.name: 0 for pool in self._snapshot.pools}
        for numbers in kept.values():
            for name, n in numbers.items():
                if name != _OWN:
                    machines[name] += n
        asked = {str(job): dict(numbers) for job, numbers in kept.items()}
        plan = self._builder.build(asked=asked)
        most = {pool.spec.name: pool.spec.most for pool in self._snapshot.pools}
        return replace(
            plan,
            promises=promises,
            declines=declines,
            machines={name: min(n, most[name]) for name, n in machines.items()},
            bound=sum(want.bound_usd for want in wants) if all(want.bound_usd < inf for want in wants) else None,
            ask_again_at=self._at + self._policy.look_s if wants else None,
        )

    def prices_usd(self, view: JobView, deadlines_at: Sequence[float]) -> list[float | None]:
        """Return the expected cost of the job's rest for each deadline, whatever other jobs need."""
        want = self._want(replace(view, spec=replace(view.spec, deadline_s=None)))
        if want.work == inf or not any(want.speeds):
            return [None for _ in deadlines_at]
        supplies = [self._supply(want, place) for place in want.places]
        lost_s = max((supply.startup_s for supply in supplies), default=0.0) + view.spec.startup_s + self._policy.look_s
        outlook = Outlook(want.speeds, supplies, self._at)
        return quotes_usd(outlook, want.work, [at - self._at for at in deadlines_at], lost_s)

    # What a job needs.

    def _want(self, view: JobView) -> _Want:
        """Return the job's machines of the kind on which its work costs least, with its speed by their number."""
        options = []
        for (device, n_per), places in self._kinds(view).items():
            candidate = _Want(view, places)
            candidate.n_most = self._most(view, n_per, places)
            candidate.speeds = tuple(self._speed(view, n, n_per, device) for n in range(candidate.n_most + 1))
            dearest = max((place.price_usd_s for place in places), default=0.0)
            is_here = any(node in place.nodes for place in places for node in view.planned)
            most_gain = max(candidate.speeds[1:], default=0.0)
            options.append((not is_here, dearest / most_gain if most_gain > 0 else inf, device, candidate))
        if not options:
            return _Want(view, [])
        want = min(options, key=lambda option: option[:3])[3]
        spec, steps = view.spec, view.remaining_steps(self._at)
        want.work = inf if steps is None else steps
        if spec.worker is None and (core_s := view.core_s_left(self._at)) is not None:
            want.work = core_s
        if view.deadline_at is not None:
            margin_s = (MARGIN_FRAC if spec.margin_frac is None else spec.margin_frac) * (spec.deadline_s or 0.0)
            want.left_s = view.deadline_at - self._at - margin_s - (spec.startup_s if not view.granted else 0.0)
        return want

    def _kinds(self, view: JobView) -> dict[tuple[str, int], list[_Machines]]:
        """Return the machines on which the job fits, by their device and the workers that one holds."""
        kinds: dict[tuple[str, int], list[_Machines]] = {}
        unit = view.spec.unit
        for group in self._groups:
            n_per = int(view.spec.floor.fits_in(group.capacity)) if unit is None else group.capacity.n_times(unit)
            if n_per:
                kinds.setdefault((group.device, n_per), []).append(group)
        return kinds

    def _most(self, view: JobView, n_per: int, places: Sequence[_Machines]) -> int:
        n_there = sum(place.source.spec.most if place.source else len(place.nodes) for place in places)
        return min(n_there, 1 if view.spec.unit is None else -(-view.spec.worker_counts()[-1] // n_per))

    def _count(self, view: JobView, n_machines: int, n_per: int) -> int:
        """Return the largest number of workers that the job can run with on so many machines."""
        if view.spec.unit is None:
            return int(n_machines > 0)
        return max((n for n in view.spec.worker_counts() if n <= n_machines * n_per), default=0)

    def _speed(self, view: JobView, n_machines: int, n_per: int, device: str) -> float:
        """Return the work that it does in a second; proportional to its workers where its speed is not known."""
        n, spec = self._count(view, n_machines, n_per), view.spec
        if n == 0:
            return 0.0
        if spec.unit is None:
            return spec.ceiling.cores if view.work is not None else view.rate_sps or 1.0
        if view.curve is not None:
            n_servers = n if spec.server is not None else 0
            shape = made_shape(
                n_workers=n, cores=spec.unit.cores * n, n_nodes=n_machines, device=device, n_servers=n_servers
            )
            rate_sps = view.curve.rate_sps(shape)
            if rate_sps > 0:
                return rate_sps
        n_now = n_workers(spec, view.granted)
        return view.rate_sps / n_now * n if n_now and view.rate_sps > 0 else 0.0

    # Which machines it is to have.

    def _slack_s(self, want: _Want) -> float:
        if want.left_s == inf or not any(want.speeds):
            return inf
        latest_s = want.left_s - want.work / want.speeds[want.n_best] if want.start_at_s is None else want.start_at_s
        return latest_s - self._policy.look_s

    def _set_aside(self, wants: Sequence[_Want]) -> None:
        """Find the last instant at which each job can start with its most machines, if all share those that stay."""
        due = [want for want in wants if want.left_s < inf and any(want.speeds)]
        n_stay = sum(
            (group.source.spec.most if group.source else len(group.nodes))
            for group in self._groups
            if group.source is None or group.source.spec.market != "spot"
        )
        if sum(want.n_best for want in due) <= n_stay:
            return
        horizon_s = max((want.left_s for want in due), default=0.0)
        slot_s = max(horizon_s, 1.0) / _N_SLOTS
        room = [n_stay] * _N_SLOTS
        for want in sorted(due, key=lambda want: (-want.left_s, *seniority(want.view))):
            left, slot, start_at_s = want.work, min(_N_SLOTS, int(want.left_s / slot_s)), want.left_s
            while left > 0 and slot > 0:
                slot -= 1
                n = min(want.n_best, room[slot])
                speed = max(want.speeds[: n + 1])
                if speed > 0:
                    room[slot] -= n
                    left -= speed * slot_s
                    start_at_s = slot * slot_s
            want.start_at_s = start_at_s if left <= 0 else -want.left_s

    def _choose(self, want: _Want) -> dict[str, int]:
        """Return the number of machines of each pool that the job is to have, and count them as taken."""
        view = want.view
        supplies = [self._supply(want, place) for place in want.places]
        if want.left_s == inf or not any(want.speeds) or want.work == inf:
            want.n_machines = self._undated(want, supplies)
        else:
            outlook = Outlook(want.speeds, supplies, self._at)
            want.price = outlook.price_of_progress(want.work, want.left_s)
            want.bound_usd = outlook.expected_usd(want.work, want.left_s)
            need = Need(want.work, want.left_s, want.speeds, _restarts(view), self._policy.look_s, want.start_at_s)
            choice = choose(need, supplies, want.price, self._policy.reserve_factor)
            want.n_machines, want.mode = choice.n_machines, choice.mode
        if not any(want.n_machines) and is_protected(view) and view.planned:  # it may not be paused
            want.n_machines = tuple(sum(node in place.nodes for node in view.planned) for place in want.places)
        chosen: dict[str, int] = {}
        for place, n in zip(want.places, want.n_machines, strict=True):
            chosen[place.pool] = chosen.get(place.pool, 0) + n
            self._n_taken[place.key] = self._n_taken.get(place.key, 0) + n
        return chosen

    def _supply(self, want: _Want, place: _Machines) -> Supply:
        """Return what the job can have of some machines, after the jobs that were decided before."""
        view, pool = want.view, place.source
        n_taken = self._n_taken.get(place.key, 0) + sum(node in self._taken for node in place.nodes)
        n_most = max(0, place.obtainable - n_taken)
        n_there = sum(node in place.nodes for node in view.planned)
        if pool is None:
            return Supply(0.0, min(n_there, n_most), n_most)
        n_asked = int(self._asked.get(view.id, {}).get(place.pool, 0))
        n_held = min(max(n_there, min(n_asked, n_there + pool.n_starting)), n_most)
        startup_s = pool.spec.startup_s + (view.spec.startup_s if _restarts(view) else 0.0)
        seen = None
        if pool.spec.market == "spot":
            counts = tuple((at, max(0, n - n_taken)) for at, n in pool.counts)
            seen = Seen(counts, max(self._at, counts[0][0] + 1e-3 if counts else 0.0), len(want.speeds) - 1)
        return Supply(place.price_usd_s, n_held, n_most, startup_s, seen)

    def _undated(self, want: _Want, supplies: Sequence[Supply]) -> tuple[int, ...]:
        """Choose for a job without a deadline, or of unknown work: machines of one's own, else the fewest that it can run with.

        With a deadline these may be dear; without one it waits for cheap ones.
        """
        if not want.places:
            return ()
        n_free = min(want.n_most, sum(supply.n_most for supply in supplies if supply.price_usd_s == 0))
        n_least = next((n for n in range(1, len(want.speeds)) if self._runs(want, n)), 0)
        n = max((n for n in range(n_free + 1) if self._runs(want, n)), default=0)
        order = sorted(range(len(supplies)), key=lambda i: (supplies[i].price_usd_s, i))
        if not n:
            n = n_least
            has_spot = any(supply.seen is not None for supply in supplies)
            if want.left_s == inf and has_spot:
                order = [i for i in order if supplies[i].seen is not None or supplies[i].price_usd_s == 0]
        numbers = [0] * len(supplies)
        for i in order:
            numbers[i] = min(n - sum(numbers), supplies[i].n_most)
        return tuple(numbers) if sum(numbers) == n else tuple(0 for _ in supplies)

    def _runs(self, want: _Want, n: int) -> bool:
        place = want.places[0]
        unit = want.view.spec.unit
        return n > 0 and self._count(want.view, n, 1 if unit is None else place.capacity.n_times(unit)) > 0

    # Where it is to have them.

    def _place(
        self, wants: Sequence[_Want], kept: dict[JobId, dict[str, int]], declines: Mapping[JobId, Reason]
    ) -> None:
        """Give each job nodes of its pools: those that it has, then others; and note machines that stay until others are there."""
        wants = [want for want in wants if want.view.id not in declines]
        claims: dict[JobId, list[list[NodeId]]] = {}
        given: list[tuple[_Want, list[NodeId]]] = []
        for want in wants:
            claims[want.view.id] = [self._claim(want, place, n, held=True) for place, n in self._each(want)]
        for want in wants:
            claimed = claims[want.view.id]
            for own, (place, n) in zip(claimed, self._each(want), strict=True):
                own.extend(self._claim(want, place, n - len(own), held=False))
            n_short = sum(want.n_machines) - sum(map(len, claimed))
            given.append((want, self._with_former(want, claimed, n_short, kept)))
        # Who leaves nodes goes first: the others find them free.
        for want, nodes in sorted(given, key=lambda each: not set(each[1]) <= each[0].view.planned.keys()):
            self._give(want, nodes)

    def _each(self, want: _Want) -> Iterable[tuple[_Machines, int]]:
        return zip(want.places, want.n_machines, strict=True)

    def _claim(self, want: _Want, place: _Machines, n: int, *, held: bool) -> list[NodeId]:
        """Return up to `n` nodes that nobody has claimed, of those that the job has or of the others."""
        nodes = [node for node in place.nodes if node not in self._taken and (node in want.view.planned) == held]
        self._taken |= dict.fromkeys(nodes[: max(0, n)], want.view.id)
        return nodes[: max(0, n)]

    def _with_former(
        self, want: _Want, claimed: list[list[NodeId]], n_short: int, kept: dict[JobId, dict[str, int]]
    ) -> list[NodeId]:
        """Return the job's nodes, with those of its present ones that it keeps until machines that start are there."""
        nodes = [node for some in claimed for node in some]
        if n_short <= 0:
            return nodes
        former = [(place, node) for place in want.places for node in place.nodes if node in want.view.planned]
        stay = [(place, node) for place, node in former if node not in self._taken]
        if _restarts(want.view):  # it moves at once, or not at all
            if not want.view.planned:
                return []
            nodes, n_short = [node for _, node in former if node in nodes], len(stay)
        for place, node in stay[:n_short]:
            nodes.append(node)
            self._taken[node] = want.view.id
            kept[want.view.id][place.pool] = kept[want.view.id].get(place.pool, 0) + 1
        return nodes

    def _give(self, want: _Want, nodes: Sequence[NodeId]) -> None:
        view, spec = want.view, want.view.spec
        allocation: Allocation = {}
        room = self._builder.open_to(view, self._builder.without(view))
        nodes = [node for node in nodes if node in room]
        if spec.unit is None:
            fits = [node for node in nodes if spec.floor.fits_in(room[node])]
            allocation = {node: spec.ceiling.at_most(room[node]).at_least(spec.floor) for node in fits[:1]}
        else:
            n_on = {node: room[node].n_times(spec.unit) for node in nodes}
            n = max((n for n in spec.worker_counts() if n <= sum(n_on.values())), default=0)
            for node, most in n_on.items():
                here = min(n, most)
                n -= here
                if here:
                    allocation[node] = spec.unit * here
        allocation = {node: amount for node, amount in allocation.items() if amount}
        if not allocation and is_protected(view) and view.planned:
            return
        reason = self._why(want, allocation)
        if allocation == view.planned:
            self._builder.explain(view, reason)
        else:
            self._builder.put(view, allocation, reason)

    def _why(self, want: _Want, allocation: Allocation) -> Reason:
        if not want.places:
            return waits(want.view.spec.unit or want.view.spec.floor, self._snapshot.free)
        numbers = [(place, n) for place, n in self._each(want) if n]
        usd_h = sum(place.price_usd_s * _HOUR_S * n for place, n in numbers)
        parts = " and ".join(f"{n} of {_name(place)}" for place, n in numbers)
        facts = {"usd_h": usd_h, "price_of_progress": want.price}
        text = (
            f"{parts} at ${usd_h:.2f} an hour"
            if parts
            else "no machine now is worth its price: it waits for cheaper ones"
        )
        if want.left_s < inf and any(want.speeds) and want.work < inf:
            best_s = want.work / want.speeds[want.n_best]
            facts |= {"left_s": want.left_s, "best_s": best_s}
            text += f"; {span_text(best_s)} of work at its fastest in {span_text(max(0.0, want.left_s))}"
        if want.mode != "free":
            text += ", so machines that stay take the place of spot machines that are lacking"
        return Reason("least-cost" if allocation or parts else "waits", text, facts)


def _due_at(view: JobView) -> float:
    return inf if view.deadline_at is None else view.deadline_at


def _restarts(view: JobView) -> bool:
    """Whether a change of its machines costs the job a start: it has one size, or each resize costs that much."""
    spec = view.spec
    return len(spec.worker_counts()) < 2 or spec.resize_cost_s >= spec.startup_s > 0


def _name(place: _Machines) -> str:
    return f"pool '{place.pool}'" if place.pool else "one's own nodes"


def _pooled(pool: Pool) -> _Machines:
    spec = pool.spec
    return _Machines(
        pool=spec.name,
        key=spec.name,
        price_usd_s=pool.price_usd_h / _HOUR_S,
        capacity=spec.capacity,
        device=spec.device,
        nodes=pool.there,
        obtainable=min(pool.obtainable, spec.most),
        source=pool,
    )


def _own(snapshot: Snapshot) -> list[_Machines]:
    """Return the nodes of no pool, grouped by what they have."""
    pooled = {node for pool in snapshot.pools for node in pool.there}
    alike: dict[tuple[str, float, float, int], list[Node]] = {}
    for node in snapshot.nodes:
        if node.id not in pooled:
            amount = node.capacity
            alike.setdefault((node.device, amount.gpus, amount.cores, amount.memory_bytes), []).append(node)
    return [
        _Machines(
            pool=_OWN,
            key=f"node {nodes[0].id}",
            price_usd_s=0.0,
            capacity=nodes[0].capacity,
            device=nodes[0].device,
            nodes=tuple(node.id for node in nodes),
            obtainable=len(nodes),
        )
        for nodes in alike.values()
    ]
