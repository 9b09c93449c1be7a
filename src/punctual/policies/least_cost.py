"""Each deadline at the least expected cost, on machines of several prices that come and go."""

from collections import Counter
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from punctual.core.cluster import Node, Snapshot
from punctual.core.ids import JobId, NodeId
from punctual.core.job import MARGIN_FRAC, Allocation, JobView, awaits_promise
from punctual.core.plan import Plan
from punctual.core.pools import SPENT, TOO_DEAR, Pool
from punctual.core.reason import Reason
from punctual.core.speed import made_shape
from punctual.core.units import span
from punctual.policies._base import PolicyBase
from punctual.policies._jobs import due_at, has_promise, is_protected, n_workers, seniority, waits
from punctual.policies._machine_wants import Machines, Want, budget_warning, danger, given_way, lacking, paid
from punctual.policies._plan_builder import PlanBuilder
from punctual.policies._rigid import Order, serve
from punctual.solvers.machine_market import LONGEST_S, Outlook, Seen, Supply, choose, usd_text

_HOUR_S = 3600.0
#: A job has at least so many steps, or core-seconds, left: it has not landed, and its last step may be an expected one.
_LAST = 1.0
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
    hour_s
        Seconds that an hour of its pools takes; fewer where a market plays a trace faster than it was, in trials.

    Raises
    ------
    InvalidSpec
        A number is not finite, or below zero.

    Notes
    -----
    *Formula.* A job has argmax_n λ·s(n) − cost(n) machines, with its price of progress λ, found in what was seen of spot pools:
    halfway between the mean of the prices that were best where all was known beforehand, and the constant price that costs least
    on average. Once its slack is down to what losses will cost it has its most machines, on demand where spot is lacking.

    *Source.* The reserve and the elastic rule are ours; the price of progress as a value over time is that of [skynomad2027].

    *Differs.* See the page of this policy.

    A budget is never exceeded: a job leaves its machines while what it may still spend pays for the time until it has left. If
    its deadline costs more, the deadline gives way: it counts as the earliest that the rest of the budget buys.

    *Properties.* Deterministic. A job that could be done in time on machines that stay is not late, however spot machines
    come and go, as long as machines that stay come when asked for and its budget pays for them.

    *Fails when* on-demand machines cannot be had at the last safe moment, or a job is slower than its curve says.
    """

    look_s: float = 300.0
    reserve_factor: float = 3.0
    hour_s: float = 3600.0

    def __post_init__(self) -> None:
        PolicyBase.__post_init__(self)
        self._check_positive("hour_s", "s")

    def allocate(self, snapshot: Snapshot) -> Plan:
        if snapshot.pools:
            return self._round(snapshot).plan()
        order = Order(waiting=lambda view, _: due_at(view), running=due_at)
        return serve(self._builder(snapshot), order, size="largest")

    def deadline_prices_usd(
        self, snapshot: Snapshot, view: JobView, deadlines_at: Sequence[float]
    ) -> list[float | None]:
        """Return the expected cost of the job's rest for each deadline; None: it cannot be done by then on machines that stay."""
        return self._round(snapshot).prices_usd(view, deadlines_at)

    def bought_deadline_at(self, snapshot: Snapshot, view: JobView) -> float | None:
        """Return the earliest deadline that the rest of the job's budget is expected to buy; None: none, or no budget."""
        return self._round(snapshot).bought_at(view)

    def quoted(self, snapshot: Snapshot, job: JobId) -> tuple[Plan, float | None]:
        """Return what `allocate` answers, and the earliest deadline that can be promised to `job` beside all promises."""
        earliest_at = self._round(snapshot).earliest_at(job) if snapshot.pools else None
        return self.allocate(snapshot), earliest_at

    def _round(self, snapshot: Snapshot) -> "_LeastCostRound":
        return _LeastCostRound(self, self._builder(snapshot))


class _LeastCostRound:
    """One plan."""

    def __init__(self, policy: LeastCost, builder: PlanBuilder) -> None:
        self._policy, self._builder, self._snapshot = policy, builder, builder.snapshot
        self._at = self._snapshot.at
        self._groups = [*_own(self._snapshot), *map(_pooled, self._snapshot.pools)]
        #: Machines of each pool that each job was to have by the last plan: some may start still.
        self._asked: dict[str, dict[str, int]] = builder.last_carry.get("asked", {})
        self._stopping = [view for view in self._snapshot.holding if view.status == "stopping"]
        #: Nodes that a job has, which this plan does not give away.
        self._taken = {node: view.id for view in self._stopping for node in view.planned}
        #: Number of machines of each name that jobs decided before want.
        self._n_taken = Counter[str]()
        #: Last warning about its budget that each job was given, with that budget.
        self._told: dict[str, str] = dict(builder.last_carry.get("told", {}))

    def plan(self) -> Plan:
        wants = self._wants()
        promised = self._promised(wants)
        for want in sorted(wants, key=_least_slack_first):
            if (want.view.deadline_at or 0.0) > self._at:
                self._promise(want, wants, promised)
        wants.sort(key=lambda want: (want.view.id not in promised, *_least_slack_first(want)))
        promises, declines, warnings = dict[JobId, float](), dict[JobId, Reason](), dict[JobId, Reason]()
        kept = {want.view.id: self._choose(want) for want in wants}
        for want in wants:
            view, deadline_at = want.view, want.view.deadline_at
            if deadline_at is not None and view.id in promised and (want.bought_s is None or want.is_safe()):
                promises[view.id] = deadline_at
            elif awaits_promise(view.spec, view.status, view.started_at):
                declines[view.id] = Reason(
                    "no-promise", "its deadline cannot be promised: too few machines stay, too little time or budget"
                )
                kept[view.id] = Counter()
            warning, before = budget_warning(want, self._at) or danger(want, self._at), self._told.get(view.id)
            news, last = (f"{code} {view.spec.budget_usd}" for code in (warning.code if warning else "", SPENT))
            if warning is not None and before not in (news, last):
                warnings[view.id], self._told[view.id] = warning, news
        self._place(wants, kept, declines)
        told = {id: self._told[id] for id in kept if id in self._told}
        # Machines that were asked for a job that stops stay until it has: it may be about to start on them.
        kept |= {view.id: Counter(self._asked.get(view.id, {})) for view in self._stopping}
        plan = self._builder.build(asked={id: dict(numbers) for id, numbers in kept.items()}, told=told)
        n_kept = sum(kept.values(), Counter[str]())
        return replace(
            plan,
            promises=promises,
            declines=declines,
            warnings=warnings,
            machines={pool.spec.name: min(n_kept[pool.spec.name], pool.spec.most) for pool in self._snapshot.pools},
            bound=sum(want.bound_usd for want in wants) if all(want.bound_usd < inf for want in wants) else None,
            ask_again_at=self._at + self._policy.look_s if any(map(_changes_with_time, wants)) else None,
        )

    def prices_usd(self, view: JobView, deadlines_at: Sequence[float]) -> list[float | None]:
        """Return the expected cost of the job's rest for each deadline, whatever other jobs need."""
        want = self._want(_without_deadline(view))
        if not want.is_known:
            return [None for _ in deadlines_at]
        outlook, lost_s = self._outlook(want), want.lost_s
        surest_s = lost_s + want.work / want.sure_sps if want.sure_sps > 0 else inf
        lefts_s = [at - self._at for at in deadlines_at]
        costs = [outlook.expected_usd(want.work, left_s - lost_s) for left_s in lefts_s]
        return [usd if usd < inf and left_s >= surest_s else None for usd, left_s in zip(costs, lefts_s, strict=True)]

    def bought_at(self, view: JobView) -> float | None:
        """Return the earliest deadline that the rest of the job's budget buys, whatever other jobs need."""
        want = self._want(_without_deadline(view))
        if not want.is_known or want.budget_usd == inf:
            return None
        bought_s = self._outlook(want).affordable_s(want.work, want.budget_usd)
        return None if bought_s is None else self._at + bought_s + want.lost_s

    def _outlook(self, want: Want) -> Outlook:
        return Outlook(want.speeds, self._supplies(want), self._at)

    def earliest_at(self, job: JobId) -> float | None:
        """Return the earliest deadline that can be promised to the job beside all promises."""
        wants = self._wants()
        want = next((want for want in wants if want.view.id == job), None)
        if want is None or not want.is_known:
            return None
        promised = self._promised(wants) - {job}

        def is_possible(left_s: float) -> bool:
            want.left_s = left_s
            self._set_aside(wants, promised)
            return self._promise(want, wants, set(promised))

        low, high = 0.0, 2 * (want.work / max(want.speeds) + want.lost_s)
        while not is_possible(high):
            low, high = high, 2 * high
            if high > LONGEST_S:
                return None
        while high - low > max(1.0, 1e-3 * high):
            middle = (low + high) / 2
            low, high = (low, middle) if is_possible(middle) else (middle, high)
        return self._deadline_at(want.view, high)

    def _deadline_at(self, view: JobView, left_s: float) -> float:
        """Return the deadline to which a job has so many seconds, without its margin and its start."""
        start_s = 0.0 if view.granted else view.spec.startup_s
        margin_frac = _margin_frac(view)
        return view.submitted_at + (self._at - view.submitted_at + left_s + start_s) / (1.0 - margin_frac) + 1e-3

    # What a job needs.

    def _wants(self) -> list[Want]:
        return [self._want(view) for view in self._snapshot.jobs if view.status != "stopping"]

    def _want(self, view: JobView) -> Want:
        """Return the job's machines of the kind on which its work costs least, with its speed by their number.

        Kinds whose machines that stay are in time come first, then that of the machines that it has.
        """
        spec, steps, options = view.spec, view.remaining_steps(self._at), []
        work, left_s = inf if steps is None else max(steps, _LAST), inf
        if view.deadline_at is not None:
            margin_s = _margin_frac(view) * (spec.deadline_s or 0.0)
            left_s = view.deadline_at - self._at - margin_s - (spec.startup_s if not view.granted else 0.0)
        if spec.worker is None and (core_s := self._core_s_left(view)) is not None:
            work = max(core_s, _LAST)
        unknown = Want(view=view, work=inf, left_s=inf, speeds=(), restarts=_restarts(view), look_s=self._policy.look_s)
        for (device, n_per), places in self._kinds(view).items():
            counts = self._counts(view, n_per, sum(place.n_most for place in places))
            speeds = tuple(self._speed(view, n, n_machines, device) for n_machines, n in enumerate(counts))
            sure_sps = max(speeds[: sum(place.n_most for place in places if place.stays) + 1])
            candidate = replace(
                unknown, places=places, counts=counts, speeds=speeds, work=work, left_s=left_s, sure_sps=sure_sps
            )
            dearest, most_gain = max(place.price_usd_s for place in places), max(speeds[1:], default=0.0)
            is_here = any(place.n_held(view) for place in places)
            is_late = left_s < inf and work > sure_sps * (left_s - (0.0 if is_here else candidate.lost_s))
            options.append((is_late, not is_here, dearest / most_gain if most_gain > 0 else inf, device, candidate))
        want = min(options, key=lambda option: option[:4])[4] if options else unknown
        if want.places and spec.budget_usd is not None:
            want.budget_usd = spec.budget_usd - self._snapshot.spent_usd.get(view.id, 0.0)
            prices = sorted(place.price_usd_s for place in want.places if place.stays for _ in range(place.n_most))
            n_sure = want.speeds.index(want.sure_sps)
            over_s = want.work / want.sure_sps + want.start_s if want.sure_sps > 0 else inf
            want.certain_usd = sum(prices[:n_sure]) * over_s if n_sure else inf
        return want

    def _core_s_left(self, view: JobView) -> float | None:
        """Return the core-seconds that a job on a share of cores still needs, declared where no controller says it."""
        core_s = view.core_s_left(self._at)
        if core_s is None and view.spec.work_core_s is not None and view.steps_total is None:
            core_s = max(0.0, view.spec.work_core_s - view.granted_core_s)
        return core_s

    def _kinds(self, view: JobView) -> dict[tuple[str, int], list[Machines]]:
        """Return the machines on which the job fits, by their device and the workers that one holds."""
        kinds: dict[tuple[str, int], list[Machines]] = {}
        unit = view.spec.unit
        for group in self._groups:
            n_per = int(view.spec.floor.fits_in(group.capacity)) if unit is None else group.capacity.n_times(unit)
            if n_per:
                kinds.setdefault((group.device, n_per), []).append(group)
        return kinds

    def _counts(self, view: JobView, n_per: int, n_most: int) -> list[int]:
        """Return the largest number of workers that the job can run with on 0, 1, ... machines of `n_most`."""
        if view.spec.unit is None:
            return [0, 1][: n_most + 1]
        counts = view.spec.worker_counts()
        n_most = min(n_most, -(-counts[-1] // n_per))
        return [max((n for n in counts if n <= i * n_per), default=0) for i in range(n_most + 1)]

    def _speed(self, view: JobView, n: int, n_machines: int, device: str) -> float:
        """Return the work that `n` workers do in a second; proportional to them where its speed is not known."""
        spec = view.spec
        if n == 0:
            return 0.0
        if spec.unit is None:
            return spec.ceiling.cores if self._core_s_left(view) is not None else view.rate_sps or 1.0
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

    def _promised(self, wants: Sequence[Want]) -> set[JobId]:
        """Return the jobs with a promise; the machines are set aside for them first."""
        promised = {want.view.id for want in wants if has_promise(want.view, self._at)}
        self._set_aside(wants, promised)
        return promised

    def _promise(self, want: Want, wants: Sequence[Want], promised: set[JobId]) -> bool:
        """Add the job to `promised`, and set its machines aside, if its deadline can be promised beside theirs; return whether."""
        if want.view.id in promised or not want.is_safe():
            return False
        before = [(other, other.slack_s) for other in wants if other.view.id in promised]
        promised.add(want.view.id)
        self._set_aside(wants, promised)
        # Among promised jobs the machines are set aside in another order.
        if want.is_safe() and all(other.slack_s >= min(slack_s, other.lost_s) for other, slack_s in before):
            return True
        promised.remove(want.view.id)
        self._set_aside(wants, promised)
        return False

    def _set_aside(self, wants: Sequence[Want], promised: Container[JobId]) -> None:
        """Find the last instant at which each job can start with its most machines, if all share those that stay."""
        for want in wants:
            want.start_at_s = None
        due = [want for want in wants if want.is_due]
        staying = {want.view.id: frozenset(place.name for place in want.places if place.stays) for want in due}
        n_most = {group.name: group.n_most for group in self._groups}
        n_wanted = Counter[frozenset[str]]()
        for want in due:
            n_wanted[staying[want.view.id]] += want.n_best
        scarce = {
            keys
            for keys in n_wanted
            if sum(n_most[key] for key in keys)
            < sum(n for other, n in n_wanted.items() if other & keys or other == keys)
        }
        if not scarce:
            return
        slot_s = max(1.0, *[want.left_s for want in due]) / _N_SLOTS
        room = {key: [n] * _N_SLOTS for key, n in n_most.items()}

        def turn(want: Want) -> tuple[object, ...]:  # no promise is given that takes the time of another one
            return want.view.id not in promised, -want.left_s, *seniority(want.view)

        for want in sorted(due, key=turn):
            # First the machines that the fewest others can use.
            keys = sorted(staying[want.view.id], key=lambda key: (sum(key in other for other in n_wanted), key))
            start_s = want.lost_s - want.look_s if want.restarts else None
            start_at_s = _took(want, [room[key] for key in keys], slot_s, start_s, keeps=want.view.id in promised)
            if staying[want.view.id] in scarce:
                want.start_at_s = start_at_s

    def _choose(self, want: Want) -> Counter[str]:
        """Return the number of machines of each pool that the job is to have, and count them as taken."""
        view, supplies = want.view, self._supplies(want)
        if not want.is_due:
            want.n_machines = self._undated(want, supplies)
        else:
            outlook, need = Outlook(want.speeds, supplies, self._at), want
            want.bound_usd = outlook.expected_usd(want.work, want.left_s)
            is_late_anyway = want.bound_usd == inf and want.certain_usd <= want.budget_usd
            if want.bound_usd > want.budget_usd and not is_late_anyway:
                work, left_s = given_way(want, outlook)
                # A deadline that recedes needs no safety net: the price of progress alone says what is worth its money.
                recedes = want.bought_s != inf and want.has_spot and not want.restarts
                need = replace(want, work=work, left_s=left_s, start_at_s=inf if recedes else None)
            want.price = outlook.price_of_progress(need)
            choice = choose(need, supplies, want.price, self._policy.reserve_factor)
            want.n_machines, want.mode = choice.n_machines, choice.mode
        if want.budget_usd < inf:
            want.n_machines = paid(want, supplies)
        is_last = want.work <= _LAST
        # The last step may be long. With a budget, the job is bound to its machines only once all steps are done.
        if is_last and want.budget_usd < inf:
            steps = view.spec.work_steps if view.steps_total is None else view.steps_total
            is_last = view.landed or (steps is not None and view.done_steps >= steps)
        may_pause = not (is_protected(view) or is_last)
        if not any(want.n_machines) and not may_pause and view.planned:
            want.n_machines = tuple(place.n_held(view) for place in want.places)
        chosen = Counter({place.name: n for place, n in self._each(want)})
        self._n_taken += chosen
        return chosen

    def _supplies(self, want: Want) -> list[Supply]:
        return [self._supply(want, place) for place in want.places]

    def _supply(self, want: Want, place: Machines) -> Supply:
        """Return what the job can have of some machines, after the jobs that were decided before."""
        view, pool = want.view, place.source
        n_taken = self._n_taken[place.name] + sum(node in self._taken for node in place.nodes)
        n_most, n_there = max(0, place.obtainable - n_taken), place.n_held(view)
        if pool is None:
            return Supply(0.0, min(n_there, n_most), n_most)
        n_asked = self._asked.get(view.id, {}).get(place.name, 0)
        n_held = min(max(n_there, min(n_asked, n_there + pool.n_starting)), n_most)
        startup_s = place.startup_s + (view.spec.startup_s if want.restarts else 0.0)
        seen = None
        if not place.stays:
            counts = tuple((at, max(0, n - n_taken)) for at, n in pool.counts)
            at = max(self._at, counts[0][0] + 1e-3 if counts else 0.0)
            seen = Seen(counts, at, len(want.speeds) - 1, self._policy.hour_s)
        return Supply(place.price_usd_s, n_held, n_most, startup_s, seen)

    def _undated(self, want: Want, supplies: Sequence[Supply]) -> tuple[int, ...]:
        """Choose for a job without a deadline, or of unknown work: machines of one's own, else the fewest that it can run with.

        With a deadline these may be dear; without one it waits for cheap ones.
        """
        if not want.places:
            return ()
        able = [n for n, count in enumerate(want.counts) if count]
        n_free = sum(supply.n_most for supply in supplies if supply.price_usd_s == 0)
        n = max((n for n in able if n <= n_free), default=0)
        order = sorted(range(len(supplies)), key=lambda i: (supplies[i].price_usd_s, i))
        if not n:
            n = min(able, default=0)
            has_spot = any(supply.seen is not None for supply in supplies)
            if want.left_s == inf and has_spot:
                order = [i for i in order if supplies[i].seen is not None or supplies[i].price_usd_s == 0]
        numbers = [0] * len(supplies)
        for i in order:
            numbers[i] = min(n - sum(numbers), supplies[i].n_most)
        return tuple(numbers) if sum(numbers) == n else tuple(0 for _ in supplies)

    # Where it is to have them.

    def _place(self, wants: Iterable[Want], kept: dict[JobId, Counter[str]], declines: Container[JobId]) -> None:
        """Give each job nodes of its pools: those that it has, then others; and note machines that stay until others are there."""
        wants = [want for want in wants if want.view.id not in declines]
        claims: dict[JobId, list[list[NodeId]]] = {}
        given: list[tuple[Want, list[NodeId]]] = []
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

    def _each(self, want: Want) -> Iterable[tuple[Machines, int]]:
        return zip(want.places, want.n_machines, strict=True)

    def _claim(self, want: Want, place: Machines, n: int, *, held: bool) -> list[NodeId]:
        """Return up to `n` nodes that nobody has claimed, of those that the job has or of the others."""
        nodes = [node for node in place.nodes if node not in self._taken and (node in want.view.planned) == held]
        self._taken |= dict.fromkeys(nodes[: max(0, n)], want.view.id)
        return nodes[: max(0, n)]

    def _with_former(
        self, want: Want, claimed: list[list[NodeId]], n_short: int, kept: dict[JobId, Counter[str]]
    ) -> list[NodeId]:
        """Return the job's nodes, with those of its present ones that it keeps until machines that start are there."""
        nodes = [node for some in claimed for node in some]
        if n_short <= 0:
            return nodes
        former = [(place, node) for place in want.places for node in place.nodes if node in want.view.planned]
        stay = [(place, node) for place, node in former if node not in self._taken]
        if want.restarts:  # it moves at once, or not at all
            if not want.view.planned:
                return []
            nodes, n_short = [node for _, node in former if node in nodes], len(stay)
        for place, node in stay[:n_short]:
            nodes.append(node)
            self._taken[node] = want.view.id
            kept[want.view.id][place.name] += 1
        return nodes

    def _give(self, want: Want, nodes: Sequence[NodeId]) -> None:
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

    def _why(self, want: Want, allocation: Allocation) -> Reason:
        if not want.places:
            return waits(want.view.spec.unit or want.view.spec.floor, self._snapshot.free)
        numbers = [(place, n) for place, n in self._each(want) if n]
        usd_h = sum(place.price_usd_s * _HOUR_S * n for place, n in numbers)
        parts = " and ".join(f"{n} of {_name(place)}" for place, n in numbers)
        facts = {"usd_h": usd_h, "price_of_progress": want.price}
        code, text = "least-cost", f"{parts} at ${usd_h:.2f} an hour"
        if want.is_spent:
            spent = usd_text(max(0.0, want.budget_usd)), usd_text(want.view.spec.budget_usd or 0.0)
            code, text = SPENT, "its budget pays for no machine any more: {} of {} are left".format(*spent)
        elif not parts and any(place.obtainable for place in want.places):
            code, text = TOO_DEAR, "no machine now is worth its price: it waits for cheaper ones"
        elif not parts:
            code, text = "waits", "no machine can be had now: it waits for some"
        if want.is_due:
            left_s = want.left_s if want.bought_s in (None, inf) else want.bought_s
            best_s = want.work / want.speeds[want.n_best]
            facts |= {"left_s": left_s, "best_s": best_s}
            need = f"{span(best_s)} of work at its fastest {{}} {span(left_s)}"
            is_bought = any(place.source is not None and place.stays for place, _ in numbers)
            cause = lacking(want, self._at)
            if left_s <= 0:
                text += f"; {span(best_s)} of work at its fastest are left, and its deadline is over"
            elif want.mode == "free" or not is_bought or not cause:
                text += "; " + need.format("in")
            else:
                text += f"; on demand because {cause} and {need.format('must be done in')}"
        if want.bought_s is not None and not want.is_spent:
            text += f"; its deadline gives way to its budget, of which {usd_text(want.budget_usd)} are left"
        return Reason("least-cost" if allocation else code, text, facts)


def _took(want: Want, room: Sequence[list[int]], slot_s: float, start_s: float | None, *, keeps: bool) -> float:
    """Take the job's machines from the `room` of each slot, its last slots first; return its start, below 0 if it cannot be in time.

    A job whose every change costs `start_s` has one number of machines all the time: that with which it can start last. A
    job that cannot be in time takes machines only if it `keeps` a promise.
    """
    free = [sum(each) for each in zip(*room, strict=True)][: max(0, int(want.left_s / slot_s))]
    numbers = [want.n_best] if start_s is None else [n for n in range(want.n_best, 0, -1) if want.speeds[n] > 0]
    slots = max(
        (_last_slots(want, free, n, slot_s, start_s) for n in numbers), key=lambda slots: min(slots, default=-1)
    )
    is_in_time = min(slots, default=-1) >= 0
    for slot, n in slots.items() if is_in_time or keeps else ():
        for each in room if slot >= 0 else ():
            n_here = min(n, each[slot])
            each[slot] -= n_here
            n -= n_here  # noqa: PLW2901 -- the rest
    return min(slots) * slot_s if is_in_time else -abs(want.left_s)


def _last_slots(want: Want, free: Sequence[int], n_most: int, slot_s: float, start_s: float | None) -> dict[int, int]:
    """Return the machines that do the job's work in each of the last slots; with a slot -1 if all are too few."""
    left, slots = want.work, dict[int, int]()
    for slot in reversed(range(len(free))):
        n = min(n_most, free[slot]) if start_s is None or free[slot] >= n_most else 0
        speed = max(want.speeds[: n + 1])
        if speed <= 0:
            continue
        if start_s is not None and slots and slot + 1 not in slots:
            left += start_s * speed
        slots[slot], left = n, left - speed * slot_s
        if left <= 0:
            return slots
    return {**slots, -1: 0}


def _without_deadline(view: JobView) -> JobView:
    return replace(view, spec=replace(view.spec, deadline_s=None, guarantee=False))


def _margin_frac(view: JobView) -> float:
    return MARGIN_FRAC if view.spec.margin_frac is None else view.spec.margin_frac


def _changes_with_time(want: Want) -> bool:
    """Whether it has or wants machines, or may with a deadline coming near; else it waits for what pools offer."""
    may_be_due = want.left_s < inf if want.bought_s is None else want.left_s > 0 or want.bought_s < inf
    n_obtainable = sum(place.obtainable for place in want.places)
    may_run = may_be_due and not want.is_spent and any(want.speeds[: n_obtainable + 1])
    return bool(any(want.n_machines) or want.view.planned or may_run)


def _restarts(view: JobView) -> bool:
    """Whether the job pays its start-up at each change of machines: it has one size, or a resize costs as much."""
    spec = view.spec
    return len(spec.worker_counts()) < 2 or spec.resize_cost_s >= spec.startup_s > 0


def _least_slack_first(want: Want) -> tuple[Any, ...]:
    return want.slack_s, *seniority(want.view)


def _name(place: Machines) -> str:
    return f"pool '{place.name}'" if place.source is not None else "one's own nodes"


def _pooled(pool: Pool) -> Machines:
    spec = pool.spec
    return Machines(
        name=spec.name,
        capacity=spec.capacity,
        device=spec.device,
        nodes=pool.there,
        obtainable=min(pool.obtainable, spec.most),
        n_most=spec.most,
        price_usd_s=pool.price_usd_h / _HOUR_S,
        startup_s=spec.startup_s,
        source=pool,
    )


def _own(snapshot: Snapshot) -> list[Machines]:
    """Return the nodes of no pool, grouped by what they have."""
    pooled = {node for pool in snapshot.pools for node in (*pool.there, *pool.leaving)}
    alike: dict[tuple[str, float, float, int], list[Node]] = {}
    for node in snapshot.nodes:
        if node.id not in pooled:
            amount = node.capacity
            alike.setdefault((node.device, amount.gpus, amount.cores, amount.memory_bytes), []).append(node)
    return [
        Machines(
            name=f"node {nodes[0].id}",
            capacity=nodes[0].capacity,
            device=nodes[0].device,
            nodes=tuple(node.id for node in nodes),
            obtainable=len(nodes),
            n_most=len(nodes),
        )
        for nodes in alike.values()
    ]
