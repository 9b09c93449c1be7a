"""Layout of help: commands and options in sections, examples below; and suggestions for unknown commands."""

import os
import shutil
from difflib import get_close_matches
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from punctual.cli._streams import write_out

#: Sections of what is in no other; they are the first and the last.
_ARGUMENTS, _OTHER = "Arguments", "Options"
#: Words of other tools -> the command that does the same here.
ELSEWHERE = {
    **dict.fromkeys(("status", "list", "ls", "jobs", "queue", "squeue", "qstat", "sinfo", "sacct"), "ps"),
    **dict.fromkeys(
        ("cancel", "kill", "rm", "delete", "remove", "abort", "end", "terminate", "scancel", "qdel"), "stop"
    ),
    **dict.fromkeys(("start", "launch", "exec", "train"), "run"),
    **dict.fromkeys(("sbatch", "qsub", "add", "enqueue"), "submit"),
    **dict.fromkeys(("log", "tail", "output", "cat"), "logs"),
    **dict.fromkeys(("info", "describe", "inspect", "job"), "show"),
    **dict.fromkeys(("explain", "reason", "reasons"), "why"),
    **dict.fromkeys(("edit", "update", "modify", "change", "scontrol", "renice"), "set"),
    **dict.fromkeys(("suspend", "hold"), "pause"),
    **dict.fromkeys(("continue", "release", "unpause"), "resume"),
    **dict.fromkeys(("serve", "server", "service"), "up"),
    **dict.fromkeys(("ui", "web", "dashboard"), "page"),
    **dict.fromkeys(("shutdown", "quit", "exit"), "down"),
    **dict.fromkeys(("watch", "top", "htop", "monitor"), "ps"),
    **dict.fromkeys(("estimate", "predict", "forecast", "ask"), "quote"),
    **dict.fromkeys(("takeover", "adopt", "reattach"), "attach"),
    **dict.fromkeys(("sim", "study"), "simulate"),
    **dict.fromkeys(("controllers", "policies", "models", "extensions"), "plugins"),
    **dict.fromkeys(("prune", "gc", "purge"), "clean"),
    **dict.fromkeys(("check", "diagnose", "env"), "doctor"),
    **dict.fromkeys(("plot", "summary"), "report"),
    **dict.fromkeys(("login", "tokens", "auth"), "token"),
    "version": "--version",
}


class SectionedCommand(TyperCommand):
    """A command whose help has its options in sections, those of `rich_help_panel`, as plain text."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        rows: dict[str, list[tuple[str, str]]] = {_ARGUMENTS: []}
        for param in self.get_params(ctx):
            section = getattr(param, "rich_help_panel", None)
            section = section or (_ARGUMENTS if param.param_type_name == "argument" else _OTHER)
            if (record := param.get_help_record(ctx)) is not None:
                rows.setdefault(section, []).append(record)
        rows[_OTHER] = rows.pop(_OTHER, [])
        _write(formatter, rows)


class SectionedGroup(TyperGroup):
    """An application whose help has its commands in sections."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows: dict[str, list[tuple[str, str]]] = {}
        for name, command in commands:
            if command is not None:
                section = getattr(command, "rich_help_panel", None) or "Commands"
                rows.setdefault(str(section), []).append((name, command.get_short_help_str(limit=formatter.width)))
        _write(formatter, rows)


def _write(formatter: Any, rows: dict[str, list[tuple[str, str]]]) -> None:
    for section, records in rows.items():
        if records:
            with formatter.section(section):
                formatter.write_dl(records)


def show_commands(context: typer.Context) -> None:
    """Show the commands of a group that was given without one."""
    if context.invoked_subcommand is None:
        write_out(f"{context.get_help()}\n")


def examples(*lines: str) -> str:
    """Join the lines below the help of a command, left as they are."""
    return "\b\nExamples:\n" + "\n".join(f"  $ {line}" for line in lines)


def meant_by(word: str, commands: list[str]) -> str:
    """Suggest a command in place of `word`, which is none."""
    if word in ELSEWHERE:
        return f"`punctual {ELSEWHERE[word]}` does that; `punctual --help` lists all commands."
    close = get_close_matches(word, commands, n=1) or get_close_matches(word, list(ELSEWHERE), n=1)
    is_script = os.path.isfile(word)  # noqa: PTH113 -- `Path.is_file` raises for a word that is too long
    if is_script or (not close and shutil.which(word)):
        return f"To run a program: `punctual run --deadline 1h -- {'python ' * word.endswith('.py')}{word}`."
    told = "".join(f"Did you mean `punctual {ELSEWHERE.get(other, other)}`? " for other in close)
    return f"{told}`punctual --help` lists all commands."
