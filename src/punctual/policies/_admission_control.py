"""Admission control of one round of `promises-first`: promise deadlines, and reserve what they need."""

from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from math import ceil, inf
from typing import Any

import numpy as np

from punctual.core.ids import JobId
from punctual.core.job import Allocation, JobView
from punctual.core.reason import Reason
from punctual.core.units import span
from punctual.policies._allocation_problem import AllocationProblem, Candidate
from punctual.policies._base import with_deadlines, with_same_deadline
from punctual.policies._configurations import PARTS, Pool
from punctual.policies._earliest import earliest, in_danger, no_guarantee, rounded_up, waits_for_promise
from punctual.policies._jobs import TOLD_LEAST_S, due_at, has_promise, is_protected, n_workers
from punctual.policies._promise_parameters import PromiseParameters
from punctual.policies._promised_shares import (
    Hold,
    PromiseRequest,
    ShareRequest,
    as_carried,
    shares_carried,
    spans_until,
)
from punctual.policies._reservations import ReservationLedger
from punctual.solvers.timeline import ROOM_TOLERANCE, ChangeCosts, Share, Timeline

#: Newcomers of one round for which all jobs are planned again if they do not fit beside them.
_N_NEW_MAX = 3
#: Share of the way to the deadline that is kept free against rounding.
_ROUNDING_FRAC = 1e-6
#: A job may wait this many times as long as it takes at its fastest, and a constant time more.
_WAIT_FACTOR = 10.0
#: A plan is asked for again for a job that holds less than its promise needs, after this share of the time left, at least these seconds.
_ASK_AGAIN_FRAC, _ASK_AGAIN_S = 0.01, 1.0
#: The earliest deadline is first looked for so much later than the work could be done with all that is left.
_GUESS_FRAC = 1.03
#: Factors of the earliest deadline in a plan's room that are tried: the plan with that deadline has other spans.
_TRIED_FRACS = (1.0, 1.02, 1.1, 1.3, 2.0, 4.0)
#: Number of times that promised jobs without room are moved to the front.
_N_ROUNDS = 3


@dataclass(frozen=True, slots=True, eq=False)
class Reservation:
    """The share reserved for a job.

    Attributes
    ----------
    bears_a_change
        Whether its promise survives a change to more than its share, or a move, and the way back.
    n_nodes
        See `PromiseRequest`.
    per_worker
        Amount of the pool that is reserved for each worker.
    """

    pool: Pool
    share: Share
    bears_a_change: bool
    n_nodes: int
    per_worker: int

    @property
    def n(self) -> int:
        """Number of workers that the job needs now."""
        return int(self.share.now) // self.per_worker


class AdmissionControl:
    """Promises of one round.

    Parameters
    ----------
    policy
        The policy's parameters.
    carry
        State from the last round.
    problem
        The candidates, and the capacity of each pool.
    taken
        Growth of others' holdings in each pool over time; negative: they will hold less than now.
    """

    def __init__(
        self,
        policy: PromiseParameters,
        carry: Mapping[str, Any],
        problem: AllocationProblem,
        taken: Mapping[Pool, Timeline],
    ) -> None:
        snapshot = problem.builder.snapshot
        self._policy, self._carry, self._problem, self._taken = policy, carry, problem, taken
        self._at, self._candidates = snapshot.at, problem.candidates
        self._overdue: Mapping[JobId, float] = carry.get("overdue", {})
        self._refused = with_same_deadline(carry.get("refused", {}), snapshot)
        self._told = with_same_deadline(carry.get("endangered", {}), snapshot)
        self._planned = shares_carried(carry.get("shares", {}), self._at)
        #: Start and end of the pause of each job that was changed lately.
        self._stalls: Mapping[JobId, Sequence[float]] = carry.get("stalls", {})
        self._claims: dict[JobId, ShareRequest] = {}
        #: Jobs that are turned away.
        self._declines: dict[JobId, Reason] = {}
        #: Jobs whose promises cannot be kept as it looks now, and of those what is new to their users.
        self._endangered: set[JobId] = set()
        self.warnings: dict[JobId, Reason] = {}
        #: Promised jobs that none of the nodes can hold.
        self._unplaceable = self._promised_of(problem.unfit)
        #: Promised jobs that are stopped, to be started again elsewhere; their promises hold.
        self._stopping = self._promised_of(view for view in snapshot.jobs if view.status == "stopping")
        #: What jobs cannot give up of the pools that they hold something of.
        self._holds = {each.id: self._hold(each, each.pool) for each in self._candidates if each.n}
        #: Amounts for all promises, and the part for deadlines yet to be promised; ends of waiting may take all.
        self._reserved = self._reserved_of(problem.capacities)
        self._offered = {
            pool: ceil(policy.offered_fracs[pool[1]] * n / unit - 1e-9) * unit  # of a few devices, a whole one
            for pool, n in self._reserved.items()
            for unit in [PARTS if pool[1] else 1]
        }
        #: Ends of the spans of time that the plan distinguishes.
        self._ends_s: list[float] = []
        self._ledgers: dict[Pool, ReservationLedger[PromiseRequest]] = {}
        self._promise()
        per_worker = {candidate.id: candidate.options.reserved_per_worker for candidate in self._candidates}
        self._reservations = {
            request.id: Reservation(pool, share, request.bears_a_change(share), request.n_nodes, per_worker[request.id])
            for pool, ledger in self._ledgers.items()
            for request, share in zip(ledger.requests, ledger.shares, strict=True)
        }
        #: Promised jobs that hold less than the last plan gave them.
        self._waits_for_room = {
            candidate.id
            for candidate in self._candidates
            if candidate.id in self._reservations
            and candidate.n > n_workers(candidate.view.spec, candidate.view.granted)
        }
        self._tell_of_dropped()

    def _promised_of(self, views: Iterable[JobView]) -> list[JobView]:
        return [view for view in views if self._policy.promises and has_promise(view, self._at)]

    def declines(self) -> dict[JobId, Reason]:
        """Jobs that are turned away, and why."""
        return self._declines | {
            candidate.id: no_guarantee(candidate.view, self._at, self.earliest_s(candidate))
            for candidate in self._candidates
            if waits_for_promise(candidate.view) and not self.is_promised(candidate)
        }

    def earliest_s(self, candidate: Candidate) -> float | None:
        """Seconds until the earliest deadline of the job that could be promised beside all promises; None: none could.

        First in what this plan leaves, which takes little; what comes of that is then tried with a plan of its own.
        """
        if candidate.remaining is None or not self._policy.promises:
            return None
        if self.is_promised(candidate):
            return self._at_deadline(candidate, None).earliest_s(candidate)
        soonest_s = min((self._soonest_s(request) for request in self._requests(candidate, inf)), default=inf)
        guess_s = _GUESS_FRAC * soonest_s + 3.0 * max(candidate.view.spec.startup_s, candidate.view.spec.resize_cost_s)
        rough_s = earliest(lambda left_s: self._has_room(candidate, left_s), soonest_s, guess_s)
        for left_s in (rough_s * frac for frac in _TRIED_FRACS) if rough_s is not None else ():
            tried = self._at_deadline(candidate, rounded_up(left_s))
            if tried.is_promised(candidate):
                return rounded_up(left_s)
        return None

    def _has_room(self, candidate: Candidate, left_s: float) -> bool:
        """Whether this plan leaves enough room for a deadline in `left_s` seconds."""
        claim = self._claim(candidate.due_in(self._at, left_s))
        for request in () if claim is None else claim.requests:
            room = request.room(self._left_of(request).split([request.until_s]))
            if request.cheapest(room, late=self._policy.work == "late", with_reserve=True) is not None:
                return True
        return False

    def _soonest_s(self, request: PromiseRequest) -> float:
        """Seconds until all that this plan leaves free would do the work, without the costs of changes."""
        return request.room(self._left_of(request)).soonest(request.levels, max(request.work, 1e-9)).end_s

    def _left_of(self, request: PromiseRequest) -> Timeline:
        ledger = self._ledgers.get(request.pool)
        return Timeline.of(self._offered.get(request.pool, 0)) if ledger is None else ledger.free

    def _at_deadline(self, candidate: Candidate, left_s: float | None) -> "AdmissionControl":
        """Return the next round if the job's deadline were in `left_s` seconds (None: none), with all promises kept."""
        problem, promises = copy(self._problem), self.promises()
        problem.candidates = [
            replace(each, view=replace(each.view, promised_until_at=promises.get(each.id)))
            if each.id != candidate.id
            else candidate.due_in(self._at, left_s)
            for each in self._candidates
        ]
        carry = {**self._carry, **self.handed_on(without=candidate.id)}
        return AdmissionControl(self._policy, carry, problem, self._taken)

    def capacity(self, pool: Pool) -> int:
        """Return the amount of a pool that promises may use."""
        return self._reserved.get(pool, 0)

    def reservation(self, candidate: Candidate) -> Reservation | None:
        """Return the reservation for the job's promise; None without a promise."""
        return self._reservations.get(candidate.id)

    def never_ending(self) -> set[JobId]:
        """Waiting jobs that may not be paused once they run, and would hold for good what promised jobs are to hold later."""
        left = {
            pool: self._reserved[pool] - (ledger.most_reserved() if (ledger := self._ledgers.get(pool)) else 0.0)
            for pool in self._reserved
        }
        refused: set[JobId] = set()
        for candidate in self._candidates:
            if candidate.n or candidate.view.spec.preemptible or candidate.id in self._reservations:
                continue
            pools = [pool for pool in candidate.pools if candidate.least_on(pool) <= left.get(pool, 0.0)]
            if pools:
                for pool in candidate.pools:
                    left[pool] -= candidate.least_on(pool)
            else:
                refused.add(candidate.id)
        return refused

    def most_at_start(self, starts: Sequence[tuple[Candidate, Pool, int]]) -> dict[JobId, int]:
        """Return the most workers that each job launched now may have in a pool, at most the number asked for.

        Until it has started a job gives nothing up: no more is free for it than for all of that time beside what promised
        jobs are to hold. Those that come first may hold more.
        """
        most: dict[JobId, int] = {}
        for pool in {pool for _, pool, _ in starts} & self._ledgers.keys():
            ledger, own = self._ledgers[pool], [start for start in starts if start[1] == pool]
            points_s = {float(start_s) for share in ledger.shares for start_s in share.starts_s}
            timeline = self._free_of(pool, is_all=True, points_s=points_s, is_promised=False)
            free = timeline.free - ledger.reserved_at(timeline.starts_s)
            for candidate, _, n_asked in own:
                per_worker = candidate.options.reserved_per_worker
                held, span = self._reservations.get(candidate.id), timeline.starts_s < candidate.view.spec.startup_s
                span[0] = True
                reserved = held.share.each_at(timeline.starts_s) if held and held.pool == pool else np.zeros(len(free))
                room = float((free + reserved)[span].min())
                counts = candidate.options.counts_on(pool[0])
                fits = [n for n in counts if n <= n_asked and n * per_worker <= room + ROOM_TOLERANCE]
                most[candidate.id] = max([int(reserved[0]) // per_worker, *fits])
                free[span] -= np.maximum(most[candidate.id] * per_worker - reserved, 0.0)[span]
        return most

    def is_starting(self, candidate: Candidate) -> bool:
        """Whether the job cannot give up its allocation before it has started."""
        return candidate.id in self._holds and self._holds[candidate.id].starting_s > 0

    def is_promised(self, candidate: Candidate) -> bool:
        """Whether its deadline is promised. False if only an end of its waiting is."""
        return candidate.id in self._reservations and not self._claims[candidate.id].overdue

    def promises(self) -> dict[JobId, float]:
        """Return the promised deadline of each promised job."""
        promised = [
            candidate.view
            for candidate in self._candidates
            if self.is_promised(candidate) or self._is_pending(candidate)
        ]
        promised += [*self._unplaceable, *self._stopping]
        return {view.id: view.deadline_at for view in promised if view.deadline_at is not None}

    def handed_on(self, without: JobId | None = None) -> dict[str, object]:
        """Return the state for the next round, for the plan's carry; not that of the job `without`, which is another one there."""
        snapshot = self._problem.builder.snapshot
        claims = [claim for id, claim in sorted(self._claims.items()) if id in self._reservations]
        shares = {
            id: as_carried(reserved.pool, reserved.share, self._at, reserved.n_nodes)
            for id, reserved in sorted(self._reservations.items())
        }
        return {
            "overdue": {claim.id: claim.due_at for claim in claims if claim.overdue},
            "refused": with_deadlines(self._refused - {without}, snapshot),
            "endangered": with_deadlines(self._endangered - {without}, snapshot),
            "shares": shares,
        }

    def stalls(self, changed: Iterable[tuple[Candidate, Allocation]]) -> dict[JobId, list[float]]:
        """Return start and end of each job's pause for a change, of those without a report since.

        Parameters
        ----------
        changed
            The jobs whose allocation changes, with the new one.
        """
        stalls = {
            candidate.id: list(self._stalls[candidate.id])
            for candidate in self._candidates
            if candidate.id in self._stalls and self._stalls[candidate.id][1] > candidate.view.progress_at
        }
        for candidate, allocation in changed:
            is_elsewhere = candidate.view.planned.keys().isdisjoint(allocation)
            cost_s = candidate.view.spec.startup_s if is_elsewhere else candidate.view.spec.resize_cost_s
            since_at, until_at = stalls.get(candidate.id, [self._at, self._at])
            if until_at <= self._at:
                since_at = until_at = self._at
            if allocation:
                # A change after another one adds to it; a start after a pause does not.
                begins_at = until_at if candidate.view.planned else self._at
                stalls[candidate.id] = [since_at, begins_at + cost_s]
        return stalls

    def _is_pending(self, candidate: Candidate) -> bool:
        """Whether nothing is known just now of a job with a promise, because its process was started again."""
        return self._policy.promises and candidate.remaining is None and has_promise(candidate.view, self._at)

    def _promise(self) -> None:
        """Reserve for the promised jobs first, then for as many others as fit; for no others while a promised job is moved."""
        if not self._policy.promises:
            return
        kept: list[ShareRequest] = []
        others: list[tuple[Candidate, ShareRequest]] = []
        for candidate in self._candidates:
            claim = self._claim(candidate)
            if claim is not None:
                self._claims[candidate.id] = claim
                if claim.promised:
                    kept.append(claim)
                else:
                    others.append((candidate, claim))
        self._ends_s = self._spans([claim.until_s for claim in self._claims.values()])
        self._keep(kept)
        n_new = 0
        for candidate, claim in sorted([] if self._stopping else others, key=lambda pair: not pair[1].overdue):
            given = self._reserve(claim, with_reserve=True)
            if not given and claim.id not in self._refused and n_new < _N_NEW_MAX:
                n_new += 1
                given = self._reserve_anew(claim, kept)
            if given:
                kept.append(claim)
                self._refused.discard(claim.id)
            else:
                self._refuse(candidate)

    def _spans(self, dues_s: Sequence[float]) -> list[float]:
        """Ends of spans, also where what others take changes."""
        last_s = max(dues_s, default=0.0)
        changes_s = [float(start) for taken in self._taken.values() for start in taken.starts_s if start < last_s]
        changes_s += [hold.starting_s for hold in self._holds.values() if 0 < hold.starting_s < last_s]
        return spans_until([*dues_s, *changes_s])

    def _keep(self, claims: Sequence[ShareRequest]) -> None:
        """Reserve for the promised jobs, earliest deadline first; jobs that do not fit move to the front.

        Within what is offered if that is enough: with all there is, work would be put off until it needs all there is.
        Where no order leaves room for all, the last plan goes on: it was made for all of them.
        """
        order = sorted(claims, key=lambda claim: (claim.until_s, claim.id))
        if not self._fill(order, is_all=False):
            return
        for _ in range(_N_ROUNDS):
            failed = self._fill(order, is_all=True)
            if not failed:
                break
            order = [*failed, *(claim for claim in order if claim not in failed)]
        else:
            for claim in self._go_on(order):
                self._rescue(claim)
        self._withhold()

    def _fill(
        self, order: Sequence[ShareRequest], *, is_all: bool, reserved: Container[JobId] = ()
    ) -> list[ShareRequest]:
        """Reserve for all in this order. Returns those that do not fit.

        Parameters
        ----------
        is_all
            Whether they may take all that promises may count on, or only what of that is offered.
        reserved
            Jobs that must have their reserve; others have it if it fits.
        """
        pools = self._reserved if self._ends_s else ()
        self._ledgers = {pool: ReservationLedger(self._free_of(pool, is_all=is_all)) for pool in pools}
        return self._left_of_all(order, reserved)

    def _left_of_all(self, claims: Iterable[ShareRequest], reserved: Container[JobId] = ()) -> list[ShareRequest]:
        """Reserve for all, with their reserves where these fit. Returns those that do not fit, as in `_fill`."""
        return [
            claim
            for claim in claims
            if not self._reserve(claim, with_reserve=True)
            if claim.id in reserved or not self._reserve(claim, with_reserve=False)
        ]

    def _go_on(self, order: Sequence[ShareRequest]) -> list[ShareRequest]:
        """Reserve as the last plan did. Returns the jobs for which that does not suffice and that do not fit beside."""
        points_s = {start_s for planned in self._planned.values() for start_s in planned.starts_s}
        self._ledgers = {
            pool: ReservationLedger(self._free_of(pool, is_all=True, points_s=points_s)) for pool in self._reserved
        }
        return self._left_of_all([claim for claim in order if not self._reserve_as_planned(claim)])

    def _reserve_as_planned(self, claim: ShareRequest) -> bool:
        planned = self._planned.get(claim.id)
        for request, ledger in self._in_ledgers(claim):
            if planned is not None and planned.pool == request.pool:
                room = request.room(ledger.free)
                share = request.planned(room, planned, claim.due_at - self._at)
                if share is not None:
                    ledger.take(request, room, share)
                    return True
        return False

    def _in_ledgers(self, claim: ShareRequest) -> list[tuple[PromiseRequest, ReservationLedger[PromiseRequest]]]:
        """Return the job's requests with the ledgers of their pools."""
        return [(each, self._ledgers[each.pool]) for each in claim.requests if each.pool in self._ledgers]

    def _free_of(
        self, pool: Pool, *, is_all: bool, points_s: Collection[float] = (), is_promised: bool = True
    ) -> Timeline:
        """Return the part of a pool that promises may take beside starting jobs, in the plan's spans and `points_s`.

        Without `is_promised` the starting jobs are only those without a reservation.
        """
        frac = 1.0 if is_all else self._policy.offered_fracs[pool[1]]
        n = (self._reserved if is_all else self._offered)[pool]
        spans, taken = Timeline.of(n).split({*self._ends_s, *points_s}), self._taken.get(pool)
        most, kept, promised = (np.zeros(len(spans.starts_s)) for _ in range(3))
        if taken is not None:
            taken, most = taken.split(spans.starts_s), most - inf
            np.maximum.at(most, np.searchsorted(spans.starts_s, taken.starts_s, side="right") - 1, taken.free)
            most = np.where(most < 0, frac * most, most)
        for candidate in self._candidates:
            hold = self._holds.get(candidate.id)
            is_counted = is_promised or candidate.id not in self._reservations
            if hold is not None and candidate.pool == pool and is_counted and (hold.starting_s or hold.least_until_s):
                kept += hold.kept_at(spans.starts_s) - hold.withheld
                if has_promise(candidate.view, self._at):
                    promised += hold.least_at(spans.starts_s)
        free = np.minimum(spans.free - promised, self._reserved[pool] - kept) - most
        rest = self._problem.remainders[pool] if taken is not None else 0.0  # jobs on shares hold no whole parts
        return Timeline(spans.starts_s, np.maximum(free + rest, 0.0))

    def reserved_cores(self) -> dict[str, list[list[float]]]:
        """Return reserved cores of promised jobs without GPUs by kind of node, as pairs of instant and cores."""
        reserved: dict[str, list[list[float]]] = {}
        for (kind, uses_gpus), ledger in self._ledgers.items():
            if uses_gpus or not ledger.shares:
                continue
            starts_s = ledger.free.starts_s
            cores = ledger.reserved_at(starts_s) / PARTS
            reserved[kind] = np.stack([self._at + starts_s, cores], axis=1).tolist()
        return reserved

    def _reserve(self, claim: ShareRequest, *, with_reserve: bool) -> bool:
        """Reserve for one job; False if none of its pools has room beside the others."""
        late = self._policy.work == "late" and not claim.awaits_report
        for request, ledger in self._in_ledgers(claim):
            room = request.room(ledger.free)
            share = request.cheapest(room, late=late, with_reserve=with_reserve)
            if share is not None:
                ledger.take(request, room, share)
                return True
        return False

    def _reserve_anew(self, claim: ShareRequest, claims: Sequence[ShareRequest]) -> bool:
        """Reserve for one job by planning all jobs again; return False, and change nothing, if a job would not fit.

        The same holds if a job would lose the reserve that it has.
        """
        before = self._ledgers
        reserved = {claim.id} | self._with_reserve()
        order = sorted((*claims, claim), key=lambda other: (other.until_s, other.id))
        failed = self._fill(order, is_all=claim.overdue, reserved=reserved)
        if failed:
            order = [*failed, *(other for other in order if other not in failed)]
            failed = self._fill(order, is_all=claim.overdue, reserved=reserved)
        if failed:
            self._ledgers = before
        elif claim.overdue:
            self._withhold()
        return not failed

    def _with_reserve(self) -> set[JobId]:
        """Jobs that can bear a change by the present plan."""
        return {
            request.id
            for ledger in self._ledgers.values()
            for request, share in zip(ledger.requests, ledger.shares, strict=True)
            if request.bears_a_change(share)
        }

    def _withhold(self) -> None:
        """Leave only the offered part of each pool for later reservations."""
        for pool, ledger in self._ledgers.items():
            ledger.withhold(self._reserved[pool] - self._offered[pool])

    def _rescue(self, claim: ShareRequest) -> None:
        """Reserve all free capacity for a job that does not fit; if that is not enough, tell it so."""
        own = self._in_ledgers(claim)
        if not own:
            return
        best, ledger = max(own, key=lambda pair: pair[1].free.free[0])
        room = best.room(ledger.free)
        share = best.everything(room)
        ledger.take(best, room, share)
        if claim.overdue or best.is_done_with(share):
            return
        left_frac = max(0.0, best.left_after(share))
        why = f"with what other promises leave, {left_frac:.0%} of its remaining work would not be done by then"
        self._tell_of_danger(claim.id, claim.due_at, why, left_frac)

    def _tell_of_danger(self, job: JobId, until_at: float, why: str, left_frac: float) -> None:
        self._endangered.add(job)
        if job not in self._told:
            self.warnings[job] = in_danger(until_at - self._at, why, left_frac=left_frac)

    def _tell_of_dropped(self) -> None:
        """Tell the users of promised jobs that no node can hold, and of those whose earlier deadline is not promised."""
        for view in self._unplaceable:
            self._tell_of_danger(view.id, due_at(view), "no node there is can hold it", 1.0)
        promises = self.promises()
        for view in self._problem.builder.snapshot.jobs if self._policy.promises else ():
            had_one = view.promised_until_at is not None and view.spec.worker is not None and view.id not in promises
            left_s = due_at(view) - self._at
            if had_one and TOLD_LEAST_S <= left_s < inf and not has_promise(view, self._at):
                text = f"its deadline in {span(left_s)} cannot be promised: it was promised a later one"
                self.warnings[view.id] = Reason("not-promised", text, {"left_s": left_s})

    def needed_at(self, held: Mapping[JobId, tuple[Pool, int]]) -> float:
        """Seconds until the plan first needs more for a job than it holds; infinite: never.

        If it wants more now, and there was no place for that, or it is not free yet, soon; and if a promise is in danger.
        """
        first_s = inf
        for id, reservation in self._reservations.items():
            on, amount = held.get(id, (reservation.pool, 0))
            rises_s = reservation.share.rises_at_s(amount if reservation.pool == on else 0)
            soon_s = max(_ASK_AGAIN_S, _ASK_AGAIN_FRAC * (self._claims[id].due_at - self._at))
            is_short = not rises_s or id in self._endangered or id in self._waits_for_room
            first_s = min(first_s, min(soon_s, rises_s or soon_s) if is_short else rises_s)
        return first_s

    def _refuse(self, candidate: Candidate) -> None:
        self._refused.add(candidate.id)
        if self._policy.admission == "decline" and candidate.view.status == "queued":
            text = f"its deadline in {span(candidate.left_s)} cannot be promised beside what is promised already"
            self._declines[candidate.id] = Reason("declined", text, {"left_s": candidate.left_s})

    def _claim(self, candidate: Candidate) -> ShareRequest | None:
        """Return the job's request for a share that keeps its promise; None if it can have no promise."""
        promised = has_promise(candidate.view, self._at)
        overdue = not promised and (candidate.id in self._overdue or self._is_overdue(candidate))
        due_s = self._waits_until_s(candidate) if overdue else candidate.left_s
        until_s = due_s * (1 - _ROUNDING_FRAC)
        if not 0 < due_s < inf or (candidate.remaining is None and not overdue):
            return None
        kept = promised or (overdue and candidate.id in self._overdue)
        if not kept and not overdue and due_s <= max(candidate.view.spec.startup_s, candidate.view.spec.resize_cost_s):
            return None  # one change would break it
        if (
            not kept
            and self._work_steps(candidate) > candidate.options.surely_fastest(self._policy.risk_sigmas) * until_s
        ):
            return None
        awaits_report = promised and candidate.view.steps_before > 0
        requests = self._requests(candidate, until_s)
        return ShareRequest(requests, self._at + due_s, promised=kept, overdue=overdue, awaits_report=awaits_report)

    def _requests(self, candidate: Candidate, until_s: float) -> list[PromiseRequest]:
        """Return requests, one for each pool, for the job's work to be done in `until_s` seconds."""
        work_steps, risk_sigmas = self._work_steps(candidate), self._policy.risk_sigmas
        return [
            PromiseRequest(
                id=candidate.id,
                submitted_at=candidate.view.submitted_at,
                pool=pool,
                work=work_steps,
                until_s=until_s,
                levels=candidate.options.levels(pool[0], risk_sigmas, self._n_nodes(candidate, pool)),
                changes=self._changes(candidate, pool),
                n_nodes=self._n_nodes(candidate, pool),
                hold=self._hold(candidate, pool),
            )
            for pool in candidate.pools
        ]

    def _hold(self, candidate: Candidate, pool: Pool) -> Hold:
        """Return what the job cannot give up of a pool; it may be starting at any moment if the last plan launched it."""
        least = 0 if candidate.view.spec.preemptible else candidate.least_on(pool)
        if not candidate.n or pool != candidate.pool:
            return Hold(least=least)
        starting_s = self._starts_in_s(candidate) if candidate.view.status in ("queued", "starting") else 0.0
        amount = candidate.n * candidate.options.reserved_per_worker
        return Hold(amount, starting_s, least, self._least_until_s(candidate))

    def _n_nodes(self, candidate: Candidate, pool: Pool) -> int:
        planned = self._planned.get(candidate.id)
        return planned.n_nodes if planned is not None and planned.pool == pool else candidate.options.n_nodes[pool[0]]

    def _starts_in_s(self, candidate: Candidate) -> float:
        """Seconds until a job that is starting has started; a little longer if it should have by now."""
        _, ready_at = self._stalls.get(candidate.id, (self._at, self._at + candidate.view.spec.startup_s))
        return ready_at - self._at if ready_at > self._at else _ASK_AGAIN_S

    def _changes(self, candidate: Candidate, pool: Pool) -> ChangeCosts:
        """Return the costs of a change of the job; with several nodes a change may move it, but not to one that joined later."""
        is_fixed = self._n_nodes(candidate, pool) == 1 < candidate.options.n_nodes[pool[0]]
        can_move = len(self._problem.builder.hardware.nodes) > 1 and not is_fixed
        spec, (_, ready_at) = candidate.view.spec, self._stalls.get(candidate.id, (0.0, 0.0))
        start_s, hold = max(spec.startup_s, spec.resize_cost_s), self._holds.get(candidate.id, Hold())
        return ChangeCosts(
            holds=hold.amount if pool == candidate.pool else 0.0,
            ready_s=(hold.starting_s or max(0.0, ready_at - self._at)) if candidate.n else 0.0,
            start_s=start_s,
            change_s=start_s if can_move else spec.resize_cost_s,
        )

    def _waits_until_s(self, candidate: Candidate) -> float:
        """Seconds until the limit of waiting of a job that has waited too long."""
        until_at = self._overdue.get(candidate.id, 0.0)
        return until_at - self._at if until_at > self._at else self._longest_wait_s(candidate)

    def _is_overdue(self, candidate: Candidate) -> bool:
        """Whether the job holds nothing and has waited longer than anyone should."""
        if candidate.n or self._policy.max_wait_s <= 0:
            return False
        since_at = candidate.view.submitted_at if candidate.view.started_at is None else candidate.view.granted_at
        return self._at - since_at > self._longest_wait_s(candidate)

    def _longest_wait_s(self, candidate: Candidate) -> float:
        """The longer a job takes, the longer it can wait."""
        return self._policy.max_wait_s + _WAIT_FACTOR * self._work_steps(candidate) / candidate.options.fastest

    def _work_steps(self, candidate: Candidate) -> float:
        """Steps left; for a job without a known end, the amount that is promised at a time.

        A promised job that was started again is assumed to go on where it was, until it reports its steps.
        """
        if candidate.remaining is not None:
            view, (since_at, until_at) = candidate.view, self._stalls.get(candidate.id, (0.0, 0.0))
            stalled_s = max(0.0, min(until_at, self._at) - max(since_at, view.progress_at))
            worked_s = max(0.0, self._at - view.progress_at - stalled_s)
            left = view.remaining_steps(view.progress_at + worked_s)
            left = candidate.remaining if left is None else left
            # One that had done all has still to be started to say so.
            lost_steps = max(0.0, view.steps_before - view.done_steps)
            return max(min(left, 1.0), left - lost_steps) if has_promise(view, self._at) else left
        return float(candidate.options.rates[1]) * self._policy.prior_s

    def _reserved_of(self, capacities: Mapping[Pool, int]) -> dict[Pool, int]:
        """Return the amount of each pool for promises: without the least that jobs hold which may not be paused."""
        left = dict(capacities)
        for candidate in self._candidates:
            if candidate.n and candidate.pool in left:
                left[candidate.pool] -= self._holds[candidate.id].withheld
        return {pool: max(0, n) for pool, n in left.items()}

    def _least_until_s(self, candidate: Candidate) -> float:
        """Seconds until a job that runs and may not be paused gives up the least that it needs; 0: it may be paused.

        With a promise it has ended by then; without one nobody knows when it will.
        """
        if not is_protected(candidate.view):
            return 0.0
        return candidate.left_s * (1 - _ROUNDING_FRAC) if has_promise(candidate.view, self._at) else inf
