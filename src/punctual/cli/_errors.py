"""How a user's error looks on a terminal: its four parts, one to a line."""

import sys

from punctual.core.errors import InvalidSpec

#: What the command leaves with after an error of the user.
EXIT_USER_ERROR = 2


def tell_user(error: InvalidSpec) -> None:
    """Write the four parts of `error` to standard error."""
    sys.stderr.write(four_parts(error))


def four_parts(error: InvalidSpec) -> str:
    """What must hold, what was got, which object, what to do."""
    return f"error: {error.must}\n  got:   {error.got}\n  for:   {error.where}\n  to do: {error.remedy}\n"
