"""Tables of text: one row in a line, its cells by the names of their columns."""

import csv
from calendar import timegm
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import isnan, nan

from punctual.core.errors import InvalidSpec
from punctual.core.fast_init import fast_init
from punctual.sim.traces.bad_rows import BadRows
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.source import Source

#: Marks of an unknown value in files.
_BLANK = {"", "nan", "NaN", "None", "null"}


@fast_init
@dataclass(frozen=True, slots=True)
class Row:
    """One row; its methods turn cells into values, and raise `InvalidSpec` for invalid ones."""

    line: int
    cells: Mapping[str, str]

    def text(self, column: str) -> str:
        """Return the cell's text; raise `InvalidSpec` if it is blank or missing."""
        text = self.optional_text(column)
        if text is None:
            raise self._wrong(column, "not be empty", "nothing")
        return text

    def optional_text(self, column: str) -> str | None:
        """Return the cell's text; None if it is blank or the column is missing."""
        text = self.cells.get(column, "").strip()
        return None if text in _BLANK else text

    def number(self, column: str) -> float:
        """The number that stands there."""
        try:
            number = float(self.cells.get(column, ""))
        except ValueError:
            number = nan
        if isnan(number):  # so is what is blank
            raise self._wrong(column, "be a number", repr(self.text(column)))
        return number

    def optional_number(self, column: str) -> float | None:
        """Return the cell's number; None if it is blank or the column is missing."""
        return None if self.optional_text(column) is None else self.number(column)

    def count(self, column: str) -> int:
        """The whole number that stands there."""
        number = self.number(column)
        if not number.is_integer():
            raise self._wrong(column, "be a whole number", f"{number:g}")
        return int(number)

    def at(self, column: str) -> float:
        """The date and time that stand there, as seconds since 1970 of a clock without time zones."""
        text = self.text(column)
        try:
            return float(timegm(datetime.fromisoformat(text).utctimetuple()))
        except (ValueError, OverflowError):  # before the year 1, once its zone is taken off, for the second
            raise self._wrong(column, "be a date and a time", repr(text)) from None

    def _wrong(self, column: str, must: str, got: str) -> InvalidSpec:
        return InvalidSpec(f"`{column}` must {must}", got, f"line {self.line}", "Repair the row or leave it out.")


def rows_of(
    source: Source, bad: BadRows, *, separator: str = ",", columns: Sequence[str] | None = None
) -> Iterator[Row]:
    """Yield the rows of a table, without blank lines.

    Parameters
    ----------
    columns
        Names of the columns, for a file without a header. If the file's first line holds just these names, it is
        passed over. None: the first line that is not blank is the header.
    """
    names = None if columns is None else list(columns)
    is_first = True
    for line, text in source.lines():
        cells = _cells(text.rstrip("\r\n"), separator)
        if not any(cells):
            continue
        if is_first and names in (None, cells):
            names = cells
        elif len(cells) == len(names or ()):
            yield Row(line, dict(zip(names or (), cells, strict=True)))
        else:
            bad.add(str(source), line, f"{len(names or ())} columns expected, {len(cells)} found")
        is_first = False


def jobs_of(source: Source, bad: BadRows, rows: Iterator[Row], job_of: Callable[[Row], TraceJob]) -> Iterator[TraceJob]:
    """Yield one job for each row; a row that `job_of` refuses is a bad row."""
    for row in rows:
        try:
            job = job_of(row)
        except InvalidSpec as error:
            bad.add(str(source), row.line, reason_of(error))
        else:
            yield job


def reason_of(error: InvalidSpec) -> str:
    """Return the reason why a row cannot be used."""
    return f"{error.must}: got {error.got}"


def _cells(text: str, separator: str) -> list[str]:
    # Each line by itself: a quotation mark that is never closed spoils its own row and no other.
    if '"' in text and len(text) < csv.field_size_limit():
        return [cell.strip() for cell in next(csv.reader([text], delimiter=separator))]
    return [cell.strip() for cell in text.split(separator)]
