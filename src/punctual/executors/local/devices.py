"""Assign the GPUs of this machine to jobs."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from pathlib import Path
from threading import Lock

from punctual.core.ids import JobId
from punctual.core.resources import TOLERANCE, Resources

#: Variable with the devices that a process is shown, in order; CUDA counts them from 0.
VISIBLE_VARIABLE = "CUDA_VISIBLE_DEVICES"


class NoDeviceError(Exception):
    """Raised if devices are lacking, or a running program cannot be given others."""


def visible_devices(environment: Mapping[str, str] = os.environ, devices: Path | None = None) -> tuple[str, ...]:
    """Ids of the NVIDIA devices that this process may use, in the form of ``CUDA_VISIBLE_DEVICES``.

    `devices`: folder of the system's devices; None: the usual one, or the one that a test or benchmark uses.
    """
    devices = devices or Path(os.environ.get("PUNCTUAL_DEVICE_FOLDER", "/dev"))
    n_devices = len([path for path in devices.glob("nvidia[0-9]*") if path.name.removeprefix("nvidia").isdigit()])
    visible = environment.get(VISIBLE_VARIABLE)
    if visible is None:
        return tuple(map(str, range(n_devices)))
    # CUDA's list ends at the first name that is none; Slurm writes `NoDevFiles` where there is no device.
    names = tuple(takewhile(lambda name: name not in ("", "-1", "NoDevFiles"), map(str.strip, visible.split(","))))
    # A device that is divided (MIG) has several names.
    return names if any(name.startswith("MIG-") for name in names) else names[:n_devices]


@dataclass(frozen=True, slots=True)
class _DeviceShare:
    """Devices of one job, and its share of each: 1.0, or less of a single one."""

    ids: tuple[str, ...] = ()
    part: float = 1.0


class DevicePool:
    """Devices of this machine and their holders. Two jobs share one only if both asked for a part of one.

    `ids`: ids of the devices, in the form of ``CUDA_VISIBLE_DEVICES``.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        self._shares: dict[JobId, _DeviceShare] = {}
        self._lock = Lock()

    def held_by(self, job: JobId) -> tuple[str, ...]:
        """Return the devices of the job."""
        return self.share_of(job).ids

    def share_of(self, job: JobId) -> _DeviceShare:
        """Return the devices of the job, and its share of each."""
        return self._shares.get(job, _DeviceShare())

    def assign(self, job: JobId, n_devices: float) -> tuple[str, ...]:
        """Assign `n_devices`, a whole number or a part of one; the job keeps as many of its present ones as possible.

        Raises `NoDeviceError`: too few devices are free; the job keeps those that it has.
        """
        with self._lock:
            share = self._shared(job, n_devices) if n_devices < 1.0 - TOLERANCE else self._exclusive(job, n_devices)
            return self._set(job, share)

    def restore(self, job: JobId, ids: Sequence[str], n_devices: float) -> None:
        """Restore the devices of a job that another process has started."""
        with self._lock:
            self._set(job, _DeviceShare(tuple(ids), n_devices if n_devices < 1.0 - TOLERANCE else 1.0))

    def keep(self, job: JobId, ids: Sequence[str]) -> None:
        """Free the devices of the job but `ids`."""
        with self._lock:
            share = self.share_of(job)
            self._set(job, replace(share, ids=tuple(name for name in share.ids if name in ids)))

    def free(self, job: JobId) -> None:
        """Free all devices of the job."""
        with self._lock:
            self._shares.pop(job, None)

    def _set(self, job: JobId, share: _DeviceShare) -> tuple[str, ...]:
        self._shares.pop(job, None)
        if share.ids:
            self._shares[job] = share
        return share.ids

    def _exclusive(self, job: JobId, n_devices: float) -> _DeviceShare:
        n = round(n_devices)
        if abs(n - n_devices) > TOLERANCE:
            raise NoDeviceError(f"{n_devices:g} GPUs are neither a whole number of them nor a part of one")
        usable = [name for name in self.ids if not self._used_by_others(job, name)]
        own = self.held_by(job)
        ids = sorted(usable, key=lambda name: name not in own)[:n]
        if len(ids) < n:
            raise NoDeviceError(
                f"there is no room for {Resources(gpus=n)}: {len(usable)} of {len(self.ids)} are not in use"
            )
        return _DeviceShare(tuple(ids))

    def _shared(self, job: JobId, part: float) -> _DeviceShare:
        if part <= TOLERANCE:
            return _DeviceShare()
        used = {name: self._used_by_others(job, name) for name in self.ids}
        own = self.held_by(job)
        fitting = [name for name in self.ids if used[name] + part <= 1.0 + TOLERANCE]
        if not fitting:
            raise NoDeviceError(f"there is no room for {part:g} of a GPU on any of {len(self.ids)}")
        # The fullest one, so that whole ones stay free.
        return _DeviceShare((max(fitting, key=lambda name: (name in own, used[name])),), part)

    def _used_by_others(self, job: JobId, name: str) -> float:
        return sum(share.part for other, share in self._shares.items() if other != job and name in share.ids)


class JobDevices:
    """The devices of one process of a job.

    `shown`: devices that the process is shown, in order; None: those that it inherits.
    """

    def __init__(self, pool: DevicePool, job: JobId, shown: tuple[str, ...] | None) -> None:
        self._pool = pool
        self._job = job
        self.shown = shown

    @classmethod
    def assigned(cls, pool: DevicePool, job: JobId, n_devices: float, *, can_grow: bool) -> "JobDevices":
        """Assign devices to a process that is to be started; raises `NoDeviceError`.

        `can_grow`: whether the process can be told to use others of its devices. It is shown all then, its own ones
        first.
        """
        own = pool.assign(job, n_devices)
        if not own:
            return cls(pool, job, None)
        return cls(pool, job, (*own, *(name for name in pool.ids if name not in own)) if can_grow else own)

    @classmethod
    def adopted(cls, pool: DevicePool, job: JobId, pid: int, n_devices: float, used: Sequence[int]) -> "JobDevices":
        """Restore the devices of a process that another Punctual process has started.

        `used`: indices, among the devices it is shown, of those that it may use; empty: all.
        """
        shown = _shown_to(pid) if n_devices > 0 else ()
        if shown:
            pool.restore(job, [shown[i] for i in used if i < len(shown)] or shown, n_devices)
        return cls(pool, job, shown or None)

    @property
    def indices(self) -> tuple[int, ...]:
        """Indices of the job's devices among those that its process is shown."""
        held = self._pool.held_by(self._job)
        return tuple(i for i, name in enumerate(self.shown or ()) if name in held)

    @property
    def shared(self) -> tuple[str, float] | None:
        """The one device that the job shares with others, and its part of it; None: it shares none."""
        share = self._pool.share_of(self._job)
        return (share.ids[0], share.part) if share.part < 1.0 - TOLERANCE and len(share.ids) == 1 else None

    def grow(self, n_devices: float) -> None:
        """Raise the number of devices to at least `n_devices`; raises `NoDeviceError`."""
        if n_devices > len(self.indices):
            self._pool.assign(self._job, n_devices)

    def shrink(self, n_devices: float, used: Sequence[int]) -> None:
        """Reduce the number of devices to at most `n_devices`, and keep the `used` ones."""
        if len(self.indices) > n_devices >= 1:
            kept = sorted(self.indices, key=lambda i: i not in used)[: round(n_devices)]
            self._pool.keep(self._job, [(self.shown or ())[i] for i in kept])


def _shown_to(pid: int) -> tuple[str, ...]:
    """Return the devices that a process was shown when it was started."""
    try:
        words = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return ()
    prefix = f"{VISIBLE_VARIABLE}=".encode()
    shown = next((word[len(prefix) :].decode() for word in words if word.startswith(prefix)), "")
    return tuple(name for name in shown.split(",") if name)
