"""Which GPUs jobs get, on machines that need have none."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.executors.conftest import JOB, NODE, WHY, Stage, until
from tests.executors.test_workers import OBEYS

from punctual.core.commands import ResizeJob
from punctual.core.events import GrantApplied, GrantFailed, JobStarted
from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.executors.local.devices import DevicePool, JobDevices, NoDeviceError, visible_devices

A, B, C = JobId("a"), JobId("b"), JobId("c")


def test_the_devices_of_this_machine_are_those_that_this_process_is_shown(tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    assert visible_devices({}, tmp_path) == ("0", "1", "2")
    assert visible_devices({"CUDA_VISIBLE_DEVICES": " 2, GPU-7f "}, tmp_path) == ("2", "GPU-7f")
    assert visible_devices({"CUDA_VISIBLE_DEVICES": ""}, tmp_path) == ()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "-1"}, tmp_path) == ()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "0,-1,1"}, tmp_path) == ("0",)
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "NoDevFiles"}, tmp_path) == ()
    assert visible_devices({"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}, tmp_path) == ("0", "1", "2")


def test_a_job_has_whole_devices_for_itself() -> None:
    pool = DevicePool(["0", "1", "2"])
    assert pool.assign(A, 2) == ("0", "1")
    assert pool.assign(B, 1) == ("2",)
    with pytest.raises(NoDeviceError, match="no room for 1 GPU: 0 of 3 are not in use"):
        pool.assign(C, 1)
    with pytest.raises(NoDeviceError, match="no room for"):
        pool.assign(C, 0.5)
    pool.free(A)
    assert pool.assign(B, 2) == ("2", "0")


def test_jobs_that_want_a_part_share_a_device_as_far_as_it_goes() -> None:
    pool = DevicePool(["0", "1"])
    assert pool.assign(A, 0.5) == ("0",)
    assert pool.assign(B, 0.25) == ("0",)
    assert pool.assign(C, 0.5) == ("1",)
    assert pool.assign(JobId("d"), 0.25) == ("0",)
    with pytest.raises(NoDeviceError):
        pool.assign(JobId("e"), 1)
    assert pool.assign(A, 0.5) == ("0",)


def test_no_part_of_several_devices_is_given() -> None:
    with pytest.raises(NoDeviceError, match="neither a whole number"):
        DevicePool(["0", "1"]).assign(A, 1.5)


def test_a_job_that_is_refused_keeps_what_it_has() -> None:
    pool = DevicePool(["0"])
    pool.assign(A, 1)
    with pytest.raises(NoDeviceError):
        pool.assign(A, 2)
    assert pool.held_by(A) == ("0",)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([0, 0.25, 0.5, 1, 2, 3]), st.booleans())))
def test_no_device_is_given_twice(steps: list[tuple[str, float, bool]]) -> None:
    pool = DevicePool(["0", "1", "2"])
    held: dict[str, float] = {}
    for job, amount, frees in steps:
        if frees:
            pool.free(JobId(job))
            held.pop(job, None)
            continue
        try:
            ids = pool.assign(JobId(job), amount)
        except NoDeviceError:
            continue
        held[job] = amount
        assert len(set(ids)) == len(ids) == -(-amount // 1)
    for name in pool.ids:
        users = [job for job in held if name in pool.held_by(JobId(job))]
        assert len(users) <= 1 or all(held[job] < 1 for job in users)
        assert sum(min(1.0, held[job]) for job in users) <= 1.0


def test_a_job_that_shrinks_keeps_the_devices_that_are_used() -> None:
    pool = DevicePool(["0", "1", "2"])
    pool.assign(B, 1)
    devices = JobDevices.assigned(pool, A, 1, can_grow=True)
    assert devices.shown == ("1", "0", "2")
    seen = [devices.indices]
    devices.grow(2)
    seen.append(devices.indices)
    devices.shrink(1, used=(2,))
    assert [*seen, devices.indices] == [(0,), (0, 2), (2,)]
    assert pool.held_by(A) == ("2",)


# Jobs.

WRITES = "import os, time; open('shown', 'w').write(os.environ.get('CUDA_VISIBLE_DEVICES', 'all')); time.sleep(1000)"
GPU = Resources(cores=0.1, gpus=1)


def launch(stage: Stage, name: str, amount: Resources) -> None:
    spec = JobSpec(id=JobId(name), ceiling=amount, floor=amount)
    stage.executor.perform(stage.launch_command(amount, spec), stage.sink)


def shown(folder: Path) -> str:
    return until(lambda: (folder / "shown").read_text() if (folder / "shown").exists() else "")


def test_a_job_is_shown_its_devices_and_frees_them_at_its_end(stage: Stage, tmp_path: Path) -> None:
    stage.prepare(WRITES, cwd=str(tmp_path), devices=("3", "5"))
    launch(stage, "first", Resources(cores=0.1, gpus=0.5))
    stage.wait(JobStarted)
    assert shown(tmp_path) == "3"
    (tmp_path / "shown").unlink()
    launch(stage, "second", GPU)
    stage.wait(JobStarted)
    assert shown(tmp_path) == "5"
    launch(stage, "third", GPU)
    failed = stage.wait(GrantFailed)
    assert "0 of 2 are not in use" in failed.cause
    stage.stop(job=JobId("second"))
    stage.ended()
    (tmp_path / "shown").unlink()
    launch(stage, "third", GPU)
    assert stage.wait(JobStarted).granted == {NODE: GPU}
    assert shown(tmp_path) == "5"


def test_a_job_without_gpus_is_shown_what_this_process_is(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    stage.run(WRITES, cwd=str(tmp_path), devices=("0",))
    assert shown(tmp_path) == "all"


def test_a_program_keeps_the_devices_that_it_was_started_with(stage: Stage) -> None:
    stage.prepare("import time; time.sleep(1000)", devices=("0", "1"))
    launch(stage, JOB, GPU)
    stage.wait(JobStarted)
    grant = {NODE: Resources(cores=0.1, gpus=2)}
    stage.executor.perform(ResizeJob(at=0.0, job=JOB, request=2, grant=grant, reason=WHY), stage.sink)
    failed = stage.wait(GrantFailed)
    assert failed.granted == {NODE: GPU}
    assert "started with" in failed.cause


def test_a_job_of_workers_is_told_which_devices_are_its_own(stage: Stage, tmp_path: Path) -> None:
    stage.prepare(OBEYS, cwd=str(tmp_path), devices=("0", "1", "2"))
    launch(stage, "other", GPU)
    stage.wait(JobStarted)
    spec = JobSpec(id=JOB, ceiling=GPU * 3, worker=GPU)
    stage.executor.perform(stage.launch_command(GPU, spec), stage.sink)
    stage.wait(JobStarted)
    page = stage.page()
    assert (stage.environment()["CUDA_VISIBLE_DEVICES"], page.worker_target().devices) == ("1,0,2", (0,))

    def resize(n_workers: int) -> None:
        command = ResizeJob(at=0.0, job=JOB, request=stage.next_request(), grant={NODE: GPU * n_workers}, reason=WHY)
        stage.executor.perform(command, stage.sink)

    resize(2)
    assert stage.wait(GrantApplied).granted == {NODE: GPU * 2}
    assert page.worker_target().devices == (0, 2)
    resize(3)
    assert "no room for 3 GPUs" in stage.wait(GrantFailed).cause
    resize(1)
    stage.wait(GrantApplied)
    page.close()
    launch(stage, "late", GPU)
    assert stage.wait(JobStarted).job == "late"
    assert stage.environment(JobId("late"))["CUDA_VISIBLE_DEVICES"].split(",")[0] == "2"


def test_a_job_that_is_taken_over_has_the_devices_it_had(stage: Stage, tmp_path: Path) -> None:
    stage.prepare(WRITES, cwd=str(tmp_path), devices=("0", "1"))
    launch(stage, "other", GPU)
    launch(stage, JOB, GPU)
    stage.wait(JobStarted)
    stage.wait(JobStarted)
    pool = DevicePool(("0", "1"))
    adopted = JobDevices.adopted(pool, JOB, stage.pid(), 1.0, ())
    assert pool.held_by(JOB) == adopted.shown == (stage.environment()["CUDA_VISIBLE_DEVICES"],)
