"""Pictures of the page, made of its states.

``python -m tests.page.pictures`` makes those in the documentation anew, ``python -m tests.page.pictures FOLDER`` a gallery of
every state at each size, light and dark, with `index.html` as a contact sheet. ``python -m tests.page.pictures REPORT.html``
makes the picture of the demo of its report.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from io import BytesIO
from pathlib import Path
from typing import Literal

from PIL import Image
from playwright.sync_api import Browser, Page
from tests.architecture.source import ROOT
from tests.page.live_page import browser_of, chromium_here
from tests.page.staged import tab
from tests.page.states import STATES, State

Size = tuple[int, int]
Scheme = Literal["dark", "light"]

FOLDER = ROOT / "docs" / "images"

LARGE, MEDIUM, PHONE = (1440, 900), (1024, 720), (390, 844)


#: Size and scheme of each picture of a state.
LOOKS: list[tuple[Size, Scheme]] = [(size, scheme) for size in (LARGE, MEDIUM, PHONE) for scheme in ("light", "dark")]


@dataclass(frozen=True)
class Picture:
    """A state in the documentation, and how it is looked at."""

    name: str
    alt: str
    state: str
    size: Size = MEDIUM
    scheme: Scheme = "light"


PICTURES = [
    Picture("page-jobs", "All jobs: figures, and a lane for each", "lanes", LARGE),
    Picture("page-jobs-dark", "The same in the dark, on a smaller screen", "lanes", scheme="dark"),
    Picture("page-phone", "All jobs on a phone", "lanes", PHONE, "dark"),
    Picture("page-many", "500 jobs", "500 jobs", LARGE),
    Picture("page-empty", "No jobs yet", "empty"),
    Picture("page-started", "Jobs that have just started, or wait, say what is not known yet", "just started"),
    Picture("page-one", "One job alone", "one job"),
    Picture("page-table", "The same jobs as a table", "table", LARGE, "dark"),
    Picture("page-refused", "Without a token", "refused", PHONE),
    Picture("page-loading", "Loading", "loading", PHONE, "dark"),
    Picture("page-away", "Disconnected", "disconnected"),
    Picture("page-late", "A late job says at once what would help", "late job", (1440, 1000)),
    Picture("page-fresh", "A job that has just started is measured", "fresh"),
    Picture("page-waiting", "A waiting job says why and when", "waiting", PHONE, "dark"),
    Picture("page-viewer", "A job as somebody sees it who may only read", "read-only", scheme="dark"),
    Picture("page-compared", "Two runs of a program, aligned by time", "compared", LARGE),
    Picture("page-job", "One job: headline, course, and the quote of a deadline that is moved", "job", (1440, 1000)),
    Picture("page-job-phone", "One job on a phone", "job, as it is", PHONE),
    Picture("page-failed", "A failed job shows its last lines first", "failed", scheme="dark"),
    Picture("page-budget", "The budget: held, planned, and promised cores", "budget"),
    Picture("page-costs", "Machines with prices: dollars by pool", "budget in dollars", (1024, 860)),
    Picture("page-submit", "Submitting as an earlier job, with its quote", "submit", scheme="dark"),
    Picture("page-what-if", "Another policy: which deadlines change their verdict", "what if"),
]


@contextmanager
def _shown(browser: Browser, state: State, size: Size, scheme: Scheme) -> Iterator[Page]:
    """Show a state in a tab of its own."""
    with tab(browser, size, scheme) as page:
        stage = state.stage()
        stage.set(page.context)
        stage.open(page, state.place)
        state.done(page)
        yield page


def _save(shot: bytes, path: Path) -> None:
    """Write a picture with half the bytes: there are few colours, and a repository keeps each version."""
    picture = Image.open(BytesIO(shot)).convert("RGB")
    picture.quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE).save(path, optimize=True)


def take(browser: Browser, folder: Path, pictures: Iterable[Picture] = PICTURES) -> None:
    """Write pictures of the documentation to `folder`."""
    for picture in pictures:
        with _shown(browser, STATES[picture.state], picture.size, picture.scheme) as page:
            _save(page.screenshot(), folder / f"{picture.name}.png")


def take_report(browser: Browser, report: Path, path: Path) -> None:
    """Write the headline and the chart of a report of one job to `path`."""
    with tab(browser, MEDIUM, "light", is_new=True) as page:
        page.goto(report.absolute().as_uri())
        page.locator("#course-chart .progress").first.wait_for(state="attached")
        chart = page.locator("#course-chart").bounding_box()
        assert chart is not None
        _save(page.screenshot(full_page=True, clip={"x": 0, "y": 0, "width": MEDIUM[0], "height": chart["y"] + chart["height"] + 16}), path)  # fmt: skip


def hang(
    browser: Browser, folder: Path, names: Iterable[str] = STATES, looks: Sequence[tuple[Size, Scheme]] = LOOKS
) -> None:
    """Write each named state in each look to `folder`, whole pages, with a contact sheet."""
    rows = []
    for name in names:
        cells = []
        for size, scheme in looks:
            file = f"{name.replace(', ', '-').replace(' ', '-')}-{size[0]}-{scheme}.png"
            with _shown(browser, STATES[name], size, scheme) as page:
                page.screenshot(path=folder / file, full_page=True)
            cells.append(f'<a href="{file}"><img src="{file}" alt="{escape(name)}, {size[0]} px, {scheme}"></a>')
        rows.append(f"<h2>{escape(name)}</h2><p>{''.join(cells)}</p>")
    style = "body{font:14px sans-serif}p{display:flex;gap:8px;align-items:start}img{max-width:100%}a{flex:1}"
    head = f'<!doctype html><meta charset="utf-8"><title>States of the page</title><style>{style}</style>'
    (folder / "index.html").write_text(head + "".join(rows), encoding="utf-8")


def main() -> None:
    """Make the pictures of the documentation anew, that of a report, or a gallery in the folder that is named."""
    program = chromium_here()
    if program is None:
        raise SystemExit("the pictures need Chromium")
    with browser_of(program) as browser:
        if sys.argv[1:] and sys.argv[1].endswith(".html"):
            take_report(browser, Path(sys.argv[1]), FOLDER / "demo.png")
        elif sys.argv[1:]:
            folder = Path(sys.argv[1])
            folder.mkdir(parents=True, exist_ok=True)
            hang(browser, folder, sys.argv[2:] or STATES)
        else:
            take(browser, FOLDER)


if __name__ == "__main__":
    main()
