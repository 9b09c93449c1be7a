"""Real jobs side by side in one host, and what other processes can ask of it."""

import errno
import math
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock, patch

import pytest
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    GrantApplied,
    JobFailed,
    JobFinished,
    JobStarted,
    Message,
    PlanProposed,
    PolicyChanged,
    SpecChanged,
)
from punctual.core.ids import JobId
from punctual.core.resources import NOTHING, Resources, total
from punctual.daemon import control_socket
from punctual.daemon import host as host_module
from punctual.daemon.capacity import capacity_here
from punctual.daemon.control_client import change, is_silent, policy, standings, stop
from punctual.daemon.control_socket import ControlBusy, ControlFailed, ask, connected
from punctual.daemon.host import Host
from punctual.daemon.opening import new_host
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import KnownJob, find_job, known_runs, messages_of, open_jobs
from punctual.journal.boot import suspended_s
from punctual.journal.job_records import JobRecords
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of


@pytest.fixture
def host() -> Iterator[Host]:
    with new_host("host", PACED) as made:
        yield made


def test_a_host_that_has_too_many_clients_is_not_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next command would end it and take its jobs."""
    monkeypatch.setattr(control_socket, "_N_CLIENTS_MAX", 1)
    monkeypatch.setattr(control_socket, "_REQUEST_S", PATIENCE_S)
    with new_host("host", PACED) as host, connected(host.run_folder.socket, None):
        for _ in range(20):
            with pytest.raises(ControlBusy):
                ask(host.run_folder.socket, {"verb": "status", "jobs": []})
        assert not is_silent(host.run_folder)


def test_a_host_that_steers_nothing_is_silent_though_its_other_threads_answer(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "HUNG_S", 2.0)
    goes_on, is_over = threading.Event(), threading.Event()

    def look() -> list[bool]:
        host.ask(lambda _: None, PATIENCE_S)
        seen = [is_silent(host.run_folder)]
        with ThreadPoolExecutor(1) as pool:
            hanging = pool.submit(host.ask, lambda _: goes_on.wait(PATIENCE_S), PATIENCE_S)
            seen.append(wait_until(lambda: is_silent(host.run_folder)))
            goes_on.set()
            assert hanging.result()
        wait_until(lambda: not is_silent(host.run_folder))
        is_over.set()
        host.ask(lambda _: None, PATIENCE_S)
        return seen

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        host.run_for(PATIENCE_S, lambda: is_over.is_set() or looking.done())
        assert looking.result() == [False, True]


def test_of_several_jobs_one_fails_one_is_stopped_and_the_others_go_on(host: Host, tmp_path: Path) -> None:
    awaited = tmp_path / "go"
    host.submit(submission("lands", awaited=awaited, secret="first"))
    host.submit(submission("fails", code=3))
    host.submit(submission("stopped", awaited=tmp_path / "never"))
    messages: list[Message] = []
    host.subscribe(messages.append)

    def on_message(message: Message) -> None:
        if isinstance(message, JobFailed) and message.job == "fails":
            host.stop(JobId("stopped"), "enough")
        if isinstance(message, JobFailed) and message.job == "stopped":
            awaited.touch()

    host.subscribe(on_message)
    host.run(host.all_ended)
    assert {status.id: (status.state, status.exit_code) for status in host.jobs()} == {
        "lands": ("finished", 0), "fails": ("failed", 3), "stopped": ("stopped", host.status(JobId("stopped")).exit_code),
    }  # fmt: skip
    assert host.status(JobId("stopped")).cause == "enough"
    assert host.status(JobId("lands")).steps_done == 10
    assert host.log(JobId("lands")).read_text() == "first\n"
    assert host.run_folder.jobs() == {"lands": "finished", "fails": "failed", "stopped": "stopped"}
    assert_never_overbooked(messages)


def assert_never_overbooked(messages: list[Message]) -> None:
    held = {}
    for message in messages:
        if isinstance(message, JobStarted | GrantApplied):
            held[message.job] = total(message.granted.values())
        elif isinstance(message, JobFailed | JobFinished):
            held.pop(message.job, None)
        assert total(held.values()).fits_in(capacity_here())


@pytest.mark.parametrize("said", [None, 3])
def test_the_machine_has_its_memory_and_so_many_places_as_are_said_or_four_per_core(said: int | None) -> None:
    with new_host("other", replace(PACED, jobs_at_once=said)) as host:
        host.run(lambda: bool(host.nodes()))
        (node,) = host.nodes()
        capacity = capacity_here()
        assert node.capacity == capacity
        assert node.jobs_at_once == (said or math.ceil(4 * capacity.cores))


def test_several_jobs_are_planned_together_and_promised_their_deadlines(host: Host) -> None:
    """By a policy in a process of its own, which is told how much work they have left."""
    names = {"a", "b"}
    for name in sorted(names):
        host.submit(submission(name, n_steps=1000, deadline_s=1000.0))

    def on_message(message: Message) -> None:
        if isinstance(message, PlanProposed) and message.plan and set(message.plan.promises or {}) == names:
            for name in names:
                host.stop(JobId(name), "enough")

    host.subscribe(on_message)
    host.run(host.all_ended)
    assert {status.cause for status in host.jobs()} == {"enough"}


def test_a_job_that_waits_gets_what_an_elastic_one_gives_up_and_not_only_what_one_leaves_that_ends(
    host: Host, tmp_path: Path
) -> None:
    """The training has all of the machine until its speed is known. Then half of it is plenty for its deadline."""
    counting = Path(__file__).with_name("spread_counting.py")
    options = JobOptions(
        program=[sys.executable, str(counting), str(tmp_path)], name="elastic", deadline="100000s",
        workers="1..2", cores_per_worker=f"{host.capacity.cores / 2}",
    )  # fmt: skip
    host.submit(submission_of(options, time.monotonic(), host.capacity))
    states: list[tuple[str, str]] = []

    def on_message(message: Message) -> None:
        if isinstance(message, JobStarted) and message.job == "elastic":
            host.submit(submission("waits", floor_cores=host.capacity.cores / 4))
        if isinstance(message, JobFinished | JobFailed):
            states.append((message.job, type(message).__name__))
            (tmp_path / "end").touch()

    host.subscribe(on_message)
    give_up_at = time.monotonic() + PATIENCE_S
    host.run(lambda: host.all_ended() or time.monotonic() > give_up_at)
    assert states == [("waits", "JobFinished"), ("elastic", "JobFinished")]


def test_a_name_is_given_once(host: Host) -> None:
    host.submit(submission("a"))
    with pytest.raises(InvalidSpec, match="must be new"):
        host.submit(submission("a", secret="another"))
    host.run(host.all_ended)
    assert [status.state for status in host.jobs()] == ["finished"]


def test_it_does_not_end_before_it_has_answered(host: Host) -> None:
    answers: list[object] = []
    asking = threading.Thread(target=lambda: answers.append(policy(host.run_folder, "fifo", {})))
    asking.start()
    wait_until(host.is_answering)
    assert host.all_ended()
    assert not host.begin_to_close()
    while asking.is_alive():
        host.run_for(0.05)
    assert answers == [{"policy": "fifo", "parameters": {}, "before": "promises-first"}]
    wait_until(host.begin_to_close)


def test_what_is_said_again_before_the_host_has_come_to_it_is_not_refused_because_of_itself(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host_module, "_TELL_S_MAX", 0.05)
    given = submission("a")
    with pytest.raises(ControlFailed, match="too busy"):
        host.submit_for_client([given])
    kept = host.run_folder.jobs()
    monkeypatch.setattr(RunFolder, "record_submitted", lambda *_: pytest.fail("there is nothing new"))
    with pytest.raises(ControlFailed, match="too busy"):
        host.submit_for_client([given])
    assert host.run_folder.jobs() == kept
    host.run(host.all_ended)
    assert [status.state for status in host.jobs()] == ["finished"]


def test_the_jobs_of_other_hosts_are_looked_at_once_however_many_are_submitted(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    n_looks = [0]

    def counted(*, but: RunFolder) -> list[KnownJob]:
        n_looks[0] += 1
        return open_jobs(but=but)

    monkeypatch.setattr(host_module, "open_jobs", counted)
    host.submit_all([submission(f"job-{i}") for i in range(5)])
    assert n_looks == [1]


def test_a_job_that_asks_for_what_no_machine_hands_out_is_refused(host: Host) -> None:
    given = submission("disk")
    for spec in (
        replace(given.spec, ceiling=replace(given.spec.ceiling, others=(("disk_mbps", 10.0),))),
        replace(
            given.spec,
            floor=NOTHING,
            ceiling=Resources(2, others={"disk_mbps": 9.0}),
            worker=Resources(1, others={"disk_mbps": 3.0}),
        ),
    ):
        with pytest.raises(InvalidSpec, match="`disk_mbps`") as caught:
            host.submit(replace(given, spec=spec))
        assert all([caught.value.must, caught.value.where, caught.value.remedy])
    host.submit(given)  # its name is free
    host.stop(JobId("disk"), "enough")


def test_jobs_of_two_hosts_cannot_have_one_name(host: Host) -> None:
    host.submit(submission("a"))
    with new_host("another", PACED) as another, pytest.raises(InvalidSpec, match="a job of 'host' has"):
        another.submit(submission("a"))
    host.run(host.all_ended)
    assert [run.name for run in known_runs()] == ["host"]


def test_what_a_job_inherits_reaches_it_and_nobody_else(host: Host) -> None:
    host.submit(submission("a", secret="s3cret"))
    host.run(host.all_ended)
    assert host.log(JobId("a")).read_text() == "s3cret\n"
    folder = host.run_folder.state_dir
    wait_until(
        lambda: [path.name for path in folder.iterdir() if b"s3cret" in path.read_bytes()],
        lambda left: left == ["a.log"],  # it has printed it
    )


def test_of_jobs_that_are_refused_together_none_is_run_later(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(JobRecords, "add", refuse)
        with pytest.raises(InvalidSpec, match="No space left"):
            host.submit_all([submission("a"), submission("b")])
    assert host.run_folder.open_jobs() == []
    host.submit_all([submission("a"), submission("b")])
    host.run(host.all_ended)
    assert host.run_folder.jobs() == {"a": "finished", "b": "finished"}


def test_what_a_job_inherits_is_removed_at_its_end_as_soon_as_its_folder_can_be_written(
    host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    attempts: list[object] = []

    def has_no_room(*_: object) -> None:
        attempts.append(None)
        raise OSError(errno.ENOSPC, "No space left on device")

    host.submit(submission("a", secret="s3cret"))
    with monkeypatch.context() as full:
        full.setattr(RunFolder, "record_end", has_no_room)
        while len(attempts) < 2:
            host.run_for(0.2)
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "what is written down of the jobs is not up to date"
    ], "and it is told once"
    while host.run_folder.open_jobs():
        host.run_for(0.2)
    assert host.run_folder.start_facts(JobId("a")) is None


def test_a_host_tells_of_its_jobs_moves_deadlines_and_stops_jobs(host: Host, tmp_path: Path) -> None:
    host.submit(submission("a", awaited=tmp_path / "go", deadline_s=1000.0))
    host.submit(submission("b", awaited=tmp_path / "never"))
    failures: list[BaseException] = []

    def ask() -> None:
        try:
            ask_as_a_user()
        except BaseException as error:  # noqa: BLE001 -- told in the test's own thread
            failures.append(error)
            for job in ("a", "b"):
                host.stop(JobId(job), "the test has failed")

    def ask_as_a_user() -> None:
        begun = wait_until(lambda: standings(host.run_folder), lambda told: all(job.get("steps_done") for job in told))
        assert [job["job"] for job in begun] == ["a", "b"]
        assert begun[0]["left_s"] > 0
        assert begun[1]["left_s"] is None
        assert begun[0]["actuator"] == "pacing"
        assert change(find_job("a", open_jobs()), when="2h")["deadline_s"] > 7000
        with pytest.raises(InvalidSpec, match="later than now"):
            change(find_job("a", open_jobs()), when="-3h")
        assert stop(find_job("b", open_jobs())) == "asked to stop"
        wait_until(lambda: [job.title for job in open_jobs()], lambda left: left == ["a"])
        (tmp_path / "go").touch()

    user = threading.Thread(target=ask)
    user.start()
    host.run(host.all_ended)
    user.join(PATIENCE_S)
    assert failures == []
    deadline_s = host.status(JobId("a")).spec.deadline_s
    assert deadline_s is not None
    assert deadline_s > 7000
    assert {status.id: status.state for status in host.jobs()} == {"a": "finished", "b": "stopped"}


@pytest.mark.parametrize("is_full", [False, True], ids=["", "no room to note it"])
def test_a_suspension_of_the_machine_brings_deadlines_forward_and_is_told(
    host: Host, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, is_full: bool
) -> None:
    awaited = tmp_path / "go"
    host.submit(submission("dated", awaited=awaited, deadline_s=600.0))
    host.submit(submission("undated", awaited=awaited))
    changed: list[SpecChanged] = []
    host.subscribe(lambda message: changed.append(message) if isinstance(message, SpecChanged) else None)
    host.run(lambda: pid_of_waiting(awaited) > 0)
    before_s = suspended_s()
    monkeypatch.setattr(host_module, "suspended_s", lambda: before_s + 120.0)
    if is_full:
        no_room = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        monkeypatch.setattr(RunFolder, "record_facts", Mock(side_effect=no_room))
    host.run(lambda: bool(changed))
    awaited.touch()
    host.run(host.all_ended)
    (change,) = changed  # it is made up for once
    assert (change.spec.id, change.by) == ("dated", "the machine, which was suspended for 2 min")
    assert change.spec.deadline_s == pytest.approx(480.0, abs=1.0)


def test_leaving_a_host_ends_its_jobs_and_says_so(tmp_path: Path) -> None:
    with new_host("host", PACED) as host:
        host.submit(submission("a", awaited=tmp_path / "never"))
        host.submit(submission("queued", floor_cores=capacity_here().cores))
        host.run(lambda: pid_of_waiting(tmp_path / "never") > 0)
        run = host.run_folder
    assert run.jobs() == {"a": "stopped", "queued": "stopped"}
    assert not run.runtime_dir.exists()
    assert not Path(f"/proc/{pid_of_waiting(tmp_path / 'never')}").exists()
    (end,) = [message for message in messages_of(run) if isinstance(message, JobFailed) and message.job == "a"]
    assert "Punctual is ending" in end.cause


def test_a_host_without_jobs_leaves_nothing_behind() -> None:
    with pytest.raises(InvalidSpec, match="magic"), new_host("host", PACED.__class__(actuator="magic")):
        pass
    with new_host("host", PACED):
        pass
    assert known_runs() == []


def test_leases_are_renewed_without_looking_at_jobs_that_have_ended(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go = tmp_path / "go"
    host.submit(submission("ended"))
    host.run(host.all_ended)
    host.submit(submission("paused", awaited=go))
    host.run(lambda: pid_of_waiting(go) > 0)
    host.pause(JobId("paused"))
    host.run(lambda: host.status(JobId("paused")).state == "paused")
    asked: list[tuple[str, bool]] = []
    renew = host.executor.renew

    def noted(is_paused: Callable[[JobId], bool]) -> None:
        def answer(job: JobId) -> bool:
            asked.append((job, is_paused(job)))
            return is_paused(job)

        renew(answer)

    monkeypatch.setattr(host.executor, "renew", noted)
    monkeypatch.setattr(host, "jobs", lambda: pytest.fail("all jobs were looked at"))
    host.run(lambda: bool(asked))
    monkeypatch.undo()
    assert set(asked) == {("paused", True)}
    host.resume(JobId("paused"))
    go.touch()
    host.run(host.all_ended)


def test_the_policy_is_exchanged_while_jobs_run(host: Host, tmp_path: Path) -> None:
    go = tmp_path / "go"
    for name in ("a", "b"):
        host.submit(submission(name, awaited=go))
    told: list[Message] = []
    host.subscribe(told.append)
    host.run(lambda: pid_of_waiting(go) > 0)
    assert host.policy == "promises-first"
    with pytest.raises(InvalidSpec, match="'unheard-of'"):
        host.change_policy("unheard-of")
    with pytest.raises(InvalidSpec, match="parameters must be its own"):
        host.change_policy("fifo", {"unheard": 1})
    host.change_policy("proportional", {"shortage": "scale"}, by="anna")

    def is_planned_anew() -> bool:
        i_changed = next((i for i, message in enumerate(told) if isinstance(message, PolicyChanged)), len(told))
        return any(isinstance(message, PlanProposed) and message.plan for message in told[i_changed:])

    host.run(is_planned_anew)
    assert host.policy == "proportional"
    assert host.run_folder.facts()["options"]["policy"] == "proportional"
    go.touch()
    host.run(host.all_ended)
    (changed,) = [message for message in messages_of(host.run_folder) if isinstance(message, PolicyChanged)]
    assert (changed.before, changed.parameters, changed.by) == ("promises-first", {"shortage": "scale"}, "anna")


def test_what_is_free_is_told_without_what_rounding_leaves_of_it(host: Host) -> None:
    tenths = [Mock(held=Resources(0.1), memory_bytes=0)] * round(10 * capacity_here().cores)
    with patch.object(type(host), "jobs", lambda _: tenths):
        assert host.budget({})["host_free_cores"] == 0.0
