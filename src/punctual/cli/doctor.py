"""`punctual doctor`: checks of this machine, this user's folders and the processes of Punctual, with remedies."""

import ctypes
import os
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal

import typer

from punctual.api.database import ServiceDatabase
from punctual.cli._streams import write_json, write_line
from punctual.core.errors import InvalidSpec
from punctual.core.events import NodeJoined
from punctual.core.ids import NodeId
from punctual.core.resources import Resources
from punctual.core.units import format_bytes, span
from punctual.daemon.capacity import capacity_here
from punctual.daemon.control_client import is_answering
from punctual.daemon.disk_space import FREE_WARNING_BYTES, free_in
from punctual.daemon.host_options import HostOptions
from punctual.daemon.machine_providers import fleets
from punctual.daemon.paths import runtime_root, service_root, state_root
from punctual.daemon.runs import known_runs, live_folders
from punctual.daemon.sharing import too_nice
from punctual.distribution import install_command, missing_modules
from punctual.executors.local.actuator import choose
from punctual.executors.local.cgroups import actuators
from punctual.executors.ray_access import OPEN_TO_ALL, asks_for_token
from punctual.executors.slurm_commands import SlurmFailure, slurm_answer
from punctual.journal.boot import boot_id, clock_now
from punctual.journal.sqlite import SqliteJournal

Level = Literal["ok", "warning", "fault"]

#: File systems of other machines, on which a journal cannot be shared among processes as it must be.
_REMOTE = ("nfs", "cifs", "smb", "afs", "9p", "fuse.sshfs", "ceph", "glusterfs", "lustre")


#: Use of each extra.
_USES = {
    "torch": "elastic training, checkpoints and `punctual demo`",
    "report": "pictures of runs",
    "sim": "`punctual simulate` and `compare`",
    "service": "HTTP and the page of a service",
    "otel": "traces and metrics of a service to OpenTelemetry",
    "ray": "`punctual up --engine ray`",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """Result of one check; `remedy` is empty if nothing is to be done."""

    level: Level
    text: str
    remedy: str = ""
    about: str = ""


def findings(port: int | None = None) -> Iterator[Finding]:
    """Yield the results of all checks. `port`: one that must be free; None: any."""
    checks: list[tuple[str, Callable[[], Iterator[Finding]]]] = [
        ("control groups", _control_groups),
        ("processors", _processors),
        ("folders", _folders),
        ("disk", _disk),
        ("store", _store),
        ("tokens", _tokens),
        ("torch", _torch),
        ("extras", _extras),
        ("clock", _clock),
        ("hosts", _hosts),
        ("machines", _machines),
        ("ray cluster", _ray_clusters),
        ("slurm", slurm_services),
        ("ports", lambda: _ports(port)),
    ]
    for about, check in checks:
        try:
            yield from (replace(finding, about=about) for finding in check())
        except InvalidSpec as error:
            yield Finding("fault", f"{error.must}; got {error.got}", error.remedy, about)
        except OSError as error:
            text = f"'{error.filename}': {error.strerror}" if error.filename else str(error)
            yield Finding("fault", text, "Give the right to it, or make room.", about)


def _control_groups() -> Iterator[Finding]:
    choice = choose("auto", actuators())
    told, page = f"{choice.actuator.name}: {choice.reason}", "See docs/how-to/without-root.md for how to"
    if choice.actuator.can_cap and choice.actuator.limits_memory:
        yield Finding("ok", f"{told} Memory that a job asks for (`--memory`) is its limit.")
    elif choice.actuator.can_cap:
        text = f"{told} It cannot limit memory: the memory that a job asks for (`--memory`) is only kept free."
        yield Finding("warning", text, f"{page} have it limited.")
    else:
        text = f"{told} A program without tracking runs at full speed, and nothing limits memory."
        yield Finding("warning", text, f"{page} get quotas.")


def _processors() -> Iterator[Finding]:
    has = capacity_here()
    yield Finding(
        "ok", f"{has.cores:g} cores, {has.gpus:g} GPUs and {format_bytes(has.memory_bytes)} of memory may be used"
    )


def _folders() -> Iterator[Finding]:
    for folder in (state_root(), runtime_root()):
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
        kind = _file_system_of(folder)
        if kind.startswith(_REMOTE):
            yield Finding(
                "warning",
                f"{folder} is on a file system of another machine ({kind})",
                "Set PUNCTUAL_HOME to a folder of this machine: journals are shared among its processes.",
            )
        else:
            yield Finding("ok", f"{folder} can be written to ({kind})")


def _file_system_of(folder: Path) -> str:
    """Return the kind of the folder's file system, in the kernel's words."""
    place, kinds = folder.resolve(), {}
    for line in Path("/proc/mounts").read_text().splitlines():
        _, mount, kind, *_ = line.split()
        kinds[Path(mount.encode().decode("unicode_escape"))] = kind
    return next((kinds[above] for above in (place, *place.parents) if above in kinds), "unknown")


def _disk() -> Iterator[Finding]:
    free_bytes = free_in(state_root())
    text = f"{free_bytes / 1e9:.1f} GB are free in {state_root()}"
    if free_bytes >= FREE_WARNING_BYTES:
        yield Finding("ok", text)
    else:
        # Free space below which a journal can hardly be written any more, in bytes.
        level: Level = "fault" if free_bytes < 64 << 20 else "warning"
        yield Finding(level, text, "Make room: `punctual clean --older-than 1d`.")


def _store() -> Iterator[Finding]:
    with (
        tempfile.TemporaryDirectory(dir=state_root(), prefix=".doctor-") as folder,
        SqliteJournal(Path(folder, "journal.db")) as journal,
    ):
        journal.append([NodeJoined(at=0.0, node=NodeId("local"), capacity=Resources(1))])
    yield Finding("ok", "a journal can be made, written to and removed")
    for run in known_runs():
        run.records.rows()  # raises if what is recorded of its jobs cannot be read
        if run.open_jobs() or run.is_live():
            with run.read_journal() as journal:
                yield Finding("ok", f"{run.journal} has {journal.last_sequence} messages")


def _tokens() -> Iterator[Finding]:
    with closing(ServiceDatabase(service_root())) as database:  # raises if it is damaged
        yield Finding("ok", f"the tokens of the service can be read and written in {database.folder}")


def _torch() -> Iterator[Finding]:
    if find_spec("torch") is None:
        yield Finding(
            "warning",
            "not installed for this Python",
            "None, if your programs need none or have a Python of their own; else `pip install torch`.",
        )
        return
    try:
        import torch
    except Exception as error:  # noqa: BLE001 -- one that is damaged may raise anything
        remedy = "None, if your programs have a Python of their own; else `pip install --force-reinstall torch`."
        yield Finding("warning", f"it is installed and cannot be imported: {error}", remedy)
        return
    cuda = f"{torch.cuda.device_count()} CUDA devices" if torch.cuda.is_available() else "no CUDA"
    yield Finding("ok", f"{torch.__version__}, {torch.get_num_threads()} threads, {cuda}")


def _extras() -> Iterator[Finding]:
    for extra, uses in _USES.items():
        missing = missing_modules(extra)
        if not missing:
            yield Finding("ok", f"`{extra}` is there, for {uses}")
        else:
            remedy = f"None, unless you want that: `{install_command(extra)}`."
            yield Finding("ok", f"`{extra}` is not there, for {uses}: {', '.join(missing)} missing", remedy)


def _clock() -> Iterator[Finding]:
    moved_s = _wall_moved_s()
    # Seconds of difference between clocks from which it matters to a deadline.
    if moved_s is not None and abs(moved_s) > 1.0:
        yield Finding(
            "warning",
            f"the wall clock was set by {span(moved_s)} since a journal that is in use was begun",
            "None: deadlines are durations inside. Say those again that you gave as a time of day.",
        )
    if _is_synchronised() is False:
        yield Finding(
            "warning",
            "the wall clock is not set by a time server, as far as the kernel knows",
            "Start one (`timedatectl set-ntp true`), or give deadlines as durations.",
        )
    else:
        known = "" if _is_synchronised() is None else "; the wall clock is set by a time server"
        yield Finding("ok", f"the monotonic clock goes on{known}")


def _wall_moved_s() -> float | None:
    """Seconds that the wall clock has moved against the monotonic one since an open journal began, if there is one."""
    moved = []
    for run in known_runs():
        if run.open_jobs():
            with suppress(InvalidSpec), run.read_journal() as journal:
                clock = journal.clock
                if clock is not None and clock.boot_id == boot_id():
                    moved.append(clock_now().wall_offset_s - clock.wall_offset_s)
    return max(moved, key=abs, default=None)


def _is_synchronised() -> bool | None:
    """Whether a server sets the wall clock; None: the kernel does not tell."""
    # Size of the kernel's record of its clock (`struct timex`, 64-bit Linux).
    answer = ctypes.create_string_buffer(256)
    if ctypes.CDLL(None).adjtimex(answer) < 0:
        return None
    # Its status, and the bit that says that it follows no server.
    return not int.from_bytes(answer.raw[40 : 40 + 4], "little") & 0x40


def _hosts() -> Iterator[Finding]:
    for run in live_folders():
        pid, what = run.record().get("pid"), "service" if run.has_service() else "daemon"
        if (niceness := too_nice(run)) is not None:
            yield Finding(
                "warning",
                f"process {pid} has niceness {niceness}, and may not start jobs at that of a shell ({os.getpriority(os.PRIO_PROCESS, 0)})",
                "Start the service again: `punctual down`, then `punctual up`."
                if run.has_service()
                else "None: the next `punctual run` or `submit` starts another daemon, which goes on with its jobs.",
            )
        if run.is_live() and is_answering(run):
            yield Finding("ok", f"process {pid} is the {what} of '{run.name}', and answers")
        elif run.is_live():
            yield Finding(
                "fault",
                f"process {pid} is the {what} of '{run.name}', and does not answer",
                f"Let it go on (`kill -CONT {pid}`), or end it (`kill -9 {pid}`) and start `punctual up`.",
            )
        elif run.supervised_jobs() and not run.is_followed():
            yield Finding(
                "warning",
                f"nobody steers {', '.join(run.supervised_jobs())}",
                "Start `punctual up`, or `punctual attach` for one.",
            )
        elif not run.is_followed() and run.machine() is None:
            text = f"{run.runtime_dir} is left of a daemon that has ended"
            yield Finding("ok", f"{text}; the next `punctual ps` clears it away")
    if not live_folders():
        yield Finding("ok", "no daemon runs; the first `punctual run` or `punctual up` starts one")


def _machines() -> Iterator[Finding]:
    """Find machines of pools that cost money, and that no daemon has."""
    for run in known_runs():
        for fleet in fleets(run):
            if not fleet.is_kept:
                text = (
                    f"machines that a daemon of '{run.name}' asked for may be left and paid for, and nobody needs them"
                )
                yield Finding("fault", text, "`punctual clean` ends them; so does the next daemon.")
            elif not run.is_live():
                text = f"machines of '{run.name}' may be paid for, and wait with its jobs for a daemon"
                remedy = (
                    "`punctual up` goes on with them; to end them, `punctual stop` its jobs, then `punctual clean`."
                )
                yield Finding("warning", text, remedy)


def _ray_clusters() -> Iterator[Finding]:
    """Check the Ray clusters of running services, and the one that Ray's own variable names."""
    options = [HostOptions.of(run.facts()) for run in live_folders() if run.is_live()]
    used = [each.address or "auto" for each in options if each.engine == "ray"]
    named = os.environ.get("RAY_ADDRESS")
    for address in dict.fromkeys([*used, *([named] if named else [])]):
        asks = asks_for_token(address)
        if asks:
            yield Finding("ok", f"the cluster '{address}' asks for a token")
            yield from _ray_token()
        elif asks is None:
            yield Finding("warning", f"the cluster '{address}' does not answer", "Look at `ray status` there.")
        else:
            yield Finding(
                "warning",
                f"the cluster '{address}' asks for no token: {OPEN_TO_ALL}",
                "Start Ray with one: see docs/how-to/ray.md.",
            )


def _ray_token() -> Iterator[Finding]:
    file = Path(os.environ.get("RAY_AUTH_TOKEN_PATH") or Path.home() / ".ray" / "auth_token")
    if file.exists() and file.stat().st_mode & 0o077:
        yield Finding("warning", f"other users may read the token of Ray in {file}", f"Run `chmod 600 {file}`.")


def slurm_services() -> Iterator[Finding]:
    """Check that Slurm answers where a running service has its machines of it."""
    for run in live_folders():
        cluster = HostOptions.of(run.facts()).cluster if run.is_live() else ""
        if not cluster:
            continue
        from punctual.request.cluster_file import read_pools  # needs pydantic, which is slow to load

        _, machines = read_pools(Path(cluster))
        if machines is None or machines.provider != "slurm":
            continue
        try:
            slurm_answer(["squeue", "--me", "--noheader"], os.environ, 30.0)
        except SlurmFailure as error:
            text = f"Slurm does not answer ({error}): machines that are there go on, and none is started"
            yield Finding("warning", text, "Try `squeue --me` here.")
        else:
            yield Finding("ok", "Slurm answers")


def _ports(port: int | None) -> Iterator[Finding]:
    try:
        with socket.create_server(("127.0.0.1", port or 0)) as listening:
            bound = listening.getsockname()[1]
    except OSError as error:
        yield Finding(
            "fault",
            f"port {port} of this machine cannot be listened at: {error.strerror}" if port else str(error),
            "End what uses it (`ss -ltnp`), or choose another port.",
        )
        return
    yield Finding("ok", f"port {bound} is free" if port else "this machine's own address can be listened at")


def doctor(
    port: Annotated[
        int | None, typer.Option(metavar="N", min=1, max=65535, help="Check that this port is free for a service.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per finding and line.")] = False,
) -> None:
    """Check that this machine can run jobs.

    Looks at control groups, folders, disk, store, tokens, PyTorch, clocks, hosts and ports; exits with 1 if one has a fault.
    """
    has_fault = False
    for finding in findings(port):
        has_fault = has_fault or finding.level == "fault"
        if as_json:
            write_json(asdict(finding))
        else:
            write_line(f"{finding.level:<8} {finding.about:<15} {finding.text}")
            if finding.remedy:
                write_line(f"{'':<24} to do: {finding.remedy}")
    if has_fault:
        # Exit status if something must be put right before jobs can run.
        raise typer.Exit(1)
