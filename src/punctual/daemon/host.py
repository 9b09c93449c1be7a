"""A host: jobs on one scheduler, one engine and one journal, as processes of this machine or of a cluster's nodes."""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from punctual.core.cluster import Snapshot
from punctual.core.codec import encode
from punctual.core.errors import InvalidSpec, check_not_negative
from punctual.core.events import (
    GrantApplied,
    JobFailed,
    JobSubmitted,
    Message,
    NodeJoined,
    NodeNoticed,
    PauseRequested,
    PolicyChanged,
    ResumeRequested,
    SpecChanged,
    StopRequested,
)
from punctual.core.ids import JobId, NodeId, Timer
from punctual.core.job import JobSpec, JobView
from punctual.core.lifecycle import ENDS, ended_by
from punctual.core.pools import Lack
from punctual.core.quoting import Quote, QuoteRequest
from punctual.core.resources import TOLERANCE, Resources, largest, total
from punctual.core.scheduler import Scheduler
from punctual.core.status import JobStatus
from punctual.core.units import span
from punctual.daemon.capacity import capacity_here
from punctual.daemon.contained import Contained
from punctual.daemon.control_socket import ControlFailed
from punctual.daemon.engine import Engine, Query
from punctual.daemon.host_executor import HERE, ExecutorSetup
from punctual.daemon.host_state import HostState, facts_of_end
from punctual.daemon.log_snapshot import n_bytes_before, skipping
from punctual.daemon.planner import QuotingPlanner
from punctual.daemon.quotes import check_amounts, new_view
from punctual.daemon.run_folder import RunFolder, interrupted, new_job
from punctual.daemon.runs import has_finished, open_jobs
from punctual.daemon.status_reader import StatusReader, logged
from punctual.executors.local.devices import visible_devices
from punctual.executors.local.output import LogTail, ProcessSettings
from punctual.history.judge import Wait, expected_waits, lack_text
from punctual.journal.boot import boot_id, suspended_s
from punctual.journal.errors import StoreUnreachable
from punctual.journal.maintenance import JournalMaintenance
from punctual.request.job_order import in_order
from punctual.request.spec_change import SpecChange, changed_spec
from punctual.request.submission import Submission, check_budget, check_checkpoint_dir, check_policy, submitted

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

#: Settings of the process of a job that no command in a terminal waits for.
_PIPED = ProcessSettings()

#: Why a job ends that its user stopped when it had no host, or one that was stopped itself.
STOPPED_UNSTEERED = "by the user, when nobody steered it"

#: Seconds that the steering thread may take to reach a question, and to answer a quote: a policy may have to be
#: loaded first.
_ASK_S_MAX, _QUOTE_S_MAX = 5.0, 20.0
#: Seconds that the last messages of jobs that were ended may take.
_END_S_MAX = 5.0
#: Seconds that a job of another process may take to be in the journal.
_TELL_S_MAX = 10.0
#: Seconds that a change may take to be in the journal: less than a client waits for the answer.
_SETTLE_S_MAX = 4.0
#: A host that has not come to its next event for so many seconds steers no job any more, whatever its other threads do.
HUNG_S = 20.0
#: Shortest suspension that counts, in seconds: two clocks are read one after the other.
LEAST_S = 1.0


def suspension_record(accounted_s: float) -> dict[str, Any]:
    """Return the run's record of the seconds of suspension by which its deadlines were shortened already."""
    return {"suspended": {"boot": boot_id(), "accounted_s": accounted_s}}


def accounted_s(facts: Mapping[str, Any]) -> float:
    """Seconds of suspension that the record accounts for; if it has none since the machine's start, all of them."""
    told = facts.get("suspended", {})
    return float(told["accounted_s"]) if told.get("boot") == boot_id() else suspended_s()


class Host(StatusReader):
    """Runs any number of jobs, as processes of this machine or of the nodes of a cluster.

    All methods but `run` and those that say so may be called from any thread.

    * `run_folder`: folder of the run.
    * `executor`: executor for queries about processes: workers, devices, faults.
    * `post`: passes an event to the engine; allowed in a signal handler.
    * `take_in`: see `Engine.take_in`.
    """

    def __init__(self, state: HostState, site: ExecutorSetup, planner: QuotingPlanner) -> None:
        super().__init__(state.board)
        self.run_folder, self._journal, self._time = state.run, state.journal, state.time
        self._scheduler, self._planner = state.scheduler, planner
        self._options, self._pools = site.options, site.pooled
        self.executor = Contained(site.executor, state.time.shift_s)
        self._upkeep = JournalMaintenance(state.journal, state.dumped)
        self._engine = Engine(
            state.scheduler,
            self.executor,
            planner,
            state.time,
            journal=state.journal,
            listeners=[logged(self._listen)],
            afterwards=logged(self._upkeep),
        )
        self.post, self.take_in = state.time.post, self._engine.take_in
        self._lock = Lock()
        #: Jobs that were submitted and that the engine has not come to yet.
        self._coming: dict[JobId, JobSubmitted] = {}
        #: Latest declarations of jobs that the engine has not processed yet.
        self._changed: dict[JobId, JobSpec] = {}
        self._inputs, self._cpu_sets = site.inputs, site.cpu_sets
        self._own_capacity, self._scale = site.capacity, site.scale
        #: News of a cluster's nodes for the user.
        self.node_news = site.news
        self._time.pulse(self._beat)
        self._beaten_at = time.monotonic()
        self._suspended_s = accounted_s(self.run_folder.facts())
        #: Messages that the records of the jobs lack: not in the journal yet, or its file could not be written.
        self._unrecorded: deque[Message] = deque()
        self._is_unwritable = False
        self.subscribe(self._record, *ENDS, PauseRequested, ResumeRequested, PolicyChanged)
        self.subscribe(self._keep_paused, GrantApplied)
        self.subscribe(self._keep_stopped, JobFailed)
        #: Whether the jobs were left to another process.
        self.is_handed_over = False
        self._is_closing = False
        #: Whether a client waits for the answer to a request.
        self.is_answering: Callable[[], bool] = lambda: False
        #: CPU seconds of this process before each job came.
        self._cpu_before_s: dict[JobId, float] = {}
        #: Returns the address of the page, with a token; set by the process that serves it.
        self.open_page: Callable[[str | None], str] = _no_page
        #: Whether another process has asked for this one's place.
        self.is_asked_to_leave = False
        #: Whether the process that has started this one has no job for it.
        self.is_unneeded = False
        self._actuator = site.executor.actuator
        self.run_folder.record_facts(
            actuator=self._actuator,
            actuator_reason=site.executor.actuator_reason,
            gpus=list(visible_devices()),
            **suspension_record(self._suspended_s),
        )

    def now(self) -> float:
        """Present instant on the clock of events."""
        return self._time.now()

    # Jobs that come.

    @property
    def capacity(self) -> Resources:
        """Most that one job can have; raises `InvalidSpec` until a node has joined."""
        if self._own_capacity is not None:
            return self._own_capacity
        sizes = self._sizes()
        if not sizes:
            raise InvalidSpec(
                "a job needs a node", "a cluster none of whose nodes has answered yet", "the service", "Try again soon."
            )
        return largest(sizes)

    @property
    def capacity_together(self) -> Resources | None:
        """Most that the workers of one job can have on all nodes; None: this machine is the only node."""
        if self._own_capacity is not None:
            return None
        return total(self._sizes())

    def _sizes(self) -> list[Resources]:
        """Capacities of the nodes, including cores that other applications hold at present, and of machines that pools may add."""
        news = self.node_news()
        taken_cores = {node: each.taken_cores for node, each in news.items()}
        machines = [pool.capacity for pool in self._pools for _ in range(pool.most)]
        return [node.capacity + Resources(taken_cores.get(node.id, 0.0)) for node in self._board.nodes()] + machines

    def submit(self, submission: Submission) -> JobId:
        """Submit a job.

        Raises `InvalidSpec`: another job of this user, here or of another host, has its name and has not ended; or
        nothing can be written where runs live.
        """
        return self.submit_all([submission])[0]

    def submit_all(self, submissions: Sequence[Submission], settings: ProcessSettings | None = None) -> list[JobId]:
        """Submit jobs, all or, if it raises, none of them; raises as `submit` does.

        `settings`: settings of each job's process; None: like this process's own.
        """
        _ = self.capacity  # without any node a job would be turned away as too large
        names = {each.spec.id for each in submissions}
        ordered = in_order([self._without_finished(submission, names) for submission in submissions], self._known)
        if self._own_capacity is not None:
            for submission in ordered:
                check_checkpoint_dir(submission)
        _check_names_are_free([submission.spec.id for submission in ordered], self.run_folder)
        events = [self._event_of(submission) for submission in ordered]
        with ExitStack() as undoing:
            for event in events:
                _check_hardware(event.spec)
                check_budget(event.spec, self._pools, self.policy)
                undoing.callback(self._release, self._reserve(event))
            self._store(ordered, events, settings)
            undoing.pop_all()
        self._add_cpus([event.spec.id for event in events], settings)
        for event in events:
            self.post(event)
        return [submission.spec.id for submission in submissions]

    def submit_for_client(
        self, submissions: Sequence[Submission], settings: ProcessSettings = _PIPED, stdin_fd: int | None = None
    ) -> None:
        """Submit jobs for another process, which may repeat the request; returns when the journal has them.

        `stdin_fd`: standard input of the first one, which is duplicated; None: it has none.

        * Raises `InvalidSpec`: as for `submit`.
        * Raises `ControlFailed`: the host is leaving or too busy.
        """
        if not self.takes_changes:
            raise ControlFailed("the host is just leaving, or another process has taken its place")
        cpu_s = time.process_time()
        self._cpu_before_s.update((submission.spec.id, cpu_s) for submission in submissions)
        job = submissions[0].spec.id
        if stdin_fd is not None and not self.knows(job):
            self._inputs.keep(job, stdin_fd)
        try:
            if new := [submission for submission in submissions if not self._has_same(submission)]:
                self.submit_all(new, settings)
        except BaseException:
            self._inputs.forget(job)
            raise
        try:
            self.ask(lambda _: None, _TELL_S_MAX)
        except TimeoutError as error:
            raise ControlFailed("the host is too busy") from error

    def resubmit(self, event: JobSubmitted) -> None:
        """Submit a job again that an earlier host had accepted."""
        self._coming[event.spec.id] = event
        self.post(event)

    def _without_finished(self, submission: Submission, names: Collection[JobId]) -> Submission:
        """Drop from `after` the jobs of earlier hosts that have finished and that this host does not know.

        `names`: those of the request.
        """
        after = tuple(
            name for name in submission.spec.after if name in names or self.knows(name) or not has_finished(name)
        )
        return (
            submission
            if after == submission.spec.after
            else replace(submission, spec=replace(submission.spec, after=after))
        )

    def _add_cpus(self, jobs: Iterable[JobId], settings: ProcessSettings | None) -> None:
        """Add the CPUs of new jobs; the capacity grows by those that no job had before."""
        if self._cpu_sets is None:
            return
        cpus = () if settings is None else settings.cpus
        n_before = len(self._cpu_sets.all)
        for job in jobs:
            self._cpu_sets.add(job, cpus)
        if len(self._cpu_sets.all) > n_before:
            self._own_capacity = capacity = capacity_here(len(self._cpu_sets.all))
            jobs_at_once = self._options.jobs_at_once_on(capacity)
            self.post(NodeJoined(at=self.now(), node=HERE, capacity=capacity, jobs_at_once=jobs_at_once))

    def _store(
        self, submissions: Sequence[Submission], events: Sequence[JobSubmitted], settings: ProcessSettings | None
    ) -> None:
        """Store what jobs need to start as safely as messages, for all or, if it raises, for none of them.

        Raises `InvalidSpec` if there is no room for it.
        """
        self.run_folder.record_submitted(
            [
                new_job(
                    event.spec.id,
                    encode(event),
                    each.inherited,
                    each.argv,
                    settings,
                    name=each.name,
                    request_key=each.request_key,
                    request_digest=each.request_digest,
                )
                for each, event in zip(submissions, events, strict=True)
            ]
        )

    def _has_same(self, submission: Submission) -> bool:
        """Whether this very submission was made before."""
        job, told = submission.spec.id, self._event_of(submission)
        if (coming := self._coming.get(job)) is not None:
            return (coming.at, coming.program) == (told.at, told.program)
        known = self._known(job)
        return known is not None and (known.submitted_at, known.program) == (told.at, told.program)

    def _event_of(self, submission: Submission) -> JobSubmitted:
        event = submitted(submission)
        return replace(event, at=event.at - self._time.shift_s)

    def _reserve(self, event: JobSubmitted) -> JobId:
        """Reserve the name, so that no other job gets it."""
        job = event.spec.id
        with self._lock:
            if job in self._coming or self.knows(job):
                raise InvalidSpec(
                    "`name` must be new",
                    f"'{job}', which another job has",
                    f"job '{job}'",
                    "Choose another name (`--name`).",
                )
            self._coming[job] = event
        return job

    def _release(self, job: JobId) -> None:
        """Release the name of a job that will not be submitted after all."""
        with self._lock:
            self._coming.pop(job, None)

    def _known(self, job: JobId) -> JobStatus | None:
        """Return the status of a job whose submission has been processed; None for any other."""
        return self.status(job) if self.knows(job) else None

    # Jobs that there are.

    def open_jobs(self) -> tuple[JobId, ...]:
        """Return the jobs that have not ended, those included that the engine has not processed yet."""
        known = [status.id for status in self.jobs() if not status.ended]
        return tuple(dict.fromkeys((*known, *list(self._coming))))

    def all_ended(self) -> bool:
        """Whether all submitted jobs have ended."""
        return not self._coming and self._board.all_ended

    def stop(self, job: JobId, cause: str, *, by: str = "", interrupts: bool = False) -> None:
        """Ask the job to end, after a checkpoint if it can make one; allowed in a signal handler. `by`: who asks."""
        self.post(StopRequested(at=self.now(), job=job, cause=cause, by=by, interrupts=interrupts))

    def pause(self, job: JobId, cause: str = "", *, by: str = "") -> None:
        """Pause the job until `resume`, whatever the policy proposes; its deadline goes on counting.

        * `cause`: reason of the pause, for queries.
        * `by`: user who requests it; empty: the owner, at the terminal.

        Raises `InvalidSpec`: there is no such job, or it works no more.
        """
        status = self._working(job, "a job can be paused only while it works")
        self.post(PauseRequested(at=self.now(), job=status.id, cause=cause, by=by))

    def resume(self, job: JobId, *, by: str = "") -> None:
        """Resume a paused job; it gets its share of the next plan.

        Raises `InvalidSpec`: there is no such job, or no user has paused it.
        """
        status = self.status(job)
        if status.pause is None:
            raise InvalidSpec(
                "only a job that its user has paused can be resumed",
                f"one that is {status.state}",
                f"job '{job}'",
                "See `punctual ps` for how jobs stand; one that the policy has paused goes on when it has its turn.",
            )
        self.post(ResumeRequested(at=self.now(), job=job, by=by))

    def change(self, job: JobId, change: SpecChange, *, by: str = "") -> JobSpec:
        """Change the declaration of a job that works: its deadline, weight, floor, ceiling and budget.

        `by`: user who requests it; empty: the owner, at the terminal.

        Returns the declaration from now on.

        Raises `InvalidSpec`: the job is unknown or works no more, or the change is impossible.
        """
        status = self._working(job, "a job can be changed only while it works")
        nodes = [node.capacity for node in self._board.nodes()]
        together = total(nodes) if len(nodes) > 1 else None
        with self._lock:  # of two changes at a time the second builds on the first
            spec = changed_spec(status, self._changed.get(job, status.spec), change, largest(nodes), together)
            if change.budget_usd is not None:
                check_budget(spec, self._pools, self.policy)
            self._changed[job] = spec
            self.post(SpecChanged(at=self.now(), spec=spec, by=by))
        return spec

    def _working(self, job: JobId, must: str) -> JobStatus:
        """Return the status of a job that still works; raises `InvalidSpec` for any other."""
        status = self.status(job)
        if status.landed or status.ended or status.state == "stopping":
            got = "a job that has landed" if status.landed else f"a job that is {status.state}"
            raise InvalidSpec(must, got, f"job '{job}'", "Let it end.")
        return status

    def quote(
        self,
        job: JobId | JobSpec,
        deadline_s: float | None = None,
        amounts: Sequence[Resources] = (),
        *,
        limit_s: float = _QUOTE_S_MAX,
    ) -> Quote:
        """Quote a deadline; changes nothing, and delays no tick. Not to be called by the thread of `run`.

        * `job`: id of a known job, or the spec of a new one.
        * `deadline_s`: seconds from the job's submission (now, for a new job); None: the job's own deadline, if any.
        * `amounts`: amounts for which the finish is forecast; empty: some up to the ceiling.

        * Raises `InvalidSpec`: the job is unknown or works no more, nothing heeds its budget, or an amount exceeds the
          capacity.
        * Raises `QuoteFailed`: no answer came within `limit_s` seconds.
        """
        known = job if isinstance(job, str) else job.id
        if isinstance(job, str):
            self._working(JobId(known), "only a job that works can be quoted")
        else:
            check_budget(job, self._pools, self.policy)

        def pictured(scheduler: Scheduler) -> tuple[Snapshot, JobView]:
            at = self.now()
            view = scheduler.job(JobId(known)) if isinstance(job, str) else new_view(job, at)
            return scheduler.snapshot(at), view

        snapshot, view = self.ask(pictured)
        check_amounts(amounts, total(node.capacity for node in snapshot.nodes))
        view = view if deadline_s is None else view.with_deadline(deadline_s)
        return self._planner.quote(QuoteRequest(snapshot=snapshot, view=view, amounts=tuple(amounts)), limit_s)

    # Nodes and policy.

    def drain(self, node: str, in_s: float | None, *, by: str = "") -> NodeId:
        """Have all jobs leave a node, which is taken away in `in_s` seconds, and place nothing there any more; None: it stays.

        `by`: user who requests it; empty: the owner, at the terminal.

        Returns the node; of an empty name the only one.

        Raises `InvalidSpec`: there is no such node, or `in_s` is negative or infinite.
        """
        if in_s is not None:
            check_not_negative("`drain`", in_s=in_s)
        names = [each.id for each in self._board.nodes()]
        node = node or (names[0] if len(names) == 1 else "")
        if node not in names:
            raise InvalidSpec(
                "there must be a node of that name",
                f"'{node}'" if node else "no name",
                "this host",
                f"Name one of its nodes: {', '.join(names) or 'none has answered yet'}.",
            )
        now = self.now()
        self.post(NodeNoticed(at=now, node=NodeId(node), ends_at=None if in_s is None else now + in_s, by=by))
        return NodeId(node)

    @property
    def policy(self) -> str:
        """Name of the policy that makes the plans."""
        return self._options.policy if self._board.policy is None else self._board.policy[0]

    @property
    def policy_parameters(self) -> Mapping[str, Any]:
        """Parameters of the policy that differ from its defaults."""
        return {} if self._board.policy is None else self._board.policy[1]

    def change_policy(self, name: str, parameters: Mapping[str, Any] | None = None, *, by: str = "") -> None:
        """Make plans with another policy, or with other parameters.

        What the one before has carried from plan to plan is dropped; its promises are too, unless it is the same one.

        * `parameters`: parameters of the policy, plain values; None: its defaults.
        * `by`: user who requests it; empty: the owner, at the terminal.

        Raises `InvalidSpec`: there is no such policy, it cannot be made so, or it does not heed the budget of an open job.
        """
        told = dict(parameters or {})
        check_policy(name, told)
        for status in [status for status in self.jobs() if not status.ended]:
            check_budget(status.spec, self._pools, name)
        self.post(PolicyChanged(at=self.now(), policy=name, parameters=told, before=self.policy, by=by))

    def lacks(self) -> tuple[Lack, ...]:
        """Return the machines of pools that are not there, and why."""
        return self._scheduler.lacks()

    def waits(self, at: float) -> dict[JobId, Wait]:
        """Return what each waiting job waits for at instant `at`, as far as it is known."""
        return expected_waits(self.jobs(), at, self.lacks(), self._scheduler.unbought())

    def costs(self) -> tuple[float, float] | None:
        """Dollars an hour that machines cost now, and dollars spent since the first; None: no machine has a price."""
        bill = self._scheduler.bill
        if not bill.has_price:
            return None
        return sum(machine.usd_h for machine in bill.machines().values()), bill.total_usd_at(self.now())

    def budget(self, waits: Mapping[JobId, Wait]) -> dict[str, Any]:
        """Return this host's resources, in all and free, its policy, and news of its nodes; `waits`: as `waits` returns them."""
        nodes = self._board.nodes()
        cores = sum(node.capacity.cores for node in nodes)
        jobs = self.jobs()
        free_cores = cores - sum(status.held.cores for status in jobs)
        news, now, costs = self.node_news(), self.clocks(), self.costs()
        waited_for = {lack for wait in waits.values() for lack in wait.lacks}
        return {
            "host": self.run_folder.name,
            "host_cores": cores,
            "host_free_cores": free_cores if free_cores > TOLERANCE else 0.0,
            "host_memory_bytes": sum(node.capacity.memory_bytes for node in nodes),
            "host_used_memory_bytes": sum(status.memory_bytes for status in jobs),
            "policy": self.policy,
            "host_usd_h": None if costs is None else costs[0],
            "host_spent_usd": None if costs is None else costs[1],
            "slow_nodes": {node.id: node.slowness for node in nodes if node.slowness > 1.0},
            "silent_nodes": {node: each.silent_s for node, each in news.items() if each.silent_s},
            "lost_nodes_wall": {
                node: now.wall_of(now.at + each.lost_in_s).isoformat() for node, each in news.items() if each.silent_s
            },
            "leaving_nodes_wall": {
                node.id: now.wall_of(node.ends_at).isoformat() for node in nodes if node.ends_at is not None
            },
            "taken_cores": {node: each.taken_cores for node, each in news.items() if each.taken_cores},
            "lacking_machines": [
                lack_text(lack, now.clock)
                for lack in self.lacks()
                if lack.n_starting or lack.cause or lack in waited_for
            ],
        }

    # Facts about a job.

    def tail(
        self, job: JobId, receive: Callable[[bytes], None], *, of_errors: bool = False, since_s: float | None = None
    ) -> LogTail:
        """Pass the job's output to `receive` in a thread; the caller finishes it in the end.

        `since_s`: only what was written from then on, in seconds since 1970. None: all that is kept.
        """
        log = self.log(job, of_errors=of_errors)
        n_skipped = 0 if since_s is None else n_bytes_before(log, since_s)
        return LogTail(log, skipping(receive, n_skipped))

    def log(self, job: JobId, *, of_errors: bool = False) -> Path:
        """Path of the job's output, or of its standard error alone, which only some jobs have."""
        return self.run_folder.log_of(job, of_errors=of_errors)

    def public_facts(self, job: JobId) -> dict[str, Any]:
        """Return facts about a job for other processes: controller, actuator, output, demand, cost, promised finish."""
        until_at = self.promised_until_at(job)
        return {
            "controller": self.status(job).spec.controller,
            "actuator": self._actuator,
            "output": str(self.run_folder.log(job)),
            "demand_cores": self.demand_cores(job),
            "spent_usd": self.spent_usd(job),
            "promised_until_wall": None if until_at is None else self.clocks().wall_of(until_at).isoformat(),
        }

    def demand_cores(self, job: JobId) -> float | None:
        """Cores that the job's controller demands; None: no demand is known."""
        try:
            demand = self._scheduler.demand(job)
        except KeyError:  # it is forgotten just now
            return None
        return None if demand is None else demand.resources.cores

    def spent_usd(self, job: JobId) -> float | None:
        """Dollars that the job has cost so far; None: no machine has a price."""
        bill = self._scheduler.bill
        return bill.spent_usd(job, self.now()) if bill.has_price else None

    def promised_until_at(self, job: JobId) -> float | None:
        """Instant by which the job is promised to be done; None: nothing is promised."""
        return self._scheduler.promised_until_at(job)

    def promises(self) -> Mapping[JobId, float]:
        """Instant by which each promised job is promised to be done."""
        return self._scheduler.promises()

    # Steering.

    def run(self, until: Callable[[], bool]) -> None:
        """Steer the jobs until `until`, asked before each event, holds."""
        self._engine.run(until)

    def run_for(self, most_s: float, until: Callable[[], bool] = lambda: False) -> None:
        """Steer the jobs until `until` holds, and for `most_s` seconds at most."""
        give_up_at = self.now() + most_s
        # Else nothing might ever come. Without a job it asks for nothing, and is no timer that the scheduler sets.
        self._time.set_timer(Timer("retry"), give_up_at)
        self.run(lambda: until() or self.now() >= give_up_at)

    def ask(self, question: Callable[[Scheduler], T], limit_s: float = _ASK_S_MAX) -> T:
        """Return `question(scheduler)`, called between two events in the thread of `run`.

        The question must change nothing and be quick: nothing is steered meanwhile. That thread itself must not call
        this method. An exception of the question is raised here; `TimeoutError` if the thread has not reached it in
        `limit_s` seconds.
        """
        answer: Future[T] = Future()

        def asked() -> None:
            if answer.set_running_or_notify_cancel():
                try:
                    answer.set_result(question(self._scheduler))
                except Exception as error:  # noqa: BLE001 -- it is whoever asks who is to know
                    answer.set_exception(error)

        self._time.ask(Query(asked))
        try:
            return answer.result(limit_s)
        finally:
            answer.cancel()

    def settle(self) -> None:
        """Return once the journal has all events posted before, so that they can be reported as accepted.

        Not to be called by the thread of `run`.

        Raises `StoreUnreachable`: the host has not come to it in some seconds.
        """
        try:
            self.ask(lambda _: None, _SETTLE_S_MAX)
        except TimeoutError:
            raise StoreUnreachable(
                "a change must be in the journal before it is reported as accepted",
                f"a host that has not saved it within {span(_SETTLE_S_MAX)}",
                self._journal.place,
                "Check `punctual show` before you retry: the change may be in force, and may still be saved.",
            ) from None

    @property
    def n_written(self) -> int:
        """Number of the last message that this host has written."""
        return self._journal.last_written

    def check_steers(self) -> None:
        """Raise `ControlFailed` if the thread of `run` hangs, so that clients treat the host as silent."""
        silent_s = time.monotonic() - self._beaten_at
        if silent_s > HUNG_S:
            raise ControlFailed(f"the host has steered no job for {span(silent_s)}")

    @property
    def takes_changes(self) -> bool:
        """Whether jobs can be submitted and changed here: false once they are left or another process has them."""
        return not (self.is_handed_over or self._is_closing) and self._journal.has_claim()

    def _beat(self) -> None:
        """Renew the lease with the supervisors; first check, for instance after a stop, that this process still steers."""
        self._beaten_at = time.monotonic()
        self._journal.check_claim()
        self._record_written()
        self._upkeep.go_on()
        self.executor.renew(self._is_paused_by_user)
        if self._scale is not None:
            self._scale(self._scheduler.snapshot(self.now()))
        self._bring_deadlines_forward()

    def _bring_deadlines_forward(self) -> None:
        """Shorten deadlines by the time for which the machine was suspended: their clock stood still meanwhile."""
        slept_s = suspended_s() - self._suspended_s
        if slept_s < LEAST_S:
            return
        self._suspended_s += slept_s
        by = f"the machine, which was suspended for {span(slept_s)}"
        for status in self.jobs():
            if status.spec.deadline_s is not None:
                change = SpecChange(deadline_s=max(status.spec.deadline_s - slept_s, LEAST_S))
                with suppress(InvalidSpec):  # it has ended or landed
                    self.change(status.id, change, by=by)
        try:
            self.run_folder.record_facts(**suspension_record(self._suspended_s))
        except OSError as error:  # the next host would bring deadlines forward once more
            _LOG.warning("for how long the machine slept could not be written down: %s", error)

    # What follows from messages.

    def _listen(self, message: Message) -> None:
        self._board.fold(message)
        if isinstance(message, JobSubmitted):
            self._coming.pop(message.spec.id, None)
        elif isinstance(message, SpecChanged):
            with self._lock:
                if self._changed.get(message.spec.id) is message.spec:
                    del self._changed[message.spec.id]
        self._tell(message)

    def _keep_paused(self, message: GrantApplied) -> None:
        """Report a user's pause to the job's supervisor at once: this process may be killed before it beats."""
        if not message.granted and self._is_paused_by_user(message.job):
            self.executor.renew(self._is_paused_by_user)

    def _keep_stopped(self, message: JobFailed) -> None:
        """Start no job again that its user ended through the supervisor while this process was stopped."""
        if message.retryable and self.run_folder.is_stopping(message.job):
            self.stop(message.job, STOPPED_UNSTEERED)

    def _is_paused_by_user(self, job: JobId) -> bool:
        """Whether the job is to stay paused even if no process steers it."""
        return self.knows(job) and self.status(job).pause is not None

    def _record(self, message: Message) -> None:
        """Bring the run's folder up to the journal, and not further: its records must outlive this process."""
        self._unrecorded.append(message)
        self._record_written()

    def _record_written(self) -> None:
        while self._unrecorded:
            message = self._unrecorded.popleft()
            try:
                self._record_one(message)
            except OSError as error:  # the disk is full, say: it is tried again with each beat
                self._unrecorded.appendleft(message)
                if not self._is_unwritable:
                    _LOG.warning("what is written down of the jobs is not up to date: %s", error)
                self._is_unwritable = True
                return
            self._is_unwritable = False

    def _record_one(self, message: Message) -> None:
        job = ended_by(message)
        if job is not None and self.has_ended(job):
            self._inputs.forget(job)  # it may have ended before it began
            if self._cpu_sets is not None:
                self._cpu_sets.remove(job)
            self.run_folder.record_end(job, self.status(job).state, self._end_facts(job))
            self._upkeep.scrub()
        elif isinstance(message, JobFailed):
            self.run_folder.forget_end(message.job)
        elif isinstance(message, PauseRequested | ResumeRequested):  # for those who ask when nobody steers it
            told = message.text() if isinstance(message, PauseRequested) else None
            self.run_folder.records.set_pause(message.job, told)
        elif isinstance(message, PolicyChanged):  # for those who ask whether they may join
            options = {**self.run_folder.facts().get("options", {}), "policy": message.policy}
            self.run_folder.record_facts(options=options)

    def _end_facts(self, job: JobId) -> dict[str, Any]:
        """Return the facts of an ended job for the list of past jobs, with those that only the executor has."""
        facts = self.executor.facts(job).as_fields()
        return {
            **facts_of_end(self.status(job), self.clocks(), self._scheduler.bill),
            **{name: facts[name] for name in ("faults", "workers", "device")},
            "controller_cpu_s": time.process_time() - self._cpu_before_s.pop(job, time.process_time()),
        }

    # Leaving.

    def ask_to_leave(self, *, only_without_jobs: bool = False) -> None:
        """Ask the caller of `run` to leave this host and its jobs; allowed in any thread and signal handler.

        `only_without_jobs`: ask it not to wait for a first job any more.
        """
        self.is_unneeded = True
        self.is_asked_to_leave = self.is_asked_to_leave or not only_without_jobs
        self._time.ask(Query(lambda: None))  # whether to go on is asked before each thing that comes

    def hand_over(self) -> None:
        """Leave the open jobs to another process.

        They go on with what they hold, and at full speed if nobody comes before their leases end.
        To be called by the thread of `run`, after that has returned. Nothing can be submitted any more. Raises
        `JournalTaken` if another process has them already.
        """
        self.is_handed_over = True
        self.run_for(_END_S_MAX, lambda: not self._coming)
        with suppress(InvalidSpec):  # the next host then has more to read
            self._upkeep.snapshot()
        self._beat()
        self.executor.release()
        self._upkeep.close()
        self.run_folder.record_left()

    def begin_to_close(self) -> bool:
        """Take no more jobs if none is open and nobody waits for an answer; return whether that is so."""
        self._is_closing = True  # first: one that comes now is either refused or seen
        self._is_closing = self.all_ended() and not self.is_answering()
        return self._is_closing

    def end_jobs(self, cause: str) -> None:
        """End the jobs that still run, without checkpoints; returns when they are gone and the journal has their ends.

        To be called by the thread of `run`, after that has returned. Raises `JournalTaken` if they are not this host's.
        """
        self._journal.check_claim()
        for status in self.jobs():
            if not status.ended:
                self.stop(status.id, cause)
        self.executor.close()
        self.run_for(_END_S_MAX, self.all_ended)
        self._upkeep.close()


def _no_page(_: str | None) -> str:
    raise InvalidSpec("a page needs a process that serves it", "one that does not", "the host", "Use `punctual up`.")


def _check_names_are_free(jobs: Collection[str], run: RunFolder) -> None:
    for other in open_jobs(but=run):
        if other.title in jobs:
            if other.steering == "interrupted":
                raise interrupted(other.title)
            raise InvalidSpec(
                "`name` must not be that of an open job",
                f"'{other.title}', which a job of '{other.run.name}' has",
                f"job '{other.title}'",
                "Choose another name (`--name`).",
            )


def _check_hardware(spec: JobSpec) -> None:
    """Raise `InvalidSpec` if the job asks for named hardware, which only a cluster can grant."""
    names = [name for name, _ in (spec.ceiling if spec.unit is None else spec.ceiling + spec.unit).others]
    if names:
        raise InvalidSpec(
            "a job on this machine must ask for nothing but cores, GPUs and memory",
            f"`{names[0]}`",
            f"job '{spec.id}'",
            "Leave it out: no limit on it could be enforced here. `punctual simulate` knows it.",
        )
