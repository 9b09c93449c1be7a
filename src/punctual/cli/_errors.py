"""How a user's error looks on a terminal: its four parts, one to a line."""

import sys

from punctual.core.errors import InvalidSpec

#: What the command leaves with after an error of the user.
EXIT_USER_ERROR = 2


def tell_user(error: InvalidSpec) -> None:
    """Write the four parts of `error`, and of all that was found wrong with it, to standard error."""
    for each in error.all():
        sys.stderr.write(four_parts(each))


def four_parts(error: InvalidSpec) -> str:
    """What must hold, what was got, which object, what to do."""
    return f"error: {error.must}\n  got:   {error.got}\n  for:   {_where(error)}\n  to do: {error.remedy}\n"


def _where(error: InvalidSpec) -> str:
    """The object, and the option of the command line by which it was given, unless that is told already."""
    option = f"--{error.option}".replace("_", "-")
    if error.option in {None, "program"} or option in f"{error.must} {error.where}":
        return error.where
    return f"{error.where}, `{option}`"
