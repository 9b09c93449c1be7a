"""What people write about an instant is read as they mean it; a text with two meanings is refused."""

import calendar
import doctest
import re
from contextlib import suppress
from datetime import UTC, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual.core.errors import InvalidSpec
from punctual.request import written_time
from punctual.request.written_time import After, Day, Extend, WallTime, parse_when


def date_of(*parts: int) -> Day:
    return Day(*parts)


def zone(hours: float) -> tzinfo:
    return timezone(timedelta(hours=hours))


TOMORROW = Day(days_ahead=1)
TIMES = {
    "18:00": WallTime(18, 0),
    "09:05": WallTime(9, 5),
    "at 18:00": WallTime(18, 0),
    "at 9:05": WallTime(9, 5),
    "at 1:30:00": WallTime(1, 30),
    "by 23:59:59": WallTime(23, 59, 59),
    "24:00": WallTime(0, 0),
    "6pm": WallTime(18, 0),
    "6 PM": WallTime(18, 0),
    "6:30pm": WallTime(18, 30),
    "6:30:15 a.m.": WallTime(6, 30, 15),
    "12am": WallTime(0, 0),
    "12pm": WallTime(12, 0),
    "noon": WallTime(12, 0),
    "midnight": WallTime(0, 0),
    "six pm": WallTime(18, 0),
    "half past six pm": WallTime(18, 30),
    "at quarter to seven p.m.": WallTime(18, 45),
    "Quarter To 12 am": WallTime(23, 45),
    "15 o'clock": WallTime(15, 0),
    "at 18h30": WallTime(18, 30),
    "8pm tonight": WallTime(20, 0, day=Day(days_ahead=0)),
    "tonight at 20:00": WallTime(20, 0, day=Day(days_ahead=0)),
    "tonight at eight o'clock": WallTime(20, 0, day=Day(days_ahead=0)),
    "midnight tonight": WallTime(0, 0),
    "today 18:00": WallTime(18, 0, day=Day(days_ahead=0)),
    "tomorrow": WallTime(0, 0, day=TOMORROW),
    "tomorrow-18:00": WallTime(18, 0, day=TOMORROW),
    "Tomorrow 9:05:30": WallTime(9, 5, 30, day=TOMORROW),
    "18:00 tomorrow": WallTime(18, 0, day=TOMORROW),
    "6pm tomorrow": WallTime(18, 0, day=TOMORROW),
    "tomorrow at noon": WallTime(12, 0, day=TOMORROW),
    "fri 18:00": WallTime(18, 0, day=Day(weekday=4)),
    "18:00 on Friday": WallTime(18, 0, day=Day(weekday=4)),
    "tues": WallTime(0, 0, day=Day(weekday=1)),
    "2026-12-01": WallTime(0, 0, day=date_of(2026, 12, 1)),
    "2026/12/01 9:00": WallTime(9, 0, day=date_of(2026, 12, 1)),
    "2026-12-01 18:00": WallTime(18, 0, day=date_of(2026, 12, 1)),
    "18:00 2026-12-01": WallTime(18, 0, day=date_of(2026, 12, 1)),
    "2026-12-01T18:00:05": WallTime(18, 0, 5, day=date_of(2026, 12, 1)),
    "2026-12-01T18:00:05.250": WallTime(18, 0, 5, day=date_of(2026, 12, 1)),
    "2028-02-29 00:00": WallTime(0, 0, day=date_of(2028, 2, 29)),
    "1 Dec": WallTime(0, 0, day=Day(month=12, day=1)),
    "Dec 1st, 6pm": WallTime(18, 0, day=Day(month=12, day=1)),
    "1 December 2026 18:00": WallTime(18, 0, day=date_of(2026, 12, 1)),
    "March 3, 2027": WallTime(0, 0, day=date_of(2027, 3, 3)),
    "25/12/2026": WallTime(0, 0, day=date_of(2026, 12, 25)),
    "12.12.2026 18:00": WallTime(18, 0, day=date_of(2026, 12, 12)),
    "2026-12-01T18:00:05Z": WallTime(18, 0, 5, day=date_of(2026, 12, 1), zone=UTC),
    "2026-12-01T18:00+01": WallTime(18, 0, day=date_of(2026, 12, 1), zone=zone(1)),
    "2026-12-01T18:00:05.250+01:00": WallTime(18, 0, 5, day=date_of(2026, 12, 1), zone=zone(1)),
    "2026-12-01 18:00-0530": WallTime(18, 0, day=date_of(2026, 12, 1), zone=zone(-5.5)),
    "18:00Z": WallTime(18, 0, zone=UTC),
    "18:00 utc": WallTime(18, 0, zone=UTC),
    "18:00+01:00": WallTime(18, 0, zone=zone(1)),
    "18:00 -05:00": WallTime(18, 0, zone=zone(-5)),
    "6pm UTC+2 tomorrow": WallTime(18, 0, day=TOMORROW, zone=zone(2)),
    "18:00 Europe/Berlin": WallTime(18, 0, zone=ZoneInfo("Europe/Berlin")),
    "tomorrow 6pm america/new_york": WallTime(18, 0, day=TOMORROW, zone=ZoneInfo("America/New_York")),
    "@1796000000": WallTime(0, 53, 20, day=date_of(2026, 11, 30), zone=UTC),
}
AFTER_S = {
    "90s": 90, "1h30m": 5400, "2 days": 172800, "1-02:00:00": 93600, "now+2h": 7200, "NOW + 2 hours": 7200, "PT2H": 7200,
    "in 2 hours": 7200, "in an hour": 3600, "2 hours from now": 7200, "in 1:30:00": 5400, "in 9:30": 570, "now+1:30:00": 5400,
    "two hours": 7200, "in Two Hours": 7200, "twenty-five minutes": 1500, "half an hour": 1800, "in a quarter of an hour": 900,
    "an hour and a half": 5400, "one and a half hours": 5400, "two hours from now": 7200, "in 1h30": 5400, "2m30": 150,
    "90:00": 5400, "30:00": 1800, "26:30:00": 95400, "now": 0,
}  # fmt: skip
CHANGES_S = {"+10m": 600, "-30s": -30, "+1:30:00": 5400, "+18:00": 1080, "- 2 hours": -7200}
#: Text -> the texts that say one of its meanings.
TWO_MEANINGS = {
    "1:30": ["1m30s", "01:30"],
    "9:05": ["9m5s", "09:05"],
    "1:30:00": ["1h30m", "01:30"],
    "0:45:00": ["45m", "00:45"],
    "00:15:00": ["15m", "00:15"],
    "18:00:30": ["18h30s", "at 18:00:30"],
    "24:00:00": ["1d", "00:00"],
    "24:30": ["24m30s", "00:30"],
    "25:00": ["25m", "01:00"],
    "2-11": ["2d11h", "2 november 00:00", "11 february 00:00"],
    "12/01/2026": ["2026-01-12 00:00", "2026-12-01 00:00"],
    "01.12.2026 18:00": ["2026-12-01 18:00", "2026-01-12 18:00"],
    "3/4 9:00": ["3 april 09:00", "4 march 09:00"],
    "midnight tomorrow": ["tomorrow 00:00", "tomorrow 23:59"],
    "1h30": ["1h30m", "01:30"],
    "18h30": ["18h30m", "18:30"],
    "half past six": ["06:30", "18:30"],
    "quarter to one tomorrow": ["tomorrow 00:45", "tomorrow 12:45"],
    "six o'clock": ["06:00", "18:00"],
    "fri midnight": ["friday 00:00", "friday 23:59"],
}
UNREADABLE = [
    "", " ", "90", "1.5", "soon", "eod", "18:60", "1:2", "at 90:00", "2026-13-01 18:00", "2026-02-29 18:00", "2026-00-01 18:00",
    "2026-12-00 18:00", "2026-12-01 24:00", "0000-01-01 00:00", "30 feb", "+", "-", "+18", "--30s", "+-30s", "in", "in 18", "at",
    "at 2 hours", "in tomorrow", "2026-12-01 18:00+24:00", "2026-12", "1796000000", "@", "@1e9", "18:00 19:00", "fri 2026-12-01",
    "tomorrow sat", "UTC", "18:00 CST", "18:00 Europe/Nowhere", "18:00 ../etc/passwd", "13pm", "0am", "6pm pm", "25:00 tomorrow",
    "1 month", "tonight", "tonight 3am", "tomorrow night", "at six", "half six", "13 o'clock pm", "18:00 CET", "one two hours", "next friday 18:00 or so", "18:00,", "٣pm",
]  # fmt: skip


@pytest.mark.parametrize(("text", "time"), TIMES.items())
def test_times(text: str, time: WallTime) -> None:
    assert parse_when(text) == time


@pytest.mark.parametrize(("text", "seconds"), AFTER_S.items())
def test_durations(text: str, seconds: float) -> None:
    assert parse_when(text) == After(seconds)


@pytest.mark.parametrize(("text", "seconds"), CHANGES_S.items())
def test_changes(text: str, seconds: float) -> None:
    assert parse_when(text) == Extend(seconds)


@pytest.mark.parametrize(("text", "readings"), TWO_MEANINGS.items())
def test_a_text_with_two_meanings_is_refused_with_both(text: str, readings: list[str]) -> None:
    with pytest.raises(InvalidSpec, match="`deadline` must have one meaning") as refused:
        parse_when(text)
    assert re.findall("`([^`]+)`", refused.value.remedy) == re.findall("`([^`]+)`", refused.value.got) == readings
    meanings = [parse_when(reading) for reading in readings]
    assert len({*map(repr, meanings)}) == len(readings)


@pytest.mark.parametrize("text", UNREADABLE)
def test_what_is_no_deadline_is_refused_with_what_could_be_written(text: str) -> None:
    with pytest.raises(InvalidSpec) as refused:
        parse_when(text)
    assert refused.value.must
    assert refused.value.where
    assert repr(text) in refused.value.got
    shown = re.findall("`([^`]+)`", refused.value.remedy)
    assert shown
    for example in shown:
        with suppress(InvalidSpec):  # a name, as `Europe/Berlin`
            parse_when(example)


def test_the_word_that_cannot_be_read_is_named() -> None:
    with pytest.raises(InvalidSpec, match="in which 'CST' cannot be read"):
        parse_when("18:00 CST")


@pytest.mark.parametrize("text", ["18:00 CET", "6pm EST tomorrow", "tomorrow 18:00 ist"])
def test_the_letters_of_a_zone_have_no_one_meaning(text: str) -> None:
    with pytest.raises(InvalidSpec, match="the zone of `deadline`") as refused:
        parse_when(text)
    assert "`18:00+01:00`" in refused.value.remedy


@given(st.dates(), st.times())
def test_every_date_of_the_calendar_is_known(date: object, time: object) -> None:
    when = parse_when(f"{date}T{time:%H:%M:%S}")
    assert isinstance(when, WallTime)
    assert when.day is not None
    assert f"{when.day.year:04d}-{when.day.month:02d}-{when.day.day:02d}" == str(date)


@given(st.integers(1, 9999), st.integers(1, 12))
def test_the_day_after_a_months_last_is_refused(year: int, month: int) -> None:
    last = calendar.monthrange(year, month)[1]
    assert parse_when(f"{year:04d}-{month:02d}-{last} 12:00") == WallTime(12, 0, day=Day(year, month, last))
    with pytest.raises(InvalidSpec):
        parse_when(f"{year:04d}-{month:02d}-{last + 1} 12:00")


@given(st.integers(0, 23), st.integers(0, 59), st.integers(0, 59))
def test_hours_minutes_and_seconds_are_never_a_guess(hour: int, minute: int, second: int) -> None:
    for text in (f"{hour}:{minute:02d}:{second:02d}", f"{hour:02d}:{minute:02d}:{second:02d}"):
        with pytest.raises(InvalidSpec, match="one meaning"):
            parse_when(text)
        assert parse_when(f"in {text}") == After(hour * 3600 + minute * 60 + second)
        assert parse_when(f"at {text}") == WallTime(hour, minute, second)


@pytest.mark.parametrize("text", ["9" * 60_000 + "s", "9" * 60_000, "18:00 " * 100])
def test_a_text_without_end_is_refused_before_it_is_read(text: str) -> None:
    with pytest.raises(InvalidSpec, match="at most 64 characters"):
        parse_when(text)


@given(st.text("0123456789.:-+/@dhmspT ", max_size=40) | st.text(max_size=64))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(InvalidSpec):
        parse_when(text)


def test_examples() -> None:
    assert doctest.testmod(written_time).attempted
    assert not doctest.testmod(written_time).failed
