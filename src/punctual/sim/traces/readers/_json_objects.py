"""The objects of a JSON list, one after the other, regardless of line breaks."""

import json
import re
from collections.abc import Iterator
from typing import Any

from punctual.sim.traces.bad_rows import BadRows
from punctual.sim.traces.source import Source

#: Size far above any object of a trace: one that is not complete by then is broken.
_N_CHARACTERS_MAX = 4_000_000

#: The file is read in pieces of this size; an object that is not whole yet is tried again with the next piece.
_N_CHARACTERS = 65_536

_BETWEEN = re.compile(r"[\s\[\],]*")
_DECODER = json.JSONDecoder()


def objects_of(source: Source, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects and their first lines; after invalid JSON the rest is one bad row."""
    text, line = "", 1
    for piece in source.pieces(_N_CHARACTERS):
        text += piece
        done = 0
        for start, end, value in _values(text):
            line += text.count("\n", done, start)
            if isinstance(value, dict):
                yield line, value
            else:
                bad.add(str(source), line, f"an object expected, {str(value)[:40]!r} found")
            line += text.count("\n", start, end)
            done = end
        text = text[done:]
        if len(text) > _N_CHARACTERS_MAX:
            break
    if rest := text[_start(text, 0) :]:
        bad.add(str(source), line + text.count("\n", 0, len(text) - len(rest)), f"not JSON from here on: {rest[:40]!r}")


def _values(text: str) -> Iterator[tuple[int, int, Any]]:
    """The values that are whole, with their places."""
    end = 0
    while (start := _start(text, end)) < len(text):
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):  # lists within lists without end, for the second
            return
        yield start, end, value


def _start(text: str, end: int) -> int:
    """Return the position of the next value."""
    between = _BETWEEN.match(text, end)
    return between.end() if between else end
