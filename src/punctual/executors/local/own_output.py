"""Read a job's output with the user's own expression."""

from punctual.executors.local.own_pattern import OwnPattern
from punctual.progress_text.lines import LineSplitter
from punctual.progress_text.own import Groups
from punctual.progress_text.reader import ProgressReader

#: After so many lines without a match the user is told.
_N_UNMATCHED_MAX = 50


class OwnOutput:
    """Searches the output of a job and passes the matches to a reader.

    Parameters
    ----------
    groups
        Groups of `pattern`.
    """

    def __init__(self, pattern: str, groups: Groups) -> None:
        self._pattern = OwnPattern(pattern, groups.in_order)
        self._groups = groups
        self._splitters: dict[int, LineSplitter] = {}
        self._n_unmatched = 0
        self._complaint = ""

    @property
    def gave_up(self) -> bool:
        """Whether the search has been given up because the expression took too long too often."""
        return self._pattern.gave_up

    def close(self) -> None:
        """End the search; nothing more will come."""
        self._pattern.close()

    def feed(self, reader: ProgressReader, output: bytes, at: float, stream: int) -> bool:
        """Take in a piece of output of one stream; return whether the reader's belief has changed."""
        # Longest line that is searched whole; of a longer one, the beginning and the end are searched.
        splitter = self._splitters.setdefault(stream, LineSplitter(1 << 20))
        # A line that is longer is searched when it is complete: one that grows is not to be searched again with every
        # piece.
        lines = [line for line in splitter.feed(output) if line.is_complete or len(line.text) <= 4096]
        has_changed = False
        for line, texts in zip(lines, self._pattern.search(lines), strict=True):
            mentions = () if texts is None else self._groups.mentions(texts)
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
