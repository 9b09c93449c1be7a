"""The page without a service: its own files, and answers of the API that are made up, so that every state can be seen."""

import json
import mimetypes
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, Literal
from urllib.parse import parse_qs, urlsplit

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Error, Page
from tests.waiting import PATIENCE_S

from punctual import registry
from punctual.api.frozen import FOLDER
from punctual.api.guard import CONTENT_SECURITY_POLICY
from punctual.api.standing import with_headline
from punctual.client.schema import (
    Amounts,
    BudgetCosts,
    BudgetHistory,
    BudgetShare,
    ClusterStanding,
    CourseCurve,
    FinishEntry,
    Health,
    HistoryAnswer,
    HurtEntry,
    JobCost,
    JobList,
    JobProgram,
    JobStanding,
    LineToDeadline,
    NodeStanding,
    PhaseTimes,
    PlannedCores,
    PlannedCost,
    PolicyEntry,
    PolicyList,
    PoolCost,
    PoolSpending,
    PriceEntry,
    QuoteAnswer,
    ReasonText,
    WhatIfAnswer,
    WhatIfJob,
    WhatIfOutcome,
    WhyAnswer,
    WhyEntry,
)
from punctual.core.control import INTERVAL_SIGMAS, Forecast
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.core.status import JobStatus
from punctual.core.units import span
from punctual.history.judge import NO_WAIT, expected_waits, judge, landing_at
from punctual.request.deadlines import Now

HOST = "punctual.example"
ADDRESS = f"http://{HOST}"
#: The stage's now; the page's clock is set to it.
NOW = datetime(2026, 11, 27, 14, 32, 10, tzinfo=UTC)
_GIB = 2**30


def at(minutes: float) -> datetime:
    """So many minutes from now."""
    return NOW + timedelta(minutes=minutes)


def job(name: str, state: str = "running", **more: Any) -> JobStanding:
    """A job that runs for 20 minutes, is due in 40, and on track, unless `more` says otherwise."""
    is_running = state in {"running", "stalled", "paused"}
    granted, left_s, started = (
        more.get("granted_cores", 0.6),
        more.get("estimated_remaining_seconds", 2390.0),
        more.get("started", at(-20)),
    )
    if is_running and left_s is not None and "progress_percentage" not in more:
        ran_s = (NOW - started).total_seconds()
        more["progress_percentage"] = round(100 * ran_s / (ran_s + left_s), 1)
    progress = more.get("progress_percentage") or 0.0
    deadline = more.get("deadline", at(40))
    told: dict[str, Any] = {
        "name": name, "state": state, "kind": "good", "word": "", "phrase": "", "verdict": "on_track" if is_running else None, "cause": "", "exit_code": None,
        "reason": ReasonText(code="planned", text=_planned_text(granted, left_s, is_promised="promised_until" in more) if deadline else "the job shares what jobs with deadlines leave", facts={}),
        "program": ["python", "train.py", f"--model={name}"], "controller": "remaining-cost", "weight": 1.0,
        "submitted": at(-21), "started": at(-20) if is_running else None, "landed": None, "ended": None, "deadline": at(40),
        "progress_percentage": None, "line_since": started if is_running else None,
        "line_since_percentage": 0.0 if is_running else None, "steps_done": 100 * progress if progress else None,
        "steps_total": 10_000.0 if is_running or progress else None, "steps_per_second": round(100 * progress / max(1.0, (NOW - started).total_seconds()), 2) if is_running else None,
        "estimated_remaining_seconds": 2390.0 if is_running else None, "estimated_remaining_seconds_low": 2370.0 if is_running else None,
        "estimated_remaining_seconds_high": 2410.0 if is_running else None, "slack_seconds": 900.0 if is_running else None,
        "promised_until": None, "granted_cores": granted if is_running else 0.0, "granted_gpus": 0.0, "nodes": ["local"] if is_running else [],
        "workers": None, "demand_cores": granted if is_running else None, "used_cores": round(0.95 * granted, 2) if is_running else None,
        "used_core_seconds": round(0.95 * granted * max(0.0, (NOW - started).total_seconds())) if is_running else None, "memory_bytes": int(1.4 * _GIB) if is_running else None,
        "peak_memory_bytes": int(1.9 * _GIB) if is_running else None, "asked_memory_bytes": None, "least_cores": 0.1, "most_cores": 2.0,
        "least_workers": None, "most_workers": None, "attempts": 1, "warnings": {},
    }  # fmt: skip
    return JobStanding.model_validate({**told, **more})


def _planned_text(cores: float, left_s: float | None, *, is_promised: bool) -> str:
    left_s = left_s or 0.0
    return f"{cores} cores bring the job to its {'promised ' * is_promised}deadline ({cores * left_s:,.0f} core-s of work in {span(left_s)})"


def ended(name: str, minutes_ago: float, early_s: float, **more: Any) -> JobStanding:
    """A job that landed so long ago, so much before its deadline."""
    landed = at(-minutes_ago)
    verdict = "met" if early_s >= 0 else "missed"
    return job(
        name, "finished", verdict=verdict, started=at(-minutes_ago - 12), submitted=at(-minutes_ago - 13), landed=landed, ended=landed,
        deadline=landed + timedelta(seconds=early_s), progress_percentage=100.0, steps_done=10_000.0, steps_total=10_000.0, exit_code=0,
        used_core_seconds=800.0, **more,
    )  # fmt: skip


def judged(shown: list[JobStanding], now: datetime = NOW) -> list[JobStanding]:
    """The same jobs as the service judges them."""
    clock = Now(now.timestamp(), now)
    statuses = [_status(each) for each in shown]
    waits = expected_waits(statuses, clock.at)
    found = []
    for each, status in zip(shown, statuses, strict=True):
        wait = waits.get(status.id, NO_WAIT)
        words = asdict(judge(status, clock.at, clock.iso, wait))
        starts = None if wait.starts_at is None else datetime.fromtimestamp(wait.starts_at, UTC)
        has_forecast = landing_at(status, clock.at) is not None
        left = {} if has_forecast else dict.fromkeys(_LEFT)
        told = each.model_copy(update={**words, **left, "expected_start": starts})
        found.append(with_headline(told, status, clock, 2.0))
    return found


_LEFT = [f"estimated_remaining_seconds{end}" for end in ("", "_low", "_high")]


def _instant(time: datetime | None) -> float | None:
    return None if time is None else time.timestamp()


def _status(told: JobStanding) -> JobStatus:
    """The status that a standing is of, as far as the words depend on it."""
    submitted_at, deadline_at = told.submitted.timestamp(), _instant(told.deadline)
    spec = JobSpec(
        id=JobId(told.name), ceiling=Resources(2.0), after=tuple(map(JobId, told.after)),
        deadline_s=None if deadline_at is None else deadline_at - submitted_at,
    )  # fmt: skip
    left, low, high = (getattr(told, name) for name in _LEFT)
    forecast = None
    if left is not None and told.ended is None:
        elapsed_s = NOW.timestamp() - submitted_at
        std_s = 0.0 if low is None or high is None else (high - low) / 2 / INTERVAL_SIGMAS
        is_at_risk = told.verdict == "at_risk"
        forecast = Forecast(finish_s=elapsed_s + left, std_s=std_s, feasible=told.verdict != "infeasible",
                            earliest_finish_s=(spec.deadline_s or 0.0) if is_at_risk else elapsed_s)  # fmt: skip
    state = "running" if told.state == "stalled" else told.state
    return JobStatus(
        spec=spec, submitted_at=submitted_at, state=state, started_at=_instant(told.started), cause=told.cause,
        landed_at=_instant(told.landed), ended_at=_instant(told.ended), exit_code=told.exit_code,
        steps_done=(told.steps_total and told.steps_total * (told.progress_percentage or 0.0) / 100) or 0.0, steps_total=told.steps_total,
        rate_sps=told.steps_per_second or 0.0, usage_cores=told.used_cores or 0.0, forecast=forecast,
        granted={NodeId("local"): Resources(told.granted_cores)} if told.granted_cores else {},
        reason=None if told.reason is None else Reason(told.reason.code, told.reason.text),
        warnings={"stalled": "no step"} if told.state == "stalled" else {},
    )  # fmt: skip


def several() -> list[JobStanding]:
    """One job of each kind that the overview tells apart."""
    left: dict[str, Any] = {"estimated_remaining_seconds_low": 1900.0, "estimated_remaining_seconds_high": 2700.0}
    late = ReasonText(code="infeasible", text="the deadline cannot be met: the job runs at its ceiling", facts={})
    wait = ReasonText(code="waits", text="waits for 1.00 cores: 0.1 cores are free, on 1 nodes", facts={})
    return [
        job("bert-large", verdict="infeasible", deadline=at(25), estimated_remaining_seconds=1900.0, estimated_remaining_seconds_low=1860.0,
            estimated_remaining_seconds_high=1940.0, slack_seconds=-400.0, reason=late, granted_cores=0.7, used_cores=0.68, most_cores=0.7,
            warnings={"infeasible": "the deadline cannot be met: at full speed the job lands 6 min 40 s after it"}),
        job("gan", verdict="at_risk", deadline=at(42), granted_cores=0.2, used_cores=0.19, estimated_remaining_seconds=2300.0, **left),
        job("resnet", promised_until=at(40)),
        job("transformer", deadline=at(95), started=at(-12), estimated_remaining_seconds=5600.0, estimated_remaining_seconds_low=5500.0, estimated_remaining_seconds_high=5690.0, granted_cores=0.1, used_cores=0.1),
        job("fresh", granted_cores=0.2, used_cores=0.05, verdict="on_track", started=at(-0.2), submitted=at(-0.4), deadline=at(60), progress_percentage=None, steps_done=None, steps_total=None, steps_per_second=None,
            estimated_remaining_seconds=None, estimated_remaining_seconds_low=None, estimated_remaining_seconds_high=None, reason=None, slack_seconds=None),
        job("sweep-3", deadline=None, verdict=None, slack_seconds=None, estimated_remaining_seconds=767.0, estimated_remaining_seconds_low=740.0, estimated_remaining_seconds_high=800.0, granted_cores=0.1, used_cores=0.1),
        job("ablation", "queued", after=["resnet"], submitted=at(-18), deadline=at(120), reason=ReasonText(code="waits", text="waits for resnet to finish", facts={})),
        job("sweep-4", "queued", submitted=at(-15), deadline=None, reason=wait),
        job("diffusion", "failed", started=at(-50), submitted=at(-51), ended=at(-31), exit_code=1, progress_percentage=72.0, cause="the program ended with status 1", verdict=None),
        ended("vgg", 3, 4.2), ended("lstm", 9, 0.02), ended("wav2vec", 14, -0.483), ended("unet", 26, 11.0), ended("mlp", 44, 0.3),
    ]  # fmt: skip


def many(n: int = 500) -> list[JobStanding]:
    """So many jobs: most wait, some run, some have ended; always the same ones."""
    chance = random.Random(7)
    found = []
    for i in range(n):
        name, due = f"job-{i:03}", chance.uniform(10, 300)
        if i % 10 == 0:
            verdict = ("on_track", "on_track", "at_risk", "infeasible")[chance.randrange(4)]
            left_s = 60 * due * (1.1 if verdict == "infeasible" else 0.97)
            found.append(job(name, verdict=verdict, deadline=at(due), progress_percentage=100 * 20 * 60 / (20 * 60 + left_s), estimated_remaining_seconds=left_s,
                             estimated_remaining_seconds_low=0.95 * left_s, estimated_remaining_seconds_high=1.05 * left_s, granted_cores=0.04))  # fmt: skip
        elif i % 3 == 0:
            found.append(ended(name, chance.uniform(1, 500), chance.uniform(-1, 20)))
        else:
            found.append(job(name, "queued", deadline=at(due), submitted=at(-chance.uniform(1, 60))))
    return found


def course(shown: JobStanding) -> HistoryAnswer:
    """A course that fits the job: two phases, some changes of its grant, and one of its deadline."""
    submitted = shown.submitted
    until = shown.ended or NOW
    lasts_s = (until - submitted).total_seconds()
    done = shown.progress_percentage or 0.0
    n = 60 if done else 0
    seconds = [60 + (lasts_s - 60) * i / max(1, n - 1) for i in range(n)]
    deadline_s = (shown.deadline - submitted).total_seconds() if shown.deadline else None
    grants = (
        [
            (60.0, 0.4),
            (0.3 * lasts_s, min(0.8, shown.most_cores or 0.8)),
            (0.55 * lasts_s, 0.5),
            (0.8 * lasts_s, shown.granted_cores or 0.6),
        ]
        if n
        else []
    )
    lines = [] if deadline_s is None or not n else [
        LineToDeadline(since_seconds=60, since_percentage=0, until_seconds=0.3 * lasts_s, until_percentage=100 * (0.3 * lasts_s - 60) / (1.3 * deadline_s - 60)),
        LineToDeadline(since_seconds=0.3 * lasts_s, since_percentage=0.28 * done, until_seconds=deadline_s, until_percentage=100.0),
    ]  # fmt: skip
    curve = CourseCurve
    return HistoryAnswer(
        job=shown.name, submitted=submitted, until=until, progress=curve(seconds=seconds, values=[done * (i / max(1, n - 1)) ** 1.1 for i in range(n)]),
        granted=curve(seconds=[s for s, _ in grants], values=[c for _, c in grants]),
        used=curve(seconds=seconds, values=[0.9 * next((c for t, c in reversed(grants) if t <= s), 0.4) + 0.05 * (i % 3) for i, s in enumerate(seconds)]),
        demanded=curve(seconds=[s for s, _ in grants][1:], values=[*(min(0.8, shown.most_cores or 0.8), 0.7, shown.demand_cores or 0.6)[: len(grants)]]),
        workers=curve(seconds=[], values=[]), deadlines=curve(seconds=[0, 0.3 * lasts_s], values=[1.3 * deadline_s, deadline_s]) if deadline_s else curve(seconds=[], values=[]),
        forecasts=curve(seconds=[], values=[]), losses=curve(seconds=seconds, values=[2 / (1 + i / 6) + 0.03 * (i % 4) for i in range(n)]),
        resizes=curve(seconds=[s for s, _ in grants], values=[2.0 for _ in grants]), lines=lines,
        phases=[PhaseTimes(name="evaluate", since_seconds=f * lasts_s, until_seconds=(f + 0.04) * lasts_s) for f in (0.35, 0.7)] if n else [],
    )  # fmt: skip


def reasons(shown: JobStanding) -> WhyAnswer:
    """What led to where it stands."""
    most, cores, done = shown.most_cores or 2.0, shown.granted_cores or 0.6, 0.7 * (shown.steps_done or 0.0)
    due = (
        "no deadline"
        if shown.deadline is None
        else f"a deadline {span((shown.deadline - shown.submitted).total_seconds())} after its submission"
    )
    last = (
        shown.reason.text
        if shown.kind == "late" and shown.reason
        else f"at {done:.0f} of 10000 steps, {cores:.2f} cores bring the job to its deadline"
    )
    told = [
        (0, "submitted", f"the job was submitted with {due}, at most {most:g} cores, steered by remaining-cost"),
        (60, "grant", "the job starts with 0.40 cores: asked to launch with 0.4 cores; given 0.4 cores after 35 ms"),
        (700, "warning", "its deadline may be missed: it lands 3 min 5 s after it unless others leave it more"),
        (980, "grant", f"{last}: asked to resize to {cores:g} cores; given {cores:g} cores after 12 ms"),
    ]  # fmt: skip
    if shown.state == "queued" and shown.reason is not None:
        told.insert(1, (0, "warning", shown.reason.text))
    if shown.state == "failed":
        told.append((1200, "failed", f"the job failed: {shown.cause}"))
    lasts_s = (NOW - shown.submitted).total_seconds()
    entries = [
        WhyEntry(elapsed_seconds=s, time=shown.submitted + timedelta(seconds=float(s)), kind=kind, text=text, facts={})
        for s, kind, text in told
        if s == 0 or (shown.started and s <= lasts_s)
    ]
    is_threatened = shown.ended is None and shown.verdict in ("at_risk", "infeasible")
    decisive = next((entry for entry in entries if is_threatened and entry.kind == "warning"), entries[-1])
    return WhyAnswer(job=shown.name, decisive=decisive, entries=entries)


def quote(shown: JobStanding | None, deadline: datetime | None, *, is_feasible: bool = True) -> QuoteAnswer:
    """What a deadline would take, of a job or, None, of a new one."""
    most = (shown and shown.most_cores) or 2.0
    left_s = shown.estimated_remaining_seconds if shown else None
    left = (
        20 * (1.0 if is_feasible else 6.8)
        if shown is None or left_s is None
        else (shown.granted_cores or 0.0) * left_s / 60
    )
    finishes = [
        FinishEntry(
            cores=cores,
            workers=None,
            finish=at(left / cores),
            low=at(0.98 * left / cores),
            high=at(1.02 * left / cores),
        )
        for cores in (most * share for share in (0.125, 0.25, 0.5, 0.75, 1.0))
    ]
    text = (
        "the deadline can be promised"
        if is_feasible
        else f"the deadline is too early: {60 * left:,.0f} core-s do not fit before it beside what is promised"
    )
    return QuoteAnswer(
        job=shown.name if shown else "new", promises=True, deadline=deadline or (shown.deadline if shown else at(61)), can_be_promised=is_feasible, earliest=at(12 if is_feasible else 33 if shown else 70), expected=finishes[2 if is_feasible else -1], finishes=finishes,
        hurt=[HurtEntry(job="transformer", promised_until=None, cores_before=0.1, cores_after=0.094, later_seconds=340.0)],
        prices=[], budget_usd=None, bought=None, reason=ReasonText(code="can-be-promised", text=text, facts={}),
    )  # fmt: skip


#: Pools of the stage, with the price of a machine-hour.
POOLS = {"spot": 0.92, "on-demand": 3.06}
#: Dollars an hour in 60 equal parts of the last 22 minutes: spot machines are taken away for some time, and one on demand is added.
PAID = {
    "spot": [0.0, *[1.84] * 17, *[2.76] * 16, *[0.92] * 12, *[1.84] * 14],
    "on-demand": [*[0.0] * 30, *[3.06] * 8, *[6.12] * 10, *[3.06] * 12],
}


def spent(share: float = 0.5) -> list[PoolSpending]:
    """What a job has cost that paid such a share of all machines."""
    part_s = 20 * 60 / len(PAID["spot"])
    found = []
    for pool, paid in PAID.items():
        usd = [sum(paid[:i]) * part_s / 3600 * share for i in range(len(paid) + 1)]
        found.append(
            PoolSpending(pool=pool, usd=CourseCurve(seconds=[60 + part_s * i for i in range(len(usd))], values=[*usd]))
        )
    return found


def budget_costs(jobs: list[JobStanding]) -> BudgetCosts:
    """What the machines of the stage cost."""
    of_pool = {pool: sum(paid) * 22 / 60 / len(paid) for pool, paid in PAID.items()}
    pools = [
        PoolCost(
            pool=pool, machines=round(PAID[pool][-1] / price), price_usd_per_hour=price, usd_per_hour=PAID[pool], spent_before_usd=0.0, spent_usd=of_pool[pool],
            planned=[PlannedCost(usd_per_hour=price, until=at(40 if pool == "spot" else 25 + i)) for i in range(round(PAID[pool][-1] / price))],
        )
        for pool, price in POOLS.items()
    ]  # fmt: skip
    holding = [each for each in jobs if each.granted_cores]
    return BudgetCosts(
        since=at(-22), spent_usd=sum(of_pool.values()), expected_usd=2.5, unused_usd=0.02, pools=pools,
        jobs=[JobCost(job=each.name, usd_per_hour=None, spent_usd=sum(of_pool.values()) / len(holding)) for each in holding],
    )  # fmt: skip


def outlook(jobs: list[JobStanding]) -> WhatIfAnswer:
    """One verdict gets better and one worse."""
    found = []
    for i, each in enumerate(j for j in jobs if j.ended is None):

        def outcome(minutes: float, each: JobStanding = each) -> WhatIfOutcome:
            if each.state == "queued" and not each.after:
                return WhatIfOutcome(
                    state="queued",
                    verdict=None,
                    landed=None,
                    cause="",
                    unknown="it still waits for 1.00 cores: 0.1 cores are free, on 1 nodes",
                )
            verdict = None if each.deadline is None else "met" if at(minutes) <= each.deadline else "missed"
            return WhatIfOutcome(state="finished", verdict=verdict, landed=at(minutes), cause="", unknown="")  # type: ignore[arg-type]

        today = (
            (75 if each.after else 50)
            if each.estimated_remaining_seconds is None
            else each.estimated_remaining_seconds / 60
        )
        other = {0: 24, 1: today + 9}.get(i, today + 0.1)
        found.append(WhatIfJob(job=each.name, deadline=each.deadline, today=outcome(today), other=outcome(other)))  # fmt: skip
    return WhatIfAnswer(since=NOW, policy="promises-first", other="least-laxity", jobs=found)


LOG = """\x1b[1mepoch 1/10\x1b[0m  loss 1.982
step 1000 of 10000, 2.7 a second
\x1b[33mWARNING\x1b[0m: the learning rate is above 0.1
step 2000 of 10000, 2.8 a second
\x1b[32mcheckpoint saved\x1b[0m to ckpt/00000002
step 3000 of 10000, 2.8 a second
"""
ERRORS = """Traceback (most recent call last):
  File "train.py", line 41, in <module>
    loss.backward()
RuntimeError: CUDA error: an illegal memory access was encountered
"""


@dataclass
class Stage:
    """A service that answers as it is told.

    Attributes
    ----------
    nodes
        Their names; each has an equal part of the cores.
    is_away
        Whether requests come to nothing.
    is_slow
        Whether they have no answer.
    is_feasible
        Whether a deadline that is quoted can be kept.
    has_prices
        Whether its machines are those of pools with prices.
    refusal
        The status with which all are refused; 0: none is.
    ahead_s
        By how much the service's clock is ahead of the reader's.
    now
        The service's present.
    """

    jobs: list[JobStanding] = field(default_factory=several)
    role: str = "owner"
    nodes: tuple[str, ...] = ("local",)
    is_away: bool = False
    is_slow: bool = False
    is_feasible: bool = True
    has_prices: bool = False
    refusal: int = 0
    ahead_s: float = 0.0
    now: datetime = NOW

    def set(self, context: BrowserContext) -> None:
        """Be what answers at `ADDRESS` from now on, and have the clock of a context stand still at `NOW`."""
        context.clock.set_fixed_time(NOW - timedelta(seconds=self.ahead_s))
        _on_stage[:] = [self]

    def open(self, page: Page, place: str = "#/") -> None:
        """Show a view, with a token."""
        page.goto(f"{ADDRESS}/#token=any")
        page.goto(f"{ADDRESS}/{place}")

    def answer(self, path: str, query: dict[str, list[str]], body: bytes) -> "Answer | None":
        """The answer to a request; None: it comes to nothing."""
        if not path.startswith("/v1/"):
            return _file("index.html" if path == "/" else path.removeprefix("/page/"))
        if self.is_away:
            return None
        if path == "/v1/events":
            return Answer(b"", "text/event-stream")
        if self.refusal:
            return _refused(self.refusal, "the token is not known, or has expired")
        while self.is_slow:
            time.sleep(0.05)
            if not any(each is self for each in _on_stage):
                return None
        return self._answer_api(path.removeprefix("/v1"), query, body)

    def _answer_api(self, path: str, query: dict[str, list[str]], body: bytes) -> "Answer":
        whole: dict[str, Callable[[], Any]] = {
            "/jobs": lambda: JobList(jobs=judged(self.jobs), next_cursor=None),
            "/cluster": self._cluster,
            "/health": lambda: Health(status="ok", version="0", host="service", caller="", role="submitter" if self.role == "owner" else self.role, takes_jobs=True),
            "/budget/history": lambda: self._budget(len(self.nodes) if "node" in query else 1),
            "/policies": lambda: PolicyList(policies=[PolicyEntry(name=n, summary=registry.summary("policies", n), active=n == "promises-first", parameters={}) for n in ("promises-first", "least-laxity", "fifo")]),
            "/quote": lambda: quote(None, None, is_feasible=self.is_feasible),
            "/what-if": lambda: outlook(self.jobs),
        }  # fmt: skip
        if path in whole:
            answer = whole[path]()
        else:
            _, _, name, *rest = path.split("/")
            shown = next((each for each in judged(self.jobs) if each.name == name), None)
            if shown is None:
                return _refused(404, "there is no such job")
            if rest == ["logs"]:
                of_errors = query.get("stream") == ["stderr"]
                log = "\n".join(LOG.split("\n")[3:]) if "since" in query else LOG
                said = (ERRORS if shown.state == "failed" else "") if of_errors else log if shown.started else ""
                return Answer(said.encode(), "text/plain")
            answer = self._of_job(shown, rest, body)
        if self.has_prices:
            answer = self._priced(answer)
        headers = {"Date": format_datetime(self.now.astimezone(UTC), usegmt=True)}
        return Answer(answer.model_dump_json(by_alias=True).encode(), headers=headers)

    def _priced(self, answer: Any) -> Any:
        """The answer with what there is to say where machines have prices."""
        total_usd = budget_costs(self.jobs).spent_usd
        more: dict[type, dict[str, Any]] = {
            ClusterStanding: {"usd_per_hour": 4.9, "spent_usd": total_usd},
            BudgetHistory: {"costs": budget_costs(self.jobs)},
            JobStanding: {"spent_usd": total_usd / 2},
            HistoryAnswer: {"spent": spent()},
            QuoteAnswer: {
                "prices": [PriceEntry(deadline=at(minutes), usd=usd) for minutes, usd in ((160, 0.9), (100, 1.05), (64, 1.6), (44, 2.6), (33, 4.1))] + [PriceEntry(deadline=at(24), usd=None)],
                "budget_usd": 2.0, "bought": at(53),
            },
        }  # fmt: skip
        return answer.model_copy(update=more.get(type(answer), {}))

    def _of_job(self, shown: JobStanding, rest: list[str], body: bytes) -> Any:
        if rest == ["quote"]:
            asked = json.loads(body or b"{}").get("deadline")
            return quote(shown, datetime.fromisoformat(asked) if asked and "T" in asked else None, is_feasible=self.is_feasible)  # fmt: skip
        answers: dict[str, Callable[[], Any]] = {
            "": lambda: shown, "history": lambda: course(shown), "why": lambda: reasons(shown),
            "program": lambda: JobProgram(arguments=shown.program, folder="/home/me/project", variables={"OMP_NUM_THREADS": "2"}, handed_on=["PATH", "HOME"], options={"memory": "4096MiB", "steps": "1200", "until": "loss<0.1", "guarantee": "true"}),
        }  # fmt: skip
        return answers[rest[0] if rest else ""]()

    def _cluster(self) -> ClusterStanding:
        held = sum(each.granted_cores or 0.0 for each in self.jobs)

        def amounts(n: int) -> dict[str, Any]:
            cores = {"capacity": 2.0, "held": held, "free": 2.0 - held}
            return {name: Amounts(cores=each / n, gpus=0.0, memory_bytes=0 if name == "held" else 16 * _GIB // n) for name, each in cores.items()}  # fmt: skip

        part = amounts(len(self.nodes))
        nodes = [NodeStanding(name=name, device="", slowness=1.0, silent_seconds=0.0, taken_cores=0.0, **part) for name in self.nodes]  # fmt: skip
        return ClusterStanding(policy="promises-first", nodes=nodes, promised=[], jobs_by_state={}, **amounts(1))

    def _budget(self, n_parts: int) -> BudgetHistory:
        running = [each for each in self.jobs if each.granted_cores][:12]
        held = [
            BudgetShare(
                job=each.name,
                cores=[0.0 if 3 * k > i else (each.granted_cores or 0) * (0.7 if i < 36 else 1.0) for i in range(60)],
            )
            for k, each in enumerate(running)
        ]
        planned = [
            PlannedCores(job=each.name, cores=each.granted_cores or 0.0, until=each.promised_until or at((each.estimated_remaining_seconds or 0.0) / 60), promised=each.promised_until is not None)
            for each in running if each.promised_until or each.estimated_remaining_seconds
        ]  # fmt: skip
        return BudgetHistory(since=at(-22), until=NOW, capacity_cores=2.0 / n_parts, held=held, planned=planned)


#: What answers at `ADDRESS`: the stage that was set last.
_on_stage: list[Stage] = []


@dataclass(frozen=True)
class Answer:
    """What is answered to one request."""

    body: bytes
    kind: str = "application/json"
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


def _refused(status: int, detail: str) -> Answer:
    return Answer(json.dumps({"detail": detail}).encode(), status=status)


def _file(name: str) -> Answer:
    """A file of the page, which browsers keep: to load all of them takes longer than to show most views.

    It has no date: by that of the stage, which may be long past, it would be too old to be kept.
    """
    kind = mimetypes.guess_type(name)[0] or "text/plain"
    headers = {"Content-Security-Policy": CONTENT_SECURITY_POLICY, "Cache-Control": "max-age=3600"}
    return Answer((FOLDER / name).read_bytes(), kind, headers=headers)


class _Requests(BaseHTTPRequestHandler):
    """Requests of a browser, over a connection that stays."""

    protocol_version = "HTTP/1.1"
    wbufsize = -1  # an answer is sent whole

    def do_GET(self) -> None:
        url, body = urlsplit(self.path), self.rfile.read(int(self.headers.get("Content-Length", 0)))
        answer = _on_stage[0].answer(url.path, parse_qs(url.query), body)
        if answer is None:
            self.close_connection = True
            return
        self.send_response_only(answer.status)
        told = {"Content-Type": answer.kind, "Content-Length": str(len(answer.body)), **answer.headers}
        for name, value in told.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(answer.body)

    do_POST = do_PATCH = do_PUT = do_GET  # noqa: N815 -- names that the server looks for

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def stage_door() -> Iterator[int]:
    """The port of this machine at which stages answer, until this is left."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Requests) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server.server_address[1]
        finally:
            _on_stage.clear()
            server.shutdown()
            thread.join()


@contextmanager
def tab(
    browser: Browser, size: tuple[int, int], scheme: Literal["dark", "light"], *, is_new: bool = False
) -> Iterator[Page]:
    """Lend a tab of this size and scheme; no script in it must fail, and nothing must be kept back.

    It is the browser's one tab, emptied, unless `is_new`: in a new one a view takes four times as long to load. One in which a
    test has failed is closed.
    """
    kept = [] if is_new else browser.contexts
    context = (
        kept[0] if kept else browser.new_context(reduced_motion="reduce", locale="en-GB", timezone_id="Europe/Berlin")
    )
    context.set_default_timeout(1000 * PATIENCE_S)
    page, faults = context.pages[0] if kept else context.new_page(), list[str]()

    def failed(error: Error) -> None:
        faults.append(str(error))

    def said(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load" not in message.text:
            faults.append(message.text)

    page.set_viewport_size({"width": size[0], "height": size[1]})
    page.emulate_media(color_scheme=scheme)
    page.on("pageerror", failed)
    page.on("console", said)
    is_good = False
    try:
        yield page
        is_good = not is_new
    finally:
        if is_good:
            page.mouse.move(0, 0)
            page.evaluate("(sessionStorage.clear(), localStorage.clear())")
            page.goto("about:blank")
        page.remove_listener("pageerror", failed)
        page.remove_listener("console", said)
        context.unroute_all(behavior="ignoreErrors")  # while there is a route, nothing is kept
        if not is_good:
            context.close()
    assert faults == []
