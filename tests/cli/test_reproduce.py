"""`punctual reproduce`."""

import json
import os
from pathlib import Path

import pytest
from typer.testing import CliRunner

from punctual.cli import reproduce as command
from punctual.cli._app import application
from punctual.core.errors import InvalidSpec
from punctual.sim.reproduce import _base
from punctual.sim.reproduce._base import Reproduction, Row

FOUND = Reproduction(
    title="[paper2020]: an experiment",
    rows=(Row("faster by", 2.0, 1.5, "another cluster"), Row("jobs", None, 12345.0)),
    note="Two [seeds].",
)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    calls: list[object] = []

    def run(*, quick: bool, seeds: int, data: Path | None) -> Reproduction:
        calls.append((quick, seeds, data))
        return FOUND

    monkeypatch.setattr(command, "load", lambda name: run)
    monkeypatch.delenv("PUNCTUAL_DATA", raising=False)
    return calls


def reproduce(*arguments: str) -> str:
    done = CliRunner().invoke(application(["reproduce"]), ["reproduce", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.output


def test_published_and_obtained_side_by_side(asked: list[object]) -> None:
    lines = [line.split() for line in reproduce("paper").splitlines()]
    assert lines[0] == ["[paper2020]:", "an", "experiment"]
    assert ["faster", "by", "2", "1.5", "0.75", "another", "cluster"] in lines
    assert ["jobs", "12,345"] in lines
    assert lines[-1] == ["Two", "[seeds]."]
    assert asked == [(False, 5, None)]


def test_for_programs(asked: list[object], tmp_path: Path) -> None:
    found = json.loads(reproduce("paper", "--json", "--quick", "--seeds", "2", "--data", str(tmp_path)))
    assert [row["ratio"] for row in found["rows"]] == [0.75, None]
    assert asked == [(True, 2, tmp_path)]


def test_data_from_the_environment(asked: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUNCTUAL_DATA", str(tmp_path))
    reproduce("paper")
    assert asked == [(False, 5, tmp_path)]


def test_a_folder_that_is_not_there(asked: list[object], tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="--data"):
        reproduce("paper", "--data", str(tmp_path / "no"))
    assert not asked


def test_what_a_solver_prints_by_itself_is_no_result(capfd: pytest.CaptureFixture[str]) -> None:
    with command._stdout_for_results():
        os.write(1, b"from a library\n")
    os.write(1, b"result\n")
    assert capfd.readouterr() == ("result\n", "from a library\n")


def test_every_experiment_can_be_loaded() -> None:
    assert "smd" in _base.names()
    assert all(callable(_base.load(name)) for name in _base.names())
    with pytest.raises(InvalidSpec, match="smd"):
        _base.load("nobody")
