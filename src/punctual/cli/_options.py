"""Options that commands share."""

from pathlib import Path
from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per line on standard output.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 75 if the deadline is missed.")]
ReportFile = Annotated[Path | None, typer.Option(metavar="FILE.html|FILE.png", help="Draw the run.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Say nothing but warnings and errors.")]
