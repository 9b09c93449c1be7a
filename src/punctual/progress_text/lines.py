"""Lines of output as a person would see them."""

import re
from collections import deque
from itertools import islice
from typing import NamedTuple

#: A bar is drawn again after a carriage return, backspaces or a movement of the cursor: these end a line as well. Each form
#: begins with a character of its own, by which it is searched: 64 KiB of long lines take 0.3 ms instead of 6.
_END = re.compile(rb"(\r[\r\n]*|\n[\r\n]*|\x08\x08*|\x1b\[[\d;]*[ABEFHJf])")
#: The cursor goes up, to lines that were written before.
_UP = re.compile(rb"\x1b\[(\d{0,4})[\d;]*([AFHf])")
#: Latest lines with which a redrawn line is compared.
_N_DRAWN = 100
#: Colours, titles of windows and the like; at the end of a piece also the beginning of one.
_ESCAPE = re.compile(
    rb"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[ -/]*[0-Z\\^-~]|(?:\[[0-?]*|[ -/]*)$|\][^\x07]*$)"
)
#: The end of a bar behind which a line begins: the bar was written to another stream, and has no end of line.
_GLUED = re.compile(rb"(/\w{1,12}(?:, [^\]]{0,200})?\])(?=[A-Za-z{`])")
#: A number that was cut in two is none.
_DIGITS = b"0123456789,._"
_CUT = b" ... "
_DIGIT = re.compile(rb"\d")
#: Characters that no text has.
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")


class TextLine(NamedTuple):
    """A line; the last number of an incomplete one may be cut off."""

    text: str
    is_complete: bool = True


class LineSplitter:
    """Splitter of one stream of bytes into lines without colours.

    Parameters
    ----------
    n_bytes_max
        Limit of a line. The beginning and the end of a longer one are kept, half as much each.
    """

    def __init__(self, n_bytes_max: int) -> None:
        self._n_bytes_max = n_bytes_max
        self._rest = b""
        #: Lines on the screen, how many of them the cursor went up, and how many may be drawn again as they are.
        self._drawn: deque[bytes] = deque(maxlen=_N_DRAWN)
        self._n_up = self._n_again = 0

    def feed(self, output: bytes, n_lines_max: int | None = None) -> list[TextLine]:
        """Return the lines that `output` completes, and the one that stays open, without empty ones, and those drawn again.

        Of more than `n_lines_max` those with digits are returned, or some of these at the beginning and some at the end.
        """
        *pieces, self._rest = _END.split(self._rest + output)
        complete = [text for text, end in zip(pieces[::2], pieces[1::2], strict=True) if not self._is_again(text, end)]
        self._rest = self._kept(self._rest)
        lines = [(text, True) for text in complete if text] + ([(self._rest, False)] if self._rest else [])
        if n_lines_max is not None and len(lines) > n_lines_max:
            lines = [line for line in lines if _DIGIT.search(line[0])]
        if n_lines_max is not None and len(lines) > n_lines_max:
            n_first = n_lines_max // 2
            lines = [*lines[:n_first], *lines[len(lines) - (n_lines_max - n_first) :]]
        plain = ((_ESCAPE.sub(b"", self._kept(text)), is_complete) for text, is_complete in lines)
        return [
            TextLine(part.decode("utf-8", "replace"), is_complete or i_part < len(parts) - 1)
            for text, is_complete in plain
            for parts in (_GLUED.sub(rb"\1\n", text).split(b"\n"),)
            for i_part, part in enumerate(parts)
            if part.strip() and not _CONTROL.search(part)
        ]

    def _is_again(self, text: bytes, end: bytes) -> bool:
        """Return whether a line is the same as one that was drawn before the cursor went up."""
        is_again = False
        if text and b"\n" in end:
            is_again = self._n_again > 0 and text in islice(reversed(self._drawn), 2 * self._n_up)
            self._n_again -= self._n_again > 0
            self._drawn.append(text)
        if up := _UP.fullmatch(end):
            self._n_again += int(up[1] or 1) if up[2] in b"AF" else _N_DRAWN
            self._n_up = self._n_again
        return is_again

    def _kept(self, text: bytes) -> bytes:
        if len(text) <= self._n_bytes_max:
            return text
        half = self._n_bytes_max // 2
        return text[:half].rstrip(_DIGITS) + _CUT + text[-half:].lstrip(_DIGITS)
