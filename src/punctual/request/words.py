"""Format amounts and texts for people."""

from punctual.core.units import counted


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
    return f"{counted(n_workers, 'worker')} of {cores(amount_cores / n_workers)}"


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
