"""Shared context of all jobs of a local executor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from punctual.core.ids import JobId, NodeId
from punctual.core.protocols import Clock
from punctual.executors.local.actuator import Actuator
from punctual.executors.local.devices import DevicePool
from punctual.executors.local.output import Streams
from punctual.executors.local.poller import Poller

#: Gets what a job writes, as it comes and from another thread. None: the job writes where this process does.
OnOutput = Callable[[bytes], None] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutorContext:
    """See the parameters of `punctual.executors.local.executor.LocalExecutor`.

    Attributes
    ----------
    poller
        Looks at what takes a while.
    files_limit
        The limit of open files that jobs get, soft and hard.
    """

    node: NodeId
    actuator: Actuator
    runtime_dir: Path
    clock: Clock
    stop_grace_s: float
    poller: Poller
    files_limit: tuple[int, int]
    devices: DevicePool
    on_kept: Callable[[JobId, int, int], None]
    lease_s: float | None
    fence_s: float | None
    end_file_of: Callable[[JobId], Path | None]
    log_of: Callable[[JobId], Path]
    environment_of: Callable[[JobId], Mapping[str, str] | None]
    argv_of: Callable[[JobId], Sequence[str] | None]
    output_of: Callable[[JobId], OnOutput]
    streams_of: Callable[[JobId], Streams | None]
    may_steer: Callable[[], bool]
