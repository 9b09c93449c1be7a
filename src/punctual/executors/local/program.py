"""What a job runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from punctual.core.errors import InvalidSpec
from punctual.executors.local.progress_text import ProgressText


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A command, and how its progress becomes known.

    Parameters
    ----------
    argv
        The command and its arguments; looked up on the job's PATH.
    submitted_at
        Instant, in seconds of the monotonic clock, from which the deadline counts.
    cwd
        Where it runs; None: here.
    environment
        Variables set beside those of this process.
    progress_pattern
        A regular expression that reads progress from the output, with groups named `step` and `total` or the first
        two; ``auto`` for tqdm's bars and for lines with "step 120/3000". None: the program uses `punctual.track`.
    on_output
        Gets what the job writes to either of its outputs, as it comes and from another thread. None: the job writes
        where this process does.

    Raises
    ------
    InvalidSpec
        There is no command, or the expression cannot be used.
    """

    argv: tuple[str, ...]
    submitted_at: float
    cwd: str | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    progress_pattern: str | None = None
    on_output: Callable[[bytes], None] | None = None

    def __post_init__(self) -> None:
        if not self.argv or not self.argv[0]:
            raise InvalidSpec(
                "the command must not be empty", "none", "a job", "Name the program after `--`: `-- python train.py`."
            )
        if self.progress_pattern is not None:
            ProgressText(self.progress_pattern)

    @property
    def is_read(self) -> bool:
        """Whether the output passes through this process."""
        return self.on_output is not None or self.progress_pattern is not None
