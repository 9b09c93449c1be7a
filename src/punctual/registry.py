"""Plug-ins by name: one file in the family's folder is one plug-in; other distributions add theirs by entry points.

The file ``decor_pi.py`` of the family ``controllers`` holds the class ``DecorPi``, registered as ``"decor-pi"``.
Nothing is imported before it is asked for.
"""

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from importlib.machinery import ModuleSpec
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import Any

from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.distribution import EXTRAS, install_command

#: Families that are called otherwise than their folders.
_IN_WORDS = {"traces.generators": "generators of jobs", "traces.readers": "formats of traces"}


def names(family: str) -> list[str]:
    """The registered names of `family` (``"controllers"``, ``"traces.readers"``), in alphabetical order.

    Raises
    ------
    InvalidSpec
        There is no such family.
    """
    return sorted({*_own_names(family), *_foreign(family)})


def each(family: str) -> Iterator[str]:
    """The same, ours first. Those of others are looked for only when ours are through: a file of each distribution is read.

    Raises
    ------
    InvalidSpec
        There is no such family.
    """
    yield from _own_names(family)
    yield from (name for name in names(family) if name not in _own_names(family))


def check_name(family: str, name: str) -> None:
    """Raise `InvalidSpec` unless there is a plug-in of that name; loads none."""
    if name not in _own_names(family) and name not in _foreign(family):
        raise _unknown(family, name)


def load(family: str, name: str) -> type:
    """The class registered as `name`. A name of ours cannot be taken over by another distribution.

    Raises
    ------
    InvalidSpec
        The family or the name is unknown, a library that it needs is not installed, or the plug-in of another
        distribution cannot be imported.
    """
    if name in _own_names(family):
        return _class_in(_own_module(family, name), class_name(name))
    entry_point = _foreign(family).get(name)
    if entry_point is None:
        raise _unknown(family, name)
    return _load_foreign(family, entry_point)


def maker(family: str) -> Callable[[str], Any]:
    """What makes an object of the class registered as a name in `family`, with its defaults; raises as `load` does."""
    return lambda name: load(family, name)()


def summary(family: str, name: str) -> str:
    """The first paragraph of the docstring, on one line. A plug-in of ours is read, not imported: it may need an extra."""
    if name in _own_names(family):
        docstring = ast.get_docstring(_own_class(family, name))
    else:
        docstring = inspect.getdoc(load(family, name))
    return " ".join((docstring or "").partition("\n\n")[0].split())


def parameters(family: str, name: str) -> dict[str, str]:
    """The fields of the class and their defaults, as they are written; read as `summary` is.

    Examples
    --------
    >>> parameters("policies", "fifo")["backfill"]
    'False'
    """
    if name in _own_names(family):
        fields = [node for node in _own_class(family, name).body if isinstance(node, ast.AnnAssign)]
        return {ast.unparse(node.target): ast.unparse(node.value) for node in fields if node.value is not None}
    cls = load(family, name)
    return {
        field.name: repr(field.default)
        for field in (dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else ())
        if field.default is not dataclasses.MISSING
    }


def class_name(name: str) -> str:
    """``"decor-pi"`` → ``"DecorPi"``."""
    return "".join(part.capitalize() for part in name.split("-"))


@cache  # each submission looks several plug-ins up
def _own_names(family: str) -> list[str]:
    package = _package(family)
    if package is None or package.submodule_search_locations is None:
        raise InvalidSpec(
            "a family of plug-ins must exist", f"'{family}'", "the registry", "Ask for 'controllers' or 'policies'."
        )
    modules = iter_modules(package.submodule_search_locations)
    return [module.name.replace("_", "-") for module in modules if not module.name.startswith("_")]


def _own_class(family: str, name: str) -> ast.ClassDef:
    """What is written of a plug-in of ours."""
    spec = find_spec(f"punctual.{family}.{name.replace('-', '_')}")
    tree = ast.parse(Path(str(spec and spec.origin)).read_text(encoding="utf-8"))
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == class_name(name))


def _package(family: str) -> ModuleSpec | None:
    """The folder of `family`, which may lie inside another; None if there is no such folder."""
    if not all(map(str.isidentifier, family.split("."))):
        return None
    try:
        return find_spec(f"punctual.{family}")
    except ModuleNotFoundError:
        return None


def _foreign(family: str) -> dict[str, EntryPoint]:
    return {entry_point.name: entry_point for entry_point in entry_points(group=f"punctual.{family}")}


def _own_module(family: str, name: str) -> ModuleType:
    try:
        return import_module(f"punctual.{family}.{name.replace('-', '_')}")
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] == "punctual":
            raise
        library = error.name.partition(".")[0]
        raise InvalidSpec(
            f"the plug-in needs {library}", "an installation without it", f"'{name}' of punctual.{family}",
            f"Install it: `{_install_command(library)}`.",
        ) from error  # fmt: skip


def _install_command(library: str) -> str:
    """What installs a library of ours that is missing: the others of its extra are needed as well."""
    extra = next((extra for extra, modules in EXTRAS.items() if library in modules), None)
    return f"pip install {library}" if extra is None else install_command(extra)


def _class_in(module: object, name: str) -> type:
    found = getattr(module, name)
    if not isinstance(found, type):
        raise TypeError(f"{name} is no class")
    return found


def _load_foreign(family: str, entry_point: EntryPoint) -> type:
    try:
        found = entry_point.load()
    except Exception as error:
        raise _broken(family, entry_point, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, type):
        raise _broken(family, entry_point, f"{found!r}, which is no class")
    return found


def _broken(family: str, entry_point: EntryPoint, got: str) -> InvalidSpec:
    origin = entry_point.dist.name if entry_point.dist else entry_point.value
    return InvalidSpec(
        "a plug-in must be importable as a class", got, f"'{entry_point.name}' of punctual.{family}",
        f"Repair or remove the distribution '{origin}'.",
    )  # fmt: skip


def _unknown(family: str, name: str) -> InvalidSpec:
    known = names(family)
    return InvalidSpec(
        f"the name must be one of the {_IN_WORDS.get(family, family)}", f"'{name}'", "this installation of Punctual",
        f"{did_you_mean(name, known)}Known: {', '.join(known) or 'none'}.",
    )  # fmt: skip
