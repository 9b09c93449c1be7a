"""The shared memory page between a training process and Punctual. Standard library only.

One page of 4 KiB per job, in memory that both sides map. Each region has one writer and is guarded by a version
counter at both ends: the writer stores the new version, the payload, the version again, in this order; a reader reads
the closing version, then the payload, then the opening version, and takes the payload only if both are equal.
A version read at the end and found again at the start means that no later write had begun. No lock is ever held, so
neither side can block the other or be hurt by its death; while a writer stands still in the middle of a write, readers
keep to what they read last.

=========== ======================= =====================================================================
region      writer                  content
=========== ======================= =====================================================================
header      Punctual, once          magic and layout version
progress    training, every unit    steps done, stamp and clocks of the last unit, phase in progress
declaration training, rarely        process id, declared steps, state, fault
phases      training, every phase   table of up to eight kinds of phases
losses      training, if it has     the last losses, and how many there were in all
directives  Punctual                pacing line, request to stop
heartbeat   Punctual, every tick    stamp, so that a process notices that nobody steers it any more
device      training, now and then  name and memory of the device that it computes on, and the wait for its turns there
target      Punctual                how many workers an elastic training is to have on its node, numbered
group       agent, once             where processes of the job on other nodes find it, and the key that they share
status      agent, every change     how many it has there, the last target answered, what changes of size have cost
=========== ======================= =====================================================================

Stamps are nanoseconds of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from enum import IntEnum
from math import isfinite

#: Environment variable that names the page's file to the training process.
BLOCK_VARIABLE = "PUNCTUAL_PAGE"

#: Environment variable that tells a job its own name.
JOB_VARIABLE = "PUNCTUAL_JOB"

#: Environment variable that names the folder of checkpoints to a training that says none itself.
CHECKPOINT_VARIABLE = "PUNCTUAL_CHECKPOINT_DIR"

#: Environment variable that tells an elastic training the most workers it may ever have.
WORKERS_VARIABLE = "PUNCTUAL_WORKERS_MAX"

#: Environment variable that tells an elastic training the least and the most parameter servers it may have, as ``1..2``:
#: the number in the target, within this range.
SERVERS_VARIABLE = "PUNCTUAL_SERVERS"

#: Environment variable that tells an elastic training at which address of its node other nodes reach it.
NODE_ADDRESS_VARIABLE = "PUNCTUAL_NODE_ADDRESS"

#: Environment variables that tell a process of an elastic training on another node than its first where that listens, as
#: ``address:port``, and the key that they share.
GROUP_VARIABLE, GROUP_KEY_VARIABLE = "PUNCTUAL_GROUP", "PUNCTUAL_GROUP_KEY"

#: Environment variables that tell a training which part of one device it may use, and where it finds its turns there.
DEVICE_SHARE_VARIABLE, DEVICE_TURNS_VARIABLE = "PUNCTUAL_DEVICE_SHARE", "PUNCTUAL_DEVICE_TURNS"

#: Environment variable that tells a training at which loss it may end.
GOAL_VARIABLE = "PUNCTUAL_UNTIL_LOSS"

#: Exit codes of a process that ended because it was told to: for good, as a shell has it after SIGTERM (not zero: what
#: follows a training with `&&` must not run after half of one); and to be started again from its checkpoint.
EXIT_STOPPED = 143
EXIT_PREEMPTED = 79

PAGE_BYTES = 4096
N_PHASES_MAX = 8
N_LOSSES_MAX = 32
#: Devices are told as bits of a number of 64 that has a sign.
N_DEVICES_MAX = 63
#: The largest number of a field, of a version, and of a process: Linux has none above.
_WORD_MAX, _VERSION_MAX, _PID_MAX = 2**63 - 1, 2**64 - 1, 2**22
_NAME_BYTES = 24
_CAUSE_BYTES = 160
_KEY_BYTES = 32
_DEVICE_BYTES = 64
_MAGIC = b"PNCTUAL\x04"

#: A torn read is retried at once; a writer is inside a region for a microsecond, so this many failures in a row mean
#: that it was stopped there: by its quota for some milliseconds, or for good.
_N_READS_MAX = 200


class ProgramState(IntEnum):
    """State of the training process."""

    STARTING = 0
    TRAINING = 1
    LANDED = 2  # everything declared is done
    LEFT = 3  # it has a checkpoint and ends because it was told to leave; started again, it goes on from there


class Fault(IntEnum):
    """Contradictions between a process's declaration and its work; it goes on, and the run's end reports them."""

    NONE = 0
    ZERO_STEPS = 1
    MORE_STEPS = 2
    TOO_MANY_PHASES = 3


@dataclass(frozen=True, slots=True)
class Progress:
    """The latest unit. `i_phase` is -1 outside phases.

    Attributes
    ----------
    cpu_ns, busy_ns, device_ns
        Clocks of the process when the unit was done: of its CPU time; of the time that it did not wait for Punctual; and
        of the time that its device computed, 0 without a device.
    """

    n_steps: int = 0
    stamp_ns: int = 0
    cpu_ns: int = 0
    i_phase: int = -1
    busy_ns: int = 0
    device_ns: int = 0


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The device that a training computes on.

    Attributes
    ----------
    memory_bytes, total_bytes
        Most memory that the process has reserved there, and what there is.
    waited_ns, n_turns
        Nanoseconds of waiting for its turns on a shared device, and number of turns.
    """

    name: str = ""
    memory_bytes: int = 0
    total_bytes: int = 0
    waited_ns: int = 0
    n_turns: int = 0


@dataclass(frozen=True, slots=True)
class Declaration:
    """Process id and declaration of the training. `total_steps` 0: not declared."""

    pid: int = 0
    total_steps: int = 0
    start_step: int = 0
    state: ProgramState = ProgramState.STARTING
    fault: Fault = Fault.NONE
    can_stop: bool = False


@dataclass(frozen=True, slots=True)
class PhaseEntry:
    """One kind of phase; see `punctual.core.control.PhaseProgress` for the meaning. `cost_steps` below 0: unknown."""

    name: str
    units_planned: float = 0.0
    n_units_done: int = 0
    n_units_measured: int = 0
    cpu_ns: int = 0
    wall_ns: int = 0
    cost_steps: float = -1.0
    device_ns: int = 0


@dataclass(frozen=True, slots=True)
class Directives:
    """Directives of Punctual to the process. Work is in steps; a unit of phase i counts `phase_cost_steps[i]` steps.

    Attributes
    ----------
    pacing
        Whether to keep to the line that the numbers describe.
    stop
        Make a checkpoint and end; exit code `EXIT_STOPPED`.
    leave
        Make a checkpoint and end, to be started again from it: exit code `EXIT_PREEMPTED` and state `LEFT`. A process whose
        checkpoint cannot be written trains on instead.
    """

    pacing: bool = False
    stop: bool = False
    leave: bool = False
    end_ns: int = 0
    end_work: float = 0.0
    ns_per_step: float = 0.0
    phase_cost_steps: tuple[float, ...] = ()

    def unit_may_end_ns(self, work: float) -> float:
        """Instant before which `work` should not be done."""
        return self.end_ns - (self.end_work - work) * self.ns_per_step


@dataclass(frozen=True, slots=True)
class WorkerTarget:
    """Wanted workers of the training. `n_workers` 0: the job has no workers.

    Attributes
    ----------
    request
        Numbers the targets, each larger than the one before.
    n_devices_each
        Devices that one worker uses; 0: it trains on cores.
    n_servers
        Parameter servers beside the workers.
    devices
        Indices of the devices (in the process's `CUDA_VISIBLE_DEVICES`) that its workers may use, counted
        from 0 and below 63; empty: all. Workers that use another one already keep it.
    spans_nodes
        Whether there are workers on other nodes too, or will be, for whom the training must listen.
    """

    request: int = 0
    n_workers: int = 0
    n_devices_each: int = 0
    n_servers: int = 0
    devices: tuple[int, ...] = ()
    spans_nodes: bool = False


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """The workers of an elastic training on one node, as their agent counts them.

    Attributes
    ----------
    agent_pid
        0: there is no agent, or not yet.
    request
        Number of the last target that was answered: fulfilled, or given up for the reason in `cause`.
    n_workers, generation
        Workers that train now, and the number of this membership; each change has a larger one.
    n_resizes
        Planned changes of the number of workers, the first start not counted.
    last_stop_ns, longest_stop_ns
        From the last step before a change, planned or not, to the first step after it; of the last, and the longest.
    n_steps_redone
        Steps done or begun whose work was lost.
    n_workers_lost
        Workers that ended or hung when nobody had asked them to leave.
    n_servers
        Parameter servers that train with them.
    devices
        Indices of the workers' devices among those that the job's process is shown, counted from 0.
    cause
        Why the last target was given up; empty: it was not.
    """

    agent_pid: int = 0
    request: int = 0
    n_workers: int = 0
    generation: int = 0
    n_resizes: int = 0
    last_stop_ns: int = 0
    longest_stop_ns: int = 0
    n_steps_redone: int = 0
    n_workers_lost: int = 0
    n_servers: int = 0
    devices: tuple[int, ...] = ()
    cause: str = ""


class _Region:
    """A guarded struct at a fixed place in the page.

    `struct` clears its target before it packs, so the guards are written by calls of their own: packed together with
    the payload both would be zero for a moment, and a reader would take a half-written payload for a whole one.
    """

    def __init__(self, offset: int, payload: str) -> None:
        self._payload = struct.Struct(f"<{payload}")
        self._guard = struct.Struct("<Q")
        self.offset = offset
        self._payload_offset = offset + self._guard.size
        self._closing_offset = self._payload_offset + self._payload.size
        #: Payload of a region that was never written.
        self.empty = self._payload.unpack(bytes(self._payload.size))

    def write(self, page: mmap.mmap, *payload: object) -> None:
        """Replace the payload; a number that its field cannot hold becomes the nearest one that it can."""
        # The other side may have written a version from which there is no larger one.
        version = (self.version(page) + 1) & _VERSION_MAX or 1
        self._guard.pack_into(page, self.offset, version)
        try:
            self._payload.pack_into(page, self._payload_offset, *payload)
        except (struct.error, OverflowError):
            self._payload.pack_into(page, self._payload_offset, *map(_in_range, payload))
        self._guard.pack_into(page, self._closing_offset, version)

    def read(self, page: mmap.mmap) -> tuple[object, ...] | None:
        """Return the payload; None if it was never written, or if its writer stopped while writing."""
        for _ in range(_N_READS_MAX):
            (closing,) = self._guard.unpack_from(page, self._closing_offset)
            fields = self._payload.unpack_from(page, self._payload_offset)
            if self.version(page) == closing:
                return fields if closing else None
        return None

    def version(self, page: mmap.mmap) -> int:
        """Version at the opening of a write, written byte by byte: compare it for a change only."""
        (opening,) = self._guard.unpack_from(page, self.offset)
        return int(opening)

    def version_done(self, page: mmap.mmap) -> int:
        """Version after the last complete write; compare it to detect new data."""
        (closing,) = self._guard.unpack_from(page, self._closing_offset)
        return int(closing)


_PROGRESS = _Region(64, "qqqqqq")
_DECLARATION = _Region(128, "qqqqqq")
_HEARTBEAT = _Region(256, "q")
_DIRECTIVES = _Region(320, f"qqqqdd{N_PHASES_MAX}d")
_TARGET = _Region(448, "qqqqqq")
_STATUS = _Region(512, f"qqqqqqqqqqq{_CAUSE_BYTES}s")
_GROUP = _Region(832, f"q{_KEY_BYTES}s")
_DEVICE = _Region(896, f"qqqq{_DEVICE_BYTES}s")
_PHASES = _Region(1024, "q" + f"{_NAME_BYTES}sdqqqqqd" * N_PHASES_MAX)


_LOSSES = _Region(2048, "q" + "qd" * N_LOSSES_MAX)


class PageError(Exception):
    """Raised if the file is no page of this layout."""


class PageVersionError(PageError):
    """Raised if it is a page of another version of Punctual."""


class SharedBlock:
    """A mapped page; both sides use it, each its own half of the methods."""

    def __init__(self, mapped: mmap.mmap) -> None:
        self._map = mapped
        self._seen: dict[_Region, tuple[object, ...]] = {}
        #: Names of values that were read and rejected as impossible.
        self.disbelieved: set[str] = set()

    @classmethod
    def create(cls, path: str) -> SharedBlock:
        """Make a new page at `path`, readable by its owner only; fails if the file exists or the disk is full."""
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if hasattr(os, "posix_fallocate"):
                # Not only its length: where memory is full, writing to a page that has none yet ends the process (SIGBUS).
                os.posix_fallocate(fd, 0, PAGE_BYTES)
            os.ftruncate(fd, PAGE_BYTES)
            mapped = mmap.mmap(fd, PAGE_BYTES)
        except OSError:
            os.unlink(path)  # noqa: PTH108 -- every training would have to import pathlib
            raise
        finally:
            os.close(fd)
        return cls.made(mapped)

    @classmethod
    def made(cls, mapped: mmap.mmap) -> SharedBlock:
        """A new page in memory that is all zeros."""
        mapped[: len(_MAGIC)] = _MAGIC
        return cls(mapped)

    @classmethod
    def open(cls, path: str) -> SharedBlock:
        """Map the page at `path`; raises `PageError` if it is something else, `OSError` if it cannot be opened."""
        fd = os.open(path, os.O_RDWR)
        try:
            if os.fstat(fd).st_size != PAGE_BYTES:
                raise PageError(f"{path} is not a Punctual page of {PAGE_BYTES} bytes")
            mapped = mmap.mmap(fd, PAGE_BYTES)
        finally:
            os.close(fd)
        if mapped[: len(_MAGIC) - 1] != _MAGIC[:-1]:
            raise PageError(f"{path} does not begin as a Punctual page does")
        if mapped[: len(_MAGIC)] != _MAGIC:
            raise PageVersionError(f"{path} was written by another version of Punctual")
        return cls(mapped)

    @classmethod
    def private(cls) -> SharedBlock:
        """Make a page that no other process has."""
        return cls.made(mmap.mmap(-1, PAGE_BYTES))

    @classmethod
    def of(cls, content: bytes) -> SharedBlock:
        """Make a page with another one's content; raises `PageError` if that was no page."""
        if len(content) != PAGE_BYTES or not content.startswith(_MAGIC):
            raise PageError(f"{len(content)} bytes that are no Punctual page of {PAGE_BYTES}")
        mapped = mmap.mmap(-1, PAGE_BYTES)
        mapped[:] = content
        return cls(mapped)

    def close(self) -> None:
        self._map.close()

    def keep_copy(self) -> None:
        """Continue with a private copy of the page, which holds no file; also while another thread reads the page."""
        copy = mmap.mmap(-1, PAGE_BYTES)
        copy[:] = self._map[:]
        self._map = copy

    def _read(self, region: _Region) -> tuple[object, ...]:
        """Return the payload of `region`; the last one read if a write is incomplete; `region.empty` before the first."""
        fields = region.read(self._map) or self._seen.get(region, region.empty)
        self._seen[region] = fields
        return fields

    def _check(self, what: str, read: object, believed: object) -> None:
        if read != believed:
            self.disbelieved.add(what)

    # The training side.

    def publish_progress(
        self, n_steps: int, stamp_ns: int, cpu_ns: int, i_phase: int, busy_ns: int = 0, device_ns: int = 0
    ) -> None:
        """Publish the end of a unit. The hot path: one call a step."""
        _PROGRESS.write(self._map, n_steps, stamp_ns, cpu_ns, i_phase, busy_ns, device_ns)

    def publish_device(self, use: DeviceUse) -> None:
        name, *amounts = astuple(use)
        _DEVICE.write(self._map, *amounts, _fit(name, _DEVICE_BYTES))

    def declare(self, declaration: Declaration) -> None:
        _DECLARATION.write(self._map, *astuple(declaration))

    def publish_phases(self, entries: list[PhaseEntry]) -> None:
        """Replace the table of phases; entries past `N_PHASES_MAX` are left out."""
        flat: list[object] = []
        for entry in entries[:N_PHASES_MAX]:
            flat += [
                _fit(entry.name), entry.units_planned, entry.n_units_done,
                entry.n_units_measured, entry.cpu_ns, entry.wall_ns, entry.device_ns, entry.cost_steps,
            ]  # fmt: skip
        for _ in range(N_PHASES_MAX - len(entries)):
            flat += [b"", 0.0, 0, 0, 0, 0, 0, -1.0]
        _PHASES.write(self._map, min(len(entries), N_PHASES_MAX), *flat)

    def publish_losses(self, n_losses: int, latest: Sequence[tuple[int, float]]) -> None:
        """Publish the number of all losses, and the `latest` ones, `N_LOSSES_MAX` or less: steps and loss."""
        flat: list[object] = [number for seen in latest for number in seen]
        flat += [0, 0.0] * (N_LOSSES_MAX - len(latest))
        _LOSSES.write(self._map, n_losses, *flat)

    def directives_version(self) -> int:
        """Number that changes with the directives; cheap enough to read at every step."""
        return _DIRECTIVES.version_done(self._map)

    def directives(self) -> Directives:
        fields = self._read(_DIRECTIVES)
        if fields is _DIRECTIVES.empty:
            return Directives()
        pacing, stop, leave, end_ns, end_work, ns_per_step, *costs = fields
        return Directives(bool(pacing), bool(stop), bool(leave), end_ns, end_work, ns_per_step, tuple(costs))  # type: ignore[arg-type]

    def heartbeat_ns(self) -> int:
        """Instant of Punctual's last tick; 0: none."""
        (stamp_ns,) = self._read(_HEARTBEAT)
        return stamp_ns  # type: ignore[return-value]

    def worker_target(self) -> WorkerTarget:
        """Return the wanted workers; an empty target for a job without workers."""
        *counts, devices, spans_nodes = self._read(_TARGET)
        return WorkerTarget(*counts, _devices_of(devices), bool(spans_nodes))  # type: ignore[arg-type, call-arg]

    def publish_group(self, port: int, key: bytes) -> None:
        """Publish the port and key for other nodes; only the agent calls it, once."""
        _GROUP.write(self._map, port, key)

    def publish_workers(self, status: WorkerStatus) -> None:
        """Publish the status of the workers; only the agent calls it."""
        *counts, devices, cause = astuple(status)
        _STATUS.write(self._map, *counts, _mask_of(devices), _fit(cause, _CAUSE_BYTES))

    # Punctual's side.

    def progress(self) -> Progress:
        """Return the latest unit; an empty one before the first."""
        fields = self._read(_PROGRESS)
        if fields is _PROGRESS.empty:
            return Progress()
        n_steps, stamp_ns, cpu_ns, _, *clocks_ns = map(_count_of, fields)
        i_phase = _count_of(fields[3]) if fields[3] in range(N_PHASES_MAX) else -1
        self._check("progress", fields, (n_steps, stamp_ns, cpu_ns, i_phase, *clocks_ns))
        return Progress(n_steps, stamp_ns, cpu_ns, i_phase, *clocks_ns)

    def device(self) -> DeviceUse:
        """Return the device that the training computes on; an empty one if it reports none."""
        *amounts, name = self._read(_DEVICE)
        return DeviceUse(_text_of(name), *map(_count_of, amounts))

    def declaration(self) -> Declaration:
        fields = self._read(_DECLARATION)
        pid, total_steps, start_step, state, fault, can_stop = map(_count_of, fields)
        pid = pid if pid <= _PID_MAX else 0
        i_state = state if state <= max(ProgramState) else ProgramState.STARTING
        i_fault = fault if fault <= max(Fault) else Fault.NONE
        self._check("declaration", fields[:5], (pid, total_steps, start_step, i_state, i_fault))
        return Declaration(pid, total_steps, start_step, ProgramState(i_state), Fault(i_fault), bool(can_stop))

    def phases_version(self) -> int:
        return _PHASES.version_done(self._map)

    def phases(self) -> list[PhaseEntry]:
        count, *flat = self._read(_PHASES)
        n_entries = min(_count_of(count), N_PHASES_MAX)
        self._check("phases", count, n_entries)
        entries = []
        for i in range(n_entries):
            name, planned, *counts, cost_steps = flat[i * 8 : (i + 1) * 8]
            amounts = [max(0.0, _number_of(planned)), *map(_count_of, counts)]
            self._check("phases", (planned, *counts, cost_steps), (*amounts, _number_of(cost_steps)))
            *amounts, device_ns = amounts
            entries.append(PhaseEntry(_text_of(name), *amounts, _number_of(cost_steps), device_ns))  # type: ignore[arg-type, call-arg]
        return entries

    def losses(self) -> tuple[int, list[tuple[int, float]]]:
        """Return the number of all losses, and the last of them in order: steps and loss."""
        n_losses, *flat = self._read(_LOSSES)
        n_kept = min(_count_of(n_losses), N_LOSSES_MAX)
        told = [*zip(flat[: 2 * n_kept : 2], flat[1 : 2 * n_kept : 2], strict=True)]
        # One that is no number is left out, as tracking does: zero would be a goal that is reached.
        seen = [(_count_of(n), _number_of(loss)) for n, loss in told if isinstance(loss, float) and isfinite(loss)]
        self._check("losses", (n_losses, told), (_count_of(n_losses), seen))
        return _count_of(n_losses), seen

    def send(self, directives: Directives) -> None:
        *line, costs = astuple(directives)
        padded = (*costs, *[0.0] * N_PHASES_MAX)[:N_PHASES_MAX]
        _DIRECTIVES.write(self._map, *line, *padded)

    def heartbeat(self, stamp_ns: int) -> None:
        _HEARTBEAT.write(self._map, stamp_ns)

    def send_worker_target(self, target: WorkerTarget) -> None:
        *counts, devices, spans_nodes = astuple(target)
        _TARGET.write(self._map, *counts, _mask_of(devices), spans_nodes)

    def group(self) -> tuple[int, bytes] | None:
        """Return the port at which the agent listens for other nodes, and the key; None: it does not listen."""
        port, key = self._read(_GROUP)
        return (_count_of(port), key) if 0 < _count_of(port) < 65_536 and isinstance(key, bytes) else None

    def worker_status(self) -> WorkerStatus:
        """Return the status of the workers; an empty one before there is an agent."""
        *counts, devices, cause = self._read(_STATUS)
        self._check("workers", counts, [*map(_count_of, counts)])
        return WorkerStatus(*map(_count_of, counts), _devices_of(devices), _text_of(cause))  # type: ignore[arg-type, call-arg]


def _in_range(value: object) -> object:
    """Limit an integer to the range of a field; other values stay."""
    return max(-_WORD_MAX, min(value, _WORD_MAX)) if isinstance(value, int) else value


def _fit(name: str, n_bytes: int = _NAME_BYTES) -> bytes:
    """`name` cut to the table's width, never inside a character."""
    return name.encode()[:n_bytes].decode("utf-8", "ignore").encode()


def short_name(name: str) -> str:
    """Return a phase's name as the page stores it."""
    return _fit(name).decode()


def process_number() -> int:
    """Number of this process in `/proc`; in a PID namespace whose `/proc` is another's, not that of `getpid`.

    Whoever opens a page of another process by `/proc` is known there by this number.
    """
    try:
        return int(os.readlink("/proc/self"))  # noqa: PTH115 -- pathlib takes long to load
    except (OSError, ValueError):  # there is none, or this process is not in it
        return os.getpid()


# A training can write anything into its page; what Punctual reads there is of the right type and range in any case.


def _count_of(value: object) -> int:
    return max(0, value) if isinstance(value, int) else 0


def _number_of(value: object) -> float:
    return value if isinstance(value, float) and isfinite(value) else 0.0


def _text_of(padded: object) -> str:
    return padded.rstrip(b"\0").decode("utf-8", "replace") if isinstance(padded, bytes) else ""


def _mask_of(devices: Sequence[int]) -> int:
    return sum(1 << i for i in devices)


def _devices_of(mask: object) -> tuple[int, ...]:
    return tuple(i for i in range(N_DEVICES_MAX) if _count_of(mask) >> i & 1)
