"""What the documentation, and what the source says of itself, names is there."""

import ast
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.architecture.source import PACKAGE, ROOT

PAGES = [ROOT / "README.md", ROOT / "SECURITY.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: Folders that a path may be given from.
_BASES = (ROOT, ROOT / "docs", PACKAGE.parent, PACKAGE)
_PATH = re.compile(r"\b(?:(?:src|tests|bench|docs)/[\w./-]*\w|(?:\w+/)+\w+\.py)\b")
_DOTTED = re.compile(r"(?<![\w.])punctual(?:\.[A-Za-z_]\w*)+")
#: In docstrings and comments; without the backticks imports would be looked up too.
_QUOTED = re.compile(r"`punctual\.[\w.]+`")


def missing_paths(text: str, page: Path) -> list[str]:
    """Files and folders that the text names and that are not there."""
    return [path for path in _PATH.findall(text) if not any((base / path).exists() for base in (*_BASES, page.parent))]


def missing_names(text: str) -> list[str]:
    """Modules, and what is in them, that the text names and that are not there."""
    return [name for name in _DOTTED.findall(text) if not _exists(name)]


def _exists(name: str) -> bool:
    """Whether `name` is a module, or can be had from one, attribute by attribute."""
    parts = name.split(".")
    return any(_has(".".join(parts[:i]), parts[i:]) for i in range(len(parts), 0, -1))


def _has(module: str, attributes: list[str]) -> bool:
    if module.startswith("punctual.integrations."):  # its library may be missing, and takes long to import
        return _file_has(PACKAGE.parent / f"{module.replace('.', '/')}.py", attributes)
    try:
        value: object = importlib.import_module(module)
        for attribute in attributes:
            value = getattr(value, attribute)
    except (ImportError, AttributeError):
        return False
    return True


def _file_has(path: Path, attributes: list[str]) -> bool:
    if not path.exists():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {*attributes[:1]} <= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _complaints() -> Iterator[str]:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for name in (*missing_paths(text, page), *missing_names(text)):
            yield f"{page.relative_to(ROOT)}: {name}"


def quoted(source: str) -> str:
    """What a module names in backticks."""
    return " ".join(_QUOTED.findall(source))


def test_what_pages_name_is_there() -> None:
    assert not list(_complaints())


def test_what_docstrings_and_comments_name_is_there() -> None:
    modules = {path: quoted(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    assert sum(map(bool, modules.values())) > 10
    assert not [(path.name, name) for path, text in modules.items() for name in missing_names(text)]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see `src/punctual/core/nothing.py` and `core/scheduler.py`", ["src/punctual/core/nothing.py"]),
        ("`tests/architecture` and `daemon/host.py`, `daemon/hosts.py`.", ["daemon/hosts.py"]),
    ],
)
def test_missing_files_are_found(text: str, missing: list[str]) -> None:
    assert missing_paths(text, ROOT / "README.md") == missing


def test_missing_names_of_a_docstring_are_found() -> None:
    source = (
        "import punctual.core.imported\ndef f(): '''See `punctual.core.job.JobSpec` and `punctual.core.job.Nothing`.'''"
    )
    assert missing_names(quoted(source)) == ["punctual.core.job.Nothing"]


def test_missing_names_are_found() -> None:
    text = "`punctual.track`, punctual.core.answers.unknown_job, punctual.core.nothing and `punctual.nothing`,"
    text += " punctual.integrations.lightning.LightningCallback, punctual.integrations.lightning.nothing"
    missing = ["punctual.core.nothing", "punctual.nothing", "punctual.integrations.lightning.nothing"]
    assert missing_names(text) == missing
