"""Whole outputs of programs, and how right they are read; see `corpus/README.md`."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from punctual.progress_text.reader import ProgressReader

FOLDER = Path(__file__).parent / "corpus"
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "e": "\x1b", "\\": "\\"}
#: A total may become known as late as after this share of the training, or of what is left when it changes.
_KNOWN_FRAC = 0.1


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of output: when it came, how much was done then, how much could be known to be done in all."""

    at: float
    done: float | None
    total: float | None
    output: bytes


@dataclass(slots=True)
class Verdict:
    """Where a reader was wrong: `wrong` in what it acted on, `late` in what it did not know, or not exactly.

    `silent` has the totals that it acted on and changed without telling so at once.
    """

    wrong: list[str] = field(default_factory=list)
    late: list[str] = field(default_factory=list)
    silent: list[str] = field(default_factory=list)

    @property
    def is_right(self) -> bool:
        return not self.wrong and not self.late


class Output:
    """One program's output."""

    def __init__(self, path: Path) -> None:
        head, *lines = path.read_text(encoding="utf-8").split("\n")
        self.facts: dict[str, Any] = json.loads(head.removeprefix("# "))
        self.pieces = [_piece(line) for line in lines if line]

    def reader(self) -> ProgressReader:
        """A reader as it would be for a job at a usual deadline."""
        return ProgressReader(deadline_s=self.facts["deadline_s"])

    def judged(self) -> Verdict:
        """Whether it is read right from its beginning to its end."""
        reader, verdict = self.reader(), Verdict()
        begun_at = next((piece.at for piece in self.pieces if piece.done is not None), 0.0)
        patience_s = _KNOWN_FRAC * (self.pieces[-1].at - begun_at) + 1e-6
        known_from, total, acted_on = begun_at, None, None
        for piece in self.pieces:
            reader.feed(piece.output, piece.at)
            codes, belief = [notice.code for notice in reader.new_notices()], reader.belief
            if belief is not None and belief.is_sure and belief.total is not None:
                is_told = any(code.startswith("progress-changed") for code in codes)
                if not is_told and acted_on is not None and abs(belief.total - acted_on) > acted_on / 20:
                    verdict.silent.append(f"at {piece.at:g}: {acted_on:g} in all became {belief.total:g}")
                acted_on = belief.total
            if piece.total != total:
                known_from, total = max(piece.at, begun_at), piece.total
            self._judge(reader, piece, verdict, may_be_unknown=piece.at <= known_from + patience_s)
        return verdict

    def _judge(self, reader: ProgressReader, piece: Piece, verdict: Verdict, *, may_be_unknown: bool) -> None:
        belief = reader.belief
        known = belief if belief is not None and belief.is_sure else None
        alternatives = self.facts.get("alternatives", [])
        total = None if known is None else known.total
        if total is not None and total != piece.total and total not in alternatives:
            verdict.wrong.append(f"at {piece.at:g}: {total:g} in all, right is {piece.total}")
        if may_be_unknown or piece.done is None:
            return
        if total is None and piece.total is not None and not alternatives:
            verdict.late.append(f"at {piece.at:g}: the total {piece.total:g} is not known")
        is_last = piece is self.pieces[-1]
        if known is None:
            if piece.total is not None or is_last:
                verdict.late.append(f"at {piece.at:g}: nothing is counted, right is {piece.done:g}")
        elif not self._is_near(known.steps, piece.done):
            verdict.wrong.append(f"at {piece.at:g}: {known.steps:g} done, right is {piece.done:g}")

    def _is_near(self, steps: float, done: float) -> bool:
        scales = self.facts.get("scales", [1])
        return any(abs(steps * scale - done) <= self.facts["tolerance"] for scale in scales)


def outputs(folder: Path = FOLDER) -> Iterator[tuple[str, Output]]:
    """All outputs of a folder, by their names."""
    for path in sorted(folder.glob("*.txt")):
        yield path.stem, Output(path)


def _piece(line: str) -> Piece:
    at, done, total, text = line.split("\t")
    return Piece(float(at), _number(done), _number(total), _plain(text).encode())


def _number(text: str) -> float | None:
    return None if text == "-" else float(text)


def _plain(text: str) -> str:
    first, *rest = text.split("\\\\")
    return "\\".join(_unescaped(part) for part in (first, *rest))


def _unescaped(text: str) -> str:
    first, *rest = text.split("\\")
    return first + "".join(_ESCAPES[part[0]] + part[1:] for part in rest)
