"""Where runs live, whose a name is, and how one is found."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.runtime import paths
from punctual.runtime.paths import (
    Run,
    _start_ticks,
    create_run,
    find_run,
    known_runs,
    live_runs,
    record_keeper,
    record_steering,
    remove_live_places,
    unsteered_runs,
)

A = JobId("train-3f2a")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


def leave_behind(job: JobId, **record: object) -> Run:
    """A run whose process is gone."""
    run = create_run(job)
    (run.runtime_dir / "run.json").write_text(json.dumps(record))
    return run


def names(runs: list[Run]) -> list[str]:
    return [run.job for run in runs]


def test_a_run_has_its_places_and_they_are_private(home: Path) -> None:
    run = create_run(A, {"argv": ["python", "train.py"]})
    for folder in (run.runtime_dir, run.state_dir):
        assert folder.is_relative_to(home)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert run.record()["argv"] == ["python", "train.py"]
    assert run.record()["pid"] == os.getpid()
    assert run.socket.parent == run.runtime_dir
    assert run.journal == run.state_dir / "journal.db"


def test_lists_live_and_known_runs() -> None:
    run = create_run(A)
    leave_behind(JobId("old"), pid=2**22 + 1, start_ticks=1)
    assert names(live_runs()) == [A]
    assert names(known_runs()) == ["old", A]
    remove_live_places(run)
    assert live_runs() == []
    assert names(known_runs()) == ["old", A]
    assert run.record()["job"] == A


def test_nothing_is_there_at_first() -> None:
    assert live_runs() == []
    assert known_runs() == []


def test_a_live_name_is_taken() -> None:
    create_run(A)
    with pytest.raises(InvalidSpec, match="live run") as caught:
        create_run(A)
    assert A in caught.value.remedy
    assert names(live_runs()) == [A]


def test_the_name_of_a_dead_run_is_free_and_its_journal_is_kept() -> None:
    for text in ("first", "second", "third"):
        run = leave_behind(A, pid=2**22 + 1, start_ticks=1)
        run.journal.write_text(text)
    assert names(known_runs()) == [A, f"{A}.1", f"{A}.2"]
    kept = {run.job: run.journal.read_text() for run in known_runs()}
    assert kept == {A: "third", f"{A}.1": "first", f"{A}.2": "second"}


def test_a_kept_job_outlives_its_run_and_keeps_its_name() -> None:
    run = leave_behind(A, pid=2**22 + 1, start_ticks=1)
    record_keeper(run, os.getpid())
    assert names(live_runs()) == []
    assert names(unsteered_runs()) == [A]
    with pytest.raises(InvalidSpec, match="live run"):
        create_run(A)


def test_another_process_may_steer_what_a_dead_one_left() -> None:
    run = create_run(A, {"argv": ["python", "train.py"]})
    place = run.runtime_dir / "run.json"
    place.write_text(json.dumps({**run.record(), "pid": 2**22 + 1}))
    record_keeper(run, os.getpid())
    assert names(unsteered_runs()) == [A]
    record_steering(run)
    assert names(live_runs()) == [A]
    assert unsteered_runs() == []
    assert (run.record()["argv"], run.record()["pid"]) == (["python", "train.py"], os.getpid())


def test_a_run_of_another_machine_is_neither_live_nor_swept_nor_its_name_free() -> None:
    run = leave_behind(A, pid=os.getpid(), start_ticks=_start_ticks(os.getpid()), machine="there", boot="another")
    create_run(JobId("next"))
    assert names(live_runs()) == ["next"]
    assert run.machine() == "there"
    assert run.runtime_dir.exists()
    with pytest.raises(InvalidSpec, match="machine 'there'"):
        create_run(A)


def test_a_run_from_before_this_machine_was_started_again_is_dead() -> None:
    run = leave_behind(
        A, pid=os.getpid(), start_ticks=_start_ticks(os.getpid()), machine=os.uname().nodename, boot="before"
    )
    assert not run.is_live()
    create_run(JobId("next"))
    assert not run.runtime_dir.exists()


def test_what_the_dead_left_is_swept_away() -> None:
    dead = leave_behind(JobId("dead"), pid=2**22 + 1, start_ticks=1)
    kept = leave_behind(JobId("kept"), pid=2**22 + 1, start_ticks=1)
    record_keeper(kept, os.getpid())
    create_run(A)
    assert not dead.runtime_dir.exists()
    assert kept.runtime_dir.exists()


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
    program = f"from punctual.runtime.paths import create_run; print(create_run('{A}').is_live())"
    ended = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert ended.stdout == "True\n"
    assert names(known_runs()) == [A]
    assert live_runs() == []


@pytest.mark.parametrize("job", ["", "..", ".hidden", "a/b", "-x", "a" * 65, "a b", "ä"])
def test_names_that_cannot_be_a_files_are_refused(job: str) -> None:
    with pytest.raises(InvalidSpec, match="`name`"):
        create_run(JobId(job))


def test_finds_by_name_or_beginning() -> None:
    runs = [Run(JobId(name), Path(), Path()) for name in ("train", "train-2", "other")]
    assert find_run("train", runs).job == "train"
    assert find_run("o", runs).job == "other"
    assert find_run("train-", runs).job == "train-2"
    assert find_run(None, runs[:1]).job == "train"


@pytest.mark.parametrize(("text", "named"), [("zzz", "a-1, a-2"), ("a", "a-1, a-2"), (None, "a-1, a-2")])
def test_says_which_runs_there_are(text: str | None, named: str) -> None:
    runs = [Run(JobId(name), Path(), Path()) for name in ("a-1", "a-2")]
    with pytest.raises(InvalidSpec, match="exactly one run") as caught:
        find_run(text, runs)
    assert named in caught.value.remedy


def test_says_that_there_are_none() -> None:
    with pytest.raises(InvalidSpec) as caught:
        find_run(None, [])
    assert "there are none" in caught.value.got
    assert "punctual run" in caught.value.remedy


def test_names_only_some_of_many() -> None:
    runs = [Run(JobId(f"a-{number:03}"), Path(), Path()) for number in range(300)]
    with pytest.raises(InvalidSpec) as caught:
        find_run(None, runs)
    assert caught.value.remedy.endswith("a-007 and 292 more.")


@pytest.mark.parametrize("kind", ["runtime", "state"])
def test_a_home_that_cannot_be_written_is_refused(home: Path, kind: str) -> None:
    home.mkdir()
    (home / kind).touch()  # where a folder should be made
    with pytest.raises(InvalidSpec, match="where files can be made") as caught:
        create_run(A)
    assert kind in caught.value.got


def test_a_run_that_cannot_be_written_down_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(30, "Read-only file system", "/home/a/.new-1")

    monkeypatch.setattr(paths.tempfile, "mkdtemp", refuse)
    with pytest.raises(InvalidSpec, match="Read-only file system for '/"):
        create_run(A)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_strangers_folder_is_not_used(home: Path) -> None:
    (home / "runtime" / "live").mkdir(parents=True)
    os.chown(home / "runtime" / "live", 12345, 12345)
    with pytest.raises(InvalidSpec, match="must belong to this user"):
        live_runs()


def test_without_a_login_session_everything_is_below_the_state_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(paths.HOME_VARIABLE)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert paths.runtime_root() == tmp_path / "state" / "punctual" / "live"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "session"))
    assert paths.runtime_root() == tmp_path / "session" / "punctual" / "live"
    assert paths.state_root() == tmp_path / "state" / "punctual" / "runs"
