"""What is written becomes lines as a person sees them."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.progress_text.lines import LineSplitter


def test_lines_that_are_drawn_again_as_they_were_are_left_out() -> None:
    splitter = LineSplitter(100)
    rows = [f"{i} loss {1 / i:.3f}\n" for i in range(1, 6)]
    drawn = [line.text for line in splitter.feed("".join(rows[:4]).encode())]
    again = [line.text for line in splitter.feed(("\x1b[4A" + "".join(rows[1:])).encode())]
    assert [*drawn, *again] == [row.strip() for row in rows]
    assert [line.text for line in splitter.feed(rows[4].encode())] == [rows[4].strip()], "no cursor has gone up"


def test_a_line_that_was_on_the_screen_long_ago_is_no_line_that_is_drawn_again() -> None:
    splitter, up = LineSplitter(100), "\x1b[1A\x1b[2K" * 2
    texts = [f"epochs {epoch}/3\nbatches {batch}/2\n" for epoch in range(3) for batch in range(3)]
    drawn = [line.text for text in texts for line in splitter.feed(f"{text}{up}".encode()) if line.is_complete]
    assert drawn.count("batches 1/2") == 3
    assert drawn.count("epochs 1/3") == 1


def test_of_more_lines_than_wanted_the_first_and_the_last_are_read() -> None:
    lines = LineSplitter(100).feed("".join(f"{i}\n" for i in range(100)).encode(), 4)
    assert [line.text for line in lines] == ["0", "1", "98", "99"]


def complete(output: bytes, n_bytes_max: int = 1000) -> list[str]:
    """The complete lines of an output."""
    return [line.text for line in LineSplitter(n_bytes_max).feed(output) if line.is_complete]


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        (b"one\ntwo\r\nthree\n", ["one", "two", "three"]),
        (b"10%\r20%\r30%\n", ["10%", "20%", "30%"]),
        (b"10%" + b"\b" * 3 + b"20%\n", ["10%", "20%"]),
        (
            b"\r40%| 2/5 [0:01, 1.0it/s, l=1]Epoch 2\n[INFO]go\n",
            ["40%| 2/5 [0:01, 1.0it/s, l=1]", "Epoch 2", "[INFO]go"],
        ),
        (b"a bar\x1b[Aanother\n", ["a bar", "another"]),
        (b"\x1b[1m12\x1b[0m/\x1b[32m300\x1b[0m\n", ["12/300"]),
        (b"\x1b]0;a title\x07text\n", ["text"]),
        (b"\x1b7\x1b[40;1H\r1/3\x1b8\x1b(B\x1b[m\n", ["1/3"]),
        (b"\x1b[2K\x1b[?25lbar\x1b[K\n", ["bar"]),
        ("step 1\n".encode("utf-16-le"), []),
        (b"\xff\xfe step\n", ["�� step"]),
        (b"\n\n  \n", []),
    ],
)
def test_a_line_is_what_a_person_sees(output: bytes, lines: list[str]) -> None:
    assert complete(output) == lines


def test_the_line_on_the_screen_is_told_and_is_not_complete() -> None:
    splitter = LineSplitter(1000)
    assert splitter.feed(b"\r 1/9 [") == [(" 1/9 [", False)]
    assert splitter.feed(b"\r 2/9 [") == [(" 1/9 [", True), (" 2/9 [", False)]
    assert splitter.feed(b"0") == [(" 2/9 [0", False)]


def test_of_a_long_line_the_beginning_and_the_end_are_kept_and_no_number_that_is_cut() -> None:
    (line,) = complete(b"step 12" + b"3" * 500 + b"x" * 500 + b"7" * 500 + b" of 9\n", 1000)
    assert len(line) < 1100
    assert line.startswith("step ")
    assert line.endswith(" of 9")
    assert not any(map(str.isdigit, line[:-2]))


def test_a_line_without_end_does_not_pile_up() -> None:
    splitter = LineSplitter(1000)
    for _ in range(1000):
        (line,) = splitter.feed(b"x" * 10_000)
        assert len(line.text) < 1100


@given(st.binary(max_size=200), st.lists(st.integers(0, 200)))
def test_it_does_not_matter_where_output_is_cut(output: bytes, cuts: list[int]) -> None:
    output += b"\nend\n"
    places = sorted({min(cut, len(output)) for cut in cuts} | {0, len(output)})
    splitter = LineSplitter(1000)
    pieces = [
        line.text for start, end in pairwise(places) for line in splitter.feed(output[start:end]) if line.is_complete
    ]
    assert pieces[-1] == "end"
    assert pieces == complete(output)
