"""The process by which a host talks to a cluster: it answers, it may end, and the host goes on."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.waiting import wait_until

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.executors.cluster import bridge, line_process
from punctual.executors.cluster.bridge import BridgedMembers
from punctual.executors.cluster.channel import Answer, ChannelLost
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.cluster.node_limits import NodeFacts, NodeOverride
from punctual.executors.cluster.node_names import NodeNames

SCRIPT = Path(__file__).parents[1] / "plants" / "bridge_process.py"
ECHO, SLOW, GONE = NodeId("echo"), NodeId("slow"), NodeId("gone")


@pytest.fixture
def loop() -> Iterator[LinkLoop]:
    made = LinkLoop()
    yield made
    made.close(60.0)


@pytest.fixture
def members(loop: LinkLoop, monkeypatch: pytest.MonkeyPatch) -> Iterator[BridgedMembers]:
    monkeypatch.setattr(line_process, "_AGAIN_S", 0.02)
    made = BridgedMembers([sys.executable, str(SCRIPT)], NodeNames(), silent_s_max=20.0)
    made.open(loop, None)
    yield made
    made.close(for_good=True)


def asked(loop: LinkLoop, members: BridgedMembers, node: NodeId, limit_s: float = 60.0, **request: object) -> Answer:
    async def answer() -> Answer:
        return await members.channels()[node](request, limit_s)

    return loop.begin(answer()).result(200.0)


def test_an_agent_answers_by_way_of_the_process_whatever_else_that_prints(
    loop: LinkLoop, members: BridgedMembers
) -> None:
    assert members.channels().keys() == {ECHO, SLOW, GONE}
    long = "long" * 100_000
    assert asked(loop, members, ECHO, say=long)["said"] == long


def test_an_agent_that_does_not_answer_is_lost_and_says_why(loop: LinkLoop, members: BridgedMembers) -> None:
    with pytest.raises(ChannelLost, match="it is gone"):
        asked(loop, members, GONE)


def test_an_answer_that_comes_too_late_holds_up_no_other(
    loop: LinkLoop, members: BridgedMembers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge, "_WAY_S", 0.0)
    with pytest.raises(ChannelLost):
        asked(loop, members, SLOW, 0.0, say="too late")
    assert asked(loop, members, ECHO, say="now")["said"] == "now"
    assert asked(loop, members, SLOW, say="again")["said"] == "again"


def test_a_process_that_ends_is_started_again_and_what_was_asked_is_lost(
    loop: LinkLoop, members: BridgedMembers
) -> None:
    pid = asked(loop, members, ECHO, say="")["pid"]
    channel = members.channels()[ECHO]
    with pytest.raises(ChannelLost):
        asked(loop, members, ECHO, die=True)

    async def again() -> Answer:
        while True:
            try:
                return await channel({"say": "back"}, 60.0)
            except ChannelLost:
                await asyncio.sleep(0.02)

    answer = loop.begin(again()).result(200.0)
    assert answer["said"] == "back"
    assert answer["pid"] != pid
    wait_until(lambda: is_known(members))


def test_a_process_that_hangs_is_replaced_and_what_was_asked_is_lost(
    loop: LinkLoop, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(line_process, "_AGAIN_S", 0.02)
    members = BridgedMembers([sys.executable, str(SCRIPT)], NodeNames(), silent_s_max=5.0)
    members.open(loop, None)
    try:
        pid = wait_until(lambda: _pid_of(loop, members))
        with pytest.raises(ChannelLost, match="has ended"):
            asked(loop, members, ECHO, hang=True)
        wait_until(lambda: _pid_of(loop, members) not in {None, pid})
        assert "the process that talks to the cluster hangs: no word for 5 s" in caplog.text
    finally:
        members.close(for_good=True)


def test_nodes_are_told_where_they_are_others_than_before() -> None:
    with subprocess.Popen([sys.executable, str(SCRIPT)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["nodes"].keys() == {"id-echo", "id-slow", "id-gone"}
        assert json.loads(process.stdout.readline()) == {}
        process.stdin.write(b'{"want": [{"CPU": 2, "GPU": 0}]}\n')
        process.stdin.flush()
        while not (told := json.loads(process.stdout.readline())):
            pass
        assert "id-cpus-2" in told["nodes"]
        process.stdin.close()


@pytest.mark.parametrize("loss", ["lose", "stick", "break"])
def test_a_process_that_has_lost_its_cluster_for_good_makes_way_for_another(
    loop: LinkLoop, members: BridgedMembers, loss: str
) -> None:
    pid = asked(loop, members, ECHO, say="", **{loss: True})["pid"]

    def answering() -> int:
        try:
            return int(asked(loop, members, ECHO, say="")["pid"])
        except ChannelLost:
            return pid

    wait_until(lambda: answering() != pid)


def test_machines_of_pools_have_the_names_and_limits_that_the_host_says_and_so_by_the_process_that_follows(
    loop: LinkLoop,
) -> None:
    seen: list[NodeFacts] = []

    def name_of(facts: NodeFacts) -> tuple[NodeId, NodeOverride] | None:
        if facts.host != ECHO:
            return None
        seen.append(facts)
        if len(seen) == 1:
            raise ConnectionError("its provider does not answer yet")
        return NodeId("spot-0"), NodeOverride(cores=1.0, device="red")

    members = BridgedMembers([sys.executable, str(SCRIPT)], NodeNames())
    members.open(loop, name_of)
    try:
        assert members.channels().keys() == {SLOW, GONE}
        assert members.channels().keys() == {SLOW, GONE, "spot-0"}
        assert (seen[0].id, seen[0].labels) == ("id-echo", {"color": "red"})
        with pytest.raises(ChannelLost):
            asked(loop, members, NodeId("spot-0"), die=True)
        wait_until(lambda: is_known(members) and _pid_of(loop, members, NodeId("spot-0")) is not None)
        answer = asked(loop, members, NodeId("spot-0"), say="")
        assert (answer["name"], answer["capacity"]["cores"], answer["device"]) == ("spot-0", 1.0, "red")
        assert len(seen) == 2
    finally:
        members.close(for_good=True)


def is_known(members: BridgedMembers) -> bool:
    try:
        return bool(members.channels())
    except ChannelLost:
        return False


def test_a_cluster_that_cannot_be_reached_is_told_as_the_process_tells_it(loop: LinkLoop) -> None:
    members = BridgedMembers([sys.executable, str(SCRIPT), "refuse"], NodeNames())
    with pytest.raises(InvalidSpec, match="it must be there"):
        members.open(loop, None)
    members.close(for_good=True)


def test_what_the_cluster_is_to_have_room_for_is_told_to_the_process_and_to_the_one_that_follows_it(
    loop: LinkLoop, members: BridgedMembers
) -> None:
    # The first request to the cluster fails, so it is asked again.
    members.request([{"CPU": 1, "GPU": 0}, {"CPU": 2, "GPU": 0}])
    wait_until(lambda: "cpus-3" in members.channels())
    pid = asked(loop, members, ECHO, say="")["pid"]
    with pytest.raises(ChannelLost):
        asked(loop, members, ECHO, die=True)
    wait_until(lambda: _pid_of(loop, members) not in {None, pid})
    wait_until(lambda: "cpus-3" in members.channels())


def _pid_of(loop: LinkLoop, members: BridgedMembers, node: NodeId = ECHO) -> object:
    try:
        return asked(loop, members, node, say="")["pid"]
    except ChannelLost:
        return None
