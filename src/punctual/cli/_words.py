"""Format amounts and moments for people, as `punctual.request.words` and more."""

from punctual.core.units import span
from punctual.request.deadlines import clock
from punctual.request.words import cores, holding, proven, steps, visible

__all__ = [
    "against_deadline",
    "clock",
    "cores",
    "cost",
    "dollars",
    "early_or_late",
    "holding",
    "proven",
    "span",
    "steps",
    "visible",
]


def option_name(name: str) -> str:
    """Return the option of a command for a field of a job: `budget_usd` is `--budget`."""
    return f"--{name.removesuffix('_usd')}".replace("_", "-")


def dollars(usd: float) -> str:
    """Format a sum that was spent, as the page does: ``$12.40``; less than ten cents in two digits."""
    return f"${usd:.2g}" if 0.00005 <= usd < 0.0995 else f"${usd:,.2f}"


def cost(usd: float, budget_usd: float | None = None) -> str:
    """Format what a job has cost: ``$12.40``, ``$12.40 of $40.00`` with a budget."""
    return dollars(usd) if budget_usd is None else f"{dollars(usd)} of {dollars(budget_usd)}"


def early_or_late(deviation_s: float) -> str:
    """Format a deviation: `67 ms early`, `2.1 s late`."""
    return f"{span(deviation_s)} {'late' if deviation_s > 0 else 'early'}"


def against_deadline(deviation_s: float) -> str:
    """Format a deviation: `67 ms before the deadline`, `2.1 s after the deadline`."""
    side = "after" if deviation_s > 0 else "before"
    return f"{span(deviation_s)} {side} the deadline"
