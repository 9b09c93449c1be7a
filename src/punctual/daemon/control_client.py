"""Client of a run's control socket: query, change and stop jobs from another process."""

import logging
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.daemon.capacity import capacity_here
from punctual.daemon.control_socket import OTHER_VERSION, ControlBusy, ControlFailed, ControlUnable, ask
from punctual.daemon.host_options import HostOptions
from punctual.daemon.paths import service_socket
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import KnownJob, jobs_of
from punctual.daemon.status_reader import received
from punctual.executors.local.output import ProcessSettings
from punctual.request.deadlines import Now, absolute
from punctual.request.spec_change import SpecChange
from punctual.request.submission import Submission, encode_submission

_LOG = logging.getLogger(__name__)

#: States of a job whose host sends no status, beside those of `punctual.core.job.JobState` and
#: `punctual.daemon.runs.Steering`: the host is starting, or it is alive and does not answer.
STARTING, SILENT = "starting", "silent"

#: Seconds that a host may take to answer.
_ANSWER_S_MAX = 5.0
#: Seconds that a host may take to answer a submission.
_SUBMIT_S_MAX = 20.0
#: And for what it may have to load first: the policy of a quote, the libraries of the page.
_LOADING_S_MAX = 30.0


def standings_of(
    run: RunFolder, jobs: Sequence[JobId] | None = None, timeout_s: float = _ANSWER_S_MAX
) -> list[dict[str, Any]]:
    """Fetch the statuses of `jobs`, ended ones too, from the run's host; None: of all. Raises `ControlFailed` if it is silent."""
    request = {"verb": "status", "jobs": None if jobs is None else list(jobs)}
    return [received(standing) for standing in ask(run.socket, request, timeout_s)["jobs"]]


def standings(run: RunFolder) -> list[dict[str, Any]]:
    """Return the standing of each open job of a run: all fields from the host or, without one, `job` and `state` alone.

    An unsteered job that a user has paused has `paused` too: by whom and why.
    """
    jobs = [job for job in jobs_of(run) if job.steering != "ended"]
    listens = run.socket.exists()  # looked at before it is asked: a host that begins to listen meanwhile is not silent
    told: dict[str, dict[str, Any]] = {}
    if any(job.steering == "steered" for job in jobs):
        with suppress(ControlFailed, InvalidSpec):  # the second: it is of another version
            told = {standing["job"]: standing for standing in standings_of(run)}
    return [told.get(str(job.job)) or {"job": job.title, **_standing_without_answer(job, listens)} for job in jobs]


def _standing_without_answer(job: KnownJob, listens: bool) -> dict[str, str]:
    if job.steering == "steered":
        return {"state": SILENT if listens else STARTING}
    if job.steering == "unsteered" and job.run.is_followed():
        return {"state": STARTING}  # another command is taking its host's place
    if job.steering == "unsteered" and job.pause is not None:
        return {"state": "paused", "paused": job.pause}
    return {"state": job.steering}


def is_silent(run: RunFolder) -> bool:
    """Whether the host is alive but does not answer (stopped or hung)."""
    return not is_answering(run) and run.is_live() and run.socket.exists()


def is_answering(run: RunFolder) -> bool:
    """Whether the host of a run answers, also that it has too much to do."""
    try:
        ask(run.socket, {"verb": "status", "jobs": []})
    except (ControlFailed, InvalidSpec) as error:  # a refusal is an answer
        return isinstance(error, ControlBusy | InvalidSpec)
    return True


def change(job: KnownJob, changes: SpecChange | None = None, *, when: str | None = None) -> dict[str, Any]:
    """Ask the job's host to change the job's declaration; raises `InvalidSpec` if it refuses or does not answer.

    `when`: another deadline, as its user writes it; `none`: it is to have none any more.
    """
    told, when = {} if changes is None else asdict(changes), _absolute(job, when)
    return _request(job, {"verb": "change", "job": job.job, "change": told, "when": when})


def _absolute(job: KnownJob, when: str | None) -> str | None:
    return None if when is None else absolute(when, Now.read(), f"job '{job.title}'")


def pause(job: KnownJob, cause: str = "") -> dict[str, Any]:
    """Ask the job's host to pause the job until `resume`; raises as `change` does."""
    return _request(job, {"verb": "pause", "job": job.job, "cause": cause})


def resume(job: KnownJob) -> dict[str, Any]:
    """Ask the job's host to resume the job; raises as `change` does."""
    return _request(job, {"verb": "resume", "job": job.job})


def policy(run: RunFolder, name: str | None = None, parameters: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the host's policy, after setting it if `name` is given; raises `InvalidSpec` on refusal or silence."""
    changed = {} if name is None else {"policy": name, "parameters": dict(parameters or {})}
    return _query(run, {"verb": "policy", **changed}, "the host must answer")


def drain(run: RunFolder, node: str, in_s: float | None) -> dict[str, Any]:
    """Ask the host to have jobs leave a node within `in_s` seconds; None: to use it again. Raises as `policy` does."""
    return _query(run, {"verb": "drain", "node": node, "in_s": in_s}, "the host must answer")


def _query(
    run: RunFolder,
    request: dict[str, Any],
    must: str,
    where: str = "",
    remedy: str = "Look with `punctual ps`, and try again.",
    timeout_s: float = _ANSWER_S_MAX,
) -> dict[str, Any]:
    """Return the answer of the run's host to a request; raises `InvalidSpec`, made of these parts, if it does not answer."""
    try:
        return ask(run.socket, request, timeout_s)
    except ControlFailed as error:
        remedy = OTHER_VERSION if isinstance(error, ControlUnable) else remedy
        raise InvalidSpec(must, str(error), where or f"the host of '{run.name}'", remedy) from error


def _request(job: KnownJob, request: dict[str, Any], timeout_s: float = _ANSWER_S_MAX) -> dict[str, Any]:
    """Send a request to the job's host and return the answer; raises `InvalidSpec` if the job is not steered."""
    if job.steering != "steered":
        raise InvalidSpec(
            "a job can be changed and quoted only while it is steered",
            f"a job that is {job.steering}",
            f"job '{job.title}'",
            f"Take it over first (`punctual attach {job.title}`), or end it (`punctual stop {job.title}`).",
        )
    return _ask_host(job, request, timeout_s)


def submit(
    run: RunFolder, submissions: Sequence[Submission], settings: ProcessSettings, stdin_fd: int | None = None
) -> None:
    """Ask the host of a run to accept jobs, all or none; may be repeated if no answer came.

    `stdin_fd`: standard input of the first job; None: it has none. The user is warned of a host that is slow to answer.

    * Raises `InvalidSpec`: the host refuses one.
    * Raises `ControlFailed`: no answer came.
    """
    jobs = [encode_submission(submission) for submission in submissions]
    request = {"verb": "submit", "jobs": jobs, "streams": asdict(settings)}
    ask(run.socket, request, _SUBMIT_S_MAX, () if stdin_fd is None else (stdin_fd,), _tell_of_slowness)


def _tell_of_slowness(pid: int) -> None:
    _LOG.warning("waiting for the daemon, process %d, to answer; another one starts if it is stopped or hangs", pid)


def capacity_for_jobs(run: RunFolder | None) -> tuple[Resources, Resources | None]:
    """Return the capacity for one new job of a run, and for its workers on all nodes; see `checked_submission`.

    `run`: run whose host would get the job; None: the job runs on this machine without one.

    Raises `InvalidSpec`: the run uses a cluster's nodes, and either its host or every node has not answered.
    """
    if run is None or HostOptions.of(run.facts()).engine == "local":
        return capacity_here(), None
    answer = _query(run, {"verb": "capacity"}, "the service must say how much its nodes have", timeout_s=_SUBMIT_S_MAX)
    together = answer["together"]
    return Resources(**answer["node"]), None if together is None else Resources(**together)


def quote_job(job: KnownJob, when: str | None, cores: Sequence[float]) -> dict[str, Any]:
    """Ask the job's host to quote a deadline; raises `InvalidSpec` if it does not answer."""
    return _request(
        job, {"verb": "quote", "job": job.job, "when": _absolute(job, when), "cores": list(cores)}, _LOADING_S_MAX
    )


def quote_new(run: RunFolder, submission: Submission, cores: Sequence[float]) -> dict[str, Any]:
    """Ask the host of a run to quote a new job; raises `ControlFailed` if it does not answer."""
    request = {"verb": "quote", "submission": encode_submission(submission), "cores": list(cores)}
    return ask(run.socket, request, timeout_s=_LOADING_S_MAX)


def page_of(run: RunFolder, job: str | None = None) -> str:
    """Return the address of the page, or of one job there, with a token; raises `InvalidSpec` if there is none."""
    where = f"process {run.record().get('pid')}"
    request = {"verb": "page", "job": job}
    return str(_query(run, request, "the daemon must answer", where, "See `punctual doctor`.", _LOADING_S_MAX)["url"])


def open_page_of(run: RunFolder, job: str | None) -> str | None:
    """Return the address as `page_of` does, if the page is open already: to open it costs the daemon half a second."""
    if not service_socket().exists():
        return None
    with suppress(InvalidSpec):
        return page_of(run, job)
    return None


def leave(run: RunFolder) -> None:
    """Ask the host to exit and keep its jobs running; returns at once. Raises `InvalidSpec` if it does not answer."""
    pid = run.record().get("pid")
    remedy = (
        f"It is stopped, hangs, or is just ending. Let it go on (`kill -CONT {pid}`), or kill it (`kill -9 {pid}`): another "
        "daemon takes its jobs from it then, and leaves when asked (`punctual down`)."
    )
    _query(run, {"verb": "leave"}, "the service must answer", f"process {pid}", remedy)


def stop(job: KnownJob, cause: str = "`punctual stop`") -> str:
    """Stop the job through its host or its supervisor; return in words what was done."""
    if job.steering == "interrupted":
        from punctual.daemon.sweeping import give_up  # it restores the whole state of a run

        give_up(job.run, [job.job], f"given up ({cause}) after it was interrupted")
        return "it will not be resumed"
    if job.steering == "unsteered" or (job.steering == "steered" and is_silent(job.run)):
        return _stopped_by_supervisor(job)
    _ask_host(job, {"verb": "stop", "job": job.job, "cause": cause})
    return "asked to stop"


def _stopped_by_supervisor(job: KnownJob) -> str:
    supervisor_pid = job.run.supervisor_pid(job.job)
    if supervisor_pid is None:
        raise _unanswered(job, "nobody steers it, and it has no process", _remedy(job))
    job.run.record_job(job.job, "stopping")  # else whoever resumes the run would take it for a process that was killed
    with suppress(ProcessLookupError):  # it has just ended
        os.kill(supervisor_pid, signal.SIGTERM)
    return "nobody steers it: its processes are being ended, without a checkpoint"


def _ask_host(job: KnownJob, request: dict[str, Any], timeout_s: float = _ANSWER_S_MAX) -> dict[str, Any]:
    try:
        return ask(job.run.socket, request, timeout_s)
    except ControlFailed as error:
        remedy = OTHER_VERSION if isinstance(error, ControlUnable) else _remedy(job)
        raise _unanswered(job, str(error), remedy) from error


def _unanswered(job: KnownJob, got: str, remedy: str) -> InvalidSpec:
    return InvalidSpec("the host of a running job must answer", got, f"job '{job.title}'", remedy)


def _remedy(job: KnownJob) -> str:
    if job.steering == "elsewhere":
        return f"Give the command on machine '{job.run.machine()}'."
    if job.run.is_live() and job.run.socket.exists():
        pid = job.run.record().get("pid")
        return (
            f"Process {pid} is stopped or hangs: let it go on (`kill -CONT {pid}`), or take its jobs from it "
            f"(`punctual attach {job.title}`)."
        )
    return "It may be just starting or ending: look with `punctual ps`, and try again."
