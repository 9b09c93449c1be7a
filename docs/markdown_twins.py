"""Serve the documentation as Markdown too: `page.md` beside each `page.html`, and `llms.txt` at the root.

An index page lists the pages of its section, each with one sentence. From that list come the section's table of contents and `llms.txt`.
Links to files of the repository outside of the documentation become downloads.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sphinx.application import Sphinx

#: `* [Title](page.md): sentence`, or the first two cells of a row of a table.
_ENTRY = re.compile(r"^(?:\* |\| )\[([^\]]+)\]\(([\w./-]+\.md)\)(?:: | \| )(.+)$", re.MULTILINE)
_LINK = re.compile(r"\[([^\[\]]+)\]\((\.\./[\w./-]+)\)")
_COMMENT = re.compile(r"^[ \t]*<!--.*?-->\n?", re.MULTILINE | re.DOTALL)
_INCLUDE = re.compile(r"^```\{include\} (\S+)\n(?::.*\n)*```$", re.MULTILINE)
_CONTENTS = re.compile(r"^```\{toctree\}\n.*?^```\n?", re.MULTILINE | re.DOTALL)


def entries(text: str) -> list[tuple[str, str, str]]:
    """Return title, path and sentence of each page that an index page lists."""
    return [(title, path, line.partition(" | ")[0].removesuffix(" |")) for title, path, line in _ENTRY.findall(text)]


def with_contents(text: str) -> str:
    """Return an index page with a hidden table of contents of the pages that it lists."""
    pages = "\n".join(path.removesuffix(".md") for _, path, _ in entries(text))
    return f"{text}\n```{{toctree}}\n:hidden:\n\n{pages}\n```\n" if pages and "{toctree}" not in text else text


def with_downloads(text: str, page: Path, docs: Path) -> str:
    """Return the text with each link to a file outside of `docs` as a download."""

    def download(link: re.Match[str]) -> str:
        inside = (page.parent / link[2]).resolve().is_relative_to(docs.resolve())
        return link[0] if inside else f"{{download}}`{link[1]} <{link[2]}>`"

    return _LINK.sub(download, text)


def plain(text: str, page: Path, docs: Path) -> str:
    """Return a page as it is read without Sphinx: tables included, no comments, other files by their paths."""

    def included(directive: re.Match[str]) -> str:
        return (page.parent / directive[1]).read_text(encoding="utf-8").strip()

    def named(link: re.Match[str]) -> str:
        path = (page.parent / link[2]).resolve()
        if path.is_relative_to(docs.resolve()):
            return link[0]
        address = str(path.relative_to(docs.resolve().parent))
        return f"`{address}`" if link[1] == address else f"{link[1]} (`{address}`)"

    return _LINK.sub(named, _CONTENTS.sub("", _INCLUDE.sub(included, _COMMENT.sub("", text))))


def listing(docs: Path) -> str:
    """Return `llms.txt`: the sections in their order, and each page with its address and sentence."""
    front = (docs / "index.md").read_text(encoding="utf-8")
    title, summary = front.split("\n\n")[:2]
    lines = [title, "", f"> {' '.join(summary.split())}"]
    for section in re.findall(r"^([\w-]+)/index$", front, re.MULTILINE):
        lines += ["", *_section(docs, docs / section / "index.md", heading="## ")]
    return "\n".join(lines) + "\n"


def _section(docs: Path, index: Path, heading: str) -> Iterator[str]:
    text = index.read_text(encoding="utf-8")
    yield heading + text.partition("\n")[0].removeprefix("# ")
    yield ""
    for title, path, sentence in entries(text):
        page = index.parent / path
        yield f"- [{title}]({page.relative_to(docs)}): {sentence}"
        if page.name == "index.md":
            yield from list(_section(docs, page, heading=""))[2:]


def _read(app: "Sphinx", docname: str, source: list[str]) -> None:
    page = Path(app.env.doc2path(docname))
    source[0] = with_downloads(with_contents(source[0]), page, Path(app.srcdir))


def _write(app: "Sphinx", exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    docs, out = Path(app.srcdir), Path(app.outdir)
    for docname in app.env.found_docs:
        page = Path(app.env.doc2path(docname))
        twin = out / f"{docname}.md"
        twin.parent.mkdir(parents=True, exist_ok=True)
        twin.write_text(plain(page.read_text(encoding="utf-8"), page, docs), encoding="utf-8")
    (out / "llms.txt").write_text(listing(docs), encoding="utf-8")


def setup(app: "Sphinx") -> dict[str, bool]:
    app.connect("source-read", _read)
    app.connect("build-finished", _write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
