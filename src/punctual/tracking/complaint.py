"""Messages to the script's author; each says what must hold, what was got, for which object, and what to do."""

import operator
import sys


def invalid(must: str, got: str, where: str, remedy: str) -> ValueError:
    """Return the exception for an argument that cannot be used."""
    return ValueError(f"{must}: got {got} for {where}. {remedy}")


def warn(must: str, got: str, where: str, remedy: str) -> None:
    """Warn on standard error; training goes on."""
    sys.stderr.write(f"punctual: warning: {must}: got {got} for {where}. {remedy}\n")


def tell(text: str) -> None:
    """Write a message to standard error."""
    sys.stderr.write(f"punctual: {text}\n")


def whole(value: object, name: str, where: str, least: int = 0) -> int:
    """Return `value` as a whole number of at least `least`. Raises `ValueError`: `value` is something else."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise invalid(
            f"`{name}` must be a whole number", repr(value), where, f"Give an int, as {name}=int(...)."
        ) from None
    if number < least:
        raise invalid(f"`{name}` must be {least} or more", repr(value), where, f"Give {least} or more.")
    return number
