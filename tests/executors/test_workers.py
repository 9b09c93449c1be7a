"""Jobs made of workers: what the executor asks of an agent, and what it makes of the answers."""

import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.executors.conftest import JOB, NODE, WHY, Stage, until
from tests.forked_python import ForkedPython

from punctual.channel import WorkerStatus
from punctual.core.commands import ResizeJob
from punctual.core.events import GrantApplied, GrantFailed, JobStarted
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.executors.local import workers
from punctual.executors.local.grant import JobGrant
from punctual.executors.local.job_files import takeover_socket_of
from punctual.executors.local.supervisor_client import take_over
from punctual.executors.local.workers import parts_in

WORKER = Resources(cores=0.25)
SPEC = JobSpec(id=JOB, ceiling=WORKER * 4, worker=WORKER)

#: Plays an agent: `answer(target)` says what becomes of each target, after a while.
AGENT = """
import os, time
from punctual.channel import WorkerStatus, SharedBlock, BLOCK_VARIABLE

page = SharedBlock.open(os.environ[BLOCK_VARIABLE])
page.publish_workers(WorkerStatus(os.getpid()))
answered = 0
while True:
    target = page.worker_target()
    if target.request != answered:
        time.sleep(0.05)
        answered = target.request
        page.publish_workers({status})
    time.sleep(0.005)
"""
OBEYS = AGENT.format(status="WorkerStatus(os.getpid(), target.request, target.n_workers)")
KEEPS_ONE = AGENT.format(
    status='WorkerStatus(os.getpid(), target.request, 1, cause="" if target.n_workers == 1 else "no room")'
)
PLAIN = """
import time, punctual
for batch in punctual.track(range(100000), epochs=1):
    time.sleep(0.01)
"""


def launch(stage: Stage, code: str, n_workers: int = 1, spec: JobSpec = SPEC) -> None:
    stage.prepare(code)
    stage.executor.perform(stage.launch_command(WORKER * n_workers, spec), stage.sink)
    stage.wait(JobStarted)


@pytest.mark.parametrize(("n_told", "n_held"), [(3, 3), (0, 2), (2**40, 4)])
def test_an_adopted_job_holds_no_more_than_its_ceiling_whatever_its_page_tells(n_told: int, n_held: int) -> None:
    process: Any = SimpleNamespace(
        group=SimpleNamespace(freezer=SimpleNamespace(was_frozen=lambda: False)), progress=None, devices=None,
        workers=SimpleNamespace(status=WorkerStatus(n_workers=n_told), n_target=2), first_cores=0.25,
    )  # fmt: skip
    assert JobGrant.adopted(SPEC, process, WORKER).held == WORKER * n_held


def hesitant(folder: Path) -> str:
    """An agent that has three workers only once there is the file `go`."""
    waiting = f"\n        while target.n_workers == 3 and not os.path.exists({str(folder / 'go')!r}): time.sleep(0.01)"
    return OBEYS.replace("time.sleep(0.05)", waiting)


def resize(stage: Stage, n_workers: int) -> None:
    grant = {NODE: WORKER * n_workers}
    command = ResizeJob(at=0.0, job=JOB, request=stage.next_request(), grant=grant, reason=WHY)
    stage.executor.perform(command, stage.sink)


def test_a_change_is_answered_when_the_workers_are_there(stage: Stage, tmp_path: Path) -> None:
    launch(stage, hesitant(tmp_path))
    resize(stage, 3)
    time.sleep(0.1)
    assert not [event for event in stage.events if isinstance(event, GrantApplied)]
    (tmp_path / "go").touch()
    applied = stage.wait(GrantApplied)
    assert (applied.granted, applied.request) == ({NODE: WORKER * 3}, 2)
    resize(stage, 2)
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 2}


def test_the_same_number_again_is_answered_at_once(stage: Stage) -> None:
    launch(stage, OBEYS)
    resize(stage, 1)
    stage.wait(GrantApplied)
    resize(stage, 1)
    assert stage.events[-1].request == 3


def test_of_two_targets_the_newer_one_is_answered(stage: Stage, tmp_path: Path) -> None:
    launch(stage, hesitant(tmp_path))
    resize(stage, 3)
    resize(stage, 2)
    (tmp_path / "go").touch()
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 2}
    time.sleep(0.1)
    assert [event.request for event in stage.events if isinstance(event, GrantApplied)] == [3]


def test_a_change_that_failed_says_what_is_held(stage: Stage) -> None:
    launch(stage, KEEPS_ONE)
    resize(stage, 3)
    failed = stage.wait(GrantFailed)
    assert (failed.granted, failed.cause) == ({NODE: WORKER}, "no room")
    resize(stage, 1)
    assert stage.wait(GrantApplied).granted == {NODE: WORKER}


def test_an_agent_that_does_not_answer(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "_CHANGE_S_MAX", 0.2)
    launch(stage, AGENT.format(status="WorkerStatus(os.getpid())"))
    resize(stage, 2)
    assert "not ready within 200 ms" in stage.wait(GrantFailed).cause


def test_a_program_without_an_agent_has_the_cores_of_its_workers(stage: Stage) -> None:
    launch(stage, PLAIN)
    stage.look_until(lambda report: report.steps_done > 0)
    resize(stage, 2)
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 2}
    stage.executor.close()
    assert "must train through `punctual.elastic`" in stage.log.read_text()


@pytest.mark.parametrize("amount", [WORKER * 3, Resources(cores=0.7496)])
def test_an_amount_as_read_back_is_the_same_number_of_workers(amount: Resources) -> None:
    assert parts_in(SPEC, amount) == (3, 0)


def test_threads_are_those_of_one_worker(stage: Stage) -> None:
    spec = JobSpec(id=JOB, ceiling=Resources(8), worker=Resources(2), counts=(1, 2, 3, 4))
    stage.prepare("import os; print(os.environ['OMP_NUM_THREADS'])", environment={})
    stage.executor.perform(stage.launch_command(Resources(2), spec), stage.sink)
    stage.ended()
    assert stage.log.read_text() == "2\n"


#: Launches the agent in the file `agent.py`, asks for three workers and waits to be killed.
CONTROLLER = """
import sys, time
from pathlib import Path
from tests.executors.conftest import JOB, Stage, until
from tests.executors.test_workers import launch, resize

folder = Path(sys.argv[1])
stage = Stage(folder / "runtime")
launch(stage, (folder / "agent.py").read_text())
until(lambda: stage.executor.facts(JOB).workers.n_workers)
resize(stage, 3)
(folder / "asked").touch()
time.sleep(60)
"""


def test_a_change_in_the_middle_of_which_the_one_who_asked_died_is_answered_to_the_next(
    stage: Stage, tmp_path: Path
) -> None:
    code = hesitant(tmp_path)
    (tmp_path / "agent.py").write_text(code)
    controller = ForkedPython[bytes]([sys.executable, "-c", CONTROLLER, str(tmp_path)], cwd=Path(__file__).parents[2])
    try:
        until((tmp_path / "asked").exists)
    finally:
        controller.kill()
        controller.wait()
    kept = until(lambda: take_over(takeover_socket_of(stage.runtime_dir, JOB)))
    assert kept is not None
    stage.prepare(code)
    command = stage.launch_command(WORKER, SPEC)
    assert stage.executor.take_over(kept, command, None, stage.sink) == {NODE: WORKER}
    stage.executor.follow()
    assert stage.events == []
    stage.executor.perform(replace(command, request=stage.next_request()), stage.sink)
    assert stage.wait(JobStarted).granted == {NODE: WORKER}
    resize(stage, 3)
    (tmp_path / "go").touch()
    assert stage.wait(GrantApplied).granted == {NODE: WORKER * 3}
    assert stage.executor.facts(JOB).workers.n_workers == 3
