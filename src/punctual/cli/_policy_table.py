"""Policies side by side on a terminal."""

from rich.console import Console
from rich.table import Table

from punctual.sim.measures import best_of
from punctual.sim.report.page import cell, in_words
from punctual.sim.result import Result


def print_policies(result: Result) -> None:
    """A row for each policy, the best of each column in bold and marked."""
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("policy")
    rows = [[label] for label in result.by_policy]
    for measure in result.measures:
        table.add_column(measure.heading, justify="right")
        estimates = result.estimates(measure)
        best = best_of(measure, estimates)
        for place, estimate in enumerate(estimates):
            text = cell(measure, estimate)
            rows[place].append(f"[bold green]{text}*[/]" if place in best else f"{text} ")
    for row in rows:
        table.add_row(*row)
    console = Console(width=None if Console().is_terminal else 200, highlight=False)
    console.print(table)
    console.print(f"{in_words(result)} *: the best of its column.", markup=False, style="dim")


def failures_in_words(result: Result) -> str:
    """What went wrong, run by run, and where; empty if nothing did."""
    lines = [f"\n{one.policy}, seed {one.seed} failed: {one.what}\n{one.trace}" for one in result.failures]
    if lines:
        lines.append(f"{len(lines)} of {len(lines) + len(result.runs)} runs failed; the same command tries them again.\n")
    return "".join(lines)
