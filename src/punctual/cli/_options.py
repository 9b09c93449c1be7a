"""Options that commands share."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Annotated, Any, TypeVar, get_args

import typer

from punctual.cli._completion import job_names, open_job_names

#: A job that has not ended, and any job.
OpenJob = Annotated[
    str | None,
    typer.Argument(
        help="Name of the job or its beginning; may be left out if there is only one.", autocompletion=open_job_names
    ),
]
AnyJob = Annotated[
    str | None,
    typer.Argument(
        help="Name of the job or its beginning; left out: the only one that runs, or the last one that ran.",
        autocompletion=job_names,
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")]
Steps = Annotated[
    int | None, typer.Option(metavar="N", help="Steps of the whole job, if neither program nor output says how many.")
]
ProgressRegex = Annotated[
    str | None,
    typer.Option(
        metavar="REGEX|auto",
        help="Read progress from the program's output: groups step, total, epoch, epochs. "
        "[default: auto, if the program does not use `punctual.track`]",
        show_default=False,
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Exit with 75 if the deadline is missed, with 2 if the output could not be read to the last step.",
    ),
]
ReportFile = Annotated[
    Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Write the page or a picture of the run.")
]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings and errors.")]

Options = TypeVar("Options")


def taking(
    options: type[Options], sections: Mapping[str, Sequence[str]]
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function of `options`, a dataclass: each field is an option, with annotation and default.

    Parameters
    ----------
    sections
        Titles of the sections that its help has, and the fields in each.
    """
    section_of = {name: title for title, names in sections.items() for name in names}
    taken = [
        inspect.Parameter(
            field.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=field.default,
            annotation=_in_section(field.type, section_of.get(field.name)),
        )
        for field in sorted(fields(options), key=lambda field: _place(field.name, section_of))  # type: ignore[arg-type]
    ]

    def command_of(function: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            function(options(**given))

        command.__signature__ = inspect.Signature(taken)  # type: ignore[attr-defined]
        command.__annotations__ = {option.name: option.annotation for option in taken}
        return command

    return command_of


def _place(name: str, section_of: Mapping[str, str]) -> int:
    """Return a field's place in the order of the help; fields without a section come last."""
    return list(section_of).index(name) if name in section_of else len(section_of)


def _in_section(annotation: Any, section: str | None) -> Any:
    kind, option = get_args(annotation)
    option = copy(option)
    if not isinstance(option, typer.models.ArgumentInfo):
        option.rich_help_panel = section
    return Annotated[kind, option]
