"""Progress of programs that cannot be changed, read from what they write."""

import re
from dataclasses import dataclass

from punctual.core.errors import InvalidSpec

_DIGITS = r"[0-9]{1,18}"
#: tqdm's bar, with the rate in brackets behind the count; then the words that people write themselves. The time both
#: take grows with the length of a line and not with its square: each repetition has a limit, and no number begins in
#: the middle of another.
_BAR = rf"(?<![0-9])(?P<step>{_DIGITS})/(?P<total>{_DIGITS}) \["
_WORD = r"(?i:\b(?:step|iter|iteration|batch))[ :=#]{0,16}"
_OF_TOTAL = rf"\s{{0,16}}(?:/|of)\s{{0,16}}(?P<total>{_DIGITS})(?![0-9])"
_USUAL = (_BAR, rf"{_WORD}(?P<step>{_DIGITS})(?![0-9])(?:{_OF_TOTAL})?")
_LINE_END = re.compile(rb"[\r\n]")
#: What is looked at of a line, in bytes: its end. A pattern of the user's own may take time that grows with a power of it.
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
        See `punctual.executors.local.program.Program`.

    Raises
    ------
    InvalidSpec
        The pattern is no regular expression, or has no group.
    """

    def __init__(self, pattern: str) -> None:
        is_usual = pattern == "auto"
        self._patterns = [_compiled(text) for text in (_USUAL if is_usual else (pattern,))]
        self._n_bytes_max = _LINE_BYTES_MAX if is_usual else _OWN_LINE_BYTES_MAX
        #: The end of the line that is being written, and one byte more if that is not all of it.
        self._line = b""
        self._earlier_steps = 0
        self._last = Count(0, None)

    def feed(self, output: bytes) -> Count | None:
        """Take in a piece of output, whatever it is; the latest count if there was one in it."""
        *lines, self._line = _LINE_END.split(self._line + output)
        self._line = self._line[-self._n_bytes_max - 1 :]
        latest = None
        for line in lines:
            count = self._search(line, at_end=True)
            latest = self._continued(count) if count else latest
        # The bar on the screen is a line without an end. Its last number may be cut off, so something must follow.
        count = self._search(self._line, at_end=False)
        return self._continued(count) if count else latest

    def _search(self, line: bytes, at_end: bool) -> Count | None:
        if len(line) > self._n_bytes_max:
            line = line[-self._n_bytes_max :].lstrip(_NUMERALS)
        text = line.decode("utf-8", "replace")
        for pattern in self._patterns if text else ():
            last = None
            for match in pattern.finditer(text):
                if at_end or match.end() < len(text):
                    last = match
            count = _count(last) if last else None
            if count:
                # Lines of another kind beside these would count something else.
                self._patterns = [pattern]
                return count
        return None

    def _continued(self, count: Count) -> Count:
        if count.step <= self._last.step / 2:
            self._earlier_steps += self._last.step
        elif count.step < self._last.step:  # a line that was overtaken by another
            count = self._last
        self._last = count
        total = None if count.total is None else self._earlier_steps + count.total
        return Count(self._earlier_steps + count.step, total)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise _invalid(f"{pattern[:200]!r} ({error})") from None
    if not compiled.groups:
        raise _invalid(f"{pattern!r}, which has none")
    return compiled


def _count(match: re.Match[str]) -> Count | None:
    """None: what the groups matched is not a number."""
    names = match.re.groupindex
    step = _number(match[names.get("step", 1)])
    i_total = names.get("total", 2 if "step" not in names and match.re.groups > 1 else 0)
    return None if step is None else Count(step, _number(match[i_total]) if i_total else None)


def _number(text: str | None) -> int | None:
    digits = (text or "").replace(",", "").replace("_", "")
    return int(digits) if digits.isdecimal() and len(digits) <= _N_DIGITS_MAX else None


def _invalid(got: str) -> InvalidSpec:
    return InvalidSpec(
        "the progress pattern must be a regular expression with a group for the step", got, "`--progress-regex`",
        r"Write for example 'step (?P<step>\d+)/(?P<total>\d+)', or `auto`.",
    )  # fmt: skip
