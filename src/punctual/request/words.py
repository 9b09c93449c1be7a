"""Format amounts and texts for people."""

from punctual.core.units import DAY_S, MINUTE_S, format_duration

#: Durations above this are of a number that means nothing: ten thousand years.
_FOR_EVER_S = 10_000 * 365 * DAY_S


def visible(text: str) -> str:
    r"""Return `text` on one line, with an escape (`\x1b`) for each character that a terminal obeys or does not show.

    What a job or a submitter wrote (causes, command lines, names) then ends no line, moves no cursor and turns no text
    around. To do it twice changes nothing more.
    """
    if text.isprintable():
        return text
    return "".join(sign if sign.isprintable() else sign.encode("unicode_escape").decode("ascii") for sign in text)


def cores(amount: float) -> str:
    """Format cores: `0.62 cores`, `1 core`."""
    return f"{amount:.2f} cores" if f"{amount:.2f}" != "1.00" else "1 core"


def holding(amount_cores: float, n_workers: int) -> str:
    """Format a holding: `0.62 cores`; `2 workers of 0.50 cores` for a job with workers (`n_workers` above 0)."""
    if not n_workers:
        return cores(amount_cores)
    return f"{n_workers} worker{'s' * (n_workers != 1)} of {cores(amount_cores / n_workers)}"


def short(seconds: float) -> str:
    """Format a duration of any size, with milliseconds."""
    if seconds < 1.0:
        return f"{seconds * 1000:.0f} ms"
    return format_duration(seconds)


def span(seconds: float) -> str:
    """Format a duration without its sign as a sentence has it: `42 min`, `6 min 40 s`.

    Examples
    --------
    >>> [span(s) for s in (0.067, 2.34, 43.2, 400, 2520, 5400, 200_000, 1e300)]
    ['67 ms', '2.3 s', '43 s', '6 min 40 s', '42 min', '1 h 30 min', '2 d 8 h', 'for ever']
    """
    s = abs(seconds)
    if s > _FOR_EVER_S:
        return "for ever"
    if s < 1.0:
        return f"{1000 * s:.0f} ms"
    if s < MINUTE_S - 0.5:
        return f"{s:.2g} s"
    if round(s) < 10 * MINUTE_S:
        return _two(round(s), "min", "s", MINUTE_S)
    minutes = round(s / MINUTE_S)
    if minutes < 60:
        return f"{minutes} min"
    return _two(minutes, "h", "min", 60) if minutes < 2 * 24 * 60 else _two(round(minutes / 60), "d", "h", 24)


def _two(count: int, large: str, small: str, base: int) -> str:
    return f"{count // base} {large}" + (f" {count % base} {small}" if count % base else "")


def steps(count: float, total_steps: float | None, expected: float | None = None) -> str:
    """Format progress: `step 1,240 of 3,000`; `of about` if the total is expected and not declared."""
    if expected:
        return f"step {count:,.0f} of about {expected:,.0f}"
    return f"step {count:,.0f} of {total_steps:,.0f}" if total_steps else f"step {count:,.0f}"


def proven(gap_frac: float | None) -> str:
    """Describe the proven quality of the plan behind a decision; empty if nothing is proven."""
    if gap_frac is None:
        return ""
    return f", by a plan at most {100 * gap_frac:.2g} % below the best" if gap_frac else ", by a plan proven best"
