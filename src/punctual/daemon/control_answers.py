"""Answers of a host to other processes of its user, see `punctual.daemon.control_socket`."""

from collections.abc import Mapping
from dataclasses import asdict
from math import inf
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.daemon.control_socket import FDS, MISTAKES, OTHER_VERSION
from punctual.daemon.host import Host
from punctual.daemon.quotes import quote_fields
from punctual.daemon.status_reader import standing
from punctual.distribution import __version__
from punctual.executors.local.output import ProcessSettings
from punctual.history.judge import NO_WAIT, Wait
from punctual.request.deadlines import Now
from punctual.request.spec_change import NONE, SpecChange
from punctual.request.submission import decode_submission


def answer_control(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    """Answer a request of another process of this user; raises `InvalidSpec` for a mistake.

    Each call has a thread of its own. A request is a JSON object with a `verb`:

    ============ =================== ================================================================================
    verb         with                answer
    ============ =================== ================================================================================
    `status`     `jobs`, or all      `jobs`: how each stands
    `change`     `job`, `change`,    what is declared then: `job`, `weight`, `floor_cores`, `ceiling_cores`, `workers`
                 `when`              (least and most), `budget_usd`, `deadline_s`, `deadline_wall`, `left_s`
    `stop`       `job`, `cause`,     `job`
                 `interrupts`
    `pause`      `job`, `cause`      `job`
    `resume`     `job`               `job`
    `policy`     `policy`,           `policy`, `parameters`, `before`; asked without them no `before`
                 `parameters`
    `drain`      `node`, or empty    `node`
                 for the only one;
                 `in_s`, null: it
                 stays
    `submit`     `jobs`, `streams`   nothing, once the journal has them
    `capacity`                       `node`: the most that one job can have; `together`: what workers can have on all
                                     nodes, null where there is one
    `quote`      `job` or            see `punctual.daemon.quotes.quote_fields`
                 `submission`;
                 `when`, `cores`
    `leave`      `only_without_jobs` nothing; the daemon then leaves its jobs to another process, or ends if it waits for a
                                     first job
    `page`       `job`, or none      `url`: the page's address, with a token
    ============ =================== ================================================================================
    """
    try:
        return _answer(host, request)
    except InvalidSpec:
        raise
    except MISTAKES as error:
        raise InvalidSpec(
            "a daemon must know what it is asked",
            f"a request that it does not ({type(error).__name__}: {error})",
            f"the daemon, of Punctual {__version__}",
            OTHER_VERSION,
        ) from error


def _answer(host: Host, request: dict[str, Any]) -> dict[str, Any]:
    match request:
        case {"verb": "status"}:
            host.check_steers()
            wanted = None if request.get("jobs") is None else set(request["jobs"])
            statuses = [status for status in host.jobs() if wanted is None or status.id in wanted]
            now = host.clocks()
            waits = host.waits(now.at)
            budget = host.budget(waits)
            jobs = [_full_standing(host, each, now, waits.get(each.id, NO_WAIT), budget) for each in statuses]
            return {"jobs": jobs}
        case {"verb": "policy"}:
            return _policy_answer(host, request)
        case {"verb": "drain", "node": str(name), "in_s": None | int() | float() as in_s}:
            drained = host.drain(name, None if in_s is None else float(in_s))
            host.settle()
            return {"node": drained}
        case {"verb": "submit", "jobs": list(jobs), "streams": dict(settings)}:
            submissions = [decode_submission(job) for job in jobs]
            host.submit_for_client(
                submissions, ProcessSettings.from_fields(settings), next(iter(request.get(FDS, ())), None)
            )
            return {}
        case {"verb": "capacity"}:
            node, together = host.capacity, host.capacity_together
            return {"node": asdict(node), "together": None if together is None else asdict(together)}
        case {"verb": "quote"}:
            return _quote_answer(host, request)
        case {"verb": "leave"}:
            host.ask_to_leave(only_without_jobs=bool(request.get("only_without_jobs", False)))
            return {}
        case {"verb": "page"}:
            return {"url": host.open_page(request.get("job"))}
        case {"job": str(job)}:
            return _answer_about(host, JobId(job), request)
    raise ValueError(f"no such request: {request}")


def _policy_answer(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Change the policy, if the request names one, and return it."""
    before = host.policy
    match request:
        case {"policy": str(name), "parameters": dict(parameters)}:
            host.change_policy(name, parameters)
            host.settle()
            return {"policy": name, "parameters": parameters, "before": before}
    return {"policy": before, "parameters": dict(host.policy_parameters)}


def _answer_about(host: Host, job: JobId, request: dict[str, Any]) -> dict[str, Any]:
    """Perform a request that acts on a job and return the answer."""
    status = host.status(job)
    match request:
        case {"verb": "change", "change": dict(change)}:
            return _change_answer(host, status, request.get("when"), change)
        case {"verb": "stop"}:
            cause = str(request.get("cause", "`punctual stop`"))
            host.stop(job, cause, interrupts=bool(request.get("interrupts", False)))
        case {"verb": "pause"}:
            host.pause(job, str(request.get("cause", "")))
        case {"verb": "resume"}:
            host.resume(job)
        case _:
            raise ValueError(f"no such request: {request}")
    host.settle()
    return {"job": job}


def _quote_answer(host: Host, request: Mapping[str, Any]) -> dict[str, Any]:
    """Quote a deadline for a known job, or for a submission that is not made; changes nothing."""
    amounts = [Resources(float(cores)) for cores in request.get("cores", ())]
    now = host.clocks()
    if (told_job := request.get("submission")) is not None:
        return quote_fields(host.quote(decode_submission(told_job).spec, amounts=amounts), now)
    job, when = JobId(str(request["job"])), request.get("when")
    deadline_s = None if when is None else host.moved_deadline_s(job, str(when), now)
    return quote_fields(host.quote(job, deadline_s, amounts), now)


def _full_standing(host: Host, status: JobStatus, now: Now, wait: Wait, budget: Mapping[str, Any]) -> dict[str, Any]:
    facts = host.public_facts(status.id)
    is_promised = facts.get("promised_until_wall") is not None
    return {
        **standing(status, now, wait, most_cores=budget.get("host_cores"), is_promised=is_promised, is_sent=True),
        "paused": None if status.pause is None else status.pause.text(),
        "waits_for": [name for name in status.spec.after if host.knows(name) and not host.has_ended(name)],
        **facts,
        **budget,
    }


def _change_answer(host: Host, status: JobStatus, when: str | None, change: dict[str, Any]) -> dict[str, Any]:
    """Change a job's declaration; `when`: a new deadline as its user writes it; `none`: drop the deadline."""
    now = host.clocks()
    if when is not None:
        is_none = when.strip().lower() == NONE
        change["deadline_s"] = inf if is_none else host.moved_deadline_s(status.id, when, now)
    spec = host.change(status.id, SpecChange(**change))
    host.settle()
    deadline_at = None if spec.deadline_s is None else status.submitted_at + spec.deadline_s
    return {
        "job": spec.id,
        "weight": spec.weight,
        "floor_cores": spec.floor.cores,
        "ceiling_cores": spec.ceiling.cores,
        "workers": None if spec.worker is None else [spec.worker_counts()[0], spec.worker_counts()[-1]],
        "budget_usd": spec.budget_usd,
        "deadline_s": spec.deadline_s,
        "deadline_wall": None if deadline_at is None else now.wall_of(deadline_at).isoformat(),
        "left_s": None if deadline_at is None else deadline_at - now.at,
    }
