"""`punctual reproduce`: repeat the experiment of a paper."""

import time
from pathlib import Path
from typing import Annotated

import typer

from punctual.cli._streams import print_table, write_json, write_line
from punctual.core.errors import InvalidSpec
from punctual.papers.reproduction import load, names, text_of

#: Column headings of a reproduction's table.
HEADS = ("what", "published", "obtained", "ratio")


def reproduce(
    name: Annotated[str | None, typer.Argument(metavar="NAME", help="A paper; left out: list them.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A smaller experiment.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds. [default: 3; with --quick 1]")] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            envvar="PUNCTUAL_DATA", help="Folder of the published data sets; without it real traces are left out."
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Repeat the experiment of a paper, and print its published figures beside those obtained."""
    if name is None:
        for each in names():
            write_line(each)
        return
    if data is not None and not data.is_dir():
        raise InvalidSpec(
            "`--data` must name a folder", "none", f"'{data}'", "Correct it (or PUNCTUAL_DATA), or leave it out."
        )
    begun_s = time.process_time()
    run = load(name)
    found = run(quick=quick, seeds=seeds or (1 if quick else 3), data=data)
    if as_json:
        write_json(found.record())
        return
    write_line(f"{found.title}: {time.process_time() - begun_s:.1f} CPU seconds")
    print_table(
        HEADS, [(row.what, text_of(row.published), text_of(row.obtained), text_of(row.ratio)) for row in found.rows]
    )
    for row in found.rows:
        if row.why:
            write_line(f"{row.what}: {row.why}")
    if found.note:
        write_line(found.note)
