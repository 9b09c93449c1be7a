"""The documentation of the command line is that of the commands there are."""

import json
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
from tests.architecture.source import ROOT
from tests.architecture.test_docs import DOCS, PAGES
from tests.cli.programs import Terminal

from punctual.cli._app import FOR_ALL_SYSTEMS, application

#: Sections of the reference, each with the commands that its heading names.
SECTIONS = [
    section
    for name in ("cli", "cli-simulation")
    for section in re.split("^## ", (DOCS / "reference" / f"{name}.md").read_text("utf-8"), flags=re.MULTILINE)
]
_CONSOLE = re.compile(r"^```console\n(.*?)^```", re.MULTILINE | re.DOTALL)
_INLINE = re.compile(r"(?<!`)`(punctual [^`\n]+)`(?!`)")
#: Ends of a command in a line: of the options of `punctual`, of a pipe, or by a redirection or remark.
_ENDS = {"--", "|", "||", "&&", ";", "&", ">", "<", "#", "`", "…", "..."}


@cache
def commands() -> dict[str, Any]:
    """All commands by their words, `token create` too."""
    group: Any = typer.main.get_command(application([]))
    found = {"": group}
    for name, command in group.commands.items():
        found |= {name: command, **{f"{name} {other}": one for other, one in getattr(command, "commands", {}).items()}}
    return found


def options(command: Any) -> list[set[str]]:
    """The long names of each option of a command."""
    named = [{*param.opts, *param.secondary_opts} for param in command.params if param.param_type_name == "option"]
    return [{name for name in names if name.startswith("--")} for names in named]


def shown(text: str) -> Iterator[list[str]]:
    """The words behind `punctual`, of each call of it that a page shows."""
    console = "".join(_CONSOLE.findall(text)).replace("\\\n", " ")
    lines = [line.removeprefix("$ ") for line in console.splitlines() if line.startswith("$ ")]
    for line in (*lines, *_INLINE.findall(text)):
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # a part of a line
            words = line.split()
        for i, word in enumerate(words):
            if word.rpartition("(")[2] == "punctual":
                rest = words[i + 1 :]
                yield rest[: next((n for n, each in enumerate(rest) if each in _ENDS), len(rest))]


def complaints(words: list[str]) -> list[str]:
    """What a call names and there is not."""
    if words[:1] == ["help"] or not words:
        return []
    name = "" if words[0].startswith("-") else words[0].rstrip(".,;:)")
    if name not in commands():
        return [] if re.fullmatch("[A-Z<[].*", name) else [f"punctual {name}"]
    named = f"{name} {words[1]}" if f"{name} {' '.join(words[1:2])}" in commands() else name
    written = [re.match(r"\[?(--[a-z][\w-]*)", word) for word in words]
    return [f"punctual {named} {option[1]}" for option in written if option and option[1] not in known(named)]


def known(name: str) -> set[str]:
    """The options that a command takes; of the words before any command, those of all."""
    return {"--help", "--install-completion"}.union(*options(commands()[name]))


def test_each_command_and_option_that_a_page_shows_is_there() -> None:
    calls = {
        page.relative_to(ROOT): list(shown(page.read_text("utf-8"))) for page in PAGES if page.name != "CHANGELOG.md"
    }
    assert sum(map(len, calls.values())) > 200
    wrong = {page: [each for words in of_page for each in complaints(words)] for page, of_page in calls.items()}
    assert not {page: found for page, found in wrong.items() if found}


def test_what_is_not_there_is_found() -> None:
    text = (
        "`punctual policies`, `punctual run --dead 3m -- x --y`\n```console\n$ A=1 punctual ps --al | tail --n 3\n```"
    )
    assert [each for words in shown(text) for each in complaints(words)] == [
        "punctual ps --al", "punctual policies", "punctual run --dead",
    ]  # fmt: skip


@pytest.mark.parametrize("name", sorted({name.split()[0] for name in commands() if name}))
def test_the_reference_names_each_option_of_a_command(name: str) -> None:
    mine = [section for section in SECTIONS if re.search(rf"`punctual {name}\b", section.partition("\n")[0])]
    assert mine
    also = [section for section in SECTIONS if name == "submit" and section.startswith("`punctual run`")]
    told = set(re.findall(r"--[a-z][\w-]*", "".join([*mine, *also])))
    there = [option for words, one in commands().items() if words.split()[:1] == [name] for option in options(one)]
    assert not [option for option in there if not option & told]


def test_the_page_about_other_systems_lists_the_commands_that_they_have() -> None:
    text = (DOCS / "how-to" / "other-systems.md").read_text("utf-8")
    (listed,) = re.findall(r"^\* (`punctual simulate`.*)$", text, re.MULTILINE)
    assert {name.removeprefix("punctual ") for name in re.findall("`([^`]+)`", listed)} == FOR_ALL_SYSTEMS


def test_the_reference_names_each_field_of_a_report(tmp_path: Path) -> None:
    done = Terminal(tmp_path).punctual("run", "--json", "--", "true")
    *_, report = map(json.loads, done.stdout.splitlines())
    text = (DOCS / "reference" / "json.md").read_text("utf-8")
    assert report["type"] == "report"
    assert not [name for name in report if f"`{name}`" not in text]
