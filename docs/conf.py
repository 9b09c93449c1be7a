"""How Sphinx builds the documentation; `make docs` treats every warning as an error."""

import sys
from pathlib import Path

from punctual import __version__

sys.path.insert(0, str(Path(__file__).parent))

project = "Punctual"
author = "the Punctual contributors"
copyright = "2026, the Punctual contributors"
release = __version__
version = release

extensions = ["myst_parser", "markdown_twins"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Punctual {release}"
