"""What the source says about itself, read without running it."""

import ast
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "punctual"

Function = ast.FunctionDef | ast.AsyncFunctionDef
#: When Python executes an import: always, never, or when a function is called.
Reading = Literal["top", "type-checking", "function"]


@dataclass(frozen=True, slots=True)
class Import:
    """One module asks for another."""

    target: str
    reading: Reading


@dataclass(frozen=True, slots=True)
class Module:
    """A module's name and its syntax tree."""

    name: str
    tree: ast.Module
    is_package: bool = False

    @property
    def part(self) -> str:
        """The part of the house it belongs to: ``core``, ``channel``; the root package is the empty string."""
        return self.name.split(".")[1] if "." in self.name else ""

    @cache  # noqa: B019 -- a process reads the same few hundred modules again and again, and then ends
    def nodes(self) -> tuple[ast.AST, ...]:
        """All nodes of the tree: to walk through it takes longer than to look at each node."""
        return tuple(ast.walk(self.tree))

    @cache  # noqa: B019 -- the same
    def imports(self) -> tuple[Import, ...]:
        """All imports; of ``from a import b`` both `a.b` and `a`, because `b` may be a module."""
        return tuple(self._imports_in(self.tree, "top"))

    def _imports_in(self, node: ast.AST, reading: Reading) -> Iterator[Import]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Import):
                yield from (Import(alias.name, reading) for alias in child.names)
            elif isinstance(child, ast.ImportFrom):
                base = self._base(child)
                yield from (Import(f"{base}.{alias.name}", reading) for alias in child.names)
                yield Import(base, reading)
            else:
                yield from self._imports_in(child, _reading_inside(child, reading))

    def _base(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parents = self.name.split(".")
        above = parents[: len(parents) - node.level + self.is_package]
        return ".".join([*above, *([node.module] if node.module else [])])


def _reading_inside(node: ast.AST, outside: Reading) -> Reading:
    if isinstance(node, Function | ast.Lambda):
        return "function"
    if outside == "top" and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return "type-checking"
    return outside


@cache
def modules(package: Path = PACKAGE) -> list[Module]:
    """Every module below `package`, which is named by its folder. Tests ask for it when they run: it takes some seconds."""
    return [_module(path, package) for path in sorted(package.rglob("*.py"))]


def _module(path: Path, package: Path) -> Module:
    parts = path.relative_to(package.parent).with_suffix("").parts
    is_package = parts[-1] == "__init__"
    name = ".".join(parts[:-1] if is_package else parts)
    return Module(name, ast.parse(path.read_text(encoding="utf-8"), str(path)), is_package)


def own_imports(all_modules: Iterable[Module]) -> dict[str, set[str]]:
    """Module -> modules of ours that it asks for, in any reading.

    Of ``from a.b import c`` only the deepest module counts: that `a` is executed on the way is no wish of the importer.
    """
    listed = list(all_modules)
    names = {module.name for module in listed}
    return {module.name: _deepest({found.target for found in module.imports()} & names) for module in listed}


def _deepest(targets: set[str]) -> set[str]:
    return {target for target in targets if not any(other.startswith(f"{target}.") for other in targets)}


def cycles(graph: Mapping[str, set[str]]) -> list[set[str]]:
    """Largest groups of modules that need each other, and modules that need themselves."""
    reached = {name: reachable(graph, name) for name in graph}
    groups = {
        frozenset(other for other in reached[name] if name in reached[other]) for name in graph if name in reached[name]
    }
    return sorted((set(group) for group in groups), key=sorted)


def reachable(graph: Mapping[str, set[str]], start: str) -> set[str]:
    """Return what the edges from `start` lead to; `start` itself only where a way leads back."""
    seen: set[str] = set()
    waiting = [start]
    while waiting:
        new = graph.get(waiting.pop(), set()) - seen
        seen |= new
        waiting.extend(new)
    return seen


def functions(module: Module) -> Iterator[Function]:
    """All functions and methods, those inside others too."""
    return (node for node in module.nodes() if isinstance(node, Function))


def n_lines(function: Function) -> int:
    """Lines of a function, without decorators and docstring."""
    body = function.body[1:] if ast.get_docstring(function) is not None else function.body
    if not body:
        return 1
    return (function.end_lineno or 0) - body[0].lineno + 1 + (function.body[0].lineno - function.lineno)


def undocumented(module: Module) -> list[str]:
    """Public functions and classes of a module that have no docstring, and the module itself."""
    public = (n for n in module.tree.body if isinstance(n, Function | ast.ClassDef) and not n.name.startswith("_"))
    missing = [f"{module.name}.{node.name}" for node in public if not ast.get_docstring(node)]
    return missing if ast.get_docstring(module.tree) else [module.name, *missing]


def class_name(module: Module) -> str:
    """The class that a plug-in's file must define: `earliest_deadline` -> `EarliestDeadline`."""
    return "".join(word.capitalize() for word in module.name.rpartition(".")[2].split("_"))


def defines(module: Module, name: str) -> bool:
    return any(isinstance(node, ast.ClassDef) and node.name == name for node in module.tree.body)


def plugins(all_modules: Iterable[Module], family: str) -> list[Module]:
    """Modules of a family that are plug-ins; those with an underscore are shared between them."""
    prefix = f"punctual.{family}."
    return [m for m in all_modules if m.name.startswith(prefix) and not m.name.removeprefix(prefix).startswith("_")]


def registered_name(module: Module) -> str:
    return module.name.rpartition(".")[2].replace("_", "-")
