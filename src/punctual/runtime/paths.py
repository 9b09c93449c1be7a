"""Where runs live on this machine.

What lasts as long as the run (control socket, records of its processes) is in the user's runtime folder;
what stays (the journal, and the record again) is in the user's state folder. With `PUNCTUAL_HOME` set, both are below
that folder.
"""

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from stat import S_IMODE
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId

HOME_VARIABLE = "PUNCTUAL_HOME"

_RECORD = "run.json"
_KEEPER = "keeper.json"
#: An error names at most so many runs; a user may have hundreds.
_N_NAMED = 8
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Run:
    """The places of one run."""

    job: JobId
    runtime_dir: Path
    state_dir: Path

    @property
    def socket(self) -> Path:
        return self.runtime_dir / "control.sock"

    @property
    def journal(self) -> Path:
        return self.state_dir / "journal.db"

    def record(self) -> dict[str, Any]:
        """What was written down about the run's process; empty if there is none or it cannot be read."""
        return _read_record(self.runtime_dir) or _read_record(self.state_dir)

    def is_live(self) -> bool:
        """Whether the process that made this run is still there."""
        return _is_live(_read_record(self.runtime_dir))

    def machine(self) -> str | None:
        """The other machine that has this run, or had it: both see the same folder. None: this one."""
        record = _read_record(self.runtime_dir)
        there = record.get("machine", os.uname().nodename)
        return None if _is_of_here(record) or there == os.uname().nodename else there

    def keeper_pid(self) -> int | None:
        """The process that keeps the job, if it is there; it outlives the one that made the run."""
        record = _read_record(self.runtime_dir, _KEEPER)
        return record["pid"] if _is_live(record) else None


def runtime_root() -> Path:
    """The folder of all live runs; made, for its owner only, if it is missing."""
    return _private(_root("runtime") / "live")


def state_root() -> Path:
    """The folder of all runs' journals; made, for its owner only, if it is missing."""
    return _private(_root("state") / "runs")


def create_run(job: JobId, facts: Mapping[str, Any] | None = None) -> Run:
    """Make the places of a new run of this process.

    The journal of an earlier run of the same name is kept under the name with a number added.

    Parameters
    ----------
    facts
        Kept in the run's record beside process id and its start (JSON values): command line, wall time.

    Raises
    ------
    InvalidSpec
        The name cannot be a file's name, a live run has it, or nothing can be written where runs live.
    """
    _check_name(job)
    run = _run(job)
    _sweep()
    record = json.dumps({**(facts or {}), "job": job, **_process(os.getpid())})
    with _refused_if_unwritable(run.runtime_dir.parent):
        _claim(run, record)
    with _refused_if_unwritable(run.state_dir.parent):
        _keep_earlier(run.state_dir)
        run.state_dir.mkdir(mode=0o700)
        (run.state_dir / _RECORD).write_text(record)
    return run


def record_keeper(run: Run, pid: int) -> None:
    """Write down who keeps the job, for the case that the run's own process is killed."""
    (run.runtime_dir / _KEEPER).write_text(json.dumps(_process(pid)))


def record_steering(run: Run) -> None:
    """Write down that this process steers the run from now on, in place of the one that has died."""
    record = {**_read_record(run.runtime_dir), **_process(os.getpid())}
    prepared = run.runtime_dir / f".{_RECORD}"
    prepared.write_text(json.dumps(record))
    prepared.replace(run.runtime_dir / _RECORD)


def remove_live_places(run: Run) -> None:
    """Remove what only a live run needs; its journal stays."""
    shutil.rmtree(run.runtime_dir, ignore_errors=True)


def live_runs() -> list[Run]:
    """Runs whose process is there, by name."""
    return [run for run in _runs_in(runtime_root()) if run.is_live()]


def unsteered_runs() -> list[Run]:
    """Runs whose process was killed while the job runs on, by name."""
    return [run for run in _runs_in(runtime_root()) if not run.is_live() and run.keeper_pid() is not None]


def known_runs() -> list[Run]:
    """All runs that have left a journal, by name."""
    return _runs_in(state_root())


def find_run(text: str | None, among: Iterable[Run]) -> Run:
    """The run named `text`, or the only one whose name begins so; None: the only one there is.

    Raises
    ------
    InvalidSpec
        There is no such run, or more than one.
    """
    runs = list(among)
    matching = [run for run in runs if run.job == text] or [run for run in runs if run.job.startswith(text or "")]
    if len(matching) == 1:
        return matching[0]
    raise _not_one(text, matching, runs)


def _not_one(text: str | None, matching: list[Run], runs: list[Run]) -> InvalidSpec:
    must, where = "the name must be that of exactly one run, or its beginning", "the runs of this user"
    said = "no name" if text is None else f"'{text}'"
    if not runs:
        return InvalidSpec(must, f"{said}, and there are none", where, "Start one with `punctual run`.")
    known = [run.job for run in (matching or runs)]
    more = f" and {len(known) - _N_NAMED} more" if len(known) > _N_NAMED else ""
    got = f"{said}, which fits {len(matching)} of {len(runs)}"
    return InvalidSpec(must, got, where, f"Name one of: {', '.join(known[:_N_NAMED])}{more}.")


def _run(job: JobId) -> Run:
    return Run(job, runtime_root() / job, state_root() / job)


def _runs_in(root: Path) -> list[Run]:
    folders = sorted(folder.name for folder in root.iterdir() if folder.is_dir() and _NAME.fullmatch(folder.name))
    return [_run(JobId(name)) for name in folders]


def _root(kind: str) -> Path:
    home = os.environ.get(HOME_VARIABLE)
    if home:
        return Path(home).absolute() / kind
    import platformdirs

    # Without a login session there is no runtime folder of the user's own, and the place shared by all (/tmp) would
    # have to be defended against the others.
    if kind == "runtime" and os.environ.get("XDG_RUNTIME_DIR"):
        return platformdirs.user_runtime_path("punctual")
    return platformdirs.user_state_path("punctual")


def _private(folder: Path) -> Path:
    """`folder`, made if missing, and nobody else's."""
    with _refused_if_unwritable(folder):
        folder.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        folder.mkdir(mode=0o700, exist_ok=True)
    for place in (folder.parent, folder):
        _check_owner(place)
    if S_IMODE(folder.stat().st_mode) != 0o700:  # what is right already may lie where nothing can be changed
        folder.chmod(0o700)
    return folder


@contextmanager
def _refused_if_unwritable(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidSpec(
            "the folder must be one where files can be made", f"'{error.filename}': {error.strerror}", f"'{folder}'",
            f"Make room or give the right to, or set {HOME_VARIABLE} to another folder.",
        ) from error  # fmt: skip


def _check_owner(folder: Path) -> None:
    for found in (folder.lstat(), folder.stat()):  # a link, and what it leads to
        if found.st_uid == os.geteuid():
            continue
        raise InvalidSpec(
            "the folder must belong to this user", f"one of user {found.st_uid}", f"'{folder}'",
            f"Remove it, or set {HOME_VARIABLE} to a folder of your own.",
        )  # fmt: skip


def _check_name(job: JobId) -> None:
    if not _NAME.fullmatch(job):
        raise InvalidSpec(
            "`name` must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit", repr(job),
            f"job '{job}'", "Choose another name (`--name`).",
        )  # fmt: skip


def _claim(run: Run, record: str) -> None:
    """Put the runtime folder, record included, in its place in one step: of two processes one gets the name."""
    prepared = Path(tempfile.mkdtemp(prefix=".new-", dir=run.runtime_dir.parent))
    try:
        (prepared / _RECORD).write_text(record)
        while not _renamed(prepared, run.runtime_dir):
            if run.is_live() or run.keeper_pid() is not None:
                raise InvalidSpec(
                    "`name` must be that of no live run", f"'{run.job}'", f"job '{run.job}'",
                    f"Choose another name, or end that one first (`punctual stop {run.job}`).",
                )  # fmt: skip
            if run.machine() is not None:
                raise InvalidSpec(
                    "`name` must be that of no live run", f"'{run.job}', a run of machine '{run.machine()}'", f"job '{run.job}'",
                    f"Choose another name, or remove '{run.runtime_dir}' if it has ended.",
                )  # fmt: skip
            shutil.rmtree(run.runtime_dir, ignore_errors=True)
    finally:
        shutil.rmtree(prepared, ignore_errors=True)


def _renamed(source: Path, target: Path) -> bool:
    """Whether `source` took the place of `target`; not if there is something in it."""
    try:
        source.rename(target)
    except OSError:
        if not target.exists():
            raise
        return False
    return True


def _keep_earlier(folder: Path) -> None:
    number = 1
    while folder.exists():
        kept = folder.with_name(f"{folder.name}.{number}")
        if not kept.exists():
            folder.rename(kept)
        number += 1


def _sweep() -> None:
    """Remove what killed processes left in the runtime folder."""
    for run in _runs_in(runtime_root()):
        if not run.is_live() and run.keeper_pid() is None and run.machine() is None:
            remove_live_places(run)


def _process(pid: int) -> dict[str, Any]:
    return {"pid": pid, "start_ticks": _start_ticks(pid), "boot": _boot(), "machine": os.uname().nodename}


def _is_live(record: Mapping[str, Any]) -> bool:
    pid, ticks = record.get("pid"), record.get("start_ticks")
    # Written down of a process that had just ended, the start is unknown: as it is of every process that is gone.
    if not isinstance(pid, int) or not isinstance(ticks, int) or not _is_of_here(record):
        return False
    return _start_ticks(pid) == ticks


def _is_of_here(record: Mapping[str, Any]) -> bool:
    """Whether what is written there is of this machine, and of the time since it was started."""
    return bool(record.get("boot", _boot()) == _boot())


@cache
def _boot() -> str:
    """What this machine is called from its start to its end, and no other ever; empty where that is not known."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _start_ticks(pid: int) -> int | None:
    """Clock ticks from boot to the process's start, which tell it from a later one with the same number."""
    try:
        status = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    state, *fields = status.rpartition(")")[2].split()  # the name before may hold spaces and brackets
    return None if state in "ZX" else int(fields[18])


def _read_record(folder: Path, name: str = _RECORD) -> dict[str, Any]:
    try:
        record = json.loads((folder / name).read_text())
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) else {}
