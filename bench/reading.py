"""Measure how much of the output of training programs is read right, and what it costs; `bench/reading.md` says how.

Right: the total, where the output tells it, is known from a tenth of the training on, what is acted on is never another, and so is
the count, between two lines. Wrong: something else was acted on at any moment. Late: nothing was, where something could be.
"""

import sys
import time
from collections.abc import Callable
from pathlib import Path

from _common import Results
from _reference import TURNS, turn_s
from _report import Section, Target, run
from tests.progress_text.corpus import FOLDER, Output, outputs

from punctual.progress_text.reader import CHANGED, ProgressReader

#: Groups of outputs, and the share of each that is to be right.
FOLDERS = {"looked at": (FOLDER, 1.0), "held out": (FOLDER / "held_out", 0.95)}
#: At a hundred lines a second, of which more are not read, some 4 % of a core.
LINE_TURNS = 150.0
#: Four times the length. What is searched once more has twice that.
GROWTH = 8.0
LINES_PER_S = 50.0
MIB = 1 << 20

#: A line of number i, by its kind.
LINES: dict[str, Callable[[int], str]] = {
    "step 120/100000 loss 0.3": lambda i: f"step {i}/100000 loss 0.3\n",
    "an epoch, a batch, twelve values": lambda i: (
        f"2026-11-26 12:00:00,123 INFO train.py:12] Epoch: [{i // 1000}/100][{i % 1000}/1000] "
        f"{' '.join(f'loss_{k}: {1 / (1 + i):.4f}' for k in range(12))}\n"
    ),
    "a bar": lambda i: f"\r{i // 1000:3d}%|###   | {i}/100000 [00:12<00:18, 10.00it/s, loss=0.3]",
    "numbers that count nothing": lambda i: f"worker {i % 7} saw 12 items of {i} in 3.2 s at 10.0.0.{i % 255}\n",
    "words": lambda _: "nothing to count in this line\n",
}
#: What a line without an end consists of.
ENDLESS = {
    "digits": b"7", "fractions": b"1/2 ", "shares": b"1% ", "thousands": b"1,111,", "values": b"a=1.5 ", "colours": b"\x1b[31m1",
    "escapes without an end": b"\x1b]0;", "spaces": b" ", "words": b"step ", "columns": b"1 | ", "letters": b"a",
}  # fmt: skip


def judged(folder: Path) -> dict[str, dict[str, bool]]:
    """Return what each output of a folder came to."""
    found = {}
    for name, output in outputs(folder):
        verdict = output.judged()
        found[name] = {"right": verdict.is_right, "wrong": bool(verdict.wrong), "silent": changes_in_silence(output)}
    return found


def changes_in_silence(output: Output) -> bool:
    """Whether a total that was acted on becomes another one and nobody is told."""
    reader, total = output.reader(), None
    for piece in output.pieces:
        reader.feed(piece.output, piece.at)
        is_told = any(notice.code.startswith(CHANGED) for notice in reader.new_notices())
        belief = reader.belief
        if belief is not None and belief.is_sure and belief.total is not None:
            if total is not None and abs(belief.total - total) > total / 20 and not is_told:
                return True
            total = belief.total
    return False


def cost_of_lines(n_lines: int) -> dict[str, dict[str, float]]:
    """CPU seconds of a line of each kind, and of a turn of the reference."""
    found = {}
    for name, line in LINES.items():
        reader, texts = ProgressReader(deadline_s=3600.0), [line(i).encode() for i in range(n_lines)]
        begun = time.process_time()
        for i, text in enumerate(texts):
            reader.feed(text, i / LINES_PER_S)
        found[name] = {"line_s": (time.process_time() - begun) / n_lines, "turn_s": turn_s()}
    return found


def cost_of_endless() -> dict[str, dict[str, float]]:
    """CPU seconds of a line of 1 MiB, and of a quarter of it; the least of three, since neighbours only add to it."""
    return {
        name: {
            size: min(_endless_s(unit * (n_bytes // len(unit))) for _ in range(3))
            for size, n_bytes in (("quarter_s", MIB // 4), ("whole_s", MIB))
        }
        for name, unit in ENDLESS.items()
    }


def _endless_s(line: bytes) -> float:
    reader, begun = ProgressReader(), time.process_time()
    for start in range(0, len(line), 1 << 16):
        reader.feed(line[start : start + (1 << 16)], 0.0)
    reader.feed(b"\n", 1.0)
    return time.process_time() - begun


def measured(*, quick: bool) -> Results:
    return {
        "outputs": {name: judged(folder) for name, (folder, _) in FOLDERS.items()},
        "lines": cost_of_lines(4_000 if quick else 20_000), "endless": cost_of_endless(),
    }  # fmt: skip


def sections(results: Results) -> list[Section]:
    outputs, lines, endless = (results[name] for name in ("outputs", "lines", "endless"))
    return [_outputs_section(outputs), _lines_section(lines), _endless_section(endless)]


def _outputs_section(found: dict[str, dict[str, dict[str, bool]]]) -> Section:
    rows, targets = [], list[Target]()
    for name, (_, limit) in FOLDERS.items():
        verdicts = found[name].values()
        n, n_right, n_wrong = len(verdicts), sum(v["right"] for v in verdicts), sum(v["wrong"] for v in verdicts)
        missed = ", ".join(each for each, verdict in found[name].items() if not verdict["right"])
        rows.append([name, str(n), str(n_right), str(n_wrong), str(n - n_right - n_wrong), missed or "–"])
        targets.append(Target(f"right of those {name}", limit, n_right / n, "{:.1%}".format, at_least=True))
    n_silent = sum(verdict["silent"] for verdicts in found.values() for verdict in verdicts.values())
    targets.append(Target("totals that change in silence", 0, n_silent, "{:.0f}".format))
    return Section("Whole outputs", ["outputs", "number", "right", "wrong", "late", "not right"], rows, targets)


def _lines_section(found: dict[str, dict[str, float]]) -> Section:
    turns = {name: each["line_s"] / each["turn_s"] for name, each in found.items()}
    rows = [[name, f"{1e6 * found[name]['line_s']:.0f}", f"{turns[name]:.0f}"] for name in found]
    target = Target("CPU time of a line, the dearest kind", LINE_TURNS, max(turns.values()), TURNS)
    return Section("Lines", ["line", "µs", "turns of the reference"], rows, [target])


def _endless_section(found: dict[str, dict[str, float]]) -> Section:
    ratios = {name: each["whole_s"] / each["quarter_s"] for name, each in found.items()}
    rows = [[name, f"{1e3 * found[name]['whole_s']:.1f}", f"{ratios[name]:.1f}"] for name in found]
    target = Target(
        "a line of 1 MiB to one of a quarter, the worst kind", GROWTH, max(ratios.values()), "{:.1f}x".format
    )
    return Section("Lines without an end", ["of", "ms for 1 MiB", "to a quarter"], rows, [target])


if __name__ == "__main__":
    sys.exit(run("reading", __doc__, measured, sections, key=1))
