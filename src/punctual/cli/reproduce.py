"""`punctual reproduce`: a paper's experiment, published figures beside ours."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from punctual.core.errors import InvalidSpec
from punctual.sim.extra import check_extra
from punctual.sim.reproduce._base import Reproduction, Row, load

#: Where lines go to a file or a pipe, none is broken.
_PIPE_WIDTH = 400


def reproduce(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Which paper, as smd.")],
    quick: Annotated[bool, typer.Option("--quick", help="A smaller experiment, for a first look.")] = False,
    seeds: Annotated[int, typer.Option(min=1, help="How many seeds, from 0 on.")] = 5,
    data: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Where data sets lie. [default: $PUNCTUAL_DATA]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the result as one JSON object.")] = False,
) -> None:
    """Repeat a paper's experiment and lay its figures beside the published ones."""
    check_extra("numpy", "scipy")
    if data is None and os.environ.get("PUNCTUAL_DATA"):
        data = Path(os.environ["PUNCTUAL_DATA"])
    if data is not None and not data.is_dir():
        raise InvalidSpec("`--data` must be a folder", f"'{data}'", "`punctual reproduce`", "Name the folder.")
    experiment = load(name)
    with _stdout_for_results():
        found = experiment(quick=quick, seeds=seeds, data=data)
    if as_json:
        sys.stdout.write(json.dumps({**asdict(found), "rows": [_record(row) for row in found.rows]}, indent=1) + "\n")
    else:
        _print(found)


@contextmanager
def _stdout_for_results() -> Iterator[None]:
    """Send what solvers written in C print by themselves to standard error: it would break the JSON."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        os.dup2(stdout, 1)
        os.close(stdout)


def _record(row: Row) -> dict[str, object]:
    return {**asdict(row), "ratio": row.ratio}


def _print(found: Reproduction) -> None:
    # Sources are named in brackets, which are no markup.
    console = Console(highlight=False, markup=False)
    console = console if console.is_terminal else Console(highlight=False, markup=False, width=_PIPE_WIDTH)
    table = Table(box=None, pad_edge=False, header_style="dim", title=found.title, title_justify="left")
    table.add_column("what")
    for heading in ("published", "obtained", "ratio"):
        table.add_column(heading, justify="right", no_wrap=True)
    table.add_column("why it differs")
    for row in found.rows:
        table.add_row(row.what, _text(row.published), _text(row.obtained), _text(row.ratio), row.why)
    console.print(table)
    console.print(found.note)


def _text(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
