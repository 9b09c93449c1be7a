"""Plug-ins by name: a file in the family's folder is a plug-in; papers and other distributions add theirs by entry points.

The file ``two_level.py`` of the family ``controllers`` holds the class ``TwoLevel``, registered as ``"two-level"``.
Nothing is imported before it is asked for.
"""

import ast
import dataclasses
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import TYPE_CHECKING, Any

from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.distribution import EXTRAS, NAME, install_command

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

#: Family -> its folder. The family's name, behind ``punctual.``, is also the group of its entry points.
_FOLDERS = {
    "controllers": "controllers",
    "convergence": "estimators.convergence",
    "models": "estimators.speed",
    "policies": "policies",
    "scaling": "sim.scaling",
    "traces.generators": "sim.traces.generators",
    "traces.readers": "sim.traces.readers",
}
#: Names of families in messages, where they are not the family's own.
_IN_WORDS = {
    "scaling": "rules of scaling",
    "traces.generators": "generators of jobs",
    "traces.readers": "formats of traces",
}


@dataclass(frozen=True, slots=True)
class _ClassPath:
    """Module and name of the class of a plug-in."""

    module: str
    class_name: str
    entry_point: "EntryPoint | None" = None

    @property
    def is_ours(self) -> bool:
        return self.module.partition(".")[0] == "punctual"


def families() -> list[str]:
    """Return the families of plug-ins, in alphabetical order."""
    return list(_FOLDERS)


def names(family: str) -> list[str]:
    """Return the registered names of `family` (``"controllers"``, ``"traces.readers"``), in alphabetical order.

    Raises
    ------
    InvalidSpec
        There is no such family.
    """
    return sorted({*_own_names(family), *_entry_points(family)})


def each(family: str) -> Iterator[str]:
    """Yield the names of the plug-ins, those of the family's folder first; entry points are read only after these.

    Raises
    ------
    InvalidSpec
        There is no such family.
    """
    yield from _own_names(family)
    yield from (name for name in names(family) if name not in _own_names(family))


def check_name(family: str, name: str) -> None:
    """Raise `InvalidSpec` unless `family` has a plug-in called `name`; load none."""
    _place(family, name)


def load(family: str, name: str) -> type:
    """Return the class registered as `name`. A name of ours cannot be taken over by another distribution.

    Raises
    ------
    InvalidSpec
        The family or the name is unknown, a library that it needs is not installed, or the plug-in of another
        distribution cannot be imported.
    """
    place = _place(family, name)
    if place.is_ours:
        found: type = getattr(_own_module(place.module, f"'{name}' of punctual.{family}"), place.class_name)
        return found
    assert place.entry_point is not None
    return _load_foreign(family, place.entry_point)


def maker(family: str) -> Callable[[str], Any]:
    """Return a function that makes an object of the class registered as a name in `family`; it raises as `load` does."""
    return lambda name: load(family, name)()


def summary(family: str, name: str) -> str:
    """Return the first paragraph of the docstring, on one line. Our plug-ins are not imported: they may need extras."""
    place = _place(family, name)
    docstring = ast.get_docstring(_class_node(place)) if place.is_ours else inspect.getdoc(load(family, name))
    return " ".join((docstring or "").partition("\n\n")[0].split())


def parameters(family: str, name: str) -> dict[str, str]:
    """Return the fields of the class and their defaults, as they are written; they are read as `summary` is.

    Examples
    --------
    >>> parameters("policies", "fifo")["backfill"]
    'False'
    """
    place = _place(family, name)
    if place.is_ours:
        return _own_parameters(place.module, place.class_name)
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
    folder = _FOLDERS.get(family)
    if folder is None:
        raise InvalidSpec(
            "a family of plug-ins must exist", f"'{family}'", "the registry", f"Ask for one of {', '.join(_FOLDERS)}."
        )
    package = find_spec(f"punctual.{folder}")
    assert package is not None
    assert package.submodule_search_locations is not None
    modules = iter_modules(package.submodule_search_locations)
    return [module.name.replace("_", "-") for module in modules if not module.name.startswith("_")]


def _place(family: str, name: str) -> _ClassPath:
    if name in _own_names(family):
        return _ClassPath(f"punctual.{_FOLDERS[family]}.{name.replace('-', '_')}", class_name(name))
    entry_point = _entry_points(family).get(name)
    if entry_point is None:
        raise _unknown(family, name)
    return _ClassPath(entry_point.module, entry_point.attr, entry_point)


def _entry_points(family: str) -> "dict[str, EntryPoint]":
    """Plug-ins that distributions declare, ours among them: the papers."""
    from importlib.metadata import entry_points  # takes longer than all the rest of this module

    found = entry_points(group=f"punctual.{family}")
    return {entry_point.name: entry_point for entry_point in sorted(found, key=_is_of_ours)}


def _is_of_ours(entry_point: "EntryPoint") -> bool:
    return entry_point.dist is not None and entry_point.dist.name == NAME


def _class_node(place: _ClassPath) -> ast.ClassDef:
    """Return the source of the class of a plug-in of ours."""
    return _class_of(_source(place.module), place.class_name)


def _own_parameters(module: str, class_name: str) -> dict[str, str]:
    """Return the fields of a class of ours with their defaults, those of its base classes first."""
    tree, parameters = _source(module), dict[str, str]()
    node = _class_of(tree, class_name)
    bases = {ast.unparse(base) for base in node.bases}
    for statement in tree.body:
        if isinstance(statement, ast.ImportFrom) and (statement.module or "").startswith("punctual."):
            for name in bases.intersection(alias.name for alias in statement.names):
                parameters |= _own_parameters(str(statement.module), name)
    fields = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    own = {ast.unparse(each.target): ast.unparse(each.value) for each in fields if each.value is not None}
    return parameters | {name: value for name, value in own.items() if not name.startswith("_")}


def _source(module: str) -> ast.Module:
    spec = find_spec(module)
    return ast.parse(Path(str(spec and spec.origin)).read_text(encoding="utf-8"))


def _class_of(tree: ast.Module, name: str) -> ast.ClassDef:
    return next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == name)


def _own_module(module: str, where: str) -> ModuleType:
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is None or error.name.partition(".")[0] == "punctual":
            raise
        library = error.name.partition(".")[0]
        raise InvalidSpec(
            f"the plug-in needs {library}", "an installation without it", where,
            f"Install it: `{_install_command(library)}`.",
        ) from error  # fmt: skip


def _install_command(library: str) -> str:
    """Return the command that installs a missing library of ours with the rest of its extra."""
    extra = next((extra for extra, modules in EXTRAS.items() if library in modules), None)
    return f"pip install {library}" if extra is None else install_command(extra)


def _load_foreign(family: str, entry_point: "EntryPoint") -> type:
    try:
        found = entry_point.load()
    except Exception as error:
        raise _broken(family, entry_point, f"{type(error).__name__}: {error}") from error
    if not isinstance(found, type):
        raise _broken(family, entry_point, f"{found!r}, which is no class")
    return found


def _broken(family: str, entry_point: "EntryPoint", got: str) -> InvalidSpec:
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
