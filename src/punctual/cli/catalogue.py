"""`punctual controllers` and `punctual policies`: what can be chosen, one line each."""

from punctual import registry
from punctual.cli._streams import write_line


def controllers() -> None:
    """List the controllers (`--controller NAME`)."""
    _list("controllers")


def policies() -> None:
    """List the policies."""
    _list("policies")


def _list(family: str) -> None:
    names = registry.names(family)
    width = max(map(len, names), default=0)
    for name in names:
        write_line(f"{name:<{width}}  {registry.summary(family, name)}")
