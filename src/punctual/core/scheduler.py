"""The only mutator of state: events in, commands out.

Four rules hold here, each for a failure that was seen without it.

1. *Fold, then reconcile.* An event changes the state; then what is wanted is compared with what is in force, and the
   difference is asked for. Nothing is remembered about which event led to which command, so a lost, late or failed
   command needs no special case. A failed one waits one period before it is asked again.
2. *Reserve the larger* (`punctual.core.ledger`). At most one resize is in flight per job.
3. *One plan in flight* (`punctual.core.planning`). A plan that arrives late is still used for the jobs that remain, and
   the next one is requested at once. One that does not arrive at all is given up. One that frees room is followed by another.
4. *No input and no plug-in makes `handle` raise.* What cannot be used is rejected. A plug-in that fails costs its own
   job its controller or its model, and no other job anything.
"""

from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import Any, ClassVar

from punctual.core import events, planning
from punctual.core.bill import Bill
from punctual.core.cluster import Snapshot
from punctual.core.commands import AskMachines, Command, RejectJob, ReleaseMachines, RequestPlan, UsePolicy
from punctual.core.control import Demand, Forecast
from punctual.core.errors import InvalidSpec, InvariantBroken
from punctual.core.fast_init import unchecked_constructor
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation, JobSpec, JobView, stop_code
from punctual.core.ledger import Bookings, Ledger
from punctual.core.lifecycle import N_ENDED_REMEMBERED, about, after_answer, folds_in, found_again
from punctual.core.node_table import NodeTable
from punctual.core.outbox import Outbox
from punctual.core.plan import Plan
from punctual.core.planning import Changes, Planning
from punctual.core.plug_ins import Failure, PlugIns, Quarantine, Source
from punctual.core.pools import SPENT, TOO_DEAR, HeldMachines, Lack, PoolTable
from punctual.core.protocols import Controller, ConvergenceModel, PerfModel
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.retry import after_refusal, fault_of_retry, retry_reason
from punctual.core.scheduled_job import JobTable, Periods, ScheduledJob, duplicate
from punctual.core.snapshot_cache import MemoryUse, SnapshotCache
from punctual.core.targets import Targets
from punctual.core.units import span
from punctual.core.watch import Watch

__all__ = ["Periods", "Scheduler"]

_snapshot = unchecked_constructor(Snapshot)


class Scheduler:
    """Turns events into commands.

    Parameters
    ----------
    controllers
        Plug-ins by registered name, or a function that makes the one of a name; each job names the one that steers it.
    models
        Performance models in the same way; each job may name the one that learns its speed.
    convergences
        Convergence models in the same way; each job with a goal names the one that learns when it is reached.
    strict
        Raise `InvariantBroken` when a plan is not valid or a plug-in of a job fails (tests). Otherwise the plan is
        refused, the job does without the plug-in, and the user is warned.
    seed
        Handed to policies.
    n_retries
        Number of launches in a row after a failed start or a retryable failure, unless the job's
        spec does not say it.
    n_ended
        Number of ended jobs that are remembered, the last ones.
    """

    def __init__(
        self,
        controllers: Source[Controller[Any]],
        *,
        models: Source[PerfModel[Any]] | None = None,
        convergences: Source[ConvergenceModel[Any]] | None = None,
        strict: bool = False,
        seed: int = 0,
        periods: Periods | None = None,
        n_retries: int = 3,
        n_ended: int = N_ENDED_REMEMBERED,
    ) -> None:
        self._plug_ins = PlugIns(controllers, models or {}, convergences or {})
        self._strict = strict
        self._seed = seed
        self._periods = periods or Periods()
        self._n_retries = n_retries
        self._ledger = Ledger()
        self._jobs = JobTable(n_ended)
        #: Amounts of the last plan, by node.
        self._planned = Bookings()
        self._nodes = NodeTable()
        self._pools = PoolTable()
        self._bill = Bill()
        self._planning = Planning()
        self._carry: object = None
        #: Failures that `load` found, to be reported when steering is resumed.
        self._untold: list[tuple[ScheduledJob, Failure]] = []
        self._outbox = Outbox()
        self._watch = Watch(self._outbox, self._periods)
        self._derive()

    def _derive(self) -> None:
        """Make the objects that work on the state and hold parts of it; `load` makes them again."""
        self._active = self._jobs.active
        self._memory = MemoryUse(self._active)
        self._cache = SnapshotCache(self._planned, self._shown, self._memory)
        self._quarantine = Quarantine(self._cache, self._outbox, self._periods, strict=self._strict)
        self._targets = Targets(self._ledger, self._planned, self._cache, self._periods, self._outbox)

    def handle(self, event: events.Event) -> list[Command]:
        """Fold `event` into the state and return the commands that follow, in order.

        An event about a job that has ended, or is unknown, changes nothing.
        """
        subject = about(event)
        job = None if subject is None else self._active.get(subject)
        if job is not None:
            job.tell(event)
        fold = self._FOLDS[type(event)]
        if not isinstance(event, events.EventOfJob):
            fold(self, event)
        elif job is not None:
            fold(self, job, event)
        for follower, fault in self._jobs.followers_of_ended() if self._jobs.just_ended else ():
            self._cache.touch(follower.spec.id)
            if fault is not None:
                self._give_up(follower, event.at, fault)
        if self._planning.is_due:
            self._request_plan(event.at)
        self._targets.reconcile(event.at)
        has_pools = bool(self._pools)
        if has_pools:
            self._reconcile_machines(event.at)
        commands = self._outbox.take()
        for message in (event, *commands) if has_pools else ():
            self._bill.add(message)
        return commands

    def snapshot(self, at: float) -> Snapshot:
        """Return the snapshot for a policy, with the revision of the last `RequestPlan`."""
        nodes, holding, waiting, free = self._cache.parts()
        return _snapshot(
            at=at,
            revision=self._planning.revision,
            nodes=nodes,
            holding=holding,
            waiting=waiting,
            free=free,
            seed=self._seed,
            carry=self._carry,
            pools=self._pools.views(),
            spent_usd=self._bill.claims_usd(at) if self._bill else {},
        )

    def job(self, job: JobId) -> JobView:
        """Return the job as a policy would see it, also after its end; raise `KeyError` if it is not remembered."""
        record = self._jobs[job]
        return record.view({} if record.ended else self._ledger.granted(job), self._planning.promised.get(job))

    def demand(self, job: JobId) -> Demand | None:
        """Return the controller's last demand; None before the first. Raise `KeyError` as `job` does."""
        return self._jobs[job].demand

    def promised_until_at(self, job: JobId) -> float | None:
        """Return the instant by which the job is promised to be done; None: its present deadline is not promised."""
        until_at, record = self._planning.promised.get(job), self._jobs.get(job)
        return until_at if record is not None and until_at == record.deadline_at else None

    def machines(self) -> dict[str, HeldMachines]:
        """Return the machines of each pool that have not ended."""
        return self._pools.held()

    def lacks(self) -> tuple[Lack, ...]:
        """Return the machines of pools that are not there, and why; safe to call from any thread."""
        return self._pools.lacks()

    def unbought(self) -> dict[JobId, Reason]:
        """Return why the last plan buys no machine for jobs that wait for money; safe to call from any thread."""
        reasons = {job.spec.id: job.target_reason for job in list(self._active.values()) if not job.target}
        return {job: reason for job, reason in reasons.items() if reason and reason.code in (TOO_DEAR, SPENT)}

    def promises(self) -> dict[JobId, float]:
        """Return `promised_until_at` of each job that has a promise; safe to call from any thread."""
        promises = {job: self.promised_until_at(job) for job in list(self._planning.promised)}
        return {job: until_at for job, until_at in promises.items() if until_at is not None}

    @property
    def bill(self) -> Bill:
        """Bill of the machines of pools, to be read only."""
        return self._bill

    @property
    def n_active(self) -> int:
        """Number of jobs that have not ended."""
        return len(self._active)

    def forecast(self, job: JobId) -> tuple[Forecast | None, float | None]:
        """Return the job's forecast, and the steps of the whole job, declared or expected until its goal; None: unknown."""
        record = self._jobs[job]
        return None if record.demand is None else record.demand.forecast, record.steps_total()[0]

    def validate(self) -> None:
        """Raise `InvariantBroken` if the state contradicts itself."""
        self._ledger.validate()
        self._jobs.validate(self._ledger.granted)

    #: The parts of the state that are dumped as they are.
    _KEPT = ("_ledger", "_planned", "_nodes", "_pools", "_bill", "_planning", "_carry")

    def dump(self) -> object:
        """Return the state, with the states of plug-ins, but without these; serialise it before the next event changes it."""
        kept = {name: getattr(self, name) for name in self._KEPT}
        return kept, self._jobs.without_plug_ins(), self._cache.dump(), self._targets.unsettled()

    def load(self, state: Any) -> None:
        """Continue from a state of `dump`; the scheduler must be new, and made with the same arguments.

        Timers are no part of the state: `SteeringResumed` sets them again. A job whose plug-in is not there any more
        goes on without it, and `SteeringResumed` warns of that.
        """
        kept, self._jobs, shown, unsettled = state
        for name in self._KEPT:
            setattr(self, name, kept[name])
        self._derive()
        jobs = self._active.values()
        self._untold = [(job, failure) for job in jobs for failure in self._plug_ins.restore(job)]
        for name in unsettled:
            self._targets.mark_dirty(self._active[name])
        self._cache.set_nodes(self._nodes.changed(self._ledger.nodes, self._pools.ends_at))
        self._cache.load(self._active, shown)

    def _shown(self, job: JobId) -> JobView | None:
        """Return an unfinished job as policies see it; None if they are not to see it."""
        record = self._active[job]
        if record.is_withheld:
            return None
        return record.view(self._ledger.granted(job), self._planning.promised.get(job), self._memory.of(record))

    # Submission and end.

    def _fold_job_submitted(self, event: events.JobSubmitted) -> None:
        spec = event.spec
        if (known := self._jobs.get(spec.id)) is not None:
            self._outbox.warn(event.at, known, duplicate(spec.id))
            return
        job = ScheduledJob.of(event, self._planning.revision, self._n_retries)
        self._jobs.add(job)
        failures: list[Failure] = []
        try:
            failures = self._plug_ins.equip(job)
            potential = self._pools.potential(self._nodes.capacity)
            fault = planning.fault_of_size(spec, potential) or self._jobs.queue_behind(job)
        except InvalidSpec as error:
            fault = Reason("invalid", str(error))
        if fault is not None:
            self._jobs.end(job, self._rejection(job, event.at, fault))
            return
        self._ledger.open(spec.id)
        self._cache.admit(spec.id)
        self._watch.expect_deadline(job, event.at)
        self._planning.is_due = True
        for failure in failures:
            self._quarantine.disable_plug_in(job, event.at, failure)

    def _give_up(self, job: ScheduledJob, at: float, reason: Reason) -> None:
        """End the job because of `reason`."""
        self._end(job, self._rejection(job, at, reason))

    def _rejection(self, job: ScheduledJob, at: float, reason: Reason) -> RejectJob:
        self._outbox.put(rejection := RejectJob(at=at, job=job.spec.id, reason=reason), job)
        return rejection

    def _end(self, job: ScheduledJob, end: events.JobFinished | events.JobFailed | RejectJob) -> None:
        name = job.spec.id
        job.accrue(end.at)
        self._ledger.close(name)
        self._targets.set_target(job, {})
        self._cache.drop(name)
        self._targets.drop(name, end.at)
        self._planning.promised.pop(name, None)
        self._jobs.end(job, end)
        self._planning.is_due = True

    def _fold_job_finished(self, job: ScheduledJob, event: events.JobFinished) -> None:
        self._end(job, event)

    def _fold_job_failed(self, job: ScheduledJob, event: events.JobFailed) -> None:
        if event.request is not None and event.request < job.n_requests:
            return
        if not event.retryable:
            self._end(job, event)
            return
        if event.has_saved:
            job.note_checkpoint()
        if event.is_lost or event.is_stopped:
            self._lose_process(job, event.at, event.at)
        elif (fault := fault_of_retry(job, event)) is not None:
            self._give_up(job, event.at, fault)
        else:
            self._queue_again(job, event.at)
            if event.out_of_memory:
                self._respecify(job, job.spec.with_more_memory() or job.spec)
            self._wait(job, event.at, self._periods.retry_after_s(job.n_failures))
            self._outbox.warn(event.at, job, retry_reason(job, event))

    def _wait(self, job: ScheduledJob, at: float, wait_s: float) -> None:
        """Make no request for the job for `wait_s` seconds."""
        job.retry_at = at + wait_s
        self._outbox.set_timer(at, "retry", job, wait_s)

    def _lose_process(self, job: ScheduledJob, lost_at: float, at: float) -> None:
        """Handle a process that is gone through no fault of its program: the job waits for another one, or stops."""
        cause = None if job.restarts else job.stop_cause
        self._queue_again(job, lost_at)
        if cause is not None:
            self._give_up(job, at, Reason(stop_code(cause), cause))

    def _queue_again(self, job: ScheduledJob, at: float) -> None:
        job.accrue(at)
        self._ledger.close(job.spec.id)
        self._ledger.open(job.spec.id)
        self._hold(job, at)
        job.forget_process()
        self._targets.mark_dirty(job)
        self._planning.is_due = True

    # Answers to commands.

    def _fold_job_started(self, job: ScheduledJob, event: events.JobStarted) -> None:
        if not self._settle(job, event):
            return
        job.can_pace, job.can_cap = event.can_pace, event.can_cap
        if job.is_relaunched:  # it may have been running already, with what an earlier launch gave it
            job.is_applied, job.is_relaunched = False, False
        if job.started_at is None:
            job.started_at = event.at

    def _fold_grant_failed(self, job: ScheduledJob, event: events.GrantFailed) -> None:
        was_starting = job.status == "starting"
        if not self._settle(job, event):
            return
        was_launch = was_starting and job.status == "queued"
        wait_s, reason = after_refusal(job, event, self._periods, was_launch=was_launch)
        if wait_s is not None:
            if reason is not None:
                self._outbox.warn(event.at, job, reason)
            self._wait(job, event.at, wait_s)
        elif reason is not None:
            self._give_up(job, event.at, reason)

    def _settle(self, job: ScheduledJob, event: events.GrantAnswer) -> bool:
        """Book an answer; return whether it is not outdated."""
        if event.request < job.n_requests:
            return False
        job.accrue(event.at)
        self._ledger.settle(event.job, event.request, event.granted)
        is_applied = not isinstance(event, events.GrantFailed)
        if is_applied:
            own_s = job.spec.startup_s if isinstance(event, events.JobStarted) else 0.0
            self._pools.use(event.at, event.granted, own_s)
            job.n_shortages = 0
        granted = self._hold(job, event.at)
        job.is_applied = is_applied
        self._targets.mark_dirty(job)
        before, job.status = job.status, after_answer(job.status, event, granted)
        if job.status == "running" and before != "running":
            self._watch.look_in(job, event.at, self._periods.first_tick_s)
        return True

    _fold_grant_applied = _settle

    def _hold(self, job: ScheduledJob, at: float) -> Allocation:
        """Note the job's grant by the ledger from now on, and return it."""
        had_place, granted = job.has_place, self._ledger.granted(job.spec.id)
        if job.leaves_at < inf and not any(node in self._pools.ends_at for node in granted):
            job.leaves_at = inf
        job.hold(granted, self._nodes.devices, at)
        self._targets.show(job, had_place=had_place)
        return granted

    # Reports.

    def _fold_progress_reported(self, job: ScheduledJob, event: events.ProgressReported) -> None:
        self._quarantine.learn_speed(job, event)
        if (node := self._nodes.learn(job, event, self._ledger.granted(event.job))) is not None:
            self._show_nodes()  # it is slow, or no longer: plans know it from now on
            self._warn_on(node, event.at, partial(self._nodes.news, node))
        self._planning.is_due |= job.report(event)
        self._cache.touch(event.job)

    def _warn_on(self, node: NodeId, at: float, reason_for: Callable[[ScheduledJob], Reason | None]) -> None:
        """Warn the users of jobs on a node, if `reason_for` gives a reason."""
        for name, job in self._active.items():
            if node in self._ledger.granted(name) and (reason := reason_for(job)) is not None:
                self._outbox.warn(at, job, reason, node)

    def _fold_phase_reported(self, job: ScheduledJob, event: events.PhaseReported) -> None:
        job.report_phases(event.phases)

    def _fold_loss_reported(self, job: ScheduledJob, event: events.LossReported) -> None:
        self._quarantine.learn_losses(job, event)

    def _fold_job_warned(self, job: ScheduledJob, event: events.JobWarned) -> None:
        if event.reason.code not in job.told:
            job.told |= {event.reason.code}
            self._outbox.warn(event.at, job, event.reason)

    # Nodes, and what the user changes.

    def _fold_node_joined(self, event: events.NodeJoined) -> None:
        self._ledger.join(event.node, event.capacity)
        self._nodes.join(event)
        self._pools.join(event.at, event.node)
        self._capacity_changed()

    def _fold_node_warned(self, event: events.NodeWarned) -> None:
        self._warn_on(event.node, event.at, lambda _: event.reason)

    def _unplan(self, node: NodeId) -> None:
        """Plan nothing on a node any more."""
        for name in self._planned.forget(node):
            job = self._active[name]
            job.target = {other: amount for other, amount in job.target.items() if other != node}
            if job.target and planning.fault_of_grant(job, job.target):
                self._targets.set_target(job, {})  # what is left is no allocation: the job waits for another one
            self._cache.touch(name)
            self._targets.mark_dirty(job)

    def _fold_node_noticed(self, event: events.NodeNoticed) -> None:
        node, is_new = event.node, event.node not in self._pools.ends_at
        if node not in self._ledger.nodes:
            return
        if event.ends_at is None:
            if not is_new:
                self._pools.withdraw_notice(node)
                self._stay_on(node)
                self._capacity_changed()
            return
        self._pools.notice(node, event.ends_at)
        self._await_machines(event.at)
        if is_new:
            self._unplan(node)
        left_s = max(0.0, event.ends_at - event.at)
        text = f"its node '{node}' is taken away in {span(left_s)}"
        for job in [job for job in self._active.values() if node in job.on]:
            if is_new:  # else only its end is another one
                reason = Reason("node-noticed", f"{text}: the job leaves it before", {"left_s": left_s})
                self._outbox.warn(event.at, job, reason, node)
            # One that has a target has workers on other nodes, which go on.
            has_to_leave = not job.target and job.stop_cause is None if is_new else job.may_work_on
            if has_to_leave:
                self._watch.expect_to_leave(job, event.at, event.ends_at)
                self._leave(job, event.at)
        if is_new:
            self._capacity_changed()

    def _await_machines(self, at: float) -> None:
        """Look again when the next machine with notice should be gone: one that is not is paid for."""
        # So much later, because the sum of two times may be rounded down.
        self._outbox.set_timer(at, "machines", None, self._pools.next_over_at(at) - at + 1e-3)

    def _stay_on(self, node: NodeId) -> None:
        """Let jobs have what they hold on a node that stays after all, unless a plan has given them something else."""
        for job in self._active.values():
            may_stay = node in job.on and job.on.isdisjoint(self._pools.ends_at)
            if may_stay and job.may_work_on and job.stop_cause is None:
                job.leaves_at = inf
                self._targets.set_target(job, self._ledger.granted(job.spec.id))

    def _leave(self, job: ScheduledJob, at: float) -> None:
        """Have the job save and be started elsewhere, if its nodes are taken away and it may not work on there."""
        if job.may_work_on and at < job.leaves_at:
            return
        leaving = [node for node in self._pools.ends_at if node in job.on]
        if job.target or not leaving:  # a plan moves it, or has done so, or the node stays
            job.leaves_at = inf
        elif job.stop_cause is None:
            left_s = max(0.0, min(self._pools.ends_at[node] for node in leaving) - at)
            job.ask_to_move(f"its node '{leaving[0]}' is taken away in {span(left_s)}")
        self._targets.mark_dirty(job)

    def _vacate(self, job: ScheduledJob) -> None:
        """Have a job that is to have nothing save and end, if it is on a machine of a pool: that is given back."""
        if not job.target and job.stop_cause is None and self._pools.owns(job.on):
            job.ask_to_move(job.reason().text)

    def _fold_pool_offered(self, event: events.PoolOffered) -> None:
        self._pools.offer(event.at, event.pool, event.price_usd_h, event.obtainable)
        self._planning.is_due = True

    def _fold_machines_asked(self, event: events.MachinesAsked) -> None:
        self._pools.start(event.at, event.pool, event.nodes)

    def _fold_machines_refused(self, event: events.MachinesRefused) -> None:
        self._pools.refuse(event.at, event.pool, event.n_machines, event.cause, event.again_at)
        self._planning.is_due = True

    def _reconcile_machines(self, at: float) -> None:
        """Ask for the machines that are wanted and not there, and release the others once they are unused."""

        def is_used(node: NodeId) -> bool:
            return bool(self._ledger.held_on(node) or self._planned.total_on(node))

        if not self._active:
            self._pools.want_least()
        for pool, n_more, idle in self._pools.changes(at, is_used):
            if n_more:
                self._outbox.put(AskMachines(at=at, pool=pool, n_machines=n_more), None)
            else:
                self._outbox.put(ReleaseMachines(at=at, pool=pool, nodes=idle), None)

    def _fold_node_lost(self, event: events.NodeLost) -> None:
        for job in self._active.values():  # what lay there counts up to now
            job.accrue(event.at)
        self._unplan(event.node)
        self._pools.lose(event.node)
        for name in self._ledger.lose(event.node):
            job = self._active[name]
            self._hold(job, event.at)
            job.is_applied = False
            self._targets.mark_dirty(job)
            if not self._ledger.holds(name) and job.status != "queued":
                self._lose_process(job, event.at, event.at)
        self._capacity_changed()

    def _capacity_changed(self) -> None:
        self._show_nodes()
        self._planning.stale_revision = self._planning.revision

    def _show_nodes(self) -> None:
        self._cache.set_nodes(self._nodes.changed(self._ledger.nodes, self._pools.ends_at))
        self._planning.is_due = True

    def _staying(self) -> Mapping[NodeId, Resources]:
        """Return the capacity of each node that has had no notice."""
        if not self._pools.ends_at:
            return self._ledger.nodes
        return {node: amount for node, amount in self._ledger.nodes.items() if node not in self._pools.ends_at}

    def _fold_spec_changed(self, event: events.SpecChanged) -> None:
        if (job := self._active.get(event.spec.id)) is None:
            return
        self._respecify(job, event.spec)
        self._watch.expect_deadline(job, event.at)
        if job.status == "running" and job.spec.controller is not None:
            self._watch.look_in(job, event.at, 0.0)  # asks for the plan: only then is the demand that of the new spec
        else:
            self._planning.is_due = True

    def _respecify(self, job: ScheduledJob, spec: JobSpec) -> None:
        if job.respecify(spec):
            self._planning.stale_revision = self._planning.revision
            if self._targets.refit(job, self._ledger.nodes):
                self._targets.mark_dirty(job)
        self._cache.touch(spec.id)

    def _fold_stop_requested(self, job: ScheduledJob, event: events.StopRequested) -> None:
        job.ask_to_stop(event)
        self._planning.promised.pop(event.job, None)
        if job.status == "queued":
            self._give_up(job, event.at, Reason(stop_code(event.cause), event.cause))
        else:
            self._targets.mark_dirty(job)

    def _fold_pause_requested(self, job: ScheduledJob, event: events.PauseRequested) -> None:
        if job.stop_cause is not None:
            return
        job.pause = event
        self._targets.set_target(job, {})
        self._vacate(job)
        self._cache.hide(event.job)
        self._planning.promised.pop(event.job, None)
        self._targets.mark_dirty(job)
        self._planning.is_due = True

    def _fold_resume_requested(self, job: ScheduledJob, event: events.ResumeRequested) -> None:
        if job.pause is not None:
            job.pause = None
            # Whatever was seen of it meanwhile, it comes after those that hold something now.
            self._cache.begin(event.job)
            self._planning.is_due = True

    def _fold_steering_resumed(self, event: events.SteeringResumed) -> None:
        """Ask for every target again at once: commands in flight at the hand-over are lost, and so are timers."""
        for job in tuple(self._active.values()):
            granted = event.granted.get(job.spec.id)
            if granted is not None:
                job.accrue(event.lost_at)
                self._ledger.settle(job.spec.id, job.n_requests, granted)
                job.status = found_again(job.status, self._hold(job, event.lost_at))
                if job.started_at is None:  # its start is not among the messages
                    job.started_at = event.lost_at
            elif job.status != "queued":
                self._lose_process(job, event.lost_at, event.at)
        for job in self._active.values():
            self._ask_anew(job, event.at)
        self._pools.ask_anew()
        self._await_machines(event.at)
        self._planning.reset()
        for job, failure in [untold for untold in self._untold if not untold[0].ended]:
            self._quarantine.disable_plug_in(job, event.at, failure)
        self._untold = []

    def _ask_anew(self, job: ScheduledJob, at: float) -> None:
        """Repeat the job's last request. A job with a process is launched again, and the answer says how it stands."""
        job.is_applied, job.asked_at, job.retry_at, job.mark = False, -inf, at, None
        self._watch.expect_deadline(job, at)
        self._watch.set_leave_timer(job, at)
        self._targets.mark_dirty(job)
        if job.status == "stopping" or not job.target:
            self._watch.look_in(job, at, 0.0)
        elif job.status != "queued":
            job.is_relaunched = True

    # Plans.

    def _fold_policy_changed(self, event: events.PolicyChanged) -> None:
        self._carry = None
        voided = Reason(
            "promise-lost", f"its promised deadline is promised no more: the policy is '{event.policy}' from now on"
        )
        for name in self._planning.exchange_policy(keeps_promises=event.policy == event.before):
            self._cache.touch(name)
            if name in self._active:
                self._outbox.warn(event.at, self._active[name], voided)
        for job in self._active.values():
            job.target_reason = job.target_reason if job.target else None
        self._outbox.put(UsePolicy(at=event.at, policy=event.policy, parameters=event.parameters), None)

    def _fold_plan_proposed(self, event: events.PlanProposed) -> None:
        is_new = self._planning.answer(event.revision)
        if event.plan is None and event.revision == self._planning.revision:
            self._refuse(event.cause, event.at)
        if event.plan is None or not is_new:
            return
        changes, fault = planning.checked(event.plan, event.revision, self._active, self._staying(), self._planned)
        fault = fault or self._pools.fault_of(event.plan)
        if not fault:
            if self._planning.falls_back(event.cause):
                self._outbox.warn(event.at, None, Reason("plan-fallback", event.cause))
            self._use(event.plan, changes, event.at)
            waiting = planning.waiting_since(event.revision, self._active) if self._nodes.jobs_at_once else {}
            if waiting:
                planning.tell_waiting(self.snapshot(event.at), waiting, self._outbox)
        elif event.revision > self._planning.stale_revision:  # otherwise another one is asked for
            self._refuse(fault, event.at)

    def _use(self, plan: Plan, changes: Changes, at: float) -> None:
        news = [(job, grant) for job, grant in changes if grant != job.target]
        self._carry = plan.carry
        self._pools.want(plan.machines)
        takes = planning.takes_any(news)
        for name in self._planning.promise(plan.promises, self._may_have):
            if name in self._active:
                self._cache.touch(name)
                takes |= name not in self._planning.promised
        explained = [job for name in plan.reasons if (job := self._active.get(name)) is not None]
        for job in [*(job for job, _ in changes), *explained]:
            job.target_reason = plan.reasons.get(job.spec.id)
        for job, grant in news:
            self._targets.set_target(job, grant)
            self._vacate(job)
            self._pools.plan(at, grant)
            job.is_hired = self._pools.is_hired(grant)
            self._targets.mark_dirty(job)
        for name, reason in plan.declines.items():  # a job that has run is not the policy's to end
            declined = self._active.get(name)
            is_new = declined is not None and declined.status == "queued" and declined.started_at is None
            if declined is not None and is_new and not declined.is_withheld:
                self._give_up(declined, at, reason)
        for name, reason in plan.warnings.items():
            if name in self._active:
                self._outbox.warn(at, self._active[name], reason)
        leaves_room = takes and planning.has_room(self._active.values(), self._staying(), self._planned)
        gets_on = not leaves_room or any(grant and job.status == "queued" for job, grant in news)
        self._planning.use(plan.revision, is_news=bool(news or plan.declines) and gets_on)
        if leaves_room or plan.ask_again_at is not None:
            self._outbox.set_timer(at, "plan", None, self._planning.ask_again_s(at, plan.ask_again_at, leaves_room))

    def _may_have(self, name: JobId) -> bool:
        """Whether a plan may give the job something."""
        return name in self._active and not self._active[name].is_withheld

    def _refuse(self, why: str, at: float) -> None:
        if self._strict:
            raise InvariantBroken(f"the plan is not valid: {why}")
        text = f"the policy's plan was refused and the last one stays in force: {why}"
        self._outbox.warn(at, None, Reason("plan-refused", text))
        self._planning.is_due, self._planning.retry_at = True, at + self._periods.retry_s
        self._outbox.set_timer(at, "plan", None, self._periods.retry_s)

    # Timers: a tick turns a reading into a demand.

    def _fold_timer_fired(self, event: events.TimerFired) -> None:
        job = self._active.get(event.timer.job)
        match event.timer.kind:
            case "plan":
                self._planning.clock_asks()
            case "demands":
                self._planning.is_due |= self._planning.has_new_demands
            case "plan-answer" if text := self._planning.give_up(event.at, self._periods.plan_s):
                self._outbox.warn(event.at, None, Reason("plan-lost", text))
            case "machines":
                self._await_machines(event.at)
            case "tick" if job is not None and job.status in ("running", "stopping"):
                self._tick(job, event.at)
            case "leave" if job is not None:
                self._leave(job, event.at)
            case "deadline" if job is not None and (cause := self._watch.deadline_passed(job, event.at)):
                self._fold_stop_requested(job, events.StopRequested(at=event.at, job=job.spec.id, cause=cause))

    _FOLDS: ClassVar[Mapping[type, Callable[..., object]]] = folds_in(vars())

    def _tick(self, job: ScheduledJob, at: float) -> None:
        job.accrue(at)
        self._watch.look(job, at)
        demand = self._quarantine.next_demand(job, at, self._nodes.sizes)
        gather_s = 0.0 if job.is_respecified else self._periods.gather_s  # its user waits
        if job.take(demand):
            self._outbox.set_timer(at, "demands", None, self._planning.demands_change(at, gather_s))
            self._cache.touch(job.spec.id)
        self._watch.judge(job, at, demand.forecast)
        self._targets.mark_dirty(job)
        self._watch.look_in(job, at, demand.next_tick_s)

    def _request_plan(self, at: float) -> None:
        # Without nodes nothing can be planned, but promises are in danger.
        if self._planning.may_request(at) and (self._ledger.nodes or self._pools or self._planning.promised):
            self._planning.is_due = False
            if self._active:
                self._outbox.put(RequestPlan(at=at, revision=self._planning.request(at)), None)
                self._outbox.set_timer(at, "plan-answer", None, self._periods.plan_s)
