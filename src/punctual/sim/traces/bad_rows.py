"""Invalid rows of a trace: skipped and counted, or fatal."""

from dataclasses import dataclass, field
from typing import Literal

from punctual.core.errors import InvalidSpec

#: Treatment of an invalid row: leave it out and remember it, or stop with an error.
OnBad = Literal["skip", "fail"]

#: Number of bad rows that are remembered; all are counted.
N_KEPT = 100


@dataclass(frozen=True, slots=True)
class BadRow:
    """A row that was left out; `line` counts from 1."""

    path: str
    line: int
    reason: str

    def __str__(self) -> str:
        return f"{self.path}, line {self.line}: {self.reason}"


@dataclass(slots=True)
class BadRows:
    """The bad rows met so far: how many, and the first of them.

    Attributes
    ----------
    on_bad
        ``"skip"``: count the row and go on; ``"fail"``: raise `InvalidSpec`.
    n_rows
        All bad rows.
    rows
        The first `N_KEPT` of them.
    """

    on_bad: OnBad = "skip"
    n_rows: int = 0
    rows: list[BadRow] = field(default_factory=list)

    def add(self, path: str, line: int, reason: str) -> None:
        """Report a bad row.

        Raises
        ------
        InvalidSpec
            Bad rows are fatal.
        """
        if self.on_bad == "fail":
            raise InvalidSpec(
                "a row of a trace must be usable", reason, f"{path}, line {line}",
                'Repair or remove the row, or let bad rows be skipped (`on_bad="skip"`).',
            )  # fmt: skip
        self.n_rows += 1
        if len(self.rows) < N_KEPT:
            self.rows.append(BadRow(path, line, reason))
