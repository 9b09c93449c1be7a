"""A file of jobs: TOML, a table `[[job]]` for each, with the words of the options of `punctual run`."""

import shlex
import tomllib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec, OptionChecks, did_you_mean
from punctual.core.resources import Resources
from punctual.runtime.job_options import JobOptions
from punctual.runtime.submission import Submission

_KEYS = tuple(option.name for option in fields(JobOptions))


def read_jobs(path: Path, started_at: float, capacity: Resources) -> list[Submission]:
    """The jobs of a file, all of them checked.

    Parameters
    ----------
    started_at
        Instant from which deadlines count, monotonic seconds.

    Raises
    ------
    InvalidSpec
        The file cannot be read, or jobs cannot be run, each with all that is wrong with it.
    """
    tables, submissions, errors = _tables(path), [], []
    for i_job, table in enumerate(tables, start=1):
        where = f"'{path}', job {i_job}" + (f" ('{table['name']}')" if "name" in table else "")
        try:
            submissions.append(_submission(table, started_at, capacity))
        except InvalidSpec as wrong:
            for error in wrong.all():
                key = "" if error.option is None else f", `{error.option}`"
                errors.append(InvalidSpec(error.must, error.got, where + key, error.remedy))
    errors += _repeated(path, tables)
    if errors:
        errors[0].others = tuple(errors[1:])
        raise errors[0]
    return submissions


def _tables(path: Path) -> list[Mapping[str, Any]]:
    remedy = "Write a table `[[job]]` for each job: `program`, `deadline`, and other options of `punctual run`."
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidSpec(
            "the file of jobs must be there", str(error.strerror), f"'{path}'", "Check its name."
        ) from error
    except RecursionError:
        raise InvalidSpec(
            "the file of jobs must be TOML", "lists within lists without end", f"'{path}'", remedy
        ) from None
    except ValueError as error:
        raise InvalidSpec("the file of jobs must be TOML", str(error), f"'{path}'", remedy) from error
    tables = content.get("job")
    if set(content) != {"job"} or not isinstance(tables, list) or not all(isinstance(job, dict) for job in tables):
        got = ", ".join(f"`{key}`" for key in content) or "nothing"
        raise InvalidSpec("the file must have tables `[[job]]` and nothing else", got, f"'{path}'", remedy)
    return [{key.replace("-", "_"): value for key, value in table.items()} for table in tables]


def _submission(table: Mapping[str, Any], started_at: float, capacity: Resources) -> Submission:
    """The job of a table; raises `InvalidSpec` with all that is wrong with it."""
    checks, options = OptionChecks(), {}
    for key, value in table.items():
        with checks.of(key):
            options[key] = _value(key, value)
    submission = None
    with checks.of(None):
        submission = JobOptions(**options).submission(started_at, capacity)
    checks.done()
    assert submission is not None
    return submission


def _value(key: str, value: Any) -> Any:
    """What the option `key` takes for a value of the file."""
    if key not in _KEYS:
        remedy = f"{did_you_mean(key, _KEYS)}Use one of: {', '.join(_KEYS)}."
        raise InvalidSpec("a key must be one of a job", f"`{key}`", "a job", remedy)
    read, example = _READERS.get(key, (_text, "a text or a number"))
    try:
        return read(value)
    except (TypeError, ValueError, OverflowError):
        raise InvalidSpec(
            f"`{key}` must be of the kind of its option", repr(value), "a job", f"Write {example}."
        ) from None


def _program(value: Any) -> tuple[str, ...]:
    words = shlex.split(value) if isinstance(value, str) else list(value)
    if not all(isinstance(word, str) for word in words):
        raise TypeError
    return tuple(words)


def _variables(value: Any) -> dict[str, str]:
    if not isinstance(value, dict) or not all(isinstance(variable, str) for variable in value.values()):
        raise TypeError
    return value


def _names(value: Any) -> tuple[str, ...]:
    return (_name(value),) if isinstance(value, str) else tuple(map(_name, value))


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: Any) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise TypeError
    return value


def _truth(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError
    return value


def _whole_number(value: Any) -> int:
    if _number(value) != int(value):
        raise ValueError
    return int(value)


def _text(value: Any) -> str:
    return str(value) if isinstance(value, str | datetime | date | time) else str(_number(value))


def _deadline(value: Any) -> str:
    """A number is one of seconds."""
    return _text(value) if isinstance(value, str | datetime | date | time) else f"{_number(value)}s"


#: Key -> what reads its value, and an example of one.
_READERS: Mapping[str, tuple[Callable[[Any], Any], str]] = {
    "program": (_program, "a text, `python train.py`, or a list of texts"),
    "deadline": (_deadline, "a text, `90m` or `18:00`, or seconds"),
    "env": (_variables, 'a table of texts, `{ SEED = "1" }`'),
    "after": (_names, 'a list of names of jobs, ["prepare"]'),
    "secret_env": (_names, 'a list of names of variables, ["API_KEY"]'),
    "steps": (_whole_number, "a whole number"),
    "retries": (_whole_number, "a whole number"),
    "weight": (_number, "a number above 0"),
    "preemptible": (_truth, "true or false"),
    "name": (_name, "a text"),
    "cwd": (lambda value: Path(_name(value)).expanduser(), "the name of a folder"),
    "checkpoint_dir": (lambda value: Path(_name(value)).expanduser(), "the name of a folder"),
}


def _repeated(path: Path, tables: Sequence[Mapping[str, Any]]) -> list[InvalidSpec]:
    counts = Counter(str(table["name"]) for table in tables if "name" in table)
    return [
        InvalidSpec(
            "`name` must be that of one job", f"{n_jobs} jobs named '{name}'", f"'{path}'", "Name each job differently."
        )
        for name, n_jobs in counts.items()
        if n_jobs > 1
    ]
