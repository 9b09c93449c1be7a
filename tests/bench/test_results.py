"""What benchmarks write and print: one stamp, pages that are made of the results alone, last lines that name what was missed."""

import ast
import inspect
import json
import re
import textwrap
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import _common
import _report
import _results
import pytest

SCRIPTS = sorted(path.stem for path in Path(_results.HERE).glob("*.py") if not path.stem.startswith("_"))
#: They print the last line.
LAST = (_common.conclude, _report.conclude_targets)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(_common, "RESULTS", tmp_path)
    monkeypatch.setattr(_results, "RESULTS", tmp_path)
    return tmp_path


def page(results: dict[str, Any]) -> str:
    return f"took {results['took_s']:.1f} s\n"


def test_results_carry_the_revision_and_the_machine(folder: Path) -> None:
    written = _common.write_results("one", {"took_s": 2.0, "sizes": (1, 2)}, page)
    assert written == json.loads((folder / "one.json").read_text())
    assert written["sizes"] == [1, 2]
    stamp = written["stamp"]
    assert stamp["revision"] == _common.revision()
    assert {"at", "processor", "n_cores", "memory_gib", "system", "python", "torch", "load"} <= set(stamp)
    assert (folder / "one.md").read_text() == "took 2.0 s\n"
    assert "GiB" in _common.stamp_text(written)


def test_results_of_parts_that_were_measured_before_keep_their_stamp(folder: Path) -> None:
    before = {"revision": "abc", "at": "2026-01-01T00:00:00+00:00"}
    written = _common.write_results("one", {"stamp": before, "took_s": 2.0})
    assert written["stamp"] == before
    mixed = _common.write_results("two", {"parts": [{"stamp": before}]})
    assert set(_common.revisions(mixed)) == {"abc", _common.revision()}


def test_a_quick_run_leaves_the_results_on_record_alone(folder: Path) -> None:
    _common.write_results("one", {"took_s": 2.0}, page, quick=True)
    assert [path.name for path in folder.iterdir()] == ["one-quick.json"]


def test_a_page_that_says_something_else_than_its_results_is_found(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_results, "import_module", lambda _: type("script", (), {"page": staticmethod(page)}))
    _common.write_results("one", {"took_s": 2.0}, page)
    assert _results.differing_lines("one", "one") == []
    (folder / "one.md").write_text("took 1.9 s\n")
    (found,) = _results.differing_lines("one", "one")
    assert "1.9" in found
    assert "2.0" in found
    (folder / "one.md").unlink()
    assert _results.differing_lines("one", "one")


def test_a_page_whose_results_lack_something_is_found(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_results, "import_module", lambda _: type("script", (), {"page": staticmethod(page)}))
    _common.write_results("one", {"waited_s": 2.0})
    (found,) = _results.differing_lines("one", "one")
    assert "took_s" in found


def test_only_results_of_this_revision_alone_need_not_be_made_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_results, "revision", lambda: "abc")
    for stamps, is_current in ((["abc"], True), (["abc", "def"], False), (["def"], False), ([], False)):
        (folder / "one.json").write_text(json.dumps([{"revision": one} for one in stamps]))
        assert _results.is_current("one") is is_current
    monkeypatch.setattr(_results, "revision", lambda: "abc+")
    (folder / "one.json").write_text(json.dumps([{"revision": "abc+"}]))
    assert not _results.is_current("one")


def test_all_are_made_whatever_one_of_them_comes_to_and_only_once(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    script = """
import json, sys
from pathlib import Path
name, here = Path(__file__).stem, Path(__file__).parent
with (here / "runs").open("a") as file:
    print(*[name, *sys.argv[1:]], file=file)
if name == "fails":
    raise SystemExit("it fails")
(here / f"{name}.json").write_text(json.dumps({"stamp": {"revision": "abc"}}))
if name == "interrupted" and "--go-on" not in sys.argv:
    raise SystemExit(130)
(here / f"{name}.md").write_text(f"{name}\\n")
raise SystemExit(name == "short")
"""
    names = ("fails", "short", "interrupted", "met")
    for name in names:
        (folder / f"{name}.py").write_text(script)
    monkeypatch.setattr(_results, "HERE", folder)
    monkeypatch.setattr(_results, "revision", lambda: "abc")
    monkeypatch.setattr(_results, "BENCHMARKS", [_results.Benchmark(name, resume="--go-on") for name in names])
    monkeypatch.setattr(
        _results, "import_module", lambda name: type("made", (), {"page": staticmethod(lambda _: f"{name}\n")})
    )
    for again in (False, True):
        assert _results.make() == 1
        out = capsys.readouterr().out
        assert ("short: short: on record" in out) is again
        assert ("interrupted: interrupted: NO RESULT" in out) is not again
    assert (folder / "runs").read_text().splitlines() == [
        "fails",
        "short",
        "interrupted",
        "met",
        "fails",
        "interrupted --go-on",
    ]
    (folder / "fails.py").write_text(script.replace('if name == "fails"', "if False"))
    assert _results.make() == 0


def test_the_last_line_names_what_was_missed(capsys: pytest.CaptureFixture[str]) -> None:
    slow = _report.Target("a start", 1.0, 2.0, "{:.1f} s".format)
    small = _report.Target("memory", 100.0, 50.0, "{:.0f} MB".format)
    unknown = _report.Target("a GPU", 1.0, None)
    assert _report.conclude_targets([small, slow], small, quick=True) == 1
    last = capsys.readouterr().out.splitlines()[-1]
    assert "memory: 50 MB (target: at most 100 MB)" in last
    assert "SHORT: a start: 2.0 s (at most 1.0 s)" in last
    assert _report.conclude_targets([small, unknown], small, quick=True) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith(": met")
    assert _report.conclude_targets([small, unknown], small, quick=False) == 1
    assert "a GPU" in capsys.readouterr().out


def test_every_benchmark_is_among_those_that_are_run_for_the_record() -> None:
    assert sorted({benchmark.script for benchmark in _results.BENCHMARKS}) == SCRIPTS
    names = [name for benchmark in _results.BENCHMARKS for name in benchmark.names]
    assert len(names) == len(set(names))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_benchmark_makes_its_page_of_results_and_ends_with_the_last_line(name: str) -> None:
    script = import_module(name)
    assert list(inspect.signature(getattr(script, "page", None) or script.sections).parameters) == ["results"]
    *_, made = re.findall(r"sys\.exit\((\w+)\(", inspect.getsource(script))
    assert concludes(vars(script)[made])


def concludes(function: Callable[..., Any]) -> bool:
    """Whether all that a function returns is the exit status of a last line, or that of a run that was not made."""
    (definition,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    returned = list(returned_by(definition))
    calls = [value.func.id for value in returned if isinstance(value, ast.Call) and isinstance(value.func, ast.Name)]
    called = [function.__globals__[each] for each in calls]
    n_constant = sum(isinstance(value, ast.Constant) for value in returned)
    is_all = len(calls) + n_constant == len(returned)
    return bool(calls) and is_all and all(each in LAST or concludes(each) for each in called)


def returned_by(node: ast.AST) -> Iterator[ast.expr | None]:
    """What is returned below a node, but for functions within it."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Return):
            yield child.value
        elif not isinstance(child, ast.FunctionDef):
            yield from returned_by(child)
