"""`punctual compare`: finished studies side by side, with the effect of chance."""

from pathlib import Path
from typing import Annotated

import typer

from punctual.distribution import check_extras


def compare(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR...", help="The `--out` of `punctual simulate`.")],
    baseline: Annotated[
        str | None, typer.Option(metavar="POLICY", help="Measure the others against this one. [default: the first]")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the comparison as one JSON object.")] = False,
) -> None:
    """Compare the policies of finished studies, job by job."""
    check_extras("a comparison", "sim")
    # Needs the extra, and whoever lacks it is to be told so.
    from punctual.cli._comparison import lay_side_by_side

    lay_side_by_side(folders, baseline, as_json=as_json)
