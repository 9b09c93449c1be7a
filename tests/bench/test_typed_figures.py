"""Figures that are typed in the documentation are those of the results that are named beside them."""

from pathlib import Path
from types import ModuleType

import _typed_figures
import pytest

TEXT = """\
Another paragraph with 3.0 s.

It takes {printed}
and waits longer.
<!-- figures of one
times := results["times_s"]
{printed} = mean(times)
-->
"""


@pytest.fixture
def page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_typed_figures, "on_record", lambda _: {"times_s": [1.0, 1.49]})
    return tmp_path / "page.md"


def found(page: Path, text: str) -> list[str]:
    page.write_text(text)
    return list(_typed_figures.findings(page, {"one": ModuleType("one")}))


@pytest.mark.parametrize("printed", ["1.2 s", "1.25 s", "1.245 s", "1 s", "about 1.2 s"])
def test_a_figure_is_right_to_the_digits_that_are_printed(page: Path, printed: str) -> None:
    assert found(page, TEXT.format(printed=printed)) == []


@pytest.mark.parametrize("printed", ["1.3 s", "1.244 s", "2 s", "1,245 s", "-1.2 s"])
def test_a_figure_that_was_not_measured_is_found(page: Path, printed: str) -> None:
    (finding,) = found(page, TEXT.format(printed=printed))
    assert "page.md, line 5" in finding
    assert "was measured" in finding


def test_a_figure_stands_in_the_paragraph_above(page: Path) -> None:
    assert found(page, TEXT.format(printed="1.2 s").replace("takes 1.2 s", "takes 11.2 s"))
    assert found(page, TEXT.format(printed="1.2 s").replace("takes 1.2 s", "takes long"))


def test_a_figure_that_cannot_be_told_is_found(page: Path) -> None:
    for wrong in ("mean(results['no'])", "mean(", "no"):
        (finding,) = found(page, TEXT.format(printed="1.2 s").replace("mean(times)", wrong))
        assert "cannot be evaluated" in finding
    assert found(page, TEXT.format(printed="1.2 s").replace("figures of one", "figures of other"))


def test_several_comments_may_follow_a_paragraph(page: Path) -> None:
    text = TEXT.format(printed="1.2 s")
    assert found(page, f"{text}<!-- figures of one\nlonger = 1\n-->\n")
    assert found(page, f"{text}<!-- figures of one\n1.2 s = 1.2\n-->\n") == []
