"""Figures that are typed in the documentation, beside what they are taken from.

A paragraph, list item or table that states what was measured has a comment directly below it::

    Growing stops a training 26 times less than torchrun.
    <!-- figures of resize
    both := changes_of(results)
    26 times = times_less(both, grows=True)
    -->

The first line names a file of results. `NAME := EXPRESSION` gives a name to a value. In every other line the words left of ` = ` stand in
the text above the comment, and their first number is the value on the right, rounded to as many digits as are printed. Expressions are
Python, evaluated among the names of the benchmark's script; `results` is the file; `mean`, `geometric_mean` and `median` are those of `statistics`.
"""

import re
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _common import on_record

_COMMENT = re.compile(r"^[ \t]*<!-- figures of (\w[\w-]*)\n(.*?)-->", re.MULTILINE | re.DOTALL)
_NUMBER = re.compile(r"[-−+]?\d[\d,]*(?:\.\d+)?")


def findings(path: Path, scripts: dict[str, Any]) -> Iterator[str]:
    """Figures of one page that are not what was measured; `scripts` has the benchmark's module by name of the results."""
    text = path.read_text(encoding="utf-8")
    for comment in _COMMENT.finditer(text):
        where = f"{path.name}, line {text.count(chr(10), 0, comment.start()) + 1}"
        above = " ".join(_above(text[: comment.start()]).split())
        name, lines = comment[1], comment[2].strip().splitlines()
        if name not in scripts:
            yield f"{where}: no benchmark makes {name}.json"
            continue
        yield from (f"{where}: {finding}" for finding in _compared(lines, above, vars(scripts[name]) | _names(name)))


def _names(name: str) -> dict[str, Any]:
    return {
        "results": on_record(name), "mean": statistics.fmean, "geometric_mean": statistics.geometric_mean,
        "median": statistics.median,
    }  # fmt: skip


def _above(text: str) -> str:
    """The paragraph, item or table that ends here, without earlier comments on it."""
    return re.sub(r"<!--.*?-->", "", re.split(r"\n[ \t]*\n", text.rstrip())[-1], flags=re.DOTALL)


def _compared(lines: list[str], above: str, names: dict[str, Any]) -> Iterator[str]:
    names = dict(names)
    for line in lines:
        given, is_name, expression = line.partition(" := ")
        if not is_name:
            given, _, expression = line.partition(" = ")
        try:
            value = eval(expression, names)
        except Exception as error:  # noqa: BLE001 -- whatever the results do not have
            yield f"{line.strip()!r} cannot be evaluated: {type(error).__name__}: {error}"
            continue
        if is_name:
            names[given.strip()] = value
        elif finding := _difference(given.strip(), above, value):
            yield finding


def _difference(printed: str, above: str, value: float) -> str:
    """Return what is wrong with words that are to stand in a text and to tell a value; empty: nothing is."""
    number = _NUMBER.search(printed)
    if number is None:
        return f"{printed!r} has no number"
    if re.search(rf"(?<![\d.,]){re.escape(printed)}(?!\d)", above) is None:
        return f"{printed!r} does not stand above it"
    digits = number[0].replace(",", "").replace("−", "-")
    half_a_digit = 0.5 * 10.0 ** -len(digits.partition(".")[2])
    if abs(float(digits) - value) > half_a_digit * (1 + 1e-9):
        return f"{printed!r} is printed, and {value:.6g} was measured"
    return ""
