"""`punctual down`: end the service, with its jobs left running, paused or stopped."""

import time
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from typing import Annotated, Any

import typer

from punctual.cli._streams import write_answer, write_line
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.job import JobState
from punctual.core.units import span
from punctual.daemon.control_client import leave, pause, standings, stop
from punctual.daemon.host_options import HostOptions
from punctual.daemon.machine_providers import abandoned, has_machines
from punctual.daemon.polling import poll
from punctual.daemon.run_folder import RunFolder, is_alive
from punctual.daemon.runs import KnownJob, jobs_of, open_jobs
from punctual.daemon.sharing import daemon_run

#: Seconds that the service may take to end once its jobs are in the wanted state.
_END_S_MAX = 60.0
_UNTIL_RESUMED = "until it is resumed: punctual up, then punctual resume {job}"


class OnShutdown(StrEnum):
    """Treatment of a service's jobs at its end."""

    CONTINUE = "continue"
    PAUSE = "pause"
    STOP = "stop"


#: States of each open job in which the service may leave it.
_STATES: Mapping[OnShutdown, Collection[JobState]] = {OnShutdown.PAUSE: ("paused", "queued"), OnShutdown.STOP: ()}
_ASK: Mapping[OnShutdown, Callable[[KnownJob], object]] = {
    OnShutdown.PAUSE: partial(pause, cause="`punctual down`"),
    OnShutdown.STOP: partial(stop, cause="`punctual down`"),
}


def down(
    jobs: Annotated[
        OnShutdown,
        typer.Option(
            help="Leave jobs running at full speed, pause them until `punctual up` and `punctual resume`, or stop them."
        ),
    ] = OnShutdown.CONTINUE,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per job and line.")] = False,
) -> None:
    """End the daemon. Returns when it has ended."""
    run = daemon_run()
    if run is None and (left := abandoned()):
        for fleet in left:
            ended = ", ".join(fleet.end()) or "none was there"
            write_line(f"no daemon runs; machines that one of '{fleet.run.name}' has left are ended: {ended}")
        return
    if run is None:
        raise _no_daemon()
    process, before = run.record(), _open_jobs(run)
    if jobs in _ASK:
        _ask_all(run, before, process, _ASK[jobs], _STATES[jobs])
    states = {str(standing["job"]): str(standing["state"]) for standing in standings(run)}
    _ask_to_leave(run)
    if not poll(lambda: not is_alive(process), _END_S_MAX):
        raise InvalidSpec(
            "a daemon must end when asked to",
            f"one that has not within {span(_END_S_MAX)}",
            f"process {process['pid']}",
            "See whether it is stopped or hangs (`punctual doctor`).",
        )
    known, recorded = jobs_of(run), run.jobs()
    for job in known:
        if job.job in before or job.steering != "ended":
            told = _fate(job, states.get(job.title, "queued"), recorded.get(job.job, "ended"))
            write_answer(told, f"{told['job']}: {told['text']}", as_json=as_json)
    write_line(f"the daemon, process {process['pid']}, has ended", err=True)
    if has_machines(run) and run.open_jobs():
        write_line(
            "the machines of its pools stay with these jobs, and are paid for: punctual up goes on with them; to end them, "
            "punctual stop the jobs, then punctual clean",
            err=True,
        )
    for fleet in abandoned():  # it could not end them
        fleet.end()


def _ask_to_leave(run: RunFolder) -> None:
    """Ask the daemon to exit, unless it has just ended by itself with its last job."""
    try:
        leave(run)
    except InvalidSpec:
        if run.has_service() or run.open_jobs():
            raise


def _no_daemon() -> InvalidSpec:
    unsteered = [job.title for job in open_jobs() if job.steering == "unsteered"]
    if not unsteered:
        return InvalidSpec("a daemon must run", "none", "`punctual down`", "See `punctual ps` for what runs.")
    remedy = f"Stop them (`punctual stop {unsteered[0]}`), or have them steered (`punctual up`)."
    return InvalidSpec("a daemon must run", f"none; unsteered: {', '.join(unsteered)}", "`punctual down`", remedy)


def _open_jobs(run: RunFolder) -> dict[JobId, KnownJob]:
    return {job.job: job for job in jobs_of(run) if job.steering != "ended"}


def _ask_all(
    run: RunFolder,
    jobs: Mapping[JobId, KnownJob],
    process: Mapping[str, Any],
    ask_for: Callable[[KnownJob], object],
    states: Collection[JobState],
) -> None:
    """Send each job a request, and wait until all are in one of `states`, or have ended.

    A refused request is repeated after all others: the service may have been busy.
    """
    refused = [job for job in jobs.values() if _refusal(ask_for, job) is not None]
    for job in refused:
        refusal = _refusal(ask_for, job)
        if refusal is not None and job.job in _open_jobs(run):  # else it has just ended
            raise refusal
    names = {job.title for job in jobs.values()}
    while any(told["job"] in names and told["state"] not in states for told in standings(run)):
        if not is_alive(process):
            raise InvalidSpec(
                "the daemon must run until its jobs are in the wanted state",
                "a daemon that has ended",
                f"process {process['pid']}",
                "See `punctual ps` for what runs.",
            )
        time.sleep(0.1)  # a person sees no delay


def _refusal(ask_for: Callable[[KnownJob], object], job: KnownJob) -> InvalidSpec | None:
    """Return the service's refusal of a request; None: it accepts."""
    try:
        ask_for(job)
    except InvalidSpec as error:
        return error
    return None


def _fate(job: KnownJob, state: str, recorded: str) -> dict[str, Any]:
    """Describe a job's fate; `state`: when the service left it; `recorded`: since then."""
    if job.steering == "ended":
        became = recorded
        text = f"{'has' if became in ('finished', 'failed') else 'was'} {became}"
        if became != "finished":
            text += f" ({job.run.end_facts(job.job).get('cause') or 'not known why'})"
    elif state == "paused":
        became, text = "paused", f"stands still {_UNTIL_RESUMED.format(job=job.title)}"
    elif job.run.is_followed() or job.steering == "steered":
        became, text = "steered", "goes on: a command that waits for one of these jobs starts the next daemon"
    elif job.steering == "unsteered":
        became, text = (
            "unsteered",
            f"goes on at full speed until somebody steers it: punctual up, or punctual attach {job.title}",
        )
    elif state in ("starting", "running", "stalled") and HostOptions.of(job.run.facts()).engine != "local":
        became, text = (
            "unsteered",
            "goes on for a while on its node, and then waits, after a checkpoint, for the next `punctual up`",
        )
    else:
        became, text = "queued", "has no process; the next `punctual up` starts it"
    return {"job": job.title, "became": became, "text": text}
