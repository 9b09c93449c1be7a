"""Table of policies on a terminal."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from punctual.cli._study_page import cell, in_words
from punctual.cli._words import span, visible
from punctual.sim.measures import Measure, best_of
from punctual.sim.result import Result

#: A column: its measure, and its cell for each policy.
Column = tuple[Measure, list[Text]]

#: So many jobs have their cost printed; all are in ``run.json``.
_N_COSTS = 10


def print_policies(result: Result) -> None:
    """Print a row for each policy, each column's best in bold and marked; as many columns as fit the terminal."""
    console = table_console()
    columns = [(measure, _cells(measure, result)) for measure in result.measures]
    shown = _fitting(columns, console.width - max(map(cell_len, ["policy", *result.by_policy])))
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("policy", no_wrap=True)
    for measure, _ in shown:
        table.add_column(measure.heading, justify="right", no_wrap=True)
    for place, label in enumerate(result.by_policy):
        table.add_row(Text(visible(label)), *(cells[place] for _, cells in shown))
    console.print(table)
    for line in cost_lines(result):
        console.print(line, markup=False)
    more = "" if len(shown) == len(columns) else " More columns: in the report."
    console.print(f"{in_words(result)} *: the best of its column.{more}", markup=False, style="dim")


def cost_lines(result: Result) -> list[str]:
    """Return a line for each policy about the dollars that its jobs cost, of the first seed; none without pools."""
    lines = []
    for label, runs in result.by_policy.items():
        bill = runs[0].facts.get("bill")
        if bill is None:
            continue
        dearest = sorted(bill["by_job"].items(), key=lambda each: (-each[1], each[0]))
        jobs = ", ".join(f"{visible(job)} ${usd:,.2f}" for job, usd in dearest[:_N_COSTS])
        more = f", {len(dearest) - _N_COSTS} more" if len(dearest) > _N_COSTS else ""
        pools = ", ".join(f"{visible(pool)} ${usd:,.2f}" for pool, usd in sorted(bill["by_pool"].items()))
        unused = f"; for no job ${bill['unused_usd']:,.2f}" if bill["unused_usd"] >= 0.005 else ""
        total_usd = sum(bill["by_pool"].values())
        seed = f", seed {runs[0].seed}," if len(runs) > 1 else ""
        lines.append(f"{visible(label)}{seed} costs ${total_usd:,.2f}: {jobs}{more} (machines: {pools}{unused})")
        told = bill["told"][:_N_COSTS]
        lines += [f"  {visible(each['job'])}, after {span(each['at_s'])}: {each['text']}" for each in told]
    return lines


def table_console() -> Console:
    """Return standard output for tables, wide enough for any line if it is no terminal."""
    console = Console(highlight=False)
    # Width for a file or a pipe, in which no line is broken.
    return console if console.is_terminal else Console(highlight=False, width=400)


def failure_lines(result: Result) -> list[str]:
    """Return a line about each failed run, with its place; empty if no run failed."""
    lines: list[str] = []
    for one in result.failures:
        lines += ["", f"{one.policy}, seed {one.seed} failed: {one.what}", *one.trace.rstrip("\n").split("\n")]
    if lines:
        n_failed = len(result.failures)
        lines.append(f"{n_failed} of {n_failed + len(result.runs)} runs failed; the same command tries them again.")
    return lines


def _cells(measure: Measure, result: Result) -> list[Text]:
    estimates = result.estimates(measure)
    best = best_of(measure, estimates)
    texts = [cell(measure, estimate) for estimate in estimates]
    return [
        Text(f"{text}*", style="bold green") if place in best else Text(f"{text} ") for place, text in enumerate(texts)
    ]


def _fitting(columns: Sequence[Column], width: int) -> list[Column]:
    """Return the first columns that fit side by side, one at least."""
    shown: list[Column] = []
    for measure, cells in columns:
        width -= 2 + max(cell_len(measure.heading), *(text.cell_len for text in cells))
        if width < 0 and shown:
            break
        shown.append((measure, cells))
    return shown
