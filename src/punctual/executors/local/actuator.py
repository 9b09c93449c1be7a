"""Actuators, which enforce grants, and the choice among them."""

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.executors.local.cgroup_files import CgroupFiles, remove_dir
from punctual.executors.local.freezer import Freezer
from punctual.executors.local.memory import JobMemory

#: A longer period makes a job advance in jerks, and gives away more when a quota is written: each write refills it.
PERIOD_US = 20_000
#: The kernel takes no shorter quota.
_QUOTA_US_MIN = 1_000


class Unusable(Exception):
    """Raised if the actuator cannot be used here. `why`: reason as a clause, with the file that decides it."""


class JobGroup(Protocol):
    """Control of one job under an actuator: its grant, CPU time, memory and freezing."""

    @property
    def files(self) -> CgroupFiles: ...

    @property
    def freezer(self) -> Freezer:
        """The freezer that pauses the job."""
        ...

    @property
    def memory(self) -> JobMemory: ...

    def grant(self, cores: float) -> float:
        """Enforce `cores` and return the value in force, as read back; raises `OSError`."""
        ...

    def granted_cores(self) -> float:
        """Cores in force, as read back; raises `OSError`."""
        ...

    def used_core_s(self) -> float:
        """CPU time of all the job's processes up to now; raises `OSError` when the group is gone."""
        ...

    def final_core_s(self, usage: str, core_s: float) -> float:
        """CPU time from what the supervisor reports at the end: the usage file's text, and its own count."""
        ...

    def processes(self) -> list[int]:
        """Return the ids of the processes now in the group, as far as known."""
        ...


class Actuator(Protocol):
    """A way to enforce grants on this machine."""

    @property
    def name(self) -> str: ...

    @property
    def can_cap(self) -> bool:
        """Whether a grant is a limit; if not, only pacing slows the job."""
        ...

    @property
    def limits_memory(self) -> bool:
        """Whether it can limit the memory of a job; known after `check`."""
        ...

    def check(self) -> None:
        """Raise `Unusable` if it cannot be used here."""
        ...

    @property
    def supervisor_prefix(self) -> Sequence[str]:
        """Return the words with which the supervisor's command line begins."""
        ...

    def open(self, job: JobId, supervisor_pid: int) -> JobGroup:
        """Make the group of a job that is about to start under this supervisor; raises `OSError`."""
        ...

    def find(self, files: CgroupFiles, supervisor_pid: int) -> JobGroup:
        """Return the group that this actuator has made for a job, perhaps in another process; raises `OSError`."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen actuator, and the reason for the choice in a sentence."""

    actuator: Actuator
    reason: str


def choose(name: str, candidates: Sequence[Actuator]) -> Choice:
    """Choose the first usable candidate, or the one named.

    * `name`: ``auto``, or the name of a candidate; of several with that name the first usable one.
    * `candidates`: actuators in order of preference.

    Raises `InvalidSpec`: no candidate has that name, or it cannot be used here.
    """
    asked = [one for one in candidates if name in ("auto", one.name)]
    if not asked:
        known = ", ".join(dict.fromkeys(one.name for one in candidates))
        raise InvalidSpec(
            "`actuator` must be the name of one", repr(name), "this machine", f"Use `auto`, or one of: {known}."
        )
    obstacles: list[str] = []
    for actuator in asked:
        try:
            actuator.check()
        except Unusable as unusable:
            obstacles.append(str(unusable) if actuator.name == name else f"{actuator.name}: {unusable}")
            continue
        return Choice(actuator, _reason(actuator, name, obstacles))
    raise InvalidSpec(
        f"`actuator` '{name}' must be usable",
        "; ".join(obstacles),
        "this machine",
        "Allow writing there, or use `--actuator auto`, which falls back on pacing.",
    )


def _reason(actuator: Actuator, name: str, obstacles: Sequence[str]) -> str:
    if name != "auto":
        return f"{actuator.name} was asked for."
    if not obstacles:
        return f"{actuator.name} is the first choice, and usable."
    return f"{actuator.name} is the first that is usable ({'; '.join(obstacles)})."


def limit_us(cores: float, n_cpus: int) -> tuple[int | None, int]:
    """Compute the quota for `cores` and its period, in microseconds; quota None: none is needed.

    The quota is rounded down, so that the grants of several jobs never add up to more than was shared out.
    """
    if cores >= n_cpus:
        return None, PERIOD_US
    period_us = PERIOD_US
    if cores * period_us < _QUOTA_US_MIN:
        # Period for grants so small that the kernel rejects their quota of the usual period.
        period_us = 100_000
    return max(_QUOTA_US_MIN, math.floor(cores * period_us + 1e-6)), period_us


def quota_writes(quota_us: int | None, limit: tuple[Path, str], burst: Path) -> list[tuple[Path, str]]:
    """List the writes of files and texts that set `limit`, with an equal `burst` before or after it.

    What a job could not use of a period because the CPUs were not free then, it may make up for in later ones, up to
    `burst`: where several quotas divide a few CPUs, the sum of what they get is smaller by 4 to 8 % without it. The kernel
    takes no burst above the quota. Each write hands out a quota, so that the burst is left as it is from half a quota on.
    """
    try:
        burst_us = int(burst.read_text())
    except FileNotFoundError:  # Linux before 5.14
        return [limit]
    if quota_us is None or quota_us // 2 <= burst_us <= quota_us:
        return [limit]
    follows = burst, str(quota_us)
    return [follows, limit] if burst_us > quota_us else [limit, follows]


def try_out(actuator: Actuator) -> None:
    """Test an actuator by making and limiting a group: the system's files do not show whether that works.

    Raises `Unusable`: the system refused something; names the file.
    """
    try:
        group = actuator.open(JobId("try"), os.getpid())
        try:
            group.grant(0.5)
        finally:
            for folder in group.files.remove_dirs:
                remove_dir(folder)
    except OSError as error:
        raise Unusable(f"'{error.filename}' cannot be used ({error.strerror})") from None
