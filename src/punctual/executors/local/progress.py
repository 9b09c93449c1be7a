"""Progress of a job, read from its page or from its output."""

import threading
import time
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, fields, replace
from math import isfinite
from typing import Self

from punctual.channel import DeviceUse, Directives, Fault, PhaseEntry, ProgramState, SharedBlock
from punctual.core.control import PacingLine, PhaseProgress
from punctual.core.events import ProgressReported
from punctual.core.ids import JobId
from punctual.core.loss import SeenLoss
from punctual.core.reason import Reason
from punctual.executors.local.process_tree import active_s, cpu_clock_ns
from punctual.progress_text.own import AUTO
from punctual.progress_text.reader import NO_TOTAL, READ, ProgressReader

#: Seconds for which a line's anchor may lie ahead: ten years. Many times more nanoseconds exceed the page's numbers,
#: and an instant so far away is no exact one.
_ANCHOR_S_MAX = 3e8
#: More steps, or units of a phase, are not counted: above, floating-point numbers do not tell one count from the next.
N_STEPS_MAX = 2**53


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgressSample:
    """See `punctual.core.events.ProgressReported`; `unit_at` None: nothing was reported yet.

    `unreadable`: why not all that the job says is read or believed; empty: it is. `is_read`: the numbers are read from the
    job's output, and the job knows nothing of it.
    """

    steps_done: float = 0.0
    steps_total: float | None = None
    unit_at: float | None = None
    in_flight_core_s: float = 0.0
    landed: bool = False
    busy_s: float = 0.0
    device_s: float = 0.0
    active_s: float = 0.0
    unreadable: str = ""
    is_read: bool = False

    @classmethod
    def of(cls, report: ProgressReported) -> Self:
        """Return the sample that was reported so."""
        return cls(**{name: getattr(report, name) for name in _REPORTED})

    def report(
        self, at: float, job: JobId, started_at: float, used_core_s: float, memory_bytes: int = 0
    ) -> ProgressReported:
        """Return the report of the sample; where nothing was reported yet, the first unit begins at `started_at`."""
        known = {name: getattr(self, name) for name in _REPORTED}
        known["unit_at"] = started_at if self.unit_at is None else self.unit_at
        return ProgressReported(at=at, job=job, used_core_s=used_core_s, memory_bytes=memory_bytes, **known)

    @property
    def all_steps_done(self) -> bool:
        return self.steps_total is not None and self.steps_done >= self.steps_total > 0


#: Fields that a sample has in common with its report.
_REPORTED = [field.name for field in fields(ProgressSample) if field.name != "unreadable"]


class PageProgress:
    """A job that uses `punctual.track`.

    `submitted_at`: instant that the times of pacing lines count from; no unit has ended before.
    """

    def __init__(self, page: SharedBlock, submitted_at: float) -> None:
        self._page = page
        self._submitted_at = self._begun_at = submitted_at
        self._phases_version = -1  # whatever the page says already is new here
        self._phases: list[PhaseEntry] = []
        self._line: PacingLine | None = None
        self._directives = page.directives()
        self._n_losses = page.losses()[0]
        #: Faults that the job's own process noticed.
        self.faults: set[Fault] = set()

    @property
    def is_claimed(self) -> bool:
        """Whether a process of the job has written to its page."""
        declared, progress = self._page.declaration(), self._page.progress()
        return declared.pid != 0 or progress.stamp_ns != 0 or bool(self._page.disbelieved)

    @property
    def can_stop(self) -> bool:
        return self._page.declaration().can_stop

    @property
    def is_asked_to_leave(self) -> bool:
        """Whether the job has been asked to make a checkpoint and end, to be started again from it."""
        return self._directives.leave

    def latest(self, used_core_s: float) -> ProgressSample:
        """Return the latest progress; `used_core_s` is the CPU time that the job has used by now."""
        # The declaration first: what it says is done at the latest by the progress that is read after it.
        declaration, progress = self._page.declaration(), self._page.progress()
        if declaration.fault:
            self.faults.add(declaration.fault)
        told_at = progress.stamp_ns / 1e9
        unit_at = min(max(told_at, self._begun_at), time.monotonic())
        if progress.stamp_ns and unit_at != told_at:
            self._page.disbelieved.add("progress")
        n_steps = min(progress.n_steps, N_STEPS_MAX)
        if n_steps < progress.n_steps:
            self._page.disbelieved.add("progress")
        unreadable = _disbelief(self._page.disbelieved)
        if not progress.stamp_ns:
            return ProgressSample(unreadable=unreadable)
        clock_ns = cpu_clock_ns(declaration.pid) if declaration.pid else None
        return ProgressSample(
            steps_done=n_steps,
            # A total beyond all counting is one without an end: `sys.maxsize`, say.
            steps_total=min(declaration.total_steps, N_STEPS_MAX) or None,
            unit_at=unit_at,
            # Of workers that train together one speaks, and each has done as much.
            in_flight_core_s=min(
                (0.0 if clock_ns is None else max(0, clock_ns - progress.cpu_ns) / 1e9)
                * max(1, self._page.worker_status().n_workers),
                used_core_s,
            ),
            landed=declaration.state == ProgramState.LANDED,
            busy_s=progress.busy_ns / 1e9,
            device_s=progress.device_ns / 1e9,
            active_s=active_s(declaration.pid),
            unreadable=unreadable,
        )

    def begin(self, at: float) -> None:
        """Ignore units that ended before the process was started, at that instant."""
        self._begun_at = at

    def landed_at(self) -> float | None:
        latest = self.latest(0.0)
        return latest.unit_at if latest.all_steps_done else None

    @property
    def reporter_pid(self) -> int:
        """Process id of the reporting process; 0: it is not known."""
        return self._page.declaration().pid

    def device_use(self) -> DeviceUse | None:
        """Device that the job computes on; None: it reports none."""
        device = self._page.device()
        return device if device.name else None

    def new_phases(self) -> tuple[PhaseProgress, ...] | None:
        """Return the job's phases; None: they have not changed."""
        version = self._page.phases_version()
        if version == self._phases_version:
            return None
        self._phases_version, before = version, self._phases
        self._phases = self._page.phases()
        if [entry.name for entry in self._phases] != [entry.name for entry in before]:
            self.pace(self._line)  # costs go by the place in the table
        return None if self._phases == before else tuple(_phase(entry) for entry in self._phases)

    def new_losses(self) -> tuple[SeenLoss, ...]:
        """Return the losses since the last call, in order of steps; only the last of them, if there were many."""
        n_losses, latest = self._page.losses()
        n_new, self._n_losses = n_losses - self._n_losses, n_losses
        return tuple(SeenLoss(float(steps), loss) for steps, loss in latest[-n_new:]) if n_new > 0 else ()

    def pace(self, line: PacingLine | None) -> None:
        """Keep the job to `line`."""
        self._line = line
        self._send(_directives(line, self._submitted_at, self._phases, stop=self._directives.stop))

    def ask_to_stop(self) -> None:
        """Ask the job to make a checkpoint and end; only if it `can_stop`."""
        self._send(replace(self._directives, pacing=False, leave=False, stop=True))

    def ask_to_leave(self) -> None:
        """Ask the job to make a checkpoint and end, to be started again from it; `pace` withdraws the request."""
        self._send(replace(self._directives, pacing=False, leave=True))

    def heartbeat(self) -> None:
        """Renew the heartbeat, which shows the job that it is steered."""
        self._page.heartbeat(time.monotonic_ns())

    def _send(self, directives: Directives) -> None:
        if directives != self._directives:
            self._directives = directives
            self._page.send(directives)


class OutputProgress:
    """Progress of a job whose output is read.

    * `pattern`: see `punctual.core.program.Program`; None: it may use `punctual.track`, and does not yet.
    * `steps_total`, `deadline_s`: declarations of the user; None: there are none.
    * `latest`: progress known so far.

    Raises `InvalidSpec`: the pattern cannot be used.
    """

    def __init__(
        self, pattern: str | None, steps_total: float | None, deadline_s: float | None, latest: ProgressSample
    ) -> None:
        self._asked_for, self._has_deadline = pattern, deadline_s is not None
        self._reader = ProgressReader(
            deadline_s=deadline_s,
            steps_total=steps_total or latest.steps_total,
            steps_before=latest.steps_done,
            pattern=pattern,
        )
        self._lock = threading.Lock()
        self._latest = latest
        self._unit_core_s = 0.0
        self._is_all_read = True
        self._notices: list[Reason] = []

    def receive(self, output: bytes, used_core_s: float, stream: int = 1) -> None:
        at = time.monotonic()
        with self._lock:
            if self._reader.feed(output, at, stream):
                self._advance(at, used_core_s)
            self._note()

    def finish(self, used_core_s: float, *, is_all_read: bool = True) -> None:
        self._is_all_read = is_all_read
        for stream in (1, 2):
            self.receive(b"\n", used_core_s, stream)

    def _advance(self, at: float, used_core_s: float) -> None:
        belief, latest = self._reader.belief, self._latest
        if belief is None or not belief.is_sure:  # what was believed before is not acted on any more
            self._latest = replace(latest, steps_total=None)
            return
        if belief.steps != latest.steps_done or latest.unit_at is None:
            self._unit_core_s = used_core_s
            latest = replace(latest, steps_done=min(belief.steps, N_STEPS_MAX), unit_at=at)
        total = None if belief.total is None else min(belief.total, N_STEPS_MAX)
        self._latest = replace(latest, steps_total=total, is_read=True)

    def _note(self) -> None:
        for notice in self._reader.new_notices():
            text = notice.text
            if notice.code == READ:
                why = "the program does not use `punctual.track`: " if self._asked_for is None else ""
                text = f"{why}progress is read from its output, {text}"
            self._notices.append(replace(notice, text=text))

    def new_notices(self) -> tuple[Reason, ...]:
        with self._lock:
            notices, self._notices = self._notices, []
        return tuple(notices)

    def shortfall(self) -> Reason | None:
        if not self._is_all_read:  # what is missing may be what was not read
            return None
        with self._lock:
            if self._latest.unit_at is None and not self._reader.is_counted:
                return Reason("no-progress", _never_known(self._asked_for)) if self._has_deadline else None
            notice = self._reader.shortfall()
        return notice if self._has_deadline or notice is None or notice.code != NO_TOTAL else None

    def latest(self, used_core_s: float) -> ProgressSample:
        with self._lock:
            in_flight_core_s = max(0.0, used_core_s - self._unit_core_s)
            return replace(self._latest, in_flight_core_s=in_flight_core_s)


class JobProgress(PageProgress):
    """Progress of a job by its page or its output, and requests to the job.

    The page is one that the program writes to once it uses `punctual.track`, and does not know of if its output alone is
    read.

    `output`: progress by the output, until then; None: the program must report its progress itself.
    """

    def __init__(self, page: SharedBlock, submitted_at: float, output: OutputProgress | None) -> None:
        super().__init__(page, submitted_at)
        self._output = output
        self._is_tracked = output is None

    @property
    def _read(self) -> OutputProgress | None:
        """The output, if it is read; None: the program reports its progress itself."""
        self._is_tracked = self._is_tracked or self.is_claimed
        return None if self._is_tracked else self._output

    @property
    def is_tracked(self) -> bool:
        """Whether the job reports its progress itself."""
        return self._read is None

    def receive(self, output: bytes, used_core_s: float, stream: int = 1) -> None:
        """Take in output of one stream, written when the job had used that much CPU time; called by other threads."""
        if (read := self._read) is not None:
            read.receive(output, used_core_s, stream)

    def finish(self, used_core_s: float, *, is_all_read: bool = True) -> None:
        """End the reading; the job writes nothing more. `is_all_read`: whether all that it wrote was received."""
        if (read := self._read) is not None:
            read.finish(used_core_s, is_all_read=is_all_read)

    def latest(self, used_core_s: float) -> ProgressSample:
        page = super().latest(used_core_s)
        if (read := self._read) is None:
            return page
        return replace(read.latest(used_core_s), unreadable=page.unreadable)

    def landed_at(self) -> float | None:
        """Instant at which all declared work was done; None: at the end of the process, as output does not show it."""
        return super().landed_at() if self.is_tracked else None

    def new_notices(self) -> tuple[Reason, ...]:
        """Return notices of how progress is read, since the last call."""
        return () if (read := self._read) is None else read.new_notices()

    def shortfall(self) -> Reason | None:
        """Return a warning of a job that succeeded before its output counted to the end; None if it did."""
        return None if (read := self._read) is None else read.shortfall()


def _disbelief(disbelieved: AbstractSet[str]) -> str:
    if not disbelieved:
        return ""
    return (
        f"what its process wrote to its page of its {', '.join(sorted(disbelieved))} cannot be, as if something else had "
        "written there; what cannot be is left out, so its progress may not be known"
    )


def _never_known(pattern: str | None) -> str:
    if pattern is not None and pattern != AUTO:
        return "`--progress-regex` fitted no line that the program wrote, so the job ran at full speed; try it: `punctual read FILE`"
    return (
        "nothing that the program wrote counts its steps, so the job ran at full speed; go through the batches with "
        "`punctual.track`, or give an expression that fits its lines (`--progress-regex`, tried by `punctual read FILE`)"
    )


def _phase(entry: PhaseEntry) -> PhaseProgress:
    return PhaseProgress(
        name=entry.name,
        units_planned=min(entry.units_planned, N_STEPS_MAX),
        units_done=min(entry.n_units_done, N_STEPS_MAX),
        units_measured=min(entry.n_units_measured, N_STEPS_MAX),
        core_s=entry.cpu_ns / 1e9,
        wall_s=entry.wall_ns / 1e9,
        cost_steps=min(entry.cost_steps, N_STEPS_MAX) if entry.cost_steps >= 0 else None,
        device_s=entry.device_ns / 1e9,
    )


def _directives(line: PacingLine | None, submitted_at: float, phases: list[PhaseEntry], stop: bool) -> Directives:
    anchor = None if line is None or stop else _anchor(line, submitted_at)
    if line is None or anchor is None:
        return Directives(stop=stop)
    at, work = anchor
    return Directives(
        pacing=True,
        end_ns=int(at * 1e9),
        end_work=work,
        ns_per_step=line.s_per_step * 1e9,
        phase_cost_steps=tuple(line.phase_cost_steps.get(phase.name, 0.0) for phase in phases),
    )


def _anchor(line: PacingLine, submitted_at: float) -> tuple[float, float] | None:
    """Return an instant and the work at it, on the line: its end, or a point before; None: the line is invalid."""
    beyond_s = max(0.0, line.end_s - _ANCHOR_S_MAX)
    work = line.end_work - (beyond_s / line.s_per_step if beyond_s and line.s_per_step else 0.0)
    at = submitted_at + max(line.end_s - beyond_s, -_ANCHOR_S_MAX)
    numbers = (line.end_s, at, work, line.s_per_step * 1e9, *line.phase_cost_steps.values())
    return (at, work) if all(map(isfinite, numbers)) else None
