"""Progress of programs that cannot be changed, read from what they write."""

import re
from dataclasses import dataclass

from punctual.core.errors import InvalidSpec

#: tqdm's bar, with the rate in brackets behind the count; then the words that people write themselves.
_USUAL = (
    r"(?P<step>\d+)/(?P<total>\d+) \[",
    r"(?i:\b(?:step|iter|iteration|batch))[ :=#]*(?P<step>\d+)(?:\s*(?:/|of)\s*(?P<total>\d+))?",
)
_LINE_END = re.compile(rb"[\r\n]")
#: What a line may grow to before it is given up: output without line ends must not fill the memory.
_LINE_BYTES_MAX = 65_536


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
        self._patterns = [_compiled(one) for one in (_USUAL if pattern == "auto" else (pattern,))]
        self._line = b""
        self._earlier_steps = 0
        self._last = Count(0, None)

    def feed(self, output: bytes) -> Count | None:
        """Take in a piece of output; the latest count if there was one in it."""
        *lines, self._line = _LINE_END.split(self._line + output)
        found = [count for line in lines if (count := self._search(line, at_end=True))]
        # The bar on the screen is a line without an end. Its last number may be cut off, so something must follow.
        open_count = self._search(self._line, at_end=False)
        self._line = self._line[-_LINE_BYTES_MAX:]
        latest = None
        for count in [*found, *([open_count] if open_count else [])]:
            latest = self._continued(count)
        return latest

    def _search(self, line: bytes, at_end: bool) -> Count | None:
        text = line.decode("utf-8", "replace")
        for pattern in self._patterns:
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
    except re.error as error:
        raise _invalid(f"{pattern!r} ({error})") from None
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
    return int(digits) if digits.isdecimal() else None


def _invalid(got: str) -> InvalidSpec:
    return InvalidSpec(
        "the progress pattern must be a regular expression with a group for the step", got, "`--progress-regex`",
        r"Write for example 'step (?P<step>\d+)/(?P<total>\d+)', or `auto`.",
    )  # fmt: skip
