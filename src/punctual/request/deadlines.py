"""Convert times that users write to instants: the only place where the wall clock meets the monotonic one."""

import os
import re
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, tzinfo
from pathlib import Path

from punctual.core.errors import InvalidSpec
from punctual.core.units import DAY_S, span
from punctual.request.quantities import HORIZON_S
from punctual.request.written_time import After, Day, Extend, WallTime, parse_when

_NEW_REMEDY = (
    "Write a duration with its unit (`90s`, `1h30m`) or a time (`18:00`, `18:00 tomorrow`, `2026-12-01 18:00`, "
    "`18:00 Europe/Berlin`)."
)
_PAST_REMEDY = "Write how long ago it was (`2h`) or a time (`18:00`, `2026-12-01 18:00`)."

_INSTANT = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d(:\d\d)?[-+]\d\d:\d\d")

#: Instants behind this are told as it: the calendar of `datetime` ends soon after.
_LAST_WALL = datetime(9999, 7, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Now:
    """One moment on both clocks.

    * `at`: monotonic seconds, as instants of events are.
    * `wall`: the same moment in local time.
    """

    at: float
    wall: datetime

    @classmethod
    def read(cls, shift_s: float = 0.0) -> "Now":
        """Return the present moment; `shift_s`: seconds by which the instants of a journal are before the monotonic clock."""
        return cls(time.monotonic() - shift_s, datetime.now().astimezone())

    def clock(self, at: float, *, about: bool = False) -> str:
        """Format the time of day of instant `at`; `about`: without seconds."""
        told = clock(self.wall_of(at), self.wall)
        return told[:-3] if about else told

    def iso(self, at: float, *, about: bool = False) -> str:
        """Format instant `at` by ISO 8601; `about`: without seconds."""
        return _to_second(self.wall_of(at)).isoformat(timespec="minutes" if about else "seconds")

    def wall_of(self, at: float) -> datetime:
        """Return the wall time of instant `at`, with its offset from UTC; at most that of the year 9999."""
        ahead_s = min(at - self.at, (_LAST_WALL - self.wall).total_seconds())
        return (self.wall + timedelta(seconds=ahead_s)).astimezone()


def clock(wall: datetime, now: datetime | None = None) -> str:
    """Format a time of day, with its date if that is another day than that of `now`; None: the present."""
    today, wall = (now or datetime.now().astimezone()).astimezone().date(), _to_second(wall.astimezone())
    return wall.strftime("%H:%M:%S" if wall.date() == today else "%Y-%m-%d %H:%M:%S")


def timed(text: str) -> str:
    """Write the instants in `text` as clocks here show them: its writer gave them with an offset."""

    def shown(match: re.Match[str]) -> str:
        told = clock(datetime.fromisoformat(match[0]))
        return told if match[1] else told[:-3]

    return _INSTANT.sub(shown, text)


def _to_second(wall: datetime) -> datetime:
    """Round to the nearest second: a deadline of 18:00 went through two clocks, and may be an instant before it."""
    return (wall + timedelta(milliseconds=500)).replace(microsecond=0)


def process_started_at() -> float:
    """Instant at which this process was started, monotonic seconds, within 10 ms.

    The kernel's record is used, so that loading the interpreter and this program counts as part of the run. A process
    much older than loading can take was another program before (a wrapper's `exec`), whose time is not the run's: then
    only the CPU time of loading is counted.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    # Field 22 of /proc/PID/stat, counted after the name in parentheses, which may itself hold spaces.
    started_s = int(fields[19]) / os.sysconf("SC_CLK_TCK")
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - started_s
    # Loading the interpreter and this program takes a fraction of a second, and some seconds from a cold, slow disk.
    if age_s > 10.0:
        age_s = time.process_time()
    return time.monotonic() - max(0.0, age_s)


def deadline_s(text: str, *, started_at: float, now: Now) -> float:
    """Return the seconds from `started_at` to the deadline that a user gave at the start.

    Raises `InvalidSpec`: the deadline is not later than now, is many years away, or cannot be read.
    """
    when = parse_when(text, where="the new job", remedy=_NEW_REMEDY)
    if isinstance(when, Extend):
        raise InvalidSpec(
            "`deadline` must be a duration or a time",
            f"the change {text}",
            "a job that has not started",
            f"Leave the sign out (`--deadline {text.strip().lstrip('+-')}`).",
        )
    at = started_at + when.seconds if isinstance(when, After) else _clock_at(when, now)
    return _in_future(at, text, now, "the new job") - started_at


def moved_deadline_s(text: str, *, started_at: float, present_s: float | None, job: str, now: Now) -> float:
    """Return the seconds from `started_at` to the deadline that a user wants for a running job.

    * `text`: `90s` is that long from now, `+10m` and `-30s` move the present deadline, `18:00` is a time.
    * `present_s`: the deadline in force, seconds from `started_at`; None: there is none.

    Raises `InvalidSpec`: the result is not later than now or many years away, there is nothing to move, or the text
    cannot be read.
    """
    when = parse_when(text, where=f"job '{job}'")
    if isinstance(when, After):
        at = now.at + when.seconds
    elif isinstance(when, WallTime):
        at = _clock_at(when, now)
    elif present_s is None:
        raise InvalidSpec(
            "a change needs a deadline to start from",
            text,
            f"job '{job}', which has no deadline",
            "Give a duration from now (`90s`) or a time (`18:00`).",
        )
    else:
        at = started_at + present_s + when.seconds
    return _in_future(at, text, now, f"job '{job}'") - started_at


def absolute(text: str, now: Now, where: str) -> str:
    """Add its offset from UTC to a time of the clocks here: the host's may be set to another zone. Others stay as they are.

    Raises
    ------
    InvalidSpec
        The time is not later than now, many years away, or one that clocks do not show.
    """
    try:
        when = parse_when(text)
    except InvalidSpec:  # the host knows what may be meant
        return text
    if not isinstance(when, WallTime) or when.zone is not None:
        return text
    return now.iso(_in_future(_clock_at(when, now), text, now, where))


def past_at(text: str, now: Now) -> float:
    """Return the instant of the past that a user means.

    `text`: `2h` is so long ago, `18:00` the last such time, and a date is taken as it stands.

    Raises `InvalidSpec`: the instant is later than now, or the text cannot be read.
    """
    when = parse_when(text, "a time of the past", "the past", _PAST_REMEDY)
    at = _clock_at(when, now, is_past=True) if isinstance(when, WallTime) else now.at - abs(when.seconds)
    if at > now.at or (isinstance(when, Extend) and when.seconds > 0):
        must = "a time of the past must be one that has been"
        raise InvalidSpec(must, text, "a time of the past", _PAST_REMEDY)
    return at


def _clock_at(clock: WallTime, now: Now, *, is_past: bool = False) -> float:
    """Return the instant of a wall time.

    A date with a year, today and tomorrow are taken as they stand. Of anything else it is the next such time; with
    `is_past`, the last one.
    """
    here = now.wall.astimezone(clock.zone).replace(tzinfo=None)
    # A date so many years away is beyond the horizon, and may be beyond the ends of the calendar of `datetime`.
    if clock.day is not None and clock.day.year is not None and abs(clock.day.year - here.year) > 1000:
        return now.at + (clock.day.year - here.year) * 365.25 * DAY_S
    wall = now.wall
    for day in _days(clock.day, here.date(), -1 if is_past else 1):
        local = datetime(day.year, day.month, day.day, clock.hour, clock.minute, clock.second)  # noqa: DTZ001 -- its zone follows
        wall = _wall_of(local, clock.zone, now, is_past=is_past)
        if wall <= now.wall if is_past else wall > now.wall:
            break
    return now.at + (wall - now.wall).total_seconds()


def _days(day: Day | None, today: date, direction: int) -> Iterator[date]:
    """Yield the days that `day` can be, from `today` on; one, if it is taken as it stands."""
    if day is None or day.weekday is not None:
        week = (today + timedelta(days=direction * i) for i in range(8))
        yield from (other for other in week if day is None or other.weekday() == day.weekday)
    elif day.month is None or day.day is None:
        yield today + timedelta(days=day.days_ahead or 0)
    else:
        years = range(today.year, today.year + 9 * direction, direction) if day.year is None else (day.year,)
        for year in years:
            with suppress(ValueError):  # a 29 February
                yield date(year, day.month, day.day)


def _wall_of(local: datetime, zone: tzinfo | None, now: Now, *, is_past: bool) -> datetime:
    """Return the moment that clocks of `zone` (None: those here) show as `local`.

    Of two, when they are set back, it is the first that is still to come; with `is_past`, the last that has been.

    Raises `InvalidSpec`: clocks are set forward over it.
    """
    moments = [local.replace(tzinfo=zone, fold=fold).astimezone(UTC).astimezone(zone) for fold in (0, 1)]
    if moments[0].replace(tzinfo=None, fold=0) != local:
        raise InvalidSpec(
            "a time must be one that clocks show",
            f"{local:%Y-%m-%d %H:%M:%S}, over which they are set forward",
            "a time of this machine's clocks" if zone is None else f"a time of {zone}",
            f"Give a time before or after, as `{max(moments):%Y-%m-%d %H:%M}`.",
        )
    if is_past:
        return next((moment for moment in reversed(moments) if moment <= now.wall), moments[0])
    return next((moment for moment in moments if moment > now.wall), moments[-1])


def _in_future(at: float, text: str, now: Now, where: str) -> float:
    if at - now.at > HORIZON_S:
        raise InvalidSpec(
            "`deadline` must lie within ten years",
            f"{text}, which is {span(at - now.at)} from now",
            where,
            "Give a shorter duration (`90m`) or an earlier time (`18:00`).",
        )
    if at <= now.at:
        ago = f"{span(now.at - at)} ago"
        said = f"{_to_second(now.wall_of(at)):%Y-%m-%d %H:%M:%S} ({ago})" if now.at - at < HORIZON_S else ago
        remedy = "Give a longer duration (`90m`) or a later time (`18:00`)."
        raise InvalidSpec("`deadline` must be later than now", f"{text}, which is {said}", where, remedy)
    return at
