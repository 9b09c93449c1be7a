"""Read the jobs of a file: a table `[[job]]` for each, with the options of `punctual run`; live or simulated."""

import os
import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, TypeVar

from punctual.core.errors import InvalidSpec, OptionChecks, did_you_mean
from punctual.core.events import JobSubmitted
from punctual.core.resources import Resources
from punctual.request.input_file import keys_in
from punctual.request.job_options import JobOptions
from punctual.request.quantities import parse_duration_s
from punctual.request.submission import EarlierRun, Submission, simulated_spec, submission_of

T = TypeVar("T")

#: Key of the submission's time, from the beginning on; only in a simulation.
_SUBMIT_AT = "submit_at"
_KEYS = (*JobOptions.model_fields, _SUBMIT_AT)
#: What a simulation has no use for: there is no process, and no loss.
_NOT_SIMULATED = ("program", "cwd", "env", "secret_env", "progress_regex", "until")


def read_jobs(
    path: Path,
    started_at: float,
    capacity: Resources,
    together: Resources | None = None,
    tell: Callable[[str], None] = lambda _: None,
    earlier_run: Callable[[str], EarlierRun] | None = None,
) -> list[Submission]:
    """Read the jobs of a file, all of them checked.

    * `started_at`: instant from which deadlines count, monotonic seconds.
    * `capacity`, `together`: what one node has at most, and all of them; see `submission_of`.
    * `tell`: called with a sentence about each part of the file that has no effect here.
    * `earlier_run`: finds the job that `like` names.

    Raises `InvalidSpec`: the file cannot be read, or jobs cannot be run, each with all that is wrong with it.
    """
    tables = tables_in(path)
    submissions = _each(
        tables, f"'{path}'", lambda _, options, __: submission_of(options, started_at, capacity, together, earlier_run)
    )
    if any(_SUBMIT_AT in table for table in tables):
        tell(f"`{_SUBMIT_AT}` in '{path}' is for simulations: all its jobs are submitted now")
    return submissions


def declared_jobs(
    tables: Sequence[Mapping[str, Any]], where: str, capacity: Resources, together: Resources | None = None
) -> list[JobSubmitted]:
    """The jobs of these tables as they are declared, submitted at seconds from the beginning of a simulation; no program is looked at.

    `together`: capacity of all nodes, where jobs may lie on several.

    Raises `InvalidSpec`: jobs could never run on a node with `capacity`, or do not say what they cost.
    """
    return _each(
        tables,
        where,
        lambda i_job, options, at_s: JobSubmitted(at=at_s, spec=simulated_spec(options, i_job, capacity, together)),
    )


def to_simulate(
    tables: Sequence[Mapping[str, Any]], earlier_run: Callable[[str], EarlierRun]
) -> tuple[dict[str, Any], ...]:
    """Return the jobs without keys that a simulation does not use, such as variables; with `work` for `like`."""
    kept = [{key: value for key, value in table.items() if key not in _NOT_SIMULATED} for table in _named(tables)]
    for table in kept:
        if (
            isinstance(table.get("like"), str) and "work" not in table
        ):  # so that what comes out depends on the tables alone
            table["work"] = f"{earlier_run(table.pop('like')).used_core_s}s"
    return tuple(kept)


def _named(tables: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Rename the tables' keys as options are called, unless that would give one two values."""
    named = [{key.replace("-", "_"): value for key, value in table.items()} for table in tables]
    return [new if len(new) == len(table) else table for new, table in zip(named, tables, strict=True)]


def tables_in(path: Path) -> list[Mapping[str, Any]]:
    """Return the tables `[[job]]` of a file; raises `InvalidSpec` if it cannot be read, or has none."""
    tables = keys_in(path).get("job")
    if not isinstance(tables, list) or not all(isinstance(job, dict) for job in tables):
        raise InvalidSpec(
            "the file must have tables `[[job]]`",
            "none" if tables is None else "a `job` that is no list of tables",
            f"'{path}'",
            "Write a table `[[job]]` for each job: `program`, `deadline`, and other options of `punctual run`.",
        )
    return _named(tables)


def _each(tables: Sequence[Mapping[str, Any]], where: str, make: Callable[[int, JobOptions, float], T]) -> list[T]:
    """Call `make` with number, options and `submit_at` of each job; all mistakes are raised together."""
    made, errors = list[T](), list[InvalidSpec]()
    for i_job, table in enumerate(tables, start=1):
        name = f" ('{table['name']}')" if "name" in table else ""
        try:
            made.append(_made(i_job, table, make))
        except InvalidSpec as wrong:
            for error in wrong.all():
                key = "" if error.option is None else f", `{error.option}`"
                errors.append(InvalidSpec(error.must, error.got, f"{where}, job {i_job}{name}{key}", error.remedy))
    errors += _repeated(where, tables)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return made


def _made(i_job: int, table: Mapping[str, Any], make: Callable[[int, JobOptions, float], T]) -> T:
    """Convert a table; raises `InvalidSpec` with all mistakes in it."""
    checks, options, made = OptionChecks(), dict[str, Any](), list[T]()
    for key, value in table.items():
        with checks.of(key):
            options[key] = _value(key, value)
    submit_at_s = checks.read(_SUBMIT_AT, parse_duration_s, options.pop(_SUBMIT_AT, None), 0.0)
    with checks.of(None):
        made.append(make(i_job, JobOptions.given(options), submit_at_s))
    checks.done()
    return made[0]


def _value(key: str, value: Any) -> Any:
    """Convert a value of the file for the option `key`."""
    if key not in _KEYS:
        remedy = f"{did_you_mean(key, _KEYS)}Use one of: {', '.join(_KEYS)}."
        raise InvalidSpec("a key must be one of a job", f"`{key}`", "a job", remedy)
    read, example = _READERS.get(key, (_text, "a text or a number"))
    try:
        return read(value)
    except InvalidSpec:
        raise
    except (TypeError, ValueError, OverflowError, RuntimeError):  # the last: `~`, and this user has no home folder
        raise InvalidSpec(
            f"`{key}` must be of the kind of its option", repr(value), "a job", f"Write {example}."
        ) from None


def _program(value: Any) -> tuple[str, ...]:
    try:
        words = shlex.split(value) if isinstance(value, str) else list(value)
    except ValueError as error:  # of a shell's grammar: it says what is missing
        raise InvalidSpec(
            "`program` must be a command line that a shell could read",
            f"{value!r} ({str(error).lower()})",
            "a job",
            'Close each quotation mark, or write a list of texts: `["python", "train.py"]`.',
        ) from None
    if not all(isinstance(word, str) for word in words):
        raise TypeError
    return tuple(words)


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(variable, str) for variable in value.values()):
        raise TypeError
    return value


def _names(value: Any) -> tuple[str, ...]:
    return (_name(value),) if isinstance(value, str) else tuple(map(_name, value))


def _of(*kinds: type) -> Callable[[Any], Any]:
    """Return a reader of values of these types: it returns one unchanged, and raises `TypeError` for any other value."""

    def read(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError
        return value

    return read


_name, _number, _truth = _of(str), _of(int, float), _of(bool)


def _folder(value: Any) -> Any:
    return os.path.expanduser(_name(value))  # noqa: PTH111 -- a path would make this folder of no name


def _whole_number(value: Any) -> int:
    if _number(value) != int(value):
        raise ValueError
    return int(value)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | datetime | date | time) else str(_number(value))


def _deadline(value: Any) -> str:
    """Convert a deadline: TOML's own time, `18:00:00`, is one of day and no duration."""
    return f"at {value:%H:%M:%S}" if isinstance(value, time) else _text(value)


#: Key -> what reads its value, and an example of one.
_READERS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "program": (_program, "a text, `python train.py`, or a list of texts"),
    "deadline": (_deadline, "a text, `90m` or `18:00`"),
    _SUBMIT_AT: (_deadline, "a text, `90m`"),
    "env": (_variables, 'a table of texts, `{ SEED = "1" }`'),
    "after": (_names, 'a list of names of jobs, ["prepare"]'),
    "secret_env": (_names, 'a list of names of variables, ["API_KEY"]'),
    "steps": (_whole_number, "a whole number"),
    "retries": (_whole_number, "a whole number"),
    "budget_usd": (_number, "dollars, 40"),
    "weight": (_number, "a number above 0"),
    "preemptible": (_truth, "true or false"),
    "guarantee": (_truth, "true or false"),
    "name": (_name, "a text"),
    "cwd": (_folder, "the name of a folder"),
    "checkpoint_dir": (_folder, "the name of a folder"),
}


def _repeated(where: str, tables: Sequence[Mapping[str, Any]]) -> list[InvalidSpec]:
    counts = Counter(str(table["name"]) for table in tables if "name" in table)
    return [
        InvalidSpec(
            "`name` must be that of one job", f"{n_jobs} jobs named '{name}'", where, "Name each job differently."
        )
        for name, n_jobs in counts.items()
        if n_jobs > 1
    ]
