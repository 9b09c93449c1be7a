"""The device that a training computes on: a clock of its work, and turns on one that several jobs share.

A device computes beside its process: what a step costs there is known only between two *marks* in its queue of work. A GPU
that torch uses is found by itself; `use_device` names any other.
"""

import fcntl
import os
import sys
from collections import deque
from time import monotonic_ns, sleep
from typing import Any, Protocol

from punctual.channel import DEVICE_SHARE_VARIABLE, DEVICE_TURNS_VARIABLE, DeviceUse


class DeviceMark(Protocol):
    """A place in the device's queue of work."""

    def wait(self) -> None:
        """Return when the device has done all work before the mark."""
        ...

    def ns_since(self, earlier: Any) -> int:
        """Nanoseconds on the device from an earlier mark to this one; both are past."""
        ...


class Device(Protocol):
    """A device with a queue of work."""

    @property
    def name(self) -> str: ...

    def mark(self) -> DeviceMark:
        """Put a mark at the end of the queue."""
        ...

    def memory(self) -> tuple[int, int]:
        """Most bytes that this process has held on the device at a time, and the bytes of the device."""
        ...


class CudaDevice:
    """The current GPU of this process, by torch; ROCm's too."""

    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda
        self._total_bytes = int(cuda.get_device_properties(cuda.current_device()).total_memory)
        self.name: str = cuda.get_device_name()

    def mark(self) -> "_CudaMark":
        # A blocking event lets the processor sleep while it waits, instead of spinning.
        event = self._cuda.Event(enable_timing=True, blocking=True)
        event.record()
        return _CudaMark(event)

    def memory(self) -> tuple[int, int]:
        return int(self._cuda.max_memory_reserved()), self._total_bytes


class _CudaMark:
    def __init__(self, event: Any) -> None:
        self.event = event

    def wait(self) -> None:
        self.event.synchronize()

    def ns_since(self, earlier: "_CudaMark") -> int:
        return int(earlier.event.elapsed_time(self.event) * 1e6)


class DeviceTurns:
    """Turns on a device that jobs share: one computes at a time, for its part of a round.

    Two locked files make a turnstile: a process that waits for the device holds the first, so that one that has just given
    the device up comes behind it. The locks are the process's own, also where it forks, and end with it.

    * `path`: path of the device's files, without their suffixes.
    * `share`: the job's part of the device.
    """

    def __init__(self, path: str, share: float) -> None:
        self._next_fd, self._device_fd = (
            os.open(path + end, os.O_RDWR | os.O_CREAT, 0o600) for end in (".next", ".turn")
        )
        # A turn lasts this long times the job's part of the device. Measured by bench/gpu.py: what changing hands
        # costs is below a percent of that, and a job never waits longer than a few tenths of a second for the others.
        self._turn_ns = int(0.2 * share * 1e9)
        self._held_until_ns = 0
        self._waits = True
        self.is_held = False
        self.n_turns = 0

    def take(self) -> int:
        """Wait for the device; return the nanoseconds that it took."""
        if self.is_held:
            return 0
        since_ns = monotonic_ns()
        # A job that has waited so long for its turn computes without it: whoever has it stands still, or has a very
        # long step.
        until_ns = since_ns + (2_000_000_000 if self._waits else 0)
        self._waits = self.is_held = self._lock(self._next_fd, until_ns) and self._lock(self._device_fd, until_ns)
        fcntl.lockf(self._next_fd, fcntl.LOCK_UN)
        now_ns = monotonic_ns()
        self._held_until_ns = now_ns + self._turn_ns
        self.n_turns += self.is_held
        return now_ns - since_ns

    def is_over(self) -> bool:
        """Whether the turn is over and another job waits."""
        if not self.is_held or monotonic_ns() < self._held_until_ns:
            return False
        if self._lock(self._next_fd, 0):
            fcntl.lockf(self._next_fd, fcntl.LOCK_UN)
            return False
        return True

    def give_up(self) -> None:
        """Release the device."""
        if self.is_held:
            fcntl.lockf(self._device_fd, fcntl.LOCK_UN)
            self.is_held = False

    @staticmethod
    def _lock(fd: int, until_ns: int) -> bool:
        while True:
            try:
                fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                if monotonic_ns() >= until_ns:
                    return False
                # Seconds between two looks whether a turn is free.
                sleep(0.0005)
            else:
                return True


class DeviceClock:
    """Clock of the device's work for the units of a training, as far as it is done.

    The device may work on one unit while the process prepares the next: waiting for each at its end would leave the device
    without work in between. A unit that is to be held back, or ends a turn, is waited for.

    * `ns`: nanoseconds that the device took for finished units.
    * `waited_ns`: nanoseconds that the process waited for its turns.
    """

    def __init__(self, device: Device, turns: DeviceTurns | None) -> None:
        self.ns = self.waited_ns = 0
        self._device = device
        self._turns = turns
        self._begin: DeviceMark | None = None
        self._pending: deque[tuple[DeviceMark, DeviceMark]] = deque()

    @classmethod
    def of_this_process(cls) -> "DeviceClock | None":
        """Return the clock of the device that this process uses; None: it uses none, so far."""
        device = _registered or _cuda_device()
        return None if device is None else cls(device, _turns())

    def begin(self) -> int:
        """Begin a unit; return the nanoseconds that it had to wait for its turn."""
        waited_ns = self._turns.take() if self._turns is not None else 0
        self.waited_ns += waited_ns
        self._begin = self._device.mark()
        return waited_ns

    def end(self, *, is_done: bool) -> None:
        """End the present unit: wait for the one before it; or for itself, if it must be done.

        `is_done`: the device is to have done it when this returns, and others may have the device then.
        """
        if self._begin is not None:
            self._pending.append((self._begin, self._device.mark()))
            self._begin = None
        gives_up = self._turns is not None and (is_done or self._turns.is_over())
        while len(self._pending) > (0 if is_done or gives_up else 1):
            begin, end = self._pending.popleft()
            end.wait()
            self.ns += max(0, end.ns_since(begin))
        if gives_up and self._turns is not None:
            self._turns.give_up()

    def use(self) -> DeviceUse:
        """Return the device's name, memory and turns for the page."""
        memory_bytes, total_bytes = self._device.memory()
        n_turns = 0 if self._turns is None else self._turns.n_turns
        return DeviceUse(self._device.name, memory_bytes, total_bytes, self.waited_ns, n_turns)


_registered: Device | None = None


def use_device(device: Device) -> None:
    """Name the device that this process computes on, if it is not a GPU that torch uses.

    `device`: marks in its queue of work tell what a step costs there.
    """
    global _registered
    _registered = device


def _cuda_device() -> CudaDevice | None:
    """Return the GPU of this process once torch has begun to use it: an earlier query would begin that."""
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    return CudaDevice(cuda) if cuda is not None and cuda.is_initialized() else None


def _turns() -> DeviceTurns | None:
    path, share = os.environ.get(DEVICE_TURNS_VARIABLE), os.environ.get(DEVICE_SHARE_VARIABLE)
    return DeviceTurns(path, float(share)) if path and share else None
