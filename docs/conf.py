"""How Sphinx builds the documentation; `make docs` treats every warning as an error."""

from punctual import __version__

project = "Punctual"
author = "the Punctual contributors"
copyright = "2026, the Punctual contributors"
release = __version__
version = release

extensions = ["myst_parser"]
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath", "amsmath"]
myst_heading_anchors = 3
exclude_patterns = ["_build"]

html_theme = "furo"
html_title = f"Punctual {release}"
