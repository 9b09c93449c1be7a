"""Read the lengths of time, the cores and the memory that people write, and write lengths of time and memory.

A bare number is refused: one scheduler reads it as minutes, the next as seconds; of memory one reads MB, the next bytes.
Memory is counted in powers of 1024, as Slurm, Docker and the makers of memory do: ``4G``, ``4GB`` and ``4GiB`` are the same.
"""

import re
from math import inf, isfinite

from punctual.core.errors import InvalidSpec

MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400

#: Names of a unit -> its seconds. `M` is none of them: elsewhere it means months.
_NAMES_S = {
    "w week weeks": 7 * DAY_S,
    "d day days": DAY_S,
    "h hr hrs hour hours": HOUR_S,
    "m min mins minute minutes": MINUTE_S,
    "s sec secs second seconds": 1,
    "ms millisecond milliseconds": 1e-3,
}
_UNITS_S = {name: seconds for names, seconds in _NAMES_S.items() for name in names.split()}
#: A last number without a unit counts the next smaller one: `1h30`, `2m30`.
_NEXT_UNIT_S: dict[float, int] = {DAY_S: HOUR_S, HOUR_S: MINUTE_S, MINUTE_S: 1}
_ONES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
_TEENS = ["ten", "eleven", "twelve", "thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
_TENS = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
_WORD_NUMBERS = {word: n for n, word in enumerate(_ONES + _TEENS, 1)} | {
    word: 10 * n for n, word in enumerate(_TENS, 2)
}
_NUMBER_WORDS = re.compile(
    rf"\b(?:({'|'.join(_TENS)})(?:[\s-]({'|'.join(_ONES)}))?|({'|'.join(_TEENS + _ONES)}))\b", re.IGNORECASE
)
#: Shares of a unit in words -> in digits.
_SHARES = (
    (re.compile(r"\bhalf an? (?=[a-z])", re.IGNORECASE), "0.5 "),
    (re.compile(r"\b(?:a )?quarter of an? (?=[a-z])", re.IGNORECASE), "0.25 "),
    (re.compile(r"\b([0-9]+) and a half (?=[a-z])", re.IGNORECASE), r"\1.5 "),
    (re.compile(r"\ban? ([a-z]+) and a half\b", re.IGNORECASE), r"1.5 \1"),
)
_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_PART = re.compile(rf"({_NUMBER}|\ban?\b)\s*([A-Za-z]+)\s*(?:(?:,|\band\b)\s+(?=[0-9a]))?")
_UNITLESS = re.compile(r"[0-9]{2}")
#: Slurm's forms `MM:SS`, `HH:MM:SS`, `D-HH:MM:SS`, `D-HH:MM` and `D-HH`; with four numbers Lightning's and Torque's.
_COLONS = re.compile(r"(?:(?:([0-9]+)[-:])?([0-9]{1,3}):)?([0-9]{1,3}):([0-9]{2})")
_DAYS_AND_HOURS = re.compile(r"([0-9]{1,3})-([0-9]{1,2})(?::([0-9]{2}))?")
_ISO_DURATION = re.compile(
    rf"P(?=[0-9T])(?:({_NUMBER})W)?(?:({_NUMBER})D)?(?:T(?=[0-9])(?:({_NUMBER})H)?(?:({_NUMBER})M)?(?:({_NUMBER})S)?)?"
)
_CORES = re.compile(rf"({_NUMBER}|\.[0-9]+)\s*(?:cores?)?")
_BYTES = re.compile(rf"({_NUMBER})\s*([KMGT])(?:i?B)?", re.IGNORECASE)
_UNITS_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

#: More than any machine has, and little enough that a JSON number is exact.
_BYTES_BOUND = 1 << 53
_TEXT_LENGTH_MAX = 64

_DURATION_REMEDY = "Write for example `90s`, `1h30m`, `1.5h`, `1:30:00` or `2-12:00:00`."
_CORES_REMEDY = "Write for example `2`, `0.5 cores` or the range `0.1..2`."
_BYTES_REMEDY = "Write for example `4GiB`, `512M` or the range `4G..16G`."


def parse_duration_s(text: str) -> float:
    """Return the seconds that `text` means.

    Parameters
    ----------
    text
        Numbers with units, largest first (``1h30m``, ``1.5 hours``, ``2 days``, ``250ms``; weeks to milliseconds), or
        Slurm's ``MM:SS``, ``HH:MM:SS``, ``D-HH:MM:SS``, or ISO 8601's ``PT1H30M`` (weeks and smaller units), or words: ``two
        hours``, ``half an hour``.

    Raises
    ------
    InvalidSpec
        `text` is something else, a bare number included.

    Examples
    --------
    >>> parse_duration_s("1h30m"), parse_duration_s("02:00"), parse_duration_s("1-02:00:00")
    (5400.0, 120.0, 93600.0)
    """
    check_length(text, "a duration", _DURATION_REMEDY)
    seconds = _colons_s(text.strip())
    if seconds is None:
        seconds = _parts_s(in_digits(text.strip()))
    if seconds is None:
        seconds = _iso_s(text.strip())
    if seconds is None or not isfinite(seconds):
        raise InvalidSpec("a duration must be numbers with units", repr(text), "a length of time", _DURATION_REMEDY)
    return seconds


def in_digits(text: str) -> str:
    """Return `text` with its numbers in digits.

    Examples
    --------
    >>> [in_digits(text) for text in ("two hours", "Twenty-five minutes", "half an hour", "an hour and a half")]
    ['2 hours', '25 minutes', '0.5 hour', '1.5 hour']
    """
    text = _NUMBER_WORDS.sub(
        lambda match: str(sum(_WORD_NUMBERS[word.lower()] for word in match.groups() if word)), " ".join(text.split())
    )
    for share, digits in _SHARES:
        text = share.sub(digits, text)
    return text


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
        `text` is no number above zero.
    """
    check_length(text, "a number of cores", _CORES_REMEDY)
    cores = _cores(text)
    if cores <= 0:
        raise _invalid_cores("cores must be above zero", text)
    return cores


def parse_cores_range(text: str) -> tuple[float | None, float]:
    """Read floor and ceiling in cores from ``0.1..2``; a single value is a ceiling, with the floor None.

    Raises
    ------
    InvalidSpec
        A value is no number, the ceiling is zero or the floor lies above it.
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
        `text` is no number above zero with a unit.

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
        A value is no amount of memory, or the least lies above the most.
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
    colons, days_and_hours = _COLONS.fullmatch(text), _DAYS_AND_HOURS.fullmatch(text)
    if colons is not None:
        days, hours, minutes, seconds = (int(part) if part else None for part in colons.groups())
    elif days_and_hours is not None:
        days, hours, minutes = (int(part) for part in days_and_hours.groups("0"))
        seconds = 0
    else:
        return None
    # Only the first number may pass the next unit: `90:00` is an hour and a half, `1:90:00` is a slip.
    sound = (seconds or 0) < 60 and (hours is None or (minutes or 0) < 60) and (days is None or (hours or 0) < 24)
    if not sound:
        return None
    return float((days or 0) * DAY_S + (hours or 0) * HOUR_S + (minutes or 0) * MINUTE_S + (seconds or 0))


def _parts_s(text: str) -> float | None:
    total_s, previous_s, end = 0.0, inf, 0
    for part in _PART.finditer(text):
        unit_s = inf if part[2] == "M" else _UNITS_S.get(part[2].lower(), inf)
        if part.start() != end or unit_s >= previous_s:
            return None
        total_s += (1.0 if part[1].startswith("a") else float(part[1])) * unit_s
        previous_s, end = unit_s, part.end()
    next_s = _NEXT_UNIT_S.get(previous_s)
    if next_s is not None and text[end - 1].isalpha() and _UNITLESS.fullmatch(text, end):
        return total_s + float(text[end:]) * next_s
    return total_s if text and end == len(text) else None


def _iso_s(text: str) -> float | None:
    parts = _ISO_DURATION.fullmatch(text)
    if parts is None:
        return None
    units_s = (7 * DAY_S, DAY_S, HOUR_S, MINUTE_S, 1)
    return sum(float(part) * unit_s for part, unit_s in zip(parts.groups("0"), units_s, strict=True))


def _two_parts(count: int, large: str, small: str, base: int) -> str:
    return f"{count // base}{large}{count % base:02d}{small}"


def _cores(text: str) -> float:
    found = _CORES.fullmatch(text.strip())
    cores = float(found[1]) if found else inf
    if not isfinite(cores):
        raise _invalid_cores("cores must be a number", text)
    return cores


def _invalid_cores(must: str, text: str) -> InvalidSpec:
    return InvalidSpec(must, repr(text), "a number of cores", _CORES_REMEDY)


def _invalid_bytes(must: str, text: str) -> InvalidSpec:
    return InvalidSpec(must, repr(text), "an amount of memory", _BYTES_REMEDY)
