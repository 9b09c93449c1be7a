"""Actuators, which enforce grants, and the choice among them."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.executors.local.freezer import freezer_of
from punctual.executors.local.memory import memory_of
from punctual.executors.local.process_tree import TreeUsage
from punctual.executors.local.supervisor_files import GroupFiles


class Unusable(Exception):
    """Raised if the actuator cannot be used here. `why`: reason as a clause, with the file that decides it."""


class JobGroup:
    """The processes of one job: its grant, CPU time, memory and freezing.

    This class enforces no grant, and finds the processes below the job's supervisor; its subclasses use control groups.

    `folders`: the job's control groups.
    """

    def __init__(self, supervisor_pid: int, folders: Sequence[Path] = ()) -> None:
        self._n_cpus = os.cpu_count() or 1
        self._cores = float(self._n_cpus)
        self._usage = TreeUsage(supervisor_pid)
        self.freezer = freezer_of(folders, self._usage.processes)
        self.memory = memory_of(folders, self._usage.processes)
        self.files = GroupFiles(counters=self.memory.counters)

    def grant(self, cores: float) -> float:
        """Enforce `cores` and return the value in force, as read back; raises `OSError`."""
        self._cores = min(cores, float(self._n_cpus))
        return self._cores

    def granted_cores(self) -> float:
        """Cores in force, as read back; raises `OSError`."""
        return self._cores

    def used_core_s(self) -> float:
        """CPU time of all the job's processes up to now; raises `OSError` when the group is gone."""
        return self._usage.used_core_s()

    def final_core_s(self, usage: str, core_s: float) -> float:
        """CPU time from what the supervisor reports at the end: the usage file's text, and its own count."""
        return max(core_s, self._usage.used_core_s())

    def processes(self) -> list[int]:
        """Return the ids of the processes now in the group, as far as known."""
        return self._usage.processes()


class Actuator:
    """A way to enforce grants on this machine.

    This class is ``pacing``, which needs no rights: the job itself keeps to its grant. Its subclasses set quotas.

    * `can_cap`: whether a grant is a limit; if not, only pacing slows the job.
    * `limits_memory`: whether it can limit the memory of a job; known after `check`.
    * `supervisor_prefix`: words with which the supervisor's command line begins.
    """

    name = "pacing"
    can_cap = limits_memory = False
    supervisor_prefix: Sequence[str] = ()

    def check(self) -> None:
        """Raise `Unusable` if it cannot be used here."""

    def open(self, job: JobId, supervisor_pid: int) -> JobGroup:
        """Make the group of a job that is about to start under this supervisor; raises `OSError`."""
        return JobGroup(supervisor_pid)

    def find(self, files: GroupFiles, supervisor_pid: int) -> JobGroup:
        """Return the group that this actuator has made for a job, perhaps in another process; raises `OSError`."""
        return JobGroup(supervisor_pid)


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
