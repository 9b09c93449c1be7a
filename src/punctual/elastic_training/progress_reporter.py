"""Reports of the first worker to Punctual; the others are silent."""

import os
from dataclasses import replace

from punctual.channel import BLOCK_VARIABLE, PageError, SharedBlock
from punctual.elastic_training.agent_client import AgentClient
from punctual.tracking import stop
from punctual.tracking.complaint import invalid, warn
from punctual.tracking.declaration import Phases, by_name
from punctual.tracking.record import PhaseRecord, StepPlan
from punctual.tracking.session import Session, current, install


class ProgressReporter:
    """Session of this worker, which reports only while the worker is the first one."""

    def __init__(self, agent: AgentClient) -> None:
        self._agent = agent
        self._course: StepPlan | None = None
        self._n_epochs = 0
        self._phases: Phases = ()
        self._session: Session | None = None
        self._speaks = self._can_stop = False

    def take(self, *, is_first: bool, is_beginning: bool, n_steps: int) -> None:
        """Start or stop reporting.

        `is_beginning`: the training begins: nobody has spoken for this job before, unless another process of the script
        has.
        """
        if self._session is None or is_first != self._speaks:
            self._session = _speaking(is_beginning) if is_first else Session()
            self._session.excuse_waits(self._agent.excused)
            install(self._session)
            self._speaks = is_first
            if self._course is not None:
                self._begin(self._session, n_steps)
        if self._course is not None:
            self._session.n_steps = n_steps

    @property
    def session(self) -> Session:
        if self._session is None:
            raise invalid(
                "an elastic training must be entered before its loops",
                "a loop, or an evaluation, outside",
                "`context.elastic`",
                "Write `with context.elastic(...) as run:`, and the loops inside it.",
            )
        return self._session

    def declare(self, course: StepPlan, n_epochs: int, phases: Phases, *, can_stop: bool) -> None:
        """Declare the steps of the whole job, as they are known at the beginning of an epoch, which may differ in length.

        * `course`: steps done, of the whole job, and of the present epoch.
        * `n_epochs`: epochs of the whole training.
        * `can_stop`: whether the training can be asked to stop.
        """
        before, self._course = self._course, course
        self._n_epochs, self._phases, self._can_stop = n_epochs, phases, can_stop
        if before is None:
            self._begin(self.session, course.start_step)
        else:
            self.session.expect_more(course.total_steps - before.total_steps)

    def _begin(self, session: Session, n_steps: int) -> None:
        assert self._course is not None, "declare() comes first"
        course = replace(self._course, start_step=n_steps)
        # Count the epochs as if all were as long as the present one.
        total_steps = self._n_epochs * course.n_steps_per_epoch
        alike = replace(course, start_step=total_steps - (course.total_steps - n_steps), total_steps=total_steps)
        plan = {name: (phase, alike.n_occurrences_left(phase)) for name, phase in by_name(self._phases).items()}
        session.begin_loop(course, plan)
        if self._can_stop or stop.has_hooks():
            session.allow_stop()
        session.start_training()

    def end_early(self, n_steps: int, *, n_phases_more: int) -> None:
        """Declare that no step follows `n_steps`, and how often the phases after an epoch follow."""
        if self._course is not None:
            self._course = replace(self._course, total_steps=n_steps)
        self.session.end_early(n_phases_more)

    def end(self, exit_code: int) -> None:
        """End the process as Punctual asked; the first worker calls the script's hooks."""
        if self._speaks:
            stop.obey(exit_code)
            self.session.leave()
        raise SystemExit(exit_code)

    def refuse_to_leave(self) -> None:
        """Refuse to leave, because there is no checkpoint to continue from."""
        if self._speaks:
            warn(
                "a training that is to make room must have written its checkpoint", "none", "this training",
                "It trains on; give it a `--checkpoint-dir` with room.",
            )  # fmt: skip
            self.session.refuse_to_leave()


def _speaking(is_beginning: bool) -> Session:
    """Open a session with the page, even if the worker that had it has died without releasing it."""
    path = os.environ.get(BLOCK_VARIABLE)
    if is_beginning or not path:
        return current()
    try:
        page = SharedBlock.open(path)
    except (OSError, PageError):
        return Session()
    session = Session(page)
    for entry in page.phases():
        session.inherit(PhaseRecord.of(entry))
    return session
