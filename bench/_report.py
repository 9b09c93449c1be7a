"""Results as sections: a table each, and targets; the page and the last line that are made of them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from _common import PageOf, Results, conclude, markdown_table, parser, print_table, stamp_text, write_results


@dataclass(frozen=True)
class Target:
    """A figure to be reached, and what was reached. `got` None: no run speaks about it."""

    text: str
    limit: float
    got: float | None
    shown: Callable[[float], str] = "{:.3%}".format
    at_least: bool = False

    @property
    def reached(self) -> bool | None:
        if self.got is None:
            return None
        return self.got >= self.limit if self.at_least else self.got <= self.limit


@dataclass(frozen=True)
class Section:
    """A table with its title, what is said above it, and what it is to show."""

    name: str
    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    targets: Sequence[Target] = ()
    text: str = ""


#: One measurement, as a file of results has it.
Run = dict[str, Any]
#: Makes the tables of a file of results.
SectionsOf = Callable[[Results], Sequence[Section]]


@dataclass(frozen=True)
class Column:
    """A column of a table of runs: `of` the values at `key` of a row's runs, shown; – where no run has one."""

    head: str
    key: str
    shown: Callable[[Any], str] = str
    of: Callable[[Sequence[Any]], Any] = median

    def cell(self, runs: Iterable[Run]) -> str:
        found = [run[self.key] for run in runs if run.get(self.key) is not None]
        return self.shown(self.of(found)) if found else "–"


def grouped(runs: Iterable[Run], *keys: str) -> dict[tuple[Any, ...], list[Run]]:
    """Return the runs by their values at `keys`, in order of appearance."""
    found: dict[tuple[Any, ...], list[Run]] = {}
    for run in runs:
        found.setdefault(tuple(tuple(run[key]) if isinstance(run[key], list) else run[key] for key in keys), []).append(
            run
        )
    return found


def table_of(
    runs: Iterable[Run], rows: Mapping[str, str], columns: Sequence[Column]
) -> tuple[list[str], list[list[str]]]:
    """Return heads and rows: a row for all runs that are alike at the keys of `rows`, whose heads are its own."""
    heads = [*rows, *(column.head for column in columns)]
    return heads, [
        [*(", ".join(map(str, value)) if isinstance(value, tuple) else str(value) for value in group),
         *(column.cell(own) for column in columns)]
        for group, own in grouped(runs, *rows.values()).items()
    ]  # fmt: skip


@dataclass(frozen=True)
class Family:
    """Runs of one kind, and the section that they come to."""

    measure: Callable[..., list[Run]]
    section: Callable[[list[Run]], Section]

    @property
    def name(self) -> str:
        return self.measure.__name__


def most(runs: Sequence[Run], *keys: str) -> float | None:
    """The largest of these figures; none if a run does not have them."""
    if any(key not in run for run in runs for key in keys):
        return None
    return max((run[key] for run in runs for key in keys), default=None)


def measured_of(families: Sequence[Family], *, quick: bool) -> Results:
    return {"runs": {family.name: family.measure(quick=quick) for family in families}}


def sections_of(families: Sequence[Family], results: Results) -> list[Section]:
    """Return the sections of what was measured: a part that is newer than the results is left out."""
    return [family.section(results["runs"][family.name]) for family in families if family.name in results["runs"]]


def verdict(target: Target) -> str:
    return {None: "not measured", True: "reached", False: "**missed**"}[target.reached]


def limit(target: Target) -> str:
    return f"{'at least' if target.at_least else 'at most'} {target.shown(target.limit)}"


def got(target: Target) -> str:
    return "–" if target.got is None else target.shown(target.got)


TARGET_HEADS = ("figure", "target", "measured", "")


def target_rows(targets: Sequence[Target]) -> list[list[str]]:
    return [[target.text, limit(target), got(target), verdict(target)] for target in targets]


def targets_table(targets: Sequence[Target]) -> list[str]:
    return markdown_table(TARGET_HEADS, target_rows(targets))


def targets_of(sections: Sequence[Section]) -> list[Target]:
    return [target for section in sections for target in section.targets]


def print_sections(sections: Sequence[Section]) -> None:
    """Print each table below its title."""
    for section in sections:
        print(section.name)
        print_table(section.heads, section.rows)
        print(flush=True)


def section_lines(sections: Sequence[Section]) -> list[str]:
    """Return the lines of each table below its title, for a page."""
    return [
        line
        for section in sections
        for line in (
            "",
            f"## {section.name}",
            "",
            *([section.text, ""] if section.text else []),
            *markdown_table(section.heads, section.rows),
        )
    ]


def page_of(sections: Sequence[Section], results: Results, *more: str) -> str:
    """The targets, the tables, and more lines below them."""
    lines = [*targets_table(targets_of(sections)), *section_lines(sections)]
    return "\n".join([*lines, *more, "", stamp_text(results), ""])


def report(
    name: str, results: Results, sections_of: SectionsOf, page: PageOf | None = None, *, quick: bool
) -> list[Target]:
    """Write results, print the tables that are made of them; return the targets. No `page`: that of all sections."""
    page = page or (lambda results: page_of(sections_of(results), results))
    sections = sections_of(write_results(name, results, page, quick=quick))
    print_sections(sections)
    return targets_of(sections)


def conclude_report(
    name: str, results: Results, sections_of: SectionsOf, page: PageOf | None = None, *, quick: bool, key: int = 0
) -> int:
    """Write results, print the tables and the last line, which has the target number `key`; return the exit status."""
    targets = report(name, results, sections_of, page, quick=quick)
    return conclude_targets(targets, targets[key], quick=quick)


def run(
    name: str, doc: str | None, measured: Callable[..., Results], sections_of: SectionsOf, page: PageOf | None = None,
    *, key: int = 0,
) -> int:  # fmt: skip
    """Measure, quickly or in full, and tell of it."""
    quick = parser(doc or "").parse_args().quick
    return conclude_report(name, measured(quick=quick), sections_of, page, quick=quick, key=key)


def conclude_targets(targets: Sequence[Target], key: Target, *, quick: bool) -> int:
    """Print the last line; in a quick run it is no fault if a target was not measured."""
    short = [one for one in targets if one.reached is False or (one.reached is None and not quick)]
    n_reached = sum(one.reached is True for one in targets)
    figures = f"{key.text}: {got(key)} (target: {limit(key)}); {n_reached} of {len(targets)} targets reached"
    return conclude(figures, [f"{one.text}: {got(one)} ({limit(one)})" for one in short])
