"""Options that commands share."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from punctual.cli._completion import job_names, open_job_names

if TYPE_CHECKING:  # as in `punctual.request.submission`
    from punctual.request.job_options import JobOptions

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
JobsAtOnce = Annotated[
    int | None,
    typer.Option(
        "--jobs-at-once",
        min=1,
        metavar="N",
        help="Run at most N jobs at once; the others wait, earliest deadline first. [default: 4 per core]",
        show_default=False,
    ),
]

Options = TypeVar("Options", bound="JobOptions")


def taking(
    options: type[Options], sections: Mapping[str, Mapping[str, Any]]
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function of `options`, whose fields say of which kind an option is, and its default.

    `sections`: titles of the sections that its help has -> fields -> how each is told; fields that are in none are no
    options.
    """
    told = {name: (title, option) for title, names in sections.items() for name, option in names.items()}
    kinds = {name: field.annotation for name, field in options.model_fields.items() if name in told}
    defaults = options.given({})

    def command_of(function: Callable[[Options], None]) -> Callable[..., None]:
        @wraps(function)
        def command(**given: Any) -> None:
            function(options.given(given))

        command.__annotations__ = kinds
        plain = get_type_hints(command)  # without what is checked over HTTP alone
        taken = {name: Annotated[plain[name], _in_section(*told[name])] for name in told if name in kinds}
        command.__annotations__ = taken
        vars(command)["__signature__"] = inspect.Signature(
            [
                inspect.Parameter(
                    name, inspect.Parameter.KEYWORD_ONLY, default=getattr(defaults, name), annotation=annotation
                )
                for name, annotation in taken.items()
            ]
        )
        return command

    return command_of


def _in_section(section: str, told: Any) -> Any:
    """Return the option, which other commands may have too, in this section of a help."""
    option = copy(get_args(told)[1] if get_args(told) else told)
    if not isinstance(option, typer.models.ArgumentInfo):
        option.rich_help_panel = section
    return option
