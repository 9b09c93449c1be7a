"""An expression of the user's own, by which progress is read.

RE2 searches: the time that it takes grows with the length of a line alone, whatever the expression. It is loaded where there is
an expression only.
"""

from dataclasses import dataclass
from typing import Any, Self

from punctual.core.errors import InvalidSpec
from punctual.progress_text.lines import LineSplitter, TextLine
from punctual.progress_text.mentions import SEPARATOR, Mention, Role, Unit
from punctual.progress_text.reader import ProgressReader

#: The pattern for reading without an expression.
AUTO = "auto"

#: A line, and the counts in it.
SearchedLine = tuple[TextLine, tuple[Mention, ...]]

_NAMES = ("step", "total", "epoch", "epochs")
#: After so many lines without a match the user is told.
_N_UNMATCHED_MAX = 50


@dataclass(frozen=True, slots=True)
class OwnPattern:
    """A compiled expression, and the numbers of its groups; None for a group that it does not have."""

    compiled: Any
    step: int | None
    total: int | None
    epoch: int | None
    epochs: int | None

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
        named = {name: names.get(name) for name in _NAMES}
        if not any(named.values()):
            named |= {"step": 1, "total": 2 if compiled.groups > 1 else None}
        if named["step"] is None and named["epoch"] is None:
            raise _without_group(f"{pattern!r}, whose groups are {', '.join(map(repr, names))}")
        return cls(compiled, **named)

    @property
    def may_tell_total(self) -> bool:
        """Whether a line that matches may have a total."""
        return self.total is not None or self.epochs is not None

    def mentions(self, line: TextLine) -> tuple[Mention, ...]:
        """Return the counts of the first match in a line; one that is incomplete must go on behind the match."""
        text = line.text.encode()
        for match in self.compiled.finditer(text):
            if line.is_complete or match.end() < len(text):
                return self._counts(match)
        return ()

    def _counts(self, match: Any) -> tuple[Mention, ...]:
        """Return the counts of a match; a text that is no number counts nothing."""
        step, total, epoch, epochs = (
            None if i_group is None else _number(match[i_group])
            for i_group in (self.step, self.total, self.epoch, self.epochs)
        )
        mentions = []
        if epoch is not None:
            mentions.append(_mention(Unit.EPOCH, epoch, epochs))
        if step is not None:
            mentions.append(_mention(Unit.BATCH if self.epoch is not None else Unit.STEP, step, total))
        return tuple(mentions)


class OwnOutput:
    """Searches the output of a job and passes the matches to a reader."""

    def __init__(self, pattern: OwnPattern) -> None:
        self._pattern = pattern
        self._splitters: dict[int, LineSplitter] = {}
        self._n_unmatched = 0
        self._complaint = ""

    def search(self, output: bytes, stream: int) -> list[SearchedLine]:
        """Search the lines of a piece of output of one stream; to be called in the order of the output."""
        # Longest line that is searched whole; of a longer one, the beginning and the end are searched.
        splitter = self._splitters.setdefault(stream, LineSplitter(1 << 20))
        # A longer line is searched when it is complete: one that grows is not to be searched again with every piece.
        lines = [line for line in splitter.feed(output) if line.is_complete or len(line.text) <= 4096]
        return [(line, self._pattern.mentions(line)) for line in lines]

    def feed(self, reader: ProgressReader, lines: list[SearchedLine], at: float) -> bool:
        """Pass what was found to the reader; return whether its belief has changed."""
        has_changed = False
        for line, mentions in lines:
            if mentions:
                has_changed = reader.take(mentions, line.text, at) or has_changed
            self._count(line.text, is_match=bool(mentions), is_complete=line.is_complete)
        return has_changed

    def _count(self, text: str, *, is_match: bool, is_complete: bool) -> None:
        if is_match:
            self._n_unmatched = -1
        elif self._n_unmatched >= 0 and is_complete:
            self._n_unmatched += 1
            if self._n_unmatched == _N_UNMATCHED_MAX:
                self._complaint = (
                    f"`--progress-regex` fits none of the first {_N_UNMATCHED_MAX} lines, the last of which is "
                    f"{text.strip()[:80]!r}: how far the job is is not known, and it goes on at full speed; "
                    "try the expression on a log of the program (`punctual read FILE --progress-regex ...`)"
                )

    def new_complaint(self) -> str:
        """Return the warning that no line matches, once; empty otherwise."""
        complaint, self._complaint = self._complaint, ""
        return complaint


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


def _mention(unit: Unit, step: int, total: int | None) -> Mention:
    return Mention(
        template="",
        unit=unit,
        role=Role.TRAINING,
        step=step,
        total=total,
        is_own=True,
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
