"""Units of time and memory, and how amounts of them are written; `punctual.request.quantities` reads them."""

from math import inf

MINUTE_S = 60
HOUR_S = 3_600
DAY_S = 86_400
GIB_BYTES = 1 << 30

#: Durations above this are of a number that means nothing: ten thousand years.
_FOR_EVER_S = 10_000 * 365 * DAY_S

UNITS_BYTES = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}


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


def span(seconds: float) -> str:
    """Format a duration without its sign as a sentence has it: `42 min`, `6 min 40 s`.

    Examples
    --------
    >>> [span(s) for s in (0.0, 0.067, 2.34, 43.2, 400, 2520, 5400, 200_000, 1e300)]
    ['0 s', '67 ms', '2.3 s', '43 s', '6 min 40 s', '42 min', '1 h 30 min', '2 d 8 h', 'for ever']
    """
    s = abs(seconds)
    if s > _FOR_EVER_S:
        return "for ever"
    if s < 0.9995:
        return f"{1000 * s:.0f} ms" if s >= 0.0005 else "0 s"
    if s < MINUTE_S - 0.5:
        return f"{s:.2g} s"
    if round(s) < 10 * MINUTE_S:
        return _two_words(round(s), "min", "s", MINUTE_S)
    minutes = round(s / MINUTE_S)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 2 * 24 * 60:
        return _two_words(minutes, "h", "min", 60)
    return _two_words(round(minutes / 60), "d", "h", 24)


def exact_text(seconds: float) -> str:
    """`seconds` as `parse_duration_s` reads it without loss.

    Examples
    --------
    >>> exact_text(206.0), exact_text(3.58), exact_text(1230000.0)
    ('206s', '3.58s', '1230000s')
    """
    return f"{seconds:f}".rstrip("0").rstrip(".") + "s"


def format_bytes(n_bytes: float) -> str:
    """Write `n_bytes` in the largest unit that fits, so that `parse_bytes` can read it from 1 KiB on.

    Examples
    --------
    >>> [format_bytes(n) for n in (0, 100, 512 << 20, 1536 << 20, 4 << 30, 24_684_092 << 10)]
    ['0 B', '100 B', '512 MiB', '1.5 GiB', '4 GiB', '23.5 GiB']
    """
    for prefix, unit_bytes in reversed(UNITS_BYTES.items()):
        if n_bytes >= unit_bytes:
            return f"{float(f'{n_bytes / unit_bytes:.3g}'):g} {prefix}iB"
    return f"{n_bytes:.0f} B"


def counted(n: float, noun: str, form: str = "") -> str:
    """Write a number of things; `form`: the number's format.

    Examples
    --------
    >>> counted(1, "worker"), counted(1200, "job", ","), counted(0.5, "core", "g")
    ('1 worker', '1,200 jobs', '0.5 cores')
    """
    return f"{n:{form}} {noun}{'s' * (n != 1)}"


def _two_parts(count: int, large: str, small: str, base: int) -> str:
    return f"{count // base}{large}{count % base:02d}{small}"


def _two_words(count: int, large: str, small: str, base: int) -> str:
    return f"{count // base} {large}" + (f" {count % base} {small}" if count % base else "")
