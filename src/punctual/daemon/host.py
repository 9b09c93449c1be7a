"""Host: jobs on one scheduler, one engine and one journal."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

from punctual.core.cluster import Snapshot
from punctual.core.errors import InvalidSpec, check_not_negative
from punctual.core.events import (
    Event,
    JobSubmitted,
    NodeNoticed,
    PauseRequested,
    PolicyChanged,
    ResumeRequested,
    SpecChanged,
    StopRequested,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobView
from punctual.core.pools import Lack, PoolSpec
from punctual.core.protocols import Executor, Journal, Message
from punctual.core.quoting import Quote, QuoteRequest
from punctual.core.resources import Resources, largest, total
from punctual.core.scheduler import Scheduler
from punctual.core.status import JobStatus, StatusBoard
from punctual.daemon.engine import Engine, Query
from punctual.daemon.mailbox import Mailbox
from punctual.daemon.planner import QuotingPlanner
from punctual.daemon.quotes import check_amounts, new_view
from punctual.daemon.status_reader import StatusReader, logged
from punctual.history.judge import Wait, expected_waits
from punctual.request.spec_change import SpecChange, changed_spec
from punctual.request.submission import Submission, check_budget, check_policy, submitted

T = TypeVar("T")

#: Seconds that the steering thread may take to reach a question, and to answer a quote: a policy may have to be
#: loaded first.
ASK_S_MAX, QUOTE_S_MAX = 5.0, 20.0


class Host(StatusReader):
    """Runs any number of jobs. All methods but `run` may be called from any thread.

    * `scheduler`, `board`: scheduler and status board of the same history: new, or restored from a journal.
    * `time`: source of events and time; safe from any thread.
    * `afterwards`: called with all messages that were written together, once scheduler, board and listeners have them.
    * `policy`: name of the policy with which the history began.
    * `pools`: pools of machines that it can ask for.
    """

    def __init__(
        self,
        scheduler: Scheduler,
        board: StatusBoard,
        executor: Executor,
        planner: QuotingPlanner,
        journal: Journal,
        time: Mailbox,
        *,
        afterwards: Callable[[Sequence[Message]], None] = lambda _: None,
        policy: str = "",
        pools: Sequence[PoolSpec] = (),
    ) -> None:
        super().__init__(board)
        self._pools = pools
        self._time, self._scheduler, self._planner = time, scheduler, planner
        listeners, afterwards = [logged(self._listen)], logged(afterwards)
        self._engine = Engine(
            scheduler, executor, planner, time, journal=journal, listeners=listeners, afterwards=afterwards
        )
        self._lock = Lock()
        self._first_policy = policy
        #: Jobs that were submitted and that the engine has not come to yet.
        self._coming: dict[JobId, JobSubmitted] = {}
        #: Latest declarations of jobs that the engine has not processed yet.
        self._changed: dict[JobId, JobSpec] = {}

    def now(self) -> float:
        """Present instant on the clock of events."""
        return self._time.now()

    def post(self, event: Event) -> None:
        """Pass the engine an event; allowed in a signal handler."""
        self._engine.post(event)

    def take_in(self, events: Iterable[Event]) -> None:
        """Queue events of the time during which no process steered, as `Engine.take_in` does."""
        self._engine.take_in(events)

    # What is waited for.

    def lacks(self) -> tuple[Lack, ...]:
        """Return the machines of pools that are not there, and why."""
        return self._scheduler.lacks()

    def waits(self, at: float) -> dict[JobId, Wait]:
        """Return what each waiting job waits for at instant `at`, as far as it is known."""
        return expected_waits(self.jobs(), at, self.lacks(), self._scheduler.unbought())

    # The policy.

    @property
    def policy(self) -> str:
        """Name of the policy that makes the plans."""
        return self._first_policy if self._board.policy is None else self._board.policy[0]

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

    # Jobs.

    def resubmit(self, event: JobSubmitted) -> None:
        """Submit a job again that an earlier host had accepted."""
        self._coming[event.spec.id] = event
        self.post(event)

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

    def _working(self, job: JobId, must: str) -> JobStatus:
        """Return the status of a job that still works; raises `InvalidSpec` for any other."""
        status = self.status(job)
        if status.landed or status.ended or status.state == "stopping":
            got = "a job that has landed" if status.landed else f"a job that is {status.state}"
            raise InvalidSpec(must, got, f"job '{job}'", "Let it end.")
        return status

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

    def drain(self, node: str, in_s: float, *, by: str = "") -> NodeId:
        """Have all jobs leave a node, which is taken away in `in_s` seconds, and place nothing there any more.

        `by`: user who requests it; empty: the owner, at the terminal.

        Returns the node; of an empty name the only one.

        Raises `InvalidSpec`: there is no such node, or `in_s` is negative or infinite.
        """
        check_not_negative("`drain`", in_s=in_s)
        return self._notice(node, self.now() + in_s, by)

    def undrain(self, node: str, *, by: str = "") -> NodeId:
        """Use a node again that was to be taken away; as `drain`."""
        return self._notice(node, None, by)

    def _notice(self, node: str, ends_at: float | None, by: str) -> NodeId:
        names = [each.id for each in self._board.nodes()]
        node = node or (names[0] if len(names) == 1 else "")
        if node not in names:
            raise InvalidSpec(
                "there must be a node of that name",
                f"'{node}'" if node else "no name",
                "this host",
                f"Name one of its nodes: {', '.join(names) or 'none has answered yet'}.",
            )
        self.post(NodeNoticed(at=self.now(), node=NodeId(node), ends_at=ends_at, by=by))
        return NodeId(node)

    def ask(self, question: Callable[[Scheduler], T], limit_s: float = ASK_S_MAX) -> T:
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

    def quote(
        self,
        job: JobId | JobSpec,
        deadline_s: float | None = None,
        amounts: Sequence[Resources] = (),
        *,
        limit_s: float = QUOTE_S_MAX,
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

    def open_jobs(self) -> tuple[JobId, ...]:
        """Return the jobs that have not ended, those included that the engine has not processed yet."""
        known = [status.id for status in self.jobs() if not status.ended]
        return tuple(dict.fromkeys((*known, *list(self._coming))))

    def all_ended(self) -> bool:
        """Whether all submitted jobs have ended."""
        return not self._coming and self._board.all_ended

    # The engine.

    def run(self, until: Callable[[], bool]) -> None:
        """Steer the jobs until `until`, asked before each event, holds."""
        self._engine.run(until)

    def _reserve(self, submission: Submission) -> JobId:
        """Reserve the name, so that no other job gets it."""
        job = submission.spec.id
        with self._lock:
            if job in self._coming or self.knows(job):
                raise InvalidSpec(
                    "`name` must be new",
                    f"'{job}', which another job has",
                    f"job '{job}'",
                    "Choose another name (`--name`).",
                )
            self._coming[job] = submitted(submission)
        return job

    def _known(self, job: JobId) -> JobStatus | None:
        """Return the status of a job whose submission has been processed; None for any other."""
        return self.status(job) if self.knows(job) else None

    def _release(self, job: JobId) -> None:
        """Release the name of a job that will not be submitted after all."""
        with self._lock:
            self._coming.pop(job, None)

    def _listen(self, message: Message) -> None:
        self._board.fold(message)
        if isinstance(message, JobSubmitted):
            self._coming.pop(message.spec.id, None)
        elif isinstance(message, SpecChanged):
            with self._lock:
                if self._changed.get(message.spec.id) is message.spec:
                    del self._changed[message.spec.id]
        self._tell(message)
