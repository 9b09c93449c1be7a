"""From what a user wants run to what the kernel is told, or to an error before anything is posted."""

import re
from dataclasses import replace
from pathlib import Path

import pytest

from punctual.channel import CHECKPOINT_VARIABLE, GOAL_VARIABLE, WORKERS_VARIABLE
from punctual.core.codec import encode
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobSubmitted
from punctual.core.job import JobSpec
from punctual.core.loss import LossGoal
from punctual.core.resources import Resources
from punctual.request.submission import (
    DEFAULT_CONTROLLER,
    DEFAULT_WORKER_CONTROLLER,
    JobRequest,
    WorkerRange,
    checked_submission,
    new_name,
    worker_in,
)

MACHINE = Resources(cores=8, gpus=2)
REQUEST = JobRequest(argv=("python", "train.py"), submitted_at=10.0)


def workers(n_least: int = 1, n_most: int = 4, cores_each: float | None = None, n_gpus_each: int = 0) -> WorkerRange:
    return WorkerRange(n_least=n_least, n_most=n_most, cores_each=cores_each, n_gpus_each=n_gpus_each)


def spec(request: JobRequest, machine: Resources = MACHINE) -> JobSpec:
    return checked_submission(request, machine).spec


def test_a_job_with_cores_may_have_the_whole_machine_and_the_default_controller() -> None:
    declared = spec(replace(REQUEST, deadline_s=60.0, n_steps=100))
    assert (declared.ceiling, declared.controller, declared.worker) == (Resources(8), DEFAULT_CONTROLLER, None)
    assert 0 < declared.floor.cores < 0.1
    assert (declared.deadline_s, declared.work_steps) == (60.0, 100)


def test_a_job_of_workers_holds_whole_ones() -> None:
    declared = spec(replace(REQUEST, workers=workers(2, 4)))
    assert (declared.worker, declared.counts) == (Resources(cores=2), (2, 3, 4))
    assert (declared.floor, declared.ceiling) == (Resources(cores=4), Resources(cores=8))
    assert declared.controller == DEFAULT_WORKER_CONTROLLER
    assert declared.worker_counts() == (2, 3, 4)


def test_a_worker_has_an_equal_part_of_the_machine() -> None:
    assert worker_in(workers(), MACHINE) == Resources(cores=2)
    assert worker_in(workers(cores_each=0.5), MACHINE) == Resources(cores=0.5)
    assert worker_in(workers(n_most=2, n_gpus_each=1), MACHINE) == Resources(cores=4, gpus=1)


@pytest.mark.parametrize(
    ("changes", "n_retries"),
    [
        ({}, 0),
        ({"checkpoint_dir": Path("/kept")}, None),
        ({"n_retries": 5}, 5),
        ({"n_retries": 5, "workers": workers()}, 5),
    ],
)
def test_a_job_is_started_again_as_often_as_is_said_or_if_it_keeps_checkpoints(
    changes: dict[str, object], n_retries: int | None
) -> None:
    assert spec(replace(REQUEST, **changes)).n_retries == n_retries  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("changes", "preemptible"),
    [
        ({}, True),
        ({"workers": workers()}, True),
        ({"preemptible": False}, False),
        ({"gpu_frac": 0.5}, False),
        ({"workers": workers(n_most=2, n_gpus_each=1), "checkpoint_dir": Path("kept")}, False),
        ({"workers": workers(n_most=2, n_gpus_each=1), "checkpoint_dir": Path("kept"), "preemptible": True}, True),
    ],
)
def test_a_job_may_be_paused_if_that_leaves_what_it_held(changes: dict[str, object], preemptible: bool) -> None:
    assert spec(replace(REQUEST, **changes)).preemptible is preemptible  # type: ignore[arg-type]


@pytest.mark.parametrize("changes", [{"gpu_frac": 0.5}, {"workers": workers(n_most=2, n_gpus_each=1)}])
def test_a_job_that_would_keep_its_gpus_may_not_be_paused_for_others(changes: dict[str, object]) -> None:
    with pytest.raises(InvalidSpec, match="`--preemptible`"):
        spec(replace(REQUEST, preemptible=True, **changes))  # type: ignore[arg-type]


def test_a_job_may_use_a_part_of_a_gpu_all_the_time() -> None:
    declared = spec(replace(REQUEST, gpu_frac=0.5))
    assert (declared.floor.gpus, declared.ceiling.gpus, declared.worker) == (0.5, 0.5, None)


@pytest.mark.parametrize(
    ("changes", "machine", "match"),
    [
        ({"workers": workers(cores_each=3)}, MACHINE, "4 workers of 3 cores"),
        ({"workers": workers(n_gpus_each=1)}, MACHINE, "may use 2"),
        ({"workers": workers(n_gpus_each=1)}, Resources(8), "Train on cores"),
        ({"ceiling_cores": 9.0}, MACHINE, "9 cores"),
        ({"ceiling_cores": 0.001}, MACHINE, "at least 0.01"),
        ({"gpu_frac": 0.5}, Resources(8), "a part of a GPU needs one"),
        ({"controller": "remaning-cost"}, MACHINE, "remaining-cost"),
        ({"progress_pattern": "("}, MACHINE, "regular expression"),
        ({"progress_pattern": r"(\d+)" + "x" * 1024}, MACHINE, "at most 1024 characters"),
        ({"name": "../up"}, MACHINE, "`name`"),
        ({"argv": ("",)}, MACHINE, "command"),
        ({"deadline_s": -1.0}, MACHINE, "deadline"),
    ],
)  # fmt: skip
def test_what_can_never_run_is_refused(changes: dict[str, object], machine: Resources, match: str) -> None:
    with pytest.raises(InvalidSpec, match=match):
        checked_submission(replace(REQUEST, **changes), machine)  # type: ignore[arg-type]


@pytest.mark.parametrize("pattern", [r"Step (\d+)", r"(?P<step>\d+) of (\d+)"])
def test_with_a_deadline_the_number_of_steps_must_come_from_somewhere(pattern: str) -> None:
    request = replace(REQUEST, deadline_s=60.0, progress_pattern=pattern)
    with pytest.raises(InvalidSpec, match="--steps"):
        spec(request)
    assert spec(replace(request, n_steps=300)).work_steps == 300
    assert spec(replace(request, deadline_s=None)).work_steps is None


@pytest.mark.parametrize("pattern", ["auto", r"(\d+)/(\d+)", r"(?P<total>\d+): (?P<step>\d+)"])
def test_a_pattern_may_find_the_number_of_steps(pattern: str) -> None:
    assert spec(replace(REQUEST, deadline_s=60.0, progress_pattern=pattern)).work_steps is None


@pytest.mark.parametrize("name", ["", "..", ".hidden", "a/b", "-x", "a" * 65, "a b", "ä"])
def test_names_that_cannot_be_a_file_s_are_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="`name`"):
        checked_submission(replace(REQUEST, name=name), MACHINE)


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
    request = replace(
        REQUEST, workers=workers(2, 4), goal=LossGoal(target=0.5), checkpoint_dir=Path("/kept"), cwd=Path("/work")
    )
    program = checked_submission(request, MACHINE).program
    assert program.environment == {WORKERS_VARIABLE: "4", GOAL_VARIABLE: "0.5", CHECKPOINT_VARIABLE: "/kept"}
    assert (program.argv, program.cwd) == (("python", "train.py"), "/work")
    assert checked_submission(REQUEST, MACHINE).program.environment == {}


def test_what_the_user_s_shell_hands_on_is_not_in_what_the_journal_keeps() -> None:
    submission = checked_submission(replace(REQUEST, inherited={"TOKEN": "s3cret"}), MACHINE)
    assert submission.inherited == {"TOKEN": "s3cret"}
    event = JobSubmitted(at=submission.submitted_at, spec=submission.spec, program=submission.program)
    assert "s3cret" not in encode(event) + repr(submission)


GIB = 1 << 30
ROOMY = Resources(cores=8, gpus=2, memory_bytes=16 * GIB)


def test_memory_is_asked_for_by_a_job_and_of_workers_by_each() -> None:
    plain = spec(replace(REQUEST, memory_bytes=4 * GIB), ROOMY)
    assert (plain.floor.memory_bytes, plain.ceiling.memory_bytes) == (4 * GIB, 4 * GIB)
    made_of_workers = spec(replace(REQUEST, memory_bytes=2 * GIB, workers=workers(2, 4)), ROOMY)
    assert made_of_workers.worker == Resources(cores=2, memory_bytes=2 * GIB)
    assert (made_of_workers.floor.memory_bytes, made_of_workers.ceiling.memory_bytes) == (4 * GIB, 8 * GIB)
    assert made_of_workers.worker_counts() == (2, 3, 4)
    assert made_of_workers.parts_of(Resources(cores=6, memory_bytes=6 * GIB)) == (3, 0)


def test_servers_beside_workers_ask_for_no_memory() -> None:
    served = replace(workers(1, 3), servers=(1, 3))
    declared = spec(replace(REQUEST, memory_bytes=GIB, workers=served), ROOMY)
    assert declared.unit is not None
    assert (declared.unit.memory_bytes, declared.ceiling.memory_bytes) == (GIB, 3 * GIB)
    assert declared.parts_of(declared.ceiling) == (3, 3)


@pytest.mark.parametrize(
    ("changes", "got", "remedy"),
    [
        ({"memory_bytes": 17 * GIB}, "17 GiB", "--memory 16384M"),
        ({"memory_bytes": 5 * GIB, "workers": workers(1, 4)}, "4 workers of 5 GiB", "--memory 4096M"),
    ],
)
def test_more_memory_than_there_is_is_refused(changes: dict[str, object], got: str, remedy: str) -> None:
    with pytest.raises(InvalidSpec, match=r"`--memory` must not exceed the memory of the machine") as refused:
        spec(replace(REQUEST, **changes), ROOMY)  # type: ignore[arg-type]
    assert (refused.value.got, refused.value.option) == (got, "memory")
    assert remedy in refused.value.remedy
    assert "16 GiB" in refused.value.where


def test_workers_on_several_nodes_may_hold_more_memory_together_than_one_node_has() -> None:
    request = replace(REQUEST, memory_bytes=6 * GIB, workers=workers(1, 4))
    declared = checked_submission(request, ROOMY, ROOMY * 2).spec
    assert declared.ceiling.memory_bytes == 24 * GIB


def test_a_job_that_runs_out_of_memory_is_started_with_twice_as_much_up_to_what_it_may_have() -> None:
    request = replace(REQUEST, memory_bytes=3 * GIB, memory_most_bytes=8 * GIB)
    asked = []
    for made_of in (None, workers(1, 2)):
        more: JobSpec | None = spec(replace(request, workers=made_of), ROOMY)
        while more is not None:
            asked.append(more.asked_memory_bytes // GIB)
            more = more.with_more_memory()
    assert asked == [3, 6, 8, 3, 6, 8]
    assert spec(replace(REQUEST, memory_bytes=GIB), ROOMY).with_more_memory() is None
    assert spec(REQUEST, ROOMY).with_more_memory() is None
