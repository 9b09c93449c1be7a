"""There is no more than today of what is to go."""

import json
from pathlib import Path

import pytest
from tests.architecture import ratchets
from tests.architecture.ratchets import (
    Counts,
    counted,
    counted_everywhere,
    counted_in_tests,
    grown,
    is_forbidden,
    listed,
)


def test_there_is_no_more_than_is_listed() -> None:
    assert not grown(counted_everywhere(), listed())


# Each check finds what it is there to find.


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("class Run: ...\nclass _Run: ...\ndef f():\n    class Run: ...", {"classes of one name": {"Run": {"a.py": 3}}}),
        ("x = [1]  # fmt: skip\ny = [2]  # fmt: skip", {"fmt: skip": {"fmt: skip": {"a.py": 2}}}),
        ("def f(one, *, other): return lambda one: one", {"forbidden names": {"one": {"a.py": 2}}}),
        ("self._wishes: int = 1", {"forbidden names": {"_wishes": {"a.py": 1}}}),
        ("import a as mine\ntry: ...\nexcept E as theirs: ...", {"forbidden names": {"mine": {"a.py": 1}, "theirs": {"a.py": 1}}}),
        ("match x:\n    case A(b=found): ...", {"forbidden names": {"found": {"a.py": 1}}}),
        ("run.print(1)\nprint(2)", {"print": {"print": {"a.py": 1}}}),
        (
            "A = 1\nB, C, D = -2.0, 1 << 3, ''\nE: int = 4 * 60\nF = A + 1\nG = True\ndef f(): h = 1",
            {"numeric constants": {"of modules": {"a.py": 4}}},
        ),
    ],
)  # fmt: skip
def test_what_is_to_go_is_found(text: str, found: Counts) -> None:
    kinds = counted({"a.py": text})
    del kinds["code lines"]
    assert {kind: subjects for kind, subjects in kinds.items() if subjects} == found


def test_lines_of_code_are_counted_by_package_without_words() -> None:
    text = '"""Words.\n\nMore.\n"""\n\n# Why.\ndef f():\n    """Words."""\n    return """1\n2"""\n'
    assert counted({"a/b.py": text, "a/c.py": "x = 1", "papers/d.py": "x = 1"})["code lines"] == {
        "of the product": {"a": 4}
    }


@pytest.mark.parametrize(
    ("text", "n_found"),
    [
        ("a._b._c = d()._e", 3),
        ("self._a = cls._b", 0),
        ("self._a._b", 1),
        ("a.__class__.b", 0),
        ("from a import _b\n_b()", 0),
        ("os._exit(1)", 0),
    ],
)
def test_private_attributes_of_others_are_found_in_tests(text: str, n_found: int) -> None:
    expected = {"in tests": {"a.py": n_found}} if n_found else {}
    assert counted_in_tests({"a.py": text}) == {"private attributes": expected}


def test_two_classes_of_one_name_are_found() -> None:
    texts = {"a.py": "class Run: ...", "b.py": "class Run: ...\nclass Runner: ..."}
    assert counted(texts)["classes of one name"] == {"Run": {"a.py": 1, "b.py": 1}}


@pytest.mark.parametrize(
    "name", ["Crew", "crew_fields", "_answer_the_door", "n_pledges", "mourned", "SimulatedCrew", "_found"]
)
def test_forbidden_names(name: str) -> None:
    assert is_forbidden(name)


@pytest.mark.parametrize("name", ["screw", "one_run", "n_found", "done", "indoor", "manual", "devoice_s"])
def test_names_that_only_look_like_them(name: str) -> None:
    assert not is_forbidden(name)


def test_what_moves_to_another_file_has_not_grown() -> None:
    before: Counts = {"fmt: skip": {"fmt: skip": {"a.py": 3, "gone.py": 1}}}
    assert not grown({"fmt: skip": {"fmt: skip": {"a.py": 1, "b.py": 2}}}, before)
    (line,) = grown({"fmt: skip": {"fmt: skip": {"a.py": 3, "b.py": 2}}}, before)
    assert line == "fmt: skip: fmt: skip: 5, and 4 are allowed; more in b.py"
    assert grown({"print": {"print": {"a.py": 1}}}, before)


def test_the_list_is_made_again_only_if_nothing_grows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = {"a.py": "print(1)\nprint(2)"}
    monkeypatch.setattr(ratchets, "EXCEPTIONS", tmp_path / "exceptions.json")
    monkeypatch.setattr(ratchets, "sources", lambda *_: texts)
    assert ratchets.main() == 0
    texts["a.py"] = "print(1)"
    assert ratchets.main() == 0
    assert json.loads((tmp_path / "exceptions.json").read_text())["print"] == {"print": {"a.py": 1}}
    texts["b.py"] = "print(2)"
    assert ratchets.main() == 1
    assert listed()["print"] == {"print": {"a.py": 1}}
