"""A host on this machine: its processors, its processes, its run folder and its control socket."""

import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any

from punctual.core.codec import encode
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantApplied,
    JobFailed,
    NodeJoined,
    PauseRequested,
    PolicyChanged,
    ResumeRequested,
)
from punctual.core.ids import JobId, Timer
from punctual.core.job import JobSpec
from punctual.core.lifecycle import ENDS, ended_by
from punctual.core.protocols import Message
from punctual.core.resources import TOLERANCE, Resources, largest, total
from punctual.core.status import JobStatus
from punctual.core.units import span
from punctual.daemon.capacity import capacity_here
from punctual.daemon.contained import Contained
from punctual.daemon.control_socket import FDS, ControlFailed, ControlSocket
from punctual.daemon.cpu_sets import ConfinedPlanner
from punctual.daemon.engine import Query
from punctual.daemon.host import Host
from punctual.daemon.host_executor import HERE, ExecutorSetup, new_setup
from punctual.daemon.host_options import INLINE_POLICY, HostOptions
from punctual.daemon.host_state import HostState, facts_of_end, new_state
from punctual.daemon.log_snapshot import Skipping, n_bytes_before
from punctual.daemon.machine_providers import fleets
from punctual.daemon.mailbox import Mailbox
from punctual.daemon.planner import QuotingPlanner, SwitchingPlanner
from punctual.daemon.quotes import quote_fields
from punctual.daemon.run_folder import RunFolder, create_run, interrupted, new_job
from punctual.daemon.runs import has_finished, open_jobs
from punctual.daemon.status_reader import standing
from punctual.executors.local.devices import visible_devices
from punctual.executors.local.output import LogTail, ProcessSettings
from punctual.history.judge import NO_WAIT, Wait, lack_text
from punctual.journal.boot import boot_id, clock_shift, suspended_s
from punctual.journal.errors import JournalTaken, StoreUnreachable
from punctual.journal.maintenance import JournalMaintenance
from punctual.journal.sqlite import SqliteJournal
from punctual.request.deadlines import Now
from punctual.request.job_order import in_order
from punctual.request.spec_change import NONE, SpecChange
from punctual.request.submission import Submission, check_budget, check_checkpoint_dir, decode_submission, submitted

_LOG = logging.getLogger(__name__)

#: Settings of the process of a job that no command in a terminal waits for.
_PIPED = ProcessSettings()

#: Why a job ends that its user stopped when it had no host, or one that was stopped itself.
STOPPED_UNSTEERED = "by the user, when nobody steered it"

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


class LocalHost(Host):
    """Runs jobs as processes of this machine, or of the nodes of a cluster.

    * `run_folder`: folder of the run.
    * `executor`: executor for queries about processes: actuator, workers, faults.
    """

    def __init__(self, state: HostState, site: ExecutorSetup, planner: QuotingPlanner) -> None:
        executor = Contained(site.executor)
        self._journal = state.journal
        self._upkeep = JournalMaintenance(state.journal, state.dumped)
        super().__init__(
            state.scheduler,
            state.board,
            state.time.in_journal_time(executor),
            planner,
            state.journal,
            state.time,
            afterwards=self._upkeep,
            policy=state.run.facts().get("options", {}).get("policy", ""),
            pools=site.pooled,
        )
        self.run_folder, self.executor = state.run, executor
        self._inputs, self._cpu_sets = site.inputs, site.cpu_sets
        self._own_capacity, self._scale = site.capacity, site.scale
        #: News of a cluster's nodes for the user.
        self.node_news = site.news
        self._timers = state.time
        state.time.pulse(self._beat)
        self._beaten_at = time.monotonic()
        self._suspended_s = accounted_s(state.run.facts())
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
        self.run_folder.record_facts(
            actuator=executor.actuator,
            actuator_reason=executor.actuator_reason,
            gpus=list(visible_devices()),
            **suspension_record(self._suspended_s),
        )

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
        in_journal_time = [self._in_journal_time(submission) for submission in ordered]
        with ExitStack() as undoing:
            for submission in in_journal_time:
                _check_hardware(submission.spec)
                check_budget(submission.spec, self._pools, self.policy)
                undoing.callback(self._release, self._reserve(submission))
            self._store(in_journal_time, settings)
            undoing.pop_all()
        self._add_cpus([submission.spec.id for submission in ordered], settings)
        for submission in in_journal_time:
            self.post(submitted(submission))
        return [submission.spec.id for submission in submissions]

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
            jobs_at_once = HostOptions.of(self.run_folder.facts()).jobs_at_once_on(capacity)
            self.post(NodeJoined(at=self.now(), node=HERE, capacity=capacity, jobs_at_once=jobs_at_once))

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

    def submit_again(self, submissions: Sequence[Submission], settings: ProcessSettings) -> None:
        """Submit the jobs that neither this host nor its predecessor has got before; otherwise as `submit_all`."""
        if new := [submission for submission in submissions if not self._has_same(submission)]:
            self.submit_all(new, settings)

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
            self.submit_again(submissions, settings)
        except BaseException:
            self._inputs.forget(job)
            raise
        try:
            self.ask(lambda _: None, _TELL_S_MAX)
        except TimeoutError as error:
            raise ControlFailed("the host is too busy") from error

    def tail(
        self, job: JobId, receive: Callable[[bytes], None], *, of_errors: bool = False, since_s: float | None = None
    ) -> LogTail:
        """Pass the job's output to `receive` in a thread; the caller finishes it in the end.

        `since_s`: only what was written from then on, in seconds since 1970. None: all that is kept.
        """
        log = self.log(job, of_errors=of_errors)
        n_skipped = 0 if since_s is None else n_bytes_before(log, since_s)
        return LogTail(log, Skipping(receive, n_skipped))

    def log(self, job: JobId, *, of_errors: bool = False) -> Path:
        """Path of the job's output, or of its standard error alone, which only some jobs have."""
        return self.run_folder.log_of(job, of_errors=of_errors)

    def facts(self, job: JobId) -> dict[str, Any]:
        """Return facts that do not change while the job runs: names of its controller and its actuator."""
        return {"controller": self.status(job).spec.controller, "actuator": self.executor.actuator}

    def public_facts(self, job: JobId) -> dict[str, Any]:
        """Return `facts` for other processes, with the path of the output, the demand, and the promised finish."""
        until_at = self.promised_until_at(job)
        return {
            **self.facts(job),
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

    def costs(self) -> tuple[float, float] | None:
        """Dollars an hour that machines cost now, and dollars spent since the first; None: no machine has a price."""
        bill = self._scheduler.bill
        if not bill.has_price:
            return None
        return sum(machine.usd_h for machine in bill.machines().values()), bill.total_usd_at(self.now())

    def promised_until_at(self, job: JobId) -> float | None:
        """Instant by which the job is promised to be done; None: nothing is promised."""
        return self._scheduler.promised_until_at(job)

    def promises(self) -> Mapping[JobId, float]:
        """Instant by which each promised job is promised to be done."""
        return self._scheduler.promises()

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

    def run_for(self, most_s: float, until: Callable[[], bool] = lambda: False) -> None:
        """Steer the jobs until `until` holds, and for `most_s` seconds at most."""
        give_up_at = self.now() + most_s
        # Else nothing might ever come. Without a job it asks for nothing, and is no timer that the scheduler sets.
        self._timers.set_timer(Timer("retry"), give_up_at)
        self.run(lambda: until() or self.now() >= give_up_at)

    def ask_to_leave(self, *, only_without_jobs: bool = False) -> None:
        """Ask the caller of `run` to leave this host and its jobs; allowed in any thread and signal handler.

        `only_without_jobs`: ask it not to wait for a first job any more.
        """
        self.is_unneeded = True
        self.is_asked_to_leave = self.is_asked_to_leave or not only_without_jobs
        self._timers.ask(Query(lambda: None))  # whether to go on is asked before each thing that comes

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

    def check_steers(self) -> None:
        """Raise `ControlFailed` if the thread of `run` hangs, so that clients treat the host as silent."""
        silent_s = time.monotonic() - self._beaten_at
        if silent_s > HUNG_S:
            raise ControlFailed(f"the host has steered no job for {span(silent_s)}")

    @property
    def takes_changes(self) -> bool:
        """Whether jobs can be submitted and changed here: false once they are left or another process has them."""
        return not (self.is_handed_over or self._is_closing) and self._journal.has_claim()

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

    def _store(self, submissions: Sequence[Submission], settings: ProcessSettings | None) -> None:
        """Store what jobs need to start as safely as messages, for all or, if it raises, for none of them.

        Raises `InvalidSpec` if there is no room for it.
        """
        self.run_folder.record_submitted(
            [
                new_job(
                    each.spec.id,
                    encode(submitted(each)),
                    each.inherited,
                    each.argv,
                    settings,
                    name=each.name,
                    request_key=each.request_key,
                    request_digest=each.request_digest,
                )
                for each in submissions
            ]
        )

    def _has_same(self, submission: Submission) -> bool:
        """Whether this very submission was made before."""
        job, told = submission.spec.id, submitted(self._in_journal_time(submission))
        if (coming := self._coming.get(job)) is not None:
            return (coming.at, coming.program) == (told.at, told.program)
        known = self._known(job)
        return known is not None and (known.submitted_at, known.program) == (told.at, told.program)

    def _in_journal_time(self, submission: Submission) -> Submission:
        return replace(submission, submitted_at=submission.submitted_at - self._timers.shift_s)

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
        workers, faults, device = (
            self.executor.worker_status(job),
            self.executor.faults(job),
            self.executor.device_use(job),
        )
        return {
            **facts_of_end(self.status(job), self.clocks(), self._scheduler.bill),
            "faults": [
                {"must": fault.must, "got": fault.got, "where": fault.where, "remedy": fault.remedy} for fault in faults
            ],
            "workers": None if workers is None else asdict(workers),
            "device": None if device is None else asdict(device),
            "controller_cpu_s": time.process_time() - self._cpu_before_s.pop(job, time.process_time()),
        }


def answer_control(host: LocalHost, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request of another process of this user; raises `InvalidSpec` for a user's mistake, `ValueError` for a program's.

    Each call has a thread of its own. A request is a JSON object with a `verb`:

    ============ =================== ================================================================================
    verb         with                answer
    ============ =================== ================================================================================
    `status`     `jobs`, or all      `jobs`: how each stands
    `change`     `job`, `change`,    what is declared then: `job`, `weight`, `floor_cores`, `ceiling_cores`, `workers`
                 `when`              (least and most), `budget_usd`, `deadline_s`, `deadline_wall`, `left_s`
    `stop`       `job`, `cause`,     `job`
                 `interrupts`
    `pause`      `job`, `cause`      `job`
    `resume`     `job`               `job`
    `policy`     `policy`,           `policy`, `parameters`, `before`; asked without them no `before`
                 `parameters`
    `drain`      `node`, or empty    `node`
                 for the only one;
                 `in_s`, null: it
                 stays
    `submit`     `jobs`, `streams`   nothing, once the journal has them
    `capacity`                       `node`: the most that one job can have; `together`: what workers can have on all
                                     nodes, null where there is one
    `quote`      `job` or            see `punctual.daemon.quotes.quote_fields`
                 `submission`;
                 `when`, `cores`
    `leave`      `only_without_jobs` nothing; the daemon then leaves its jobs to another process, or ends if it waits for a
                                     first job
    `page`       `job`, or none      `url`: the page's address, with a token
    ============ =================== ================================================================================
    """
    match request:
        case {"verb": "status"}:
            host.check_steers()
            wanted = None if request.get("jobs") is None else set(request["jobs"])
            statuses = [status for status in host.jobs() if wanted is None or status.id in wanted]
            now = host.clocks()
            waits = host.waits(now.at)
            budget = host.budget(waits)
            jobs = [_full_standing(host, each, now, waits.get(each.id, NO_WAIT), budget) for each in statuses]
            return {"jobs": jobs}
        case {"verb": "policy"}:
            return _policy_answer(host, request)
        case {"verb": "drain", "node": str(name), "in_s": None | int() | float() as in_s}:
            drained = host.undrain(name) if in_s is None else host.drain(name, float(in_s))
            host.settle()
            return {"node": drained}
        case {"verb": "submit", "jobs": list(jobs), "streams": dict(settings)}:
            submissions = [decode_submission(job) for job in jobs]
            host.submit_for_client(
                submissions, ProcessSettings.from_fields(settings), next(iter(request.get(FDS, ())), None)
            )
            return {}
        case {"verb": "capacity"}:
            node, together = host.capacity, host.capacity_together
            return {"node": asdict(node), "together": None if together is None else asdict(together)}
        case {"verb": "quote"}:
            return _quote_answer(host, request)
        case {"verb": "leave"}:
            host.ask_to_leave(only_without_jobs=bool(request.get("only_without_jobs", False)))
            return {}
        case {"verb": "page"}:
            return {"url": host.open_page(request.get("job"))}
        case {"job": str(job)}:
            return _answer_about(host, JobId(job), request)
    raise ValueError(f"no such request: {request}")


def _policy_answer(host: LocalHost, request: Mapping[str, Any]) -> dict[str, Any]:
    """Change the policy, if the request names one, and return it."""
    before = host.policy
    match request:
        case {"policy": str(name), "parameters": dict(parameters)}:
            host.change_policy(name, parameters)
            host.settle()
            return {"policy": name, "parameters": parameters, "before": before}
    return {"policy": before, "parameters": dict(host.policy_parameters)}


def _answer_about(host: LocalHost, job: JobId, request: dict[str, Any]) -> dict[str, Any]:
    """Perform a request that acts on a job and return the answer."""
    status = host.status(job)
    match request:
        case {"verb": "change", "change": dict(change)}:
            return _change_answer(host, status, request.get("when"), change)
        case {"verb": "stop"}:
            cause = str(request.get("cause", "`punctual stop`"))
            host.stop(job, cause, interrupts=bool(request.get("interrupts", False)))
        case {"verb": "pause"}:
            host.pause(job, str(request.get("cause", "")))
        case {"verb": "resume"}:
            host.resume(job)
        case _:
            raise ValueError(f"no such request: {request}")
    host.settle()
    return {"job": job}


def _quote_answer(host: LocalHost, request: Mapping[str, Any]) -> dict[str, Any]:
    """Quote a deadline for a known job, or for a submission that is not made; changes nothing."""
    amounts = [Resources(float(cores)) for cores in request.get("cores", ())]
    now = host.clocks()
    if (told_job := request.get("submission")) is not None:
        return quote_fields(host.quote(decode_submission(told_job).spec, amounts=amounts), now)
    job, when = JobId(str(request["job"])), request.get("when")
    deadline_s = None if when is None else host.moved_deadline_s(job, str(when), now)
    return quote_fields(host.quote(job, deadline_s, amounts), now)


def _full_standing(
    host: LocalHost, status: JobStatus, now: Now, wait: Wait, budget: Mapping[str, Any]
) -> dict[str, Any]:
    facts = host.public_facts(status.id)
    is_promised = facts.get("promised_until_wall") is not None
    return {
        **standing(status, now, wait, most_cores=budget.get("host_cores"), is_promised=is_promised, is_sent=True),
        "paused": None if status.pause is None else status.pause.text(),
        "waits_for": [name for name in status.spec.after if host.knows(name) and not host.has_ended(name)],
        **facts,
        **budget,
    }


def _change_answer(host: LocalHost, status: JobStatus, when: str | None, change: dict[str, Any]) -> dict[str, Any]:
    """Change a job's declaration; `when`: a new deadline as its user writes it; `none`: drop the deadline."""
    now = host.clocks()
    if when is not None:
        is_none = when.strip().lower() == NONE
        change["deadline_s"] = inf if is_none else host.moved_deadline_s(status.id, when, now)
    spec = host.change(status.id, SpecChange(**change))
    host.settle()
    deadline_at = None if spec.deadline_s is None else status.submitted_at + spec.deadline_s
    return {
        "job": spec.id,
        "weight": spec.weight,
        "floor_cores": spec.floor.cores,
        "ceiling_cores": spec.ceiling.cores,
        "workers": None if spec.worker is None else [spec.worker_counts()[0], spec.worker_counts()[-1]],
        "budget_usd": spec.budget_usd,
        "deadline_s": spec.deadline_s,
        "deadline_wall": None if deadline_at is None else now.wall_of(deadline_at).isoformat(),
        "left_s": None if deadline_at is None else deadline_at - now.at,
    }


def _no_page(_: str | None) -> str:
    raise InvalidSpec("a page needs a process that serves it", "one that does not", "the host", "Use `punctual up`.")


@contextmanager
def local_host(
    name: str,
    options: HostOptions,
    *,
    facts: Mapping[str, Any] | None = None,
    continues: bool = False,
) -> Iterator[LocalHost]:
    """Yield a new host without jobs. Leaving it ends those that still run; a journal that was written stays.

    * `name`: name of the run; valid as a file's name.
    * `facts`: kept in the run's record (JSON values).
    * `continues`: write on in the journal of the run of this name, all of whose jobs have ended.

    * Raises `InvalidSpec`: another run has the name, or the options cannot be used here.
    * Raises `JournalUnusable`: the journal to write on is damaged, or of another version of Punctual.
    """
    run = create_run(name, {**(facts or {}), "options": asdict(options)}, continues=continues)
    with ExitStack() as ending:
        ending.push(tidying(run, is_new=not continues))
        journal = ending.enter_context(SqliteJournal(run.journal))
        journal.reset()
        state = new_state(run, journal, Mailbox(clock_shift(journal.clock)))
        policy = state.policy(options.policy)
        site = new_setup(run, journal, options)
        host = ending.enter_context(opened(state, site, policy))
        site.join(state.time.from_machine)
        yield host


def tidying(run: RunFolder, *, is_new: bool = False) -> Callable[[type[BaseException] | None, object, object], None]:
    """Return an exit callback that removes the places of `run`, unless another process has taken them over.

    `is_new`: its journal goes too if it has no job.
    """

    def tidy(kind: type[BaseException] | None, *_: object) -> None:
        is_others = kind is not None and (issubclass(kind, JournalTaken) or bool(run.supervised_jobs()))
        if is_others or not run.is_steered_here():
            return
        is_empty = not run.jobs() and not fleets(run)
        if is_new and is_empty:  # what could not even be put together leaves no journal behind
            run.remove()
        else:
            run.remove_live_places()

    return tidy


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


@contextmanager
def opened(
    state: HostState,
    site: ExecutorSetup,
    policy: tuple[str, Mapping[str, Any]],
    begin: Callable[[LocalHost], None] = lambda _: None,
    *,
    take: bool = False,
) -> Iterator[LocalHost]:
    """Open the host to other processes; leaving it ends its jobs. If it cannot be opened, they are left as they are.

    * `policy`: policy and parameters, as returned by `HostState.policy`.
    * `begin`: called with the host before other processes can talk to it.
    * `take`: take the socket of a host that hangs.
    """
    executor = site.executor
    with ExitStack() as closing:
        with ExitStack() as failing:
            failing.callback(executor.release)
            planner = closing.enter_context(SwitchingPlanner(*policy, alone=INLINE_POLICY, now=state.time.now))
            host = LocalHost(state, site, planner if site.cpu_sets is None else ConfinedPlanner(planner, site.cpu_sets))
            begin(host)
            control = ControlSocket(state.run.socket, partial(answer_control, host), take=take)
            host.is_answering = control.is_answering
            failing.pop_all()
        try:
            with control:
                yield host
            if not host.is_handed_over:
                host.end_jobs("Punctual is ending")
        except JournalTaken:  # another process steers the jobs now
            executor.release()
            raise
        except BaseException:
            executor.close()
            raise
