"""Many jobs from one file: checked as a whole, run together, reported together."""

import os
import sys
import threading
import time
import tracemalloc
from pathlib import Path

import pytest
from tests.cli.pieces import JOB, JobOfBoard, board_of, started
from tests.cli.programs import TRACKED, Terminal, objects

from punctual.cli._screens import Lines
from punctual.cli.run import SECTIONS
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed
from punctual.core.resources import Resources
from punctual.request import input_file
from punctual.request.job_options import JobOptions
from punctual.request.jobs_file import read_jobs
from punctual.request.submission import Submission
from punctual.sim import scenario


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
        deadline = "90s"
        cores = "0.5..2"
        weight = 3
        preemptible = false
        guarantee = true
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
    assert (first.spec.weight, first.spec.preemptible, first.spec.guarantee) == (3, False, True)
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
        ("seeds = 3", "must have tables", "jobs.toml"),
        ("[job]\nprogram = 'true'", "must have tables", "jobs.toml"),
        ("[[job]]\nprogram = ", "must be TOML", "jobs.toml"),
        ("[[job]]\ncolour = 1", "a key must be one", "job 1"),
        ("[[job]]\nname = 'a'", "`program` must be given", "job 1 ('a'), `program`"),
        ("[[job]]\nprogram = 'true'\n[[job]]\nprogram = 'true'\ndeadline = '8x'", "deadline", "job 2, `deadline`"),
        ("[[job]]\nprogram = 'true'\ncheckpoint_dir = ''", "must name a folder", "job 1, `checkpoint_dir`"),
        ("[[job]]\nprogram = 'true'\nstop_grace = '1s'\nstop-grace = '2s'", "a key must be one", "job 1"),
        ("[[job]]\nprogram = 'true'\ndeadline = 5", "must be a duration or a time", "job 1, `deadline`"),
        ("[[job]]\nprogram = 'true'\nsteps = 1.5", "`steps` must be", "job 1, `steps`"),
        ("[[job]]\nprogram = 'true'\nenv = { A = 1 }", "`env` must be", "job 1, `env`"),
        ("[[job]]\nprogram = 'true'\ncores = '9'", "`--cores` must not", "job 1, `cores`"),
        ("[[job]]\nprogram = 'true'\nname = 'a'\n[[job]]\nprogram = 'true'\nname = 'a'", "`name` must be", "jobs.toml"),
        ("[[job]]\nprogram = 'true'\nsteps = inf", "`steps` must be", "job 1, `steps`"),
        ("a = " + "[" * 3000, "must be TOML", "jobs.toml"),
        ("[[job]]\nsteps = " + "9" * 5000, "must be TOML", "jobs.toml"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str, must: str, where: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read(tmp_path, text)
    assert must in caught.value.must
    assert where in caught.value.where


def test_a_file_of_any_size_is_refused_before_it_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.touch()
    os.truncate(path, 1 << 30)
    tracemalloc.start()
    try:
        with pytest.raises(InvalidSpec, match="at most 16,000,000 characters") as caught:
            read_jobs(path, time.monotonic(), Resources(4))
        assert tracemalloc.get_traced_memory()[1] < 200_000_000
    finally:
        tracemalloc.stop()
    assert caught.value.where == f"'{path}'"


@pytest.mark.parametrize("option", ["deadline", "cores", "cores_per_worker", "workers", "margin", "until"])
def test_an_option_without_end_is_refused_before_it_is_read(tmp_path: Path, option: str) -> None:
    digits = "9" * 60_000
    text = {"until": f"loss<{digits}x", "margin": f"{digits}x", "workers": f"1..{digits}"}.get(option, digits)
    with pytest.raises(InvalidSpec, match=r"at most 64 characters|got 60000 characters") as caught:
        read(tmp_path, f"[[job]]\nprogram = 'true'\n{option} = '{text}'")
    assert f"`{option}`" in caught.value.where


@pytest.mark.parametrize(
    "text",
    ["{} = 1", "[{}]", "[[{}]]", "job = [{{ {} = 1 }}]", "job = [{{ a = 1, {} = 1 }}]"],
)
@pytest.mark.parametrize("part", ["a", '"a"', " 'a' "])
def test_a_key_of_many_parts_is_refused_before_it_is_read(tmp_path: Path, text: str, part: str) -> None:
    key = ".".join([part] * 50_000)
    with pytest.raises(InvalidSpec, match="a key must have at most 100 parts"):
        read(tmp_path, text.format(key))


@pytest.mark.parametrize(
    ("content", "must", "got"),
    [
        (b"", "must say something", "an empty file"),
        (b" \r\n\t", "must say something", "an empty file"),
        (b"# nothing\n# yet\n", "must say something", "comments alone"),
        (b"\xef\xbb\xbf", "must say something", "an empty file"),
        (b"job = []", "must say something", "empty keys alone: job"),
        (b"trace = ''", "must say something", "alone: trace"),
        (b"pool = []\n[trace]", "must say something", "alone: pool, trace"),
        (b"[[job]]\nname = '\xe9'", "text in UTF-8", "byte 0xe9 at place 16"),
        ("[[job]]".encode("utf-16"), "text in UTF-8", "byte 0xff at place 0"),
    ],
)
def test_a_file_that_says_nothing_is_refused(tmp_path: Path, content: bytes, must: str, got: str) -> None:
    path = tmp_path / "scenario.toml"
    path.write_bytes(content)
    for take in (input_file.keys_in, scenario.keys_in, lambda path: read_jobs(path, 0.0, Resources(4))):
        with pytest.raises(InvalidSpec, match=must) as caught:
            take(path)
        assert got in caught.value.got
        assert str(path) in caught.value.where


def test_a_file_may_begin_with_a_mark_and_have_lines_as_on_other_systems(tmp_path: Path) -> None:
    path = tmp_path / "jobs.toml"
    path.write_bytes(b"\xef\xbb\xbf[[job]]\r\nname = 'a'\r\nprogram = 'true'\r\n")
    assert [job.spec.id for job in read_jobs(path, time.monotonic(), Resources(4))] == ["a"]


def test_a_pipe_is_read_as_far_as_something_comes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = tmp_path / "jobs.toml"
    os.mkfifo(pipe)
    with monkeypatch.context() as patch:
        patch.setattr(input_file, "_SILENT_S_MAX", 0.1)
        with pytest.raises(InvalidSpec, match="nothing has come"):
            read_jobs(pipe, time.monotonic(), Resources(4))
    writing = threading.Thread(target=pipe.write_text, args=(f"[[job]]\nprogram = '{sys.executable}'\nname = 'a'\n",))
    writing.start()
    (job,) = read_jobs(pipe, time.monotonic(), Resources(4))
    writing.join()
    assert job.spec.id == "a"


@pytest.mark.parametrize(
    ("line", "must"),
    [
        ('env = { A = "x\\u0000y" }', "`env` must hold no NUL character"),
        ('env = { "A\\u0000" = "x" }', "the name of a variable"),
        ('env = { "A=B" = "x" }', "the name of a variable"),
        ('env = { "" = "x" }', "the name of a variable"),
        ('program = ["sleep", "1\\u0000"]', "`program` must hold no NUL character"),
    ],
)
def test_what_no_process_can_be_given_is_refused(tmp_path: Path, line: str, must: str) -> None:
    program = "" if line.startswith("program") else 'program = "sleep 1"\n'
    with pytest.raises(InvalidSpec, match=must):
        read(tmp_path, f"[[job]]\n{program}{line}\n")


def test_all_that_is_wrong_with_a_job_is_told(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec) as caught:
        read(
            tmp_path,
            """
            [[job]]
            program = "nothing-there"
            deadlin = "5m"
            deadline = "8x"
            cores = "9"
            weight = -1
            steps = 1.5
            controller = "cruise"
            until = "loss"
            """,
        )
    assert [error.where.partition(", job 1, ")[2] for error in caught.value.all()] == [
        "`deadlin`", "`steps`", "`program`", "`deadline`", "`until`", "`cores`", "`weight`",
        "`controller`",
    ]  # fmt: skip
    assert caught.value.remedy.startswith("Did you mean `deadline`?")


def test_options_that_are_wrong_are_all_told_by_their_names(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--cores", "-1", "--deadline", "yesterday", "--weight", "0", "--", "true")
    assert done.returncode == 2
    told = [line.strip() for line in done.stderr.splitlines() if "for:" in line]
    assert [line.rpartition(", ")[2] for line in told] == ["`--cores`", "`--deadline`", "`--weight`"]


def test_all_wrong_jobs_are_told_and_none_is_started(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        "[[job]]\nprogram = 'touch begun'\n[[job]]\nprogram = 'nothing-there'\n[[job]]\nprogram = 'true'\nsteps = 0\n"
    )
    done = terminal.tell("run", "--jobs", "jobs.toml")
    assert done.returncode == 2
    assert [line.split("job ")[1] for line in done.stderr.splitlines() if "for:" in line] == [
        "2, `program`",
        "3, `steps`",
    ]
    assert not (tmp_path / "begun").exists()
    assert terminal.tell("run", "--jobs", "jobs.toml", "--", "true").returncode == 2


def test_jobs_of_a_file_have_one_report(terminal: Terminal, tmp_path: Path) -> None:
    script = " ".join(terminal.script(TRACKED))
    (tmp_path / "jobs.toml").write_text(
        f"[[job]]\nname = 'lands'\nprogram = '{script} 40'\ndeadline = '60s'\n"
        "[[job]]\nname = 'fails'\nprogram = \"sh -c 'exit 7'\"\n"
    )
    done = terminal.punctual("run", "--jobs", "jobs.toml", "--json")
    assert done.returncode == 7, done.stderr
    told = objects(done.stdout)
    assert {line["job"] for line in told[:-1]} == {"lands", "fails"}
    report = told[-1]
    assert report["exit_code"] == 7
    assert [(job["job"], job["status"]) for job in report["jobs"]] == [("lands", "finished"), ("fails", "failed")]
    assert report["text"].startswith("2 jobs: 1 on time, 1 failed.\nlands: Landed ")
    assert (tmp_path / "home" / "state" / "runs" / "daemon" / "lands.log").read_text() == "trained 40\n"


def test_a_missing_program_is_told_once(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--deadline", "90")
    told = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert told == ["error: `program` must be given", "error: `deadline` must be a duration or a time"]


def test_lines_about_several_jobs_are_named_and_tell_of_failures() -> None:
    board, told = board_of(), list[str]()
    lines = Lines(JobOfBoard(board), told.append, named=True)
    for message in (started(1.0), JobFailed(at=3.0, job=JOB, cause="a signal", exit_code=-9)):
        board.fold(message)
        lines.tell(message)
    assert told[-1].endswith(f" {JOB}: failed: a signal")  # behind the time, and the day if that was yesterday
    assert all(f"{JOB}: " in line for line in told)


def test_a_time_of_toml_is_the_same_as_that_text(tmp_path: Path) -> None:
    jobs = [
        read(tmp_path, f'[[job]]\nprogram = "true"\ndeadline = {text}')[0] for text in ("23:59:59", '"23:59:59 today"')
    ]
    assert jobs[0].spec.deadline_s == pytest.approx(jobs[1].spec.deadline_s, abs=2.0)


def test_every_option_of_a_job_is_one_of_the_command_line() -> None:
    told = {name for options in SECTIONS.values() for name in options}
    assert JobOptions.model_fields.keys() - told == {"cwd", "env"}, "it has those of the shell"


@pytest.mark.parametrize("key", ["inherited", "inherit_env", "inheritEnv", "coresPerWorker"])
def test_what_is_a_name_elsewhere_is_no_key(tmp_path: Path, key: str) -> None:
    with pytest.raises(InvalidSpec, match=f"a key must be one of a job: got `{key}`"):
        read(tmp_path, f"[[job]]\nprogram = 'true'\n{key} = '1'")
