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

    @classmethod
    def given(cls, values: Mapping[str, Any]) -> Self:
        """Take values that are of the right kinds, as a command line or a file gives them; None: not given.

        They are not validated as a request is: what is wrong with them is told by those that use them, in a user's words.
        """
        return cls.model_construct(**{name: value for name, value in values.items() if value is not None})


class JobOptions(RequestBody):
    """A job to submit: the options of `punctual run`, written as there; what is said of each is its help, too."""

    program: Annotated[list[Text], Field(min_length=1, max_length=4096)] = Field(
        description="The program and its arguments; no shell reads them.", examples=[["python", "train.py"]]
    )
    deadline: ShortText | None = Field(
        default=None,
        description="A duration from now on (`90s`, `1h30m`), or a time (`18:00`, `18:00 tomorrow`, `2026-12-01T18:00:00+01:00`).",
    )
    cores: ShortText | None = Field(
        default=None, description="Least and most cores, `0.1..2`, or the most alone, `2`. [default: all usable]"
    )
    memory: ShortText | None = Field(
        default=None,
        description="Memory that it needs, `4GiB`, with workers for each of them: it starts when that much is free, and may use no more. "
        "`4G..16G`: after running out it is started again with twice as much, up to 16G.",
    )
    workers: ShortText | None = Field(
        default=None, description="Least and most workers of a program that uses `punctual.elastic`, `1..4`."
    )
    gpus: ShortText | None = Field(
        default=None, description="Least and most workers with a GPU each; or the part of one GPU to use, `0.5`."
    )
    cores_per_worker: ShortText | None = Field(
        default=None, description="Cores of one worker. [default: an equal part of all usable]"
    )
    servers: ShortText | None = Field(
        default=None, description="Parameter servers beside the workers: as many as workers, within such a range."
    )
    controller: ShortText | None = None
    margin: ShortText | None = Field(
        default=None, description="Share of the deadline to be early by, `0.1%`. [default: the controller's own rule]"
    )
    progress_regex: Annotated[str, Field(max_length=PATTERN_LENGTH_MAX)] | None = None
    until: ShortText | None = Field(
        default=None,
        description="End the training at this loss, `loss<0.1`, told by `run.report_loss` or elastic steps.",
    )
    steps: Annotated[int, Field(ge=1, le=2**53)] | None = None
    checkpoint_dir: Folder | None = Field(
        default=None,
        description="Folder of checkpoints for a program that uses `punctual.elastic`; it resumes from the newest.",
    )
    retries: Annotated[int, Field(ge=0, le=1_000_000)] | None = Field(
        default=None,
        description="How often in a row to start it again, from its checkpoint, after a failure. [default: 3 with a folder of checkpoints, else 0]",
    )
    weight: Weight = Field(default=1.0, description="Weight against other jobs that share the machine, above 0.")
    preemptible: bool | None = Field(
        default=None,
        description="Whether the job may be paused for others, if the policy pauses jobs. [default: if it uses no GPU]",
    )
    budget_usd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None,
        description="Dollars that it may cost on machines of pools. Once they are spent it saves and waits; `punctual set --budget` gives more.",
    )
    after: Annotated[list[ShortText], Field(max_length=256)] = Field(
        default_factory=list, description="Start it when this job of the same host has finished; there may be several."
    )
    guarantee: bool = Field(
        default=False, description="Run only if the deadline is promised; else the refusal names one that could be."
    )
    work: ShortText | None = Field(
        default=None, description="Core time of the whole job, `30m`, if known: so that it need not be measured first."
    )
    like: ShortText | None = Field(
        default=None, description="Expect the core time and the memory of this finished job."
    )
    at_deadline: ShortText | None = Field(
        default=None,
        description="Train on after the deadline (`train-on`), or save and end by then (`stop`). [default: train-on]",
    )
    on_stall: ShortText | None = Field(
        default=None, description="Action if no step comes any more: `tell`, `stop` or `retry`. [default: tell]"
    )
    stop_grace: ShortText | None = Field(
        default=None,
        description="Time to save, once the job was asked to stop, before it is killed. "
        "[default: 60s; in Slurm what is left of the allocation]",
    )
    name: ShortText | None = Field(
        default=None, description="Name of the job. [default: the script's, and four characters]"
    )
    cwd: Folder | None = Field(
        default=None, description="Folder of the program; null: the home folder of the service's user."
    )
    env: Annotated[dict[VariableName, Text], Field(max_length=4096)] = Field(
        default_factory=dict,
        description="Variables of the program. It gets none of the service's but the usual few.",
        repr=False,
    )
    secret_env: Annotated[list[VariableName], Field(max_length=256)] = Field(
        default_factory=list,
        description="Leave the value of this variable out of records; the program gets it. There may be several.",
    )

    @classmethod
    def given(cls, values: Mapping[str, Any]) -> Self:
        """Take values as for any request; a command may be given no program."""
        told = super().given(values)
        told.program = list(values.get("program") or ())
        return told
