"""Drawings on a page: what the report of a run and that of a study share."""

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Drawn in this colour, and replaced by the page's own text colour, so that one drawing suits light and dark pages.
INK = "#123456"


def svg(figure: "Figure") -> str:
    """The drawing as a part of a page, in the colour of its text."""
    from matplotlib import rc_context

    buffer = io.StringIO()
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "punctual"}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :].replace(INK, "currentColor")
