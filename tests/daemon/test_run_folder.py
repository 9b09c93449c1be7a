"""The folder of a run: whose a name is, what it says of jobs and processes, and what others may read of it."""

import json
import os
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from tests.small_disk import mounted

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon import paths, run_folder
from punctual.daemon.control_socket import ControlSocket
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import RunFolder, create_run, free_name, new_job, process_record, run_named
from punctual.executors.local.output import StartFacts
from punctual.executors.local.socket_path import short_enough
from punctual.journal.job_records import JobRecords
from punctual.journal.owner import start_ticks

A = JobId("train-3f2a")
#: Of a process that is gone.
GONE = {"pid": 2**22 + 1, "start_ticks": 1}


def leave_behind(name: str, **record: object) -> RunFolder:
    """A run whose process is gone."""
    run = create_run(name)
    (run.runtime_dir / "run.json").write_text(json.dumps({"name": name, **record}))
    return run


def known() -> list[str]:
    return sorted(folder.name for folder in paths.state_root().iterdir())


def test_a_run_has_its_places_and_they_are_private(home: Path) -> None:
    run = create_run(A, {"argv": ["python", "train.py"]})
    for folder, file in ((run.runtime_dir, "run.json"), (run.state_dir, "journal.db")):
        assert folder.is_relative_to(home)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        assert stat.S_IMODE((folder / file).stat().st_mode) == 0o600
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
    run.record_submitted([new_job(A, "{}", {"TOKEN": "s3cret"}, ["train", "--key=s3cret"])])
    holding = [path for path in run.state_dir.iterdir() if b"s3cret" in path.read_bytes()]
    assert holding
    assert all(stat.S_IMODE(file.stat().st_mode) == 0o600 for file in holding)
    assert run.start_facts(A) == StartFacts(environment={"TOKEN": "s3cret"}, argv=["train", "--key=s3cret"])
    run.record_end(A, "finished")
    assert (run.start_facts(A), run.submission(A)) == (None, None)
    assert not [path for path in run.state_dir.iterdir() if b"s3cret" in path.read_bytes()]


def test_a_run_that_goes_on_has_the_jobs_that_have_ended() -> None:
    for name in ("first", "second"):
        run = create_run("daemon", {"begun": name}, continues=True)
        run.record_end(JobId(name), "finished")
        run.remove_live_places()
    assert run.jobs() == {"first": "finished", "second": "finished"}
    assert run.facts()["begun"] == "second"
    assert known() == ["daemon"]


def test_a_journal_that_cannot_be_gone_on_with_stays_and_its_name_is_free() -> None:
    run = create_run("daemon")
    run.remove_live_places()
    run.journal.write_bytes(b"x" * 5000)
    with pytest.raises(InvalidSpec, match="must be a journal"):
        create_run("daemon", continues=True)
    assert not run.runtime_dir.exists()
    assert run.journal.read_bytes() == b"x" * 5000
    assert free_name("daemon") == "daemon"
    assert free_name("daemon", is_new=True) == "daemon-2"


def test_a_live_name_is_taken() -> None:
    run = create_run(A)
    with pytest.raises(InvalidSpec, match="live run") as caught:
        create_run(A)
    assert A in caught.value.remedy
    assert run.is_live()


def test_the_name_of_a_dead_run_is_free_and_its_journal_is_kept() -> None:
    for text in ("first", "second", "third"):
        leave_behind(A, **GONE).record_facts(text=text)
    kept = {name: run_named(name).facts()["text"] for name in known()}
    assert kept == {A: "third", f"{A}.1": "first", f"{A}.2": "second"}


def test_a_kept_job_outlives_its_host_and_keeps_its_name() -> None:
    run = leave_behind(A, **GONE)
    run.record_job(A, "queued")
    run.record_supervisor(A, os.getpid())
    assert (run.is_live(), run.supervisor_pid(A), run.supervised_jobs()) == (False, os.getpid(), [A])
    with pytest.raises(InvalidSpec, match="live run"):
        create_run(A)


def test_a_run_whose_folder_goes_just_now_has_no_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "is_dir", lambda _: True)  # as it was a moment ago
    assert run_named("gone").supervised_jobs() == []


def test_the_name_of_an_interrupted_job_is_taken_until_it_is_resumed_or_given_up() -> None:
    run = leave_behind(A, **GONE)
    run.record_job(A, "queued")
    with pytest.raises(InvalidSpec, match="interrupted") as caught:
        create_run(A)
    assert f"punctual attach {A}" in caught.value.remedy
    run.record_end(A, "failed")
    assert create_run(A).is_live()


def test_another_process_may_steer_what_a_dead_one_left() -> None:
    run = leave_behind(A, **GONE)
    run.record_facts(argv=["python"])
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


def test_a_run_of_another_container_is_its_own_as_long_as_its_processes_listen() -> None:
    run = leave_behind(A, **{**process_record(os.getpid()), "machine": "box", "namespace": 1})
    with ControlSocket(run.socket, lambda request: request):
        assert (run.is_live(), run.machine()) == (False, "box, in a container")
        with pytest.raises(InvalidSpec, match="machine 'box, in a container'"):
            create_run(A)
        assert free_name(A) != A
        with pytest.raises(InvalidSpec, match="those of machine 'box, in a container'"), resumed_host(run):
            pass
    assert (run.is_live(), run.machine()) == (False, None)
    create_run(A)


def test_a_run_of_a_container_that_is_stopped_is_its_own_however_often_it_is_looked_at() -> None:
    """Connections wait until nobody can connect any more."""
    run = leave_behind(A, **{**process_record(os.getpid()), "machine": "box", "namespace": 1})
    with socket.socket(socket.AF_UNIX) as listening:
        with short_enough(run.socket) as place:
            listening.bind(place)
        listening.listen(1)
        assert [run.machine() for _ in range(5)] == ["box, in a container"] * 5


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


def test_a_run_whose_journal_has_no_room_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(records: JobRecords, *_: object) -> None:
        records.path.touch()
        raise OSError(28, "No space left on device", str(records.path))

    monkeypatch.setattr(JobRecords, "create", refuse)
    with pytest.raises(InvalidSpec, match="No space left"):
        create_run(A)
    assert known() == []
    assert not run_folder.run_named(A).state_dir.exists()


def test_a_process_is_told_from_a_later_one_with_its_number() -> None:
    record = process_record(os.getpid())
    assert record["start_ticks"] == start_ticks(os.getpid())
    assert start_ticks(2**22 + 1) is None


def test_facts_about_an_ended_job_are_its_own() -> None:
    run = create_run("host")
    for name in ("a", "b"):
        run.record_job(JobId(name), "queued")
    run.record_end(JobId("a"), "finished", {"cause": "done"})
    assert (run.end_facts(JobId("a")), run.end_facts(JobId("b"))) == ({"cause": "done"}, {})


def test_of_a_damaged_journal_those_jobs_are_known_that_run() -> None:
    run = create_run("host")
    run.record_job(A, "queued")
    run.record_supervisor(A, os.getpid())
    run.journal.write_bytes(b"x" * 5000)
    assert run.jobs() == {A: "running"}
    assert run.facts() == {}


def test_of_jobs_that_do_not_fit_on_the_disk_together_none_is_written_down(tmp_path: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    with mounted(home / "state", size_bytes=1 << 20):
        run = create_run("host")
        run.record_submitted([new_job(A, "{}", {})])
        too_large = [new_job(JobId(f"job-{i}"), "x" * 10_000, {}) for i in range(200)]
        with pytest.raises(InvalidSpec, match="full"):
            run.record_submitted(too_large)
        assert run.jobs() == {A: "queued"}
        run.record_submitted(too_large[:2])
        assert list(run.jobs()) == [A, "job-0", "job-1"]
