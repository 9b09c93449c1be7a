"""Whole outputs of training programs are read right."""

import pytest
from tests.progress_text.corpus import FOLDER, Output, outputs

#: What share of the outputs that the reader was not made for must be read right.
HELD_OUT_FRAC = 0.95

NAMES = [path.stem for path in sorted(FOLDER.glob("*.txt"))]


@pytest.mark.parametrize("name", NAMES)
def test_an_output_is_read_right_from_its_beginning_to_its_end(name: str) -> None:
    verdict = Output(FOLDER / f"{name}.txt").judged()
    assert verdict.is_right, [*verdict.wrong, *verdict.late][:5]


def test_outputs_that_the_reader_was_not_made_for_are_read_right() -> None:
    verdicts = {name: output.judged() for name, output in outputs(FOLDER / "held_out")}
    assert len(verdicts) >= len(NAMES) / 3
    failed = {name: (verdict.wrong + verdict.late)[:2] for name, verdict in verdicts.items() if not verdict.is_right}
    assert len(failed) <= (1 - HELD_OUT_FRAC) * len(verdicts), failed


@pytest.mark.parametrize("folder", ["", "held_out"])
def test_nothing_is_wrong_in_silence(folder: str) -> None:
    """Where a total that was acted on changes, that is told at once."""
    for name, output in outputs(FOLDER / folder):
        reader, total = output.reader(), None
        for piece in output.pieces:
            reader.feed(piece.output, piece.at)
            codes = [notice.code for notice in reader.new_notices()]
            belief = reader.belief
            if belief is not None and belief.is_sure and belief.total is not None:
                is_told = any(code.startswith("progress-changed") for code in codes)
                assert is_told or total is None or abs(belief.total - total) <= total / 20, (name, total, belief)
                total = belief.total
