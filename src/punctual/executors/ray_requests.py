"""Process that asks a Ray cluster for nodes, and tells which there are; or that finds the address of this machine's cluster.

No other process of a service that asks for machines loads Ray. Standard input and output are JSON objects, a line each:

request
    ``{"want": [[resources, labels], ...], "drain": {id: is_forced}}``: all nodes to have, null for those asked for before, and
    nodes that are to end, by their ids in Ray, by force or if they are idle.
answer, about once a second
    ``{"nodes": {id: labels}, "vanished": [id, ...], "impossible": n}``: nodes that are there; others with which Ray has lost
    touch, on which processes may run on; and the number of wanted nodes if there can never be so many at once. Or
    ``{"away": why}`` where the cluster does not tell.

It is replaced when it has ended or hangs (`punctual.executors.cluster.line_process`).
"""

import json
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from punctual.executors.cluster.bridge_end import own_output
from punctual.executors.cluster.line_process import LineProcess, Words
from punctual.executors.cluster.link_loop import LinkLoop
from punctual.executors.cluster.machines import MachinesUnknown

#: Resources and labels of a wanted node.
WantedNode = tuple[Mapping[str, float], Mapping[str, str]]
_MODULE = "punctual.executors.ray_requests"
_STARTS = "the process that asks Ray for machines is just starting"
_ENDED = "the process that asks Ray for machines has ended, and is started again"
_NO_AUTOSCALER = (
    "the Ray cluster has no autoscaler that starts nodes by their labels: start its head with an autoscaling configuration, "
    "and RAY_enable_autoscaler_v2=1"
)


class RayRequests:
    """The process, started for the first query; usable from one thread.

    * `address`: address of the cluster, as for `ray.init`.
    * `silent_s_max`: seconds without an answer after which the process hangs; Ray ends it where its head is away for a minute.

    `n_impossible`: number of nodes that were wanted and can never be there at once, at the last `nodes`; 0: all can.
    `vanished`: nodes with which Ray had lost touch then.
    """

    def __init__(self, address: str, silent_s_max: float = 90.0) -> None:
        self._address, self._silent_s_max = address, silent_s_max
        #: Last request; None: there was none, and what the cluster was asked for before holds.
        self._request: dict[str, Any] | None = None
        #: The process, in a loop of its own; None: it was not needed yet.
        self._process: LineProcess | None = None
        self._loop: LinkLoop | None = None
        self._answer: Words = {}
        self._has_answered = threading.Event()
        self.n_impossible = 0
        self.vanished: frozenset[str] = frozenset()

    def ask(self, want: Sequence[WantedNode] | None, drain: Mapping[str, bool]) -> None:
        """Ask for these nodes in all, None: for those asked for before; and for the end of others."""
        self._request = {"want": want, "drain": drain}
        if self._loop is not None and self._process is not None:
            self._loop.call(self._process.say, self._request)

    def nodes(self) -> Mapping[str, Mapping[str, str]]:
        """Return the labels of all present nodes by id; raises `MachinesUnknown` if the cluster does not tell."""
        self._await_answer()
        answer = self._answer
        if "away" in answer:
            raise MachinesUnknown(f"{answer['away']}. Machines that are there go on")
        self.n_impossible, self.vanished = int(answer["impossible"]), frozenset(answer["vanished"])
        nodes: Mapping[str, Mapping[str, str]] = answer["nodes"]
        return nodes

    def close(self) -> bool:
        """Have the last request carried out, and end the process; return whether Ray has got it."""
        if self._request is None and self._process is None:
            return True
        process, loop = self._await_answer()
        has_ended_well = loop.begin(process.end()).result()
        loop.close(1.0)
        self._process = self._loop = None
        return has_ended_well

    def _await_answer(self) -> tuple[LineProcess, LinkLoop]:
        """Wait for the first answer of the present process, which is started if there was none."""
        if self._process is None or self._loop is None:
            command = [sys.executable, "-P", "-m", _MODULE, head_address(self._address)]
            self._answer = {"away": _STARTS}
            self._has_answered.clear()
            self._loop = LinkLoop()
            self._process = LineProcess(
                command,
                "asks Ray for machines",
                self._take,
                first=lambda: [] if self._request is None else [self._request],
                on_end=self._note_end,
                silent_s_max=self._silent_s_max,
            )
            self._loop.begin(self._process.run())
        # Seconds until Ray is loaded and has answered, on a busy machine.
        self._has_answered.wait(30.0)
        return self._process, self._loop

    def _take(self, answer: Words) -> None:
        self._answer = answer
        self._has_answered.set()

    def _note_end(self) -> None:
        self._answer = {"away": _ENDED}
        self._has_answered.clear()


def head_address(address: str) -> str:
    """Return HOST:PORT of a cluster's head, given as for `ray.init`; raises `MachinesUnknown` if none runs here."""
    if address not in ("", "auto"):
        return address
    command = [sys.executable, "-P", "-m", _MODULE, "auto"]
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60.0, check=False
        )
    except subprocess.TimeoutExpired:
        raise MachinesUnknown("the address of Ray's head is not known: Ray has not answered") from None
    if done.returncode or not done.stdout.strip():
        raise MachinesUnknown("the address of Ray's head is not known: name it (`--address HOST:PORT`)")
    return done.stdout.split()[-1]


class _Asking:
    """The process itself."""

    def __init__(self, address: str) -> None:
        self._address, self._output = address, own_output()
        self._request: dict[str, Any] = {"want": None, "drain": {}}
        self._has_request, self._ends = threading.Event(), threading.Event()
        self._asked: list[WantedNode] | None = None
        self._drained: set[str] = set()
        self._client: Any = None

    def run(self) -> int:
        threading.Thread(target=self._read, daemon=True).start()
        is_over = is_away = False
        while not is_over:
            is_over = self._ends.is_set()
            self._has_request.clear()
            try:
                answer, is_away = self._carry_out(), False
            except Exception as error:  # noqa: BLE001 -- whatever Ray raises
                self._client, is_away = None, True
                answer = {"away": f"Ray does not tell its nodes ({_first_line(error)})"}
            self._output.write(json.dumps(answer).encode() + b"\n")
            if not self._ends.is_set():
                self._has_request.wait(1.0)
        return int(is_away)

    def _read(self) -> None:
        for line in sys.stdin:
            self._request = json.loads(line)
            self._has_request.set()
        self._ends.set()
        self._has_request.set()

    def _carry_out(self) -> dict[str, Any]:
        from ray._raylet import GcsClient  # type: ignore[attr-defined]
        from ray.autoscaler.v2.sdk import request_cluster_resources
        from ray.autoscaler.v2.utils import is_autoscaler_v2
        from ray.core.generated.autoscaler_pb2 import DrainNodeReason

        if self._client is None:
            self._client = GcsClient(address=self._address)
            self._asked = None
            if not is_autoscaler_v2(fetch_from_server=True, gcs_client=self._client):
                raise RuntimeError(_NO_AUTOSCALER)
        request = self._request
        if request["want"] not in (None, self._asked):
            wanted = [{"resources": resources, "label_selector": labels} for resources, labels in request["want"]]
            request_cluster_resources(self._address, wanted)
            self._asked = request["want"]
        nodes = self._client.get_all_node_info().items()
        # `GcsNodeInfo.ALIVE`, and `NodeDeathInfo.UNEXPECTED_TERMINATION`.
        alive: dict[str, Mapping[str, str]] = {node.hex(): dict(info.labels) for node, info in nodes if info.state == 0}
        vanished = [node.hex() for node, info in nodes if info.state != 0 and info.death_info.reason == 2]
        for node in request["drain"].keys() & alive.keys() - self._drained:
            if request["drain"][node]:  # also with our relay on it, which keeps it from being idle
                self._client.drain_nodes(node_ids=[bytes.fromhex(node)])
            else:
                reason = DrainNodeReason.Value("DRAIN_NODE_REASON_IDLE_TERMINATION")
                self._client.drain_node(node, reason, "no machine of Punctual's", 0)
            self._drained.add(node)
        return {"nodes": alive, "vanished": vanished, "impossible": self._n_impossible()}

    def _n_impossible(self) -> int:
        from ray.core.generated.autoscaler_pb2 import GetClusterStatusReply

        status = GetClusterStatusReply()
        status.ParseFromString(self._client.get_cluster_status(timeout_s=10))
        constraints = status.autoscaling_state.infeasible_cluster_resource_constraints
        return max((sum(each.count for each in constraint.resource_requests) for constraint in constraints), default=0)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def _found_address() -> int:
    from ray._private.services import get_ray_address_from_environment  # there is no public way

    try:
        sys.stdout.write(get_ray_address_from_environment("auto", None))
    except ConnectionError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(_found_address() if sys.argv[1] == "auto" else _Asking(sys.argv[1]).run())
