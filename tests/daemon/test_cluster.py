"""Jobs on the nodes of a cluster: agents of this process or of others, hosts that come and go, and connections that are cut."""

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.daemon.live_jobs import PACED, pid_of_waiting, submission
from tests.executors.conftest import is_alive
from tests.plants.cluster import FixedMembers, ShiftedClock, Wire, direct, end, joined_executor, new_agent
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.answers import VARIABLES_GONE
from punctual.core.commands import LaunchJob, ResizeJob
from punctual.core.errors import InvalidSpec
from punctual.core.events import (
    Event,
    GrantFailed,
    JobFailed,
    JobFinished,
    JobStarted,
    JobWarned,
    NodeJoined,
    NodeLost,
    NodeNoticed,
    NodeWarned,
    ProgressReported,
    SteeringResumed,
)
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.reason import Reason
from punctual.core.resources import Resources
from punctual.daemon import host_executor
from punctual.daemon.agent_process import AgentProcess, drain_here
from punctual.daemon.host import Host
from punctual.daemon.machine_notice import MachineNotice
from punctual.daemon.node_agent import AgentOptions, NodeAgent
from punctual.daemon.opening import new_host
from punctual.daemon.restore import resumed_host
from punctual.daemon.run_folder import run_named
from punctual.daemon.runs import messages_of
from punctual.executors.cluster import executor as cluster_executor
from punctual.executors.cluster.channel import AgentChannel, Answer, Request, encode_message
from punctual.executors.cluster.executor import ClusterExecutor
from punctual.executors.cluster.node_link import ClockOffset
from punctual.executors.cluster.poll_schedule import LOST_AFTER_S
from punctual.executors.local.output import StartFacts
from punctual.history.decision_trace import decision_steps
from punctual.history.run import history_of

A, B = NodeId("node-a"), NodeId("node-b")
JOB, OTHER = JobId("job"), JobId("other")
WHY = Reason("test", "a test wants it")

#: Counts to a million, with a checkpoint at each step if a file for it is named; each process writes down that it was there.
TRAINING = """
import os, pathlib, sys, time, punctual
checkpoint, log = map(pathlib.Path, sys.argv[1:])
with log.open("a") as file:
    file.write(f"{os.getpid()}\\n")
start = int(checkpoint.read_text()) if checkpoint.exists() else 0
for i in punctual.track(range(start, 1000000), total_steps=1000000, start_step=start):
    time.sleep(0.01)
    if checkpoint.parent.exists():
        written = checkpoint.with_suffix(f".{os.getpid()}")
        written.write_text(str(i + 1))
        written.replace(checkpoint)
"""


def launch(node: NodeId, folder: Path, request: int = 1, job: JobId = JOB, checkpoint: str = "shared") -> LaunchJob:
    now = time.monotonic()
    program = Program(
        argv=(sys.executable, "-c", TRAINING, str(folder / checkpoint / "step"), str(folder / f"{job}.pids")),
        cwd=str(folder),
    )
    spec = JobSpec(id=job, ceiling=Resources(1.0), controller=None)
    return LaunchJob(
        at=now, job=job, request=request, spec=spec, grant={node: Resources(0.5)}, reason=WHY, program=program,
        submitted_at=now,
    )  # fmt: skip


def pids_of(folder: Path, job: JobId = JOB) -> list[int]:
    """The processes that the job has had, in order."""
    file = folder / f"{job}.pids"
    return [int(line) for line in file.read_text().split()] if file.exists() else []


def steps_of(executor: ClusterExecutor, job: JobId = JOB) -> float:
    seen: list[Event] = []
    executor.observe(job, time.monotonic(), seen.append)
    return seen[-1].steps_done if seen and isinstance(seen[-1], ProgressReported) else -1.0


E = TypeVar("E", bound=Event)


def of_kind(events: list[Event], kind: type[E]) -> list[E]:
    return [event for event in events if isinstance(event, kind)]


@pytest.fixture
def closing() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path


def cluster(
    closing: ExitStack, channels: Mapping[NodeId, AgentChannel], generation: int = 1, **options: Any
) -> tuple[ClusterExecutor, list[Event]]:
    events: list[Event] = []
    executor = joined_executor(channels, events, generation, **options)
    closing.callback(executor.close)
    return executor, events


def agent_of(closing: ExitStack, node: NodeId, **options: float) -> NodeAgent:
    agent = new_agent(node, **options)
    closing.callback(agent.close)
    return agent


def test_two_jobs_run_on_two_nodes_each_on_its_own(closing: ExitStack, folder: Path) -> None:
    channels = {node: direct(agent_of(closing, node)) for node in (A, B)}
    executor, events = cluster(closing, channels)
    executor.perform(launch(A, folder), events.append)
    executor.perform(launch(B, folder, job=OTHER), events.append)
    wait_until(lambda: steps_of(executor) > 0 and steps_of(executor, OTHER) > 0)
    granted = {event.job: event.granted for event in of_kind(events, JobStarted)}
    assert granted == {JOB: {A: Resources(0.5)}, OTHER: {B: Resources(0.5)}}


def test_a_grant_on_two_nodes_is_had_where_it_is_largest(closing: ExitStack, folder: Path) -> None:
    channels = {node: direct(agent_of(closing, node)) for node in (A, B)}
    executor, events = cluster(closing, channels)
    command = launch(A, folder)
    executor.perform(replace(command, grant={A: Resources(0.2), B: Resources(0.4)}), events.append)
    (started,) = wait_until(lambda: of_kind(events, JobStarted))
    assert started.granted == {B: Resources(0.4)}


def test_a_launch_on_a_node_that_is_not_there_is_refused(closing: ExitStack, folder: Path) -> None:
    executor, events = cluster(closing, {A: direct(agent_of(closing, A))})
    executor.perform(launch(B, folder), events.append)
    (failed,) = of_kind(events, GrantFailed)
    assert "'node-b' is not there" in failed.cause


def test_a_job_that_is_given_another_node_goes_on_there_from_its_checkpoint(closing: ExitStack, folder: Path) -> None:
    channels = {node: direct(agent_of(closing, node)) for node in (A, B)}
    executor, events = cluster(closing, channels)
    executor.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(executor) > 3)
    grant = {B: Resources(0.5)}
    executor.perform(ResizeJob(at=time.monotonic(), job=JOB, request=2, grant=grant, reason=WHY), events.append)
    (failed,) = wait_until(lambda: of_kind(events, JobFailed))
    assert (failed.retryable, failed.is_stopped) == (True, True)
    assert "moved to node 'node-b'" in failed.cause
    executor.perform(launch(B, folder, request=3), events.append)
    wait_until(lambda: steps_of(executor) > 3)
    assert of_kind(events, JobStarted)[-1].granted == grant


def test_a_launch_that_is_made_at_the_instant_of_an_end_is_performed_and_an_earlier_one_is_not(
    closing: ExitStack, folder: Path
) -> None:
    """So does a scheduler that moves a job: the end of its process and the next launch are one decision."""
    channels = {node: direct(agent_of(closing, node)) for node in (A, B)}
    executor, events = cluster(closing, channels)
    executor.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(executor) > 3)
    before_at, grant = time.monotonic(), {B: Resources(0.5)}
    executor.perform(ResizeJob(at=before_at, job=JOB, request=2, grant=grant, reason=WHY), events.append)
    (failed,) = wait_until(lambda: of_kind(events, JobFailed))
    executor.perform(replace(launch(B, folder, request=2), at=before_at), events.append)
    executor.perform(replace(launch(B, folder, request=3), at=failed.at), events.append)
    wait_until(lambda: len(of_kind(events, JobStarted)) == 2)
    assert of_kind(events, JobStarted)[-1].request == 3


def test_instants_of_a_node_with_another_clock_are_converted(closing: ExitStack, folder: Path) -> None:
    agent = agent_of(closing, A)
    host_clock = ShiftedClock(1000.0)
    events: list[Event] = []
    executor = ClusterExecutor(
        FixedMembers({A: direct(agent)}), generation=1, now=host_clock.now, start_facts_of=lambda _: StartFacts(environment=os.environ),
        jobs_at_once=lambda capacity: round(7 * capacity.cores),
    )  # fmt: skip
    closing.callback(executor.close)
    executor.start(events.append)
    (joined,) = wait_until(lambda: of_kind(events, NodeJoined))
    assert joined.capacity.memory_bytes > 0
    assert joined.jobs_at_once == round(7 * joined.capacity.cores)
    before_at = host_clock.now()
    command = launch(A, folder)
    executor.perform(replace(command, at=before_at, submitted_at=before_at), events.append)
    wait_until(lambda: steps_of(executor) > 0)
    executor.observe(JOB, host_clock.now(), events.append)
    instants = [event.at for event in events] + [event.unit_at for event in of_kind(events, ProgressReported)]
    assert all(before_at - 10.0 < at <= host_clock.now() for at in instants)


def test_a_job_whose_variables_are_gone_is_not_started_without_them(closing: ExitStack, folder: Path) -> None:
    members = FixedMembers({A: direct(agent_of(closing, A))})
    events: list[Event] = []
    executor = ClusterExecutor(members, generation=1, start_facts_of=lambda _: None)
    closing.callback(executor.close)
    executor.start(events.append)
    executor.perform(launch(A, folder), events.append)
    (failed,) = wait_until(lambda: of_kind(events, GrantFailed))
    assert (failed.request, failed.granted, failed.cause) == (1, {}, VARIABLES_GONE)


def test_the_offset_of_a_clock_is_known_as_well_as_the_fastest_exchange_tells() -> None:
    offset = ClockOffset()
    offset.take(10.0, 110.9, 111.0, 12.0)
    assert abs(offset.offset_s - 100.0) < 1.0
    offset.take(20.0, 120.01, 120.02, 20.03)
    assert abs(offset.offset_s - 100.0) < 0.01
    offset.take(30.0, 130.9, 131.0, 31.0)
    assert abs(offset.offset_s - 100.0) < 0.01, "a slow exchange says less"
    offset.take(40.0, 3740.9, 3741.0, 42.0)
    assert abs(offset.offset_s - 3700.0) < 1.0, "one of the machines has slept"


def test_a_job_goes_on_through_a_partition_and_nothing_is_lost(closing: ExitStack, folder: Path) -> None:
    wire = Wire(direct(agent_of(closing, A)))
    executor, events = cluster(closing, {A: wire})
    executor.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(executor) > 0)
    wire.cut()
    before = int((folder / "shared" / "step").read_text())
    wait_until(lambda: int((folder / "shared" / "step").read_text()) > before + 10)
    wire.mend()
    wait_until(lambda: steps_of(executor) > before + 10)
    assert len(pids_of(folder)) == 1
    assert not of_kind(events, NodeLost)


def test_a_node_that_is_silent_is_told_at_once_and_so_that_it_answers_again(
    closing: ExitStack, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    wire = Wire(direct(agent_of(closing, A)))
    executor, events = cluster(closing, {A: wire, B: direct(agent_of(closing, B))})
    assert [(news.silent_s, news.taken_cores) for news in executor.news().values()] == [(0.0, 0.0)] * 2
    wire.cut()
    (silent,) = wait_until(lambda: of_kind(events, NodeWarned))
    assert (silent.node, silent.reason.code) == (A, "silent-node")
    assert 0.0 < silent.reason.facts["silent_s"] < silent.reason.facts["lost_in_s"] < LOST_AFTER_S
    news = executor.news()
    assert news[A].silent_s >= silent.reason.facts["silent_s"]
    assert 0.0 < news[A].lost_in_s <= silent.reason.facts["lost_in_s"]
    assert news[B].silent_s == 0.0
    wire.mend()
    wait_until(lambda: len(of_kind(events, NodeWarned)) == 2)
    assert of_kind(events, NodeWarned)[-1].reason.code == "node-answers"
    assert executor.news()[A].silent_s == 0.0
    assert "node 'node-a' has not answered for" in caplog.text
    assert "node 'node-a' answers again" in caplog.text
    assert "node-b" not in caplog.text


def test_a_notice_on_a_node_is_told_with_its_end_on_this_clock_and_so_that_it_is_withdrawn(closing: ExitStack) -> None:
    _, events = cluster(closing, {A: direct(agent_of(closing, A))})
    before = time.monotonic()
    MachineNotice().record(before + 300.0)
    (noticed,) = wait_until(lambda: of_kind(events, NodeNoticed))
    assert noticed.node == A
    assert noticed.ends_at is not None
    assert before + 299.0 <= noticed.ends_at <= time.monotonic() + 301.0, "the two kinds of clocks may differ a bit"
    MachineNotice().record(None)
    wait_until(lambda: len(of_kind(events, NodeNoticed)) == 2)
    assert of_kind(events, NodeNoticed)[-1].ends_at is None


class Noting:
    """A channel that notes which processes have answered, and when each says that its node is taken away."""

    def __init__(self, channel: AgentChannel) -> None:
        self._channel = channel
        self.ends_at: dict[str, float | None] = {}

    def call(self, request: Request, limit_s: float) -> Answer:
        answer = self._channel.call(request, limit_s)
        self.ends_at[answer["incarnation"]] = answer.get("ends_at")
        return answer


def test_a_cloud_s_hook_on_a_node_tells_all_agents_there_and_one_that_comes_in_the_place_of_another(
    closing: ExitStack,
) -> None:
    processes = [AgentProcess(AgentOptions(name=f"hooked-{node}", node=node, actuator="pacing")) for node in (A, B)]
    for process in processes:
        closing.callback(end, process)
    first = Noting(processes[0])
    _, events = cluster(closing, {A: first, B: processes[1]})
    assert drain_here(30.0) == {"node": A}
    noticed = wait_until(lambda: of_kind(events, NodeNoticed), lambda noticed: len(noticed) == 2)
    assert {event.node for event in noticed} == {A, B}
    pid = processes[0].pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    *_, ends_at = wait_until(lambda: list(first.ends_at.values()), lambda told: len(told) == 2)
    assert ends_at == pytest.approx(noticed[0].ends_at, abs=10.0)
    drain_here(None)
    wait_until(lambda: {event.node for event in of_kind(events, NodeNoticed) if event.ends_at is None} == {A, B})


def test_an_agent_that_hangs_is_replaced(closing: ExitStack) -> None:
    process = AgentProcess(AgentOptions(name="hung", node=A, actuator="pacing", lost_after_s=6.0))
    closing.callback(end, process)
    cluster(closing, {A: process})
    pid = process.pid()
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    wait_until(lambda: process.pid() not in (None, pid))


@pytest.mark.parametrize("direction", ["both", "tells"])
def test_a_node_that_is_cut_off_for_long_ends_its_jobs_before_they_are_started_elsewhere(
    closing: ExitStack, folder: Path, direction: str
) -> None:
    lost_after_s = 8.0
    wire = Wire(direct(agent_of(closing, A, lost_after_s=lost_after_s)))
    other = direct(agent_of(closing, B, lost_after_s=lost_after_s))
    executor, events = cluster(closing, {A: wire, B: other}, lost_after_s=lost_after_s)
    executor.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(executor) > 5)
    (pid,) = pids_of(folder)
    wire.tells = False
    wire.hears = direction == "tells"
    wait_until(lambda: of_kind(events, NodeLost))
    assert [event.reason.code for event in of_kind(events, NodeWarned)] == ["silent-node", "lost-node"]
    assert not is_alive(pid), "it has ended before its host takes the node for lost"
    executor.perform(launch(B, folder, request=2), events.append)
    wait_until(lambda: steps_of(executor) > 5)
    wire.mend()
    wait_until(lambda: [event.node for event in of_kind(events, NodeJoined)].count(A) == 2)
    executor.perform(launch(A, folder, request=3), events.append)  # it runs: that is all that is said of it
    wait_until(lambda: len(of_kind(events, JobStarted)) == 3)
    assert of_kind(events, JobStarted)[-1].granted == {B: Resources(0.5)}
    assert len(pids_of(folder)) == 2
    assert not of_kind(events, JobFailed), "what the lost node had to say of its job counts no more"
    assert not of_kind(events, JobWarned), "it went on from its checkpoint"


def test_a_job_whose_checkpoint_the_other_node_cannot_read_starts_over_and_that_is_told(
    closing: ExitStack, folder: Path
) -> None:
    lost_after_s = 8.0
    wire = Wire(direct(agent_of(closing, A, lost_after_s=lost_after_s)))
    executor, events = cluster(
        closing, {A: wire, B: direct(agent_of(closing, B, lost_after_s=lost_after_s))}, lost_after_s=lost_after_s
    )
    executor.perform(launch(A, folder, checkpoint="nowhere"), events.append)
    wait_until(lambda: steps_of(executor) > 30)
    wire.cut()
    wait_until(lambda: of_kind(events, NodeLost))
    executor.perform(launch(B, folder, request=2, checkpoint="nowhere"), events.append)
    (warned,) = wait_until(lambda: of_kind(events, JobWarned))
    assert warned.reason.code == "other-node"
    assert "on node 'node-b', after step" in warned.reason.text


def request_to_launch(folder: Path) -> dict[str, Any]:
    """The request of the first host to launch a job."""
    command = encode_message(launch(A, folder))
    return {"verb": "do", "generation": [1, 0], "command": command, "incarnation": "", "seen": 0}


def test_an_agent_obeys_the_newest_host_alone(closing: ExitStack, folder: Path) -> None:
    agent = agent_of(closing, A)
    older, events = cluster(closing, {A: direct(agent)}, generation=1)
    newer, _ = cluster(closing, {A: direct(agent)}, generation=2)
    older.perform(launch(A, folder), events.append)
    assert agent.answer(request_to_launch(folder)) == {"superseded": [2, 0]}
    fresh: list[Event] = []
    newer.perform(launch(A, folder, job=OTHER), fresh.append)
    wait_until(lambda: of_kind(fresh, JobStarted))
    assert not pids_of(folder)


def test_an_agent_that_has_not_heard_for_long_obeys_only_a_host_that_still_counts_on_it(
    closing: ExitStack, folder: Path
) -> None:
    agent = agent_of(closing, A, lost_after_s=2.0)
    greeting = agent.answer({"verb": "greet", "generation": [1, 0], "reset": True})
    known = {"generation": [1, 0], "incarnation": greeting["incarnation"], "seen": 0, "stamp": None}
    agent.answer({"verb": "poll", **known, "wait_s": 0.0, "paused": [], "logged": {}})
    wait_until(lambda: agent._silent_s() > 2.0)
    assert agent.answer(request_to_launch(folder))["fenced"]
    assert not agent._executor.held()


def test_an_agent_of_a_name_is_one_process(closing: ExitStack) -> None:
    agent_of(closing, A)
    with pytest.raises(InvalidSpec, match="only one of its name"):
        new_agent(A)


def test_a_job_outlives_its_agent_and_the_one_that_comes_back_adopts_it(closing: ExitStack, folder: Path) -> None:
    process = AgentProcess(AgentOptions(name="killed", node=A, actuator="pacing"))
    closing.callback(lambda: end(process))
    executor, events = cluster(closing, {A: process})
    executor.perform(launch(A, folder), events.append)
    executor.perform(launch(A, folder, job=OTHER), events.append)
    wait_until(lambda: steps_of(executor) > 0 and steps_of(executor, OTHER) > 0)
    pid = process.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.kill(
        pids_of(folder, OTHER)[0], signal.SIGKILL
    )  # nobody is there who could say so, but the supervisor writes it down
    before = steps_of(executor)
    (failed,) = wait_until(lambda: of_kind(events, JobFailed))
    assert failed.job == OTHER
    assert "SIGKILL" in failed.cause
    wait_until(lambda: steps_of(executor) > before)
    assert process.pid() not in (pid, None)
    assert len(pids_of(folder)) == 1
    executor.perform(
        ResizeJob(at=time.monotonic(), job=JOB, request=2, grant={A: Resources(0.25)}, reason=WHY), events.append
    )
    wait_until(lambda: any(getattr(event, "granted", None) == {A: Resources(0.25)} for event in events))


def test_a_job_whose_agent_does_not_come_back_in_time_is_ended_by_its_supervisor(
    closing: ExitStack, folder: Path
) -> None:
    process = AgentProcess(AgentOptions(name="gone", node=A, actuator="pacing", lost_after_s=6.0))
    closing.callback(lambda: end(process))
    wire = Wire(process)
    executor, events = cluster(closing, {A: wire})
    executor.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(executor) > 0)
    wire.cut()
    pid = process.pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pids_of(folder)[0]))
    wire.mend()
    (failed,) = wait_until(lambda: of_kind(events, JobFailed))
    assert failed.is_lost


def test_an_agent_of_another_version_makes_way_for_the_one_that_is_installed_and_its_jobs_go_on(
    closing: ExitStack, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    process = AgentProcess(AgentOptions(name="updated", node=A, actuator="pacing"))
    closing.callback(lambda: end(process))
    first, events = cluster(closing, {A: process})
    first.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(first) > 0)
    pid, before = process.pid(), steps_of(first)
    first.release()
    second, events = cluster(closing, {A: process}, generation=2, known={A}, version="another")
    assert process.pid() not in (pid, None)
    wait_until(lambda: steps_of(second) > before)
    assert len(pids_of(folder)) == 1
    assert "and the service is another: update it there" in caplog.text, "what is installed is no newer"


def test_an_agent_that_was_needed_no_more_is_started_again(closing: ExitStack, folder: Path) -> None:
    process = AgentProcess(AgentOptions(name="again", node=A, actuator="pacing"))
    closing.callback(lambda: end(process))
    first, _ = cluster(closing, {A: process})
    first.close()
    wait_until(lambda: process.pid() is None)
    second, events = cluster(closing, {A: process}, generation=2)
    second.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(second) > 0)


# Hosts.


#: In tests in which a node is lost; in others nothing may count on how soon an answer comes.
SHORT_S = 8.0
may_lose_nodes = pytest.mark.parametrize("nodes", [SHORT_S], indirect=True)


@pytest.fixture
def nodes(closing: ExitStack, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> dict[NodeId, Wire]:
    """A cluster of two nodes, as every host finds it; the parameter is after how long one of them is lost."""
    lost_after_s = getattr(request, "param", LOST_AFTER_S)
    wires = {node: Wire(direct(agent_of(closing, node, lost_after_s=lost_after_s))) for node in (A, B)}
    monkeypatch.setattr(host_executor, "members_of", lambda run, options: FixedMembers(wires))
    return wires


CLUSTER = replace(PACED, engine="ray", policy="fifo")


def until_all(host: Host, holds: Callable[[], bool]) -> None:
    host.run_for(PATIENCE_S, holds)
    assert holds()


def test_a_host_runs_jobs_on_the_nodes_of_a_cluster(nodes: dict[NodeId, Wire], tmp_path: Path) -> None:
    with new_host("host", CLUSTER) as host:
        until_all(host, lambda: len(host.nodes()) == 2)
        cores = host.capacity.cores
        for name in ("a", "b"):  # each wants a node for itself
            host.submit(submission(name, floor_cores=cores, secret="written"))
        until_all(host, host.all_ended)
        assert {status.state for status in host.jobs()} == {"finished"}
    told_by_host = messages_of(run_named("host"))
    assert {node for event in told_by_host if isinstance(event, JobStarted) for node in event.granted} == {A, B}
    for name in ("a", "b"):
        assert run_named("host").log(JobId(name)).read_text() == "written\n", "what a job writes is where its host is"


def test_a_host_that_comes_back_goes_on_with_the_jobs_of_its_nodes(nodes: dict[NodeId, Wire], tmp_path: Path) -> None:
    go = tmp_path / "go"
    with new_host("host", CLUSTER) as host:
        until_all(host, lambda: len(host.nodes()) == 2)
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        host.hand_over()
    pid = pid_of_waiting(go)
    with resumed_host(run_named("host")) as host:
        until_all(host, lambda: host.status(JobId("a")).state == "running")
        assert is_alive(pid)
        go.touch()
        until_all(host, host.all_ended)
    told_by_host = messages_of(run_named("host"))
    (resumed,) = [event for event in told_by_host if isinstance(event, SteeringResumed)]
    assert list(resumed.granted) == [JobId("a")]
    assert pid_of_waiting(go) == pid


def test_what_ends_while_there_is_no_host_is_told_to_the_next_one(nodes: dict[NodeId, Wire], tmp_path: Path) -> None:
    go = tmp_path / "go"
    with new_host("host", CLUSTER) as host:
        until_all(host, lambda: len(host.nodes()) == 2)
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        host.hand_over()
    go.touch()
    wait_until(lambda: not is_alive(pid_of_waiting(go)))
    with resumed_host(run_named("host")) as host:
        until_all(host, host.all_ended)
    told_by_host = messages_of(run_named("host"))
    assert len([event for event in told_by_host if isinstance(event, JobFinished)]) == 1
    assert len([event for event in told_by_host if isinstance(event, LaunchJob)]) == 1


@may_lose_nodes
def test_jobs_that_nobody_steers_for_long_end_and_are_started_again_by_the_next_host(
    nodes: dict[NodeId, Wire], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with new_host("host", replace(CLUSTER, lost_after_s=SHORT_S)) as host:
        until_all(host, lambda: len(host.nodes()) == 2)
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        host.hand_over()
    pid = pid_of_waiting(go)
    wait_until(lambda: not is_alive(pid))
    with resumed_host(run_named("host")) as host:
        until_all(host, lambda: pid_of_waiting(go) != pid)
        go.touch()
        until_all(host, host.all_ended)
        assert host.status(JobId("a")).state == "finished"


def test_a_partition_that_ends_just_after_the_jobs_were_ended_loses_none(closing: ExitStack, folder: Path) -> None:
    wire = Wire(direct(agent_of(closing, A, lost_after_s=6.0)))
    executor, events = cluster(closing, {A: wire}, lost_after_s=600.0)  # this host would wait for longer
    executor.perform(launch(A, folder), events.append)
    wait_until(lambda: steps_of(executor) > 0)
    wire.cut()
    wait_until(lambda: not is_alive(pids_of(folder)[0]))
    wire.mend()
    (failed,) = wait_until(lambda: of_kind(events, JobFailed))
    assert (failed.retryable, failed.is_lost) == (True, True)
    executor.perform(launch(A, folder, request=2), events.append)
    wait_until(lambda: len(of_kind(events, JobStarted)) == 2)


def test_a_host_asks_for_room_while_a_job_waits_for_it_and_uses_the_node_that_comes(
    nodes: dict[NodeId, Wire], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    members = FixedMembers({A: nodes[A]})
    monkeypatch.setattr(host_executor, "members_of", lambda run, options: members)
    go = tmp_path / "go"
    with new_host("host", replace(CLUSTER, autoscale=2)) as host:
        until_all(host, lambda: len(host.nodes()) == 1)
        cores = host.capacity.cores
        for name in ("a", "b"):  # each wants a node for itself
            host.submit(submission(name, floor_cores=cores, awaited=go))
        needed = [{"CPU": int(cores), "GPU": 0}] * 2
        until_all(host, lambda: members.requests[-1:] == [needed])
        members.add(B, nodes[B])
        until_all(host, lambda: members.requests[-1] == [])
        until_all(host, lambda: {node for status in host.jobs() for node in status.granted} == {A, B})
        go.touch()
        until_all(host, host.all_ended)


def test_a_host_without_nodes_refuses_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_executor, "members_of", lambda run, options: FixedMembers({}))
    monkeypatch.setattr(cluster_executor, "_FIRST_S_MAX", 0.1)
    with new_host("host", CLUSTER) as host, pytest.raises(InvalidSpec, match="none of whose nodes has answered"):
        host.submit(submission("a"))


@may_lose_nodes
def test_the_jobs_of_a_lost_node_are_started_again_on_another(nodes: dict[NodeId, Wire], tmp_path: Path) -> None:
    go = tmp_path / "go"
    with new_host("host", replace(CLUSTER, lost_after_s=SHORT_S)) as host:
        until_all(host, lambda: len(host.nodes()) == 2)
        host.submit(submission("a", awaited=go))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        pid = pid_of_waiting(go)
        (node,) = host.status(JobId("a")).granted
        nodes[node].cut()
        until_all(host, lambda: pid_of_waiting(go) not in (0, pid))
        assert not is_alive(pid)
        assert list(host.status(JobId("a")).granted) == [({A, B} - {node}).pop()]
        go.touch()
        until_all(host, host.all_ended)
        assert host.status(JobId("a")).state == "finished"
        nodes[node].mend()


def test_jobs_leave_a_node_that_is_drained_and_come_back_to_one_that_is_not(
    nodes: dict[NodeId, Wire], tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with new_host("host", CLUSTER) as host:
        until_all(host, lambda: len(host.nodes()) == 2)
        host.submit(submission("a", awaited=go, n_retries=0))
        until_all(host, lambda: pid_of_waiting(go) > 0)
        pid = pid_of_waiting(go)
        (node,) = host.status(JobId("a")).granted
        other = ({A, B} - {node}).pop()
        with pytest.raises(InvalidSpec, match="node-a, node-b"):
            host.drain("node-c", 60.0)
        with pytest.raises(InvalidSpec, match="got no name"):
            host.drain("", 60.0)
        host.drain(node, 60.0)
        until_all(host, lambda: pid_of_waiting(go) not in (0, pid))
        assert not is_alive(pid), "it has left before it was started elsewhere"
        until_all(host, lambda: list(host.status(JobId("a")).granted) == [other])
        assert list(host.budget({})["leaving_nodes_wall"]) == [node]
        pid = pid_of_waiting(go)
        host.drain(other, 8.0)
        until_all(host, lambda: host.status(JobId("a")).state == "queued")
        assert not is_alive(pid)
        until_all(host, lambda: host.status(JobId("a")).reason is not None)
        host.drain(node, None)
        until_all(host, lambda: list(host.status(JobId("a")).granted) == [node])
        assert list(host.budget({})["leaving_nodes_wall"]) == [other]
        go.touch()
        until_all(host, host.all_ended)
        assert host.status(JobId("a")).state == "finished"
    history = history_of(messages_of(run_named("host")), JobId("a"))
    assert history.n_failures == 0
    steps = [step for step in decision_steps(history) if step.kind == "moved"]
    assert len(steps) == 2
    assert f"it was moved to node '{other}'" in steps[0].text
    assert f"'{other}' is taken away in" in steps[1].text, "there was no other"
