"""`punctual plugins`: names of plug-ins, a line each."""

from typing import Annotated

import typer

from punctual import registry
from punctual.cli._streams import write_json, write_line
from punctual.core.errors import InvalidSpec


def plugins(
    family: Annotated[
        str | None, typer.Argument(help="One of the families, such as `policies`; left out: all of them.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per name and line.")] = False,
) -> None:
    """List controllers, policies, models, rules of scaling, and formats and generators of traces."""
    families = registry.families()
    if family is not None and family not in families:
        remedy = f"Name one of {', '.join(families)}, or none for all."
        raise InvalidSpec("the family must be one of plug-ins", f"'{family}'", "`punctual plugins`", remedy)
    for each in families if family is None else [family]:
        _list(each, as_json=as_json, with_title=family is None)


def _list(family: str, *, as_json: bool, with_title: bool) -> None:
    names = registry.names(family)
    if as_json:
        for name in names:
            write_json({"family": family, "name": name, "text": registry.summary(family, name)})
        return
    if with_title:
        write_line(f"{family}:")
    indent, width = "  " * with_title, max(map(len, names), default=0)
    for name in names:
        write_line(f"{indent}{name:<{width}}  {registry.summary(family, name)}")
