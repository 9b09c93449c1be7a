"""Progress of a program that says nothing itself."""

import random
import re
from pathlib import Path

import pytest

from punctual.channel import Declaration, SharedBlock
from punctual.core.errors import InvalidSpec
from punctual.executors.local.launch import new_page
from punctual.executors.local.progress import JobProgress, OutputProgress, ProgressSample
from punctual.progress_text.own import OwnPattern
from punctual.progress_text.reader import ProgressReader


def read(
    *pieces: bytes,
    pattern: str | None = "auto",
    steps_total: float | None = None,
    deadline_s: float | None = None,
    latest: ProgressSample | None = None,
) -> OutputProgress:
    """The progress of a job that wrote these pieces."""
    progress = OutputProgress(pattern, steps_total, deadline_s, latest or ProgressSample())
    for i, piece in enumerate(pieces):
        progress.receive(piece, 0.1 * i)
    return progress


def after(*pieces: bytes, pattern: str = "auto", steps_total: float | None = None) -> tuple[float, float | None]:
    """Steps and total in the end."""
    sample = read(*pieces, pattern=pattern, steps_total=steps_total).latest(1.0)
    return sample.steps_done, sample.steps_total


#: Page -> the lines that it shows, of the training and of others, and what is read of the last.
SHOWN = {"tqdm": (120, 300), "lightning": (20, 32), "hugging-face": (120, 300)}


@pytest.mark.parametrize("page", SHOWN)
def test_what_pages_about_existing_scripts_show_can_be_read(page: str) -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / f"{page}.md").read_text()
    (lines,) = re.findall(r"```text\n(.*?)```", text, re.DOTALL)
    patterns = re.findall(r"--progress-regex '(.*?)'", text)
    for pattern in patterns:
        OwnPattern.of(pattern)
    reader = ProgressReader(deadline_s=1000.0)
    reader.feed(lines.encode(), 0.0)
    assert reader.chosen is not None
    assert (reader.chosen.series.last, reader.chosen.series.known_total) == SHOWN[page]


def test_what_is_believed_is_reported_with_what_was_used_then() -> None:
    progress = read(b"step 1/9\n", b"step 2/9\n", b"words\n")
    sample = progress.latest(0.7)
    assert (sample.steps_done, sample.steps_total, sample.is_read) == (2, 9, True)
    assert sample.in_flight_core_s == pytest.approx(0.6)
    assert sample.unit_at is not None


def test_what_is_not_sure_is_not_reported() -> None:
    progress = read(b"Resuming from step 80\n", b"\r  1%|1  | 1/300 [00:01<05:00, 1.0it/s]\r", deadline_s=3600.0)
    sample = progress.latest(0.7)
    assert (sample.unit_at, sample.steps_total, sample.is_read) == (None, None, False)


def test_what_is_read_is_told_once_and_why_it_is_where_nobody_asked_for_it() -> None:
    progress = read(b"step 1/9\n", b"step 2/9\n", pattern=None)
    (notice,) = progress.new_notices()
    assert notice.code == "progress-read"
    assert notice.text.startswith("the program does not use `punctual.track`")
    assert "9 steps in all" in notice.text
    progress.receive(b"step 3/9\n", 1.0)
    assert progress.new_notices() == ()
    (asked,) = read(b"step 1/9\n", b"step 2/9\n").new_notices()
    assert "punctual.track" not in asked.text


def test_the_last_line_counts_also_without_an_end() -> None:
    progress = read(b"step 1/9 loss 1\n", b"step 2/9 loss 1\n", b"step 3/9 loss 0")
    progress.finish(1.0)
    assert progress.latest(1.0).steps_done == 3


@pytest.mark.parametrize(
    ("pieces", "pattern", "words"),
    [
        ([b"step 9/9 loss 0.1\n"], "auto", None),
        ([b"step 4/9 loss 0.1\n", b"step 5/9 loss 0.1\n"], "auto", "counted to 5 of 9 steps"),
        ([b"hello\n"], "auto", "go through the batches with `punctual.track`"),
        (
            [b"\r%d%%|#   | %d/99 [00:01<00:09, 3.1it/s]" % (i, i) for i in (1, 2)],
            None,
            "start the job with `--steps 99`",
        ),
        ([b"step 4\n", b"step 5\n"], "auto", "the job ran at full speed and its deadline was not worked towards"),
        ([], None, "go through the batches with `punctual.track`"),
        ([b"hello\n"], r"at (\d+)/(\d+)", "`--progress-regex` fitted no line"),
    ],
)
def test_what_is_left_open_at_the_end_is_told(pieces: list[bytes], pattern: str | None, words: str | None) -> None:
    shortfall = read(*pieces, pattern=pattern, deadline_s=60.0).shortfall()
    assert (shortfall is None) == (words is None)
    assert shortfall is None or words in shortfall.text  # type: ignore[operator]


def test_of_output_that_was_not_all_read_nothing_is_said_to_be_missing() -> None:
    progress = read(b"step 4/9 loss 0.1\n", b"step 5/9 loss 0.1\n", deadline_s=60.0)
    progress.finish(1.0, is_all_read=False)
    assert progress.shortfall() is None


def test_without_a_deadline_nobody_need_know() -> None:
    assert read(b"hello\n").shortfall() is None
    assert read(b"step 4\n", b"step 5\n").shortfall() is None


def test_a_host_that_takes_over_goes_on_counting() -> None:
    known = ProgressSample(steps_done=40, steps_total=80, unit_at=1.0, is_read=True)
    bars = [b"\r%d%%|#   | %d/20 [00:01<00:09, 3.1it/s]" % (5 * i, i) for i in range(4, 12)]
    sample = read(*bars, latest=known).latest(1.0)
    assert (sample.steps_done, sample.steps_total) == (51, 80)


# Expressions of the user's own.


@pytest.mark.parametrize(
    ("pattern", "output", "expected"),
    [
        (r"at (\d+) to (\d+)", b"at 3 to 8\n", (3, 8)),
        (r"of (?P<total>\d+) done (?P<step>\d+)", b"of 8 done 3\n", (3, 8)),
        (r"(?P<step>\d+) in (\d+)", b"3 in 8\n", (3, None)),
        (r"at ([\d,]+)", b"at 1,200\n", (1200, None)),
        (r"at ([\d']+)", b"at 1'200\n", (1200, None)),
        (r"at (\w+)", b"at home\n", (0, None)),
        (r"at (\d+)", b"at 3 at 5\n", (3, None)),
        (r"E(?P<epoch>\d+)/(?P<epochs>\d+) (?P<step>\d+)/(?P<total>\d+)", b"E2/3 4/10\n", (14, 30)),
        (r"E(?P<epoch>\d+)/(?P<epochs>\d+) (?P<step>\d+)/(?P<total>\d+)", b"E0/3 4/10\nE1/3 4/10\n", (14, 30)),
        (r"E(?P<epoch>\d+) (?P<step>\d+)/(?P<total>\d+)", b"E2 4/10\n", (14, None)),
        (r"E(?P<epoch>\d+)/(?P<epochs>\d+)", b"E1/3\nE2/3\n", (2, 3)),
        (r"E(?P<epoch>\d+)", b"E1\nE2\n", (2, None)),
        (r"(\d+)/(\d+)", b"9/10\n1/10\n", (11, None)),
        (r"red (\d+)", b"\x1b[31mred \x1b[0m7\n", (7, None)),
    ],
)
def test_own_patterns(pattern: str, output: bytes, expected: tuple[int, int | None]) -> None:
    assert after(output, pattern=pattern) == expected


def test_a_restart_adds_the_total_and_the_declared_number_holds() -> None:
    assert after(b"9/10\n3/10\n9/10\n1/10\n", pattern=r"(\d+)/(\d+)", steps_total=40) == (21, 40)


def test_a_number_that_may_be_cut_off_does_not_count() -> None:
    assert after(b"at 12", pattern=r"at (\d+)") == (0, None)
    assert after(b"at 12", b"0\n", pattern=r"at (\d+)") == (120, None)
    assert after(b"at 12 ", pattern=r"at (\d+)") == (12, None), "something follows"


@pytest.mark.parametrize("n", [0, 3000, 50_000, 190_000])
def test_the_whole_of_a_long_line_is_searched(n: int) -> None:
    line = b"x" * n + b" step 7/9 " + b"y" * (200_000 - n)
    assert after(line + b"\n", pattern=r"step (\d+)/(\d+)") == (7, 9)


def test_an_expression_that_needs_a_whole_line_gets_it() -> None:
    line = b"7 of" + b" metric=1.5," * 200 + b" total=9 end\n"
    assert after(line, pattern=r"^(\d+) .* total=(\d+) end$") == (7, 9)


def test_an_expression_that_fits_nothing_is_told_of_with_a_line_that_it_does_not_fit() -> None:
    progress = read(b"iter 3 of 9\n" * 49, pattern=r"step (\d+)/(\d+)")
    assert progress.new_notices() == ()
    progress.receive(b"iter 4 of 9\n", 0.0)
    (notice,) = progress.new_notices()
    assert notice.code == "no-progress"
    assert "'iter 4 of 9'" in notice.text
    assert "punctual read" in notice.text
    assert read(b"step 1/9\n", b"other\n" * 200, pattern=r"step (\d+)/(\d+)").new_notices()[0].code == "progress-read"


def test_a_pattern_of_the_user_s_own_is_searched_in_any_output() -> None:
    generator = random.Random(7)
    garbage = [generator.randbytes(5000) for _ in range(50)]
    assert after(*garbage, b"\nat 4 of 9\nat 5 of nine\n", pattern=r"at (\d+) of (.*)") == (5, 9)
    many = b"".join(b"at %d of 900\r" % i for i in range(6, 800))
    assert after(many, pattern=r"at (\d+) of (.*)") == (799, 900)


@pytest.mark.parametrize(
    "pattern", ["(", r"step \d+", "(" * 20_000 + ")" * 20_000, r"(?P<total>\d+)", r"(?P<epochs>\d+)", "(?P<step>"]
)
def test_patterns_that_cannot_be_used(pattern: str) -> None:
    with pytest.raises(InvalidSpec, match="must be a regular expression"):
        OwnPattern.of(pattern)


@pytest.mark.parametrize(
    ("pattern", "problem"),
    [
        (r"(?=step )step (\d+)", r"\(\?="),
        (r"(?<!no )step (\d+)", r"\(\?<"),
        (r"(\d+)/\1", r"\\1"),
        (r"(?P<step>\d+)/(?P=step)", r"\(\?P="),
        (r"(?P<step>\d++)", r"\+\+"),
        (r"(?>step )(\d+)", r"\(\?>"),
        (r"step (\d+)\Z", r"\\Z"),
        (r"(a{1000}){1000}", "repetition"),
        (".{0,1000}" * 20 + r"(\d+)", "more than 10,000"),
        ("\udc80(\\d+)", "UTF-8"),
    ],
)
def test_what_a_search_in_linear_time_cannot_do_is_refused_with_its_name(pattern: str, problem: str) -> None:
    with pytest.raises(InvalidSpec, match=problem) as refused:
        OwnPattern.of(pattern)
    assert "no lookaround" in str(refused.value)


@pytest.mark.parametrize("pattern", [r"(?:a+)+b (\d+)", r"(?:a|a)*b (\d+)", r"(?:a+)*(?:a+)*(?:a+)*b (\d+)"])
def test_no_expression_takes_longer_for_a_line_than_the_line_is_long(pattern: str) -> None:
    # Python's own search would take years for each.
    assert after(b"ab 3\n", b"a" * 100_000 + b"\n", b"ab 4\n", pattern=pattern) == (4, None)


@pytest.mark.parametrize("character", ["x", "\u0001", "�", "é"])
def test_lines_of_any_length_and_number_are_searched(character: str) -> None:
    assert after((character * 5000 + "\n").encode() * 300 + b"at 7\n", pattern=r"^.*at (\d+)") == (7, None)


def test_characters_beyond_ascii_are_part_of_an_expression() -> None:
    assert after("Étape 3 sur 9 – perte 0,1\n".encode(), pattern=r"(?i)étape (\d+) sur (\d+) –") == (3, 9)


# Programs that may use `punctual.track`.


@pytest.fixture
def page() -> SharedBlock:
    """A page that nobody has claimed yet."""
    made, *_ = new_page()
    return made


def test_the_output_is_read_until_the_program_speaks_itself(page: SharedBlock) -> None:
    progress = JobProgress(page, 0.0, OutputProgress(None, None, None, ProgressSample()))
    progress.receive(b"step 1/9\nstep 2/9\n", 0.1)
    sample = progress.latest(0.2)
    assert (sample.steps_done, sample.steps_total, sample.is_read) == (2, 9, True)
    page.declare(Declaration(pid=1, total_steps=30))
    page.publish_progress(4, 1, 0, -1)
    assert progress.is_tracked
    progress.receive(b"step 9/9\n", 0.1)
    sample = progress.latest(0.2)
    assert (sample.steps_done, sample.steps_total, sample.is_read) == (4, 30, False)
    assert progress.shortfall() is None
    assert progress.new_notices() == ()
