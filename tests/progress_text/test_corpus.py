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
    assert not verdict.silent


def test_outputs_that_the_reader_was_not_made_for_are_read_right_and_no_change_of_their_totals_is_silent() -> None:
    verdicts = {name: output.judged() for name, output in outputs(FOLDER / "held_out")}
    assert len(verdicts) >= len(NAMES) / 3
    failed = {name: (verdict.wrong + verdict.late)[:2] for name, verdict in verdicts.items() if not verdict.is_right}
    assert len(failed) <= (1 - HELD_OUT_FRAC) * len(verdicts), failed
    assert not {name: verdict.silent for name, verdict in verdicts.items() if verdict.silent}
