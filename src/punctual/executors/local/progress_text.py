"""Progress of programs that cannot be changed, read from what they write."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from punctual.core.errors import InvalidSpec
from punctual.executors.local.own_pattern import Line, OwnPattern

_DIGITS = r"[0-9]{1,18}"
#: tqdm's bar, with the rate in brackets behind the count; then the words that people write themselves. The time both
#: take grows with the length of a line and not with its square: each repetition has a limit, and no number begins in
#: the middle of another.
_BAR = rf"(?<![0-9])(?P<step>{_DIGITS})/(?P<total>{_DIGITS}) \["
_WORD = r"(?i:\b(?:step|iter|iteration|batch))[ :=#]{0,16}"
_OF_TOTAL = rf"\s{{0,16}}(?:/|of)\s{{0,16}}(?P<total>{_DIGITS})(?![0-9])"
_USUAL = (_BAR, rf"{_WORD}(?P<step>{_DIGITS})(?![0-9])(?:{_OF_TOTAL})?")
_LINE_END = re.compile(rb"[\r\n]")
#: What is looked at of a line, in bytes: its end. The time that a pattern of the user's own takes may grow with a power of it.
_LINE_BYTES_MAX, _OWN_LINE_BYTES_MAX = 4096, 1024
#: What a number consists of; the first one of a line that was cut may have lost its beginning.
_NUMERALS = b"0123456789,_"
_N_DIGITS_MAX = 18


@dataclass(frozen=True, slots=True)
class Count:
    """What a line says; `total` None: it does not say."""

    step: int
    total: int | None


class ProgressText:
    """Finds the latest count in a stream of bytes.

    A bar is redrawn after a carriage return, which therefore ends a line as well. A bar that starts again (one for
    each epoch) goes on counting where the last one stood.

    Parameters
    ----------
    pattern
        See `punctual.core.program.Program`.

    Raises
    ------
    InvalidSpec
        The pattern is no regular expression, or has no group.
    """

    def __init__(self, pattern: str) -> None:
        #: Those that may still match; lines of another kind beside the first that was seen would count something else.
        self._usual = [re.compile(text) for text in _USUAL]
        i_groups = None if pattern == "auto" else _groups(pattern)
        self._own = None if i_groups is None else OwnPattern(pattern, i_groups)
        #: Whether a line that matches may say how many steps there are.
        self.may_tell_total = i_groups is None or len(i_groups) > 1
        self._n_bytes_max = _LINE_BYTES_MAX if self._own is None else _OWN_LINE_BYTES_MAX
        #: The end of the line that is being written, and one byte more if that is not all of it.
        self._line = b""
        self._earlier_steps = 0
        self._last = Count(0, None)

    @property
    def gave_up(self) -> bool:
        """Whether a pattern of the user's own took too long so often that nothing is searched any more."""
        return self._own is not None and self._own.gave_up

    def feed(self, output: bytes) -> Count | None:
        """Take in a piece of output, whatever it is; the latest count if there was one in it."""
        *complete, self._line = _LINE_END.split(self._line + output)
        self._line = self._line[-self._n_bytes_max - 1 :]
        # The bar on the screen is a line without an end. Its last number may be cut off, so something must follow.
        lines = [*((self._end_of(line), True) for line in complete), (self._end_of(self._line), False)]
        latest = None
        for count in self._search([line for line in lines if line[0]]):
            latest = self._continued(count) if count else latest
        return latest

    def _end_of(self, line: bytes) -> bytes:
        """What is looked at of a line."""
        return line if len(line) <= self._n_bytes_max else line[-self._n_bytes_max :].lstrip(_NUMERALS)

    def _search(self, lines: list[Line]) -> Iterator[Count | None]:
        if self._own is None:
            return (self._search_usual(*line) for line in lines)
        return (_count(*texts) if texts else None for texts in self._own.search(lines))

    def _search_usual(self, line: bytes, is_complete: bool) -> Count | None:
        text = line.decode("utf-8", "replace")
        for pattern in self._usual:
            last = None
            for match in pattern.finditer(text):
                if is_complete or match.end() < len(text):
                    last = match
            if last:
                self._usual = [pattern]
                return _count(last["step"], last["total"])
        return None

    def _continued(self, count: Count) -> Count:
        if count.step <= self._last.step / 2:
            self._earlier_steps += self._last.step
        elif count.step < self._last.step:  # a line that was overtaken by another
            count = self._last
        self._last = count
        total = None if count.total is None else self._earlier_steps + count.total
        return Count(self._earlier_steps + count.step, total)


def _groups(pattern: str) -> list[int]:
    """The numbers of the groups for the step and, if there is one, for the total."""
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _invalid(f"{pattern[:200]!r} ({error})") from None
    if not compiled.groups:
        raise _invalid(f"{pattern!r}, which has none")
    names = compiled.groupindex
    i_total = names.get("total", 2 if "step" not in names and compiled.groups > 1 else None)
    return [names.get("step", 1), *([] if i_total is None else [i_total])]


def _count(step_text: str | None, total_text: str | None = None) -> Count | None:
    """None: what the groups matched is not a number."""
    step = _number(step_text)
    return None if step is None else Count(step, _number(total_text))


def _number(text: str | None) -> int | None:
    digits = (text or "").replace(",", "").replace("_", "")
    return int(digits) if digits.isdecimal() and len(digits) <= _N_DIGITS_MAX else None


def _invalid(got: str) -> InvalidSpec:
    return InvalidSpec(
        "the progress pattern must be a regular expression with a group for the step",
        got,
        "`--progress-regex`",
        r"Write for example 'step (?P<step>\d+)/(?P<total>\d+)', or `auto`.",
    )
