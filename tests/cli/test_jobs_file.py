"""Many jobs from one file: checked as a whole, run together, reported together."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.pieces import folded, progressed, started
from tests.cli.programs import TRACKED, Terminal, objects

from punctual.cli._jobs_file import read_jobs
from punctual.cli._view import verdict
from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.runtime.submission import Submission


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    terminal = Terminal(tmp_path)
    yield terminal
    terminal.close()
    assert terminal.left_behind() == []


def read(tmp_path: Path, text: str) -> list[Submission]:
    path = tmp_path / "jobs.toml"
    path.write_text(text)
    return read_jobs(path, time.monotonic(), Resources(4))


def test_a_table_has_the_words_of_the_options(tmp_path: Path) -> None:
    (tmp_path / "work").mkdir()
    first, second = read(
        tmp_path,
        f"""
        [[job]]
        name = "first"
        program = '{sys.executable} -c "pass" --epochs 3'
        deadline = 90
        cores = "0.5..2"
        weight = 3
        cwd = "{tmp_path / "work"}"
        checkpoint_dir = "kept"
        env = {{ SEED = "7" }}

        [[job]]
        program = ["{sys.executable}", "train.py"]
        deadline = "1h30m"
        workers = "1..4"
        retries = 2
        """,
    )
    assert first.program.argv == (sys.executable, "-c", "pass", "--epochs", "3")
    assert first.spec.deadline_s == pytest.approx(90.0)
    assert first.spec.weight == 3
    assert (first.spec.floor.cores, first.spec.ceiling.cores) == (0.5, 2.0)
    assert first.program.cwd == str(tmp_path / "work")
    assert first.program.environment["PUNCTUAL_CHECKPOINT_DIR"] == str(tmp_path / "work" / "kept")
    assert first.inherited["SEED"] == "7"
    assert second.spec.id.startswith("train-")
    assert second.spec.deadline_s == pytest.approx(5400.0)
    assert (second.spec.counts, second.spec.n_retries) == ((1, 2, 3, 4), 2)


@pytest.mark.parametrize(
    ("text", "must", "where"),
    [
        ("", "must have tables", "jobs.toml"),
        ("[job]\nprogram = 'true'", "must have tables", "jobs.toml"),
        ("[[job]]\nprogram = ", "must be TOML", "jobs.toml"),
        ("[[job]]\ncolour = 1", "a key must be one", "job 1"),
        ("[[job]]\nname = 'a'", "`program` must be given", "job 1 ('a'), `program`"),
        ("[[job]]\nprogram = 'true'\n[[job]]\nprogram = 'true'\ndeadline = '8x'", "deadline", "job 2, `deadline`"),
        ("[[job]]\nprogram = 'true'\nsteps = 1.5", "`steps` must be", "job 1, `steps`"),
        ("[[job]]\nprogram = 'true'\nenv = { A = 1 }", "`env` must be", "job 1, `env`"),
        ("[[job]]\nprogram = 'true'\ncores = '9'", "`--cores` must not", "job 1, `cores`"),
        ("[[job]]\nprogram = 'true'\nname = 'a'\n[[job]]\nprogram = 'true'\nname = 'a'", "`name` must be", "jobs.toml"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, must: str, where: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read(tmp_path, text)
    assert must in caught.value.must
    assert where in caught.value.where


def test_all_wrong_jobs_are_told_and_none_is_started(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        "[[job]]\nprogram = 'touch begun'\n[[job]]\nprogram = 'nothing-there'\n[[job]]\nprogram = 'true'\nsteps = 0\n"
    )
    done = terminal.punctual("run", "--jobs", "jobs.toml")
    assert done.returncode == 2
    assert [line.split("job ")[1] for line in done.stderr.splitlines() if "for:" in line] == [
        "2, `program`",
        "3, `steps`",
    ]
    assert not (tmp_path / "begun").exists()
    assert terminal.punctual("run", "--jobs", "jobs.toml", "--", "true").returncode == 2


def test_jobs_of_a_file_have_one_report(terminal: Terminal, tmp_path: Path) -> None:
    script = " ".join(terminal.script(TRACKED))
    (tmp_path / "jobs.toml").write_text(
        f"[[job]]\nname = 'lands'\nprogram = '{script} 40'\ndeadline = 60\n"
        "[[job]]\nname = 'fails'\nprogram = \"sh -c 'exit 7'\"\n"
    )
    done = terminal.punctual("run", "--jobs", "jobs.toml", "--json")
    assert done.returncode == 7, done.stderr
    told = objects(done.stdout)
    assert {line["job"] for line in told[:-1]} == {"lands", "fails"}
    report = told[-1]
    assert report["exit_code"] == 7
    assert [(job["job"], job["status"]) for job in report["jobs"]] == [("lands", "finished"), ("fails", "failed")]
    assert (tmp_path / "home" / "state" / "runs" / "lands" / "lands.log").read_text() == "trained 40\n"


def test_the_line_of_a_job_says_how_it_stands() -> None:
    at = time.monotonic()
    assert verdict(folded(started(at), at=at)).plain == "running"
    landed = folded(started(at), progressed(at + 59, 1000, 9.0, landed=True), at=at)
    assert verdict(landed).plain == "landed 1.0s early"
