"""First lines of docstrings begin with a verb in the imperative, or name a value."""

import ast
import re

from tests.architecture.source import Function, Module, modules

#: A line that begins so has lost its subject, or begins in the middle of a sentence.
OPENINGS = re.compile(
    r"(what|whatever|who|whoever|whom|which|those|there (is|are|was|were)|as it (is|was)|how|where|when|if|the same|"
    r"one of|all that|nobody|somebody|anything|everything|nothing|no|of|from|by|to|with|on|in|for)\b",
    re.IGNORECASE,
)


def riddles(all_modules: list[Module]) -> list[str]:
    """First lines of docstrings with a forbidden opening, with their places."""
    return [
        f"{module.name}.{getattr(node, 'name', '')}: {first_line}"
        for module in all_modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Module | ast.ClassDef | Function)
        and OPENINGS.match(first_line := (ast.get_docstring(node) or "").partition("\n")[0])
    ]


def test_docstrings_begin_with_a_verb_or_a_value() -> None:
    assert not riddles(modules())


def test_riddles_are_found() -> None:
    text = '''"""Whole workers."""
class A:
    """What is left."""
    def f(self):
        """Return what is left."""
        def g():
            """There is none."""
def whether():
    """Whether it is there."""
'''
    found = riddles([Module("punctual.core.job", ast.parse(text))])
    assert found == ["punctual.core.job.A: What is left.", "punctual.core.job.g: There is none."]
