"""Read what people write about an instant: `90s`, `18:00 tomorrow`, `in 2 hours`.

One rule, wherever an instant is asked for. Numbers with units are a duration. `18:00`, with all its digits, is a time of
day. Any other text that is a duration and a time, or two times, is refused with both readings: `1:30:00`, `1h30`,
`12/01/2026`, `half past six`. `in` before it makes it a duration, `at` a time.
"""

import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import NoReturn

from punctual.core.errors import InvalidSpec
from punctual.core.units import DAY_S, HOUR_S, MINUTE_S
from punctual.request.quantities import check_length, in_digits, parse_duration_s

REMEDY = (
    "Write a duration (`90s`, `1h30m`), a change (`+10m`, `-30s`) or a time (`18:00`, `18:00 tomorrow`, "
    "`2026-12-01 18:00`, `18:00 Europe/Berlin`)."
)


@dataclass(frozen=True, slots=True)
class After:
    """A duration that counts from a moment which the caller defines."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Extend:
    """A duration after the deadline in force; below zero: before it."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Day:
    """A date, the next such date if it has no year, a number of days from today, or the next such weekday (0: Monday)."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    days_ahead: int | None = None
    weekday: int | None = None


@dataclass(frozen=True, slots=True)
class WallTime:
    """A time that clocks show; only a clock can tell the instant.

    * `day`: None: the day that makes it the next such time.
    * `zone`: place of the clocks; None: here.
    """

    hour: int
    minute: int
    second: int = 0
    day: Day | None = None
    zone: tzinfo | None = None


When = After | Extend | WallTime

_MONTHS = [
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november", "december",
]  # fmt: skip
_WEEKDAYS = ["monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"]
_MONTH = rf"(?P<month_name>{'|'.join(f'{month}|{month[:3]}' for month in _MONTHS)}|sept)\b\.?"
_DAY = r"(?P<day>\d{1,2})(?:st|nd|rd|th)?(?![\d:/.-])"
_YEAR = r"(?:,?\s+(?P<year>\d{4})(?![\d:]))?"
_O_CLOCK = r"\s?o\s?['’]?\s?clock\b"
_HALF = r"\s*(?P<half>[ap])(?:m\b|\.m\.)"

_OFFSET_FORM = r"\s*(?:utc|gmt)?(?P<sign>[+-])(?P<hours>\d{1,2})(?::?(?P<minutes>\d{2}))?(?![\d:])"

#: The parts of a time and how each may be written. They follow each other in any order, each at most once.
_FORMS = (
    ("day", r"(?P<year>\d{4})(?P<mark>[-/])(?P<month>\d{1,2})(?P=mark)(?P<day>\d{1,2})(?!\d)"),
    ("day", r"(?P<number>\d{1,2})(?P<mark>[-/])(?P<other_number>\d{1,2})(?:(?P=mark)(?P<year>\d{4}))?(?![\d:/.-])"),
    ("day", r"(?P<number>\d{1,2})\.(?P<other_number>\d{1,2})\.(?P<year>\d{4})(?!\d)"),
    ("day", rf"{_DAY}\.?\s+(?:of\s+)?{_MONTH}{_YEAR}"),
    ("day", rf"{_MONTH}\s+{_DAY}{_YEAR}"),
    ("day", r"(?P<relative>today|tomorrow|tonight)\b"),
    ("day", rf"(?P<weekday>{'|'.join(f'{day}|{day[:3]}' for day in _WEEKDAYS)}|tues|thurs?)\b"),
    ("time", rf"(?P<hour>\d{{1,2}}):(?P<minute>\d{{2}})(?::(?P<second>\d{{2}})(?:\.\d{{1,9}})?)?(?![\d:])(?:{_HALF})?"),
    ("time", rf"(?P<hour>\d{{1,2}}){_HALF}"),
    ("time", r"(?P<hour>\d{1,2})h(?P<minute>\d{2})(?!\w)"),
    ("time", rf"(?P<share>half past|quarter (?:past|to))\s(?P<spoken>\d{{1,2}})(?![\d:])(?:{_O_CLOCK})?(?:{_HALF})?"),
    ("time", rf"(?P<spoken>\d{{1,2}}){_O_CLOCK}(?:{_HALF})?"),
    ("time", r"(?P<word>noon|midnight)\b"),
    ("zone", _OFFSET_FORM),
    ("zone", r"(?:z|utc|gmt)\b"),
    ("zone", r"(?P<place>[a-z][a-z_]+(?:/[a-z][a-z0-9_+-]*)+)"),
)
_READERS = [(part, re.compile(form, re.IGNORECASE | re.ASCII)) for part, form in _FORMS]
_OFFSET = re.compile(_OFFSET_FORM, re.IGNORECASE | re.ASCII)
_BETWEEN = re.compile(r"(?:\s|,\s|(?:at|by|on)\s|T(?=\d)|-(?=\d\d?:\d\d))*", re.IGNORECASE)

_SAYS_TIME = re.compile(r"(?:at|by|on|until)\s+", re.IGNORECASE)
_SAYS_DURATION = re.compile(r"(?:in\s+|now\s*\+)(.+)|(.+)\s+from\s+now", re.IGNORECASE | re.DOTALL)
_HOUR_AND_MINUTE = re.compile(r"\d\d:\d\d", re.ASCII)
#: Minutes and seconds, or a time of day whose hours are counted on past midnight: `24:30`.
_PAST_MIDNIGHT = re.compile(r"2([4-9]):([0-5]\d)", re.ASCII)
_EPOCH_S = re.compile(r"@(\d{1,11})(?:\.\d{1,9})?", re.ASCII)

_NOON = 12
#: Minutes that a spoken time lies from its hour.
_SHARES = {"": 0, "half past": 30, "quarter past": 15, "quarter to": -15}
_ABBREVIATION = re.compile(r"[A-Z]{2,5}\b", re.IGNORECASE | re.ASCII)
_ZONE_REMEDY = (
    "Write the offset from UTC (`18:00+01:00`) or a place (`18:00 Europe/Berlin`): `CST` is three zones, and in summer few "
    "who write `CET` mean it."
)
#: No place is farther from UTC.
_OFFSET_S_MAX = 14 * HOUR_S


def parse_when(text: str, what: str = "`deadline`", where: str = "the job", remedy: str = REMEDY) -> When:
    """Parse an instant.

    * `text`: text of the user.
    * `what`, `where`, `remedy`: parts of errors: the instant that was asked for, its object, and valid texts.

    Raises `InvalidSpec`: `text` has no meaning, or two.

    Examples
    --------
    >>> parse_when("90s"), parse_when("in 1:30:00"), parse_when("-30s")
    (After(seconds=90.0), After(seconds=5400.0), Extend(seconds=-30.0))
    >>> parse_when("18:00")
    WallTime(hour=18, minute=0, second=0, day=None, zone=None)
    >>> parse_when("6pm tomorrow").day.days_ahead, parse_when("at 1:30:00").minute
    (1, 30)
    """
    check_length(text, what, remedy)
    return _Written(text, what, where, remedy).when()


@dataclass(frozen=True, slots=True)
class _Written:
    """A text about an instant, with its errors."""

    text: str
    what: str
    where: str
    remedy: str

    def when(self) -> When:
        text = self.text.strip()
        if text[:1] in ("+", "-"):
            return Extend((-1.0 if text[0] == "-" else 1.0) * self._duration_s(text[1:]))
        if text.lower() == "now":
            return After(0.0)
        if epoch := _EPOCH_S.fullmatch(text):
            return _of_epoch(int(epoch[1]))
        if duration := _SAYS_DURATION.fullmatch(text):
            return After(self._duration_s(duration[1] or duration[2]))
        prefix = _SAYS_TIME.match(text)
        seconds = None if prefix else self._only_duration_s(text)
        try:
            times = self._times(in_digits(text[prefix.end() :] if prefix else text))
        except InvalidSpec:
            if seconds is None:
                raise
            if past_midnight := _PAST_MIDNIGHT.fullmatch(text):
                self._refuse_readings([_exactly(seconds), f"0{int(past_midnight[1]) - 4}:{past_midnight[2]}"])
            return After(seconds)
        if seconds is None or _HOUR_AND_MINUTE.fullmatch(text):
            return times[0] if len(times) == 1 else self._refuse_readings([_shown(time) for time in times])
        return self._refuse_readings([_exactly(seconds), *(_shown(time) for time in times)])

    def _only_duration_s(self, text: str) -> float | None:
        try:
            return parse_duration_s(text)
        except InvalidSpec:
            return None

    def _duration_s(self, text: str) -> float:
        seconds = self._only_duration_s(text)
        return self._refuse_all() if seconds is None else seconds

    def _times(self, text: str) -> list[WallTime]:
        """Return the times that the parts of `text` can make."""
        parts = self._parts(text)
        days: list[Day | None] = [*self._days(parts["day"])] if "day" in parts else [None]
        zone = self._zone(parts["zone"]) if "zone" in parts else None
        is_tonight = parts.get("day", {}).get("relative", "").lower() == "tonight"
        if "time" not in parts:  # a day's first moment: who means its last one is in time too
            if is_tonight:
                self._refuse_all(", which is no time yet")
            return [WallTime(0, 0, day=day, zone=zone) for day in days if day is not None] or self._refuse_all()
        is_midnight = parts["time"].get("word", "").lower() == "midnight"
        if is_tonight and is_midnight:
            days = [None]
        clocks = self._clocks(parts["time"], is_alone=days == [None])
        if is_midnight and days != [None]:
            clocks.append((23, 59, 0))
        if is_tonight and not is_midnight:
            clocks = [clock for clock in clocks if clock[0] >= _NOON] or self._refuse_all(
                ", which is no time of an evening"
            )
        return [WallTime(*clock, day=day, zone=zone) for day in days for clock in clocks]

    def _parts(self, text: str) -> dict[str, dict[str, str]]:
        """Return the fields of each part, by the name of the part."""
        parts: dict[str, dict[str, str]] = {}
        end = 0
        while end < len(text):
            for part, reader in _READERS:
                if part not in parts and (match := reader.match(text, end)) is not None:
                    break
            else:
                unread = f", in which {text[end:]!r} cannot be read"
                if "time" in parts and "zone" not in parts and _ABBREVIATION.match(text, end):
                    self._refuse(
                        f"the zone of {self.what} must have one meaning", f"{self.text!r}{unread}", _ZONE_REMEDY
                    )
                self._refuse_all(unread if parts else "")
            parts[part] = {name: value for name, value in match.groupdict().items() if value is not None}
            end = match.end()
            if part != "time" or _OFFSET.match(text, end) is None:
                end = _match_end(_BETWEEN, text, end)
        return parts

    def _days(self, fields: dict[str, str]) -> list[Day]:
        if "relative" in fields:
            return [Day(days_ahead=int(fields["relative"].lower() == "tomorrow"))]
        if "weekday" in fields:
            return [Day(weekday=_index(fields["weekday"], _WEEKDAYS))]
        year = int(fields["year"]) if "year" in fields else None
        if "number" in fields:
            numbers = int(fields["number"]), int(fields["other_number"])
            readings = [Day(year, month, day) for day, month in dict.fromkeys([numbers, numbers[::-1]])]
        else:
            month = int(fields["month"]) if "month" in fields else _index(fields["month_name"], _MONTHS) + 1
            readings = [Day(year, month, int(fields["day"]))]
        dates = list(filter(_is_date, readings))
        if not dates:
            self._refuse("a date must be one of the calendar")
        return dates

    def _clocks(self, fields: dict[str, str], *, is_alone: bool) -> list[tuple[int, int, int]]:
        """Return hour, minute and second: of both halves of the day, where a spoken time is of neither."""
        if "spoken" not in fields:
            return [self._clock(fields, is_alone=is_alone)]
        is_of_neither = "half" not in fields and 1 <= int(fields["spoken"]) <= _NOON
        halves = [{"half": half} for half in "ap"] if is_of_neither else [{}]
        shift = _SHARES[fields.get("share", "").lower()]
        clocks = [self._clock({**fields, "hour": fields["spoken"], **half}, is_alone=is_alone) for half in halves]
        minutes = [(60 * hour + shift) % (24 * 60) for hour, _, _ in clocks]
        return [(minute // 60, minute % 60, 0) for minute in minutes]

    def _clock(self, fields: dict[str, str], *, is_alone: bool) -> tuple[int, int, int]:
        """Return hour, minute and second."""
        if "word" in fields:
            return (_NOON if fields["word"].lower() == "noon" else 0), 0, 0
        hour, minute, second = (int(fields.get(name, 0)) for name in ("hour", "minute", "second"))
        if "half" in fields:
            hour = (hour % 12 + 12 * (fields["half"] in "pP")) if 1 <= hour <= 12 else 24
        elif is_alone and (hour, minute, second) == (24, 0, 0):
            hour = 0
        if hour > 23 or minute > 59 or second > 59:
            self._refuse("a time of day must lie between 00:00 and 23:59:59")
        return hour, minute, second

    def _zone(self, fields: dict[str, str]) -> tzinfo:
        if "place" in fields:
            from zoneinfo import ZoneInfo  # it takes a while to import

            for name in (fields["place"], fields["place"].title()):
                with suppress(OSError, ValueError, KeyError):
                    return ZoneInfo(name)
            must = f"the place of {self.what} must be one that this machine knows"
            self._refuse(must, to_do="Check its name (`Europe/Berlin`), or write the offset from UTC (`18:00+01:00`).")
        if "sign" not in fields:
            return UTC
        hours, minutes = int(fields["hours"]), int(fields.get("minutes", 0))
        if minutes > 59 or hours * HOUR_S + minutes * MINUTE_S > _OFFSET_S_MAX:
            self._refuse("an offset from UTC must be 14 hours at most")
        offset = timedelta(hours=hours, minutes=minutes)
        return timezone(-offset if fields["sign"] == "-" else offset)

    def _refuse_readings(self, readings: list[str]) -> NoReturn:
        texts = " or ".join(f"`{reading}`" for reading in readings)
        self._refuse(f"{self.what} must have one meaning", f"{self.text!r}, which can be {texts}", f"Write {texts}.")

    def _refuse_all(self, but: str = "") -> NoReturn:
        self._refuse(f"{self.what} must be a duration or a time", f"{self.text!r}{but}")

    def _refuse(self, must: str, got: str = "", to_do: str = "") -> NoReturn:
        raise InvalidSpec(must, got or repr(self.text), self.where, to_do or self.remedy)


def _of_epoch(epoch_s: int) -> WallTime:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=epoch_s)
    return WallTime(moment.hour, moment.minute, moment.second, Day(moment.year, moment.month, moment.day), zone=UTC)


def _match_end(pattern: re.Pattern[str], text: str, start: int) -> int:
    match = pattern.match(text, start)
    return start if match is None else match.end()


def _index(name: str, names: list[str]) -> int:
    return next(i for i, known in enumerate(names) if known.startswith(name[:3].lower()))


def _is_date(day: Day) -> bool:
    try:
        date(2000 if day.year is None else day.year, day.month or 0, day.day or 0)  # 2000 has a 29 February
    except ValueError:
        return False
    return True


def _shown(time: WallTime) -> str:
    """Return the unambiguous text for `time`."""
    clock = f"{time.hour:02d}:{time.minute:02d}" + f":{time.second:02d}" * bool(time.second)
    if time.day is None:
        return f"at {clock}" if time.second else clock
    return f"{_shown_day(time.day)} {clock}"


def _shown_day(day: Day) -> str:
    if day.weekday is not None:
        return _WEEKDAYS[day.weekday]
    if day.month is None:
        return "tomorrow" if day.days_ahead else "today"
    if day.year is None:
        return f"{day.day} {_MONTHS[day.month - 1]}"
    return f"{day.year}-{day.month:02d}-{day.day:02d}"


def _exactly(seconds: float) -> str:
    """Return the duration in whole units."""
    left, parts = round(seconds), []
    for name, unit_s in (("d", DAY_S), ("h", HOUR_S), ("m", MINUTE_S), ("s", 1)):
        count, left = divmod(left, unit_s)
        parts += [f"{count}{name}"] if count else []
    return "".join(parts) or "0s"
