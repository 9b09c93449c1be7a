"""What an agent tells its host of its jobs, and keeps of them."""

import errno
import json
import os
import subprocess
import sys
import threading
import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.plants.cluster import direct, end, joined_executor, new_agent
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.commands import LaunchJob
from punctual.core.events import Event, GrantFailed, JobFailed, JobFinished, JobStarted
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec, JobState
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.daemon import adoption, node_agent
from punctual.daemon.agent_process import AgentProcess
from punctual.daemon.node_agent import AgentOptions, NodeAgent
from punctual.daemon.run_folder import RunFolder, agent_run
from punctual.executors.cluster.channel import AgentChannel, Answer, Request, decode_message, encode_message
from punctual.executors.cluster.executor import ClusterExecutor
from punctual.executors.job_facts import JobFacts
from punctual.executors.local.executor import LocalExecutor
from punctual.executors.local.job_signals import descendants
from punctual.executors.local.output import earlier_log
from punctual.executors.local.supervisor_client import AdoptableJob
from punctual.journal.job_records import JobRecords

A = NodeId("node-a")
JOB = JobId("job")
E = TypeVar("E", bound=Event)
#: More than is sent at once.
N_BYTES = 3_000_000
WRITES = f"import sys; sys.stdout.write('x' * {N_BYTES})"
#: Until there is a file `go`.
WAITS = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\n"


@pytest.fixture
def run() -> RunFolder:
    """What the agent writes down."""
    return agent_run("test-node-a")


def launch(code: str, folder: Path, request: int = 1) -> LaunchJob:
    """Of a job that runs `code` in `folder`."""
    now = time.monotonic()
    return LaunchJob(
        at=now, job=JOB, request=request, spec=JobSpec(id=JOB, ceiling=Resources(1.0), controller=None),
        grant={A: Resources(0.5)}, reason=Reason("test", "a test wants it"),
        program=Program(argv=(sys.executable, "-c", code), cwd=str(folder)), submitted_at=now,
    )  # fmt: skip


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


class Host:
    """The executor of a host with one node, and what it is told."""

    def __init__(self, closing: ExitStack, channel: AgentChannel) -> None:
        self.events: list[Event] = []
        self.output = b""
        self.executor: ClusterExecutor = joined_executor({A: channel}, self.events, on_output=self._receive)
        closing.callback(self.executor.close)

    def _receive(self, _: JobId, output: bytes) -> None:
        self.output += output

    def launch(self, command: LaunchJob) -> None:
        self.executor.perform(command, self.events.append)


def test_what_a_job_writes_comes_to_its_host_at_once_and_not_into_the_log_of_the_agent(
    closing: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    process = AgentProcess(AgentOptions(name="quiet", node=A, actuator="pacing"))
    closing.callback(lambda: end(process))
    host = Host(closing, process)
    host.launch(launch("import time; print('mark'); time.sleep(1000)", tmp_path))
    wait_until(lambda: host.output == b"mark\n")
    assert "mark" not in process.log.read_text()


def test_an_agent_is_no_child_of_the_process_that_starts_it(closing: ExitStack) -> None:
    """Ray ends the children of its workers."""
    process = AgentProcess(AgentOptions(name="free", node=A, actuator="pacing"))
    closing.callback(lambda: end(process))
    process.start()
    pid = process.pid()
    assert pid is not None
    assert pid not in descendants(os.getpid())
    assert os.getsid(pid) != os.getsid(0)


def test_a_process_that_cannot_start_an_agent_says_so_by_its_exit_status() -> None:
    command = [sys.executable, "-P", "-m", "punctual.daemon.agent_process"]
    unusable = json.dumps(asdict(AgentOptions(name="other", node=A, actuator="magnets")))
    assert subprocess.run([*command, unusable], capture_output=True, check=False).returncode == 2


def test_what_is_rotated_away_before_it_was_sent_comes_before_what_is_written_then(
    closing: ExitStack, agent: NodeAgent, tmp_path: Path, run: RunFolder
) -> None:
    host = Host(closing, direct(agent))
    host.launch(launch(f"print('mark', flush=True)\n{WAITS}", tmp_path))
    wait_until(lambda: host.output == b"mark\n")
    log = run.log(JOB)
    with log.open("ab") as file:
        file.write(b"before\n" * 300_000)
    log.rename(earlier_log(log))
    log.write_bytes(b"after\n" * 100)
    (tmp_path / "go").touch()
    wait_until(lambda: any(isinstance(event, JobFinished) for event in host.events))
    assert host.output == b"mark\n" + b"before\n" * 300_000 + b"after\n" * 100


class Asker:
    """A host that says itself what it asks."""

    def __init__(self, channel: AgentChannel, generation: int = 1) -> None:
        self._channel, self._generation = channel, [generation, 0]
        self.greeting = self.ask("greet", reset=False)
        self.poll()

    def ask(self, verb: str, **request: Any) -> Answer:
        return self._channel.call({"verb": verb, "generation": self._generation, **request}, PATIENCE_S)

    def launch(self, command: LaunchJob, seen: int = 0) -> Answer:
        incarnation = self.greeting["incarnation"]
        return self.ask(
            "do",
            command=encode_message(command),
            environment=dict(os.environ),
            argv=None,
            incarnation=incarnation,
            seen=seen,
        )

    def poll(self, seen: int = 0, incarnation: str = "") -> Answer:
        incarnation = incarnation or self.greeting["incarnation"]
        stamp = self.greeting["sent"]
        return self.ask("poll", incarnation=incarnation, seen=seen, stamp=stamp, wait_s=0.0, paused=[], logged={})

    def heard(self, kind: type[E]) -> tuple[int, E]:
        """The first event of a kind that is not acknowledged yet, and its number."""
        return wait_until(
            lambda: [
                (number, event)
                for number, sent in self.poll()["events"]
                if isinstance(event := decode_message(sent), kind)
            ]
        )[0]


@pytest.fixture
def agent() -> Iterator[NodeAgent]:
    """Ends its jobs when it is closed."""
    made = new_agent(A)
    yield made
    made._executor.close()
    made.close()


def test_a_job_that_is_started_again_while_its_end_is_acknowledged_keeps_what_it_was_started_with(
    agent: NodeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, run: RunFolder
) -> None:
    asker = Asker(direct(agent))
    asker.launch(launch("exit(1)", tmp_path))
    number, _ = asker.heard(JobFailed)
    answered, original = threading.Event(), RunFolder.record_end
    command = launch("import time; time.sleep(1000)", tmp_path, request=2)

    def relaunch() -> None:
        asker.launch(command, seen=number)
        answered.set()

    relaunching = threading.Thread(target=relaunch)

    def record_end(run: RunFolder, job: JobId, state: JobState) -> None:
        relaunching.start()
        answered.wait(1.0)  # as long as it lasts where the launch has to wait for this
        original(run, job, state)

    monkeypatch.setattr(RunFolder, "record_end", record_end)
    asker.poll(seen=number)
    relaunching.join()
    assert run.start_facts(JOB) is not None
    assert run.open_jobs() == [JOB]


def test_an_end_that_an_agent_tells_is_not_taken_for_one_that_the_agent_before_has_told(
    agent: NodeAgent, tmp_path: Path
) -> None:
    asker = Asker(direct(agent))
    asker.launch(launch("exit(1)", tmp_path))
    asker.heard(JobFailed)
    asker.poll(seen=50, incarnation="that of the agent before")
    asker.heard(JobFailed)


def test_a_launch_that_is_repeated_after_the_end_of_its_job_starts_nothing_though_its_host_has_greeted_since(
    agent: NodeAgent, tmp_path: Path, run: RunFolder
) -> None:
    asker, command = Asker(direct(agent)), launch("exit(1)", tmp_path)
    asker.launch(command)
    number, _ = asker.heard(JobFailed)
    asker.poll(seen=number)
    asker.ask("greet", reset=False)
    asker.launch(command)
    assert run.open_jobs() == []
    newer = Asker(direct(agent), generation=2)  # it makes its commands anew
    newer.launch(command)
    newer.heard(JobFailed)


def test_an_agent_obeys_no_command_that_was_for_the_one_before_until_its_host_has_found_it(
    agent: NodeAgent, tmp_path: Path, run: RunFolder
) -> None:
    """Ray may deliver it when the node is connected again: then the job has long been started elsewhere."""
    command = encode_message(launch("exit(1)", tmp_path))
    late = {
        "verb": "do",
        "generation": [0, 0],
        "command": command,
        "incarnation": "that of the agent before",
        "seen": 5,
    }
    request = {**late, "environment": dict(os.environ), "argv": None}
    assert agent.answer(request)["fenced"]
    assert run.open_jobs() == []


def test_a_job_waits_for_room_on_the_disk_of_its_node(
    agent: NodeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(JobRecords, "add", fail)
    asker = Asker(direct(agent))
    asker.launch(launch("", tmp_path))
    _, failed = asker.heard(GrantFailed)
    assert failed.short_of == "room on the disk"


def test_the_logs_of_many_jobs_come_in_answers_that_can_be_passed_on(
    agent: NodeAgent, tmp_path: Path, run: RunFolder
) -> None:
    asker = Asker(direct(agent))
    jobs = [JobId(f"job-{i}") for i in range(6)]
    for job in jobs:
        command = launch("", tmp_path)
        program = Program(argv=("head", "--bytes=2M", "/dev/zero"), cwd=str(tmp_path))
        asker.launch(replace(command, job=job, spec=replace(command.spec, id=job), program=program))
    wait_until(lambda: all(run.log(job).exists() and run.log(job).stat().st_size == 2 << 20 for job in jobs))
    output = {job: b64decode(text) for job, _, text in asker.poll()["output"]}
    assert output.keys() == set(jobs), "none has to wait for another one"
    assert sum(map(len, output.values())) <= 4 << 20


def test_a_job_that_says_where_others_join_it_before_it_says_anything_else_is_told(
    agent: NodeAgent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LocalExecutor, "facts", lambda *_: JobFacts(group=("", 7, b"key".hex())))
    asker = Asker(direct(agent))
    asker.launch(launch(WAITS, tmp_path))
    facts = wait_until(lambda: asker.poll()["facts"])
    assert facts[JOB]["group"][1:] == [7, b"key".hex()]


class OlderAgent:
    """A channel to an agent that does not know the commands of its host."""

    def __init__(self, channel: AgentChannel) -> None:
        self._channel = channel

    def call(self, request: Request, limit_s: float) -> Answer:
        unknown = {"command": ["ComposeJob", "{}"]} if request["verb"] == "do" else {}
        return self._channel.call({**request, **unknown}, limit_s)


def test_a_launch_that_an_agent_cannot_read_has_failed_and_says_why(
    closing: ExitStack, agent: NodeAgent, tmp_path: Path
) -> None:
    host = Host(closing, OlderAgent(direct(agent)))
    host.launch(launch(WAITS, tmp_path))
    (failed,) = wait_until(lambda: [event for event in host.events if isinstance(event, GrantFailed)])
    assert "node 'node-a' has refused the launch: a message must be of a known kind: got 'ComposeJob'" in failed.cause
    assert failed.granted == {}


def test_an_agent_that_finds_only_the_name_of_a_job_answers_and_tells_that_it_is_lost(
    closing: ExitStack, run: RunFolder
) -> None:
    run.record_job(JOB, "queued")
    agent = new_agent(A)
    closing.callback(agent.close)
    asker = Asker(direct(agent))
    assert asker.greeting["held"] == {}
    assert asker.heard(JobFailed)[1].is_lost


def test_the_end_of_a_job_that_ends_while_an_agent_takes_it_over_is_told(
    closing: ExitStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = AgentOptions(name="test-node-a", node=A, actuator="pacing")
    process = AgentProcess(options)
    closing.callback(lambda: end(process))
    process.start()
    first = Asker(process)
    first.launch(launch(WAITS, tmp_path))
    first.heard(JobStarted)
    end(process)

    def claimed(run: RunFolder, jobs: Iterable[JobId], claims: ExitStack) -> dict[JobId, AdoptableJob]:
        kept = adoption.claimed(run, jobs, claims)
        assert list(kept) == [JOB]
        (tmp_path / "go").touch()
        wait_until(lambda: run.supervisor_pid(JOB) is None)
        return kept

    monkeypatch.setattr(node_agent, "claimed", claimed)
    agent = NodeAgent(options)
    closing.callback(agent.close)
    Asker(direct(agent)).heard(JobFinished)


def test_the_end_of_a_job_is_told_with_all_that_it_has_written(
    closing: ExitStack, agent: NodeAgent, tmp_path: Path
) -> None:
    host = Host(closing, direct(agent))
    host.launch(launch(WRITES, tmp_path))
    wait_until(lambda: any(isinstance(event, JobFinished) for event in host.events))
    assert len(host.output) == N_BYTES


def test_what_a_host_does_not_want_to_read_keeps_no_event_from_it(
    closing: ExitStack, agent: NodeAgent, tmp_path: Path, run: RunFolder
) -> None:
    host = Host(closing, direct(agent))
    host.launch(launch(WAITS + WRITES, tmp_path))
    wait_until(lambda: any(isinstance(event, JobStarted) for event in host.events))
    host.executor._forget(JOB)  # as if it lay elsewhere
    (tmp_path / "go").touch()
    wait_until(lambda: not run.open_jobs())
    assert host.output == b""
    assert host.executor.poll_fields(A)["logged"] == {}


def test_a_job_that_is_started_again_on_its_node_sends_what_it_writes_then_and_its_logs_do_not_stay(
    closing: ExitStack, agent: NodeAgent, tmp_path: Path, run: RunFolder
) -> None:
    host = Host(closing, direct(agent))
    log = run.log(JOB)
    log.with_name(f"{log.name}.1").touch()

    def fail(request: int) -> None:
        host.launch(launch("print('one'); exit(1)", tmp_path, request=request))
        wait_until(lambda: [type(event) for event in host.events].count(JobFailed) == request)
        wait_until(lambda: not run.open_jobs())

    for request in (1, 2):
        fail(request)
        assert not list(log.parent.glob(f"{log.name}*"))
    assert host.output == b"one\none\n"
