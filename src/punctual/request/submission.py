"""Check a user's request for a job, convert it to specifications for kernel and executor, and encode it for another process."""

import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Protocol, get_args, get_type_hints

from punctual import registry
from punctual.channel import CHECKPOINT_VARIABLE, GOAL_VARIABLE, SERVERS_VARIABLE, WORKERS_VARIABLE
from punctual.core.codec import decode, encode
from punctual.core.errors import InvalidSpec, OptionChecks, did_you_mean
from punctual.core.events import JobSubmitted
from punctual.core.ids import JobId
from punctual.core.job import WEIGHT_MAX, EndRules, JobSpec
from punctual.core.pools import PoolSpec
from punctual.core.program import PATTERN_LENGTH_MAX, Program
from punctual.core.resources import LEAST_CORES, Resources
from punctual.core.speed import SeenRate, Shape
from punctual.core.units import format_bytes, span
from punctual.request.deadlines import Now, deadline_s
from punctual.request.quantities import (
    WorkerRange,
    parse_bytes_range,
    parse_cores,
    parse_cores_range,
    parse_duration_s,
    parse_gpu_frac,
    parse_loss_goal,
    parse_share,
    worker_range,
)
from punctual.request.redaction import redacted
from punctual.request.written_time import After, parse_when

if TYPE_CHECKING:  # most commands have no options of a job, and no use for pydantic
    from punctual.request.job_options import JobOptions

DEFAULT_CONTROLLER = "remaining-cost"
#: Default floor of a job, in cores: with less it makes no visible progress.
FLOOR_CORES = 0.05
#: The same for a job made of workers, and what learns how fast it is with how many.
DEFAULT_WORKER_CONTROLLER = "two-level"
WORKER_MODEL, SERVER_MODEL = "all-reduce", "parameter-server"

#: Cores of a parameter server, as a share of a worker's: it works for a moment in each step. No number of servers holds
#: exactly as much as workers, so that an amount determines the number of each.
SERVER_FRAC = 0.1009

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


class EarlierRun(Protocol):
    """A job that has finished."""

    @property
    def used_core_s(self) -> float:
        """Core-seconds until it landed, those of processes that failed before included."""
        ...

    @property
    def peak_memory_bytes(self) -> int:
        """Most memory that it held."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job ready to be submitted: the journal's part, and the secret part.

    Attributes
    ----------
    inherited
        Variables of the user's shell.
    argv
        The whole command line, if secrets were left out of that of `program`; else None.
    has_chosen_name
        Whether its name is the user's; False: it was made up.
    name
        Name that the user gave it, if an earlier job has that name as its id; empty: its id is its name.
    by
        User who submits it; empty: the owner, at the terminal.
    request_key, request_digest
        As `punctual.journal.job_records.NewJob` has them.
    """

    submitted_at: float
    spec: JobSpec
    program: Program
    inherited: Mapping[str, str] = field(repr=False)
    argv: tuple[str, ...] | None = field(default=None, repr=False)
    has_chosen_name: bool = True
    name: str = ""
    by: str = ""
    request_key: str | None = None
    request_digest: str | None = None


def submission_of(
    options: "JobOptions",
    started_at: float,
    capacity: Resources,
    together: Resources | None = None,
    earlier_run: Callable[[str], EarlierRun] | None = None,
    inherited: Mapping[str, str] | None = None,
) -> Submission:
    """Return the job that `options` ask for, on hardware with `capacity`, the most that one node has.

    Parameters
    ----------
    started_at
        Instant from which the deadline counts, monotonic seconds.
    together
        What all nodes have, which workers on cores may use; None: there is one node.
    earlier_run
        Finds the job that `like` names; a caller that may meet one hands it in.
    inherited
        Variables that the program gets beside `env`; None: those of this process.

    Raises
    ------
    InvalidSpec
        It can never run there, an option cannot be read, two exclude each other, or a plug-in cannot be loaded.
    """
    checks = OptionChecks()
    read_deadline = partial(deadline_s, started_at=started_at, now=Now.read())
    job = checks.read("name", _checked_name, options.name, JobId(new_name(redacted(options.program))))
    cwd = checks.made(partial(_checked_cwd, options.cwd), "cwd")
    variables = {**(os.environ if inherited is None else inherited), **options.env}
    with checks.of("program"):
        _check_program(options.program, cwd, variables.get("PATH"))
    workers = _workers(options, checks)
    spec = _spec(options, job, workers, checks, read_deadline, capacity, together, earlier_run)
    checks.read("controller", partial(registry.load, "controllers"), options.controller, None)
    checks.read("progress_regex", partial(_check_pattern, options), options.progress_regex, None)
    checks.read("checkpoint_dir", _check_named, options.checkpoint_dir, None)
    checks.read("secret_env", partial(_check_secrets, variables), options.secret_env, None)
    for option, words in (("program", options.program), ("env", variables.values()), ("cwd", [cwd])):
        with checks.of(option):
            _check_words(option, words)
    with checks.of("env"):
        _check_variables(variables)
    checks.done()
    assert spec is not None
    check_plug_ins(spec)
    argv = tuple(options.program)
    told = redacted(argv, [variables.get(name, "") for name in options.secret_env])
    program = Program(
        argv=told,
        is_redacted=told != argv,
        cwd=None if cwd is None else str(cwd),
        environment=_environment(options, spec, workers, cwd),
        progress_pattern=options.progress_regex,
    )
    return Submission(
        submitted_at=started_at,
        spec=spec,
        program=program,
        inherited=variables,
        argv=argv if program.is_redacted else None,
        has_chosen_name=options.name is not None,
    )


def simulated_spec(options: "JobOptions", i_job: int, capacity: Resources, together: Resources | None) -> JobSpec:
    """Return what is declared of the job number `i_job` of several that are simulated on nodes with `capacity`.

    `together`: as for `submission_of`.

    Raises
    ------
    InvalidSpec
        It can never run there, does not say what it costs, or an option cannot be read.
    """
    checks = OptionChecks()
    with checks.of("work"):
        _check_cost_is_known(options)
    options = options.model_copy(update={"progress_regex": None, "until": None})
    job, workers = JobId(options.name or f"job-{i_job}"), _workers(options, checks)
    spec = _spec(options, job, workers, checks, _simulated_deadline_s, capacity, together)
    checks.done()
    assert spec is not None
    return spec


def _workers(options: "JobOptions", checks: OptionChecks) -> WorkerRange | None:
    cores_each = checks.read("cores_per_worker", parse_cores, options.cores_per_worker, None)
    return checks.made(lambda: worker_range(options.workers, options.gpus, cores_each, options.servers), "workers")


def _spec(
    options: "JobOptions",
    job: JobId,
    workers: WorkerRange | None,
    checks: OptionChecks,
    read_deadline: Callable[[str], float],
    capacity: Resources,
    together: Resources | None = None,
    earlier_run: Callable[[str], EarlierRun] | None = None,
) -> JobSpec | None:
    """Return what is declared of the job; `checks` gets what is wrong with it."""
    # An option may be given as an empty text, from a variable that is not set: that is a slip, and not its default.
    anything: tuple[float | None, float | None] = (None, None)
    nothing: tuple[int | None, int | None] = (None, None)
    floor_cores, ceiling_cores = checks.read("cores", parse_cores_range, options.cores, anything)
    asked_bytes, most_bytes = checks.read("memory", parse_bytes_range, options.memory, nothing)
    work_core_s = checks.read("work", parse_duration_s, options.work, None)
    earlier = None
    if options.like is not None:
        assert earlier_run is not None, "who may meet `like` hands in what finds the job"
        earlier = checks.read("like", earlier_run, options.like, None)
        work_core_s = work_core_s if earlier is None else earlier.used_core_s
    declared: dict[str, Any] = {
        "margin_frac": checks.read("margin", parse_share, options.margin, None),
        "deadline_s": checks.read("deadline", read_deadline, options.deadline, None),
        "work_steps": checks.read("steps", _checked_steps, options.steps, None),
        "goal": checks.read("until", parse_loss_goal, options.until, None),
        "ends": EndRules(
            at_deadline=checks.read("at_deadline", partial(_choice, "at_deadline"), options.at_deadline, "train-on"),
            on_stall=checks.read("on_stall", partial(_choice, "on_stall"), options.on_stall, "tell"),
            grace_s=checks.read("stop_grace", parse_duration_s, options.stop_grace, None),
        ),
    }
    with checks.of(None):
        _check_fit_together(options, workers)
    held: dict[str, Any] = {"ceiling": Resources(capacity.cores)}  # what else is wrong, where it asks for too much
    with checks.of(None):
        if workers is None:
            held = _share_of(floor_cores, ceiling_cores, parse_gpu_frac(options.gpus or ""), capacity, together)
            held["work_core_s"] = work_core_s
        else:
            held = _held_by(workers, capacity, together)
            held["profile"] = _profile(work_core_s, declared["work_steps"], held["worker"])
    with checks.of("weight"):
        check_weight(options.weight)
    with checks.of("memory"):
        if asked_bytes is not None and most_bytes is not None:
            check_memory(most_bytes, capacity, together=together)
            if workers is not None:
                check_memory(most_bytes, _usable(workers, capacity, together), workers.n_most, together)

    def spec() -> JobSpec:
        made = JobSpec(
            id=job,
            controller=options.controller or (DEFAULT_CONTROLLER if workers is None else DEFAULT_WORKER_CONTROLLER),
            n_retries=_n_retries(options),
            weight=options.weight,
            after=tuple(map(JobId, options.after)),
            preemptible=_preemptible(options, workers, held["ceiling"].gpus),
            guarantee=options.guarantee,
            budget_usd=options.budget_usd,
            memory_most_bytes=most_bytes,
            expected_memory_bytes=0 if earlier is None else earlier.peak_memory_bytes,
            **declared,
            **held,
        )
        return made if asked_bytes is None else made.with_memory(asked_bytes)

    return checks.made(spec)


def _check_cost_is_known(options: "JobOptions") -> None:
    if options.work is None and options.like is None:
        raise InvalidSpec(
            "a job that is simulated must say what it costs",
            "nothing",
            "the job",
            'Give the core time of the whole job (`work = "30m"`), or a job that has finished (`like = "NAME"`).',
        )


def _simulated_deadline_s(text: str) -> float:
    when = parse_when(text)
    if not isinstance(when, After):
        raise InvalidSpec(
            "the deadline of a job that is simulated must be a duration",
            repr(text),
            "the job",
            "Write how long after its submission it is due: `90m`.",
        )
    return when.seconds


def _check_fit_together(options: "JobOptions", workers: WorkerRange | None) -> None:
    """Raise `InvalidSpec` for options that exclude each other."""
    if options.until is not None and options.progress_regex is not None:
        raise InvalidSpec(
            "`--until` must not go with `--progress-regex`", "both", "`punctual run`",
            "Only a program that uses `punctual.track` or `punctual.elastic` tells its loss: leave out one of them.",
            option="until",
        )  # fmt: skip
    if workers is not None and options.cores is not None:
        raise InvalidSpec(
            f"`--cores` must not go with `{workers.option}`", repr(options.cores), "`punctual run`",
            "Say what one worker holds: `--cores-per-worker 0.5`.", option="cores",
        )  # fmt: skip
    if workers is not None and options.progress_regex is not None:
        raise InvalidSpec(
            f"`--progress-regex` must not go with `{workers.option}`", repr(options.progress_regex), "`punctual run`",
            "A program that uses `punctual.elastic` reports its progress by itself: leave it out.",
            option="progress_regex",
        )  # fmt: skip
    if options.work is not None and options.like is not None:
        must, remedy = "`--like` must not go with `--work`", "Leave one of them out."
        raise InvalidSpec(must, repr(options.like), "`punctual run`", remedy, option="like")
    if options.margin is not None and options.deadline is None:
        remedy = "Give a deadline (`--deadline 90m`), or leave `--margin` out."
        raise InvalidSpec("`--margin` needs a deadline", "none", "the job", remedy, option="margin")


def _checked_cwd(cwd: str | None) -> Path:
    """Return the folder of a job; None: the present one."""
    if cwd is not None and not os.path.isdir(cwd):  # noqa: PTH112 -- `Path.is_dir` raises for a name that is too long
        raise InvalidSpec("`cwd` must be a folder", f"'{cwd}', which is none", "the job", "Make the folder first.")
    try:
        return Path(cwd or "").absolute()
    except FileNotFoundError:
        must, remedy = "a job must have a folder to run in", "Change to a folder that is there (`cd`)."
        raise InvalidSpec(must, "one that was removed", "the present folder", remedy) from None


def _check_program(program: Sequence[str], cwd: Path | None, path: str | None) -> None:
    """Raise `InvalidSpec` unless the program's name is that of something to run."""
    if not program:
        raise InvalidSpec(
            "`program` must be given", "none", "the job", "Name it after `--`: `punctual run -- python train.py`."
        )
    name = program[0]
    if shutil.which(str(Path(cwd or "", name)) if "/" in name else name, path=path) is not None:
        return
    place = Path(cwd or "", name)
    if name.endswith(".py") and os.path.isfile(place):  # noqa: PTH113 -- as above
        got, remedy = f"the script '{name}'", f"Name its interpreter too: `-- python {name}`."
    elif os.path.isfile(place) and "/" in name:  # noqa: PTH113 -- as above
        got, remedy = (
            f"'{name}', which may not be executed",
            f"Make it executable (`chmod +x {name}`), if it is a program.",
        )
    elif len(program) == 1 and len(name.split()) > 1 and shutil.which(name.split()[0], path=path) is not None:
        got, remedy = (
            f"'{name}', a whole line in one word",
            f"Write it without quotes: `-- {name}`; for a shell, after `sh -c`.",
        )
    elif re.match(r"[A-Za-z_]\w*=", name):
        got, remedy = f"'{name}', which sets a variable", f"Name the program that does: `-- env {name} ...`."
    elif "--" in program[:-1] and shutil.which(program[program.index("--") + 1], path=path) is not None:
        got, remedy = (
            f"'{name}', which stands before `--`",
            "Put an option's text of several words in quotes: `--deadline '18:00 tomorrow' -- python train.py`.",
        )
    elif name in {"cd", "source", ".", "export", "set", "ulimit", "alias", "eval", "pushd"}:
        got, remedy = (
            f"'{name}', a command of the shell",
            f"Give all to a shell: `-- bash -c '{name} ... && python train.py'`.",
        )
    elif name.endswith(".ipynb"):
        got, remedy = (
            f"'{name}', a notebook",
            f"Name what runs it: `-- jupyter execute {name}`; or put `%%deadline 1h` into its cell.",
        )
    else:
        got, remedy = f"'{name}', which cannot be found or executed", "Check its name, and that it may be executed."
    raise InvalidSpec("the program must be one that can be run", got, "the command line", remedy)


#: Option of a job -> what it may be.
_CHOICES = {name: get_args(get_type_hints(EndRules)[name]) for name in ("at_deadline", "on_stall")}


def _choice(option: str, text: str) -> Any:
    """Return `text` if it is one of the words that the option takes."""
    words = _CHOICES[option]
    if text not in words:
        told = " or ".join(f"`{word}`" for word in words)
        raise InvalidSpec(f"`{option}` must be {told}", repr(text), "the job", f"Write {told}.")
    return text


def _checked_steps(steps: int) -> int:
    if steps < 1:
        raise InvalidSpec(
            "the number of steps must be above zero", f"{steps} steps", "`--steps`",
            "Give the steps of the whole job, or leave it out if the program says them.",
        )  # fmt: skip
    return steps


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


def written_options(spec: JobSpec, program: Program) -> dict[str, str]:
    """Return the options, as HTTP has them, that submit such a job again together with those of its standing."""
    counts, goal, checkpoints = spec.worker_counts(), spec.goal, program.environment.get(CHECKPOINT_VARIABLE, "")
    gpus = f"{counts[0]}..{counts[-1]}" if counts else f"{spec.ceiling.gpus:.15g}"
    has_default_retries = spec.n_retries is None or (not checkpoints and not spec.n_retries)
    sizes_bytes = sorted({each for each in (spec.asked_memory_bytes, spec.memory_most_bytes) if each})
    told = {
        "memory": "..".join(f"{each / 2**20:.15g}MiB" for each in sizes_bytes),
        "gpus": gpus if spec.ceiling.gpus else "",
        "steps": "" if spec.work_steps is None else f"{spec.work_steps:.15g}",
        "progressRegex": program.progress_pattern or "",
        "until": "" if goal is None or goal.target is None else f"loss<{goal.target!r}",
        "margin": "" if spec.margin_frac is None else f"{100 * spec.margin_frac:.15g}%",
        "budgetUsd": "" if spec.budget_usd is None else f"{spec.budget_usd:.15g}",
        "retries": "" if has_default_retries else str(spec.n_retries),
        "checkpointDir": checkpoints,
        "guarantee": "true" if spec.guarantee else "",
    }
    return {name: text for name, text in told.items() if text}


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


def _check_named(folder: str) -> None:
    """Raise `InvalidSpec` for an empty name, as an unset variable of the shell gives: it would mean the present folder."""
    if not folder.strip():
        raise InvalidSpec(
            "`checkpoint_dir` must name a folder",
            f"'{folder}'",
            "the job",
            "Name one (`.` is this one), or leave it out.",
        )


def _check_words(option: str, words: Iterable[object]) -> None:
    """Raise `InvalidSpec` for a text that cannot be passed to a process."""
    if any("\0" in str(word) for word in words):
        raise InvalidSpec(
            f"`{option}` must hold no NUL character",
            "one that does",
            "the job",
            "Leave it out: no process can be given one.",
        )


def check_budget(spec: JobSpec, pools: Iterable[PoolSpec], policy: str) -> None:
    """Raise `InvalidSpec` for a budget where no machine of `pools` has a price, or `policy` does not heed it."""
    if spec.budget_usd is None:
        return
    if all(pool.market == "own" for pool in pools):
        raise InvalidSpec(
            "a job with a budget must run on machines of pools, which have prices",
            f"${spec.budget_usd:g}, and machines without a price",
            f"job '{spec.id}'",
            "Leave it out, or begin with a service on such machines: `punctual up --engine ray --cluster FILE.toml "
            "--policy least-cost`. `punctual quote --cluster FILE.toml` and `punctual simulate` heed it without one.",
            option="budget_usd",
        )
    if not hasattr(registry.load("policies", policy), "bought_deadline_at"):
        raise InvalidSpec(
            "a job with a budget must be planned by a policy that heeds budgets",
            f"policy '{policy}'",
            f"job '{spec.id}'",
            "Use another policy (`punctual policy least-cost`), or leave the budget out.",
            option="budget_usd",
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
    from punctual.request.parameters import checked_values  # needs pydantic, which is slow to load

    try:
        json.dumps(parameters, allow_nan=False)
        checked_values(policy, parameters, "parameters")
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


def _check_pattern(options: "JobOptions", pattern: str) -> None:
    """Raise `InvalidSpec` for a pattern that is too long, or cannot tell the total that a deadline needs."""
    from punctual.progress_text.own import AUTO, OwnPattern  # its expressions take long to compile

    if len(pattern) > PATTERN_LENGTH_MAX:
        raise InvalidSpec(
            f"the progress pattern must have at most {PATTERN_LENGTH_MAX} characters",
            f"{len(pattern)}",
            "`--progress-regex`",
            "Leave out what need not match.",
        )
    if (
        pattern == AUTO
        or OwnPattern.of(pattern).may_tell_total
        or options.steps is not None
        or options.deadline is None
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


def worker_in(workers: WorkerRange, capacity: Resources, together: Resources | None) -> Resources:
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

    `together`: as for `submission_of`.
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


def _held_by(workers: WorkerRange, capacity: Resources, together: Resources | None) -> dict[str, Any]:
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
    }


def _profile(work_core_s: float | None, n_steps: int | None, worker: Resources) -> tuple[SeenRate, ...]:
    """Return the declared work as the speed of one worker; the model extends it to more.

    Raises
    ------
    InvalidSpec
        The work is declared, and not of how many steps it is.
    """
    if work_core_s is None:
        return ()
    if n_steps is None or not worker.cores:
        raise InvalidSpec(
            "`--work` of a job made of workers needs the number of its steps",
            "none" if worker.cores else "workers without cores",
            "the job",
            "Give it (`--steps 3000`).",
            option="steps",
        )
    rate_sps = n_steps * worker.cores / work_core_s
    return (SeenRate(shape=Shape(n_workers=1, cores=worker.cores), rate_sps=rate_sps),)


def _share_of(
    floor_cores: float | None,
    ceiling_cores: float | None,
    gpu_frac: float,
    capacity: Resources,
    together: Resources | None,
) -> dict[str, Any]:
    """Return the fields of a specification that concern a share of cores."""
    if ceiling_cores is not None:
        check_ceiling(ceiling_cores, capacity, together)
    _check_gpu_frac(gpu_frac, capacity, together)
    most_cores = capacity.cores if ceiling_cores is None else ceiling_cores
    least_cores = min(FLOOR_CORES, most_cores) if floor_cores is None else floor_cores
    return {"ceiling": Resources(most_cores, gpu_frac), "floor": Resources(least_cores, gpu_frac)}


def _preemptible(options: "JobOptions", workers: WorkerRange | None, gpus: float) -> bool:
    """Whether the job may be paused for others: as the user says, else if it has no GPU.

    Raises
    ------
    InvalidSpec
        The user wants it, and the paused job would keep its GPUs from others.
    """
    if options.preemptible and gpus and (workers is None or options.checkpoint_dir is None):
        raise InvalidSpec(
            "`--preemptible` with GPUs needs a job that leaves them while it is paused",
            "one that keeps them",
            "the job",
            "Train through `punctual.elastic`, and name a `--checkpoint-dir`; or leave `--preemptible` out.",
        )
    return not gpus if options.preemptible is None else options.preemptible


def _n_retries(options: "JobOptions") -> int | None:
    """Number of retries: the scheduler's for a job with checkpoints, or one that is to begin anew; else none."""
    if options.retries is not None:
        return options.retries
    return 0 if options.checkpoint_dir is None and options.on_stall != "retry" else None


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
    """The machine that has the most of something; `together`: as for `submission_of`."""
    if together is None:
        return f"this machine, of which this process may use {amount}"
    return f"the largest node of this cluster, which has {amount}"


def check_ceiling(ceiling_cores: float, capacity: Resources, together: Resources | None) -> None:
    """Raise `InvalidSpec` unless a job on a share of cores may have so many at most; see `submission_of`."""
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


def _environment(options: "JobOptions", spec: JobSpec, workers: WorkerRange | None, cwd: Path | None) -> dict[str, str]:
    """Return the environment variables that Punctual sets."""
    chosen = {}
    if options.checkpoint_dir is not None:
        chosen[CHECKPOINT_VARIABLE] = str(Path(cwd or "", options.checkpoint_dir).absolute())
    if spec.goal is not None:
        chosen[GOAL_VARIABLE] = repr(spec.goal.target)
    if workers is not None:
        chosen[WORKERS_VARIABLE] = str(workers.n_most)
        if workers.servers is not None:
            chosen[SERVERS_VARIABLE] = "{}..{}".format(*workers.servers)
    return chosen


def submitted(submission: Submission) -> JobSubmitted:
    """Return the event that announces a submission to the engine."""
    return JobSubmitted(at=submission.submitted_at, spec=submission.spec, program=submission.program, by=submission.by)


def encode_submission(submission: Submission) -> dict[str, Any]:
    """Encode a submission for a request."""
    event = submitted(submission)
    return {
        "submitted": encode(event),
        "inherited": dict(submission.inherited),
        "argv": submission.argv,
        "name": submission.name,
    }


def decode_submission(told: Mapping[str, Any]) -> Submission:
    """Decode a submission that `encode_submission` encoded; raises `InvalidSpec` for an impossible time or an unknown plug-in."""
    event = decode("JobSubmitted", told["submitted"])
    assert isinstance(event, JobSubmitted)
    assert event.program is not None
    if not 0.0 <= event.at <= time.monotonic():
        raise InvalidSpec(
            "a job must be submitted between the start of this machine and now",
            f"{span(event.at)} after its start",
            f"job '{event.spec.id}'",
            "Submit it with `punctual submit`, or over HTTP.",
        )
    check_plug_ins(event.spec)
    argv = told.get("argv")
    return Submission(
        submitted_at=event.at,
        spec=event.spec,
        program=event.program,
        inherited=told["inherited"],
        argv=None if argv is None else tuple(argv),
        name=told.get("name", ""),
        by=event.by,
    )
