"""Who may import whom. Reads every import: at the top, under TYPE_CHECKING and inside functions."""

import ast
import sys
from dataclasses import replace

import pytest
from tests.architecture.source import Module, cycles, modules, own_imports, plugins, undocumented

from punctual import registry

PURE = {"controllers", "core", "estimators", "history", "policies", "progress_text", "solvers"}
#: Families whose plug-ins are pure, whoever brings them.
PURE_FAMILIES = ["controllers", "convergence", "models", "policies"]
#: Folders of which each file is a plug-in.
FAMILIES = ["controllers", "policies", "estimators.speed", "estimators.convergence", "sim.scaling"]
IMPURE_MODULES = {
    "asyncio", "datetime", "io", "logging", "os", "pathlib", "random", "socket", "subprocess", "threading", "time",
    "uuid",
}  # fmt: skip

#: Part of the house -> the complete list of other parts it may import.
USES = {
    "core": set(),
    "solvers": {"core"},
    "estimators": {"core", "solvers"},
    "controllers": {"core"},
    "policies": {"core", "solvers"},
    "history": {"core", "request"},
    "progress_text": {"core"},
    "distribution": {"core"},
    "registry": {"core", "distribution"},
    "channel": set(),
    "request": {"channel", "core", "progress_text", "registry"},
    "sim": {"core", "daemon", "distribution", "history", "journal", "registry", "request"},
    "daemon": {"channel", "core", "distribution", "executors", "history", "journal", "registry", "request"},
    "executors": {"channel", "core", "progress_text"},
    "journal": {"core"},
    "api": {
        "client",
        "core",
        "daemon",
        "distribution",
        "executors",
        "history",
        "journal",
        "registry",
        "request",
        "sim",
    },
    "client": {"core", "daemon", "distribution", "request"},
    "papers": {
        "controllers",
        "core",
        "daemon",
        "estimators",
        "history",
        "policies",
        "registry",
        "request",
        "sim",
        "solvers",
    },
    "tracking": {"channel"},
    "elastic_training": {"channel", "tracking"},
    # One of them asks the job's host how the job stands, as other processes of the user do.
    "integrations": {"channel", "daemon", "elastic_training", "tracking"},
    "testing": {"core", "daemon", "executors", "sim"},
    "": {"client", "distribution", "elastic_training", "integrations", "sim", "tracking"},
    "__main__": {"cli"},
}
#: The command line puts everything together.
FREE = {"cli"}


def outside_list(all_modules: list[Module]) -> list[str]:
    """Imports between parts of the house that the design does not have."""
    graph = own_imports(all_modules)
    parts = {module.name: module.part for module in all_modules}
    return sorted(
        f"{name} -> {target}"
        for name, targets in graph.items()
        for target in targets
        if parts[name] not in FREE | {parts[target]} and parts[target] not in USES[parts[name]]
    )


def impure(all_modules: list[Module]) -> list[str]:
    """Imports that a pure module must not have."""
    return sorted(
        {
            f"{module.name} -> {found.target}"
            for module in all_modules
            if module.part in PURE
            for found in module.imports()
            if found.target.split(".")[0] in IMPURE_MODULES
        }
    )


def acquainted(all_modules: list[Module], family: str) -> list[str]:
    """Plug-ins of a family that import each other."""
    names = {module.name for module in plugins(all_modules, family)}
    graph = own_imports(all_modules)
    return sorted(f"{name} -> {target}" for name in names for target in graph[name] & names)


def foreign(all_modules: list[Module], part: str, allowed: set[str]) -> list[str]:
    """Imports at the top of a part's modules that are neither ours nor `allowed` nor of the standard library."""
    known = set(sys.stdlib_module_names) | allowed | {"punctual"}
    return sorted(
        f"{module.name} -> {found.target}"
        for module in all_modules
        if module.part == part
        for found in module.imports()
        if found.reading == "top" and found.target.split(".")[0] not in known
    )


def made_up(**sources: str) -> list[Module]:
    """Modules from source text; two underscores in a keyword stand for a dot."""
    return [Module(f"punctual.{name.replace('__', '.')}", ast.parse(text)) for name, text in sources.items()]


def test_every_part_has_its_place() -> None:
    assert {module.part for module in modules()} <= set(USES) | FREE


def test_each_part_uses_only_what_the_design_lists() -> None:
    assert not outside_list(modules())


def test_pure_packages_are_pure() -> None:
    assert not impure(modules())


def pure_papers() -> set[str]:
    """Modules of papers that plug-ins of pure families are made of."""
    graph, found = own_imports(modules()), set[str]()
    waiting = [registry.load(family, name).__module__ for family in PURE_FAMILIES for name in registry.names(family)]
    while waiting:
        if (name := waiting.pop()).startswith("punctual.papers.") and name not in found:
            found.add(name)
            waiting.extend(graph[name])
    return found


def test_papers_policies_and_controllers_are_pure() -> None:
    names = pure_papers()
    assert {"punctual.papers.smd.smd", "punctual.papers.smd.sum_of_ratios"} <= names
    made_of = [module for module in modules() if module.name in names]
    assert not impure([replace(module, name=f"punctual.policies.{module.name}") for module in made_of])
    assert not [name for module in made_of for name in undocumented(module)]
    allowed = {*PURE, "papers"}
    assert not [t for n in names for t in own_imports(modules())[n] if t.split(".")[1] not in allowed]


def test_no_module_needs_itself_in_any_reading() -> None:
    assert not cycles(own_imports(modules()))


@pytest.mark.parametrize("family", FAMILIES)
def test_plugins_of_a_family_do_not_know_each_other(family: str) -> None:
    assert not acquainted(modules(), family)


@pytest.mark.parametrize("part", ["tracking", "channel"])
def test_the_training_side_needs_only_the_standard_library(part: str) -> None:
    assert not foreign(modules(), part, set())


def test_elastic_training_needs_only_torch_besides() -> None:
    assert not foreign(modules(), "elastic_training", {"torch"})


def test_nothing_needs_the_tests() -> None:
    assert not [m.name for m in modules() for found in m.imports() if found.target.split(".")[0] == "tests"]


def test_only_the_command_that_repeats_experiments_knows_papers() -> None:
    graph = own_imports(modules())
    outside = {name: targets for name, targets in graph.items() if not name.startswith("punctual.papers")}
    knowing = {name for name, targets in outside.items() if any(t.startswith("punctual.papers") for t in targets)}
    assert knowing == {"punctual.cli.reproduce"}


# Each check finds what it is there to find.


@pytest.mark.parametrize(
    "text",
    [
        "import punctual.daemon.live",
        "from punctual.daemon import live",
        "from punctual.daemon.live import Runtime",
        "from ..daemon import live",
        "def f():\n    from punctual.daemon.live import Runtime",
        "if TYPE_CHECKING:\n    from punctual.daemon.live import Runtime",
    ],
)
def test_an_import_against_the_design_is_found(text: str) -> None:
    assert outside_list(made_up(core__job=text, daemon__live="")) == ["punctual.core.job -> punctual.daemon.live"]


@pytest.mark.parametrize(
    "text", ["import time", "from os import path", "def f():\n    import random", "import os.path"]
)
def test_an_impure_import_is_found(text: str) -> None:
    assert impure(made_up(core__job=text))
    assert not impure(made_up(daemon__live=text))


def test_cycles_are_found() -> None:
    lazy = "def f():\n    from punctual.core import a"
    found = cycles(own_imports(made_up(core__a="from punctual.core import b", core__b=lazy, core__c="import os")))
    assert found == [{"punctual.core.a", "punctual.core.b"}]


def test_acquainted_plugins_are_found() -> None:
    one = "from punctual.policies import other, _base"
    found = acquainted(made_up(policies__one=one, policies__other="", policies___base=""), "policies")
    assert found == ["punctual.policies.one -> punctual.policies.other"]


def test_foreign_imports_are_found() -> None:
    text = "import os\nimport numpy as np\ndef f():\n    import torch"
    assert foreign(made_up(tracking__track=text), "tracking", set()) == ["punctual.tracking.track -> numpy"]
