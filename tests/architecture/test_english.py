"""First lines of docstrings begin with a verb in the imperative, or name a value."""

import ast
import re
from itertools import pairwise

from tests.architecture.source import Function, Module, modules

#: Papers and simulations tell of numbers, not of the reader's jobs; the training side needs the standard library alone; and an
#: error repeats what was given.
FREE_TO_FORMAT = {"papers", "sim", "elastic_training", "integrations"}
ECHOES = {"punctual.core.job": "self.deadline_s", "punctual.daemon.host_options": "self.lost_after_s"}

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
        for node in module.nodes()
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


def seconds_by_hand(all_modules: list[Module]) -> list[str]:
    """Texts that write seconds themselves, ``f"{late_s:.1f} s late"``, with their modules."""
    return [
        f"{module.name}: {ast.unparse(value.value)}"
        for module in all_modules
        if module.part not in FREE_TO_FORMAT and module.name != "punctual.core.units"
        for node in module.nodes()
        if isinstance(node, ast.JoinedStr)
        for value, after in pairwise([*node.values, ast.Constant("")])
        if isinstance(value, ast.FormattedValue) and isinstance(after, ast.Constant)
        and re.match(r" (s|seconds)\b", str(after.value)) and ECHOES.get(module.name) != ast.unparse(value.value)
    ]  # fmt: skip


def test_durations_are_written_in_the_same_words_everywhere() -> None:
    assert not seconds_by_hand(modules())


def test_seconds_by_hand_are_found() -> None:
    text = (
        'a = f"lands {late_s:.1f} s late"\nb = f"{n} steps, {lasts:g} seconds"\nc = f"{n} seeds, {span(late_s)} late"'
    )
    found = seconds_by_hand([Module("punctual.core.job", ast.parse(text))])
    assert found == ["punctual.core.job: late_s", "punctual.core.job: lasts"]
