"""The folder of a run: whose a name is, what it says of jobs and processes, and what others may read of it."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon import paths, run_folder
from punctual.daemon.process_record import process_record
from punctual.daemon.run_folder import RunFolder, create_run
from punctual.journal.owner import start_ticks

A = JobId("train-3f2a")
#: Of a process that is gone.
GONE = {"pid": 2**22 + 1, "start_ticks": 1}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


def leave_behind(name: str, **record: object) -> RunFolder:
    """A run whose process is gone."""
    run = create_run(name)
    (run.runtime_dir / "run.json").write_text(json.dumps({"name": name, **record}))
    return run


def known() -> list[str]:
    return sorted(folder.name for folder in paths.state_root().iterdir())


def test_a_run_has_its_places_and_they_are_private(home: Path) -> None:
    run = create_run(A, {"argv": ["python", "train.py"]})
    for folder in (run.runtime_dir, run.state_dir):
        assert folder.is_relative_to(home)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / "run.json").stat().st_mode) == 0o600
    assert run.record()["argv"] == ["python", "train.py"]
    assert run.record()["pid"] == os.getpid()
    assert run.is_live()
    run.remove_live_places()
    assert not run.is_live()
    assert run.record()["argv"] == ["python", "train.py"]


def test_it_says_which_jobs_there_are_and_which_have_ended() -> None:
    run = create_run("host")
    for name in ("b", "a"):
        run.record_job(JobId(name), "queued")
    run.record_end(JobId("b"), "failed")
    assert run.jobs() == {"b": "failed", "a": "queued"}
    assert run.open_jobs() == ["a"]
    assert run.record()["pid"] == os.getpid()


def test_what_a_job_inherits_is_readable_by_its_user_only_and_goes_with_its_end() -> None:
    run = create_run(A)
    run.keep_submission(A, "{}", {"TOKEN": "s3cret"})
    (file,) = [path for path in run.state_dir.iterdir() if "s3cret" in path.read_text()]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert run.inherited(A) == {"TOKEN": "s3cret"}
    run.record_job(A, "queued")
    run.record_end(A, "finished")
    assert not file.exists()


def test_what_an_earlier_version_kept_of_a_job_is_found_and_goes_with_its_end() -> None:
    run = create_run("host")
    parts = {"environment": {"TOKEN": "s3cret"}, "argv": {"argv": ["a"]}, "submitted": {"message": "{}"}}
    for part, value in parts.items():
        (run.state_dir / f"{A}.{part}.json").write_text(json.dumps(value))
    assert (run.inherited(A), run.argv(A), run.kept_submission(A)) == ({"TOKEN": "s3cret"}, ["a"], "{}")
    run.record_end(A, "finished")
    assert list(run.state_dir.glob(f"{A}.*")) == []


def test_the_record_of_jobs_has_one_line_a_job_once_a_host_has_begun() -> None:
    run = create_run("host")
    for name in ("b", "a", "c"):
        run.record_job(JobId(name), "queued")
    run.record_end(JobId("b"), "failed")
    run.record_steering()
    assert (run.state_dir / "jobs.jsonl").read_text() == '["b", "failed"]\n["a", "queued"]\n["c", "queued"]\n'
    run.record_job(JobId("d"), "queued")
    assert list(run.jobs().items()) == [("b", "failed"), ("a", "queued"), ("c", "queued"), ("d", "queued")]


def test_what_a_killed_process_left_half_written_goes_with_the_run() -> None:
    run = create_run("host")
    (run.state_dir / ".a.argv.json.4711").write_text("s3cret")
    run.remove_live_places()
    assert [file.name for file in run.state_dir.iterdir()] == ["run.json"]


def test_a_live_name_is_taken() -> None:
    run = create_run(A)
    with pytest.raises(InvalidSpec, match="live run") as caught:
        create_run(A)
    assert A in caught.value.remedy
    assert run.is_live()


def test_the_name_of_a_dead_run_is_free_and_its_journal_is_kept() -> None:
    for text in ("first", "second", "third"):
        run = leave_behind(A, **GONE)
        run.journal.write_text(text)
    kept = {name: (paths.state_root() / name / "journal.db").read_text() for name in known()}
    assert kept == {A: "third", f"{A}.1": "first", f"{A}.2": "second"}


def test_a_kept_job_outlives_its_host_and_keeps_its_name() -> None:
    run = leave_behind(A, **GONE)
    run.record_job(A, "queued")
    run.record_keeper(A, os.getpid(), os.getpid())
    assert (run.is_live(), run.keeper_pid(A), run.kept_jobs()) == (False, os.getpid(), [A])
    with pytest.raises(InvalidSpec, match="live run"):
        create_run(A)


def test_the_name_of_an_interrupted_job_is_taken_until_it_is_resumed_or_given_up() -> None:
    run = leave_behind(A, **GONE)
    run.record_job(A, "queued")
    with pytest.raises(InvalidSpec, match="interrupted") as caught:
        create_run(A)
    assert f"punctual attach {A}" in caught.value.remedy
    run.record_end(A, "failed")
    assert create_run(A).is_live()


def test_another_process_may_steer_what_a_dead_one_left() -> None:
    run = leave_behind(A, **GONE, argv=["python"])
    assert not run.is_live()
    run.record_steering()
    assert run.is_live()
    assert (run.record()["argv"], run.record()["pid"]) == (["python"], os.getpid())


def test_what_the_machine_s_restart_has_removed_is_made_again() -> None:
    run = create_run(A)
    run.remove_live_places()
    run.record_steering()
    assert run.is_live()


def test_a_run_of_another_machine_is_not_live_and_its_name_not_free() -> None:
    run = leave_behind(A, **{**process_record(os.getpid()), "machine": "there", "boot": "another"})
    assert (run.is_live(), run.machine()) == (False, "there")
    with pytest.raises(InvalidSpec, match="machine 'there'"):
        create_run(A)


def test_a_run_from_before_this_machine_was_started_again_is_dead() -> None:
    run = leave_behind(A, **{**process_record(os.getpid()), "boot": "before"})
    assert (run.is_live(), run.machine()) == (False, None)


@pytest.mark.parametrize(
    "record",
    [
        {}, {"pid": "x"}, {"pid": os.getpid()}, {"pid": os.getpid(), "start_ticks": 1},
        {"pid": 2**22 + 1, "start_ticks": None},
    ],
)  # fmt: skip
def test_a_record_that_fits_no_process_is_of_a_dead_run(record: dict[str, object]) -> None:
    assert not leave_behind(A, **record).is_live()


@pytest.mark.parametrize("text", ["", "{", "[]"])
def test_a_damaged_record_is_of_a_dead_run(text: str) -> None:
    run = create_run(A)
    (run.runtime_dir / "run.json").write_text(text)
    assert not run.is_live()


def test_a_process_that_ended_is_not_live() -> None:
    program = f"from punctual.daemon.run_folder import create_run; print(create_run('{A}').is_live())"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "True\n"
    assert known() == [A]
    assert not run_folder.run_named(A).is_live()


def test_a_run_that_cannot_be_written_down_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", "/home/a/.new-1")

    monkeypatch.setattr(run_folder.tempfile, "mkdtemp", refuse)
    with pytest.raises(InvalidSpec, match="Read-only file system for '/"):
        create_run(A)


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    record = process_record(os.getpid())
    assert record["start_ticks"] == start_ticks(os.getpid())
    assert start_ticks(2**22 + 1) is None


def test_a_job_is_written_down_without_writing_the_others_again() -> None:
    run = create_run("host")
    for name in ("a", "b", "c"):
        run.record_job(JobId(name), "queued")
    files = {file: (file.stat().st_ino, file.read_bytes()) for file in run.state_dir.iterdir()}
    run.record_job(JobId("d"), "queued")
    run.record_end(JobId("a"), "finished", {"cause": "done"})
    for file, (inode, text) in files.items():
        assert file.stat().st_ino == inode
        assert file.read_bytes().startswith(text)
    assert run.jobs() == {"a": "finished", "b": "queued", "c": "queued", "d": "queued"}
    assert (run.end_facts(JobId("a")), run.end_facts(JobId("b"))) == ({"cause": "done"}, {})


def test_half_a_line_about_a_job_spoils_no_other() -> None:
    run = create_run("host")
    run.record_job(A, "queued")
    (record,) = [file for file in run.state_dir.iterdir() if file.name != "run.json"]
    with record.open("a") as file:
        file.write('["b", "que')
    assert run.jobs() == {A: "queued"}
    run.record_job(JobId("c"), "running")
    assert run.jobs() == {A: "queued", "c": "running"}


def test_of_jobs_that_do_not_fit_on_the_disk_together_none_is_written_down(monkeypatch: pytest.MonkeyPatch) -> None:
    run = create_run("host")
    run.record_job(A, "queued")
    for job in ("c", "d"):
        run.keep_submission(JobId(job), "{}", {})
    write = os.write
    with monkeypatch.context() as full:
        full.setattr(os, "write", lambda file, text: write(file, text[: len(text) // 2 + 1]))
        with pytest.raises(OSError, match="No space"):
            run.record_submitted([JobId("c"), JobId("d")])
    assert run.jobs() == {A: "queued"}
    run.record_submitted([JobId("c"), JobId("d")])
    assert run.jobs() == {A: "queued", "c": "queued", "d": "queued"}


def test_jobs_that_an_earlier_version_wrote_down_are_found() -> None:
    run = create_run("host")
    record = json.loads(run.record_file.read_text())
    earlier = {"jobs": {A: "failed", "b": "queued"}, "ends": {A: {"cause": "out of memory"}}}
    run.record_file.write_text(json.dumps({**record, **earlier}))
    run.record_end(JobId("b"), "finished")
    assert run.jobs() == {A: "failed", "b": "finished"}
    assert run.end_facts(A) == {"cause": "out of memory"}


def test_jobs_are_read_on_and_anew_once_another_process_has_written_them_anew() -> None:
    run = create_run("a")
    for job in ("x", "y"):
        run.record_job(JobId(job), "queued")
    assert run.jobs() == {"x": "queued", "y": "queued"}
    run.record_job(JobId("x"), "finished")
    assert run.jobs() == {"x": "finished", "y": "queued"}
    record = run.state_dir / "jobs.jsonl"
    with record.open("a") as file:
        file.write('["z", "que')  # the disk is full
    assert run.jobs() == {"x": "finished", "y": "queued"}
    run.record_job(JobId("z"), "failed")
    assert run.jobs() == {"x": "finished", "y": "queued", "z": "failed"}
    record.write_text('["x", "failed"]\n')
    assert run.jobs() == {"x": "failed"}
    record.unlink()
    assert run.jobs() == {}
