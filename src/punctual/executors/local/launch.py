"""Process of a job with its supervisor, group, page and output, from its start or adoption to its end."""

import fcntl
import math
import mmap
import os
import signal
import subprocess
import threading
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cached_property, partial
from math import inf
from pathlib import Path
from typing import Any, Self

from punctual.channel import (
    BLOCK_VARIABLE,
    DEVICE_SHARE_VARIABLE,
    DEVICE_TURNS_VARIABLE,
    JOB_VARIABLE,
    PAGE_BYTES,
    SharedBlock,
)
from punctual.core.answers import VARIABLES_GONE
from punctual.core.commands import LaunchJob
from punctual.core.errors import InvalidSpec
from punctual.core.failures import short_of
from punctual.core.ids import JobId, NodeId
from punctual.core.program import Program
from punctual.core.resources import NOTHING, Resources
from punctual.executors.local.actuator import JobGroup
from punctual.executors.local.context import ExecutorContext, check_files_left
from punctual.executors.local.devices import VISIBLE_VARIABLE, JobDevices
from punctual.executors.local.job_files import takeover_socket_of
from punctual.executors.local.job_signals import GRACE_S, allocation_left_s, send, stop_grace_s
from punctual.executors.local.limits import lower_limits
from punctual.executors.local.orphans import SUPERVISOR_VARIABLE, end_left, processes_of
from punctual.executors.local.output import LogTail, ProcessSettings, StartFacts, logs_of, new_channel, open_log
from punctual.executors.local.process_tree import state_of
from punctual.executors.local.progress import JobProgress, OutputProgress, ProgressSample
from punctual.executors.local.supervisor import LaunchRequest
from punctual.executors.local.supervisor_client import (
    AdoptableJob,
    SteeringLostError,
    SupervisorLink,
    listen_for_takeover,
    start_supervisor,
)
from punctual.executors.local.supervisor_files import clear_up, mark_of
from punctual.executors.local.workers import Workers, parts_in

#: Seconds for the last output to arrive once all its writers have ended.
_OUTPUT_S_MAX = 5.0
#: Seconds that a process may take to end when told to.
END_S_MAX = GRACE_S + 2 * _OUTPUT_S_MAX

#: Name of the memory that the kernel shows beside the file descriptors of its holders.
MEMORY_NAME = "punctual-page"


def new_page() -> tuple[SharedBlock, int, Callable[[], object]]:
    """Make a page; return it, the descriptor of its memory, and a function that closes that descriptor early.

    Raises `OSError` where there is no room.
    """
    fd = os.memfd_create(MEMORY_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    try:
        # Not only its length: where memory is full, writing to a page that has none yet ends the process (SIGBUS).
        os.posix_fallocate(fd, 0, PAGE_BYTES)
        # Whoever has it open, the job too, would end (SIGBUS) at the next look at a page that has become shorter.
        fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        page = SharedBlock.made(mmap.mmap(fd, PAGE_BYTES))
    except BaseException:
        os.close(fd)
        raise
    return page, fd, weakref.finalize(page, os.close, fd)


def page_path(pid: int, fd: int) -> Path:
    """Path at which this user's processes find the page that process `pid` holds as `fd`."""
    return Path(f"/proc/{pid}/fd/{fd}")


def job_environment(
    program: Program,
    job: JobId,
    ceiling_cores: float,
    page: str | None,
    inherited: Mapping[str, str],
    devices: Sequence[str] | None = None,
) -> dict[str, str]:
    """Return the environment variables of the job's process.

    `devices`: the GPUs that the job is shown; None: those of this process.

    The number of threads follows the ceiling (that of one worker, where the job is made of them) and not the grant: it
    stays the same for the whole run, and with it the order in which numbers are added up. What training computes must
    not depend on how fast it was let go.
    """
    n_threads = str(max(1, math.ceil(ceiling_cores)))
    chosen = {
        "OMP_NUM_THREADS": n_threads,
        "MKL_NUM_THREADS": n_threads,
        # How many there are to be used, to joblib and to Python from 3.13 on.
        "LOKY_MAX_CPU_COUNT": n_threads,
        "PYTHON_CPU_COUNT": n_threads,
        # A thread that waits by spinning burns the quota that the thread it waits for would need.
        "OMP_WAIT_POLICY": "PASSIVE",
        # Python writes in large pieces to anything but a terminal, and progress would come in jumps.
        "PYTHONUNBUFFERED": "1",
    }
    environment = {**chosen, **inherited, **program.environment, JOB_VARIABLE: job}
    environment.pop(BLOCK_VARIABLE, None)
    if devices is not None:
        environment[VISIBLE_VARIABLE] = ",".join(devices)
    return environment if page is None else {**environment, BLOCK_VARIABLE: page}


class NotStartedError(Exception):
    """Raised if no process was started, for a reason that is not the program's."""


class JobProcess:
    """One process of a job.

    * `page`: page through which the job reports; None: its output is read.
    * `sample`: progress known so far.

    * `group`: None until it is made.
    * `first_cores`, `devices`: grant at its start or adoption.
    * `started_at`: monotonic seconds; None: it was not started yet.
    * `used_core_s`: CPU seconds used, as last read.

    Raises `InvalidSpec`: the launch does not say what the job runs, or how its output is read.
    """

    def __init__(
        self, context: ExecutorContext, launch: LaunchJob, page: SharedBlock | None, sample: ProgressSample
    ) -> None:
        self._context = context
        self.program = _program_of(launch)
        self._launch = launch
        self._page = page
        #: Descriptor of the page for the supervisor, which holds it from its start on; and the function to close it here.
        self._page_fd: int | None = None
        self._close_page_fd: Callable[[], object] = lambda: None
        self.workers = None if page is None or launch.spec.worker is None else Workers(page, launch.spec.worker)
        self.progress = _progress(self.program, launch, page, sample)
        self.group: JobGroup | None = None
        self.pid = 0
        self.first_cores = 0.0
        self.devices = JobDevices(context.devices, launch.job, None)
        self.started_at: float | None = None
        self.used_core_s = 0.0
        self._tails: list[LogTail] = []
        self._logs: list[tuple[str, int]] = []
        self._log_paths: list[Path] = []
        self._takeover_socket = takeover_socket_of(context.runtime_dir, launch.job)
        self._takeover_fd: int | None = None
        #: Tells the socket that was made for this process from one that another host has made since.
        self._socket_mark = ""
        self._end_file = context.end_file_of(launch.job)
        self._lock = threading.Lock()
        #: Connection to the supervisor, from its start until it is to be closed.
        self._link: SupervisorLink | None = None
        self._unwanted = False

    @classmethod
    def made(cls, context: ExecutorContext, launch: LaunchJob) -> Self:
        """Make a process that is to be started; raises `OSError` if there is no room for its page."""
        if _program_of(launch).progress_pattern is not None:
            return cls(context, launch, None, ProgressSample())
        page, page_fd, close = new_page()
        process = cls(context, launch, page, ProgressSample())
        process._page_fd, process._close_page_fd = page_fd, close
        return process

    @classmethod
    def adopted(cls, context: ExecutorContext, launch: LaunchJob, kept: AdoptableJob, sample: ProgressSample) -> Self:
        """Adopt a process of another Punctual process; raises `OSError`, and `PageError`, if its files are unusable."""
        request = kept.request
        page = None if request.page_fd is None else SharedBlock.open(str(page_path(kept.pid, request.page_fd)))
        process = cls(context, launch, page, sample)
        process._link, process.pid, process.started_at = kept, kept.job_pid, kept.started_at
        process.progress.begin(kept.started_at)
        process._socket_mark = mark_of(str(process._takeover_socket))
        process.group = context.chosen.actuator.find(request, kept.pid)
        process.first_cores = process.group.granted_cores()
        used = () if process.workers is None else process.workers.devices
        n_devices = gpus_of(launch, context.node)
        process.devices = JobDevices.adopted(context.devices, launch.job, process.pid, n_devices, used)
        process._log_paths = [Path(log) for log, *_ in request.logs]
        return process

    @property
    def can_pace(self) -> bool:
        """Whether the program keeps to a pacing line."""
        return self.program.progress_pattern is None

    def read_usage(self) -> float:
        """CPU seconds used up to now; the last value read if the group is gone, as it is after the last process."""
        with suppress(OSError):
            if self.group is not None:
                self.used_core_s = self.group.used_core_s()
        return self.used_core_s

    def results_at(self, last: Mapping[str, Any] | None) -> float | None:
        """Instant of the program's results; None: the end of its own process. `last`: the supervisor's last line.

        If the job's own process reports, its last stamp is the end of its work, and afterwards it only leaves. Behind
        a shell or a launcher others may work on.
        """
        landed_at = self.progress.landed_at()
        if landed_at is None or self.workers is not None or self.progress.reporter_pid in (0, self.pid):
            return landed_at
        ended_at = inf if last is None or "at_ns" not in last else last["at_ns"] / 1e9
        # A launcher takes a second or so to leave after its training has.
        return landed_at if ended_at - landed_at < 2.0 else None

    def sample(self) -> ProgressSample:
        """Read the latest progress."""
        if self.progress.is_tracked:
            self._stop_reading()
        return self.progress.latest(self.used_core_s)

    # Starting.

    def start(self, amount: Resources, *, spans_nodes: bool = False) -> dict[str, Any]:
        """Start supervisor, group and process with `amount`.

        Returns the supervisor's answer: ``started``, or ``failed`` if the program cannot be run.

        * Raises `OSError`, `NotStartedError`, `NoDeviceError`: no process was started, and `clear_away` is to be called.
        * Raises `SteeringLostError`: the same, and another process steers the job.
        """
        job, workers = self._launch.job, self.workers
        if (facts := self._start_facts) is None:
            raise NotStartedError(VARIABLES_GONE)
        argv = facts.argv if self.program.is_redacted else self.program.argv
        if argv is None:
            raise NotStartedError("its command line held secrets, and what was kept of it apart is gone")
        self.devices = JobDevices.assigned(self._context.devices, job, amount.gpus, can_grow=workers is not None)
        if workers is not None:
            workers.set_target(*parts_in(self._launch.spec, amount), self.devices.indices, spans_nodes=spans_nodes)
        check_files_left()
        link = self._start_supervisor(facts.settings)
        ready = link.read()
        if ready is None:
            raise NotStartedError("the supervisor has ended before it began")
        if "failed" in ready:
            raise OSError(ready.get("errno"), ready["failed"])
        # A signal from before the supervisor was ready may be lost; one from now on is not. And this process may have been stopped
        # meanwhile for as long as another host needs to take its place.
        self._check_start()
        self._context.on_kept(self._launch.job, link.pid)
        group = self.group = self._context.chosen.actuator.open(self._launch.job, link.pid)
        self.first_cores = group.grant(amount.cores)
        if asked_bytes := self._launch.spec.ceiling.memory_bytes:  # with its most workers
            group.memory.limit(asked_bytes)
        link.send(self._launch_request(argv, facts, group, link.pid))
        answer = link.read()
        if answer is None:
            raise NotStartedError("the supervisor has ended before it began")
        if "started" in answer:
            self.pid, self.started_at = answer["started"], answer["at_ns"] / 1e9
            self.progress.begin(self.started_at)
            self._close_page_fd()
        elif short_of(lacking := OSError(answer.get("errno"), answer["failed"])):
            raise lacking  # it was not the program that failed
        return answer

    @cached_property
    def _start_facts(self) -> StartFacts | None:
        return self._context.start_facts_of(self._launch.job)

    def _start_supervisor(self, settings: ProcessSettings) -> SupervisorLink:
        with self._lock, ExitStack() as opened:
            self._check_start()
            if self._end_file is not None:
                self._end_file.unlink(missing_ok=True)  # it tells of the process before this one
            listening = opened.enter_context(listen_for_takeover(self._takeover_socket))
            self._takeover_fd, self._socket_mark = listening.fileno(), mark_of(str(self._takeover_socket))
            job = self._launch.job
            self._log_paths = logs_of(self._context.log_of(job), settings)
            self.follow()
            write_fds = list[int]()
            for log in self._log_paths:
                source_fd, write_fd = new_channel(None if write_fds else settings.terminal_size)
                opened.callback(os.close, source_fd)
                opened.callback(os.close, write_fd)
                self._logs.append((str(log), source_fd))
                write_fds.append(write_fd)
            stdin_fd = self._context.input_of(job)
            if stdin_fd is not None:
                opened.callback(os.close, stdin_fd)
            page_fds = () if self._page_fd is None else (self._page_fd,)
            fds = [self._takeover_fd, *page_fds, *(fd for _, fd in self._logs)]
            stdin = subprocess.DEVNULL if stdin_fd is None else stdin_fd
            prefix = self._context.chosen.actuator.supervisor_prefix
            self._link = start_supervisor(prefix, fds, write_fds[0], write_fds[-1], stdin)
            return self._link

    def _check_start(self) -> None:
        """Raise `NotStartedError` if the job is to end, or was left to another process; `SteeringLostError` if that steers it."""
        if self._unwanted:
            raise NotStartedError("it was stopped before it began")
        if not self._context.may_steer():
            raise SteeringLostError

    def lower_limits(self) -> dict[str, tuple[int, int]]:
        """Return the hard limits that the process has below those of the command that submitted it, and these."""
        return lower_limits(os.getpid(), (self._start_facts or StartFacts()).settings.limits)

    def _launch_request(
        self, argv: Sequence[str], facts: StartFacts, group: JobGroup, supervisor_pid: int
    ) -> LaunchRequest:
        program, settings = self.program, facts.settings
        grace_s = self._launch.spec.ends.grace_s
        # In an allocation it is the rest of that, which its supervisor finds when the job is asked to end.
        if grace_s is None and allocation_left_s(facts.environment) is None:
            grace_s = self._context.stop_grace_s
        page = None if self._page_fd is None else str(page_path(supervisor_pid, self._page_fd))
        return LaunchRequest(
            **vars(group.files),
            argv=list(argv),
            cwd=program.cwd,
            environment=self._environment(page, facts.environment),
            cleanup_files=[[str(self._takeover_socket), self._socket_mark]],
            end_file=None if self._end_file is None else str(self._end_file),
            lease_s=self._context.lease_s,
            fence_s=self._context.fence_s,
            grace_s=grace_s,
            logs=self._logs,
            takeover_fd=self._takeover_fd,
            actuator=self._context.chosen.actuator.name,
            limits={"RLIMIT_NOFILE": self._context.files_limit, **settings.limits},
            umask=settings.umask,
            nice=settings.nice,
            cpus=list(settings.cpus),
            page_fd=self._page_fd,
            asked_memory_bytes=self._launch.spec.ceiling.memory_bytes,
            successor=list(self._context.successor),
            successor_log=str(self._context.successor_log),
        )

    def _environment(self, page: str | None, inherited: Mapping[str, str]) -> dict[str, str]:
        spec, job = self._launch.spec, self._launch.job
        most = spec.ceiling if self.workers is None or spec.worker is None else spec.worker
        environment = job_environment(self.program, job, most.cores, page, inherited, self.devices.shown)
        shared = self.devices.shared
        if shared is not None:
            device, part = shared
            environment[DEVICE_TURNS_VARIABLE] = str(self._context.runtime_dir / f"device-{device.replace('/', '-')}")
            environment[DEVICE_SHARE_VARIABLE] = f"{part:g}"
        return {**environment, SUPERVISOR_VARIABLE: str(self._takeover_socket)}

    # Running and ending.

    def last_output(self) -> str:
        """Return the end of the process's output."""
        texts = []
        for path in self._log_paths:
            with suppress(OSError), ExitStack() as closing:
                if (fd := open_log(path)) is not None:
                    closing.callback(os.close, fd)
                    # Bytes of a log's end that are searched for the cause of the process's end.
                    texts.append(os.pread(fd, 4096, max(0, os.fstat(fd).st_size - 4096)).decode(errors="replace"))
        return "\n".join(texts)

    def follow(self) -> None:
        """Begin to read progress from the output that is written from now on."""
        if not self.progress.is_tracked:
            for stream, log in enumerate(self._log_paths, start=1):
                self._tails.append(LogTail(log, partial(self._receive, stream), skip=True))

    def _stop_reading(self) -> None:
        for tail in self._tails:
            tail.stop()

    def _receive(self, stream: int, output: bytes) -> None:
        self.progress.receive(output, self.read_usage(), stream)

    def wait(self, on_regained: Callable[[], None]) -> dict[str, Any] | None:
        """Wait for the process's end and return the supervisor's last line; None: the supervisor was killed.

        `on_regained`: called when this process was stopped for so long that the supervisor took the job for unsteered
        and lifted its quota, and steers it again.

        Raises `SteeringLostError`: another process has taken the job over.
        """
        assert self._link is not None
        return self._link.await_end(self._takeover_socket, self._end_file, on_regained)

    def renew(self, *, stays_paused: bool) -> None:
        """Renew the lease with the supervisor; the job stays paused at its end if a user has paused it."""
        self._say(partial(SupervisorLink.renew, stays_paused=stays_paused))

    def release(self) -> None:
        """Leave the process to its next owner; its output is not read here any more."""
        self.end(SupervisorLink.release)
        self._stop_reading()
        self.progress.finish(self.used_core_s)

    @property
    def stop_grace_s(self) -> float:
        """Grace period of the process in seconds."""
        facts = self._start_facts or StartFacts()
        return stop_grace_s(self._launch.spec.ends.grace_s, facts.environment, self._context.stop_grace_s)

    def end(self, by: Callable[[SupervisorLink], None]) -> None:
        """End or interrupt the process by a request to its supervisor; one about to start is not started."""
        self._unwanted = True
        self._say(by)

    def _say(self, request: Callable[[SupervisorLink], None]) -> None:
        """Make a request to the supervisor, if there is a connection."""
        with self._lock:
            if self._link is not None:
                request(self._link)

    def kill(self) -> None:
        """Kill the process at once, without its supervisor, which may hang."""
        self._say(SupervisorLink.kill)
        for pid in self._processes():
            send(pid, signal.SIGKILL)

    def finish(self, last: Mapping[str, Any] | None) -> None:
        """Finish output and progress after the supervisor's last line."""
        if last is None:
            # End processes that a killed supervisor has left.
            end_left(self._processes, GRACE_S)
            if self.pid:  # the group of number 0 is that of this process
                send(-self.pid, signal.SIGKILL)
        try:
            finished = [tail.finish(_OUTPUT_S_MAX) for tail in self._tails]
        finally:
            self.clear_away()
        self.progress.finish(self.used_core_s, is_all_read=all(finished))
        if last is not None and "ended" in last and self.group is not None:
            self.used_core_s = max(self.used_core_s, self.group.final_core_s(last["usage"], last["core_s"]))

    def clear_away(self) -> None:
        """Remove files that a killed supervisor has left; no file stays open."""
        self._close_link(SupervisorLink.finish)
        self._close_page_fd()
        if self._page is not None:
            self._page.keep_copy()
        folders = () if self.group is None else self.group.files.remove_dirs
        clear_up(map(str, folders), [(str(self._takeover_socket), self._socket_mark)])

    def _processes(self) -> list[int]:
        members: list[int] = []
        with suppress(OSError):
            members = self.group.processes() if self.group is not None else []
        # One that has ended stays there until its supervisor, which may hang, takes notice.
        return [pid for pid in members or processes_of(self._takeover_socket) if state_of(pid) not in "ZX"]

    def leave(self) -> None:
        """Close the connection to a supervisor that another process talks to; returns once a supervisor of ours is gone."""
        self._close_link(SupervisorLink.close)

    def _close_link(self, close: Callable[[SupervisorLink], None]) -> None:
        with self._lock:
            link, self._link = self._link, None
        self._stop_reading()
        if link is not None:
            close(link)

    @property
    def deaf_supervisor(self) -> int:
        """Process id of a supervisor that has read nothing for long: its job stands still once its pipe is full. 0: it reads."""
        link = self._link
        return link.pid if link is not None and link.is_deaf else 0


def _program_of(launch: LaunchJob) -> Program:
    if launch.program is None:
        raise InvalidSpec("a job must have a program", "none", f"job '{launch.job}'", "Submit it again.")
    return launch.program


def _progress(program: Program, launch: LaunchJob, page: SharedBlock | None, sample: ProgressSample) -> JobProgress:
    """Return the progress of a job by its page, if it has one, and by its output unless it has workers."""
    spec, output = launch.spec, None
    if page is None or spec.worker is None:
        output = OutputProgress(program.progress_pattern, spec.work_steps, spec.deadline_s, sample)
    return JobProgress(page or SharedBlock.made(mmap.mmap(-1, PAGE_BYTES)), launch.submitted_at, output)


def gpus_of(launch: LaunchJob, node: NodeId) -> float:
    """GPUs of a running job whose grant may have been lost with the answer."""
    granted = launch.grant.get(node, NOTHING)
    return granted.gpus or launch.spec.floor.gpus
