"""Options that commands share, and their completions for the shell."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_type_hints

import typer

from punctual import registry
from punctual.daemon.runs import known_jobs, open_jobs

if TYPE_CHECKING:  # as in `punctual.request.submission`
    from punctual.request.job_options import RequestBody


def open_job_names(incomplete: str) -> list[str]:
    """List the names of open jobs with this beginning."""
    return sorted({job.title for job in open_jobs() if job.title.startswith(incomplete)})


def job_names(incomplete: str) -> list[str]:
    """List the names of all jobs with this beginning, ended ones too."""
    return sorted({job.title for job in known_jobs() if job.title.startswith(incomplete)})


def policy_names(incomplete: str) -> list[str]:
    """List the names of policies with this beginning."""
    return _plug_ins("policies", incomplete)


def controller_names(incomplete: str) -> list[str]:
    """List the names of controllers with this beginning."""
    return _plug_ins("controllers", incomplete)


def _plug_ins(family: str, incomplete: str) -> list[str]:
    return [name for name in registry.names(family) if name.startswith(incomplete)]


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
    ),
]

Options = TypeVar("Options", bound="RequestBody")


def taking(
    options: type[Options], sections: Mapping[str, Mapping[str, Any]]
) -> Callable[[Callable[[Options], None]], Callable[..., None]]:
    """Make a command of a function of `options`, whose fields say of which kind an option is, and its default.

    `sections`: titles of the sections that its help has -> fields -> how each is written; fields that are in none are no
    options. The help of one without is the description of its field.
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
        taken = {
            name: Annotated[plain[name], _in_section(*told[name], options.model_fields[name].description)]
            for name in told
            if name in kinds
        }
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


def _in_section(section: str, told: Any, description: str | None) -> Any:
    """Return the option, which other commands may have too, in this section of a help."""
    option = copy(get_args(told)[1] if get_args(told) else told)
    option.help = option.help or description
    if not isinstance(option, typer.models.ArgumentInfo):
        option.rich_help_panel = section
    return option
