"""The agent and real workers: a script of its own, its workers watched and hurt from outside."""

import os
import signal
import time
from operator import sub
from pathlib import Path

from tests.elastic_training.agent_stage import Stage
from tests.waiting import wait_until

from punctual.executors.local.freezer import SignalFreezer
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.process_tree import cpu_clock_ns

SCRIPT = Path(__file__).parent / "link_training.py"


def _footprint(pid: int) -> tuple[int, int]:
    """Descriptors and threads."""
    process = Path(f"/proc/{pid}")
    return len([*(process / "fd").iterdir()]), len([*(process / "task").iterdir()])


def _await_end(pids: list[int]) -> None:
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in pids))


def test_workers_grow_and_shrinks_is_hurt_and_goes_on(stage: Stage) -> None:
    stage.start(str(SCRIPT), "for_ever", "torch", HANG_S="4")
    status = stage.await_status(lambda status: status.request == 1)
    assert (status.agent_pid, status.n_workers, status.generation) == (stage.agent_pid, 1, 1)

    # The oldest stay; nobody is asked to leave but the one that is too many.
    first = stage.workers()
    assert stage.resize(3).n_workers == 3
    assert stage.workers()[:1] == first
    three = stage.workers()
    status = stage.resize(2)
    assert (status.n_workers, status.n_resizes, status.n_steps_redone, status.n_workers_lost) == (2, 2, 0, 0)
    _await_end(three[2:])
    assert stage.workers() == three[:2]

    # A killed worker is replaced, and its survivor keeps what it has done.
    os.kill(three[0], signal.SIGKILL)
    status = stage.await_status(
        lambda status: status.n_workers_lost == 1 and status.n_workers == 2 and status.n_steps_redone == 1
    )
    assert stage.workers()[0] == three[1]
    assert "an end by SIGKILL" in stage.output()

    # So is one that only stands still.
    hanging = stage.workers()[1]
    os.kill(hanging, signal.SIGSTOP)
    stage.await_status(lambda status: status.n_workers_lost == 2 and status.n_workers == 2)
    _await_end([hanging])
    assert "stood still" in stage.output()

    # Nothing is left behind by changes of size.
    stage.resize(1)
    before = _footprint(stage.agent_pid)
    for n_workers in [2, 1] * 10:
        assert stage.resize(n_workers).n_workers == n_workers
    # What belongs to a worker that has just left may go a moment later.
    wait_until(lambda: _footprint(stage.agent_pid), lambda after: max(map(sub, after, before)) <= 0)
    assert stage.page.worker_status().n_steps_redone == 2  # those of the two faults
    assert 0 < stage.page.worker_status().last_stop_ns <= stage.page.worker_status().longest_stop_ns

    # With all workers lost, others begin from what was saved.
    stage.resize(2)
    generation = stage.page.worker_status().generation
    for pid in stage.workers():
        os.kill(pid, signal.SIGKILL)
    stage.await_status(lambda status: status.n_workers == 2 and status.generation > generation)

    # Whatever becomes of the agent becomes of its workers, even of one that cannot know.
    alive = stage.workers()
    os.kill(alive[0], signal.SIGSTOP)
    os.kill(stage.agent_pid, signal.SIGKILL)
    stage.exit_code()
    _await_end(alive)


def test_a_training_that_ends_ends_its_agent(stage: Stage) -> None:
    stage.start(str(SCRIPT), "briefly", "torch", n_workers=2)
    assert stage.exit_code() == 0
    assert stage.output().count("trained with 3 threads") == 2
    assert stage.page.worker_status().n_workers == 0


def test_a_worker_that_dawdles_on_purpose_is_let_be(stage: Stage) -> None:
    stage.start(str(SCRIPT), "dawdle", n_workers=2, HANG_S="1")
    assert stage.exit_code() == 0
    assert stage.output() == "all done\n"
    assert stage.page.worker_status().n_workers_lost == 0


def test_nobody_is_taken_to_hang_because_the_job_was_frozen(stage: Stage) -> None:
    hang_s = 3.0
    stage.start(str(SCRIPT), "for_ever", "torch", n_workers=2, HANG_S=str(hang_s), LAST_STEP_S="0.2")
    stage.await_status(lambda status: status.n_workers == 2)
    freezer = SignalFreezer(lambda: [stage.agent_pid, *descendants(stage.agent_pid)])
    freezer.freeze()
    wait_until(freezer.is_frozen)
    frozen_at = time.monotonic()
    wait_until(lambda: time.monotonic() > frozen_at + 1.5 * hang_s)
    # A control group goes on in any order; this one is the worst.
    frozen_clock_ns = cpu_clock_ns(stage.agent_pid)
    os.kill(stage.agent_pid, signal.SIGCONT)
    wait_until(lambda: cpu_clock_ns(stage.agent_pid) != frozen_clock_ns, pause_s=0.1)
    freezer.thaw()
    assert stage.resize(3).n_workers_lost == 0
    os.kill(stage.workers()[1], signal.SIGSTOP)  # who really hangs is noticed as before
    stage.await_status(lambda status: status.n_workers_lost == 1 and status.n_workers == 3)


def test_members_see_that_one_is_lost_and_that_a_change_is_none(stage: Stage) -> None:
    stage.start(str(SCRIPT), "watch", n_workers=2)
    status = stage.await_status(lambda status: status.n_workers == 2)
    os.kill(stage.workers()[0], signal.SIGKILL)
    stage.await_status(lambda status: status.n_workers == 2 and status.n_workers_lost == 1)
    assert f"generation {status.generation} has lost a member\n" in stage.output()
    generation = stage.page.worker_status().generation
    assert stage.resize(1).n_workers == 1
    assert stage.output().count(f"generation {generation} is over\n") >= 1


def test_workers_use_the_devices_that_their_job_is_shown(stage: Stage) -> None:
    stage.n_devices_each = 1
    stage.start(str(SCRIPT), "watch", CUDA_VISIBLE_DEVICES="4,7")
    assert stage.await_status(lambda status: status.request == 1).devices == (0,)
    assert stage.resize(2).devices == (0, 1)
    assert stage.resize(1).devices == (0,)
    assert stage.resize(2, devices=(0, 5)).devices == (0, 5)
    assert stage.resize(3, devices=(0, 5)).devices == (0, 5), "there are too few: two share one"


def test_an_exception_is_shown_once(stage: Stage) -> None:
    stage.start(str(SCRIPT), "fail", n_workers=2)
    assert stage.exit_code() == 1
    assert stage.output().count("LookupError: no such layer") == 1
    assert stage.output().count("Traceback") == 1


def test_a_target_that_cannot_be_fulfilled_is_given_up_and_training_goes_on(stage: Stage) -> None:
    stage.start(str(SCRIPT), "alone")
    stage.await_status(lambda status: status.request == 1)
    status = stage.resize(2)
    assert (status.n_workers, status.cause) == (1, "a new worker has failed: MemoryError: no room for another")
    status = stage.resize(1)
    assert (status.n_workers, status.generation, status.cause) == (1, 1, "")


def test_a_training_function_that_does_not_train_ends_too(stage: Stage) -> None:
    stage.start(str(SCRIPT), "idle", n_workers=2)
    assert stage.exit_code() == 0


def test_workers_that_die_at_once_are_not_started_for_ever(stage: Stage) -> None:
    stage.start(str(SCRIPT), "crash")
    assert stage.exit_code() == 128 + signal.SIGKILL
    assert "3 workers in a row ended before their first step" in stage.output()


def refusal(stage: Stage, script: Path, text: str) -> str:
    """Return what a script with this text writes, which is to end as refused."""
    script.write_text(text)
    stage.start(str(script))
    assert stage.exit_code() == 1
    return stage.output()


def test_a_script_must_not_use_a_gpu_while_it_is_loaded(stage: Stage, tmp_path: Path) -> None:
    text = (
        "import os, punctual, torch\n"
        "torch.cuda.is_initialized = lambda: 'PYTORCH_NVML_BASED_CUDA_CHECK' in os.environ\n"
        "if __name__ == '__main__':\n"
        "    punctual.elastic(print)\n"
    )
    assert "Move what uses the GPU into the training function." in refusal(stage, tmp_path / "hasty.py", text)


def test_a_script_must_not_start_itself_while_it_is_loaded(stage: Stage, tmp_path: Path) -> None:
    text = "import punctual\npunctual.elastic(print)\n"
    assert 'Write `if __name__ == "__main__":` above the call.' in refusal(stage, tmp_path / "careless.py", text)


def test_a_training_function_may_be_given_much(stage: Stage, tmp_path: Path) -> None:
    """More than fits into a message between processes."""
    script = tmp_path / "laden.py"
    script.write_text(
        "from functools import partial\n"
        "import punctual\n"
        "def train(content, context):\n"
        "    print('given', len(content), flush=True)\n"
        "if __name__ == '__main__':\n"
        "    punctual.elastic(partial(train, bytes(1 << 22)))\n"
    )
    stage.start(str(script))
    assert stage.exit_code() == 0, stage.output()
    assert stage.output() == f"given {1 << 22}\n"


def test_a_training_function_must_be_there_when_the_script_is_loaded(stage: Stage, tmp_path: Path) -> None:
    text = (
        "import punctual\n"
        "if __name__ == '__main__':\n"
        "    def train(context):\n"
        "        pass\n"
        "    punctual.elastic(train)\n"
    )
    told = refusal(stage, tmp_path / "late.py", text)
    assert "must be there when the script is loaded: got " in told
    assert 'above `if __name__ == "__main__":`.' in told
