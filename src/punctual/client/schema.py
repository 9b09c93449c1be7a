"""What goes in and out over HTTP. The client reads answers into the same classes."""

import json
from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic.alias_generators import to_camel
from pydantic_core import PydanticSerializationError

from punctual.core.job import JobState
from punctual.core.status import ToldState
from punctual.core.verdict import Verdict
from punctual.request.job_options import JobOptions, RequestBody, Sentence, ShortText, VariableName, Weight
from punctual.request.json_text import finite

#: A number that may be infinite, as JSON can hold it: it is left out then.
Number = Annotated[float | None, BeforeValidator(finite)]
_Plain = bool | Annotated[int, Field(ge=-(2**53), le=2**53)] | float | ShortText | None
#: What a policy is made with: no deeper, since it is written into the journal as it is.
ParameterValue = _Plain | Annotated[list[_Plain], Field(max_length=64)]


class AnswerBody(BaseModel):
    """What the service says; a client that does not know a name leaves it out."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="ignore")

    def model_dump_json(self, **options: Any) -> str:
        """As JSON. A command may have arguments that are no Unicode: of such a sign a question mark is told."""
        try:
            return super().model_dump_json(**options)
        except PydanticSerializationError:
            said = json.dumps(self.model_dump(mode="json", **options), ensure_ascii=False)
            return said.encode(errors="replace").decode()


class SubmitRequest(JobOptions):
    """A job: what `punctual run` takes, written as there."""

    inherit_env: Annotated[list[VariableName], Field(max_length=256)] = Field(
        default_factory=list, description="Names of variables that the program gets as the service has them."
    )


class ChangeRequest(RequestBody):
    """What is to be changed of a job, all of it or, where something is wrong, nothing; what is not named stays."""

    deadline: ShortText | None = Field(
        None,
        description="`90s` from now, `+30m` or `-10m` on the present deadline, or a time; null: no deadline any more.",
        examples=["+30m"],
    )
    weight: Weight | None = Field(None, description="How much it counts against others; null: as it is.")
    cores: ShortText | None = Field(
        None, description="Least and most cores, `0.5..2`, or the most alone; null: as they are."
    )
    workers: ShortText | None = Field(
        None,
        description="Least and most workers, `1..4`, or the most alone, no more than it was submitted with; null: as they are.",
    )


class PolicyRequest(RequestBody):
    """The policy that is to share out what there is, and what it is made with."""

    name: ShortText = Field(examples=["promises-first"])
    parameters: Annotated[dict[VariableName, ParameterValue], Field(max_length=64)] = Field(
        default_factory=dict, description="Name to value; what is left out has its default."
    )


class StopRequest(RequestBody):
    """That a job is to end, after a checkpoint if it can make one."""

    cause: Sentence = Field("", description="Why, for `why` and the job's record.")


class PauseRequest(RequestBody):
    """That a job is to hold nothing until it is resumed; its deadline goes on counting."""

    cause: Sentence = Field("", description="Why.")


#: Amounts for which a finish is asked.
CoreAmounts = Annotated[list[Annotated[float, Field(gt=0, le=1e6)]], Field(max_length=16)]


class JobQuoteRequest(RequestBody):
    """What another deadline would take."""

    deadline: ShortText | None = Field(None, description="As in a change; null: the one that the job has.")
    cores: CoreAmounts = Field(default_factory=list, description="For which the finish is told; none: a few.")


class NewQuoteRequest(RequestBody):
    """What a job would take that is not submitted."""

    job: SubmitRequest
    cores: CoreAmounts = Field(default_factory=list, description="For which the finish is told; none: a few.")


class ReasonText(AnswerBody):
    """Why something was decided."""

    code: str
    text: str
    facts: dict[str, Number]


class JobStanding(AnswerBody):
    """One job as it stands. Times of the clock are ISO 8601 with an offset from UTC."""

    name: str
    state: ToldState
    verdict: Verdict | None = Field(description="null: the job has no deadline, or nothing is known of it yet.")
    reason: ReasonText | None = Field(description="Why its grant last changed, or what it waits for.")
    cause: str = Field(description="Why it ends or has ended; empty: it does not.")
    exit_code: int | None
    program: list[str] = Field(description="The command line, without what looks like a secret.")
    controller: str | None
    weight: float
    submitted: datetime
    started: datetime | None
    landed: datetime | None
    ended: datetime | None
    deadline: datetime | None
    earliest_deadline: datetime | None = Field(
        None,
        description="Of a job that was turned away: the earliest that would have been accepted; null: none, or not known.",
    )
    progress_percentage: float | None
    line_since: datetime | None = Field(
        None,
        description="Since when the straight line to its deadline counts: its first step, or the last change of the deadline.",
    )
    line_since_percentage: float | None = Field(None, description="How far the job was then; the line begins there.")
    steps_done: float | None
    steps_total: float | None
    steps_per_second: float | None
    estimated_remaining_seconds: Number
    estimated_remaining_seconds_low: Number = Field(description="It lies between low and high nine times out of ten.")
    estimated_remaining_seconds_high: Number
    slack_seconds: Number = Field(
        description="How much later than at its earliest the job may land; of one that has landed, how early it was."
    )
    promised_until: datetime | None
    granted_cores: float | None
    granted_gpus: float | None
    nodes: list[str] = Field(description="Where it holds something.")
    workers: int | None
    demand_cores: float | None
    used_cores: float | None
    used_core_seconds: float | None
    memory_bytes: int | None = Field(description="Memory that its processes hold, without the cache of files.")
    peak_memory_bytes: int | None = Field(description="The most that was seen.")
    asked_memory_bytes: int | None = Field(
        description="What it asked for, all its workers together; null: it has not asked."
    )
    least_cores: float | None
    most_cores: float | None
    least_workers: int | None = Field(description="null: it is not made of workers.")
    most_workers: int | None
    attempts: int
    warnings: dict[str, str]


class FinishEntry(AnswerBody):
    """When a job would land with so much from now on; low to high holds nine of ten."""

    cores: float
    workers: int | None
    finish: datetime
    low: datetime
    high: datetime


class HurtEntry(AnswerBody):
    """A job that would have less."""

    job: str
    promised_until: datetime | None = Field(description="The promise that it would lose; null: it loses none.")
    cores_before: float
    cores_after: float
    later_seconds: Number = Field(description="How much later it would land; null: not known.")


class QuoteAnswer(AnswerBody):
    """What a deadline would take; asking has changed nothing."""

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
    reason: ReasonText


class JobPage(AnswerBody):
    """Some jobs in order of submission."""

    jobs: list[JobStanding]
    next_cursor: str | None = Field(description="Ask with it as `cursor` for the jobs that follow; null: none do.")


class WhyEntry(AnswerBody):
    """One thing that happened to a job, with what led to it."""

    elapsed_seconds: Number = Field(description="Seconds since the job's submission.")
    time: datetime
    kind: str
    text: str
    facts: dict[str, Any]


class WhyAnswer(AnswerBody):
    """What happened to a job and why, oldest first."""

    job: str
    entries: list[WhyEntry]


class Amounts(AnswerBody):
    """Cores, GPUs and memory; memory counts as held if a job asked for it."""

    cores: Number
    gpus: Number
    memory_bytes: int


class NodeStanding(AnswerBody):
    """One machine. `slowness`: how many times as much steps cost there as on other nodes of its kind; 1 unless it is slow."""

    name: str
    device: str
    slowness: float
    silent_seconds: float = Field(description="For how long it has not answered, once that is noticed; else 0.")
    taken_cores: float = Field(description="What other applications of the cluster hold; no part of `capacity`.")
    capacity: Amounts
    held: Amounts
    free: Amounts


class PromiseEntry(AnswerBody):
    """That a job is promised to be done by a time."""

    job: str
    until: datetime


class ClusterStanding(AnswerBody):
    """What there is, and who holds how much of it."""

    policy: str | None
    nodes: list[NodeStanding]
    capacity: Amounts
    held: Amounts
    free: Amounts
    promised: list[PromiseEntry]
    jobs_by_state: dict[str, int]


class BudgetShare(AnswerBody):
    """What a job held over time."""

    job: str | None = Field(description="null: all others together.")
    cores: list[float] = Field(description="Mean of each part, oldest first.")


class PlannedCores(AnswerBody):
    """What a job is to hold from now on."""

    job: str
    cores: float = Field(
        description="Mean until then, of a job that has a promise as much as keeps it, as reckoned now."
    )
    until: datetime = Field(description="The promised deadline; without a promise the expected finish.")
    promised: bool


class BudgetHistory(AnswerBody):
    """Who held how many cores between two times, in equal parts, and what is planned from then on."""

    since: datetime
    until: datetime
    capacity_cores: float
    held: list[BudgetShare] = Field(description="In order of the jobs' first grants.")
    planned: list[PlannedCores]


class CourseCurve(AnswerBody):
    """A value over time."""

    seconds: list[float] = Field(description="Since the job's submission, ascending.")
    values: list[Number]


class PhaseTimes(AnswerBody):
    """When an evaluation, a checkpoint or another phase was under way, in seconds since the job's submission."""

    name: str
    since_seconds: float
    until_seconds: float


class LineToDeadline(AnswerBody):
    """A part of the straight line to the deadline: where it begins and ends, in seconds since submission and in percent."""

    since_seconds: float
    since_percentage: float
    until_seconds: float
    until_percentage: float


class JobHistory(AnswerBody):
    """The course of a job. Curves are thinned evenly; used cores are means of half a second or longer."""

    job: str
    submitted: datetime
    until: datetime = Field(description="Its end, or now.")
    progress: CourseCurve = Field(description="Percent of its steps.")
    granted: CourseCurve = Field(description="Cores held from each time on.")
    used: CourseCurve = Field(description="Cores used on average since the time before.")
    workers: CourseCurve = Field(description="Workers held from each time on; empty where it is not made of workers.")
    deadlines: CourseCurve = Field(description="The deadline from each time on, in seconds since submission.")
    forecasts: CourseCurve = Field(description="The expected finish, in seconds since submission.")
    losses: CourseCurve
    resizes: CourseCurve = Field(description="Seconds that each start and change of the grant took until it was there.")
    lines: list[LineToDeadline] = Field(
        description="The straight line to each deadline, from the job's first step or where it was when the deadline was "
        "changed, as long as that was in force."
    )
    phases: list[PhaseTimes] = Field(description="As far as the job tells of them; the last, if there are many.")


class JobProgram(AnswerBody):
    """What a job runs. Secrets are left out as far as they can be told."""

    arguments: list[str] = Field(description="The command line, without what looks like a secret.")
    folder: str | None = Field(description="Where it runs; null: where its host does.")
    variables: dict[str, str] = Field(description="What its host sets for it.")
    handed_on: list[str] = Field(
        description="Names of the other variables that it gets, until it has ended: any of them may hold a secret."
    )


class PolicyEntry(AnswerBody):
    """A policy that can be chosen."""

    name: str
    summary: str
    active: bool
    parameters: dict[str, str] = Field(description="Names of its parameters, and their defaults as they are written.")


class PolicyList(AnswerBody):
    """The policies there are."""

    policies: list[PolicyEntry]


class PolicyStanding(AnswerBody):
    """The policy that shares out what there is."""

    name: str
    parameters: dict[str, Any] = Field(description="What it is made with, beside its defaults.")
    before: str | None = Field(None, description="The one that it takes the place of, where it was changed just now.")


class WhatIfRequest(RequestBody):
    """Another policy for the jobs that there are."""

    policy: PolicyRequest


class WhatIfOutcome(AnswerBody):
    """What becomes of a job in the simulation."""

    state: JobState
    verdict: Verdict | None
    landed: datetime | None
    cause: str = Field(description="Why it would end without having landed; empty: it would not.")
    unknown: str = Field(description="Why nothing is said of its end; empty: it has ended.")


class WhatIfJob(AnswerBody):
    """A job that has not ended, under both policies."""

    job: str
    deadline: datetime | None
    today: WhatIfOutcome = Field(description="Under the policy that there is.")
    other: WhatIfOutcome


class WhatIfAnswer(AnswerBody):
    """What would become of all jobs that have not ended, if no other came; asking has changed nothing."""

    since: datetime = Field(description="From when on it was simulated.")
    policy: str = Field(description="The policy that there is.")
    other: str
    jobs: list[WhatIfJob] = Field(description="In order of submission.")


class Health(AnswerBody):
    """That the service answers."""

    status: Literal["ok", "leaving"]
    version: str
    host: str = Field(description="Name of the run that holds the jobs.")
    caller: str = Field(description="Name of the token; empty: the service's own user.")
    role: str
    takes_jobs: bool = Field(description="Whether jobs can be submitted: not to the page of a single run.")


class FaultText(AnswerBody):
    """What is wrong, in four parts."""

    must: str
    got: str
    where: str
    remedy: str
    field: str | None = Field(None, description="Where in the request it is, as a JSON pointer: `/deadline`.")


class Problem(AnswerBody):
    """Why a request was not done, as RFC 9457 has it; a user's mistake in four parts."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str
    must: str | None = None
    got: str | None = None
    where: str | None = None
    remedy: str | None = None
    field: str | None = None
    others: list[FaultText] = Field(default_factory=list, description="What else is wrong with the request.")
