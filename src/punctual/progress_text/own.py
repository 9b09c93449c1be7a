"""An expression of the user's own, by which progress is read.

RE2 searches: the time that it takes grows with the length of a line alone, whatever the expression. It is loaded where there is
an expression only.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from punctual.core.errors import InvalidSpec
from punctual.progress_text.lines import TextLine
from punctual.progress_text.mentions import SEPARATOR, Mention, Role, Unit

#: The pattern for reading without an expression.
AUTO = "auto"

_NAMES = ("step", "total", "epoch", "epochs")


@dataclass(frozen=True, slots=True)
class OwnPattern:
    """A compiled expression, and the numbers of its groups by what they count."""

    compiled: Any
    groups: Mapping[str, int]

    @classmethod
    def of(cls, pattern: str) -> Self:
        """Find the groups by their names; without names the first is the step and the second the total.

        Raises
        ------
        InvalidSpec
            `pattern` is no regular expression, or has no group for a step or an epoch.
        """
        compiled = _compiled(pattern)
        names = compiled.groupindex
        if not compiled.groups:
            raise _without_group(f"{pattern!r}, which has none")
        groups = {name: names[name] for name in _NAMES if name in names}
        groups = groups or {name: i for i, name in enumerate(_NAMES[: min(2, compiled.groups)], start=1)}
        if not {"step", "epoch"} & groups.keys():
            raise _without_group(f"{pattern!r}, whose groups are {', '.join(map(repr, names))}")
        return cls(compiled, groups)

    @property
    def may_tell_total(self) -> bool:
        """Whether a line that matches may have a total."""
        return not {"total", "epochs"}.isdisjoint(self.groups)

    def mentions(self, line: TextLine) -> tuple[Mention, ...]:
        """Return the counts of the first match in a line; one that is incomplete must go on behind the match."""
        text = line.text.encode()
        for match in self.compiled.finditer(text):
            if line.is_complete or match.end() < len(text):
                return self._counts(match)
        return ()

    def _counts(self, match: Any) -> tuple[Mention, ...]:
        """Return the counts of a match; a text that is no number counts nothing."""
        numbers = {name: _number(match[i_group]) for name, i_group in self.groups.items()}
        of_steps = Unit.BATCH if "epoch" in self.groups else Unit.STEP
        return tuple(
            Mention(template="", unit=unit, role=Role.TRAINING, step=step, total=numbers.get(of_all), is_own=True)
            for unit, name, of_all in ((Unit.EPOCH, "epoch", "epochs"), (of_steps, "step", "total"))
            if (step := numbers.get(name)) is not None
        )


def _compiled(pattern: str) -> Any:
    import re2

    options = re2.Options()
    options.log_errors = False
    # An expression of more states could take milliseconds for a line of 100 characters: 5 ns a state and character.
    n_states_max = 10_000
    try:
        compiled = re2.compile(pattern, options)
        if compiled.programsize <= n_states_max:
            return compiled
        problem = f"{compiled.programsize:,} states, more than {n_states_max:,}"
    except re2.error as error:
        problem = error.args[0].decode(errors="replace")
    except UnicodeError:
        problem = "it is no UTF-8"
    raise InvalidSpec(
        "the progress pattern must be a regular expression as RE2 has it",
        f"{pattern[:200]!r} ({problem[:200]})",
        "`--progress-regex`",
        r"RE2 has no lookaround (`(?=`), no backreferences (`\1`), no possessive repetition (`a++`), and `$` for `\Z`; see "
        "https://github.com/google/re2/wiki/Syntax. Try the expression on a log: `punctual read FILE`.",
    )


def _number(text: bytes | None) -> int | None:
    digits = SEPARATOR.sub("", (text or b"").decode("utf-8", "replace"))
    return int(digits) if digits.isdecimal() and len(digits) <= 18 else None


def _without_group(got: str) -> InvalidSpec:
    return InvalidSpec(
        "the progress pattern must be a regular expression with a group for the step, or for the epoch",
        got,
        "`--progress-regex`",
        r"Write for example 'step (?P<step>\d+)/(?P<total>\d+)', or `auto`; try it on a log: `punctual read FILE`.",
    )
