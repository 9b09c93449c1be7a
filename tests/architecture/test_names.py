"""Names, lengths and docstrings, and that what is promised lazily is loaded lazily."""

import ast
import re
import subprocess
import sys

import pytest
from tests.architecture.source import (
    ROOT,
    Import,
    Module,
    class_name,
    defines,
    functions,
    modules,
    n_lines,
    plugins,
    registered_name,
    undocumented,
)

from punctual import registry

PURE = {"controllers", "core", "estimators", "history", "policies", "progress_text", "solvers"}
FAMILIES = ["controllers", "policies", "estimators.speed", "estimators.convergence", "sim.scaling"]
N_LINES_MAX = 70
#: A name made of one of these says nothing about its contents.
EMPTY_WORDS = {"data", "handler", "handlers", "helper", "helpers", "info", "manager", "misc", "task", "util", "utils"}
HEAVY = {"matplotlib", "numpy", "psutil", "pydantic", "rich", "torch", "typer"}
VOCABULARY = {
    "allocation", "capacity", "curve", "deadline", "demand", "forecast", "grant", "job", "laxity", "node", "phase",
    "plan", "progress", "quote", "rate", "reading", "round", "step", "tick", "usage", "work",
}  # fmt: skip


def badly_named(all_modules: list[Module]) -> list[str]:
    return [module.name for module in all_modules if EMPTY_WORDS & set(re.split(r"[._]", module.name))]


def without_class(all_modules: list[Module], family: str) -> list[str]:
    """Plug-ins whose file does not define the class of its name."""
    return [module.name for module in plugins(all_modules, family) if not defines(module, class_name(module))]


def too_long(all_modules: list[Module], n_lines_max: int = N_LINES_MAX) -> list[str]:
    return [
        f"{module.name}.{function.name}: {n_lines(function)} lines"
        for module in all_modules
        for function in functions(module)
        if n_lines(function) > n_lines_max
    ]


def loaded_by(statement: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after `statement`."""
    program = f"{statement}\nimport sys\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def glossary() -> set[str]:
    """Terms that the glossary defines: the unindented lines of its directive."""
    text = (ROOT / "docs" / "explanation" / "glossary.md").read_text(encoding="utf-8")
    (body,) = re.findall(r"^```\{glossary\}\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return {line.strip() for line in body.splitlines() if line and not line[0].isspace()}


def test_no_name_is_empty() -> None:
    assert not badly_named(modules())


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plugins_file_has_the_class_of_its_name(family: str) -> None:
    assert not without_class(modules(), family)


@pytest.mark.parametrize("family", ["controllers", "convergence", "models", "policies"])
def test_every_plugin_has_a_page(family: str) -> None:
    pages = {path.stem for path in (ROOT / "docs").rglob("*.md")}
    assert not set(registry.names(family)) - pages


def test_the_public_parts_of_pure_packages_have_docstrings() -> None:
    assert not [name for module in modules() if module.part in PURE for name in undocumented(module)]


def test_no_function_is_too_long() -> None:
    assert not too_long(modules())


def test_the_glossary_defines_the_vocabulary() -> None:
    assert not VOCABULARY - glossary()


@pytest.mark.parametrize("module", ["punctual", "punctual.api.daemon_process"], ids=["a training", "a daemon"])
def test_what_starts_with_a_job_loads_nothing_heavy(module: str) -> None:
    assert not HEAVY & loaded_by(f"import {module}")


# Each check finds what it is there to find.


def module(text: str, name: str = "punctual.core.job") -> Module:
    return Module(name, ast.parse(text))


def test_empty_names_are_found() -> None:
    found = badly_named(
        [module("", name) for name in ("punctual.core.job_utils", "punctual.data.x", "punctual.core.job")]
    )
    assert found == ["punctual.core.job_utils", "punctual.data.x"]


def test_a_missing_class_is_found() -> None:
    right = module("class TwoLevel: ...", "punctual.controllers.two_level")
    wrong = module("class Other: ...", "punctual.controllers.other_pi")
    shared = module("", "punctual.controllers._base")
    assert without_class([right, wrong, shared], "controllers") == ["punctual.controllers.other_pi"]
    assert registered_name(right) == "two-level"


def test_missing_docstrings_are_found() -> None:
    text = '"""A."""\ndef f(): ...\nclass C: ...\ndef _g(): ...\ndef h():\n    """H."""'
    assert undocumented(module(text)) == ["punctual.core.job.f", "punctual.core.job.C"]
    assert undocumented(module("")) == ["punctual.core.job"]


def test_length_leaves_the_docstring_out() -> None:
    body = "    a = 1\n" * 10
    plain = module(f"def f():\n{body}")
    documented = module(f'def f():\n    """One.\n\n    Two.\n    """\n{body}')
    assert [n_lines(f) for m in (plain, documented) for f in functions(m)] == [11, 11]
    assert too_long([plain], 10)
    assert not too_long([plain], 11)


def test_heavy_modules_are_found() -> None:
    assert "rich" in loaded_by("import rich")


def test_readings_are_told_apart() -> None:
    text = "import a\nif TYPE_CHECKING:\n    import b\ndef f():\n    import c\nclass C:\n    import d\ntry:\n    import e\nfinally: ..."
    assert list(module(text).imports()) == [
        Import("a", "top"), Import("b", "type-checking"), Import("c", "function"), Import("d", "top"),
        Import("e", "top"),
    ]  # fmt: skip
