"""What enforces a grant, and the choice of it."""

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
#: For grants so small that the kernel would not take their quota of the usual period.
_PERIOD_US_MAX = 100_000
#: The kernel takes no shorter quota.
_QUOTA_US_MIN = 1_000


class Unusable(Exception):
    """The actuator cannot be used here.

    Parameters
    ----------
    why
        As a clause, with the file that decides it.
    """


class JobGroup(Protocol):
    """One job under an actuator."""

    @property
    def files(self) -> CgroupFiles: ...

    @property
    def freezer(self) -> Freezer:
        """What pauses the job."""
        ...

    @property
    def memory(self) -> JobMemory: ...

    def grant(self, cores: float) -> float:
        """Put `cores` in force and return what is, as read back; raises `OSError`."""
        ...

    def granted_cores(self) -> float:
        """What is in force, as read back; raises `OSError`."""
        ...

    def used_core_s(self) -> float:
        """CPU time of all the job's processes up to now; raises `OSError` when the group is gone."""
        ...

    def final_core_s(self, usage: str, core_s: float) -> float:
        """CPU time from what the keeper reports at the end: the usage file's text, and its own count."""
        ...

    def processes(self) -> list[int]:
        """Who is in the group now, as far as is known."""
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
    def keeper_prefix(self) -> Sequence[str]:
        """What the keeper's command line begins with."""
        ...

    def open(self, job: JobId, keeper_pid: int) -> JobGroup:
        """Make the group of a job that is about to start under this keeper; raises `OSError`."""
        ...

    def find(self, files: CgroupFiles, keeper_pid: int) -> JobGroup:
        """The group that this actuator has made of a job, perhaps in another process; raises `OSError`."""
        ...


@dataclass(frozen=True, slots=True)
class Choice:
    """The actuator, and in a sentence why it is this one."""

    actuator: Actuator
    reason: str


def choose(name: str, candidates: Sequence[Actuator]) -> Choice:
    """The first usable candidate, or the one named.

    Parameters
    ----------
    name
        ``auto``, or the name of a candidate; of several with that name the first usable one.
    candidates
        In order of preference.

    Raises
    ------
    InvalidSpec
        There is none of that name, or it cannot be used here.
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
    """The quota that gives `cores`, and the period in which it does; quota None: none is needed.

    The quota is rounded down, so that the grants of several jobs never add up to more than was shared out.
    """
    if cores >= n_cpus:
        return None, PERIOD_US
    period_us = PERIOD_US
    if cores * period_us < _QUOTA_US_MIN:
        period_us = _PERIOD_US_MAX
    return max(_QUOTA_US_MIN, math.floor(cores * period_us + 1e-6)), period_us


def quota_writes(quota_us: int | None, limit: tuple[Path, str], burst: Path) -> list[tuple[Path, str]]:
    """`limit`, a file and its text, and before or after it as much again for `burst`.

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
    """Make a group and limit it: what the system's files say of rights does not tell whether that works.

    Raises
    ------
    Unusable
        The system refused something; names the file.
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
