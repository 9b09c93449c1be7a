"""A simulated device for tests and benchmarks of GPU sharing and timing on machines without a GPU.

Work is queued and done beside the process, one piece at a time over all processes that have the same device. Its clock
advances only while a piece of this process's work is done, by what that is to take. Memory is counted.
"""

import fcntl
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from time import sleep

_COUNT, _PAIR = struct.Struct("<q"), struct.Struct("<qq")


class OutOfDeviceMemoryError(MemoryError):
    """The device has less memory than was asked for."""


class StandInMark:
    """A place in the queue of a `StandInDevice`."""

    def __init__(self) -> None:
        self.ns = 0
        self._is_past = Event()

    def wait(self) -> None:
        """Return when all work before the mark is done."""
        self._is_past.wait()

    def ns_since(self, earlier: "StandInMark") -> int:
        """Nanoseconds of work between an earlier mark and this one."""
        return self.ns - earlier.ns

    def pass_at(self, ns: int) -> None:
        """Note the device's clock when the mark was reached."""
        self.ns = ns
        self._is_past.set()


class StandInDevice:
    """A device of this machine. Processes that name the same file share it.

    Parameters
    ----------
    path
        A file of its own; made if it is not there.
    total_bytes
        Memory that the device has.
    switch_s
        Seconds that the device loses when the work of another process follows.
    """

    name = "stand-in device"

    def __init__(self, path: str, total_bytes: int = 2**30, switch_s: float = 0.0) -> None:
        self._busy_fd, self._memory_fd = (os.open(path + end, os.O_RDWR | os.O_CREAT, 0o600) for end in ("", ".memory"))
        self._total_bytes, self._switch_s = total_bytes, switch_s
        self._held_bytes = 0
        self._queue: SimpleQueue[float | StandInMark] = SimpleQueue()
        Thread(target=self._work, name="stand-in device", daemon=True).start()

    def launch(self, work_s: float) -> None:
        """Queue work that takes the device `work_s` seconds; returns at once."""
        self._queue.put(work_s)

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        self.mark().wait()

    def mark(self) -> StandInMark:
        mark = StandInMark()
        self._queue.put(mark)
        return mark

    def memory(self) -> tuple[int, int]:
        return self._held_bytes, self._total_bytes

    def allocate(self, n_bytes: int) -> None:
        """Hold `n_bytes` more of the device's memory until this process ends.

        Raises
        ------
        OutOfDeviceMemoryError
            All processes together would hold more than there is.
        """
        with self._memory() as held:
            in_use = sum(held.values())
            if in_use + n_bytes > self._total_bytes:
                raise OutOfDeviceMemoryError(
                    f"out of device memory: {n_bytes} bytes were asked for, of {self._total_bytes} of which {in_use} are in use"
                )
            held[os.getpid()] = self._held_bytes = self._held_bytes + n_bytes

    @contextmanager
    def _memory(self) -> Iterator[dict[int, int]]:
        """Yield the memory of each living process, to be changed."""
        fcntl.lockf(self._memory_fd, fcntl.LOCK_EX)
        try:
            pairs = _PAIR.iter_unpack(os.pread(self._memory_fd, 1000 * _PAIR.size, 0))
            held = {pid: n_bytes for pid, n_bytes in pairs if Path(f"/proc/{pid}").exists()}
            yield held
            os.ftruncate(self._memory_fd, 0)
            os.pwrite(self._memory_fd, b"".join(_PAIR.pack(*pair) for pair in held.items()), 0)
        finally:
            fcntl.lockf(self._memory_fd, fcntl.LOCK_UN)

    def _work(self) -> None:
        clock_ns = 0
        while True:
            item = self._queue.get()
            if isinstance(item, StandInMark):
                item.pass_at(clock_ns)
                continue
            fcntl.lockf(self._busy_fd, fcntl.LOCK_EX)
            try:
                if self._switch_s and self._was_anothers():
                    sleep(self._switch_s)
                sleep(item)
            finally:
                fcntl.lockf(self._busy_fd, fcntl.LOCK_UN)
            clock_ns += round(item * 1e9)

    def _was_anothers(self) -> bool:
        """Whether the device last worked for another process; from now on it works for this one."""
        before = os.pread(self._busy_fd, _COUNT.size, 0)
        own = _COUNT.pack(os.getpid())
        if before == own:
            return False
        os.pwrite(self._busy_fd, own, 0)
        return before != b""
