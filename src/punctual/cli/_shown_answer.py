"""The answer to a command that changes something, as a line or as an object."""

import json
from collections.abc import Mapping
from typing import Any

import typer


def show_answer(answer: Mapping[str, Any], line: str, *, as_json: bool) -> None:
    """Write `answer` as one JSON object, or `line`."""
    typer.echo(json.dumps(answer) if as_json else line)
