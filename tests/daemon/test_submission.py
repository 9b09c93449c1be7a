"""From what a user wants run to what the kernel is told, or to an error before anything is posted."""

import re
import time
from pathlib import Path
from typing import Any

import pytest

from punctual.channel import CHECKPOINT_VARIABLE, GOAL_VARIABLE, WORKERS_VARIABLE
from punctual.core.codec import encode
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.request.job_options import JobOptions
from punctual.request.submission import (
    DEFAULT_CONTROLLER,
    DEFAULT_WORKER_CONTROLLER,
    Submission,
    new_name,
    submission_of,
)

MACHINE = Resources(cores=8, gpus=2)
GPUS = {"gpus": "2", "checkpoint_dir": "kept"}


def submission(machine: Resources = MACHINE, together: Resources | None = None, **options: Any) -> Submission:
    """A job that is submitted now."""
    asked = JobOptions.given({"program": ["sh", "train.sh"], **options})
    return submission_of(asked, time.monotonic(), machine, together, inherited={})


def spec(machine: Resources = MACHINE, **options: Any) -> JobSpec:
    return submission(machine, **options).spec


def test_a_job_with_cores_may_have_the_whole_machine_and_the_default_controller() -> None:
    declared = spec(deadline="60s", steps=100)
    assert (declared.ceiling, declared.controller, declared.worker) == (Resources(8), DEFAULT_CONTROLLER, None)
    assert 0 < declared.floor.cores < 0.1
    assert (declared.deadline_s, declared.work_steps) == (pytest.approx(60.0), 100)


def test_a_job_does_not_run_in_another_folder_than_one_that_was_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removed = tmp_path / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    assert submission().program.cwd == str(removed)
    removed.rmdir()
    with pytest.raises(InvalidSpec, match="a job must have a folder to run in"):
        submission()
    assert submission(cwd=str(tmp_path)).program.cwd == str(tmp_path)


def test_a_job_of_workers_holds_whole_ones() -> None:
    declared = spec(workers="2..4")
    assert (declared.worker, declared.counts) == (Resources(cores=2), (2, 3, 4))
    assert (declared.floor, declared.ceiling) == (Resources(cores=4), Resources(cores=8))
    assert declared.controller == DEFAULT_WORKER_CONTROLLER
    assert declared.worker_counts() == (2, 3, 4)


def test_a_worker_has_an_equal_part_of_the_machine() -> None:
    assert spec(workers="4").worker == Resources(cores=2)
    assert spec(workers="4", cores_per_worker="0.5").worker == Resources(cores=0.5)
    assert spec(gpus="2").worker == Resources(cores=4, gpus=1)


@pytest.mark.parametrize(
    ("changes", "n_retries"),
    [
        ({}, 0),
        ({"checkpoint_dir": "/kept"}, None),
        ({"retries": 5}, 5),
        ({"retries": 5, "workers": "1..4"}, 5),
    ],
)
def test_a_job_is_started_again_as_often_as_is_said_or_if_it_keeps_checkpoints(
    changes: dict[str, Any], n_retries: int | None
) -> None:
    assert spec(**changes).n_retries == n_retries


@pytest.mark.parametrize(
    ("changes", "preemptible"),
    [
        ({}, True),
        ({"workers": "1..4"}, True),
        ({"preemptible": False}, False),
        ({"gpus": "0.5"}, False),
        (GPUS, False),
        ({**GPUS, "preemptible": True}, True),
    ],
)
def test_a_job_may_be_paused_if_that_leaves_what_it_held(changes: dict[str, Any], preemptible: bool) -> None:
    assert spec(**changes).preemptible is preemptible


@pytest.mark.parametrize("changes", [{"gpus": "0.5"}, {"gpus": "2"}])
def test_a_job_that_would_keep_its_gpus_may_not_be_paused_for_others(changes: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec, match="`--preemptible`"):
        spec(preemptible=True, **changes)


def test_a_job_may_use_a_part_of_a_gpu_all_the_time() -> None:
    declared = spec(gpus="0.5")
    assert (declared.floor.gpus, declared.ceiling.gpus, declared.worker) == (0.5, 0.5, None)


@pytest.mark.parametrize(
    ("changes", "machine", "match"),
    [
        ({"workers": "4", "cores_per_worker": "3"}, MACHINE, "4 workers of 3 cores"),
        ({"gpus": "4"}, MACHINE, "may use 2"),
        ({"gpus": "4"}, Resources(8), "Train on cores"),
        ({"cores": "9"}, MACHINE, "9 cores"),
        ({"cores": "0.001"}, MACHINE, "at least 0.01"),
        ({"gpus": "0.5"}, Resources(8), "a part of a GPU needs one"),
        ({"controller": "remaning-cost"}, MACHINE, "remaining-cost"),
        ({"progress_regex": "("}, MACHINE, "regular expression"),
        ({"progress_regex": r"(\d+)" + "x" * 1024}, MACHINE, "at most 1024 characters"),
        ({"name": "../up"}, MACHINE, "`name`"),
        ({"program": [""]}, MACHINE, "command"),
        ({"deadline": "-1s"}, MACHINE, "deadline"),
    ],
)  # fmt: skip
def test_what_can_never_run_is_refused(changes: dict[str, Any], machine: Resources, match: str) -> None:
    with pytest.raises(InvalidSpec, match=match):
        submission(machine, **changes)


@pytest.mark.parametrize("pattern", [r"Step (\d+)", r"(?P<step>\d+) of (\d+)"])
def test_with_a_deadline_the_number_of_steps_must_come_from_somewhere(pattern: str) -> None:
    with pytest.raises(InvalidSpec, match="--steps"):
        spec(deadline="60s", progress_regex=pattern)
    assert spec(deadline="60s", progress_regex=pattern, steps=300).work_steps == 300
    assert spec(progress_regex=pattern).work_steps is None


@pytest.mark.parametrize("pattern", ["auto", r"(\d+)/(\d+)", r"(?P<total>\d+): (?P<step>\d+)"])
def test_a_pattern_may_find_the_number_of_steps(pattern: str) -> None:
    assert spec(deadline="60s", progress_regex=pattern).work_steps is None


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "-x", "a" * 65, "a b", "ä"])
def test_names_that_cannot_be_a_file_s_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="`name`"):
        submission(name=name)


@pytest.mark.parametrize(
    ("argv", "stem"),
    [
        (["python", "src/train.py", "--lr", "1"], "train"), (["python", "-m", "apps.vision"], "vision"),
        (["./run me.sh"], "run-me"), (["--"], "job"),
    ],
)  # fmt: skip
def test_a_job_is_named_after_its_script(argv: list[str], stem: str) -> None:
    assert re.fullmatch(rf"{stem}-[0-9a-f]{{4}}", new_name(argv))


def test_a_job_is_told_what_concerns_it() -> None:
    program = submission(workers="2..4", until="loss<0.5", checkpoint_dir="/kept", cwd="/usr").program
    assert program.environment == {WORKERS_VARIABLE: "4", GOAL_VARIABLE: "0.5", CHECKPOINT_VARIABLE: "/kept"}
    assert (program.argv, program.cwd) == (("sh", "train.sh"), "/usr")
    assert submission().program.environment == {}


def test_what_the_user_s_shell_hands_on_is_not_in_what_the_journal_keeps() -> None:
    submitted = submission(env={"TOKEN": "s3cret"})
    assert submitted.inherited == {"TOKEN": "s3cret"}
    event = JobSubmitted(at=submitted.submitted_at, spec=submitted.spec, program=submitted.program)
    assert "s3cret" not in encode(event) + repr(submitted)
    assert "s3cret" not in repr(JobOptions(program=["sh"], env={"TOKEN": "s3cret"}))


GIB = 1 << 30
ROOMY = Resources(cores=8, gpus=2, memory_bytes=16 * GIB)


def test_memory_is_asked_for_by_a_job_and_of_workers_by_each() -> None:
    plain = spec(ROOMY, memory="4G")
    assert (plain.floor.memory_bytes, plain.ceiling.memory_bytes) == (4 * GIB, 4 * GIB)
    made_of_workers = spec(ROOMY, memory="2G", workers="2..4")
    assert made_of_workers.worker == Resources(cores=2, memory_bytes=2 * GIB)
    assert (made_of_workers.floor.memory_bytes, made_of_workers.ceiling.memory_bytes) == (4 * GIB, 8 * GIB)
    assert made_of_workers.worker_counts() == (2, 3, 4)
    assert made_of_workers.parts_of(Resources(cores=6, memory_bytes=6 * GIB)) == (3, 0)


def test_servers_beside_workers_ask_for_no_memory() -> None:
    declared = spec(ROOMY, memory="1G", workers="1..3", servers="1..3")
    assert declared.unit is not None
    assert (declared.unit.memory_bytes, declared.ceiling.memory_bytes) == (GIB, 3 * GIB)
    assert declared.parts_of(declared.ceiling) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "got", "remedy"),
    [
        ({"memory": "17G"}, "17 GiB", "--memory 16384M"),
        ({"memory": "5G", "workers": "1..4"}, "4 workers of 5 GiB", "--memory 4096M"),
    ],
)
def test_more_memory_than_there_is_is_refused(changes: dict[str, Any], got: str, remedy: str) -> None:
    with pytest.raises(InvalidSpec, match=r"`--memory` must not exceed the memory of the machine") as refused:
        spec(ROOMY, **changes)
    assert (refused.value.got, refused.value.option) == (got, "memory")
    assert remedy in refused.value.remedy
    assert "16 GiB" in refused.value.where


def test_workers_on_several_nodes_may_hold_more_memory_together_than_one_node_has() -> None:
    declared = submission(ROOMY, ROOMY * 2, memory="6G", workers="1..4").spec
    assert declared.ceiling.memory_bytes == 24 * GIB


def test_a_job_that_runs_out_of_memory_is_started_with_twice_as_much_up_to_what_it_may_have() -> None:
    asked = []
    for workers in (None, "1..2"):
        more: JobSpec | None = spec(ROOMY, memory="3G..8G", workers=workers)
        while more is not None:
            asked.append(more.asked_memory_bytes // GIB)
            more = more.with_more_memory()
    assert asked == [3, 6, 8, 3, 6, 8]
    assert spec(ROOMY, memory="1G").with_more_memory() is None
    assert spec(ROOMY).with_more_memory() is None


@pytest.mark.parametrize(
    ("program", "got", "remedy"),
    [
        (["OMP_NUM_THREADS=1", "python3", "train.py"], "which sets a variable", "`-- env OMP_NUM_THREADS=1 ...`"),
        (["python3 train.py --epochs 2"], "a whole line in one word", "`-- python3 train.py --epochs 2`"),
        (["tomorrow", "--", "python", "train.py"], "stands before `--`", "`--deadline '18:00 tomorrow' -- "),
        (["./notes.txt"], "may not be executed", "chmod +x"),
        (["./train.py"], "the script", "-- python ./train.py"),
        (["no-such thing"], "cannot be found", "Check its name"),
        (["folder"], "cannot be found", "Check its name"),
        (["source", "venv/bin/activate"], "a command of the shell", "-- bash -c 'source ... && python train.py'"),
        (["."], "a command of the shell", "-- bash -c '. ..."),
        (["a.ipynb"], "a notebook", "-- jupyter execute a.ipynb"),
    ],
)
def test_of_what_cannot_be_run_it_is_said_what_to_write(
    program: list[str], got: str, remedy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("notes.txt", "train.py"):
        (tmp_path / name).touch()
    with pytest.raises(InvalidSpec, match="one that can be run") as caught:
        submission_of(JobOptions(program=program), 0.0, Resources(cores=1))
    assert got in caught.value.got
    assert remedy in caught.value.remedy
