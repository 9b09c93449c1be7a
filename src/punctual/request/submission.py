"""Check a user's request for a job and convert it to specifications for kernel and executor."""

import json
import re
import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from punctual import registry
from punctual.channel import CHECKPOINT_VARIABLE, GOAL_VARIABLE, SERVERS_VARIABLE, WORKERS_VARIABLE
from punctual.core.errors import InvalidSpec, OptionChecks, did_you_mean
from punctual.core.ids import JobId
from punctual.core.job import WEIGHT_MAX, EndRules, JobSpec
from punctual.core.loss import LossGoal
from punctual.core.program import PATTERN_LENGTH_MAX, Program
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.core.units import format_bytes
from punctual.progress_text.own import AUTO, Groups
from punctual.request.redaction import redacted

DEFAULT_CONTROLLER = "remaining-cost"
#: Default floor of a job, in cores: with less it makes no visible progress.
FLOOR_CORES = 0.05
#: Least cores that can be enforced: the kernel takes no shorter quota.
LEAST_CORES = 0.01
#: The same for a job made of workers, and what learns how fast it is with how many.
DEFAULT_WORKER_CONTROLLER = "two-level"
WORKER_MODEL, SERVER_MODEL = "all-reduce", "parameter-server"

#: Cores of a parameter server, as a share of a worker's: it works for a moment in each step. No number of servers holds
#: exactly as much as workers, so that an amount determines the number of each.
SERVER_FRAC = 0.1009

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerRange:
    """Range of a job's number of workers, and the resources of each.

    Attributes
    ----------
    cores_each
        Cores of each worker; None: an equal part of all.
    n_gpus_each
        0, or 1: each worker has a GPU of its own.
    servers
        Least and most parameter servers beside them; None: there are none.
    """

    n_least: int
    n_most: int
    cores_each: float | None = None
    n_gpus_each: int = 0
    servers: tuple[int, int] | None = None

    @property
    def option(self) -> str:
        """Name of the option of `punctual run` for such workers."""
        return "--gpus" if self.n_gpus_each else "--workers"

    @property
    def counts(self) -> tuple[int, ...]:
        return tuple(range(self.n_least, self.n_most + 1))


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A user's request for a job, and its deadline.

    Attributes
    ----------
    argv
        The program and its arguments.
    submitted_at
        Instant from which the deadline counts, on this machine's monotonic clock.
    deadline_s
        Seconds from `submitted_at`; None: no deadline.
    cwd
        Folder in which the program runs; None: that of this process.
    inherited
        Variables that the program gets beside those that Punctual sets. They may hold secrets, and are kept apart.
    secret_env
        Variables whose values are left out of the record of `argv`, beside values that look secret.
    floor_cores, ceiling_cores
        Range of cores; None: the least that makes progress, and all there are. Not for a job made of workers.
    gpu_frac
        The part of one GPU that the job uses, above 0 and below 1; 0: none. Not for a job made of workers.
    workers
        Workers that the job may have; None: it has no workers, and holds cores.
    controller
        Name of the controller; None: the default for such a job.
    n_steps
        Steps of the whole job; None: the program says how many.
    n_retries
        Restarts in a row after retryable failures; None: none without `checkpoint_dir`, else as the
        scheduler has it.
    weight
        Weight against other jobs, above zero.
    preemptible
        Whether the job may be paused for others; None: if it uses no GPU.
    after
        Names of jobs that must have finished before it is started.
    name
        Name of the job; None: made from the program's.
    guarantee
        Whether the job is to run only if its deadline is promised.
    work_core_s
        Core-seconds that the whole job takes, as far as known; None: not known.
    ends
        Conditions that end the job before its work is done.
    memory_bytes, memory_most_bytes
        Memory that it asks for, of each worker if it is made of workers, and the most with which it is started again when
        it has run out of less; None: it has not asked.
    expected_memory_bytes
        Memory that it is expected to hold if it has not asked; 0: not known.
    """

    argv: tuple[str, ...]
    submitted_at: float
    deadline_s: float | None = None
    cwd: Path | None = None
    inherited: Mapping[str, str] = field(default_factory=dict, repr=False)
    secret_env: tuple[str, ...] = ()
    floor_cores: float | None = None
    ceiling_cores: float | None = None
    gpu_frac: float = 0.0
    workers: WorkerRange | None = None
    controller: str | None = None
    margin_frac: float | None = None
    progress_pattern: str | None = None
    n_steps: int | None = None
    goal: LossGoal | None = None
    n_retries: int | None = None
    checkpoint_dir: Path | None = None
    weight: float = 1.0
    preemptible: bool | None = None
    after: tuple[str, ...] = ()
    name: str | None = None
    guarantee: bool = False
    work_core_s: float | None = None
    ends: EndRules = field(default_factory=EndRules)
    memory_bytes: int | None = None
    memory_most_bytes: int | None = None
    expected_memory_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job ready to be submitted: the journal's part, and the secret part.

    Attributes
    ----------
    inherited
        Variables of the user's shell.
    argv
        The command line, where secrets were left out of that of `program`; else None.
    has_chosen_name
        Whether its name is the user's; False: it was made up.
    by
        User who submits it; empty: the owner, at the terminal.
    """

    submitted_at: float
    spec: JobSpec
    program: Program
    inherited: Mapping[str, str] = field(repr=False)
    argv: tuple[str, ...] | None = field(default=None, repr=False)
    has_chosen_name: bool = True
    by: str = ""


def checked_submission(request: JobRequest, capacity: Resources, together: Resources | None = None) -> Submission:
    """Check `request` for hardware with `capacity`, the most that one node has, and return its submission.

    `together`: what all nodes have, which workers on cores may use; None: there is one node.

    Raises
    ------
    InvalidSpec
        The job can never run there, it names a plug-in that does not exist or cannot be loaded, its name cannot be a
        file's, or its progress pattern cannot be used.
    """
    checks = OptionChecks()
    job = checks.read("name", _checked_name, request.name, JobId(new_name(redacted(request.argv))))
    spec = checks.made(lambda: spec_of(request, job, capacity, together))
    if spec is None:  # what else is wrong, where it asks for too much
        with checks.of(None):
            smaller = replace(
                request, floor_cores=None, ceiling_cores=None, gpu_frac=0.0, workers=None, memory_bytes=None
            )
            spec_of(smaller, job, capacity, together)
    checks.read("controller", partial(registry.load, "controllers"), request.controller, None)
    checks.read("progress_regex", partial(_check_pattern, request), request.progress_pattern, None)
    checks.read("secret_env", partial(_check_secrets, request.inherited), request.secret_env, None)
    for option, words in (("program", request.argv), ("env", request.inherited.values()), ("cwd", [request.cwd])):
        with checks.of(option):
            _check_words(option, words)
    with checks.of("env"):
        _check_variables(request.inherited)
    checks.done()
    assert spec is not None
    check_plug_ins(spec)
    told = redacted(request.argv, [request.inherited.get(name, "") for name in request.secret_env])
    program = Program(
        argv=told,
        is_redacted=told != request.argv,
        cwd=None if request.cwd is None else str(request.cwd),
        environment=_environment(request),
        progress_pattern=request.progress_pattern,
    )
    return Submission(
        submitted_at=request.submitted_at,
        spec=spec,
        program=program,
        inherited=request.inherited,
        argv=request.argv if program.is_redacted else None,
        has_chosen_name=request.name is not None,
    )


def _checked_name(name: str) -> JobId:
    check_name(JobId(name))
    return JobId(name)


def check_name(job: JobId) -> None:
    """Raise `InvalidSpec` unless `job` can be the name of a file."""
    if not _NAME.fullmatch(job):
        raise InvalidSpec(
            "`name` must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit",
            repr(job),
            f"job '{job}'",
            "Choose another name (`--name`).",
            option="name",
        )


def check_checkpoint_dir(submission: Submission) -> None:
    """Raise `InvalidSpec` unless the folder for checkpoints exists, or can be made, and is writable."""
    folder = Path(submission.program.environment.get(CHECKPOINT_VARIABLE, ""))
    if not folder.name:
        return
    try:
        above = next(place for place in (folder, *folder.parents) if place.exists())
        with TemporaryDirectory(dir=above, prefix=".punctual-"):
            return
    except OSError as error:
        raise InvalidSpec(
            "`--checkpoint-dir` must be a folder that is there or can be made, and can be written to",
            f"'{folder}' ({error.strerror})",
            f"job '{submission.spec.id}'",
            "Name another folder.",
            option="checkpoint_dir",
        ) from error


def _check_words(option: str, words: Iterable[object]) -> None:
    """Raise `InvalidSpec` for a text that cannot be passed to a process."""
    if any("\0" in str(word) for word in words):
        raise InvalidSpec(
            f"`{option}` must hold no NUL character",
            "one that does",
            "the job",
            "Leave it out: no process can be given one.",
        )


def _check_variables(variables: Iterable[str]) -> None:
    """Raise `InvalidSpec` for a name that no variable can have."""
    for name in variables:
        if not name or "=" in name or "\0" in name:
            raise InvalidSpec(
                "the name of a variable must have no '=' and no NUL character, and some other",
                repr(name),
                "the job",
                'Write for example `env = { SEED = "1" }`.',
            )


def _check_secrets(variables: Mapping[str, str], names: Sequence[str]) -> None:
    """Raise `InvalidSpec` for a secret variable that is not set, so that its value is unknown."""
    for name in names:
        if not variables.get(name):
            raise InvalidSpec(
                "`--secret-env` must name a variable that is set", repr(name), "the environment of `punctual run`",
                "Set it first (`export NAME=...`); its value is what is left out, not its name.",
            )  # fmt: skip


def check_plug_ins(spec: JobSpec) -> None:
    """Raise `InvalidSpec` unless every plug-in that `spec` names exists and can be loaded."""
    named = {
        "controllers": spec.controller,
        "models": spec.model,
        "convergence": spec.convergence if spec.goal is not None else None,
    }
    for family, name in named.items():
        if name is not None:
            registry.load(family, name)


def check_policy(name: str, parameters: Mapping[str, Any]) -> None:
    """Raise `InvalidSpec` unless there is a policy of this name that can be made with `parameters`, which are plain."""
    policy, known = registry.load("policies", name), registry.parameters("policies", name)
    for parameter in parameters:
        if parameter not in known:
            raise InvalidSpec(
                "a policy's parameters must be its own",
                f"`{parameter}`",
                f"policy '{name}'",
                f"{did_you_mean(parameter, known)}Known: {', '.join(known) or 'none'}.",
                option="parameters",
            )
    try:
        json.dumps(parameters, allow_nan=False)
        policy(**parameters)
    except InvalidSpec as error:
        error.option = "parameters"
        raise
    except Exception as error:
        raise InvalidSpec(
            "a policy's parameters must be its own",
            f"{dict(parameters)} ({error})",
            f"policy '{name}'",
            "See its page in the documentation for what there is.",
            option="parameters",
        ) from error


def _check_pattern(request: JobRequest, pattern: str) -> None:
    """Raise `InvalidSpec` for a pattern that is too long, or cannot tell the total that a deadline needs."""
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidSpec(
            f"the progress pattern must have at most {PATTERN_LENGTH_MAX} characters",
            f"{len(pattern)}",
            "`--progress-regex`",
            "Leave out what need not match.",
        )
    if (
        pattern == AUTO
        or Groups.of(pattern).may_tell_total
        or request.n_steps is not None
        or request.deadline_s is None
    ):
        return
    raise InvalidSpec(
        "with a deadline, the number of all steps must be known",
        f"{pattern!r}, which has a group for the step and none for the total",
        "`--progress-regex`",
        "Give it (`--steps 3000`), or write a group for the total if the program prints it.",
    )


def new_name(argv: Sequence[str]) -> str:
    """Make a name of the script's and four characters more: `train-3f2a`."""
    words = [word for word in argv if not word.startswith("-")]
    scripts = [word for word in words if word.endswith((".py", ".sh"))]
    module = argv[argv.index("-m") + 1].rpartition(".")[2] if "-m" in argv[:-1] else None
    stem = module or Path((scripts or words or ["job"])[0]).stem
    cleaned = re.sub(r"[^A-Za-z0-9._-]+", "-", stem).strip("-._") or "job"
    return f"{cleaned[:40]}-{secrets.token_hex(2)}"


def worker_in(workers: WorkerRange, capacity: Resources, together: Resources | None = None) -> Resources:
    """Return the resources of one worker, on hardware whose nodes have `capacity`, and all of them `together`.

    Raises
    ------
    InvalidSpec
        The greatest number of workers does not fit.
    """
    if workers.n_gpus_each * workers.n_most > capacity.gpus:
        n_gpus = int(capacity.gpus)
        raise InvalidSpec(
            "`--gpus` must not ask for more than there are",
            f"{workers.n_most} GPUs",
            _node_with(f"{n_gpus}", together),
            f"Lower the number (`--gpus {n_gpus}`)." if n_gpus else "Train on cores: `--workers 1..4`.",
            option="gpus",
        )
    with_server = 1.0 + SERVER_FRAC * (workers.servers is not None)
    usable = _usable(workers, capacity, together)
    cores_each = workers.cores_each or max(
        FLOOR_CORES, min(capacity.cores, usable.cores / workers.n_most / with_server)
    )
    worker = Resources(cores_each, workers.n_gpus_each)
    if not (Resources(cores_each * with_server * workers.n_most).fits_in(usable) and worker.fits_in(capacity)):
        is_too_many = usable is not capacity and worker.fits_in(capacity)
        all_nodes = f"the nodes of this cluster, with {usable.cores:g} cores"
        raise InvalidSpec(
            "the most workers must fit in what there is",
            f"{workers.n_most} workers of {cores_each:g} cores",
            all_nodes if is_too_many else _node_with(f"{capacity.cores:g} cores", together),
            "Lower their number, or `--cores-per-worker`.",
            option=workers.option.strip("-"),
        )
    return worker


def _usable(workers: WorkerRange, capacity: Resources, together: Resources | None) -> Resources:
    """Return the resources that all workers of a job may hold together; see `worker_in`."""
    is_spread = workers.servers is None and not workers.n_gpus_each
    return together if together is not None and is_spread else capacity


def check_memory(memory_bytes: int, capacity: Resources, n_workers: int = 1, together: Resources | None = None) -> None:
    """Raise `InvalidSpec` if `n_workers` of `memory_bytes` each do not fit into `capacity`.

    `together`: as for `checked_submission`.
    """
    if memory_bytes * n_workers <= capacity.memory_bytes:
        return
    workers = f"{n_workers} workers of " if n_workers > 1 else ""
    raise InvalidSpec(
        "`--memory` must not exceed the memory of the machine",
        f"{workers}{format_bytes(memory_bytes)}",
        _node_with(format_bytes(capacity.memory_bytes), together),
        f"Lower it (`--memory {capacity.memory_bytes // n_workers >> 20}M`), or leave it out.",
        option="memory",
    )


def spec_of(request: JobRequest, job: JobId, capacity: Resources, together: Resources | None = None) -> JobSpec:
    """Return the job's specification; raises `InvalidSpec` if it can never run on hardware with `capacity`."""
    check_weight(request.weight)
    workers = request.workers
    own = (
        _share_of(request, capacity, together) if workers is None else _workers_of(request, workers, capacity, together)
    )
    if request.memory_bytes is not None:
        most_bytes = max(request.memory_bytes, request.memory_most_bytes or 0)
        check_memory(most_bytes, capacity, together=together)
        if workers is not None:
            check_memory(most_bytes, _usable(workers, capacity, together), workers.n_most, together)
    default = DEFAULT_CONTROLLER if workers is None else DEFAULT_WORKER_CONTROLLER
    spec = JobSpec(
        id=job,
        work_steps=request.n_steps,
        goal=request.goal,
        deadline_s=request.deadline_s,
        controller=request.controller or default,
        margin_frac=request.margin_frac,
        n_retries=_n_retries(request),
        weight=request.weight,
        after=tuple(map(JobId, request.after)),
        preemptible=_preemptible(request, own["ceiling"].gpus),
        guarantee=request.guarantee,
        ends=request.ends,
        memory_most_bytes=request.memory_most_bytes,
        expected_memory_bytes=request.expected_memory_bytes,
        **own,
    )
    return spec if request.memory_bytes is None else spec.with_memory(request.memory_bytes)


def _workers_of(
    request: JobRequest, workers: WorkerRange, capacity: Resources, together: Resources | None
) -> dict[str, Any]:
    """Return the fields of a specification that concern workers."""
    worker = worker_in(workers, capacity, together)
    server = None if workers.servers is None else Resources(SERVER_FRAC * worker.cores)
    return {
        "ceiling": (worker if server is None else worker + server) * workers.n_most,
        "floor": worker * workers.n_least,
        "worker": worker,
        "server": server,
        "counts": workers.counts,
        "model": WORKER_MODEL if server is None else SERVER_MODEL,
        "profile": _profile(request, worker),
    }


def _profile(request: JobRequest, worker: Resources) -> tuple[SeenRate, ...]:
    """Return the declared work as the speed of one worker; the model extends it to more.

    Raises
    ------
    InvalidSpec
        The work is declared, and not of how many steps it is.
    """
    if request.work_core_s is None:
        return ()
    if request.n_steps is None or not worker.cores:
        raise InvalidSpec(
            "`--work` of a job made of workers needs the number of its steps",
            "none" if worker.cores else "workers without cores",
            "the job",
            "Give it (`--steps 3000`).",
            option="steps",
        )
    rate_sps = request.n_steps * worker.cores / request.work_core_s
    return (SeenRate(shape=Shape(n_workers=1, cores=worker.cores), rate_sps=rate_sps),)


def _share_of(request: JobRequest, capacity: Resources, together: Resources | None) -> dict[str, Any]:
    """Return the fields of a specification that concern a share of cores."""
    ceiling_cores = capacity.cores if request.ceiling_cores is None else request.ceiling_cores
    if request.ceiling_cores is not None:
        check_ceiling(ceiling_cores, capacity, together)
    _check_gpu_frac(request.gpu_frac, capacity, together)
    floor_cores = min(FLOOR_CORES, ceiling_cores) if request.floor_cores is None else request.floor_cores
    return {
        "ceiling": Resources(ceiling_cores, request.gpu_frac),
        "floor": Resources(floor_cores, request.gpu_frac),
        "work_core_s": request.work_core_s,
    }


def _preemptible(request: JobRequest, gpus: float) -> bool:
    """Whether the job may be paused for others: as the user says, else if it has no GPU.

    A paused job keeps its memory, which costs others nothing, and its GPUs, unless it ends for the pause.

    Raises
    ------
    InvalidSpec
        The user wants it, and the paused job would keep its GPUs from others.
    """
    if request.preemptible and gpus and (request.workers is None or request.checkpoint_dir is None):
        raise InvalidSpec(
            "`--preemptible` with GPUs needs a job that leaves them while it is paused",
            "one that keeps them",
            "the job",
            "Train through `punctual.elastic`, and name a `--checkpoint-dir`; or leave `--preemptible` out.",
        )
    return not gpus if request.preemptible is None else request.preemptible


def _n_retries(request: JobRequest) -> int | None:
    """Number of retries: the scheduler's for a job with checkpoints, or one that is to begin anew; else none."""
    if request.n_retries is not None:
        return request.n_retries
    return 0 if request.checkpoint_dir is None and request.ends.on_stall != "retry" else None


def check_weight(weight: float) -> None:
    """Raise `InvalidSpec` for a weight that is too large or no number; `JobSpec` checks that it is above zero."""
    if not weight <= WEIGHT_MAX:
        raise InvalidSpec(
            f"`weight` must be a number of at most {WEIGHT_MAX:g}",
            str(weight),
            "the job",
            "Give a smaller weight: they count against each other.",
            option="weight",
        )


def _node_with(amount: str, together: Resources | None) -> str:
    """Describe the machine with the greatest amount; `together`: as for `checked_submission`."""
    if together is None:
        return f"this machine, of which this process may use {amount}"
    return f"the largest node of this cluster, which has {amount}"


def check_ceiling(ceiling_cores: float, capacity: Resources, together: Resources | None = None) -> None:
    """Raise `InvalidSpec` if the ceiling of a job on a share of cores is impossible; see `checked_submission`."""
    if not ceiling_cores <= capacity.cores:
        raise InvalidSpec(
            "`--cores` must not ask for more than there is",
            f"{ceiling_cores:g} cores",
            _node_with(f"{capacity.cores:g}", together),
            f"Lower the ceiling (`--cores {capacity.cores:g}`), or leave it out.",
            option="cores",
        )
    if ceiling_cores < LEAST_CORES:
        raise InvalidSpec(
            f"the most cores of a job must be at least {LEAST_CORES:g}",
            f"{ceiling_cores:g} cores",
            "the job",
            f"Give {LEAST_CORES:g} or more (`--cores {LEAST_CORES:g}`): a quota below is too short for the kernel.",
            option="cores",
        )


def _check_gpu_frac(gpu_frac: float, capacity: Resources, together: Resources | None) -> None:
    if gpu_frac > capacity.gpus:
        raise InvalidSpec(
            "a part of a GPU needs one",
            f"{gpu_frac:g} of a GPU",
            _node_with("none", together),
            "Train on cores: leave `--gpus` out.",
            option="gpus",
        )


def _environment(request: JobRequest) -> dict[str, str]:
    """Return the environment variables that Punctual sets."""
    chosen = {}
    if request.checkpoint_dir is not None:
        chosen[CHECKPOINT_VARIABLE] = str(request.checkpoint_dir.absolute())
    if request.goal is not None:
        chosen[GOAL_VARIABLE] = repr(request.goal.target)
    if request.workers is not None:
        chosen[WORKERS_VARIABLE] = str(request.workers.n_most)
        if request.workers.servers is not None:
            chosen[SERVERS_VARIABLE] = "{}..{}".format(*request.workers.servers)
    return chosen
