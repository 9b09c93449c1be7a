"""From what people write about time, cores and memory to numbers, and back.

A text such as ``18:00`` means two things, and the place decides which: as a duration it is minutes and seconds, as
batch systems have it; as a deadline it is a time of day, because nobody gives a deadline of eighteen minutes that way.
A bare number is refused: one scheduler reads it as minutes, the next as seconds; of memory one reads MB, the next bytes.
Memory is counted in powers of 1024, as Slurm, Docker and the makers of memory do: ``4G``, ``4GB`` and ``4GiB`` are the same.
"""

import re
from dataclasses import dataclass, replace
from math import inf, isfinite

from punctual.core.errors import InvalidSpec

MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400

_UNITS_S = {"d": DAY_S, "h": HOUR_S, "m": MINUTE_S, "min": MINUTE_S, "s": 1, "ms": 1e-3}
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER})\s*(ms|min|[dhms])\s*")
_COLONS = re.compile(r"(?:(?:([0-9]+)-)?([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{2})")
_DAY_AND_TIME = re.compile(
    r"(?:([0-9]{4})-([0-9]{2})-([0-9]{2})(?:\s+|[Tt]))?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2})(?:\.[0-9]{1,9})?)?"
)
_UTC_OFFSET = re.compile(r"(?<=:[0-9]{2})(?:\.[0-9]{1,9})?(?:([Zz])|([+-])([0-9]{2})(?::?([0-9]{2}))?)")
_TOMORROW = re.compile(r"tomorrow(?:-|\s+)(.*)", re.IGNORECASE | re.DOTALL)
_NOW_PLUS = re.compile(r"now\s*\+(.*)", re.IGNORECASE | re.DOTALL)
_ISO_DURATION = re.compile(
    rf"P(?=[0-9T])(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_CORES = re.compile(rf"({_NUMBER}|\.[0-9]+)\s*(?:cores?)?")
_BYTES = re.compile(rf"({_NUMBER})\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_UNITS_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

#: More than any machine has, and little enough that a JSON number is exact.
_BYTES_BOUND = 1 << 53
_TEXT_LENGTH_MAX = 64

_DURATION_REMEDY = "Write for example `90s`, `1h30m`, `1.5h`, `1:30:00` or `2-12:00:00`."
_WHEN_REMEDY = "Write a duration (`90s`, `1h30m`), a change (`+10m`, `-30s`) or a time (`18:00`, `tomorrow-18:00`, `2026-12-01 18:00`)."
_CORES_REMEDY = "Write for example `2`, `0.5 cores` or the range `0.1..2`."
_BYTES_REMEDY = "Write for example `4GiB`, `512M` or the range `4G..16G`."


@dataclass(frozen=True, slots=True)
class After:
    """That long from a moment which the place defines."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Extend:
    """That much later than the deadline in force; below zero: earlier."""

    seconds: float


@dataclass(frozen=True, slots=True)
class WallTime:
    """A local time; without a date it is the next such time of day. What instant that is, only a clock can tell.

    With `days_ahead` it has no date, and is on the day so many after the present one. With `utc_offset_s`, how far its clocks are ahead of UTC, it has a date and is a time of another place.
    """

    year: int | None
    month: int | None
    day: int | None
    hour: int
    minute: int
    second: int = 0
    utc_offset_s: int | None = None
    days_ahead: int | None = None


When = After | Extend | WallTime


def parse_duration_s(text: str) -> float:
    """Seconds that `text` means.

    Parameters
    ----------
    text
        Numbers with units, largest first (``1h30m``, ``1.5h``, ``250ms``; units d, h, m or min, s, ms), or
        ``HH:MM:SS``, ``MM:SS``, ``D-HH:MM:SS``, or ISO 8601's ``PT1H30M`` (days and smaller units).

    Raises
    ------
    InvalidSpec
        When `text` is something else, a bare number included.

    Examples
    --------
    >>> parse_duration_s("1h30m"), parse_duration_s("02:00"), parse_duration_s("1-02:00:00")
    (5400.0, 120.0, 93600.0)
    """
    check_length(text, "a duration", _DURATION_REMEDY)
    seconds = _colons_s(text.strip())
    if seconds is None:
        seconds = _parts_s(text.strip())
    if seconds is None:
        seconds = _iso_s(text.strip())
    if seconds is None or not isfinite(seconds):
        raise InvalidSpec("a duration must be numbers with units", repr(text), "a length of time", _DURATION_REMEDY)
    return seconds


def parse_when(text: str) -> When:
    """The deadline that `text` means; see the module for what ``18:00`` is.

    A duration, also as ``now+2h``; a signed one; or a time of day, alone, after ``tomorrow-`` or after a date, as ISO 8601 has
    it too.

    Raises
    ------
    InvalidSpec
        When `text` is none of these.

    Examples
    --------
    >>> parse_when("90s"), parse_when("-30s")
    (After(seconds=90.0), Extend(seconds=-30.0))
    >>> parse_when("18:00")
    WallTime(year=None, month=None, day=None, hour=18, minute=0, second=0, utc_offset_s=None, days_ahead=None)
    >>> parse_when("now+2h"), parse_when("tomorrow-18:00").days_ahead
    (After(seconds=7200.0), 1)
    >>> parse_when("2026-12-01T18:00:00+01:00").utc_offset_s
    3600
    """
    check_length(text, "a deadline", _WHEN_REMEDY)
    stripped = text.strip()
    told_offset = _UTC_OFFSET.search(stripped)
    if told_offset is not None and told_offset.end() == len(stripped):
        return _clock_elsewhere(text, stripped[: told_offset.start()], told_offset)
    found = _DAY_AND_TIME.fullmatch(stripped)
    if found:
        return _clock(text, *(int(part) if part else None for part in found.groups()))
    tomorrow, now_plus = _TOMORROW.fullmatch(stripped), _NOW_PLUS.fullmatch(stripped)
    if tomorrow is not None:
        return _clock_tomorrow(text, tomorrow[1])
    try:
        if now_plus is not None:
            return After(parse_duration_s(now_plus[1]))
        if stripped[:1] in ("+", "-"):
            seconds = parse_duration_s(stripped[1:])
            return Extend(-seconds if stripped[0] == "-" else seconds)
        return After(parse_duration_s(stripped))
    except InvalidSpec:
        raise _invalid_when(text, "a deadline must be a duration, a change or a time") from None


def format_duration(seconds: float) -> str:
    """`seconds` in the two units that matter, readable by `parse_duration_s` (without its sign).

    Examples
    --------
    >>> [format_duration(s) for s in (0.0671, 43.21, 60, 252, 5400, 93600)]
    ['67.1ms', '43.2s', '1m00s', '4m12s', '1h30m', '1d02h']
    """
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if seconds == inf:
        return "∞"
    if seconds < 1:
        return f"{seconds * 1e3:.3g}ms" if 0 < round(seconds, 6) < 0.9995 else f"{round(seconds)}s"
    if round(seconds, 1) < MINUTE_S:
        return f"{seconds:.1f}s"
    if round(seconds) < HOUR_S:
        return _two_parts(round(seconds), "m", "s", MINUTE_S)
    if round(seconds / MINUTE_S) < DAY_S / MINUTE_S:
        return _two_parts(round(seconds / MINUTE_S), "h", "m", 60)
    return _two_parts(round(seconds / HOUR_S), "d", "h", 24)


def exact_text(seconds: float) -> str:
    """`seconds` as `parse_duration_s` reads it without loss.

    Examples
    --------
    >>> exact_text(206.0), exact_text(3.58), exact_text(1230000.0)
    ('206s', '3.58s', '1230000s')
    """
    return f"{seconds:f}".rstrip("0").rstrip(".") + "s"


def parse_cores(text: str) -> float:
    """Cores that `text` means: ``0.5``, ``0.5 cores``.

    Raises
    ------
    InvalidSpec
        When `text` is no number above zero.
    """
    check_length(text, "a number of cores", _CORES_REMEDY)
    cores = _cores(text)
    if cores <= 0:
        raise _invalid_cores("cores must be above zero", text)
    return cores


def parse_cores_range(text: str) -> tuple[float | None, float]:
    """Floor and ceiling that `text` means: ``0.1..2``; a single value is a ceiling and leaves the floor open (None).

    Raises
    ------
    InvalidSpec
        When a value is no number, the ceiling is zero or the floor lies above it.
    """
    check_length(text, "a number of cores", _CORES_REMEDY)
    low, dots, high = text.partition("..")
    if not dots:
        return None, parse_cores(text)
    try:
        floor, ceiling = _cores(low), parse_cores(high)
    except InvalidSpec as error:
        raise _invalid_cores(error.must, text) from None
    if floor > ceiling:
        raise _invalid_cores("the floor must not lie above the ceiling", text)
    return floor, ceiling


def parse_bytes(text: str) -> int:
    """Read an amount of memory in bytes: ``4GiB``, ``4G``, ``512 MB``.

    Raises
    ------
    InvalidSpec
        When `text` is no number above zero with a unit.

    Examples
    --------
    >>> parse_bytes("4GiB") == parse_bytes("4G") == parse_bytes("4 GB") == parse_bytes("4096m") == 4 * 2**30
    True
    """
    check_length(text, "an amount of memory", _BYTES_REMEDY)
    match = _BYTES.fullmatch(text.strip())
    if not match:
        raise _invalid_bytes("memory must be a number with a unit", text)
    n_bytes = float(match[1]) * _UNITS_BYTES[match[2].upper()]
    if not 1 <= n_bytes < _BYTES_BOUND:
        raise _invalid_bytes("memory must be above zero, and less than 8192 TiB", text)
    return int(n_bytes)


def parse_bytes_range(text: str) -> tuple[int, int]:
    """Read the least and the most memory from ``4GiB..16GiB``; a single amount is both.

    Raises
    ------
    InvalidSpec
        When a value is no amount of memory, or the least lies above the most.
    """
    low, dots, high = text.partition("..")
    if not dots:
        return (parse_bytes(text),) * 2
    try:
        least, most = parse_bytes(low), parse_bytes(high)
    except InvalidSpec as error:
        raise _invalid_bytes(error.must, text) from None
    if least > most:
        raise _invalid_bytes("the least must not lie above the most", text)
    return least, most


def format_bytes(n_bytes: float) -> str:
    """Write `n_bytes` in the largest unit that fits, so that `parse_bytes` can read it from 1 KiB on.

    Examples
    --------
    >>> [format_bytes(n) for n in (0, 100, 512 << 20, 1536 << 20, 4 << 30, 24_684_092 << 10)]
    ['0 B', '100 B', '512 MiB', '1.5 GiB', '4 GiB', '23.5 GiB']
    """
    for prefix, unit_bytes in reversed(_UNITS_BYTES.items()):
        if n_bytes >= unit_bytes:
            return f"{float(f'{n_bytes / unit_bytes:.3g}'):g} {prefix}iB"
    return f"{n_bytes:.0f} B"


def check_length(text: str, what: str, remedy: str) -> None:
    """Raise `InvalidSpec` for a text so long that it cannot be meant: reading one may take long."""
    if len(text) > _TEXT_LENGTH_MAX:
        must = f"{what} must be written in at most {_TEXT_LENGTH_MAX} characters"
        raise InvalidSpec(must, f"{len(text)} characters", what, remedy)


def _colons_s(text: str) -> float | None:
    found = _COLONS.fullmatch(text)
    if not found:
        return None
    days, hours, minutes, seconds = (int(part) if part else None for part in found.groups())
    # Only the first number may pass the next unit: `90:00` is an hour and a half, `1:90:00` is a slip.
    sound = (seconds or 0) < 60 and (hours is None or (minutes or 0) < 60) and (days is None or (hours or 0) < 24)
    if not sound:
        return None
    return float((days or 0) * DAY_S + (hours or 0) * HOUR_S + (minutes or 0) * MINUTE_S + (seconds or 0))


def _parts_s(text: str) -> float | None:
    total_s, previous_s, end = 0.0, inf, 0
    for part in _PART.finditer(text):
        unit_s = _UNITS_S[part[2]]
        if part.start() != end or unit_s >= previous_s:
            return None
        total_s += float(part[1]) * unit_s
        previous_s, end = unit_s, part.end()
    return total_s if text and end == len(text) else None


def _iso_s(text: str) -> float | None:
    parts = _ISO_DURATION.fullmatch(text)
    if parts is None:
        return None
    return sum(
        float(part) * unit_s for part, unit_s in zip(parts.groups("0"), (DAY_S, HOUR_S, MINUTE_S, 1), strict=True)
    )


def _two_parts(count: int, large: str, small: str, base: int) -> str:
    return f"{count // base}{large}{count % base:02d}{small}"


def _clock(text: str, year: int | None, month: int | None, day: int | None, *time: int | None) -> WallTime:
    hour, minute, second = (part or 0 for part in time)
    if hour > 23 or minute > 59 or second > 59:
        raise _invalid_when(text, "a time of day must lie between 00:00 and 23:59:59")
    if year is not None and not 1 <= (day or 0) <= _days_in_month(year, month or 0):
        raise _invalid_when(text, "a date must be one of the calendar")
    return WallTime(year, month, day, hour, minute, second)


def _clock_tomorrow(text: str, time_of_day: str) -> WallTime:
    time = _DAY_AND_TIME.fullmatch(time_of_day)
    if time is None or time[1] is not None:
        raise _invalid_when(text, "`tomorrow-` must be followed by a time of day")
    return replace(_clock(text, *(int(part) if part else None for part in time.groups())), days_ahead=1)


def _clock_elsewhere(text: str, local: str, told_offset: re.Match[str]) -> WallTime:
    """A time as ISO 8601 has it: `local` with an offset from UTC behind it."""
    date_and_time = _DAY_AND_TIME.fullmatch(local)
    if date_and_time is None or date_and_time[1] is None:
        raise _invalid_when(text, "a time with an offset from UTC must have a date")
    hours, minutes = int(told_offset[3] or 0), int(told_offset[4] or 0)
    if hours > 23 or minutes > 59:
        raise _invalid_when(text, "an offset from UTC must lie below 24 hours")
    offset_s = (hours * HOUR_S + minutes * MINUTE_S) * (-1 if told_offset[2] == "-" else 1)
    clock = _clock(text, *(int(part) if part else None for part in date_and_time.groups()))
    return replace(clock, utc_offset_s=offset_s)


def _days_in_month(year: int, month: int) -> int:
    if not 1 <= month <= 12 or year < 1:
        return 0
    if month == 2:
        return 29 if year % 4 == 0 and (year % 100 != 0 or year % 400 == 0) else 28
    return 30 if month in (4, 6, 9, 11) else 31


def _cores(text: str) -> float:
    found = _CORES.fullmatch(text.strip())
    cores = float(found[1]) if found else inf
    if not isfinite(cores):
        raise _invalid_cores("cores must be a number", text)
    return cores


def _invalid_when(text: str, must: str) -> InvalidSpec:
    return InvalidSpec(must, repr(text), "a deadline", _WHEN_REMEDY)


def _invalid_cores(must: str, text: str) -> InvalidSpec:
    return InvalidSpec(must, repr(text), "a number of cores", _CORES_REMEDY)


def _invalid_bytes(must: str, text: str) -> InvalidSpec:
    return InvalidSpec(must, repr(text), "an amount of memory", _BYTES_REMEDY)
