"""Options of a job, from a command line or a file, and their meaning."""

import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Protocol, get_args, get_type_hints

from punctual.core.errors import InvalidSpec, OptionChecks
from punctual.core.ids import JobId
from punctual.core.job import EndRules, JobSpec
from punctual.core.loss import LossGoal
from punctual.core.resources import Resources
from punctual.core.units import check_length, parse_bytes_range, parse_cores, parse_cores_range, parse_duration_s
from punctual.request.deadlines import Now, deadline_s
from punctual.request.submission import JobRequest, Submission, WorkerRange, checked_submission, spec_of
from punctual.request.worker_options import gpu_frac, worker_range
from punctual.request.written_time import After, parse_when

#: A job's margin lies below this share of its deadline.
_MARGIN_BOUND = 0.5


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
class JobOptions:
    """The options of `punctual run` that concern a job, as they are written; None: not given.

    Attributes
    ----------
    cwd
        Folder in which the program runs; None: the present one.
    env
        Variables beside `inherited`, and over them.
    inherited
        Variables that the program gets anyway; None: those of this process.
    secret_env
        Names of variables whose values are left out of the record of the command line.
    """

    program: tuple[str, ...] = ()
    deadline: str | None = None
    cores: str | None = None
    memory: str | None = None
    workers: str | None = None
    gpus: str | None = None
    cores_per_worker: str | None = None
    servers: str | None = None
    controller: str | None = None
    margin: str | None = None
    progress_regex: str | None = None
    until: str | None = None
    steps: int | None = None
    checkpoint_dir: Path | None = None
    retries: int | None = None
    weight: float = 1.0
    preemptible: bool | None = None
    after: tuple[str, ...] = ()
    name: str | None = None
    cwd: Path | None = None
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    inherited: Mapping[str, str] | None = field(default=None, repr=False)
    secret_env: tuple[str, ...] = ()
    guarantee: bool = False
    work: str | None = None
    like: str | None = None
    at_deadline: str | None = None
    on_stall: str | None = None
    stop_grace: str | None = None

    def submission(
        self,
        started_at: float,
        capacity: Resources,
        together: Resources | None = None,
        earlier_run: Callable[[str], EarlierRun] | None = None,
    ) -> Submission:
        """Return the job that is meant; its deadline counts from `started_at`, monotonic seconds.

        `capacity`, `together`: what one node has at most, and all of them; see `checked_submission`. `earlier_run`
        finds the job that `like` names; a caller that may meet one hands it in.

        Raises
        ------
        InvalidSpec
            The job can never run on hardware with `capacity`, an option cannot be read, or two exclude each other.
        """
        checks = OptionChecks()
        read_deadline = partial(deadline_s, started_at=started_at, now=Now.read())
        request = self.request(started_at, checks, read_deadline, earlier_run)
        submission = None
        with checks.of(None):
            submission = checked_submission(request, capacity, together)
        checks.done()
        assert submission is not None
        return submission

    def declared(self, i_job: int, capacity: Resources) -> JobSpec:
        """Return the specification of job number `i_job` of several; whether it can run here is not checked.

        Raises
        ------
        InvalidSpec
            The job can never run on a node with `capacity`, its cost is not given, or an option cannot be read.
        """
        checks = OptionChecks()
        options = replace(self, name=self.name or f"job-{i_job}", cwd=None, env={}, inherited={}, secret_env=())
        options = replace(options, progress_regex=None, until=None)
        with checks.of("work"):
            _check_cost_is_known(self.work, self.like)
        request = options.request(0.0, checks, _simulated_deadline_s, None, is_run=False)
        spec = checks.made(lambda: spec_of(request, JobId(options.name or ""), capacity))
        checks.done()
        assert spec is not None
        return spec

    def request(
        self,
        started_at: float,
        checks: OptionChecks,
        read_deadline: Callable[[str], float],
        earlier_run: Callable[[str], EarlierRun] | None,
        *,
        is_run: bool = True,
    ) -> JobRequest:
        """Convert the options to a request; `checks` collects mistakes. `is_run`: whether there is to be a process."""
        # An option may be given as an empty text, from a variable that is not set: that is a slip, and not its default.
        anything: tuple[float | None, float | None] = (None, None)
        nothing: tuple[int | None, int | None] = (None, None)
        floor_cores, ceiling_cores = checks.read("cores", parse_cores_range, self.cores, anything)
        asked_bytes, most_bytes = checks.read("memory", parse_bytes_range, self.memory, nothing)
        cores_each = checks.read("cores_per_worker", parse_cores, self.cores_per_worker, None)
        workers = None
        with checks.of("workers"):
            workers = worker_range(self.workers, self.gpus, cores_each, self.servers)
        with checks.of(None):
            _check_fit_together(workers, self.cores, self.progress_regex, self.until)
            _check_one_source(self.work, self.like)
        margin_frac = checks.read("margin", _share, self.margin, None)
        with checks.of("margin"):
            _check_has_deadline(self.margin, self.deadline)
        cwd = checks.read("cwd", _checked_cwd, self.cwd, _here() if is_run else None)
        inherited = {**(os.environ if self.inherited is None else self.inherited), **self.env}
        work_s = checks.read("work", parse_duration_s, self.work, None)
        earlier = None
        if self.like is not None:
            assert earlier_run is not None, "who may meet `like` hands in what finds the job"
            earlier = checks.read("like", earlier_run, self.like, None)
        with checks.of("program"):
            if is_run:
                _check_program(self.program, cwd, inherited.get("PATH"))
        return JobRequest(
            argv=self.program,
            submitted_at=started_at,
            deadline_s=checks.read("deadline", read_deadline, self.deadline, None),
            cwd=cwd,
            inherited=inherited,
            secret_env=self.secret_env,
            floor_cores=floor_cores,
            ceiling_cores=ceiling_cores,
            gpu_frac=gpu_frac(self.gpus or ""),
            workers=workers,
            controller=self.controller,
            margin_frac=margin_frac,
            progress_pattern=self.progress_regex,
            n_steps=checks.read("steps", _checked_steps, self.steps, None),
            goal=checks.read("until", _goal, self.until, None),
            n_retries=self.retries,
            checkpoint_dir=None if self.checkpoint_dir is None else Path(cwd or "", self.checkpoint_dir),
            weight=self.weight,
            preemptible=self.preemptible,
            after=self.after,
            name=self.name,
            guarantee=self.guarantee,
            ends=EndRules(
                at_deadline=checks.read("at_deadline", partial(_choice, "at_deadline"), self.at_deadline, "train-on"),
                on_stall=checks.read("on_stall", partial(_choice, "on_stall"), self.on_stall, "tell"),
                grace_s=checks.read("stop_grace", parse_duration_s, self.stop_grace, None),
            ),
            work_core_s=work_s if earlier is None else earlier.used_core_s,
            expected_memory_bytes=0 if earlier is None else earlier.peak_memory_bytes,
            memory_bytes=asked_bytes,
            memory_most_bytes=most_bytes,
        )


def _check_has_deadline(margin: str | None, deadline: str | None) -> None:
    if margin is not None and deadline is None:
        remedy = "Give a deadline (`--deadline 90m`), or leave `--margin` out."
        raise InvalidSpec("`--margin` needs a deadline", "none", "the job", remedy, option="margin")


def _check_one_source(work: str | None, like: str | None) -> None:
    if work is not None and like is not None:
        raise InvalidSpec(
            "`--like` must not go with `--work`", repr(like), "`punctual run`", "Leave one of them out.", option="like"
        )


def _check_cost_is_known(work: str | None, like: str | None) -> None:
    if work is None and like is None:
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


def _checked_cwd(cwd: Path) -> Path:
    if not os.path.isdir(cwd):  # noqa: PTH112 -- `Path.is_dir` raises for a name that is too long
        raise InvalidSpec("`cwd` must be a folder", f"'{cwd}', which is none", "the job", "Make the folder first.")
    return cwd.absolute()


def _here() -> Path | None:
    """Return the present folder, if it still exists."""
    try:
        return Path.cwd()
    except FileNotFoundError:
        return None


def _check_fit_together(
    workers: WorkerRange | None, cores: str | None, progress_regex: str | None, until: str | None
) -> None:
    """Raise `InvalidSpec` for options that exclude each other."""
    if until is not None and progress_regex is not None:
        raise InvalidSpec(
            "`--until` must not go with `--progress-regex`", "both", "`punctual run`",
            "Only a program that uses `punctual.track` or `punctual.elastic` tells its loss: leave out one of them.",
            option="until",
        )  # fmt: skip
    if workers is not None and cores is not None:
        raise InvalidSpec(
            f"`--cores` must not go with `{workers.option}`", repr(cores), "`punctual run`",
            "Say what one worker holds: `--cores-per-worker 0.5`.", option="cores",
        )  # fmt: skip
    if workers is not None and progress_regex is not None:
        raise InvalidSpec(
            f"`--progress-regex` must not go with `{workers.option}`", repr(progress_regex), "`punctual run`",
            "A program that uses `punctual.elastic` reports its progress by itself: leave it out.",
            option="progress_regex",
        )  # fmt: skip


def _goal(text: str) -> LossGoal:
    """Parse `loss<0.1`."""
    check_length(text, "a goal", "Write `--until 'loss<0.1'`.")
    match = re.fullmatch(r"\s*loss\s*<=?\s*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)\s*", text)
    if not match or not isfinite(float(match[1])):
        raise InvalidSpec("a goal must be a loss to fall to", repr(text), "`--until`", "Write `--until 'loss<0.1'`.")
    return LossGoal(target=float(match[1]))


def _share(text: str) -> float:
    """Parse a share: `0.1%` and `0.001` are the same."""
    check_length(text, "a margin", "Write `0.1%` or `0.001`.")
    match = re.fullmatch(r"\s*([0-9]*\.?[0-9]+)\s*(%?)\s*", text)
    if not match:
        raise InvalidSpec(
            "a margin must be a share of the deadline", repr(text), "`--margin`", "Write `0.1%` or `0.001`."
        )
    share = float(match[1]) / (100 if match[2] else 1)
    if share >= _MARGIN_BOUND:
        raise InvalidSpec(
            "a margin must be less than half of the deadline", repr(text), "`--margin`", "Write `0.1%` or `0.001`."
        )
    return share


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


def _check_program(program: tuple[str, ...], cwd: Path | None, path: str | None) -> None:
    """Raise `InvalidSpec` unless the program's name is that of something to run."""
    if not program:
        raise InvalidSpec(
            "`program` must be given", "none", "the job", "Name it after `--`: `punctual run -- python train.py`."
        )
    name = program[0]
    if shutil.which(str(Path(cwd or "", name)) if "/" in name else name, path=path) is not None:
        return
    if name.endswith(".py") and os.path.isfile(Path(cwd or "", name)):  # noqa: PTH113 -- as above
        got, remedy = f"the script '{name}'", f"Name its interpreter too: `-- python {name}`."
    else:
        got, remedy = f"'{name}', which cannot be found or executed", "Check its name, and that it may be executed."
    raise InvalidSpec("the program must be one that can be run", got, "the command line", remedy)
