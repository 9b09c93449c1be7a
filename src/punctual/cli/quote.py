"""`punctual quote`: the consequences of a deadline, before anything is changed."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

import typer
from pydantic import Field

from punctual.cli._options import taking
from punctual.cli._streams import write_answer
from punctual.cli._words import clock, cores, holding, option_name, span
from punctual.cli.run import OPTIONS
from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.daemon.control_client import capacity_for_jobs, quote_job, quote_new
from punctual.daemon.control_socket import ControlFailed
from punctual.daemon.earlier_runs import core_s_of_same_program, run_like
from punctual.daemon.host_options import SHARING_POLICY
from punctual.daemon.quotes import quote_alone, quote_fields
from punctual.daemon.runs import KnownJob, known_jobs, open_job, open_jobs
from punctual.daemon.sharing import daemon_run, host_lock, shared_run
from punctual.request.deadlines import Now, deadline_s
from punctual.request.job_options import JobOptions
from punctual.request.quantities import parse_cores
from punctual.request.submission import Submission, submission_of
from punctual.solvers.machine_market import prices_text, usd_text

#: Seconds that others may take to begin or leave the shared host.
_LOCK_S_MAX = 20.0


class QuoteOptions(JobOptions):
    """Options of `punctual quote`: those of a job, and its own; `program` may be the name of a running job instead."""

    at: list[str] = Field(default_factory=list)
    cluster: str | None = None
    as_json: bool = False


#: Options of a program that a quote depends on.
_OF_PROGRAM = ("work", "like", "cores", "workers", "gpus", "cores_per_worker", "steps", "budget_usd")
_SECTIONS = {
    "Of a program": {
        **{name: OPTIONS[name] for name in _OF_PROGRAM},
        "like": typer.Option(metavar="JOB", help="Take the work from this earlier job. [default: of the same program]"),
        "budget_usd": typer.Option("--budget", metavar="USD", help="Tell the deadline that so many dollars buy."),
    },
    "Options": {
        "program": typer.Argument(metavar="JOB | -- PROGRAM [ARGS]...", help="A running job, or a program."),
        "deadline": typer.Option(
            metavar="WHEN", help="Deadline as for `punctual deadline`, or for a program as for `run`."
        ),
        "at": typer.Option("--at", metavar="CORES", help="Tell the finish with so many cores; once for each amount."),
        "cluster": typer.Option(
            metavar="FILE.toml",
            help="Machines that need not be there: nodes, and pools with prices. It tells what a program would cost on them by when.",
        ),
        "as_json": typer.Option("--json", help="One JSON object."),
    },
}


@taking(QuoteOptions, _SECTIONS)
def quote(given: QuoteOptions) -> None:
    """Estimate whether a deadline can be met. Names the earliest that can, and the jobs that it would delay."""
    amounts, words = [parse_cores(text) for text in given.at], given.program
    options = {name: value for name in _OF_PROGRAM if (value := getattr(given, name)) is not None}
    if given.cluster is None and not words and options:
        raise InvalidSpec(
            "a program must be given with options of a program",
            "none",
            "`punctual quote`",
            "Write it after `--`, as for `punctual run`: `punctual quote --deadline 3h --work 10h -- python train.py`.",
        )
    job = _named(words) if given.cluster is None else None
    if given.cluster is not None:
        answer = _elsewhere(given.cluster, options, given.deadline, words, amounts)
    elif job is not None:
        _check_none_given(options, job)
        answer = quote_job(job, given.deadline, amounts)
    else:
        answer = _of_program(given, amounts)
    write_answer(answer, *sentences(answer), as_json=given.as_json)


def _named(words: list[str]) -> KnownJob | None:
    """Find the open job that the words name; None: they are a program.

    Raises `InvalidSpec`: a single word is the name of a job that has ended, or neither a job nor a program.
    """
    if len(words) > 1:
        return None
    if not words or any(job.title.startswith(words[0]) for job in open_jobs()):
        return open_job(words[0] if words else None)
    if shutil.which(words[0]) is not None:
        return None
    if any(job.title == words[0] for job in known_jobs()):
        return open_job(words[0])
    raise InvalidSpec(
        "one word alone must be the name of a job that runs, or a program",
        f"'{words[0]}', which is neither",
        "`punctual quote`",
        "See `punctual ps` for the jobs; write a program after `--`, as for `punctual run`.",
    )


def _check_none_given(options: Iterable[str], job: KnownJob) -> None:
    """Raise `InvalidSpec` for an option of a program if the quote is of a job, which has its own."""
    if given := [f"`{option_name(name)}`" for name in options]:
        raise InvalidSpec(
            f"{given[0]} must be of a program that is to be run",
            f"{', '.join(given)} of a job that runs",
            f"job '{job.title}'",
            "Leave it out; or, for a program that is called as the job begins, name it with its folder (`-- /usr/bin/train`).",
        )


def _elsewhere(
    cluster: str, options: Mapping[str, Any], deadline: str | None, words: Sequence[str], amounts: Sequence[float]
) -> dict[str, Any]:
    """Quote a program on the machines that `cluster` describes, which need not be there."""
    from punctual.sim.quoted import quote_first
    from punctual.sim.scenario import Scenario, cluster_keys

    now, job = Now.read(), dict(options)
    if deadline is not None:  # a simulation knows no wall clock
        job["deadline"] = f"{deadline_s(deadline, started_at=now.at, now=now)}s"
    if not {"work", "like"} & job.keys() and (core_s := core_s_of_same_program(tuple(words))) is not None:
        job["work"] = f"{core_s}s"
    machines = cluster_keys(cluster)
    policy = "least-cost" if machines.get("pool") else SHARING_POLICY
    keys = {"policies": [policy], "seeds": 1, "job": [{"name": "it", **job}], **machines}
    quoted = quote_first(Scenario.of(keys, "`punctual quote`"), list(map(Resources, amounts)))
    return {**quote_fields(quoted, replace(now, at=0.0)), "policy": policy}


def _of_program(options: JobOptions, amounts: list[float]) -> dict[str, Any]:
    now, (capacity, together) = Now.read(), capacity_for_jobs(daemon_run())
    submission = submission_of(options, now.at, capacity, together, run_like)
    spec = submission.spec
    if spec.work_core_s is None and spec.worker is None:
        spec = replace(spec, work_core_s=core_s_of_same_program(submission.program.argv))
        submission = replace(submission, spec=spec)
    answer = _of_host(submission, amounts)
    if answer is not None:
        return answer
    return quote_fields(quote_alone(submission.spec, SHARING_POLICY, capacity, now, list(map(Resources, amounts))), now)


def _of_host(submission: Submission, amounts: list[float]) -> dict[str, Any] | None:
    """Fetch the quote of the host that the job would join; None: there is none."""
    with host_lock(_LOCK_S_MAX) as has_lock:
        run = shared_run() if has_lock else None
    if run is None or not run.is_live():
        return None
    try:
        return quote_new(run, submission, amounts)
    except ControlFailed as error:
        raise InvalidSpec(
            "the host of this machine's jobs must answer",
            str(error),
            f"the host of '{run.name}'",
            "See `punctual ps`, and try again.",
        ) from error


def sentences(answer: dict[str, Any]) -> list[str]:
    """Return the answer in sentences for people."""
    lines = [_verdict(answer), *_money(answer)]
    for hurt in answer["hurt"]:
        if hurt["loses_promise"]:
            lines.append(f"`{hurt['job']}` would lose its promise of {_clock(hurt['promised_until_wall'])}")
        else:
            change = f"{cores(hurt['cores_before'])} -> {cores(hurt['cores_after'])}"
            later = "" if not hurt["later_s"] else f", {span(hurt['later_s'])} later if that lasts"
            lines.append(f"`{hurt['job']}` would have less at once: {change}{later}")
    lines += [
        f"with {holding(finish['cores'], finish['n_workers'] or 0)}: done {_clock(finish['finish_wall'])}, "
        f"{_clock(finish['low_wall'])} to {_clock(finish['high_wall'])}"
        for finish in answer["finishes"]
    ]
    return lines


def _money(answer: dict[str, Any]) -> list[str]:
    """Tell the prices of deadlines, and the deadline that a budget buys."""
    prices = [(_clock(price["deadline_wall"]), price["usd"]) for price in answer["prices"]]
    lines = [f"expected cost: {prices_text(prices)}"] if prices else []
    if answer["budget_usd"] is not None and answer["prices"]:
        bought, budget = answer["bought_wall"], usd_text(answer["budget_usd"])
        lines.append(f"{budget} buy no deadline" if bought is None else f"{budget} buy it by {_clock(bought)}")
    return lines


def _verdict(answer: dict[str, Any]) -> str:
    earliest = answer["earliest_wall"]
    if answer["can_be_promised"]:
        return f"{_clock(answer['deadline_wall'])} can be promised; the earliest that can be is {_clock(earliest)}"
    if earliest is None:
        return str(answer["text"])
    if answer["can_be_promised"] is None:
        return f"the earliest deadline that can be promised is {_clock(earliest)}"
    return f"{_clock(answer['deadline_wall'])} cannot be promised; {_clock(earliest)} can"


def _clock(wall: str) -> str:
    return clock(datetime.fromisoformat(wall))
