"""A page with drawings: what the report of a run and that of a study share."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Drawn in this colour, and replaced by the page's own text colour, so that one drawing suits light and dark pages.
INK = "#123456"


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; --page: #ffffff; --ink: #222222; --rule: #dddddd; --best: #0a7d3c; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --page: #16181d; --ink: #e4e6ea; --rule: #3a3f47; --best: #5ad18b; }} }}
body {{ background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; padding: 0 1rem; }}
h1 {{ font-size: 1.4rem; }}
h2 {{ font-size: 1.1rem; }}
svg {{ width: 100%; height: auto; font-family: system-ui, sans-serif; }}
table {{ border-collapse: collapse; }}
th, td {{ border-bottom: 1px solid var(--rule); }}
th {{ font-weight: normal; opacity: 0.7; }}
{style}</style>
</head>
<body>
{body}</body>
</html>
"""


def html_page(title: str, body: str, style: str) -> str:
    """A page that needs no other file; `title` and `body` are HTML, `style` is what this kind of page adds."""
    return _PAGE.format(title=title, body=body, style=style)


def svg(figure: "Figure") -> str:
    """The drawing as a part of a page, in the colour of its text."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "punctual"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")
