"""What a user says about time becomes instants; anything that is not later than now is refused."""

import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

from punctual.core.errors import InvalidSpec
from punctual.request.deadlines import Now, absolute, deadline_s, moved_deadline_s, past_at, process_started_at, timed

NOON = Now(at=1000.0, wall=datetime(2026, 11, 21, 12, 0, 0).astimezone())


def test_a_duration_counts_from_the_start_of_the_command() -> None:
    assert deadline_s("3m", started_at=999.0, now=NOON) == 180.0


def test_a_time_of_day_is_the_next_such_time() -> None:
    assert deadline_s("18:00", started_at=999.0, now=NOON) == pytest.approx(6 * 3600 + 1)
    tomorrow_s = (datetime(2026, 11, 22, 6, 0).astimezone() - NOON.wall).total_seconds()
    assert deadline_s("06:00", started_at=1000.0, now=NOON) == pytest.approx(tomorrow_s)


def test_tomorrow_is_the_next_day_also_where_that_time_is_still_to_come_today() -> None:
    for time_of_day, hour in (("18:00", 18), ("06:00", 6)):
        expected_s = (datetime(2026, 11, 22, hour, 0).astimezone() - NOON.wall).total_seconds()
        text = f"tomorrow-{time_of_day}"
        assert deadline_s(text, started_at=1000.0, now=NOON) == pytest.approx(expected_s)
        moved_s = moved_deadline_s(text, started_at=1000.0, present_s=None, job="a", now=NOON)
        assert moved_s == pytest.approx(expected_s)


def test_a_deadline_is_told_as_it_was_given() -> None:
    """Between two looks at both clocks a little of them differs."""
    told = Now(at=1000.0004, wall=NOON.wall)
    at = 1000.0 + deadline_s("18:00", started_at=1000.0, now=NOON)
    assert told.clock(at).endswith("18:00:00")
    assert told.clock(at, about=True).endswith("18:00")
    assert "T18:00:00" in told.iso(at)


def test_a_date_is_taken_as_it_stands() -> None:
    assert deadline_s("2026-11-21 12:01", started_at=1000.0, now=NOON) == pytest.approx(60)


def test_a_time_with_an_offset_is_the_same_moment_wherever_it_is_read() -> None:
    deadline = NOON.wall + timedelta(minutes=90)
    for hours in (-11, 0, 5.5, 14):
        elsewhere = deadline.astimezone(timezone(timedelta(hours=hours)))
        assert deadline_s(elsewhere.isoformat(), started_at=1000.0, now=NOON) == pytest.approx(5400)


def test_a_date_in_the_past_is_refused_and_said_how_long_ago_it_was() -> None:
    with pytest.raises(InvalidSpec) as refused:
        deadline_s("2026-11-21 11:00", started_at=1000.0, now=NOON)
    assert refused.value.must == "`deadline` must be later than now"
    assert "(1 h ago)" in refused.value.got


def test_a_duration_that_the_start_up_has_used_up_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="later than now"):
        deadline_s("100ms", started_at=999.0, now=NOON)


@pytest.mark.parametrize("text", ["4000d", "999999999999d", "2037-01-01 10:00", "9999-12-31 23:59"])
def test_a_deadline_in_many_years_is_a_slip(text: str) -> None:
    with pytest.raises(InvalidSpec, match="within ten years"):
        deadline_s(text, started_at=1000.0, now=NOON)
    with pytest.raises(InvalidSpec, match="within ten years"):
        moved_deadline_s(text, started_at=890.0, present_s=300.0, job="a", now=NOON)


@pytest.mark.parametrize("text", ["0001-01-01 00:00", "-999999999999d"])
def test_a_deadline_long_ago_is_refused_like_one_of_today(text: str) -> None:
    with pytest.raises(InvalidSpec, match="later than now"):
        moved_deadline_s(text, started_at=890.0, present_s=300.0, job="a", now=NOON)


def test_a_text_that_is_too_long_is_not_read() -> None:
    with pytest.raises(InvalidSpec, match="60001 characters"):
        deadline_s("9" * 60_000 + "s", started_at=1000.0, now=NOON)


def test_a_change_needs_a_running_job() -> None:
    with pytest.raises(InvalidSpec, match="Leave the sign out"):
        deadline_s("+10m", started_at=1000.0, now=NOON)


@pytest.mark.parametrize(
    ("text", "expected_s"),
    [("90s", 110 + 90), ("+10m", 300 + 600), ("-30s", 300 - 30), ("12:05", 110 + 300)],
)
def test_a_running_job_s_deadline_moves(text: str, expected_s: float) -> None:
    moved_s = moved_deadline_s(text, started_at=890.0, present_s=300.0, job="a", now=NOON)
    assert moved_s == pytest.approx(expected_s)


def test_a_deadline_is_not_moved_into_the_past() -> None:
    with pytest.raises(InvalidSpec, match="later than now"):
        moved_deadline_s("-250s", started_at=890.0, present_s=300.0, job="a", now=NOON)


def test_there_must_be_something_to_move() -> None:
    with pytest.raises(InvalidSpec, match="no deadline"):
        moved_deadline_s("+1m", started_at=890.0, present_s=None, job="a", now=NOON)


def test_both_clocks_agree() -> None:
    assert NOON.wall_of(1060.0) - NOON.wall == timedelta(seconds=60)


@pytest.fixture
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Clocks that are set forward at 2:00 on 2026-03-29 and back at 3:00 on 2026-10-25."""
    with monkeypatch.context() as changed:
        changed.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
        time.tzset()
        yield
    time.tzset()


def moment(*parts: int, fold: int = 0) -> Now:
    return Now(at=1000.0, wall=datetime(*parts, fold=fold).astimezone())  # type: ignore[arg-type]


@pytest.mark.usefixtures("berlin")
def test_a_deadline_beyond_a_change_of_clocks_is_told_as_clocks_will_show_it() -> None:
    before = moment(2026, 3, 28, 18, 0)
    at = 1000.0 + deadline_s("2026-03-29 18:00", started_at=1000.0, now=before)
    assert at - 1000.0 == pytest.approx(23 * 3600)
    assert before.wall_of(at).hour == 18


@pytest.mark.usefixtures("berlin")
def test_a_time_that_comes_twice_is_the_next_of_the_two() -> None:
    assert deadline_s("02:50", started_at=1000.0, now=moment(2026, 10, 25, 2, 30)) == pytest.approx(20 * 60)
    assert deadline_s("02:50", started_at=1000.0, now=moment(2026, 10, 25, 2, 55)) == pytest.approx(55 * 60)
    assert deadline_s("02:50", started_at=1000.0, now=moment(2026, 10, 25, 2, 30, fold=1)) == pytest.approx(20 * 60)


@pytest.mark.usefixtures("berlin")
def test_a_time_of_these_clocks_is_told_to_others_with_its_offset() -> None:
    noon = moment(2026, 11, 27, 12, 0)
    assert absolute("18:00", noon, "job 'a'") == "2026-11-27T18:00:00+01:00"
    for text in ("+10m", "90s", "18:00Z", "none", "nonsense"):
        assert absolute(text, noon, "job 'a'") == text
    with pytest.raises(InvalidSpec, match="later than now"):
        absolute("2026-11-27 11:00", noon, "job 'a'")


@pytest.mark.usefixtures("berlin")
def test_instants_of_others_are_written_as_these_clocks_show_them() -> None:
    told = timed("lands 2001-11-27T23:30:00+05:30, not before 2001-11-27T23:30+05:30")
    assert told == "lands 2001-11-27 19:00:00, not before 2001-11-27 19:00"


@pytest.mark.parametrize(
    ("text", "ago_s"),
    [("2h", 7200), ("-2h", 7200), ("now+0s", 0), ("11:59", 60), ("12:00", 0), ("12:01", 86400 - 60)],
)
def test_a_time_of_the_past_is_the_last_such(text: str, ago_s: float) -> None:
    assert NOON.at - past_at(text, NOON) == pytest.approx(ago_s)


@pytest.mark.usefixtures("berlin")
def test_a_time_of_the_past_is_found_beyond_a_change_of_clocks() -> None:
    after = moment(2026, 10, 25, 2, 55, fold=1)
    assert after.at - past_at("02:50", after) == pytest.approx(5 * 60)
    assert after.at - past_at("02:58", after) == pytest.approx(57 * 60)
    assert after.at - past_at("2026-10-24 18:00", after) == pytest.approx(8 * 3600 + 55 * 60 + 3600)


@pytest.mark.parametrize("text", ["+10m", "tomorrow-11:00", "2026-11-21 12:01", "today 12:01"])
def test_what_is_still_to_come_is_no_time_of_the_past(text: str) -> None:
    with pytest.raises(InvalidSpec, match="a time of the past must be one that has been"):
        past_at(text, NOON)


def test_what_is_no_time_of_the_past_is_refused_as_such() -> None:
    with pytest.raises(InvalidSpec, match="for the past"):
        past_at("soon", NOON)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("18:00 tomorrow", (2026, 11, 22, 18)), ("6pm", (2026, 11, 21, 18)), ("11am", (2026, 11, 22, 11)),
        ("noon", (2026, 11, 22, 12)), ("midnight", (2026, 11, 22, 0)), ("tomorrow", (2026, 11, 22, 0)),
        ("sat 18:00", (2026, 11, 21, 18)), ("sat 11:00", (2026, 11, 28, 11)), ("Friday 6 PM", (2026, 11, 27, 18)),
        ("2026-12-01", (2026, 12, 1, 0)), ("1 Dec 18:00", (2026, 12, 1, 18)), ("nov 1", (2027, 11, 1, 0)),
        ("29 feb", (2028, 2, 29, 0)), ("at 18:00 on friday", (2026, 11, 27, 18)), ("by 18:00", (2026, 11, 21, 18)),
    ],
)  # fmt: skip
def test_what_people_write_is_the_instant_that_they_mean(text: str, expected: tuple[int, ...]) -> None:
    expected_s = (datetime(*expected).astimezone() - NOON.wall).total_seconds()  # type: ignore[arg-type]
    assert deadline_s(text, started_at=1000.0, now=NOON) == pytest.approx(expected_s)
    assert moved_deadline_s(text, started_at=1000.0, present_s=None, job="a", now=NOON) == pytest.approx(expected_s)


def test_a_time_of_another_place_is_the_next_such_there() -> None:
    for hours in (-11, 0, 5.5, 14):
        offset = timezone(timedelta(hours=hours))
        there = NOON.wall.astimezone(offset) + timedelta(hours=7)
        text = f"{there:%H:%M%z}"
        assert deadline_s(text, started_at=1000.0, now=NOON) == pytest.approx(7 * 3600)
    at = NOON.wall_of(1000.0 + deadline_s("18:00 Europe/Berlin", started_at=1000.0, now=NOON))
    there = at.astimezone(ZoneInfo("Europe/Berlin"))
    assert (there.hour, there.minute) == (18, 0)
    assert NOON.wall < at <= NOON.wall + timedelta(hours=24)


@pytest.mark.parametrize("text", ["1:30:00", "9:30", "0:45", "12/01/2026", "midnight tomorrow"])
def test_a_text_with_two_meanings_is_refused_wherever_an_instant_is_asked_for(text: str) -> None:
    with pytest.raises(InvalidSpec, match="must have one meaning"):
        deadline_s(text, started_at=1000.0, now=NOON)
    with pytest.raises(InvalidSpec, match="must have one meaning"):
        moved_deadline_s(text, started_at=890.0, present_s=300.0, job="a", now=NOON)
    with pytest.raises(InvalidSpec, match="must have one meaning"):
        past_at(text, NOON)


@pytest.mark.parametrize(
    ("text", "expected"), [("fri 18:00", (20, 18)), ("sat", (21, 0)), ("21 nov", (21, 0)), ("at 12:00:00", (21, 12))]
)
def test_a_day_of_the_past_is_the_last_such(text: str, expected: tuple[int, int]) -> None:
    day, hour = expected
    ago_s = (NOON.wall - datetime(2026, 11, day, hour).astimezone()).total_seconds()
    assert NOON.at - past_at(text, NOON) == pytest.approx(ago_s)


@pytest.mark.usefixtures("berlin")
def test_a_time_that_clocks_skip_is_refused() -> None:
    with pytest.raises(InvalidSpec, match="set forward") as refused:
        deadline_s("02:30", started_at=1000.0, now=moment(2026, 3, 28, 18, 0))
    assert "03:30" in refused.value.remedy


def test_the_start_of_a_process_is_the_kernel_s_not_python_s() -> None:
    """A shell that sleeps before it becomes Python has the same process: its sleep counts."""
    program = (
        "from punctual.request.deadlines import process_started_at as p; import time; print(time.monotonic() - p())"
    )
    command = f"sleep 0.5; exec '{sys.executable}' -c '{program}'"
    age_s = float(subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True).stdout)
    assert age_s > 0.49


def test_this_process_started_before_now() -> None:
    assert process_started_at() < time.monotonic()
