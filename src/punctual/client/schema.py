"""Requests and answers of the HTTP API. The client reads answers into the same classes."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

from punctual.core.job import JobState
from punctual.core.status import ToldState
from punctual.core.verdict import JobKind, Verdict
from punctual.request.job_options import JobOptions, RequestBody, Sentence, ShortText, VariableName, Weight
from punctual.request.json_text import finite

#: A number that may be infinite, as JSON can hold it: it is left out then.
Number = Annotated[float | None, BeforeValidator(finite)]
_Plain = bool | Annotated[int, Field(ge=-(2**53), le=2**53)] | float | ShortText | None
#: Value of a policy's parameter: no deeper, since it is written into the journal as it is.
ParameterValue = _Plain | Annotated[list[_Plain], Field(max_length=64)]


class AnswerBody(BaseModel):
    """Body of an answer; a client ignores names that it does not know."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    def model_dump_json(self, **options: Any) -> str:
        """Return the model as JSON; characters of a command's arguments that are no Unicode become question marks."""
        try:
            return super().model_dump_json(**options)
        except PydanticSerializationError:
            said = json.dumps(self.model_dump(mode="json", **options), ensure_ascii=False)
            return said.encode(errors="replace").decode()


class SubmitRequest(JobOptions):
    """A job to submit: the options of `punctual run`, written as there."""

    inherit_env: Annotated[list[VariableName], Field(max_length=256)] = Field(
        default_factory=list, description="Names of variables that the program gets as the service has them."
    )


class ChangeRequest(RequestBody):
    """Changes of a job, made together or, if one is wrong, not at all; fields that are not named stay."""

    deadline: ShortText | None = Field(
        None,
        description="`90s` from now, `+30m` or `-10m` on the present deadline, or a time; null: no deadline any more.",
        examples=["+30m"],
    )
    weight: Weight | None = Field(None, description="Weight against other jobs; null: unchanged.")
    cores: ShortText | None = Field(
        None, description="Least and most cores, `0.5..2`, or the most alone; null: as they are."
    )
    workers: ShortText | None = Field(
        None,
        description="Least and most workers, `1..4`, or the most alone, no more than it was submitted with; null: as they are.",
    )
    budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        None, description="Dollars that it may cost in all; null: no budget any more."
    )


class PolicyRequest(RequestBody):
    """The policy that is to make the plans, with its parameters."""

    name: ShortText = Field(examples=["promises-first"])
    parameters: Annotated[dict[VariableName, ParameterValue], Field(max_length=64)] = Field(
        default_factory=dict, description="Name to value; what is left out has its default."
    )


class CauseRequest(RequestBody):
    """Why a job is to be paused or to end."""

    cause: Sentence = Field("", description="For `why` and the job's record.")


#: Amounts for which a finish is asked.
CoreAmounts = Annotated[list[Annotated[float, Field(gt=0, le=1e6)]], Field(max_length=16)]


class JobQuoteRequest(RequestBody):
    """Request for a quote of another deadline of a job."""

    deadline: ShortText | None = Field(None, description="Deadline as in a change; null: the job's own.")
    cores: CoreAmounts = Field(default_factory=list, description="Amounts to forecast the finish for; none: a few.")


class NewQuoteRequest(RequestBody):
    """Request for a quote of a job that is not submitted."""

    job: SubmitRequest
    cores: CoreAmounts = Field(default_factory=list, description="Amounts to forecast the finish for; none: a few.")


class ReasonText(AnswerBody):
    """Reason of a decision."""

    code: str
    text: str
    facts: dict[str, Number]


class JobStanding(AnswerBody):
    """Standing of one job. Times of the clock are ISO 8601 with an offset from UTC."""

    name: str
    state: ToldState
    verdict: Verdict | None = Field(description="null: the job has no deadline, or nothing is known of it yet.")
    kind: JobKind = Field(description="How it stands, in one word; `measuring`: no forecast can be believed yet.")
    word: str = Field(description="The same for people.")
    phrase: str = Field(description="Why, in some words. Times of day in it are ISO 8601.")
    headline: str = Field(
        default="", description="The same in a sentence; empty in a list of jobs. Times of day in it are ISO 8601."
    )
    expected_start: datetime | None = Field(
        None, description="When a queued job is expected to start; after other jobs, the earliest. null: not known."
    )
    reason: ReasonText | None = Field(description="Reason of its grant's last change, or of its waiting.")
    cause: str = Field(description="Cause of its end; empty: it does not end.")
    exit_code: int | None
    program: list[str] = Field(description="The command line, without what looks like a secret.")
    controller: str | None
    weight: float
    after: list[str] = Field([], description="Names of jobs that must have finished before it is started.")
    submitted: datetime
    started: datetime | None
    landed: datetime | None
    ended: datetime | None
    deadline: datetime | None
    earliest_deadline: datetime | None = Field(
        None,
        description="Of a job that was turned away: the earliest acceptable deadline; null: none, or not known.",
    )
    progress_percentage: float | None
    line_since: datetime | None = Field(
        None,
        description="Begin of the straight line to its deadline: its first step, or the last change of the deadline.",
    )
    line_since_percentage: float | None = Field(
        None, description="Progress of the job at `lineSince`, where the line begins."
    )
    steps_done: float | None
    steps_total: float | None
    steps_per_second: float | None
    estimated_remaining_seconds: Number = Field(description="null: unknown, or founded on no steps yet.")
    estimated_remaining_seconds_low: Number = Field(
        description="The remaining time lies between low and high nine times out of ten."
    )
    estimated_remaining_seconds_high: Number
    slack_seconds: Number = Field(
        description="Seconds between earliest landing and deadline; of a landed job, seconds that it was early."
    )
    promised_until: datetime | None
    granted_cores: float | None
    granted_gpus: float | None
    nodes: list[str] = Field(description="Nodes on which it holds resources.")
    workers: int | None
    demand_cores: float | None
    used_cores: float | None
    used_core_seconds: float | None
    memory_bytes: int | None = Field(description="Memory that its processes hold, without the cache of files.")
    peak_memory_bytes: int | None = Field(description="The most that was seen.")
    asked_memory_bytes: int | None = Field(
        description="Memory that it asked for, all its workers together; null: it has not asked."
    )
    least_cores: float | None
    most_cores: float | None
    least_workers: int | None = Field(description="null: it has no workers.")
    most_workers: int | None
    attempts: int
    budget_usd: float | None = Field(default=None, description="Dollars that it may cost; null: as many as it needs.")
    spent_usd: float | None = Field(
        default=None,
        description="Dollars that it has cost; null: no machine has a price, not known, or in a list of jobs.",
    )
    warnings: dict[str, str]


class FinishEntry(AnswerBody):
    """Expected landing of a job that holds these cores from now on; low to high holds nine of ten."""

    cores: float
    workers: int | None
    finish: datetime
    low: datetime
    high: datetime


class HurtEntry(AnswerBody):
    """A job that would get less."""

    job: str
    promised_until: datetime | None = Field(description="The promise that it would lose; null: it loses none.")
    cores_before: float
    cores_after: float
    later_seconds: Number = Field(description="Seconds by which it would land later; null: not known.")


class PriceEntry(AnswerBody):
    """Expected cost of the rest of the job by a deadline."""

    deadline: datetime
    usd: float | None = Field(description="null: it cannot be done by then.")


class QuoteAnswer(AnswerBody):
    """Consequences of a deadline; asking has changed nothing."""

    job: str
    promises: bool = Field(description="Whether the policy promises anything.")
    deadline: datetime | None
    can_be_promised: bool | None = Field(description="null: no deadline was asked for, or the policy promises nothing.")
    earliest: datetime | None = Field(
        description="The earliest deadline that can be promised; null: none can, or not known."
    )
    expected: FinishEntry | None
    finishes: list[FinishEntry]
    hurt: list[HurtEntry]
    prices: list[PriceEntry] = Field(description="The latest first; empty: no machine has a price.")
    budget_usd: float | None
    bought: datetime | None = Field(description="The earliest deadline that the budget buys; null: none, or no budget.")
    reason: ReasonText


class JobList(AnswerBody):
    """A page of jobs in order of submission."""

    jobs: list[JobStanding]
    next_cursor: str | None = Field(description="Value of `cursor` for the jobs that follow; null: none do.")


class WhyEntry(AnswerBody):
    """One event of a job, with its causes."""

    elapsed_seconds: Number = Field(description="Seconds since the job's submission.")
    time: datetime
    kind: str
    text: str
    facts: dict[str, Any]


class WhyAnswer(AnswerBody):
    """Events of a job and their causes, oldest first."""

    job: str
    decisive: WhyEntry | None = Field(None, description="The one that explains how the job stands now, however old.")
    entries: list[WhyEntry]


class Amounts(AnswerBody):
    """Cores, GPUs and memory; memory counts as held if a job asked for it."""

    cores: Number
    gpus: Number
    memory_bytes: int


class NodeStanding(AnswerBody):
    """Standing of one machine. `slowness`: cost of steps relative to other nodes of its kind; 1 unless it is slow."""

    name: str
    device: str
    slowness: float
    silent_seconds: float = Field(description="Seconds since its last answer, once it counts as silent; else 0.")
    leaves: datetime | None = Field(
        None, description="Time at which it is taken away; its jobs leave it. null: it stays."
    )
    lost: datetime | None = Field(None, description="Time at which a silent node counts as lost. null: it answers.")
    taken_cores: float = Field(description="Cores that other applications of the cluster hold; no part of `capacity`.")
    capacity: Amounts
    held: Amounts
    free: Amounts


class PromiseEntry(AnswerBody):
    """Promise that a job is done by a time."""

    job: str
    until: datetime


class LackingMachines(AnswerBody):
    """Machines of a pool that start, or cannot be had."""

    pool: str
    starting: int = Field(description="Machines that start; 0: no more can be had now.")
    refused: int = Field(description="Machines that were asked for last and refused.")
    since: datetime = Field(description="Time of the first order since a machine of the pool came last.")
    cause: str = Field(description="Why no more could be had, when they were asked for last; empty: not known.")
    asked_again: datetime | None = Field(None, description="null: when the pool offers more.")


class ClusterStanding(AnswerBody):
    """Resources of the cluster: in all, held and free, and the promises."""

    policy: str | None
    nodes: list[NodeStanding]
    capacity: Amounts
    held: Amounts
    free: Amounts
    promised: list[PromiseEntry]
    jobs_by_state: dict[str, int]
    usd_per_hour: float | None = Field(
        default=None, description="Price of the present machines; null: none has a price."
    )
    spent_usd: float | None = Field(default=None, description="Dollars spent since the first machine.")
    lacking_machines: list[LackingMachines] = []


class BudgetShare(AnswerBody):
    """Cores that a job held over time."""

    job: str | None = Field(description="null: all others together.")
    cores: list[float] = Field(description="Mean of each part, oldest first.")


class PlannedCores(AnswerBody):
    """Cores that a job is expected to hold from now on."""

    job: str
    cores: float = Field(
        description="Mean until then; of a promised job, the cores that keep the promise, as estimated now."
    )
    until: datetime = Field(description="The promised deadline; without a promise the expected finish.")
    promised: bool


class PlannedCost(AnswerBody):
    """Price of present machines until their jobs are done."""

    usd_per_hour: float
    until: datetime


class PoolCost(AnswerBody):
    """Cost of the machines of one pool."""

    pool: str
    machines: int = Field(description="Machines that are paid for now.")
    price_usd_per_hour: float = Field(description="Present price of one.")
    usd_per_hour: list[float] = Field(description="Mean of each part, oldest first.")
    spent_before_usd: float = Field(description="Dollars spent before the first part.")
    spent_usd: float = Field(description="Dollars spent until now.")
    planned: list[PlannedCost] = Field(description="If its machines stay until their jobs are done, at present prices.")


class JobCost(AnswerBody):
    """Cost of one job. It pays for the start-up of a machine on which it is the first."""

    job: str
    usd_per_hour: list[float] | None = Field(
        description="Mean of each part, oldest first; null: not known any more, because messages of removed jobs are gone."
    )
    spent_usd: float


class BudgetCosts(AnswerBody):
    """Costs of the machines of pools."""

    since: datetime = Field(description="Time of the first machine; dollars count from it on.")
    spent_usd: float
    expected_usd: float | None = Field(
        description="Further dollars if present machines stay until their jobs are done, at present prices; null: for some "
        "nobody knows how long."
    )
    unused_usd: float = Field(description="The part spent on machines that ended before any job came to them.")
    pools: list[PoolCost]
    jobs: list[JobCost] = Field(description="The dearest, and those that hold a machine.")


class BudgetHistory(AnswerBody):
    """Cores that jobs held between two times, in equal parts, and the plan from then on."""

    since: datetime
    until: datetime
    capacity_cores: float
    held: list[BudgetShare] = Field(description="In order of the jobs' first grants.")
    planned: list[PlannedCores]
    costs: BudgetCosts | None = Field(
        default=None, description="null: no machine has a price, or one node was asked for."
    )


class CourseCurve(AnswerBody):
    """A value over time."""

    seconds: list[float] = Field(description="Since the job's submission, ascending.")
    values: list[Number]


class PhaseTimes(AnswerBody):
    """Begin and end of an evaluation, a checkpoint or another phase, in seconds since the job's submission."""

    name: str
    since_seconds: float
    until_seconds: float


class LineToDeadline(AnswerBody):
    """A part of the straight line to the deadline: its begin and end, in seconds since submission and in percent."""

    since_seconds: float
    since_percentage: float
    until_seconds: float
    until_percentage: float


class PoolSpending(AnswerBody):
    """Dollars spent on a job's machines of one pool."""

    pool: str
    usd: CourseCurve = Field(description="Spent up to each time; between two it grows evenly.")


class PhaseSum(AnswerBody):
    """Count of a phase, and the seconds of all its times."""

    name: str
    times: int
    seconds: float


class HistoryAnswer(AnswerBody):
    """The course of a job. Curves are thinned evenly; used cores are means of half a second or longer."""

    job: str
    submitted: datetime
    until: datetime = Field(description="Its end, or now.")
    progress: CourseCurve = Field(description="Percent of its steps.")
    granted: CourseCurve = Field(description="Cores held from each time on.")
    used: CourseCurve = Field(description="Cores used on average since the time before.")
    demanded: CourseCurve = Field(
        description="Cores that the controller demanded from each time on, as noted where the grant was asked for."
    )
    workers: CourseCurve = Field(description="Workers held from each time on; empty where it is not made of workers.")
    deadlines: CourseCurve = Field(description="The deadline from each time on, in seconds since submission.")
    forecasts: CourseCurve = Field(description="The expected finish, in seconds since submission.")
    losses: CourseCurve
    resizes: CourseCurve = Field(description="Seconds that each start and change of the grant took until it was there.")
    lines: list[LineToDeadline] = Field(
        description="The straight line to each deadline, from the job's first step or where it was when the deadline was "
        "changed, as long as that was in force."
    )
    phases: list[PhaseTimes] = Field(description="Phases that the job reports; the last, if there are many.")
    changes: int = Field(default=0, description="Changes of its cores from its start until it landed.")
    changes_seconds: float = Field(
        default=0.0, description="Seconds that its starts and the changes of its grant took."
    )
    phase_sums: list[PhaseSum] = Field(default=[], description="All its phases, by name.")
    spent: list[PoolSpending] = Field(
        default=[],
        description="Dollars spent on it, by pool; empty: no machine has a price, or messages of removed jobs are gone "
        "that shared its machines.",
    )


class JobProgram(AnswerBody):
    """Program of a job. Secrets are left out as far as they are recognised."""

    arguments: list[str] = Field(description="The command line, without what looks like a secret.")
    folder: str | None = Field(description="Folder in which it runs; null: that of its host.")
    variables: dict[str, str] = Field(description="Variables that its host sets for it.")
    handed_on: list[str] = Field(
        description="Names of the other variables that it gets, until it has ended: any of them may hold a secret."
    )
    options: dict[str, str] = Field(
        default={}, description="Options of its submission, as written there, that its standing lacks."
    )


class PolicyEntry(AnswerBody):
    """A policy that can be chosen."""

    name: str
    summary: str
    active: bool
    parameters: dict[str, str] = Field(description="Names of its parameters, and their defaults as they are written.")


class PolicyList(AnswerBody):
    """Available policies."""

    policies: list[PolicyEntry]


class PolicyStanding(AnswerBody):
    """The policy that makes the plans."""

    name: str
    parameters: dict[str, Any] = Field(description="Parameters that differ from its defaults.")
    before: str | None = Field(None, description="Name of the policy that it replaces, if it was changed just now.")


class DrainRequest(RequestBody):
    """Time until a node is taken away."""

    in_: Annotated[ShortText, Field(alias="in", description="Time from now.", examples=["30s"])] = "60s"


class WhatIfRequest(RequestBody):
    """Request to simulate the present jobs under another policy."""

    policy: PolicyRequest


class WhatIfOutcome(AnswerBody):
    """A job's fate in the simulation."""

    state: JobState
    verdict: Verdict | None
    landed: datetime | None
    cause: str = Field(description="Cause of an end without landing; empty: it lands.")
    unknown: str = Field(description="Reason why its end is unknown; empty: it has ended.")


class WhatIfJob(AnswerBody):
    """A job that has not ended, under both policies."""

    job: str
    deadline: datetime | None
    today: WhatIfOutcome = Field(description="Outcome under the present policy.")
    other: WhatIfOutcome


class WhatIfAnswer(AnswerBody):
    """Simulated fates of all open jobs, if no other came; asking has changed nothing."""

    since: datetime = Field(description="Begin of the simulation.")
    policy: str = Field(description="The present policy.")
    other: str
    jobs: list[WhatIfJob] = Field(description="In order of submission.")


class Health(AnswerBody):
    """Health of the service."""

    status: Literal["ok", "leaving"]
    version: str
    host: str = Field(description="Name of the run that holds the jobs.")
    caller: str = Field(description="Name of the token; empty: the service's own user.")
    role: str
    takes_jobs: bool = Field(description="Whether jobs can be submitted: false on the page of a daemon that has ended.")


class FaultText(AnswerBody):
    """A mistake in four parts."""

    must: str
    got: str
    where: str
    remedy: str
    field: str | None = Field(None, description="Place in the request, as a JSON pointer: `/deadline`.")


class Problem(AnswerBody):
    """Reason why a request was not done, as RFC 9457 has it; a user's mistake in four parts."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    must: str | None = None
    got: str | None = None
    where: str | None = None
    remedy: str | None = None
    field: str | None = None
    others: list[FaultText] = Field(default_factory=list, description="Other mistakes in the request.")
