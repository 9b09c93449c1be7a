"""Cache keys: a result is reused only if inputs and code are unchanged."""

import hashlib
import inspect
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from punctual.distribution import __version__

#: Parts of the code that affect a simulation; displays, drawings and live executors with their files do not.
_PARTS = (
    "core",
    "solvers",
    "estimators",
    "controllers",
    "policies",
    "papers",
    "history",
    "distribution.py",
    "registry.py",
    "request",
    "daemon",
    "sim",
)

_DRAWINGS = Path(__file__).parent / "drawing"


def of_file(path: Path) -> str:
    """SHA-256 of the file's contents."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def of_values(values: Iterable[object]) -> str:
    """Return the SHA-256 of values whose `repr` is complete."""
    digest = hashlib.sha256()
    for value in values:
        digest.update(f"{value!r}\n".encode("utf-8", "surrogatepass"))
    return digest.hexdigest()


def of_tables(path: Path) -> str:
    """A hash of the file `path`, or of all files below it, with their names."""
    if path.is_file():
        return of_file(path)
    return _of_files(path, sorted(below for below in path.rglob("*") if below.is_file()))


@cache
def of_program() -> str:
    """Punctual's version, and a hash of the source of everything that takes part in a simulation."""
    home = Path(__file__).parents[1]
    return f"{__version__}+{_of_files(home, _sources(home))}"


def of_plug_in(kind: type) -> str:
    """Return the hash of the file that defines `kind`; empty for Punctual's own, which `of_program` covers."""
    if kind.__module__.startswith("punctual."):
        return ""
    path = inspect.getsourcefile(kind)
    return of_file(Path(path)) if path else ""


def _sources(home: Path) -> Iterable[Path]:
    for part in _PARTS:
        files = sorted((home / part).rglob("*.py")) if (home / part).is_dir() else [home / part]
        yield from (path for path in files if _DRAWINGS not in path.parents)


def _of_files(home: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in paths:
        digest.update(f"{path.relative_to(home).as_posix()}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]
