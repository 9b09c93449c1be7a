"""A host goes on whatever other processes of its user send to its control socket."""

import gc
import json
import os
import socket
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from copy import deepcopy
from pathlib import Path
from random import Random
from threading import active_count
from typing import Any

import pytest
from tests.api.live_service import steered_host
from tests.daemon.live_jobs import submission
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon import control_socket
from punctual.daemon.control_client import standings
from punctual.daemon.control_socket import ControlFailed, ask
from punctual.daemon.host import Host
from punctual.request.submission import encode_submission

#: What no field of a request should hold, with what some of them may.
ODD: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 0.5, 1e-300, 1e308, 10**400, float("nan"), float("inf"), float("-inf"), "", "a", "b", "0", "-1s",
    "now+1h", "99999999999999d", "none", "\0", "\ud800", "../../a", "x" * 5000, [], [[]], ["a"], ["a", None], {}, {"": {}},
    {"a": 1}, {"deadline_s": 1}, {"local": {"cores": -1}}, [1e400] * 3,
)  # fmt: skip
VERBS = (
    "status",
    "change",
    "pause",
    "resume",
    "policy",
    "drain",
    "submit",
    "quote",
    "stop",
    "nonsense",
    "",
    None,
    3,
    ["status"],
)
FIELDS = (
    "job",
    "jobs",
    "change",
    "when",
    "cause",
    "policy",
    "parameters",
    "streams",
    "submission",
    "cores",
    "more",
    "node",
    "in_s",
)
CHANGES = ("deadline_s", "weight", "floor_cores", "ceiling_cores", "n_least", "n_most", "other")
#: What may grow with any number of requests: caches and the like.
_GROWTH_BYTES = 1 << 20


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    """It steers job `a`, which waits."""
    with steered_host() as made:
        made.submit(submission("a", awaited=tmp_path / "go", deadline_s=3600.0))
        wait_until(lambda: made.knows(JobId("a")))
        yield made


def is_steering(host: Host) -> bool:
    """Whether the host still handles what comes: a change is in force once it is answered."""
    ask(host.run_folder.socket, {"verb": "change", "job": "a", "change": {"weight": 2.0}}, PATIENCE_S)
    return [job["job"] for job in standings(host.run_folder)][:1] == ["a"] and not host.has_ended(JobId("a"))


def odd_request(random: Random, told: dict[str, Any]) -> Any:
    """A request of which a part, or all, is not as it should be; `told`: a submission as it should be."""
    if random.random() < 0.1:
        return random.choice(ODD)
    if random.random() < 0.3:
        odd = with_odd_leaves(random, told)
        return random.choice(
            [
                {"verb": "submit", "jobs": [odd], "streams": {}},
                {"verb": "quote", "submission": odd, "cores": [1.0]},
            ]
        )
    request: dict[str, Any] = {"verb": random.choice(VERBS), "job": "a"}
    for field in random.sample(FIELDS, random.randrange(4)):
        request[field] = deepcopy(random.choice(ODD))
    if random.random() < 0.5:
        request["change"] = {name: deepcopy(random.choice(ODD)) for name in random.sample(CHANGES, random.randrange(4))}
    # Whoever stops the job is right to.
    return request if request["verb"] != "stop" or request["job"] != "a" else {**request, "verb": "resume"}


def with_odd_leaves(random: Random, told: dict[str, Any]) -> dict[str, Any]:
    """A submission of a job with another name, some of whose values are others."""
    fields = json.loads(told["submitted"])
    fields["spec"]["id"] = f"job-{random.randrange(3)}"
    for _ in range(random.randint(1, 3)):
        place: Any = fields
        while isinstance(place, dict) and place:
            name = random.choice(list(place))
            if not isinstance(place[name], dict) or not place[name] or random.random() < 0.2:
                place[name] = deepcopy(random.choice(ODD))
                break
            place = place[name]
    return {**told, "submitted": json.dumps(fields)}


def frame(random: Random, told: dict[str, Any]) -> bytes:
    """What is sent: a request, a part of one, or anything."""
    kind = random.randrange(4)
    if kind == 0:
        return random.randbytes(random.choice([0, 1, 10, 1000, 70_000]))
    line = json.dumps(odd_request(random, told)).encode() + b"\n"
    if kind == 1:
        return line[: random.randrange(len(line))]
    return line if kind == 2 else line + random.randbytes(20) + line


def send(path: Path, text: bytes, random: Random) -> str:
    """Send it, end one direction or both or neither, and give what is answered; empty: nothing."""
    with socket.socket(socket.AF_UNIX) as client, suppress(OSError):
        client.settimeout(PATIENCE_S)
        client.connect(str(path))
        client.sendall(text)
        if random.random() < 0.2:
            return ""  # it does not wait for the answer
        client.shutdown(socket.SHUT_WR)
        with client.makefile("rb") as lines:
            return lines.readline().decode()
    return ""


def n_descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))  # noqa: PTH208 -- one that is open meanwhile counts each time


def play(host: Host, seed: int, n_frames: int) -> set[str]:
    """Send so many frames; what kinds of answers there were."""
    random, told, kinds = Random(seed), encode_submission(submission("other")), set[str]()
    for _ in range(n_frames):
        said = send(host.run_folder.socket, frame(random, deepcopy(told)), random)
        kinds |= set(json.loads(said)) if said else set()
    return kinds


@pytest.mark.parametrize("seed", range(4))
def test_a_host_goes_on_whatever_it_is_asked(host: Host, seed: int, caplog: pytest.LogCaptureFixture) -> None:
    assert is_steering(host)
    assert {"failed", "refused"} <= play(host, seed, 600) <= {"answer", "failed", "refused"}
    assert is_steering(host)
    assert not [record for record in caplog.records if record.exc_info], "nothing of ours has failed"


def test_a_request_of_another_version_is_refused_and_what_to_do_is_told(host: Host) -> None:
    host.submit(submission("known"))
    change = {"verb": "change", "job": "known", "change": {"floor_cores": 1.0}}
    for request in ({"verb": "sing"}, {"verb": "submit", "jobs": [{}], "streams": {}}, change):
        with pytest.raises(InvalidSpec, match="of another version") as caught:
            ask(host.run_folder.socket, request)
        assert "punctual down --jobs continue" in caught.value.remedy


@pytest.mark.parametrize("at", [-1.0, 1e308, 10**400, float("nan"), float("inf")])
def test_a_job_cannot_be_submitted_at_another_time(host: Host, at: float) -> None:
    told = encode_submission(submission("other"))
    fields = {**json.loads(told["submitted"]), "at": at}
    with pytest.raises((InvalidSpec, ControlFailed)):
        ask(
            host.run_folder.socket,
            {"verb": "submit", "jobs": [{**told, "submitted": json.dumps(fields)}], "streams": {}},
        )
    assert is_steering(host)


def settled(look: Callable[[], int], most: int) -> None:
    wait_until(look, lambda n: n <= most)


def test_requests_leave_no_descriptor_no_thread_and_no_memory(host: Host) -> None:
    play(host, 100, 60)
    assert is_steering(host)
    n_files, n_threads = n_descriptors(), active_count()
    tracemalloc.start()
    try:
        play(host, 101, 30)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        play(host, 102, 150)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < _GROWTH_BYTES
    settled(n_descriptors, n_files + 5)
    settled(active_count, n_threads + 5)
    assert is_steering(host)


def test_a_request_that_is_too_long_is_read_no_further(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_REQUEST_BYTES_MAX", 1 << 20)
    told, random = b'{"verb": "status", "more": "' + b"x" * (4 << 20) + b'"}\n', Random(0)
    assert "failed" in (send(host.run_folder.socket, told, random) or "failed: the connection was closed")
    assert is_steering(host)


def test_many_clients_that_say_nothing_or_half_a_request_keep_nobody_out_for_good(host: Host) -> None:
    n_files = n_descriptors()
    with ExitStack() as open_ones:
        for i in range(400):
            client = open_ones.enter_context(socket.socket(socket.AF_UNIX))
            client.connect(str(host.run_folder.socket))
            with suppress(OSError):  # it is one too many, and was sent away
                client.sendall(b'{"verb": "st' if i % 2 else b"")
            if i % 3 == 0:
                with suppress(OSError):
                    client.shutdown(socket.SHUT_WR)

    def answers() -> bool:
        with suppress(ControlFailed):
            return is_steering(host)
        return False

    wait_until(answers)
    settled(n_descriptors, n_files + 5)
