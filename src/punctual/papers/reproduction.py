"""Repeat the experiments of papers, and show their figures beside ours."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from pkgutil import iter_modules
from typing import Any, Protocol, cast

from punctual import papers
from punctual.core.errors import InvalidSpec

#: Up to this share of it a figure is near the published one.
NEAR = 0.1


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of the paper beside ours.

    Attributes
    ----------
    published, obtained
        Figures in the same unit, named in `what`; `published` None: the paper does not say.
    """

    what: str
    published: float | None
    obtained: float
    why: str = ""  # Reason why they differ, as far as a measured row shows it; empty if they agree. See `supposed`.

    @property
    def ratio(self) -> float | None:
        """Obtained over published."""
        return self.obtained / self.published if self.published else None

    @property
    def is_near(self) -> bool:
        """Whether the obtained figure is within `NEAR` of the published one."""
        return self.off <= NEAR

    @property
    def off(self) -> float:
        """Relative deviation of the obtained figure from the published one."""
        return abs((self.ratio or 0.0) - 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reproduction:
    """A paper's experiment: its figures, and notes for reading them."""

    title: str
    rows: tuple[Row, ...]
    note: str = ""

    def record(self) -> dict[str, Any]:
        """Return all of it as plain fields, each row with its ratio."""
        return {**asdict(self), "rows": [{**asdict(row), "ratio": row.ratio} for row in self.rows]}


def supposed(reason: str) -> str:
    """Return the explanation of a difference that no measurement explains."""
    return f"not known; supposed: {reason}"


def nearest(tried: Sequence[Row]) -> tuple[Row, str]:
    """The row nearest to the published figure, and what to put before it, of rows with one figure under several readings.

    That reading is a reason only if the first one, that of the main rows, is not near, and it is: else "not known; ".
    """
    best = min(tried, key=lambda row: row.off)
    return best, "" if best.is_near and not tried[0].is_near else "not known; "


class Run(Protocol):
    """The function `run` of a reproduction's file."""

    def __call__(self, *, quick: bool, seeds: int, data: Path | None) -> Reproduction:
        """Repeat the experiment with so many seeds; `quick`: a smaller one; `data`: folder of the data sets."""
        ...


def names() -> list[str]:
    """Return the names of the papers with an experiment, in alphabetical order."""
    folders = (module.name for module in iter_modules(papers.__path__) if module.ispkg)
    return sorted(name.replace("_", "-") for name in folders if find_spec(_module(name)) is not None)


def load(name: str) -> Run:
    """Return the experiment of the paper `name`."""
    if name not in names():
        raise InvalidSpec(
            "the experiment must be that of a paper here", f"'{name}'", "`punctual reproduce`",
            f"Known: {', '.join(names())}.",
        )  # fmt: skip
    return cast(Run, import_module(_module(name)).run)


def _module(name: str) -> str:
    return f"{papers.__name__}.{name.replace('-', '_')}.experiment"


def text_of(value: float | None) -> str:
    """Return a figure as a table has it; empty for None."""
    return "" if value is None else f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"
