"""Progress read from output."""

import gc
import random
import re
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.executors.local.own_pattern import Line, OwnPattern
from punctual.executors.local.progress_text import Count, ProgressText


def bar(step: int, total: int) -> bytes:
    return f"\r{100 * step // total:3d}%|████▌     | {step}/{total} [00:01<00:09, 30.1it/s]".encode()


def after(*pieces: bytes, pattern: str = "auto") -> Count | None:
    """The last count found in `pieces`."""
    text = ProgressText(pattern)
    counts = [text.feed(piece) for piece in pieces]
    return next((count for count in reversed(counts) if count), None)


#: Page -> the lines that it shows, of the training and of others, and what is read of the last.
SHOWN = {"tqdm": Count(120, 300), "lightning": Count(20, None), "hugging-face": Count(120, 300)}


@pytest.mark.parametrize("page", SHOWN)
def test_what_pages_about_existing_scripts_show_can_be_read(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / f"{page}.md").read_text()
    (lines,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    patterns = re.findall(r"--progress-regex (?:'(.*?)'|(auto))", text)
    pattern = patterns[0][0] or patterns[0][1]
    assert after(lines.encode(), pattern=pattern) == SHOWN[page]
    for own, _ in patterns:
        if own:
            ProgressText(own)


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"step 120/3000 loss 0.3\n", Count(120, 3000)),
        (b"Step: 7 of 9\n", Count(7, 9)),
        (b"iteration=12\n", Count(12, None)),
        (b"[epoch 1] batch 3, loss 2\n", Count(3, None)),
        (b"epoch 1/2\nloss 3/4\n", None),
        (bar(12, 300), Count(12, 300)),
        (bar(12, 300) + bar(13, 300), Count(13, 300)),
        (b"\xff\xfe step 4/5\n", Count(4, 5)),
    ],
)
def test_usual_output(output: bytes, expected: Count | None) -> None:
    assert after(output) == expected


def test_the_bar_on_the_screen_counts_before_it_is_redrawn() -> None:
    assert after(bar(3, 9)) == Count(3, 9)


def test_a_number_that_may_be_cut_off_does_not_count() -> None:
    assert after(b"step 12") is None
    assert after(b"step 12", b"0/30", b"00\n") == Count(120, 3000)
    assert after(b"at 12", pattern=r"at (\d+)") is None
    assert after(b"at 12", b"0\n", pattern=r"at (\d+)") == Count(120, None)


@given(st.lists(st.integers(0, 12), min_size=1), st.integers(1, 12))
def test_it_does_not_matter_where_output_is_cut(cuts: list[int], n_steps: int) -> None:
    output = b"".join(bar(step, n_steps) for step in range(n_steps + 1)) + b"\n"
    places = sorted({min(cut * 40, len(output)) for cut in cuts} | {0, len(output)})
    pieces = [output[start:end] for start, end in pairwise(places)]
    assert after(*pieces) == Count(n_steps, n_steps)


@pytest.mark.parametrize(
    ("pattern", "output", "expected"),
    [
        (r"at (\d+) to (\d+)", b"at 3 to 8\n", Count(3, 8)),
        (r"of (?P<total>\d+) done (?P<step>\d+)", b"of 8 done 3\n", Count(3, 8)),
        (r"(?P<step>\d+) in (\d+)", b"3 in 8\n", Count(3, None)),
        (r"at ([\d,]+)", b"at 1,200\n", Count(1200, None)),
        (r"at (\w+)", b"at home\n", None),
    ],
)
def test_own_patterns(pattern: str, output: bytes, expected: Count | None) -> None:
    assert after(output, pattern=pattern) == expected


def test_a_bar_for_each_epoch_goes_on_counting() -> None:
    assert after(bar(9, 9), bar(0, 9), bar(4, 9)) == Count(13, 18)


def test_lines_that_overtake_each_other_are_no_new_epoch() -> None:
    assert after(b"step 12\n", b"step 11\n") == Count(12, None)
    assert after(b"step 12\n", b"step 11\n", b"step 13\n") == Count(13, None)


def test_lines_of_another_kind_are_left_alone_once_one_kind_was_seen() -> None:
    assert after(bar(50, 300), b"\nstep 1 saved\n", bar(51, 300)) == Count(51, 300)


def test_output_without_line_ends_does_not_pile_up() -> None:
    text = ProgressText("auto")
    for _ in range(100):
        text.feed(b"x" * 10_000)
    assert len(text._line) < 10_000


LONG = {
    "digits": b"7" * 100_000,
    "counts": b"1/2" * 30_000,
    "words": b"step" * 30_000,
    "a word and spaces": b"step" + b" " * 100_000,
    "a count and spaces": b"step 1" + b" " * 100_000 + b"/",
    "spaces": b" " * 100_000,
    "bars without an end": b"1/2 [" * 30_000,
    "no text": bytes(range(128, 256)) * 800,
}


@pytest.mark.parametrize("line", LONG.values(), ids=LONG)
@pytest.mark.parametrize("size", [97, 4096, 1 << 20])
def test_progress_is_read_after_a_line_of_any_length(line: bytes, size: int) -> None:
    """The quadratic patterns of an earlier version took minutes for each of these."""
    text = ProgressText("auto")
    for start in range(0, len(line), size):
        text.feed(line[start : start + size])
    count = text.feed(b"\n500/600 [\nstep 500/600\n")  # whichever kind of line was seen before
    assert count is not None
    assert count.step >= 500


@pytest.mark.parametrize("n_digits", [19, 400, 5_000, 60_000])
def test_numbers_without_end_are_no_counts(n_digits: int) -> None:
    digits = b"9" * n_digits
    for line in (b"step %b/10\n", b"step 3/%b\n", b"%b/10 [\n", b"3/%b [\n", b"step %b\n"):
        text = ProgressText("auto")
        count = text.feed(line % digits)
        assert count in {None, Count(3, None)}
        assert text.feed(b"step 4/10\n4/10 [\n") in {Count(4, 10), Count(4, None)}
    own = ProgressText(r"at (\d+)")
    assert own.feed(b"at %b\nat 7\n" % digits) == Count(7, None)


def test_a_number_whose_beginning_is_out_of_sight_does_not_count() -> None:
    assert after(b"1" * 5000, b"/7 [x\n") is None
    assert after(b"12345" * 1000 + b"/7 [x\n") is None
    assert after(b"x" * 5000 + b" 3/7 [x\n") == Count(3, 7)


@given(st.binary(max_size=300))
def test_no_output_whatever_is_too_much(garbage: bytes) -> None:
    text = ProgressText("auto")
    text.feed(garbage)
    assert ProgressText("auto").feed(garbage + b"\nstep 1/2\n") is not None


# Patterns of the user's own.


def test_a_pattern_of_the_user_s_own_is_searched_in_any_output() -> None:
    text = ProgressText(r"at (\d+) of (.*)")
    generator = random.Random(7)
    for _ in range(50):
        text.feed(generator.randbytes(5000))
    assert text.feed(b"\nat 4 of 9\nat 5 of nine\n") == Count(5, None)
    assert text.feed(b"".join(b"at %d of 900\r" % i for i in range(6, 800))) == Count(799, 900)


#: Takes years for a line of 1,000 characters.
EXPONENTIAL = r"(?:a+)+b (\d+)"


def test_a_pattern_that_takes_for_ever_is_ended_and_hurts_nothing_but_itself() -> None:
    own = OwnPattern(EXPONENTIAL, [1], cpu_s_max=0.2)
    bad: Line = (b"a" * 1000, True)
    assert own.search([(b"ab 3", True)]) == [("3",)]
    assert own.search([bad]) == [None]
    assert own.search([(b"ab 4", True)]) == [("4",)], "it is begun anew"
    for _ in range(5):
        assert own.search([bad, (b"ab 5", True)]) == [None, None]
    assert own.gave_up
    assert own.search([(b"ab 6", True)]) == [None]


def test_its_process_ends_with_it() -> None:
    own = OwnPattern(r"(\d+)", [1])
    assert own.search([(b"1", True), (b"2", False), (b"x", True)]) == [("1",), None, None]
    process = own._process
    assert process is not None
    assert process.poll() is None
    del own
    gc.collect()
    assert process.poll() is not None
    assert process.stdin is not None
    assert process.stdin.closed


def test_a_process_that_was_killed_is_started_again() -> None:
    own = OwnPattern(r"(\d+)", [1])
    own.search([(b"1", True)])
    assert own._process is not None
    own._process.kill()
    own._process.wait()
    assert own.search([(b"2", True)]) == [None]
    assert own.search([(b"3", True)]) == [("3",)]


def test_lines_of_any_length_and_number_never_block_the_pipes() -> None:
    own = OwnPattern(r"(.*)", [1, 1])
    lines: list[Line] = [(b"x" * 1024, True)] * 500
    texts = own.search(lines)
    assert len(texts) == 500
    assert None not in texts


@pytest.mark.parametrize("pattern", ["(", r"step \d+", "(" * 20_000 + ")" * 20_000, "(a{99999999999})"])
def test_patterns_that_cannot_be_used(pattern: str) -> None:
    with pytest.raises(InvalidSpec, match="regular expression with a group"):
        ProgressText(pattern)
