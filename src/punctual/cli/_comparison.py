"""Compare policies of finished studies, as a table or for machines."""

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.table import Table
from rich.text import Text

from punctual.cli._policy_table import table_console
from punctual.cli._streams import write_json
from punctual.cli._words import visible
from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.core.units import format_duration
from punctual.sim.bootstrap import PairedDifference
from punctual.sim.paired import COMPARED, N_SEEDS_LEAST, Comparison, Contender, compare, contenders_in

#: Below this a difference is marked: so rarely does chance make one of its size.
_SIGNIFICANT = 0.05


def lay_side_by_side(folders: Sequence[Path], baseline: str | None, *, as_json: bool) -> None:
    """Compare the policies in `folders` with the one called `baseline`, or the first.

    Raises `InvalidSpec`: there are fewer than two studies or policies, or they have no job in common.
    """
    contenders = contenders_in(folders)
    first = _chosen(contenders, baseline)
    others = [one for one in contenders if one is not first]
    if not others:
        raise InvalidSpec(
            "a comparison needs two policies", f"{len(contenders)}", f"{', '.join(map(str, folders))}",
            "Simulate another one with the same `--out`, or name another folder.",
        )  # fmt: skip
    comparisons = compare(first, others)
    if as_json:
        write_json({"comparisons": [asdict(one) for one in comparisons]}, indent=1)
    else:
        _print(comparisons)


def _chosen(contenders: list[Contender], label: str | None) -> Contender:
    if not contenders:
        raise InvalidSpec("a study must have finished runs", "none", "the folders", "Simulate something first.")
    labels = [one.label for one in contenders]
    if label is None:
        return contenders[0]
    if label not in labels:
        raise InvalidSpec(
            "the baseline must be one of the policies", f"'{label}'", "`--baseline`",
            f"{did_you_mean(label, labels, 0.5)}There are: {', '.join(labels)}.",
        )  # fmt: skip
    return contenders[labels.index(label)]


def _print(comparisons: list[Comparison]) -> None:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column(Text(visible(f"against {comparisons[0].first}")))
    table.add_column("")
    for heading in ("jobs", "difference", "95 % interval", "p", "jobs lower, higher"):
        table.add_column(heading, justify="right")
    for comparison in comparisons:
        for place, (column, difference) in enumerate(comparison.differences.items()):
            table.add_row(
                "" if place else Text(visible(comparison.other)), COMPARED[column], *_cells(column, difference)
            )
    console = table_console()
    console.print(table)
    for one in comparisons:
        text = f"{one.other}: {one.n_common:,} jobs in common, of {one.n_first:,} and {one.n_other:,}."
        console.print(visible(text), style="dim", markup=False)
    console.print(_meaning(comparisons), style="dim", markup=False)


def _meaning(comparisons: list[Comparison]) -> str:
    if all(one.by_seed for one in comparisons):
        kind = "arrivals of this kind (jobs of one seed are drawn together)"
    else:
        kind = f"these very arrivals (with {N_SEEDS_LEAST} seeds or more that differ: for arrivals of this kind)"
    return f"Differences are means over the jobs that have the number under both policies. Intervals and p are for {kind}; *: p < {_SIGNIFICANT}."


def _cells(column: str, difference: PairedDifference) -> list[str]:
    mean = difference.mean
    mark = "*" if difference.p_value < _SIGNIFICANT else " "
    return [
        f"{difference.n:,}",
        _signed(column, mean.estimate),
        f"{_signed(column, mean.low)} to {_signed(column, mean.high)}",
        f"{difference.p_value:.2g}{mark}",
        f"{difference.n_lower:,}, {difference.n_higher:,}",
    ]


def _signed(column: str, value: float) -> str:
    if column == "on_time":
        return f"{100 * value:+.1f} points"
    return f"{'+' if value >= 0 else ''}{format_duration(value)}"
