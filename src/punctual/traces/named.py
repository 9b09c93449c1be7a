"""The check of parameters that rules and generators share."""

from punctual.core.errors import InvalidSpec


def check(holds: bool, must: str, got: object, name: str) -> None:
    """Raise `InvalidSpec` about the parameters of `name` unless `holds`."""
    if not holds:
        raise InvalidSpec(must, str(got), f"'{name}'", "Correct the parameter, or leave it out for its default.")
