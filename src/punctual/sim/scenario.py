"""A scenario as one value: jobs, hardware, the world's behaviour and the policies to compare.

A scenario is a TOML file, the options of `punctual simulate`, or the arguments of `punctual.simulate`: the same keys
everywhere (docs/reference/scenario.md).
"""

from collections.abc import Callable, Mapping, Sized
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_serializer,
    field_validator,
    model_validator,
)

from punctual.core.errors import InvalidSpec
from punctual.request import input_file
from punctual.request.cluster_file import (
    NodeGroup,
    PoolSection,
    checked_names,
    checked_size,
    cluster_in,
    cluster_text,
    parsed_cluster,
    with_trace_paths,
)
from punctual.request.jobs_file import tables_in, to_simulate
from punctual.request.pydantic_errors import first_complaint
from punctual.request.submission import EarlierRun
from punctual.sim import parts
from punctual.sim.choice import PlugInChoice, PolicyChoice, made, parameters_of
from punctual.sim.declared import DECLARED
from punctual.sim.physics import Physics
from punctual.sim.recording import RECORDED_POLICIES, Recording, is_journal
from punctual.sim.traces.limits import N_JOBS_MAX, UNPACKED_GIB_MAX
from punctual.sim.traces.synthetic import FAMILY

#: A list in TOML, a tuple here.
_A_LIST = Field(strict=False)

_GENERATOR = "generator:"
_TOML = ".toml"

#: More runs of each policy are a slip.
_N_SEEDS_MAX = 10_000

DEFAULT_GENERATOR = "poisson"
DEFAULT_N_JOBS = 200
DEFAULT_LOAD = 0.9


def _to_simulate(tables: tuple[dict[str, Any], ...]) -> tuple[dict[str, Any], ...]:
    return to_simulate(tables, _earlier_run)


def _earlier_run(name: str) -> EarlierRun:
    # Imported here: what has been run is read from this machine's journals, of which a simulation needs nothing else.
    from punctual.daemon.earlier_runs import run_like

    return run_like(name)


class TraceSection(BaseModel):
    """Source of the jobs.

    Attributes
    ----------
    file
        A trace; None: the jobs are generated.
    generator
        The generator to use without a file.
    jobs
        Most jobs to take, the earliest ones; None: all of a file, `DEFAULT_N_JOBS` of a generator that can make any
        number.
    load
        Work offered as a share of the cluster's capacity. A generator that has a load makes jobs for this one
        (expected; `DEFAULT_LOAD` if None); other arrivals are drawn together or apart until it is exactly this one
        (left as they are if None).
    start_s, end_s
        Jobs submitted earlier than `start_s`, or from `end_s` on, are left out; seconds since the first submission.
    messages
        Number of the last message of a live journal that is read; filled in.
    on_bad
        Treatment of an invalid row.
    unpacked_gib_max
        Limit of a compressed file's contents, in GiB.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    file: str | None = None
    generator: PlugInChoice | None = None
    jobs: Annotated[int, Field(ge=1, le=N_JOBS_MAX)] | None = None
    load: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    start_s: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    end_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    messages: Annotated[int, Field(ge=0)] | None = None
    on_bad: Literal["skip", "fail"] = "skip"
    unpacked_gib_max: Annotated[float, Field(gt=0, allow_inf_nan=False)] = UNPACKED_GIB_MAX

    @model_validator(mode="before")
    @classmethod
    def _read(cls, given: Any) -> Any:
        return trace_source(given) if isinstance(given, str) else given

    @model_validator(mode="after")
    def _one_source(self) -> Self:
        if self.file is not None and self.generator is not None:
            raise InvalidSpec(
                "a trace must come from a file or from a generator", "both", "`trace`",
                "Leave out `file` or `generator`.",
            )  # fmt: skip
        if self.messages is not None and self.load is not None:
            raise InvalidSpec(
                "the jobs of a live journal must be played at the times at which they were submitted",
                "another load",
                "`trace.load`",
                "Leave it out; `cluster` makes the machine larger or smaller.",
            )
        return self


class Scenario(BaseModel):
    """A study: every policy on the same jobs, once for each seed.

    Attributes
    ----------
    policies
        Compared with each other; the first is the one the others are measured against.
    seeds
        Each drives generated jobs, drawn deadlines and the world's chances; a number n stands for 0 to n-1.
    job
        Jobs as `punctual run --jobs` takes them; what only runs them is left out. Empty: they come from `trace`.
    trace, deadlines, scaling, cluster, pool, physics
        See the reference. With pools and nothing said there are no other machines.
    controller
        Registered name of who steers each job; None: jobs are looked at only when something happens.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    policies: Annotated[tuple[PolicyChoice, ...], _A_LIST, Field(min_length=1)]
    seeds: Annotated[tuple[Annotated[int, Field(ge=0)], ...], _A_LIST, Field(min_length=1)] = (0, 1, 2)
    job: Annotated[tuple[dict[str, Any], ...], _A_LIST, AfterValidator(_to_simulate)] = ()
    trace: Annotated[TraceSection, Field(validate_default=True)] = TraceSection()
    deadlines: PlugInChoice = PlugInChoice(name="keep")
    scaling: PlugInChoice = PlugInChoice(name="rigid")
    cluster: Annotated[
        tuple[NodeGroup, ...],
        _A_LIST,
        BeforeValidator(parsed_cluster),
        AfterValidator(checked_size),
    ] = (NodeGroup(n_nodes=4, gpus=8),)
    pool: Annotated[tuple[PoolSection, ...], _A_LIST, AfterValidator(checked_names)] = ()
    physics: dict[str, Any] = {}
    controller: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _take_files(cls, given: Any) -> Any:
        """Insert the jobs and nodes of other files."""
        if not isinstance(given, Mapping):
            return given
        keys = dict(given)
        file = _toml_file(keys.get("trace"))
        if file is not None:
            trace = keys["trace"] if isinstance(keys["trace"], Mapping) else {}
            others = {key: value for key, value in trace.items() if key != "file"}
            keys = {**keys, "trace": others, "job": tables_in(file)}
        keys |= cluster_keys(keys["cluster"]) if "cluster" in keys else {}
        if keys.get("pool"):
            keys.setdefault("cluster", ())
        return {"scaling": DECLARED, **keys} if keys.get("job") else _with_recording(keys)

    @field_validator("seeds", mode="before")
    @classmethod
    def _count_seeds(cls, given: Any) -> Any:
        is_count = isinstance(given, int) and not isinstance(given, bool)
        if is_count and given <= 0:
            raise InvalidSpec(
                "`seeds` must be how many seeds there are, or a list of them", str(given), "`seeds`", "Give 1 or more."
            )
        n_seeds = given if is_count else len(given) if isinstance(given, Sized) else 0
        if n_seeds > _N_SEEDS_MAX:
            raise InvalidSpec(f"there must be at most {_N_SEEDS_MAX:,} seeds", str(n_seeds), "`seeds`", "Give fewer.")
        return tuple(range(n_seeds)) if is_count else given

    @field_validator("seeds")
    @classmethod
    def _each_once(cls, given: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(given)) < len(given):
            raise InvalidSpec("`seeds` must have each once", str(list(given)), "`seeds`", "Leave out the second one.")
        return given

    @field_validator("trace")
    @classmethod
    def _default_trace(cls, given: TraceSection, info: ValidationInfo) -> TraceSection:
        """Fill in the default generator, so that the scenario states it."""
        if info.data.get("job"):
            if given.file is not None or given.generator is not None:
                raise InvalidSpec(
                    "jobs must be declared or come from a trace",
                    "both `job` and a trace",
                    "`trace`",
                    "Leave out the tables `[[job]]`, or `trace.file` and `trace.generator`.",
                )
            return given
        if given.file is not None:
            return given
        generator = given.generator or PlugInChoice(name=DEFAULT_GENERATOR)
        kind = parts.kind(FAMILY, generator.name)
        bound, known = generator.bound_to(kind, "trace.generator"), parameters_of(kind)
        for name, wanted in (("n_jobs", given.jobs), ("load", given.load)):
            if wanted is not None and bound.parameters.get(name, wanted) != wanted:
                raise InvalidSpec(
                    f"`trace.{name.removeprefix('n_')}` and the generator's `{name}` must not contradict each other",
                    f"{wanted:g} and {bound.parameters[name]:g}",
                    "`trace`",
                    "Leave one of them out.",
                )
        # A parameter that is given stands; what the generator does not have is not its to choose.
        jobs = DEFAULT_N_JOBS if "n_jobs" in known and "n_jobs" not in bound.parameters else None
        load = DEFAULT_LOAD if "load" in known and "load" not in bound.parameters else None
        return given.model_copy(update={"generator": bound, "jobs": given.jobs or jobs, "load": given.load or load})

    @field_validator("policies")
    @classmethod
    def _known_policies(cls, given: tuple[PolicyChoice, ...]) -> tuple[PolicyChoice, ...]:
        bound = tuple(
            choice.bound_to(parts.kind("policies", choice.name), f"policies.{choice.name}") for choice in given
        )
        names = [choice.shown for choice in bound]
        for name in names:
            if names.count(name) > 1:
                raise InvalidSpec(
                    "policies must have different labels", f"'{name}' twice", "`policies`", "Give one a `label`."
                )
        return bound

    @field_validator("deadlines", "scaling")
    @classmethod
    def _known_rule(cls, given: PlugInChoice, info: ValidationInfo) -> PlugInChoice:
        family = str(info.field_name)
        return given.bound_to(parts.kind(family, given.name), family)

    @field_validator("physics")
    @classmethod
    def _known_physics(cls, given: dict[str, Any]) -> dict[str, Any]:
        made(Physics, given, "physics")
        return given

    @field_validator("controller")
    @classmethod
    def _known_controller(cls, given: str | None) -> str | None:
        if given is not None:
            parts.kind("controllers", given)
        return given

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if not self.cluster and not self.pool:
            raise InvalidSpec(
                "a cluster must have machines", "none", "`cluster`", "Write groups of nodes, or tables `[[pool]]`."
            )
        if not self.pool and any("budget_usd" in job for job in self.job):
            raise InvalidSpec(
                "jobs with a budget must run on machines of pools, which have prices",
                "machines without a price",
                "`budget_usd`",
                "Write tables `[[pool]]`, or leave the budget out.",
            )
        recorded = next((policy.name for policy in self.policies if policy.name in RECORDED_POLICIES), None)
        if recorded is not None and self.trace.messages is None:
            raise InvalidSpec(
                f"the policy `{recorded}` must go with a live journal as trace",
                "another trace",
                "`policies`",
                "Leave it out, or name the `journal.db` of a run.",
            )
        if bool(self.job) != (self.scaling.name == DECLARED):
            raise InvalidSpec(
                f"the rule of scaling `{DECLARED}` must go with tables `[[job]]`, and they with it",
                f"`{self.scaling.name}`",
                "`scaling`",
                "Leave `scaling` out.",
            )
        return self

    @property
    def machines(self) -> tuple[NodeGroup, ...]:
        """All machines that there may be: the nodes, and the most of each pool."""
        return (*self.cluster, *(pool.group() for pool in self.pool))

    @field_serializer("cluster")
    def _write_cluster(self, groups: tuple[NodeGroup, ...]) -> Any:
        return cluster_text(groups) or [group.model_dump(exclude_defaults=True) for group in groups]

    @classmethod
    def of(cls, keys: Mapping[str, Any], where: str = "the scenario") -> "Scenario":
        """The scenario with these keys.

        Raises
        ------
        InvalidSpec
            A key is unknown, missing, or its value cannot be used; the error names its path.
        """
        try:
            return cls.model_validate(dict(keys))
        except ValidationError as error:
            raise first_complaint(error, known=_known_keys(error), within=where) from None

    @classmethod
    def read(cls, path: Path) -> "Scenario":
        """Read the scenario in a TOML file; the path of its trace is relative to it.

        Raises
        ------
        InvalidSpec
            The file cannot be read, is no TOML, or holds no scenario.
        """
        return cls.of(keys_in(path), f"'{path}'")

    def keys(self) -> dict[str, Any]:
        """Return the scenario as plain keys and values, in a fixed order; `of` makes it again."""
        return self.model_dump(mode="json", exclude_none=True)

    def toml(self) -> str:
        """The scenario as a file."""
        return toml_of(self.keys())


def cluster_keys(cluster: Any) -> dict[str, Any]:
    """Return the nodes and pools that `cluster` describes, which may be the name of a file."""
    if not str(cluster).endswith(_TOML):
        return {"cluster": cluster}
    path = Path(cluster)
    keys = input_file.keys_in(path)
    if "pool" not in keys:
        return {"cluster": cluster_in(path)}
    pools = with_trace_paths(keys["pool"], lambda text: str(path.parent / text))
    return {"cluster": keys.get("cluster", ()), "pool": pools}


def toml_of(keys: Mapping[str, Any]) -> str:
    """Return keys and values as TOML, without keys whose value is None."""
    # From the extra `sim`: a scenario can be read without it.
    import tomli_w

    return tomli_w.dumps(_without_none(keys))


def _without_none(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _without_none(inner) for key, inner in value.items() if inner is not None}
    return [_without_none(inner) for inner in value] if isinstance(value, list | tuple) else value


def trace_source(text: str) -> dict[str, str]:
    """Return the trace section's key for `generator:NAME` or for the name of a file."""
    return {"generator": text.removeprefix(_GENERATOR)} if text.startswith(_GENERATOR) else {"file": text}


def table_of(text: str) -> dict[str, Any]:
    """Return the table of ``uniform:1.2,4``; raise `InvalidSpec` if the text is invalid."""
    try:
        return PlugInChoice.model_validate(text).keys()
    except ValidationError as error:
        raise first_complaint(error) from None


def keys_in(path: Path) -> dict[str, Any]:
    """The keys of a scenario file, as they stand there but for paths, which are relative to it.

    Raises
    ------
    InvalidSpec
        The file cannot be read, is no TOML, or has keys of something else.
    """
    return with_paths(input_file.keys_in(path), lambda text: str(path.parent / text))


def with_paths(keys: Mapping[str, Any], moved: Callable[[str], str]) -> dict[str, Any]:
    """`keys` with each path in them `moved`: the trace, the cluster, and the tables of the rule of scaling.

    The provider of machines is left out: a simulation is its own.
    """
    trace, scaling, cluster = keys.get("trace"), keys.get("scaling"), keys.get("cluster")
    if isinstance(trace, str) and not trace.startswith(_GENERATOR):
        trace = {"file": trace}
    if isinstance(scaling, str) and "tables=" in scaling:
        scaling = table_of(scaling)
    places = {"trace": (trace, "file"), "scaling": (scaling, "tables")}
    chosen: dict[str, Any] = {
        name: {**section, key: moved(section[key])}
        for name, (section, key) in places.items()
        if isinstance(section, Mapping) and isinstance(section.get(key), str)
    }
    if isinstance(cluster, str) and cluster.endswith(_TOML):
        chosen["cluster"] = moved(cluster)
    if "pool" in keys:
        chosen["pool"] = with_trace_paths(keys["pool"], moved)
    return {**{key: value for key, value in keys.items() if key != "machines"}, **chosen}


def has_declared_jobs(keys: Mapping[str, Any]) -> bool:
    """Whether the jobs of a scenario with these keys come from tables `[[job]]`, its own or a file's."""
    return bool(keys.get("job")) or _toml_file(keys.get("trace")) is not None


def _with_recording(keys: Mapping[str, Any]) -> dict[str, Any]:
    """Complete the keys of a scenario whose trace is a live journal."""
    trace, policies = keys.get("trace"), keys.get("policies") or ()
    section = dict(trace) if isinstance(trace, Mapping) else {"file": trace}
    file, until = section.get("file"), section.get("messages")
    start_s, end_s = section.get("start_s") or 0.0, section.get("end_s") or inf
    if not isinstance(file, str) or not isinstance(policies, list | tuple) or not is_journal(Path(file)):
        return dict(keys)
    for key, number in (("start_s", start_s), ("end_s", end_s), ("messages", until or 0)):
        if not isinstance(number, int | float):
            raise InvalidSpec(
                f"`{key}` must be a number", f"{number!r}", f"`trace.{key}`", "Correct it, or leave it out."
            )
    recording = Recording.of(Path(file), until, start_s, end_s)
    section["messages"] = recording.until
    return {**recording.keys(), **keys, "policies": recording.policies(policies), "trace": section}


def _toml_file(trace: Any) -> Path | None:
    """Return the file of jobs that a trace names; None if it names another kind, or none."""
    file = trace.get("file") if isinstance(trace, Mapping) else trace
    return Path(file) if isinstance(file, str) and file.endswith(_TOML) and not file.startswith(_GENERATOR) else None


def _known_keys(error: ValidationError) -> list[str]:
    """The keys at the place of the first complaint."""
    location = error.errors(include_url=False)[0]["loc"]
    sections: dict[Any, type[BaseModel]] = {"trace": TraceSection, "cluster": NodeGroup, "pool": PoolSection}
    kind = sections.get(location[0], Scenario) if len(location) > 1 else Scenario
    return list(kind.model_fields)
