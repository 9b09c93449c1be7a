"""What the documentation, and what the source says of itself, names is there."""

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.source import PACKAGE, ROOT

from punctual import registry

DOCS = ROOT / "docs"
DOCUMENTATION = sorted(path for path in DOCS.rglob("*.md") if "_build" not in path.parts)
#: Pages for people, those beside benchmarks included.
PAGES = [*sorted(ROOT.glob("*.md")), *DOCUMENTATION, *sorted((ROOT / "bench").glob("*.md"))]
_N_WORDS_MAX = 50_000
_N_WORDS_OF_A_PAGE_MAX = 3_000
_N_WORDS_OF_A_DECISION_MAX = 350
#: Openings that hide the subject of a sentence or heading.
_WITHOUT_SUBJECT = re.compile(
    r"(?:^|[.:;!?] |^[#*-]+ |\| )(?:What (?:is|was|are|were)|Whoever|Of which|There (?:is|are|was|were)|As it is)\b",
    re.MULTILINE,
)
_CODE = re.compile(r"```.*?```|`[^`]*`", re.DOTALL)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_LINK = re.compile(r"\]\(([^()\s]+)\)")
#: Folders that a path may be given from.
_BASES = (ROOT, ROOT / "docs", PACKAGE.parent, PACKAGE)
_PATH = re.compile(r"\b(?:(?:src|tests|bench|docs)/[\w./-]*\w|(?:\w+/)+\w+\.py)\b")
_DOTTED = re.compile(r"(?<![\w.])punctual(?:\.[A-Za-z_]\w*)+")
#: In docstrings and comments; without the backticks imports would be looked up too.
_QUOTED = re.compile(r"`punctual\.[\w.]+`")


def missing_paths(text: str, page: Path) -> list[str]:
    """Files and folders that the text names and that are not there."""
    return [path for path in _PATH.findall(text) if not any((base / path).exists() for base in (*_BASES, page.parent))]


def missing_names(text: str) -> list[str]:
    """Modules, and what is in them, that the text names and that are not there."""
    return [name for name in _DOTTED.findall(text) if not _exists(name)]


def _exists(name: str) -> bool:
    """Whether `name` is a module, can be had from one, attribute by attribute, or is a group of entry points."""
    parts = name.split(".")
    return name.removeprefix("punctual.") in registry.families() or any(
        _has(".".join(parts[:i]), parts[i:]) for i in range(len(parts), 0, -1)
    )


def _has(module: str, attributes: list[str]) -> bool:
    if module.startswith("punctual.integrations."):  # its library may be missing, and takes long to import
        return _file_has(PACKAGE.parent / f"{module.replace('.', '/')}.py", attributes)
    try:
        value: object = importlib.import_module(module)
        for attribute in attributes:
            value = getattr(value, attribute)
    except (ImportError, AttributeError):
        return False
    return True


def _file_has(path: Path, attributes: list[str]) -> bool:
    if not path.exists():
        return False
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {*attributes[:1]} <= {node.name for node in tree.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}


def _complaints() -> Iterator[str]:
    for page in PAGES:
        if page.name == "CONTRIBUTING.md":  # it shows names of files to come
            continue
        text = page.read_text(encoding="utf-8")
        for name in (*missing_paths(text, page), *missing_names(text)):
            yield f"{page.relative_to(ROOT)}: {name}"


def quoted(source: str) -> str:
    """What a module names in backticks."""
    return " ".join(_QUOTED.findall(source))


def n_words(text: str) -> int:
    """Number of words that a reader sees: without comments, and without signs such as the bars of a table."""
    return sum(any(sign.isalnum() for sign in word) for word in _COMMENT.sub("", text).split())


def without_subject(text: str) -> list[str]:
    """Return the openings of sentences and headings that have no subject."""
    return _WITHOUT_SUBJECT.findall(_CODE.sub("", _COMMENT.sub("", text)))


def broken_links(text: str, page: Path) -> list[str]:
    """Return the addresses of files, among the links of a page, that lead nowhere."""
    paths = [
        link.partition("#")[0] for link in _LINK.findall(text) if "://" not in link and not link.startswith("mailto:")
    ]
    return [path for path in paths if path and not (page.parent / path).exists()]


def markdown_twins() -> Any:
    """Return the documentation's own extension of Sphinx, which needs no Sphinx to be imported."""
    spec = importlib.util.spec_from_file_location("markdown_twins", DOCS / "markdown_twins.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_documentation_can_be_read_in_a_day() -> None:
    words = {page.relative_to(DOCS): n_words(page.read_text(encoding="utf-8")) for page in DOCUMENTATION}
    assert sum(words.values()) <= _N_WORDS_MAX
    assert not {page: n for page, n in words.items() if n > _N_WORDS_OF_A_PAGE_MAX}


def test_decisions_are_short() -> None:
    words = {page.name: n_words(page.read_text(encoding="utf-8")) for page in (DOCS / "decisions").glob("0*.md")}
    assert len(words) >= 20
    assert not {page: n for page, n in words.items() if n > _N_WORDS_OF_A_DECISION_MAX}


def test_sentences_and_headings_have_a_subject() -> None:
    openings = {page: without_subject(page.read_text(encoding="utf-8")) for page in PAGES}
    assert not {page: found for page, found in openings.items() if found}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("## What is read\n\nA line. There is no other.", ["## What is", ". There is"]),
        ("* Whoever asks\n| a | Of which one |", ["* Whoever", "| Of which"]),
        ("Punctual says what is read, and `What is` is code.\n```\nThere is\n```\n", []),
    ],
)
def test_openings_without_a_subject_are_found(text: str, found: list[str]) -> None:
    assert without_subject(text) == found


def test_every_link_leads_to_a_file() -> None:
    broken = {page: broken_links(page.read_text(encoding="utf-8"), page) for page in PAGES}
    assert not {page: paths for page, paths in broken.items() if paths}


def test_every_page_is_listed_once_with_a_sentence() -> None:
    """Tables of contents, and `llms.txt`, are made from these lists."""
    entries = markdown_twins().entries
    indices = [page for page in DOCUMENTATION if page.name == "index.md"]
    listed = [
        (index.parent / path).relative_to(DOCS) for index in indices for _, path, _ in entries(index.read_text("utf-8"))
    ]
    fronts = {page.relative_to(DOCS) for page in indices if page.parent.parent in (DOCS, ROOT)}
    template = Path("decisions", "0000-template.md")
    assert sorted(listed) == sorted({page.relative_to(DOCS) for page in DOCUMENTATION} - fronts - {template})


def test_llms_txt_has_the_sections_in_their_order_and_every_page() -> None:
    text = markdown_twins().listing(DOCS)
    assert text.startswith("# Punctual\n\n> Punctual makes")
    assert re.findall("^## (.*)$", text, re.MULTILINE) == [
        "Tutorials", "How-to guides", "Reference", "Explanation", "Decisions",
    ]  # fmt: skip
    pages = re.findall(r"^- \[[^]]+\]\(([^)]+)\): \S", text, re.MULTILINE)
    assert all((DOCS / page).is_file() for page in pages)
    assert len(pages) == len(set(pages)) > 90
    assert "explanation/policies/fifo.md" in pages


def test_a_page_is_plain_markdown_without_sphinx(tmp_path: Path) -> None:
    docs = tmp_path / "docs"
    docs.mkdir()
    (tmp_path / "table.md").write_text("| a | b |\n")
    page = docs / "page.md"
    text = "Fast.\n<!-- figures of one\n2 = two\n-->\n\n```{include} ../table.md\n:heading-offset: 2\n```\n"
    text += (
        "See [the table](../table.md), [`table.md`](page.md) and [table.md](../table.md).\n\n```{toctree}\npage\n```\n"
    )
    found = markdown_twins().plain(text, page, docs)
    assert found == ("Fast.\n\n| a | b |\nSee the table (`table.md`), [`table.md`](page.md) and `table.md`.\n\n")


def test_a_section_has_its_table_of_contents_from_its_list(tmp_path: Path) -> None:
    text = "# Part\n\n* [One](one.md): the first.\n\n| [Two](deep/two.md) | yes | no |\n"
    twins = markdown_twins()
    assert twins.entries(text) == [("One", "one.md", "the first."), ("Two", "deep/two.md", "yes")]
    assert twins.with_contents(text).endswith("```{toctree}\n:hidden:\n\none\ndeep/two\n```\n")
    outside = twins.with_downloads(
        "[code](../bench/x.py) and [page](../docs/y.md)", tmp_path / "docs" / "a.md", tmp_path / "docs"
    )
    assert outside == "{download}`code <../bench/x.py>` and [page](../docs/y.md)"


def test_what_pages_name_is_there() -> None:
    assert not list(_complaints())


def test_what_docstrings_and_comments_name_is_there() -> None:
    modules = {path: quoted(path.read_text(encoding="utf-8")) for path in sorted(PACKAGE.rglob("*.py"))}
    assert sum(map(bool, modules.values())) > 10
    assert not [(path.name, name) for path, text in modules.items() for name in missing_names(text)]


@pytest.mark.parametrize(
    ("text", "missing"),
    [
        ("see `src/punctual/core/nothing.py` and `core/scheduler.py`", ["src/punctual/core/nothing.py"]),
        ("`tests/architecture` and `daemon/engine.py`, `daemon/engines.py`.", ["daemon/engines.py"]),
    ],
)
def test_missing_files_are_found(text: str, missing: list[str]) -> None:
    assert missing_paths(text, ROOT / "README.md") == missing


def test_missing_names_of_a_docstring_are_found() -> None:
    source = (
        "import punctual.core.imported\ndef f(): '''See `punctual.core.job.JobSpec` and `punctual.core.job.Nothing`.'''"
    )
    assert missing_names(quoted(source)) == ["punctual.core.job.Nothing"]


def test_missing_names_are_found() -> None:
    text = "`punctual.track`, punctual.core.answers.unknown_job, punctual.core.nothing and `punctual.nothing`,"
    text += " punctual.integrations.lightning.LightningCallback, punctual.integrations.lightning.nothing"
    missing = ["punctual.core.nothing", "punctual.nothing", "punctual.integrations.lightning.nothing"]
    assert missing_names(text) == missing
