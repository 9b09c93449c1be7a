"""Searches lines for a pattern of the user's own, in a process of its own.

Nothing stops a search of Python's `re` that has begun, all other threads wait for it, and there are patterns for which
a short line takes years. So the search gets a process, and that process a limit of CPU time for each line, after which
the kernel ends it. Run by path, this module is that process; it needs nothing but the standard library.
"""

import json
import logging
import os
import re
import signal
import subprocess
import sys
import weakref
from collections.abc import Iterable, Sequence
from itertools import islice

_LOG = logging.getLogger(__name__)

#: The time that a search takes may grow with a power of the length of a text. A longer line is searched piece by piece, each
#: half over the one before, so that the time for it grows with its length alone, and a match may be half a piece long.
_PIECE_MAX = 4096

#: A line, and whether it is complete; behind a match in one that is not, something must follow.
Line = tuple[str, bool]
#: Texts of the groups of the first match in a line.
Texts = tuple[str | None, ...]


class OwnPattern:
    """Searches lines for a regular expression, however badly that behaves.

    Parameters
    ----------
    pattern
        A valid regular expression.
    i_groups
        The groups that matter.
    cpu_s_max
        Limit for one line.
    """

    def __init__(self, pattern: str, i_groups: Sequence[int], cpu_s_max: float = 1.0) -> None:
        self._pattern = pattern
        self._command = [sys.executable, "-I", "-S", __file__, pattern, str(cpu_s_max), *map(str, i_groups)]
        self._n_starts = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._end: weakref.finalize[..., OwnPattern] | None = None

    @property
    def gave_up(self) -> bool:
        """Whether the search has been given up because it was ended too often."""
        # A search that was ended is begun anew with the lines that follow, but not for ever.
        return self._process is None and self._n_starts >= 3

    def close(self) -> None:
        """End the process; a later search starts another one."""
        if self._end is not None:
            self._end()
        self._process = None

    def search(self, lines: Iterable[Line]) -> list[Texts | None]:
        """Return the texts of the groups in each line, None where there is no match.

        Lines that were sent together with one that took too long are without a match.
        """
        rest, texts = iter(lines), list[Texts | None]()
        # Lines sent at once. Their answers fit into a pipe, so that the process that gives them never waits.
        while batch := list(islice(rest, 50)):
            texts += self._search(batch)
        return texts

    def _search(self, batch: list[Line]) -> list[Texts | None]:
        if self.gave_up:
            return [None] * len(batch)
        process = self._process or self._start()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            _write(
                process.stdin.fileno(),
                b"".join(b"%d%b\n" % (is_complete, text.encode()) for text, is_complete in batch),
            )
            answers = [process.stdout.readline() for _ in batch]
        except OSError:
            answers = []
        if len(answers) == len(batch) and all(answers):
            return [None if words is None else tuple(words) for words in map(json.loads, answers)]
        self._lose()
        return [None] * len(batch)

    def _start(self) -> subprocess.Popen[bytes]:
        self._n_starts += 1
        process = subprocess.Popen(  # Ctrl-C on the terminal is not for it
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
        )
        self._process, self._end = process, weakref.finalize(self, _end, process)
        return process

    def _lose(self) -> None:
        self.close()
        _LOG.info("the progress pattern %r took too long for a line, in attempt %d", self._pattern, self._n_starts)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with process:  # closes the pipes and waits
        pass


def _write(fd: int, text: bytes) -> None:
    """Write past the buffer of Python's file, which would keep the bytes that an ended process has not read."""
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(fd, rest) :]


def _answer_lines(pattern: str, cpu_s_max: float, i_groups: Sequence[int]) -> None:
    """Answer each line that comes with one that has the groups of its first match, or ``null``."""
    compiled = re.compile(pattern)
    for line in sys.stdin.buffer:
        signal.setitimer(signal.ITIMER_PROF, cpu_s_max)
        first = _first_match(compiled, line[1:-1].decode(), is_complete=line[:1] == b"1")
        # One character more than the longest number that is read.
        words = first and [(first[i_group] or "")[:33] for i_group in i_groups]
        sys.stdout.write(json.dumps(words, ensure_ascii=False) + "\n")
        sys.stdout.flush()
        signal.setitimer(signal.ITIMER_PROF, 0.0)


def _first_match(compiled: re.Pattern[str], text: str, *, is_complete: bool) -> re.Match[str] | None:
    """Return the first match in `text`. A character must follow it, unless it ends with a complete line."""
    begin = 0
    while True:
        end = begin + _PIECE_MAX
        is_end = end >= len(text)
        for match in compiled.finditer(text, begin, len(text) if is_end else end):
            if match.end() < (len(text) if is_end else end) or (is_end and is_complete):
                return match
        if is_end:
            return None
        begin += _PIECE_MAX // 2
        while begin < end and text[begin].isdecimal():  # a number begins no piece in its middle
            begin += 1


if __name__ == "__main__":
    _answer_lines(sys.argv[1], float(sys.argv[2]), [int(text) for text in sys.argv[3:]])
