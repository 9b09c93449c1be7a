"""The options of a job: one type for the command line, files of jobs, HTTP and Python."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field
from pydantic.alias_generators import to_camel

from punctual.core.job import WEIGHT_MAX
from punctual.core.program import PATTERN_LENGTH_MAX


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not hold a NUL character")
    return text


def _variable(name: str) -> str:
    if not re.fullmatch(r"[^=\0]+", name):
        raise ValueError("must be the name of a variable, without '=' and NUL")
    return name


def _absolute(path: str) -> str:
    if not Path(path).is_absolute():
        raise ValueError("must be an absolute path")
    return path


# The longest that the kernel takes as one argument or variable.
Text = Annotated[str, Field(max_length=131_072), AfterValidator(_without_nul)]
Sentence = Annotated[str, Field(max_length=256), AfterValidator(_without_nul)]
ShortText = Annotated[str, Field(max_length=64), AfterValidator(_without_nul)]
VariableName = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_variable)]
Weight = Annotated[float, Field(gt=0, le=WEIGHT_MAX)]
Folder = Annotated[str, Field(max_length=4096), AfterValidator(_without_nul), AfterValidator(_absolute)]


class RequestBody(BaseModel):
    """Body of a request; an unknown name is refused."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True, extra="forbid")


class JobOptions(RequestBody):
    """A job to submit: the options of `punctual run`, written as there."""

    program: Annotated[list[Text], Field(min_length=1, max_length=4096)] = Field(
        description="The program and its arguments; no shell reads them.", examples=[["python", "train.py"]]
    )
    deadline: ShortText | None = Field(
        default=None,
        description="A duration (`90s`, `1h30m`) or a time (`18:00`, `18:00 tomorrow`, `2026-12-01T18:00:00+01:00`).",
    )
    cores: ShortText | None = Field(default=None, description="Least and most cores, `0.1..2`, or the most alone.")
    memory: ShortText | None = Field(
        default=None,
        description="Memory that it needs and may use, `4GiB`, for each worker if it has some; with `4G..16G` it is started again with more when it runs out.",
    )
    workers: ShortText | None = Field(default=None, description="Least and most workers, `1..4`.")
    gpus: ShortText | None = Field(
        default=None, description="Least and most workers with a GPU each; or the part of one GPU, `0.5`."
    )
    cores_per_worker: ShortText | None = None
    servers: ShortText | None = None
    controller: ShortText | None = None
    margin: ShortText | None = Field(default=None, description="Share of the deadline to be early by, `0.1%`.")
    progress_regex: Annotated[str, Field(max_length=PATTERN_LENGTH_MAX)] | None = None
    until: ShortText | None = Field(default=None, description="The loss to train to, `loss<0.1`.")
    steps: Annotated[int, Field(ge=1, le=2**53)] | None = None
    checkpoint_dir: Folder | None = None
    retries: Annotated[int, Field(ge=0, le=1_000_000)] | None = None
    weight: Weight = 1.0
    preemptible: bool | None = None
    budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Dollars that it may cost on machines of pools. Before more is spent the deadline gives way.",
    )
    after: Annotated[list[ShortText], Field(max_length=256)] = Field(
        default_factory=list, description="Names of jobs that must have finished before it is started."
    )
    guarantee: bool = Field(
        default=False, description="Run only with a promise; else the refusal names a deadline that has one."
    )
    work: ShortText | None = Field(default=None, description="Core time of the whole job, `30m`, if it is known.")
    like: ShortText | None = Field(
        default=None, description="Name of a job that has finished: `work` is what that took."
    )
    at_deadline: ShortText | None = Field(
        default=None, description="`train-on`, or `stop`: ask it to stop so that it is done at the deadline."
    )
    on_stall: ShortText | None = Field(
        default=None, description="Action if no step comes any more: `tell`, `stop` or `retry`."
    )
    stop_grace: ShortText | None = Field(default=None, description="Time to save once it was asked to stop, `60s`.")
    name: ShortText | None = Field(default=None, description="Name of the job; null: made from the program's.")
    cwd: Folder | None = Field(
        default=None, description="Folder of the program; null: the home folder of the service's user."
    )
    env: Annotated[dict[VariableName, Text], Field(max_length=4096)] = Field(
        default_factory=dict,
        description="Variables of the program. It gets none of the service's but the usual few.",
        repr=False,
    )
    secret_env: Annotated[list[VariableName], Field(max_length=256)] = Field(
        default_factory=list, description="Names of variables whose values are left out of what is recorded."
    )

    @classmethod
    def given(cls, values: Mapping[str, Any]) -> Self:
        """Take values that are of the right kinds, as a command line or a file gives them; None: not given.

        They are not validated as a request is: what is wrong with them is told by `submission_of`, in a user's words.
        """
        told = {name: value for name, value in values.items() if value is not None}
        return cls.model_construct(**{"program": [], **told})
