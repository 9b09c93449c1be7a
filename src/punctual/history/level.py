"""A quantity that is constant between changes, over time: a queue's length, the devices in use."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class LevelCourse:
    """A level over time, as points to plot.

    From ``at[i]`` to ``at[i + 1]``, the last one to `until_at`, the level was ``mean[i]`` on average, at least
    ``low[i]`` and at most ``high[i]``. The three are equal where nothing was thinned. Before ``at[0]`` it was 0.
    """

    at: tuple[float, ...]
    mean: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    until_at: float


class _LevelPiece(NamedTuple):
    """A piece of a course, from `at` to the next piece; `area` is the mean times the duration."""

    at: float
    area: float
    low: float
    high: float


class Level:
    """Takes a level's changes, one by one, and keeps its integral and a course of bounded length.

    The rule of thinning: changes are kept as they are until there are more than four times `n_points`. Then the time since
    the first one is cut into `n_points` equal parts, and all pieces that begin in the same part become one, with
    their mean over time, their least and their greatest value. The integral over the whole, every extreme and the
    instants at which pieces begin are therefore never wrong, however often it is done; only what happens within a
    piece is lost.

    Parameters
    ----------
    n_points
        Largest number of pieces of the course.
    """

    __slots__ = ("_area", "_n_pieces_max", "_n_points", "_pieces", "_since_at", "value")

    def __init__(self, n_points: int) -> None:
        #: The level now.
        self.value = 0.0
        # Multiple of a course's points at which it is thinned: rarely, so that a change costs little.
        self._n_points, self._n_pieces_max = n_points, 4 * n_points
        self._since_at: float | None = None
        self._area = 0.0
        self._pieces: list[_LevelPiece] = []

    def set(self, at: float, value: float) -> None:
        """Set the level to `value` from `at` on; `at` never goes back, and the last change at one instant counts."""
        if value == self.value:
            return
        since_at = self._since_at
        if since_at is None:
            self._since_at = at
        elif at > since_at:
            self._area += self.value * (at - since_at)
            _append(self._pieces, since_at, self.value, at - since_at)
            if len(self._pieces) > self._n_pieces_max:
                self._pieces = _thin(self._pieces, at, self._n_points)
            self._since_at = at
        self.value = value

    def integral(self, at: float) -> float:
        """The level times seconds, from the first change to `at`, which is not before the last one."""
        return self._area + (0.0 if self._since_at is None else self.value * (at - self._since_at))

    def course(self, until_at: float, n_points: int | None = None) -> LevelCourse:
        """The level until `until_at`, in at most `n_points` points (None: as many as are kept, at most)."""
        pieces = list(self._pieces)
        if self._since_at is not None and (until_at > self._since_at or not pieces):
            _append(pieces, self._since_at, self.value, until_at - self._since_at)
        pieces = _thin(pieces, until_at, min(n_points or self._n_points, self._n_points))
        return LevelCourse(
            at=tuple(piece.at for piece in pieces),
            mean=tuple(_means(pieces, until_at)),
            low=tuple(piece.low for piece in pieces),
            high=tuple(piece.high for piece in pieces),
            until_at=until_at,
        )


def _append(pieces: list[_LevelPiece], at: float, value: float, duration_s: float) -> None:
    """Add a piece, or make the last one longer: a level that changed and changed back at one instant did not change."""
    area = value * duration_s
    if pieces:
        last_at, last_area, low, high = pieces[-1]
        if low == high == value:
            pieces[-1] = _LevelPiece(last_at, last_area + area, value, value)
            return
    pieces.append(_LevelPiece(at, area, value, value))


def _thin(pieces: list[_LevelPiece], until_at: float, n_points: int) -> list[_LevelPiece]:
    if len(pieces) <= n_points:
        return pieces
    first_at = pieces[0].at
    parts_per_s = n_points / (until_at - first_at)
    thinned: list[_LevelPiece] = []
    last_part = -1
    for piece in pieces:
        part = min(n_points - 1, int((piece.at - first_at) * parts_per_s))
        if part > last_part:
            thinned.append(piece)
        else:
            thinned[-1] = _joined(thinned[-1], piece)
        last_part = part
    return thinned


def _joined(piece: _LevelPiece, other: _LevelPiece) -> _LevelPiece:
    _, area, low, high = other
    return _LevelPiece(piece.at, piece.area + area, min(piece.low, low), max(piece.high, high))


def _means(pieces: list[_LevelPiece], until_at: float) -> Iterator[float]:
    ends = [*(piece.at for piece in pieces), until_at][1:]
    for piece, end_at in zip(pieces, ends, strict=True):
        exact = piece.low == piece.high or end_at <= piece.at
        yield piece.low if exact else piece.area / (end_at - piece.at)
