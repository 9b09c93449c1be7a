"""What people write about time, cores and memory."""

import doctest
import re
from collections.abc import Callable
from contextlib import suppress
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core import units
from punctual.core.errors import InvalidSpec
from punctual.core.units import format_bytes, format_duration, span
from punctual.request.quantities import parse_bytes, parse_bytes_range, parse_cores, parse_cores_range, parse_duration_s

DURATIONS = {
    "90s": 90,
    "90 s": 90,
    "1h30m": 5400,
    "1 h 30 min": 5400,
    "90m": 5400,
    "90min": 5400,
    "1.5h": 5400,
    "1:30:00": 5400,
    "90:00": 5400,
    "02:00": 120,
    "1-02:00:00": 93600,
    "250ms": 0.25,
    "1d": 86400,
    "1d2h3m4s5ms": 93784.005,
    "0s": 0,
    " 3m ": 180,
    "PT1H30M": 5400,
    "P1DT2H": 93600,
    "PT0.25S": 0.25,
    "P2D": 172800,
    "P1W": 604800,
    "2 days": 172800,
    "1 week": 604800,
    "2w": 1209600,
    "1.5 hours": 5400,
    "1 hour 30 minutes": 5400,
    "1 hour and 30 minutes": 5400,
    "1 Hour, 30 Mins": 5400,
    "an hour": 3600,
    "45 secs": 45,
    "90S": 90,
    "2H": 7200,
    "1:02:00:00": 93600,
    "1-02:30": 95400,
    "1-02": 93600,
    "0-00:45": 2700,
}
NO_DURATIONS = [
    "", " ", "90", "1.5", "s", "h1", "-5s", "+5s", "5 parsecs", "30m1h", "1h1h", "1h 5", "1:90:00", "1:60", "1-25:00:00",
    "P", "PT", "P1DT", "P1Y", "P1M", "PT1M1H", "pt1h", "1:2", "1.h", "1e3s", "inf s", "nan", "٣s", "1h,30m", "18:00 Uhr",
    "1 month", "30M", "1 year", "1h and", "and 1h", "1h, 30m,", "1-25", "1-02:60", "2026-12", "banana", "a", "1 hour 1 hours",
]  # fmt: skip


def assert_four_parts(error: InvalidSpec, text: str) -> None:
    assert error.must
    assert error.where
    assert error.got == repr(text)
    assert re.search(r"`[^`]+`", error.remedy), "the remedy shows an example"


@pytest.mark.parametrize(("text", "seconds"), DURATIONS.items())
def test_durations(text: str, seconds: float) -> None:
    assert parse_duration_s(text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", NO_DURATIONS)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_duration_s(text)
    assert_four_parts(caught.value, text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"), (1e-9, "0s"), (0.00025, "0.25ms"), (0.0671, "67.1ms"), (0.9996, "1s"), (1, "1.0s"), (59.94, "59.9s"),
        (59.96, "1m00s"), (252, "4m12s"), (3599.4, "59m59s"), (3599.6, "1h00m"), (5400, "1h30m"), (86369, "23h59m"),
        (86371, "1d00h"), (93600, "1d02h"), (-90, "-1m30s"), (inf, "∞"), (-inf, "-∞"),
    ],
)  # fmt: skip
def test_format(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (1e-9, "0 s"), (0.0671, "67 ms"), (0.9996, "1 s"), (-20.04, "20 s"), (59.7, "1 min"), (-400, "6 min 40 s"),
        (599.6, "10 min"), (3570, "1 h"), (5400, "1 h 30 min"), (93_600, "26 h"), (200_000, "2 d 8 h"), (inf, "for ever"),
    ],
)  # fmt: skip
def test_a_span_is_written_as_a_sentence_has_it(seconds: float, text: str) -> None:
    assert span(seconds) == text


@given(st.floats(0, 1e8))
def test_a_formatted_duration_reads_as_what_it_was_but_for_rounding(seconds: float) -> None:
    shown_s = 1e-6 if seconds < 1e-3 else max(1e-3, 0.005 * seconds) if seconds < 1 else 0.05 if seconds < 60 else 0.5
    shown_s = 1800 if seconds > 86_000 else 30 if seconds > 3_599 else shown_s
    assert parse_duration_s(format_duration(seconds)) == pytest.approx(seconds, abs=shown_s * 1.001)


@given(st.floats(0, 1e8), st.floats(0, 1e8))
def test_parsing_keeps_the_order_of_exact_texts(one: float, other: float) -> None:
    texts = [f"{value:.6f}s" for value in (one, other)]
    assert (parse_duration_s(texts[0]) < parse_duration_s(texts[1])) == (float(texts[0][:-1]) < float(texts[1][:-1]))


@given(st.integers(0, 999), st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_all_ways_to_write_a_duration_agree(days: int, hours: int, minutes: int, seconds: int) -> None:
    colons = parse_duration_s(f"{days}-{hours:02d}:{minutes:02d}:{seconds:02d}")
    assert colons == parse_duration_s(f"{days}d{hours}h{minutes}m{seconds}s")
    assert colons == days * 86400 + hours * 3600 + minutes * 60 + seconds


@pytest.mark.parametrize(
    ("text", "cores"), [("2", 2), ("0.5", 0.5), (".5", 0.5), ("0.5 cores", 0.5), ("1core", 1), (" 1.25 ", 1.25)]
)
def test_cores(text: str, cores: float) -> None:
    assert parse_cores(text) == cores


@pytest.mark.parametrize("text", ["", "0", "0.0 cores", "-1", "two", "1e3", "50%", "cores", "0.1..2"])
def test_what_is_no_number_of_cores_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_cores(text)
    assert_four_parts(caught.value, text)


@pytest.mark.parametrize("read", [parse_duration_s, parse_cores, parse_cores_range])
@pytest.mark.parametrize("text", ["9" * 60_000 + "s", "9" * 60_000 + "-00:00:00", "9" * 60_000, "0.1.." + "9" * 60_000])
def test_a_text_without_end_is_refused_before_it_is_read(read: Callable[[str], object], text: str) -> None:
    with pytest.raises(InvalidSpec, match="at most 64 characters") as caught:
        read(text)
    assert len(str(caught.value)) < 300


@given(st.text("0123456789.:-+dhms incore%T", max_size=80) | st.text(max_size=80))
def test_any_text_is_read_or_refused(text: str) -> None:
    for read in (parse_duration_s, parse_cores, parse_cores_range):
        with suppress(InvalidSpec):
            read(text)


def test_cores_ranges() -> None:
    assert parse_cores_range("0.1..2") == (0.1, 2)
    assert parse_cores_range("0 .. 2 cores") == (0, 2)
    assert parse_cores_range("1..1") == (1, 1)
    assert parse_cores_range("2") == (None, 2)


@pytest.mark.parametrize("text", ["2..1", "..2", "1..", "..", "1...2", "0..0", "a..b", "1..2..3"])
def test_what_is_no_range_of_cores_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpec):
        parse_cores_range(text)


@pytest.mark.parametrize("text", ["1..", "..2", "a..b"])
def test_a_range_of_cores_that_cannot_be_read_is_told_as_it_was_written(text: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_cores_range(text)
    assert caught.value.got == repr(text)


@given(st.floats(0.001, 512).map(lambda x: round(x, 3)), st.floats(0.001, 512).map(lambda x: round(x, 3)))
def test_a_range_round_trip(one: float, other: float) -> None:
    low, high = sorted((one, other))
    assert parse_cores_range(f"{low}..{high}") == (low, high)


def test_examples() -> None:
    found = doctest.testmod(units)
    assert found.attempted
    assert not found.failed


GIB = 1 << 30


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [
        ("4GiB", 4 * GIB), ("4G", 4 * GIB), ("4GB", 4 * GIB), ("4 gib", 4 * GIB), ("4Gi", 4 * GIB), (" 4g ", 4 * GIB), ("0.5T", 512 * GIB),
        ("512M", GIB // 2), ("512MB", GIB // 2), ("512 MiB", GIB // 2), ("1.5G", 3 * GIB // 2), ("1024k", 1 << 20),
    ],
)  # fmt: skip
def test_memory_is_counted_in_powers_of_1024_whichever_way_the_unit_is_written(text: str, n_bytes: int) -> None:
    assert parse_bytes(text) == n_bytes
    assert parse_bytes_range(text) == (n_bytes, n_bytes)


@pytest.mark.parametrize(
    "text",
    ["", "4", "4 b", "4GBit", "0G", "-1G", "1e3M", "G", "4 G iB", "٣G", "nan G", "99999999T", "4G8G", "x" * 100, ".5G"],
)
@pytest.mark.parametrize("parse", [parse_bytes, parse_bytes_range])
def test_what_is_no_amount_of_memory_is_refused(parse: Callable[[str], object], text: str) -> None:
    with pytest.raises(InvalidSpec, match=r"Write for example `4GiB`") as refused:
        parse(text)
    assert refused.value.where == "an amount of memory"


def test_a_range_of_memory() -> None:
    assert parse_bytes_range("4G..16GiB") == (4 * GIB, 16 * GIB)
    for text in ("16G..4G", "4G..", "..4G", "4G...8G", "4G..8G..9G"):
        with pytest.raises(InvalidSpec) as refused:
            parse_bytes_range(text)
        assert refused.value.got == repr(text)


@given(st.integers(1 << 10, 1 << 50))
def test_memory_that_was_written_for_people_is_read_to_three_digits(n_bytes: int) -> None:
    assert abs(parse_bytes(format_bytes(n_bytes)) - n_bytes) <= 0.005 * n_bytes + 1  # whole bytes are read
