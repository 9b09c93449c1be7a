"""One job from its launch to its end."""

import logging
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

from punctual.core.commands import LaunchJob, ResizeJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantApplied,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    LossReported,
    PhaseReported,
    ProgressReported,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import Allocation
from punctual.core.protocols import Clock, Sink
from punctual.core.resources import Resources
from punctual.executors.local.actuator import Actuator, Footprint, Group, group_name, remove_dir
from punctual.executors.local.environment import job_environment
from punctual.executors.local.faults import found_faults
from punctual.executors.local.keeper import GRACE_S, LaunchRequest
from punctual.executors.local.keeper_link import (
    KeeperLink,
    Kept,
    SteeringLostError,
    listen_for_takeover,
    start_keeper,
    takeover_socket_of,
)
from punctual.executors.local.mounts import is_in_memory
from punctual.executors.local.output import Relay, new_output, write_through
from punctual.executors.local.process_tree import cpu_clock_ns
from punctual.executors.local.program import Program
from punctual.executors.local.progress import Latest, OutputProgress, PageProgress, ProgressSource
from punctual.executors.local.progress_text import ProgressText
from punctual.executors.local.workers import Answer, Workers, n_workers_in
from punctual.wire import Page, WorkerStatus

_LOG = logging.getLogger(__name__)

#: How long the last of the output may take to arrive once all that wrote it have ended.
_OUTPUT_S_MAX = 5.0
_LOOK_S = 0.05
_WORKERS_LOOK_S = 0.02


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What all jobs of an executor have in common; see there."""

    node: NodeId
    actuator: Actuator
    runtime_dir: Path
    clock: Clock
    stop_grace_s: float
    on_kept: Callable[[JobId, int], None]


class _NotBegunError(Exception):
    """The keeper could not start the job."""


class JobRun:
    """A process with its keeper, its group and its page. The thread that waits for its end answers `launch`.

    Everything another thread may look at at the same time is guarded by one lock, so that nothing is reported of a job
    once its end has been.

    Parameters
    ----------
    page
        File and page through which the job reports; None: its output is read.
    latest
        What is known of its progress.
    """

    def __init__(
        self,
        place: Place,
        program: Program,
        launch: LaunchJob,
        sink: Sink,
        page: tuple[Path, Page] | None,
        latest: Latest,
    ) -> None:
        self._place = place
        self._program = program
        self._launch = launch
        self._sink = sink
        self._lock = threading.RLock()
        self._request = launch.request
        self._grant = _grant_on(launch.grant, place.node)
        self._granted_cores = 0.0
        self._used_core_s = 0.0
        self._started_at: float | None = None
        self._job_pid = 0
        self._group: Group | None = None
        self._ended = False
        self._succeeded = False
        self._link_closed = False
        self._stop_cause: str | None = None
        self._stop_timer: threading.Timer | None = None
        self._page_path: Path | None = None
        self._workers: Workers | None = None
        self._progress: ProgressSource = self._make_progress(page, latest)
        self._relay: Relay | None = None
        self._takeover_socket = takeover_socket_of(place.runtime_dir, launch.job)
        self._takeover_fd: int | None = None
        self._link: KeeperLink | None = None
        self._thread = threading.Thread(target=self._live, name=f"punctual-job-{launch.job}", daemon=True)

    @classmethod
    def launched(cls, place: Place, program: Program, launch: LaunchJob, sink: Sink) -> Self:
        """A job that is to be started; raises `OSError` if there is no room for its page."""
        is_read = program.progress_pattern is not None
        page = None if is_read else _new_page(place.runtime_dir, f"{group_name(launch.job)}.page")
        run = cls(place, program, launch, sink, page, Latest())
        if run._workers is not None:
            run._workers.set_target(n_workers_in(launch.spec, run._grant))
        if program.is_read:
            run._relay = Relay(run._receive, *new_output())
        return run

    @classmethod
    def taken_over(
        cls, place: Place, program: Program, launch: LaunchJob, sink: Sink, kept: Kept, latest: Latest
    ) -> Self:
        """A job that another process has launched; raises `OSError`, and `PageError`, if its files cannot be used."""
        request = kept.request
        page = None if request.page is None else (Path(request.page), Page.open(request.page))
        run = cls(place, program, launch, sink, page, latest)
        run._link, run._job_pid, run._started_at = kept.link, kept.job_pid, kept.started_at
        run._group = place.actuator.find(_footprint(request), kept.link.pid)
        run._find_grant(run._group)
        if kept.output_fd is not None:
            run._relay = Relay(run._receive, kept.output_fd)
        return run

    @property
    def ended(self) -> bool:
        return self._ended

    @property
    def worker_status(self) -> WorkerStatus | None:
        """The job's workers; None: it is not made of them."""
        return None if self._workers is None else self._workers.status

    @property
    def held(self) -> Allocation:
        """What the job holds, as last read back."""
        return self._granted()

    def start(self) -> None:
        """Set out to start the process, which is answered from another thread; or to follow one taken over."""
        self._thread.start()

    def say_started(self, request: int, sink: Sink) -> None:
        """Answer a launch that was asked for again; one still under way is answered under the new number."""
        with self._lock:
            self._request = max(self._request, request)
            if self._started_at is not None and not self._ended:
                sink(self._job_started())

    def resize(self, command: ResizeJob, sink: Sink) -> None:
        """Put another grant and pacing line in force."""
        with self._lock:
            if self._ended or self._group is None or self._started_at is None or command.request < self._request:
                return
            self._request = command.request
            self._grant = _grant_on(command.grant, self._place.node)
            try:
                answered = self._apply(self._group, command)
            except OSError as error:
                sink(self._grant_failed(f"'{error.filename}': {error.strerror}"))
                return
            if answered:
                sink(self._grant_applied())
            else:
                self._await_workers(command.request, sink)

    def observe(self, at: float, sink: Sink) -> None:
        """Report progress and usage, if the job runs."""
        with self._lock:
            if self._ended or self._started_at is None:
                return
            self._report(at, sink)
            self._progress.heartbeat()

    def stop(self, cause: str) -> None:
        """Have the job end, after a checkpoint if it can make one; returns at once."""
        with self._lock:
            if self._ended or self._stop_cause is not None:
                return
            self._stop_cause = cause
            if not self._progress.can_stop or self._group is None:
                self.terminate()
                return
            with suppress(OSError):
                self._granted_cores = self._group.grant(math.inf)  # the sooner the checkpoint is written
            self._progress.ask_to_stop()
            self._progress.heartbeat()
            self._stop_timer = threading.Timer(self._place.stop_grace_s, self.terminate)
            self._stop_timer.daemon = True
            self._stop_timer.start()

    def terminate(self) -> None:
        """SIGTERM for the job; said again, SIGKILL."""
        with self._lock:
            self._stop_cause = self._stop_cause or "Punctual is ending"
            if self._link is not None and not self._link_closed:
                self._link.terminate()

    def close(self) -> None:
        """Wait for the end of a job that was told to end, and see to it."""
        self._thread.join(GRACE_S + 2 * _OUTPUT_S_MAX)
        if self._thread.is_alive() and self._link is not None:
            self._link.kill()
            self._thread.join()

    def faults(self) -> list[InvalidSpec]:
        """What the job said of its steps and did not do, once it has ended with success."""
        with self._lock:
            if not self._succeeded:
                return []
            latest = self._progress.latest(self._used_core_s)
            return found_faults(
                self._launch.job, faults=self._progress.faults, reported=latest.unit_at is not None,
                steps_done=latest.steps_done, steps_total=latest.steps_total,
                is_read=self._program.progress_pattern is not None,
            )  # fmt: skip

    # Starting.

    def _make_progress(self, placed: tuple[Path, Page] | None, latest: Latest) -> ProgressSource:
        if placed is None:
            text = ProgressText(self._program.progress_pattern or "auto")
            return OutputProgress(text, self._launch.spec.work_steps, latest)
        self._page_path, page = placed
        if self._launch.spec.worker is not None:
            self._workers = Workers(page, self._launch.spec.worker)
        return PageProgress(page, self._program.submitted_at)

    def _find_grant(self, group: Group) -> None:
        """What a job that was taken over holds. Nobody has held it to its quota meanwhile, but its workers are as many."""
        worker = self._launch.spec.worker
        if self._workers is None or worker is None:
            self._grant = replace(self._grant, cores=group.granted_cores())
        else:
            self._grant = worker * max(1, self._workers.status.n_workers or self._workers.n_target)
        self._granted_cores = self._grant.cores

    def _live(self) -> None:
        """From its start, or from when it was taken over, to its end; in a thread of its own."""
        if self._started_at is not None:
            self._follow()
            return
        try:
            began = self._begin()
        except Exception as error:  # noqa: BLE001 -- whatever it is, an answer is due
            _LOG.debug("job '%s' could not be started", self._launch.job, exc_info=True)
            self._answer_failure(error)
            return
        if "failed" in began:
            self._finish(began)
        else:
            self._see_through(began)

    def _begin(self) -> dict[str, Any]:
        """Start keeper, group and process; the keeper's answer, which may be that the program cannot be run."""
        link = self._start_keeper()
        if link.read() is None:
            raise _NotBegunError("the keeper has ended before it began")
        self._place.on_kept(self._launch.job, link.pid)
        group = self._place.actuator.open(self._launch.job, link.pid)
        with self._lock:
            self._group = group
            self._granted_cores = group.grant(self._grant.cores)
        link.send(self._launch_request(group))
        answer = link.read()
        if answer is None:
            raise _NotBegunError("the keeper has ended before it began")
        return answer

    def _start_keeper(self) -> KeeperLink:
        relay = self._relay
        prefix = self._place.actuator.keeper_prefix()
        with self._lock, listen_for_takeover(self._takeover_socket) as listening:
            if self._stop_cause is not None:
                raise _NotBegunError("it was stopped before it began")
            self._takeover_fd = listening.fileno()
            if relay is None:
                self._link = start_keeper(prefix, takeover_fd=self._takeover_fd)
                return self._link
            try:
                self._link = start_keeper(prefix, relay.write_fd, relay.read_fd, self._takeover_fd)
            finally:
                relay.start()
            return self._link

    def _launch_request(self, group: Group) -> LaunchRequest:
        program, launch, footprint = self._program, self._launch, group.footprint
        page = None if self._page_path is None else str(self._page_path)
        ceiling = launch.spec.ceiling if self._workers is None else launch.spec.worker or launch.spec.ceiling
        environment = job_environment(program, launch.job, ceiling.cores, page, os.environ)
        return LaunchRequest(
            argv=list(program.argv),
            cwd=program.cwd,
            environment=environment,
            entrances=[str(path) for path in footprint.entrances],
            lift=[[str(path), text] for path, text in footprint.lift],
            usage_file=None if footprint.usage_file is None else str(footprint.usage_file),
            remove_dirs=[str(path) for path in footprint.remove_dirs],
            remove_files=[str(self._takeover_socket), *([] if page is None else [page])],
            drain_fd=None if self._relay is None else self._relay.read_fd,
            takeover_fd=self._takeover_fd,
            actuator=self._place.actuator.name,
            page=page,
            progress_pattern=program.progress_pattern,
        )

    def _answer_failure(self, error: Exception) -> None:
        """The process never was: what stood ready for it goes, and the launch is answered."""
        with self._lock:
            self._ended = True
            self._clear_away()
            if self._stop_cause is not None:
                self._sink(self._job_failed(f"stopped: {self._stop_cause}", None))
            else:
                self._sink(self._grant_failed(str(error)))

    # Running.

    def _follow(self) -> None:
        """See a job through that was taken over."""
        assert self._link is not None
        if self._relay is not None:
            self._relay.start()
        self._finish_when_told(self._link)

    def _finish_when_told(self, link: KeeperLink) -> None:
        try:
            last = link.await_end(self._takeover_socket, None, self._regain)
        except SteeringLostError:
            _LOG.warning("job '%s' was taken over by another process", self._launch.job)
            with self._lock:
                self._ended = True
            return
        self._finish(last)

    def _regain(self) -> None:
        """While nobody steered the job it had no quota."""
        with self._lock:
            if self._group is not None and not self._ended:
                self._group.grant(self._granted_cores)

    def _see_through(self, began: Mapping[str, Any]) -> None:
        assert self._link is not None
        with self._lock:
            self._job_pid = began["started"]
            self._started_at = began["at_ns"] / 1e9
            self._sink(self._job_started())
        self._finish_when_told(self._link)

    def _apply(self, group: Group, command: ResizeJob) -> bool:
        """Put the grant in force; False: its workers take a while."""
        if self._stop_cause is not None:  # the quota was lifted so that the end comes soon
            return True
        answered = self._set_worker_target()
        # Newcomers need theirs before they come, and those that leave theirs until they have.
        cores = self._grant.cores if answered else max(self._grant.cores, self._granted_cores)
        self._granted_cores = group.grant(cores)
        self._progress.pace(command.pacing)
        self._progress.heartbeat()
        return answered

    # Workers.

    def _set_worker_target(self) -> bool:
        """Have the agent bring about the workers granted; whether they are there already."""
        if self._workers is None:
            return True
        n_workers = n_workers_in(self._launch.spec, self._grant)
        answer = self._workers.answer()
        if n_workers == self._workers.n_target and (answer is None or not answer.cause):
            return answer is not None
        self._workers.set_target(n_workers)
        return False

    def _await_workers(self, request: int, sink: Sink) -> None:
        """Answer command `request` once its workers are there, from another thread."""
        name = f"punctual-workers-{self._launch.job}"
        threading.Thread(target=self._answer_workers, args=(request, sink), name=name, daemon=True).start()

    def _answer_workers(self, request: int, sink: Sink) -> None:
        while True:
            with self._lock:
                # A newer command is answered in place of this one.
                if self._ended or request != self._request or self._workers is None:
                    return
                answer = self._workers.answer()
                if answer is not None:
                    sink(self._settle_workers(answer))
                    return
            time.sleep(_WORKERS_LOOK_S)

    def _settle_workers(self, answer: Answer) -> GrantApplied | GrantFailed:
        """Bring the quota to what the workers that there are may use."""
        worker = self._launch.spec.worker
        try:
            if answer.cause and worker is not None:
                self._grant = worker * max(1, answer.n_workers)
            if self._group is not None and self._stop_cause is None:
                self._granted_cores = self._group.grant(self._grant.cores)
        except OSError as error:
            return self._grant_failed(f"'{error.filename}': {error.strerror}")
        return self._grant_failed(answer.cause) if answer.cause else self._grant_applied()

    def _report(self, at: float, sink: Sink) -> None:
        phases = self._progress.new_phases()
        if phases is not None:
            sink(PhaseReported(at=at, job=self._launch.job, phases=phases))
        losses = self._progress.new_losses()
        if losses:
            sink(LossReported(at=at, job=self._launch.job, losses=losses))
        used_core_s = self._usage_core_s()
        sink(self._progress_reported(at, self._progress.latest(used_core_s)))

    def _usage_core_s(self) -> float:
        with suppress(OSError):  # the group goes with the job's last process; what was read last stands
            if self._group is not None and not self._ended:
                self._used_core_s = self._group.used_core_s()
        return self._used_core_s

    def _receive(self, output: bytes) -> None:
        """What the job has written; in the thread that reads it."""
        if isinstance(self._progress, OutputProgress):
            self._progress.receive(output, self._usage_core_s())
        (self._program.on_output or write_through)(output)

    # Ending.

    def _finish(self, last: Mapping[str, Any] | None) -> None:
        """Report the end; `last` is the keeper's last line, None if it was killed."""
        if last is None:
            self._outlive_keeper()
        self._close_link()
        if self._relay is not None:
            self._relay.finish(_OUTPUT_S_MAX)
        with self._lock:
            if self._stop_timer is not None:
                self._stop_timer.cancel()
            self._take_final_usage(last)
            self._ended = True
            at = self._place.clock.now()
            if self._started_at is not None:
                self._report(at, self._sink)
            self._sink(self._end_event(at, last))

    def _close_link(self) -> None:
        with self._lock:
            self._link_closed = True
        if self._link is not None:
            self._link.close()

    def _take_final_usage(self, last: Mapping[str, Any] | None) -> None:
        if last is not None and "ended" in last and self._group is not None:
            self._used_core_s = max(self._used_core_s, self._group.final_core_s(last["usage"], last["core_s"]))

    def _end_event(self, at: float, last: Mapping[str, Any] | None) -> JobFinished | JobFailed:
        if last is None:
            return self._job_failed(self._stopped() or "its keeper was killed, and the job with it", None)
        if "failed" in last:
            return self._job_failed(self._stopped() or _not_run(self._program, last["failed"]), last["code"])
        code, ended_at = int(last["ended"]), last["at_ns"] / 1e9
        all_done = self._progress.latest(self._used_core_s).all_steps_done
        if code == 0 and (self._stop_cause is None or all_done):
            self._succeeded = True
            return JobFinished(at=at, job=self._launch.job, landed_at=self._progress.landed_at() or ended_at)
        return self._job_failed(self._stopped() or _cause(code), code)

    def _stopped(self) -> str | None:
        return None if self._stop_cause is None else f"stopped: {self._stop_cause}"

    def _outlive_keeper(self) -> None:
        """End what a killed keeper has left; the kernel has already asked the job to end."""
        kill_at = time.monotonic() + GRACE_S
        while (alive := self._processes()) and time.monotonic() < kill_at + GRACE_S:
            if time.monotonic() > kill_at:
                for pid in alive:
                    _kill(pid)
            time.sleep(_LOOK_S)
        with suppress(OSError):
            os.killpg(self._job_pid, signal.SIGKILL)
        self._clear_away()

    def _processes(self) -> list[int]:
        members: list[int] = []
        with suppress(OSError):
            members = self._group.processes() if self._group is not None else []
        return members if members or cpu_clock_ns(self._job_pid) is None else [self._job_pid]

    def _clear_away(self) -> None:
        """Remove what the keeper would have removed."""
        self._close_link()
        for folder in self._group.footprint.remove_dirs if self._group is not None else ():
            remove_dir(folder)
        self._takeover_socket.unlink(missing_ok=True)
        if self._page_path is not None:
            self._page_path.unlink(missing_ok=True)

    # Answers.

    def _granted(self) -> Allocation:
        return {self._place.node: replace(self._grant, cores=self._granted_cores)}

    def _job_started(self) -> JobStarted:
        return JobStarted(
            at=self._place.clock.now(),
            job=self._launch.job,
            request=self._request,
            granted=self._granted(),
            can_pace=self._program.progress_pattern is None,
            can_cap=self._place.actuator.can_cap,
        )

    def _grant_applied(self) -> GrantApplied:
        at = self._place.clock.now()
        return GrantApplied(at=at, job=self._launch.job, request=self._request, granted=self._granted())

    def _grant_failed(self, cause: str) -> GrantFailed:
        granted = {} if self._started_at is None else self._granted()
        return GrantFailed(
            at=self._place.clock.now(), job=self._launch.job, request=self._request, granted=granted, cause=cause
        )

    def _job_failed(self, cause: str, exit_code: int | None) -> JobFailed:
        return JobFailed(at=self._place.clock.now(), job=self._launch.job, cause=cause, exit_code=exit_code)

    def _progress_reported(self, at: float, latest: Latest) -> ProgressReported:
        assert self._started_at is not None
        return ProgressReported(
            at=at,
            job=self._launch.job,
            steps_done=latest.steps_done,
            steps_total=latest.steps_total,
            unit_at=self._started_at if latest.unit_at is None else latest.unit_at,
            used_core_s=self._used_core_s,
            in_flight_core_s=latest.in_flight_core_s,
            landed=latest.landed,
        )


def _grant_on(grant: Allocation, node: NodeId) -> Resources:
    return grant.get(node, Resources())


def _footprint(request: LaunchRequest) -> Footprint:
    """The files of the job's group, as its keeper was told of them."""
    return Footprint(
        entrances=tuple(map(Path, request.entrances)),
        lift=tuple((Path(file), text) for file, text in request.lift),
        usage_file=None if request.usage_file is None else Path(request.usage_file),
        remove_dirs=tuple(map(Path, request.remove_dirs)),
    )


def _new_page(runtime_dir: Path, name: str) -> tuple[Path, Page]:
    """A page and its file: in memory, or beside what else the run needs if memory has no room."""
    path = _page_folder(runtime_dir) / name
    try:
        return path, Page.create(str(path))
    except OSError:
        if path.parent == runtime_dir:
            raise
    path = runtime_dir / name
    return path, Page.create(str(path))


def _page_folder(runtime_dir: Path) -> Path:
    """Where a write never waits for a disk, which the training would wait for at a step."""
    shared_memory = Path("/dev/shm")  # noqa: S108 -- the page's name is new and its file is made for us alone
    if is_in_memory(runtime_dir) or not os.access(shared_memory, os.W_OK) or not is_in_memory(shared_memory):
        return runtime_dir
    return shared_memory


def _not_run(program: Program, why: str) -> str:
    return (
        f"the program must be one that can be run: got {program.argv[0]!r} ({why}) for the command line. "
        "Check its name and that it may be executed."
    )


def _cause(code: int) -> str:
    if code <= 128:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was ended by {signal.Signals(code - 128).name}"
    except ValueError:
        return f"its process ended with exit code {code}"


def _kill(pid: int) -> None:
    with suppress(OSError):
        os.kill(pid, signal.SIGKILL)
