"""Table of commands, and the handling of users' errors."""

import logging
import os
import sqlite3
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Annotated, Any, NoReturn

import typer

from punctual import __version__
from punctual.cli._errors import EXIT_INTERRUPTED, EXIT_USER_ERROR, exit_code_of, tell_user
from punctual.cli._help import SectionedCommand, SectionedGroup, meant_by
from punctual.cli._streams import show_what_can_be_shown, write_line
from punctual.core.errors import InvalidSpec
from punctual.daemon.logs import LogFormatter

_PROGRAM = "punctual"

#: Section of the help -> its commands. Each has a module, with a function of the command's name or an application of
#: that name, with commands of its own. A module may have `EXAMPLES` for the help of its commands, and `SETTINGS` for how
#: their arguments are read.
_SECTIONS = {
    "Run jobs": ("run", "submit", "quote", "read", "attach", "demo"),
    "Watch them": ("ps", "show", "logs", "why", "report"),
    "Change them": ("deadline", "set", "pause", "resume", "stop", "policy", "node"),
    "Service": ("up", "down", "daemon", "page", "token"),
    "Simulate": ("simulate", "compare", "trace", "reproduce"),
    "This installation": ("doctor", "clean", "plugins"),
}
#: Command -> its module: some share one.
COMMANDS = {name: name for commands in _SECTIONS.values() for name in commands}
COMMANDS |= dict.fromkeys(("submit", "attach"), "run") | {"show": "ps", "daemon": "up"}
COMMANDS |= dict.fromkeys(("deadline", "set", "pause", "resume", "stop"), "steer")
COMMANDS |= dict.fromkeys(("policy", "node"), "host")

#: Commands that need nothing of Linux: those that start no job, and ask nobody who has.
FOR_ALL_SYSTEMS = {"clean", "compare", "plugins", "read", "report", "reproduce", "simulate", "trace"}


#: Typer's exception for an invalid command line. Its module depends on Typer's version.
_UsageError: Any = typer.BadParameter.__bases__[0]


def prepared(arguments: list[str]) -> Callable[[], NoReturn]:
    """Return the command that `arguments` name, with its modules imported; call it to run it."""
    argv = list(arguments) or ["--help"]
    if argv[0] == "help":
        argv = [*_command_words(argv[1:]), "--help"]
    if argv[1:] == ["-h"]:  # also of a command for which `-2h` is an amount
        argv[1] = "--help"
    return partial(_run, argv, application(_begun_words() or argv))


def _command_words(words: list[str]) -> list[str]:
    """Return the words that name a command: `run` would take the others for a program, even before `--help`."""
    has_commands = bool(words) and words[0] in COMMANDS and isinstance(_command(words[0]), typer.Typer)
    return words[: 2 if has_commands else 1]


def _begun_words() -> list[str]:
    """Return the words after the program's name on a completion's line: only their command is loaded then."""
    written = os.environ.get("COMP_WORDS") or os.environ.get("_TYPER_COMPLETE_ARGS") or ""
    return written.split()[1:] if f"_{_PROGRAM.upper()}_COMPLETE" in os.environ else []


def _run(argv: list[str], command: typer.Typer) -> NoReturn:
    """Run one command; a user's error becomes four parts on standard error and exit status 2."""
    show_what_can_be_shown()
    try:
        if logging.lastResort is not None:  # writes warnings where no log is set up
            logging.lastResort.setFormatter(LogFormatter())
        _check_known(argv[0])
        _check_system(argv)
        exit_code = command(argv, prog_name=_PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except InvalidSpec as error:
        tell_user(error)
        exit_code = EXIT_USER_ERROR
    except _UsageError as error:
        tell_user(_unreadable(argv, error.format_message()))
        exit_code = EXIT_USER_ERROR
    except (KeyboardInterrupt, typer.Abort):
        exit_code = EXIT_INTERRUPTED
    except (OSError, RuntimeError, MemoryError, sqlite3.Error) as error:
        exit_code = exit_code_of(error)
    sys.exit(exit_code)


def _check_known(word: str) -> None:
    if not word.startswith("-") and word not in COMMANDS:
        raise InvalidSpec(
            "the first word must be a command or an option", f"'{word}'", "`punctual`", meant_by(word, list(COMMANDS))
        )


def _check_system(argv: list[str]) -> None:
    name = argv[0]
    is_asked_for_help = not {"--help", "-h"}.isdisjoint(argv)
    if sys.platform != "linux" and name in COMMANDS and name not in FOR_ALL_SYSTEMS and not is_asked_for_help:
        here = ", ".join(sorted(FOR_ALL_SYSTEMS))
        raise InvalidSpec(
            "jobs must be run on Linux",
            sys.platform,
            f"`punctual {name}`",
            f"Run it on a Linux machine, or in a container. Here there are {here}; training scripts run, and are not steered.",
        )


def _unreadable(argv: list[str], got: str) -> InvalidSpec:
    command = f"punctual {argv[0]}" if argv[0] in COMMANDS else "punctual"
    return InvalidSpec(
        "options and arguments must be those of the command", got, f"`{command}`",
        f"See `{command} --help` for what there is.",
    )  # fmt: skip


def application(argv: list[str]) -> typer.Typer:
    """Return the application with the command that `argv` names, or with all commands for help and completion."""
    app = typer.Typer(
        name=_PROGRAM,
        pretty_exceptions_enable=False,
        rich_markup_mode=None,
        cls=SectionedGroup,
        # Help is written in lines of no more than this many characters, fewer on a narrower terminal.
        context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
        help="Neural-network training that finishes on time, on no more hardware than it needs.",
    )
    app.callback()(_options)
    named = argv[0] if argv else ""
    for section, commands in _SECTIONS.items():
        for name in commands:
            if named == name or named not in COMMANDS:
                _add(app, name, section)
    return app


def _command(name: str) -> Any:
    """Return the function or the application of a command."""
    return getattr(import_module(f"punctual.cli.{COMMANDS[name]}"), name)


def _add(app: typer.Typer, name: str, section: str) -> None:
    module, command = import_module(f"punctual.cli.{COMMANDS[name]}"), _command(name)
    if isinstance(command, typer.Typer):  # it has commands of its own
        app.add_typer(command, name=name, rich_help_panel=section)
        return
    app.command(
        name,
        cls=SectionedCommand,
        context_settings=getattr(module, "SETTINGS", {}).get(name),
        epilog=getattr(module, "EXAMPLES", {}).get(name),
        rich_help_panel=section,
    )(command)


def _tell_version(wanted: bool) -> None:
    if wanted:
        write_line(f"punctual {__version__}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and leave.", is_eager=True, callback=_tell_version)
    ] = False,
) -> None:
    """Handle the options before the command's name."""
