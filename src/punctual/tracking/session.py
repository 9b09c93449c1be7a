"""Session of this process: its progress, and the link to its page. One session per process."""

import fcntl
import os
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from time import monotonic_ns, process_time_ns

from punctual.channel import (
    BLOCK_VARIABLE,
    EXIT_PREEMPTED,
    EXIT_STOPPED,
    N_PHASES_MAX,
    Declaration,
    Directives,
    Fault,
    PageError,
    ProgramState,
    SharedBlock,
    process_number,
    short_name,
)
from punctual.tracking import losses
from punctual.tracking.complaint import tell, warn
from punctual.tracking.declaration import Phase
from punctual.tracking.device import DeviceClock
from punctual.tracking.losses import Losses
from punctual.tracking.pacing import Pacer
from punctual.tracking.record import PhaseRecord, StepPlan, Stopwatch

#: The index of a phase that is not in the page's table; and of a step, which is none.
OUTSIDE = -1


#: Phases by name, each with the occurrences planned from the loop's start on (None: to be learned).
Plan = Mapping[str, tuple[Phase, int | None]]


class Session:
    """Counts steps and units of phases, keeps to the pacing line, and reports to the page.

    A unit's clocks are read before it waits for the line and its stamp is taken after: the cost of a unit does not
    depend on the wait, and a unit is done when the line says so, the last one included. A unit on a device is done when
    the device is done with it.

    `page`: page to report to; None: the session counts in silence, on a page of its own.

    * `is_linked`: whether Punctual runs this process.
    * `finished`: whether the training has said that it is done, or has come to its goal: its loops end.
    * `declared_steps`: the total of the last loop, or of all of them together; 0: none was declared yet.
    * `is_of_parts`: whether that of all loops together was declared.
    """

    def __init__(self, page: SharedBlock | None = None) -> None:
        self.n_steps = 0
        self.step_open = False
        self.finished = False
        self.declared_steps = 0
        self.is_of_parts = False
        self.course = StepPlan()
        #: Checkpoints that a training of this process has gone on from, or made.
        self.checkpoints_used: set[str] = set()
        self.is_linked = page is not None
        self._page = page or SharedBlock.private()
        self._pacer = Pacer(self._page)
        self._losses = Losses(self._page, losses.goal() if page else None)
        self._declaration = Declaration(pid=process_number())
        self._phases: list[PhaseRecord] = []
        self._phase: PhaseRecord | None = None
        self._lap = Stopwatch()
        self._ends_with_program = self._has_ended = False
        self._has_told_cut = False
        self._reported: set[Fault | None] = set()
        self._refused: Directives | None = None
        self._device: DeviceClock | None = None
        self._has_device = True
        self._device_told_ns = 0
        #: When the present step's body began (0: it is not timed), moved on by the time of phases in it; when such a phase began.
        self._body_from_ns, self._interrupted_ns = 0, 0
        #: Number of bodies that were timed, and the shortest time.
        self._n_bodies, self._shortest_ns = 0, 0
        #: Time in which the process did not wait for Punctual, and until when that was counted.
        self._busy_ns, self._counted_ns = 0, monotonic_ns()

    def mute(self) -> None:
        """Stop reporting: the page belongs to another process."""
        self.is_linked, self._page = False, SharedBlock.private()
        self._pacer, self._losses = Pacer(self._page), Losses(self._page, None)

    def inherit(self, phase: PhaseRecord) -> None:
        """Take over another process's record of a phase."""
        self._phases.append(phase)

    def excuse_waits(self, excused: Callable[[], AbstractContextManager[None]]) -> None:
        """Wait for the pacing line inside of `excused()` only: others may have to wait for this process then."""
        self._pacer.excused = excused

    # Declarations.

    def begin_job(self, total_steps: int) -> None:
        """Declare the steps of all loops together, before the first of them."""
        self._begin_count(StepPlan(total_steps=total_steps))
        self.declared_steps, self.is_of_parts = total_steps, True

    def begin_loop(self, course: StepPlan, plan: Plan, *, continues: bool = False, may_follow: bool = False) -> int:
        """Declare a loop.

        * `continues`: a loop with the total of the one before is another part of the same count.
        * `may_follow`: whether a loop that comes after another, with a count of its own, is no fault of the script.

        Returns
        -------
        int
            Number of its first step.
        """
        if continues and course.total_steps == self.declared_steps > 0:
            return self.n_steps
        if self.is_of_parts:
            if not self.n_steps and course.start_step:
                self.n_steps = min(course.start_step, self.course.total_steps)
                self._declare(replace(self._declaration, start_step=self.n_steps))
            self.course = replace(self.course, n_steps_per_epoch=course.n_steps_per_epoch)
            first_step = self.n_steps
        elif self.declared_steps:
            first_step = self._add_loop(course, may_follow=may_follow)
        else:
            first_step = self._begin_count(course)
        if not self.is_of_parts:
            self.declared_steps = course.total_steps
        for name, (phase, n_planned) in plan.items():
            self._record(name).declare(phase, n_planned)
        self._publish_phases()
        return first_step

    def expect_more(self, n_steps: int) -> None:
        """Change the declared steps by `n_steps`; fewer if it is below zero."""
        if n_steps:
            self._set_total(max(self.n_steps + self.step_open, self.course.total_steps + n_steps))
            self._publish_phases()
            self._settle()

    def end_part(
        self, n_steps_missing: int, n_phases_more: int = 0, but: Collection[str] = (), *, is_all: bool
    ) -> None:
        """Note the end of a loop without its missing steps, which need not be done; `is_all`: its training is over.

        For phases see `end_early`.
        """
        self._ends_with_program |= not is_all
        self._end_phases(n_phases_more, but)
        self.expect_more(-max(0, n_steps_missing))
        self._publish_phases()
        self._settle()

    def end_loop(self) -> None:
        """Note the end of a loop over all epochs: phases that were learned in its body do not come after it."""
        for phase in self._phases:
            if phase.n_planned is None:
                phase.end_early(self.n_steps, 0)
        self._publish_phases()
        self._settle()

    def program_ended(self) -> None:
        """Note that the program has run to its end, with all work after its last step."""
        if self._ends_with_program:
            self.end_early(n_phases_more=0)
        if self._declaration.state == ProgramState.LANDED:
            self._publish_progress()

    def allow_stop(self, can_stop: bool = True) -> None:
        """Declare whether the script can be asked to stop."""
        self._declare(replace(self._declaration, can_stop=can_stop))

    @property
    def end_asked(self) -> int:
        """Exit code with which Punctual wants the process to end, after a checkpoint; 0: none."""
        directives = self._pacer.directives
        if directives.stop:
            return EXIT_STOPPED
        return EXIT_PREEMPTED if directives.leave and directives is not self._refused else 0

    def refuse_to_leave(self) -> None:
        """Train on without a checkpoint, and ignore the present request to leave."""
        self._refused = self._pacer.directives

    def leave(self) -> None:
        """Note that the checkpoint is made, and the process is about to end as Punctual wants."""
        if self.end_asked == EXIT_PREEMPTED:
            self._declare(replace(self._declaration, state=ProgramState.LEFT))

    # Steps.

    def start_training(self) -> None:
        """Note that the first step is about to begin: the time before was start-up."""
        if self._declaration.state == ProgramState.STARTING:
            # Warn of a job with workers whose program does not use them.
            if self._page.worker_target().n_workers and not self._page.worker_status().agent_pid:
                warn(
                    "a program run with `--workers` or `--gpus` must train through `punctual.elastic`", "a plain loop",
                    f"process {os.getpid()}",
                    "It goes on as one process, with the cores of as many workers as it is granted; write "
                    "`punctual.elastic(train)`, or leave the option out.",
                )  # fmt: skip
            self._counted_ns = monotonic_ns()  # what came before was start-up
            self._declare(replace(self._declaration, state=ProgramState.TRAINING))
            self._publish_progress()
            self._settle()

    def begin_step(self) -> None:
        """Begin a step, whose batch has come."""
        self.step_open = True
        self.begin_on_device()
        self._body_from_ns = monotonic_ns()

    def step_done(self, *, waits: bool = True) -> None:
        """Count the present step; `waits`: once the pacing line allows it. The hot path."""
        self.step_open = False
        self.n_steps += 1
        if self._body_from_ns:
            # Note the end of a step's body.
            taken_ns = monotonic_ns() - self._body_from_ns
            if not self._n_bodies or taken_ns < self._shortest_ns:
                self._shortest_ns = taken_ns
            self._n_bodies += 1
        if self.is_linked:
            self._complete(OUTSIDE, waits=waits)
            if self.n_steps >= self.course.total_steps:
                self._settle()

    def end_step(self) -> None:
        """Count the present step, unless a phase has ended it, or there is none."""
        if self.step_open:
            self.step_done()

    def report_loss(self, loss: float) -> None:
        """Report the loss of the present step; the training is finished with it if it reaches the goal."""
        self._losses.report(self.n_steps + self.step_open, loss)
        self.finished |= self.goal_reached

    @property
    def goal_reached(self) -> bool:
        """Whether the loss has reached the goal: the loop ends here."""
        return self._losses.goal_reached

    def end_early(self, n_phases_more: int, but: Collection[str] = ()) -> None:
        """Cancel the remaining steps; each kind of planned phase, `but` those named, may come so many times more."""
        self._has_ended = True
        self.start_training()
        self._end_on_device(is_done=True)
        self._set_total(self.n_steps)
        self._end_phases(n_phases_more, but)
        self._publish_phases()
        self._settle()

    def _end_phases(self, n_phases_more: int, but: Collection[str]) -> None:
        for phase in self._phases:
            if phase.name not in but:
                phase.end_early(self.n_steps, n_phases_more)

    def leave_step(self) -> None:
        """End a step that the loop was left in, unless it was only fetched, or all declared steps are done."""
        if self.step_open and self.n_steps < self.course.total_steps and not self._is_only_looked_at():
            self.step_done(waits=False)  # it may be left for an exception, which is not to wait
        self.step_open = False
        self._end_on_device(is_done=True)

    def _is_only_looked_at(self) -> bool:
        """Whether the present step has taken far less time than steps take: its batch was only fetched."""
        taken_ns = monotonic_ns() - self._body_from_ns
        # A step left, or interrupted by a phase, within a tenth of the shortest one has only been looked at: what stands
        # at the top of its body (a limit, an evaluation that comes first) takes far less than a step, and its end no less.
        # Two steps must be known: the first one is often much longer than those that follow.
        return self._n_bodies >= 2 and taken_ns < 0.1 * self._shortest_ns

    def tell_cut(self, n_steps: int) -> None:
        """Tell the author once that a loop ended after its declared steps though its iterable may have more."""
        if self.is_linked and not self._has_told_cut:
            self._has_told_cut = True
            tell(
                f"the loop ended after its {n_steps} steps; its iterable has no length and may have had more. If the training "
                "is to go on until it is good enough, give a larger `total_steps` and call `run.finish()` then."
            )

    # Phases.

    def begin_phase(self, name: str, n_units: int | None, is_rehearsal: bool) -> PhaseRecord | None:
        """Switch to phase `name` and return the interrupted one. A present step ends, unless it was only fetched."""
        if self.step_open and not self._is_only_looked_at():
            self._body_from_ns = 0  # what comes before a phase may not be all of the step
            self.step_done()
        record = self._record(name)
        if not is_rehearsal:
            record.begin(self.n_steps, n_units or record.n_units_each)
        return self._switch(record)

    def expect_units(self, n_units: int) -> None:
        """Declare the units that the present phase has left."""
        if self._phase is not None:
            self._phase.n_units_open = max(0, n_units)

    def units_done(self, n_units: int, is_rehearsal: bool) -> None:
        """Count units of the present phase."""
        if self._phase is None:
            return
        self._phase.device_ns += self._end_on_device(is_done=True)
        self._lap.charge(self._phase, n_units)
        if not is_rehearsal:
            self._phase.count(n_units)
        self._complete(self._i_phase())
        self.begin_on_device()
        self._lap.restart()

    def end_phase(self, n_units: int, is_rehearsal: bool, outer: PhaseRecord | None) -> None:
        """End the present phase with `n_units` units, and go back to `outer`."""
        if self._phase and not is_rehearsal:
            self._phase.end(n_units)
        self._switch(outer)

    def withdraw_phase(self, outer: PhaseRecord | None) -> None:
        """Go back to `outer` as if the present phase had not begun."""
        if self._phase:
            self._phase.withdraw()
        self._lap.restart()
        self._switch(outer)

    def _switch(self, phase: PhaseRecord | None) -> PhaseRecord | None:
        left, self._phase = self._phase, phase
        if left is None:
            self._interrupted_ns = monotonic_ns()
        device_ns = self._end_on_device(is_done=True)
        if left:
            left.device_ns += device_ns
            self._lap.charge(left, 0)
        self._publish_phases()
        self._publish_progress()
        self._settle()
        if phase or self.step_open:
            self.begin_on_device()
        if phase is None and self._body_from_ns:
            self._body_from_ns += monotonic_ns() - self._interrupted_ns
        self._lap.restart()
        return left

    def _record(self, name: str) -> PhaseRecord:
        for known in self._phases:
            if known.name in (name, short_name(name)):  # one that was inherited has the name that the page had room for
                known.name = name
                return known
        self._phases.append(PhaseRecord(name))
        if len(self._phases) > N_PHASES_MAX:
            self._report(
                Fault.TOO_MANY_PHASES, f"a training must not have more than {N_PHASES_MAX} kinds of phases",
                f"one more, '{name}',", "`punctual.phase`", "Give phases of one kind the same name.",
            )  # fmt: skip
        return self._phases[-1]

    def _i_phase(self) -> int:
        if self._phase is None:
            return OUTSIDE
        i = self._phases.index(self._phase)
        return i if i < N_PHASES_MAX else OUTSIDE

    # The page.

    def _complete(self, i_phase: int, *, waits: bool = True) -> None:
        """Publish a finished unit; `waits`: once the pacing line allows it."""
        if not self.is_linked:
            return
        self._pacer.refresh()
        is_paced = self._pacer.directives.pacing
        if self._device is not None:
            self._end_on_device(is_done=is_paced or self.n_steps >= self.course.total_steps)
        cpu_ns = process_time_ns()
        self._count_busy()
        if is_paced and waits:
            self._pacer.hold(self.n_steps, self._phases)
        if i_phase != OUTSIDE:
            self._publish_phases()
        self._counted_ns = monotonic_ns()
        device_ns = 0 if self._device is None else self._device.ns
        self._page.publish_progress(self.n_steps, self._counted_ns, cpu_ns, i_phase, self._busy_ns, device_ns)

    def _publish_progress(self) -> None:
        """Publish the process's position without a finished unit."""
        self._count_busy()
        device_ns = 0 if self._device is None else self._device.ns
        self._page.publish_progress(
            self.n_steps, self._counted_ns, process_time_ns(), self._i_phase(), self._busy_ns, device_ns
        )

    def _count_busy(self) -> None:
        now_ns = monotonic_ns()
        self._busy_ns += max(0, now_ns - self._counted_ns)
        self._counted_ns = now_ns

    # The device.

    def begin_on_device(self) -> None:
        """Begin a unit that may compute on a device; it may have to wait for a turn there."""
        if not self.is_linked:
            return
        try:
            if self._device is None and self._has_device:
                self._device = DeviceClock.of_this_process()
            if self._device is not None:
                self._counted_ns += self._device.begin()
        except Exception as error:  # noqa: BLE001 -- a training does not end because its device cannot be timed
            self._give_device_up(error)

    def _end_on_device(self, *, is_done: bool) -> int:
        """End the present unit on the device, if there is one; return the nanoseconds known by now."""
        device = self._device
        if device is None or not self.is_linked:
            return 0
        before_ns = device.ns
        try:
            device.end(is_done=is_done)
            now_ns = monotonic_ns()
            # Least nanoseconds between two reports of a device's memory.
            if now_ns - self._device_told_ns >= 1_000_000_000:
                self._device_told_ns = now_ns
                self._page.publish_device(device.use())
        except Exception as error:  # noqa: BLE001 -- the same; what is wrong with the device its own next call tells
            self._give_device_up(error)
        return device.ns - before_ns

    def _give_device_up(self, error: Exception) -> None:
        self._has_device, self._device = False, None
        warn(
            "a device must tell what its work takes", f"{type(error).__name__}: {error}", "`punctual.track`",
            "From here on the job is steered by its processor time.",
        )  # fmt: skip

    def _publish_phases(self) -> None:
        self._page.publish_phases([phase.entry(self.course) for phase in self._phases])

    def _declare(self, declaration: Declaration) -> None:
        if declaration == self._declaration:
            return
        self._declaration = declaration
        self._page.declare(declaration)

    # What was declared against what is done.

    def _begin_count(self, course: StepPlan) -> int:
        self.course = course
        self.n_steps = course.start_step
        self._declare(replace(self._declaration, total_steps=course.total_steps, start_step=course.start_step))
        if not course.total_steps:
            self._report(
                Fault.ZERO_STEPS, "a training must have at least one step", "0 steps", "`punctual.track`",
                "Check that the loader is not empty and that `epochs` or `total_steps` is above zero.",
            )  # fmt: skip
        return course.start_step

    def _add_loop(self, course: StepPlan, *, may_follow: bool) -> int:
        """Add a loop that was not declared: its steps come on top."""
        n_more = course.total_steps - course.start_step
        self.course = replace(self.course, n_steps_per_epoch=course.n_steps_per_epoch)
        if may_follow:
            self._report(
                None,
                "trainings of one script must be declared together to share the time up to the deadline",
                f"another one of {n_more} steps after {self.n_steps}",
                "this script",
                f"Call `punctual.total_steps({self.n_steps + n_more})` before the first of them; with more steps if others follow.",
            )
        else:
            self._report_more(f"another loop of {n_more} steps")
        self._set_total(self.n_steps + n_more)
        self._settle()
        return course.start_step

    def _settle(self) -> None:
        """Publish whether all declared work is done."""
        if self._declaration.state == ProgramState.STARTING:
            return
        has_overrun = self.n_steps > self.course.total_steps > 0
        if has_overrun:
            self._report_more(f"step {self.n_steps}")
            self._set_total(self.n_steps)
        state = ProgramState.LANDED if self._is_all_done() and not has_overrun else ProgramState.TRAINING
        self._declare(replace(self._declaration, state=state))

    def _is_all_done(self) -> bool:
        n_all = self.course.total_steps
        if self._phase or self.n_steps < n_all or not (n_all or self._has_ended):
            return False
        return not any(phase.n_units_left(self.course) for phase in self._phases)

    def _report_more(self, got: str) -> None:
        self._report(
            Fault.MORE_STEPS, f"a training must not take more than the {self.course.total_steps} steps declared", got,
            "`punctual.track`",
            "Declare all steps at the first call (`epochs=10`; in a loop of your own `total_steps=10 * len(loader)`; of several "
            "loops together `punctual.total_steps(1000)`), and put evaluation into `punctual.phase`.",
        )  # fmt: skip

    def _set_total(self, total_steps: int) -> None:
        self.course = replace(self.course, total_steps=total_steps)
        self._declare(replace(self._declaration, total_steps=total_steps))

    def _report(self, fault: Fault | None, must: str, got: str, where: str, remedy: str) -> None:
        """Report a fault once to the script's author and, unless it is harmless, to Punctual; silent without a link."""
        if not self.is_linked or fault in self._reported:
            return
        self._reported.add(fault)
        warn(must, got, where, remedy)
        if fault is not None:
            self._declare(replace(self._declaration, fault=fault))


_session: Session | None = None


def end_program() -> None:
    """Tell that the program has run to its end."""
    if _session is not None:
        _session.program_ended()


def current() -> Session:
    """Return the session of this process; the first call makes it and claims the page."""
    global _session
    if _session is None:
        _session = Session(connect())
    return _session


def install(session: Session) -> None:
    """Make `session` this process's own; the one before reports nothing any more."""
    global _session
    if _session is not None and _session is not session:
        _session.mute()
    _session = session


def _mute_child() -> None:
    """Mute the session in a forked child (a worker of a data loader), which must not count on its parent's page."""
    if _session is not None:
        _session.mute()


os.register_at_fork(after_in_child=_mute_child)


def connect() -> SharedBlock | None:
    """Return the job's page, claimed by this process; None if there is none to claim.

    Of several processes that torchrun has started here it is the first, which makes the checkpoints in most scripts.
    """
    path = os.environ.get(BLOCK_VARIABLE)
    if not path or os.environ.get("LOCAL_RANK", "0") != "0":
        return None
    try:
        with _locked(path):
            page = SharedBlock.open(path)
            if _is_alive(page.declaration().pid):
                page.close()
                return None
            page.declare(Declaration(pid=process_number()))
            page.publish_phases([])
            return page
    except (OSError, PageError) as error:
        warn(f"`{BLOCK_VARIABLE}` must name a page of Punctual", f"{error}", f"process {os.getpid()}",
             "Training goes on without a deadline. Start it with `punctual run`; in a container, or with process numbers of "
             "its own (`unshare --pid`), have its output read (`--progress-regex auto`, with `--steps`).")  # fmt: skip
        return None


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock the page's claim: processes that start together, as distributed training does, must not all find it free."""
    fd = os.open(path, os.O_RDWR)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)


def _is_alive(pid: int) -> bool:
    """Whether another process holds this id; a program that replaced itself by `exec` keeps its own."""
    if pid in {0, process_number()}:
        return False
    if os.path.exists("/proc"):  # noqa: PTH110 -- pathlib takes long to load
        return os.path.exists(f"/proc/{pid}")  # noqa: PTH110 -- the same
    try:
        os.kill(pid, 0)
    except OSError:
        return False
    return True
