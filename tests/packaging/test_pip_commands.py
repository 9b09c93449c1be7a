"""Each command that installs something, wherever we print it, installs what it says: never a stranger's program."""

import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.architecture.source import PACKAGE, ROOT

from punctual import distribution
from punctual.core.errors import InvalidSpec

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
#: Extras that a user of Punctual has no use for, or that are made of others.
_NOT_FOR_USERS = {"adapters", "all", "dev", "docs"}
_WORD = r"(?:'[^'\n]*'|[\w./\[\]{}<>=!,:-]+)"
_COMMAND = re.compile(rf"(?:\bpip3?|\buv tool) install((?:(?: |\s*\\\n\s*){_WORD})+)")
_OPTIONS_WITH_VALUE = {"-c", "--index-url", "--extra-index-url", "--index-strategy", "--target"}
#: Where a name in braces stands for a name that is not ours.
_PLACEHOLDER = re.compile(r"\{\w+\}")


def canonical(requirement: str) -> str:
    """The library of a requirement, without versions, parts and markers."""
    return re.split(r"[\[<>=!~; ]", requirement)[0].lower().replace("_", "-")


EXTRAS = {name: [canonical(one) for one in ones] for name, ones in PROJECT["optional-dependencies"].items()}
LIBRARIES = {canonical(one) for one in PROJECT["dependencies"]}.union(*EXTRAS.values()) - {PROJECT["name"]}


def printed_in() -> Iterator[Path]:
    """Every file that a user may read, or be told a part of."""
    yield from (
        ROOT / name for name in ("README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "Containerfile")
    )
    for folder, endings in ((ROOT / "docs", ("md",)), (PACKAGE, ("py", "js", "html")), (ROOT / "bench", ("py",))):
        yield from (path for ending in endings for path in sorted(folder.rglob(f"*.{ending}")))


def installed_by(text: str) -> Iterator[list[str]]:
    """What each command in `text` installs."""
    for match in _COMMAND.finditer(text):
        words = iter(shlex.split(match[1].replace("\\\n", " ")))
        installed = []
        for word in words:
            if word in _OPTIONS_WITH_VALUE:
                next(words, None)
            elif not word.startswith("-"):
                installed.append(word if word == "." else word.rstrip(".,:"))
                if word != "." and word.endswith((".", ",", ":")):
                    break  # the sentence around it goes on
        yield installed


def fault_of(installed: list[str]) -> str:
    """Why a command must not be printed; empty if it may."""
    if not installed:
        return "it installs nothing"
    paths = [word for word in installed if word.startswith((".", "/"))]
    for path in paths:
        parts = re.findall(r"\[(.*)\]", path)
        unknown = {extra for part in parts for extra in part.split(",")} - EXTRAS.keys()
        if unknown:
            return f"there is no extra {unknown}"
    libraries = [canonical(word) for word in installed if word not in paths and not _PLACEHOLDER.match(word)]
    unknown = set(libraries) - LIBRARIES
    if unknown:
        return f"{unknown} is no library of ours"
    if len(libraries) > 1 and sorted(libraries) not in [sorted(extra) for extra in EXTRAS.values()]:
        return f"{libraries} are the libraries of no extra"
    return ""


def test_every_command_that_is_printed_installs_what_it_says() -> None:
    found = [(path, words) for path in printed_in() for words in installed_by(path.read_text(encoding="utf-8"))]
    assert len(found) > 15
    assert not [(str(path.relative_to(ROOT)), words, fault) for path, words in found if (fault := fault_of(words))]


@pytest.mark.parametrize(
    "command",
    [
        "pip install punctual",
        "pip install 'punctual[service]'",
        "pip install -U 'punctual==0.1.0'",
        "`pip install punctual-training`",
        "pip install fastapi uvicorn punctual",
        "pip install '.[nothing]'",
        "uv tool install punctual",
        "pip install fastapi sqlalchemy",
    ],
)
def test_a_command_that_would_install_something_else_is_found(command: str) -> None:
    faults = [fault_of(words) for words in installed_by(f"Run it ({command}), then go on.")]
    assert faults
    assert all(faults)


def test_no_package_is_told_to_depend_on_a_stranger() -> None:
    texts = [path.read_text(encoding="utf-8") for path in printed_in()]
    extra_of_stranger = re.compile(rf"(?<!/)\bpunctual\[({'|'.join(EXTRAS)})\b")
    assert not [match[0] for text in texts for match in extra_of_stranger.finditer(text)]
    needed = [requirement for text in texts for requirement in re.findall(r"dependencies = \[(.*?)\]", text)]
    assert needed
    assert not [one for one in needed if re.search(r"\"punctual(?!-training)", one)]


@pytest.mark.parametrize("extra", sorted(EXTRAS.keys() - _NOT_FOR_USERS))
def test_who_lacks_an_extra_is_told_its_libraries_as_the_project_declares_them(
    extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.distribution.find_spec", lambda name: None)
    with pytest.raises(InvalidSpec) as refused:
        distribution.check_extras("a test", extra)
    (installed,) = installed_by(refused.value.remedy)
    assert sorted(map(canonical, installed)) == sorted(EXTRAS[extra])


def test_the_modules_of_each_extra_are_those_of_its_libraries() -> None:
    assert distribution.EXTRAS.keys() == EXTRAS.keys() - _NOT_FOR_USERS
    of_module = packages_distributions()
    for extra, modules in distribution.EXTRAS.items():
        assert len(modules) == len(EXTRAS[extra])
        for module in modules:
            distributions = {canonical(name) for name in of_module.get(module.partition(".")[0], EXTRAS[extra])}
            assert distributions & set(EXTRAS[extra]), f"{module} is of no library of `{extra}`"


def test_where_nothing_is_installed_the_command_is_that_of_the_folder() -> None:
    program = """
from importlib import metadata
def unknown(name):
    raise metadata.PackageNotFoundError(name)
metadata.requires = unknown
from punctual.distribution import install_command
print(install_command("service"))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "pip install '.[service]'\n"


def test_the_distribution_has_its_own_name_and_the_version_of_the_source() -> None:
    assert PROJECT["name"] == distribution.NAME != "punctual"
    assert PROJECT["scripts"] == {"punctual": "punctual.cli:main"}
    import punctual

    assert punctual.__version__ == distribution.__version__
