"""A job's program, as the journal records it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from punctual.core.errors import InvalidSpec

#: The longest progress pattern that a user may give, in characters.
PATTERN_LENGTH_MAX = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command, and how its progress becomes known.

    It is written into the journal and survives a crash, so it holds nothing secret: variables that a user hands on from
    a shell are kept apart, in a file that only the user can read, and so is a command line that seems to hold secrets.

    Attributes
    ----------
    argv
        The command and its arguments; looked up on the job's PATH.
    cwd
        Working folder; None: the executor's.
    environment
        Variables set beside those of the user.
    progress_pattern
        A regular expression that reads progress from the output, with groups named `step`, `total`, `epoch` and `epochs`, or
        the first two; ``auto``: as far as the output can be understood. None: the same, unless the program uses `punctual.track`.
    is_redacted
        Whether secrets were left out of `argv`; the full command is kept apart.

    Raises
    ------
    InvalidSpec
        The command is empty.
    """

    argv: tuple[str, ...]
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    progress_pattern: str | None = None
    is_redacted: bool = False

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidSpec(
                "the command must not be empty",
                "none",
                "a job",
                "Name the program after `--`: `-- python train.py`.",
                option="program",
            )
