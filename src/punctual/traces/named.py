"""From a name and parameters, as scenario files give them, to a rule or a generator."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, TypeVar

from punctual.core.errors import InvalidSpec

T = TypeVar("T")


def build(made: type[T], name: str, parameters: Mapping[str, Any]) -> T:
    """`made` with `parameters`.

    Raises
    ------
    InvalidSpec
        When `made` has no such parameter, or refuses its value.
    """
    known = [field.name for field in fields(made)]  # type: ignore[arg-type]
    for parameter in parameters:
        if parameter not in known:
            raise InvalidSpec(
                f"a parameter of '{name}' must be one of its own", f"`{parameter}`", f"'{name}'",
                f"Known: {', '.join(known) or 'none, it takes no parameters'}.",
            )  # fmt: skip
    return made(**parameters)


def check(holds: bool, must: str, got: object, name: str) -> None:
    """Raise `InvalidSpec` about the parameters of `name` unless `holds`."""
    if not holds:
        raise InvalidSpec(must, str(got), f"'{name}'", "Correct the parameter, or leave it out for its default.")
