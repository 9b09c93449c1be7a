"""`punctual doctor`: check the installation and suggest remedies."""

from dataclasses import asdict
from typing import Annotated

import typer

from punctual.cli._health import findings
from punctual.cli._streams import write_line
from punctual.request.json_text import json_text


def doctor(
    port: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=1, max=65535, help="Check that this port is free for a service.", show_default=False
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per finding and line.")] = False,
) -> None:
    """Check that this machine can run jobs.

    Looks at control groups, folders, disk, store, tokens, PyTorch, clocks, hosts and ports; exits with 1 if one has a fault.
    """
    has_fault = False
    for finding in findings(port):
        has_fault = has_fault or finding.level == "fault"
        if as_json:
            write_line(json_text(asdict(finding)))
        else:
            write_line(f"{finding.level:<8} {finding.about:<15} {finding.text}")
            if finding.remedy:
                write_line(f"{'':<24} to do: {finding.remedy}")
    if has_fault:
        # Exit status if something must be put right before jobs can run.
        raise typer.Exit(1)
