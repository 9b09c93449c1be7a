"""`punctual read`: a trial of the reader on the output of a program."""

import re
import sys
from collections.abc import Iterator
from math import inf
from pathlib import Path
from typing import Annotated, Any

import typer

from punctual.cli._errors import refused_if_failing
from punctual.cli._options import ProgressRegex, Steps
from punctual.cli._streams import print_table, write_json, write_line, write_lines
from punctual.core.reason import Reason
from punctual.progress_text.choice import Assessment, Doubt
from punctual.progress_text.mentions import Role, Unit
from punctual.progress_text.reader import NO_TOTAL, READ, ProgressReader
from punctual.progress_text.series import Series

_LINE = re.compile(rb"[^\r\n]*[\r\n]*")
_QUOTE_MAX = 70
#: Codes that are printed once for the whole file.
_AT_END = {READ, NO_TOTAL}


def read(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output of a program; `-`: standard input.")],
    progress_regex: ProgressRegex = None,
    steps: Steps = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Show the progress that would be read from a program's output. Exits with 1 if nothing is counted."""
    reader = ProgressReader(deadline_s=inf, steps_total=steps, pattern=progress_regex)
    notices = list(_notices(reader, file))
    if as_json:
        write_json(_fields(reader, notices))
    else:
        _print(reader, notices)
    # Exit status if nothing was found, as grep has it.
    raise typer.Exit(0 if reader.chosen is not None else 1)


def _notices(reader: ProgressReader, file: Path) -> Iterator[Reason]:
    """Read the file and return the notices. A log has no times: each line counts as an instant."""
    for i_line, line in enumerate(_lines(file)):
        reader.feed(line, float(i_line))
        yield from reader.new_notices()


def _lines(file: Path) -> Iterator[bytes]:
    with refused_if_failing("the file must be one that can be read", f"'{file}'", "Check its name."):
        with sys.stdin.buffer if str(file) == "-" else file.open("rb") as stream:
            for line in stream:
                yield from (piece for piece in _LINE.findall(line) if piece)
        yield b"\n"


def _print(reader: ProgressReader, notices: list[Reason]) -> None:
    write_lines([_progress_text(reader), *(f"WARNING: {text}" for text in _warnings(reader, notices))])
    rows = [
        (_counted(series), _meaning(series, assessment, reader), _quoted(series))
        for series, assessment in reader.assessed()
    ]
    if rows:
        write_line("")
        print_table(("COUNTED", "WHAT IT IS", "LAST IN"), rows)


def _warnings(reader: ProgressReader, notices: list[Reason]) -> list[str]:
    return [*(notice.text for notice in notices if notice.code not in _AT_END), *filter(None, [reader.doubt()])]


def _progress_text(reader: ProgressReader) -> str:
    belief, chosen = reader.belief, reader.chosen
    if belief is None or chosen is None:
        return "nothing is counted: how far the program is would not be known"
    counted = (
        f"step {belief.steps:.12g}" if belief.total is None else f"step {belief.steps:.12g} of {belief.total:.12g}"
    )
    length = chosen.series.known_total
    parts = f" ({chosen.n_epochs} times {length})" if chosen.n_epochs and length else ""
    return f"read at the end: {counted}{parts}"


def _counted(series: Series) -> str:
    total = "" if series.known_total is None else f" of {series.known_total}"
    laps = f", {series.n_laps + 1} times" if series.n_laps else ""
    first = f"{series.first} to " if series.first != series.last and not series.n_laps else ""
    return f"{first}{series.last}{total}{laps}"


def _meaning(series: Series, assessment: Assessment | None, reader: ProgressReader) -> str:
    if reader.chosen is not None and reader.chosen.series is series:
        return "the training's"
    if series.role is Role.OTHER:
        return "of something else"
    if series.mention.is_total and not series.n_grown:
        return "how many there are"
    if series.unit >= Unit.EPOCH:
        return f"{series.unit.name.lower()}s"
    return "perhaps a part" if assessment is not None and assessment.doubt is Doubt.PART else "beside it"


def _quoted(series: Series) -> str:
    text = " ".join(series.quote.split())
    return text if len(text) <= _QUOTE_MAX else f"{text[:_QUOTE_MAX]}…"


def _fields(reader: ProgressReader, notices: list[Reason]) -> dict[str, Any]:
    belief, chosen = reader.belief, reader.chosen
    return {
        "steps": None if belief is None else belief.steps,
        "total": None if belief is None else belief.total,
        "sure": belief is not None and belief.is_sure,
        "doubt": None if chosen is None else chosen.doubt,
        "epochs": None if chosen is None else chosen.n_epochs,
        "warnings": _warnings(reader, notices),
        "series": [
            {
                "first": series.first,
                "last": series.last,
                "total": series.known_total,
                "times": series.n_laps + 1,
                "unit": series.unit.name.lower(),
                "meaning": _meaning(series, assessment, reader),
                "is_training": chosen is not None and chosen.series is series,
                "quote": series.quote.strip(),
            }
            for series, assessment in reader.assessed()
        ],
    }
