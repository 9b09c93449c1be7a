"""`punctual controllers` and `punctual policies`: what can be chosen, one line each."""

from typing import Annotated

import typer

from punctual import registry
from punctual.cli._streams import write_line
from punctual.request.json_text import json_text

_AsJson = Annotated[bool, typer.Option("--json", help="One JSON object per name and line.")]


def controllers(as_json: _AsJson = False) -> None:
    """List the controllers (`--controller NAME`)."""
    _list("controllers", as_json=as_json)


def policies(as_json: _AsJson = False) -> None:
    """List the policies."""
    _list("policies", as_json=as_json)


def _list(family: str, *, as_json: bool) -> None:
    names = registry.names(family)
    if as_json:
        for name in names:
            write_line(json_text({"name": name, "text": registry.summary(family, name)}))
        return
    width = max(map(len, names), default=0)
    for name in names:
        write_line(f"{name:<{width}}  {registry.summary(family, name)}")
