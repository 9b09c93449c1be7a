"""Signals at a job's end: which of its processes get them, and when. For its supervisor; standard library only.

A training that is asked to end may have a handler that saves. It is the job's own process that is asked, alone: a signal to
its whole group would end its loader's workers under it. A shell, and a launcher that does not catch the signal, would end
and leave what it waits for: in its place, that is asked. If it goes on with other commands for seconds after that has ended,
all are asked. The others are asked when the time for that is over, and what is left then is killed. No process is asked twice.
"""

import os
import signal
import time
from collections.abc import Iterator, Mapping
from math import inf

if __name__ != "job_signals":
    from punctual.executors.local import supervisor_files
else:  # loaded by the supervisor, by path
    import supervisor_files  # type: ignore[import-not-found, no-redef]

#: Seconds from SIGTERM to SIGKILL, unless others are set.
GRACE_S = 5.0
#: Seconds between two looks for processes that were born while their parents were being killed.
SWEEP_S = 0.05
#: Variable with the end of a job's allocation in Slurm, in seconds since 1970.
ALLOCATION_END_VARIABLE = "SLURM_JOB_END_TIME"

#: Shells pass no signal on to what they wait for.
_SHELLS = {"sh", "bash", "dash", "ash", "zsh", "ksh", "mksh", "fish", "busybox", "tcsh", "csh"}


class Ending:
    """The end of a job that was asked to end, or of what a job has left behind.

    * `job_pid`: the job's own process, the leader of its group; 0: it has ended by itself.
    * `grace_s`: seconds until all others are asked too.
    * `kill_s`: seconds until those that were asked last are killed; also between two searches for a shell's next
      process.
    * `ctrl_c`: instant of Ctrl-C, and that until which processes that catch it may save; None: there was none.
    """

    def __init__(
        self, job_pid: int, grace_s: float, kill_s: float = GRACE_S, ctrl_c: tuple[float, float] | None = None
    ) -> None:
        self._job_pid, self._had_time, self._kill_s = job_pid, grace_s > 0, kill_s
        now = time.monotonic()
        self._asked_at, self._saving_until = ctrl_c or (now, 0.0)
        self._are_saving = False
        #: Instants at which a shell's awaited processes are searched again; all are asked; and all are killed.
        self._look_at = now if job_pid else inf
        self._all_at = now + grace_s
        self._kill_at = inf
        self._asked: set[int] = set()
        #: After how many seconds its own process was ended by force; None: it ended by itself.
        self.forced_after_s: float | None = None
        #: Names of the programs that a job which ended by itself has left running.
        self.left_running: list[str] | None = None if job_pid else []

    def hurry(self) -> None:
        """End the grace period now."""
        self._all_at, self._saving_until = min(self._all_at, time.monotonic()), 0.0

    def kill(self) -> None:
        """Kill all at once."""
        self._kill_at = 0.0

    def own_has_ended(self) -> None:
        """Note that the job's own process has ended: the rest gets no time of its own."""
        if self.forced_after_s is None:
            self._job_pid = 0
        self.hurry()

    def left_s(self) -> float:
        """Seconds until the next step is due."""
        at = min(self._look_at, self._all_at, self._kill_at)
        return max(SWEEP_S if at == self._kill_at else 0.0, at - time.monotonic())

    def go_on(self, ancestor: int) -> None:
        """Ask or kill the processes below `ancestor` that are due."""
        now = time.monotonic()
        if now >= self._kill_at:
            self._note_force(now)
            for pid in descendants(ancestor):
                send(pid, signal.SIGKILL)
        elif now >= self._all_at:
            alive = descendants(ancestor)
            if now < self._saving_until:
                saving = {pid for pid in alive if mask_of(pid, "SigCgt") & bit_of(signal.SIGINT)}
                self._ask([pid for pid in alive if pid not in saving])
                self._are_saving = bool(saving)
                if saving:
                    self._all_at = min(now + 4 * SWEEP_S, self._saving_until)
                    return
            if self._had_time:
                self._note_force(now)
            if self.left_running is not None:
                self.left_running = [name for pid in alive if (name := _program_of(pid))]
            self._ask(alive)
            self._look_at, self._all_at, self._kill_at = inf, inf, now + self._kill_s
        elif now >= self._look_at:
            # A shell goes on with its next command when the one before has saved and ended. A short one may still run; if it
            # is a loop, or a long one, all are asked.
            alive = descendants(ancestor)
            goes_on = self._asked.isdisjoint(alive) and self._asked
            self._ask(alive if goes_on else targets(self._job_pid))
            self._look_at = now + self._kill_s

    def _ask(self, pids: list[int]) -> None:
        for pid in pids:
            if pid not in self._asked:
                self._asked.add(pid)
                send(pid, signal.SIGTERM)

    def _note_force(self, now: float) -> None:
        if (self._job_pid or self._are_saving) and self.forced_after_s is None:
            self.forced_after_s = now - self._asked_at


def targets(pid: int) -> list[int]:
    """Return the processes that can end the job in order: its own, or those that it waits for."""
    children = [child for child, parent in parents() if parent == pid]
    readers = _readers_of_siblings(children)
    awaited = [child for child in children if child not in readers]
    if not awaited or not _waits(pid):
        return [pid]
    name, caught, ignored = _name(pid), mask_of(pid, "SigCgt"), [mask_of(child, "SigIgn") for child in awaited]
    has_handler = bool(caught & bit_of(signal.SIGTERM))
    # What a shell without a terminal runs in the background ignores Ctrl-C: a shell with a trap waits for it, and passes on.
    in_background = all(mask & bit_of(signal.SIGINT) for mask in ignored)
    if has_handler and (name not in _SHELLS or in_background):
        return [pid]
    return [target for child in awaited for target in targets(child)]


def receivers(pid: int, number: int) -> list[int]:
    """Return the processes that a user's signal is meant for: a launcher that does not catch it would die of it."""
    return _catching(pid, number) or targets(pid)


def _catching(pid: int, number: int) -> list[int]:
    """Return the first processes, from `pid` down, that catch the signal."""
    if mask_of(pid, "SigCgt") & bit_of(number):
        return [pid]
    return [catching for child, parent in parents() if parent == pid for catching in _catching(child, number)]


def ignores(pid: int, number: int) -> bool:
    """Whether a process ignores or blocks the signal."""
    return bool(mask_of(pid, "SigIgn", "SigBlk") & bit_of(number))


def stop_grace_s(asked_s: float | None, environment: Mapping[str, str], default_s: float) -> float:
    """Seconds that a job has to end: those asked for, else the rest of its allocation in Slurm, else the default."""
    return asked_s if asked_s is not None else allocation_left_s(environment) or default_s


def allocation_left_s(environment: Mapping[str, str]) -> float | None:
    """Seconds until the end of the allocation in Slurm; None: not known, or over, in a shell that has outlived it."""
    text = environment.get(ALLOCATION_END_VARIABLE, "")
    left_s = float(text) - time.time() if text.isdecimal() and len(text) < 20 else 0.0
    return left_s if left_s > 0 else None


def descendants(ancestor: int) -> list[int]:
    """Return all processes below `ancestor`, zombies included."""
    parent_of = dict(parents())
    below, last = [ancestor], {ancestor}
    while last:
        last = {pid for pid, parent in parent_of.items() if parent in last}
        below += last
    return below[1:]


def parents() -> Iterator[tuple[int, int]]:
    """Yield each process of this machine with its parent."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := stat_of(int(name))):
            yield int(name), int(fields[1])


def stat_of(pid: int) -> list[str]:
    """Return the fields of a process's line in `/proc` after its name: state, parent, ...; empty: there is none."""
    # The program's name stands in brackets, and may hold brackets and blanks itself.
    return supervisor_files.read(f"/proc/{pid}/stat").rpartition(")")[2].split()


def send(pid: int, number: int) -> None:
    """Send a signal to a process that may be gone; to a process group if `pid` is negative, as `kill` has it."""
    try:
        os.kill(pid, number)
    except OSError:
        pass


def _waits(pid: int) -> bool:
    """Whether a process waits for the end of another one."""
    where = supervisor_files.read(f"/proc/{pid}/wchan")
    if where in ("", "0"):  # the kernel does not say
        return _name(pid) in _SHELLS
    return where.startswith(("do_wait", "kernel_wait4", "kernel_waitid"))


def _readers_of_siblings(pids: list[int]) -> set[int]:
    """Return the processes that read another one's output, as `tee` behind a training: they end with it."""
    written = {pid: {_file_of(pid, 1), _file_of(pid, 2)} for pid in pids}
    return {
        pid
        for pid in pids
        if (source := _file_of(pid, 0)).startswith("pipe:")
        and any(source in files for other, files in written.items() if other != pid)
    }


def _file_of(pid: int, fd: int) -> str:
    try:
        return os.readlink(f"/proc/{pid}/fd/{fd}")
    except OSError:
        return ""


def _name(pid: int) -> str:
    return supervisor_files.read(f"/proc/{pid}/comm").strip()


def _program_of(pid: int) -> str:
    """Return the names of a program and its script; empty if the process has ended, or is a helper of Python's own."""
    words = supervisor_files.read(f"/proc/{pid}/cmdline").split("\0")
    if any("multiprocessing" in word for word in words):
        return ""
    scripts = [word for word in words[1:2] if word and not word.startswith("-")]
    return " ".join(os.path.basename(word) for word in (words[0], *scripts))


def mask_of(pid: int, *fields: str) -> int:
    """Return the signals that are in any of these sets in `/proc`, as an integer mask."""
    mask = 0
    for line in supervisor_files.read(f"/proc/{pid}/status").splitlines():
        if line.startswith(fields):
            mask |= int(line.split()[1], 16)
    return mask


def bit_of(number: int) -> int:
    return 1 << (number - 1)
