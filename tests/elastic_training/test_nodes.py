"""Workers of one training on several nodes: processes of this machine that share nothing but a connection over TCP."""

import os
import signal
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from _processes import children
from tests.elastic_training.agent_stage import Stage
from tests.waiting import wait_until

from punctual.channel import GROUP_KEY_VARIABLE, GROUP_VARIABLE, NODE_ADDRESS_VARIABLE, Directives
from punctual.elastic_training import handshakes, links
from punctual.elastic_training.collectives import Apart, Collectives
from punctual.elastic_training.group_key import SecureSockets, certificate_of, new_key
from punctual.elastic_training.handshakes import Handshakes
from punctual.elastic_training.membership import Membership, NodePlace
from punctual.elastic_training.message_stream import MessageStream
from punctual.elastic_training.node_connections import NodeConnections

HERE = Path(__file__).parent
LINK_TRAINING = str(HERE / "link_training.py")
ADDRESS = "127.0.0.1"
#: Longer than a slot, and not a multiple of its length.
LONG = links.SLOT_BYTES // 4 + 1001

Work = Callable[[int, Collectives], Any]


class Nodes:
    """Workers in threads on so many nodes, connected as the agents would connect them."""

    def __init__(self, *n_workers: int, n_strangers: int = 0) -> None:
        self.is_broken = False
        certificate = certificate_of(new_key())
        listening = [socket.create_server((ADDRESS, 0)) for _ in n_workers]
        self._strangers = [socket.create_connection(one.getsockname()) for one in listening for _ in range(n_strangers)]
        places = tuple(NodePlace(ADDRESS, one.getsockname()[1], n) for one, n in zip(listening, n_workers, strict=True))
        self._makers: list[Callable[[], Collectives]] = []
        for i_node, (n_here, own) in enumerate(zip(n_workers, listening, strict=True)):
            with ExitStack() as opened:
                fds = links.make(n_here, opened, n_everywhere=sum(n_workers), listening=own)
                for i, handed in enumerate(fds):
                    made = links.Links.of(i, list(map(os.dup, handed)), is_open=True)
                    membership = Membership(
                        generation=3, rank=len(self._makers), n_workers=sum(n_workers), links=made, nodes=places,
                        i_node=i_node, certificate=certificate,
                    )  # fmt: skip
                    self._makers.append(self._maker(membership))
            own.close()
        self.members: list[Any] = [None] * len(self._makers)
        self.play(lambda rank, _: None)

    def _maker(self, membership: Membership) -> Callable[[], Collectives]:
        def make() -> Collectives:
            own, nodes = membership.links, None
            assert own is not None
            if own.listening is not None:
                nodes = NodeConnections.formed(membership, own.listening, lambda: self.is_broken)
            return Collectives(
                membership.rank, membership.n_workers, own, lambda: self.is_broken, places=membership.places,
                i_node=membership.i_node, nodes=nodes,
            )  # fmt: skip

        return make

    def play(self, work: Work) -> list[Any]:
        """What each has returned, or raised as an `OSError`."""
        found: list[Any] = [None] * len(self._makers)

        def run(rank: int) -> None:
            try:
                self.members[rank] = self.members[rank] or self._makers[rank]()
                found[rank] = work(rank, self.members[rank])
            except OSError as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(found))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def close(self) -> None:
        for member in self.members:
            member.close()
        for stranger in self._strangers:
            stranger.close()


@pytest.fixture
def nodes() -> Iterator[Callable[..., Nodes]]:
    with ExitStack() as opened:

        def make(*n_workers: int, n_strangers: int = 0) -> Nodes:
            made = Nodes(*n_workers, n_strangers=n_strangers)
            opened.callback(made.close)
            return made

        yield make


def numbers(rank: int, n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(rank)).mul(100).to(dtype)


@pytest.mark.parametrize("n_workers", [(1, 1), (2, 3), (1, 10, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_all_have_the_sum_in_the_order_of_ranks(
    nodes: Callable[..., Nodes], n_workers: Sequence[int], dtype: torch.dtype
) -> None:
    made = nodes(*n_workers)
    for n in (1, 1000, LONG):
        expected = numbers(0, n, dtype)
        for rank in range(1, sum(n_workers)):
            expected += numbers(rank, n, dtype)

        def work(rank: int, own: Collectives, n: int = n) -> torch.Tensor:
            mine = numbers(rank, n, dtype)
            own.add_up(mine)
            return mine

        assert all(torch.equal(found, expected) for found in made.play(work))


def test_everything_else_arrives_too(nodes: Callable[..., Nodes]) -> None:
    n_workers = 4
    made = nodes(1, 2, 1)
    sizes = [LONG, 3, 1, 7]  # of the rows that each sends

    def work(rank: int, own: Collectives) -> tuple[Any, ...]:
        shared = numbers(2, 3 * LONG) if rank == 2 else torch.zeros(3 * LONG)
        own.send_from(2, shared)
        rows = torch.stack([numbers(10 * rank + to, sizes[rank]) for to in range(n_workers)])
        return shared, own.exchange(rows, sizes), own.collect(numbers(rank, LONG))

    for rank, (shared, exchanged, collected) in enumerate(made.play(work)):
        assert torch.equal(shared, numbers(2, 3 * LONG))
        for sender, received in enumerate(exchanged):
            assert torch.equal(received, numbers(10 * sender + rank, sizes[sender]))
        assert torch.equal(collected, torch.stack([numbers(other, LONG) for other in range(n_workers)]))


def test_who_leaves_is_missed_by_all(nodes: Callable[..., Nodes]) -> None:
    made = nodes(2, 1)

    def work(rank: int, own: Collectives) -> None:
        with closing(own):  # as whoever misses one leaves too
            while rank != 2:
                own.add_up(torch.ones(5))

    *found, _ = made.play(work)
    assert all(isinstance(error, ConnectionError) for error in found)


def test_a_wait_for_another_node_ends_when_the_agent_has_missed_a_member(nodes: Callable[..., Nodes]) -> None:
    made = nodes(1, 1)

    def work(rank: int, own: Collectives) -> None:
        if rank == 1:
            made.is_broken = True
        else:
            own.add_up(torch.ones(5))

    assert isinstance(made.play(work)[0], ConnectionError)


def test_only_who_has_the_key_is_heard() -> None:
    key = new_key()
    mine, stranger = SecureSockets(certificate_of(key)), SecureSockets(certificate_of(new_key()))
    anonymous = ssl.create_default_context()
    anonymous.check_hostname, anonymous.verify_mode = False, ssl.CERT_NONE
    with socket.create_server((ADDRESS, 0)) as listening:
        place, own = listening.getsockname(), Handshakes(mine, listening)
        attempts: list[Callable[[], Any]] = [
            lambda: stranger.connect(place, 10.0),
            lambda: anonymous.wrap_socket(socket.create_connection(place, 10.0)),
        ]
        for attempt in attempts:
            thread = threading.Thread(target=lambda attempt=attempt: refused(attempt))
            thread.start()
            while thread.is_alive():
                assert not own.advance(0.01)
            thread.join()
        thread = threading.Thread(target=lambda: SecureSockets(certificate_of(key)).connect(place, 10.0).close())
        thread.start()
        wait_until(lambda: own.advance(0.01))[0].close()
        thread.join()


@pytest.mark.parametrize("content", [b"{\n", b"x" * (1 << 24)], ids=["garbage", "endless"])
def test_a_stream_ends_with_what_is_no_message(content: bytes) -> None:
    sockets, is_over = SecureSockets(certificate_of(new_key())), threading.Event()
    with socket.create_server((ADDRESS, 0)) as listening:
        own, place = Handshakes(sockets, listening), listening.getsockname()

        def send() -> None:
            with sockets.connect(place, 10.0) as connection, suppress(OSError):
                connection.sendall(content)
                is_over.wait()

        sending = threading.Thread(target=send)
        sending.start()
        stream = MessageStream(wait_until(lambda: own.advance(0.01))[0])
        try:
            wait_until(lambda: (stream.receive(), stream.is_open), lambda seen: seen == ([], False))
        finally:
            is_over.set()
            stream.close()
            sending.join()


@pytest.mark.parametrize("n_strangers", [3, 100])
def test_strangers_who_say_nothing_keep_no_node_waiting(
    nodes: Callable[..., Nodes], n_strangers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handshakes, "_N_MAX", 64)
    made = nodes(1, 2, n_strangers=n_strangers)

    def work(_: int, own: Collectives) -> list[float]:
        own.add_up(summed := torch.ones(2))
        return summed.tolist()

    assert made.play(work) == [[3.0, 3.0]] * 3


@pytest.mark.parametrize("i_other", [0, 2])
def test_a_worker_that_does_something_else_on_another_node_is_found_out(
    nodes: Callable[..., Nodes], i_other: int
) -> None:
    def work(rank: int, own: Collectives) -> str:
        try:
            if rank == i_other:
                own.collect(torch.ones(1))
            else:
                own.add_up(torch.ones(LONG))
        except Apart:
            return "apart"
        finally:
            own.close()
        return "together"

    heard = nodes(2, 1).play(work)
    assert "apart" in heard
    assert "together" not in heard


def test_a_handshake_that_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handshakes, "LIMIT_S", 0.05)
    with socket.create_server((ADDRESS, 0)) as listening, socket.create_server((ADDRESS, 0)) as silent:
        own = Handshakes(SecureSockets(certificate_of(new_key())), listening)
        with socket.create_connection(listening.getsockname()) as stranger:
            stranger.settimeout(0.01)
            assert wait_until(lambda: own.advance(0.01) or said(stranger), lambda heard: heard != []) == b""
        own.connect(silent.getsockname(), 0.05)
        with pytest.raises(TimeoutError):
            wait_until(lambda: own.advance(0.01))


def said(connection: socket.socket) -> bytes | list[Any]:
    """Empty bytes: the other side has closed it; an empty list: nothing yet."""
    try:
        return connection.recv(1)
    except TimeoutError:
        return []


def refused(attempt: Callable[[], Any]) -> None:
    try:
        with attempt() as connection:
            assert not connection.recv(1)
    except OSError:
        pass


# Processes.


def with_address(environment: dict[str, str]) -> dict[str, Any]:
    return {NODE_ADDRESS_VARIABLE: ADDRESS, **environment}


class TwoNodes:
    """A training on a first node, and what Punctual starts of it on another."""

    def __init__(self, folder: Path) -> None:
        self.folders = [folder / name for name in ("first", "other")]
        for node in self.folders:
            node.mkdir()
        self.first, self.other = map(Stage, self.folders)
        self._closing = [self.first, self.other]

    def start(self, *argv: str, **environment: str) -> None:
        self.argv = argv
        self.first.spans_nodes = True
        self.first.start(*argv, **with_address(environment))

    def join(self, n_workers: int = 1, **environment: str) -> Any:
        """Start it on the other node; its status there once it is a member."""
        port, key = wait_until(self.first.page.group) or (0, b"")
        group = with_address({GROUP_VARIABLE: f"{ADDRESS}:{port}", GROUP_KEY_VARIABLE: key.hex()})
        self.other.start(*self.argv, n_workers=n_workers, **{**group, **environment})
        return self.other.await_status(lambda status: status.request > 0)

    def close(self) -> None:
        for node in self._closing:
            node.close()


def ports_of(pid: int) -> set[int]:
    """Where a process listens."""
    opened = set()
    for fd in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            opened.add(str(fd.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {int(row[1].partition(":")[2], 16) for row in rows if row[3] == "0A" and f"socket:[{row[9]}]" in opened}


@contextmanager
def silence(ports: set[int], n_each: int = 5) -> Iterator[None]:
    """As many connections at each port on which nothing is said; for one that is closed there is soon another one."""
    is_over, connected = threading.Event(), threading.Semaphore(0)

    def keep(port: int) -> None:
        while not is_over.is_set():
            with suppress(OSError), socket.create_connection((ADDRESS, port), 1.0) as connection:
                connection.settimeout(0.1)
                connected.release()
                while not is_over.is_set():
                    with suppress(TimeoutError):
                        if not connection.recv(1):
                            break

    threads = [threading.Thread(target=keep, args=(port,)) for port in sorted(ports) * n_each]
    for thread in threads:
        thread.start()
    try:
        for _ in threads:
            assert connected.acquire(timeout=10.0)
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()


@pytest.fixture
def two(tmp_path: Path) -> Iterator[TwoNodes]:
    made = TwoNodes(tmp_path)
    yield made
    made.close()


def test_workers_of_another_node_join_and_leave(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    two.first.await_status(lambda status: status.generation > 0 and status.n_workers == 1)
    assert two.join(n_workers=2).n_workers == 2
    generation = two.first.await_status(lambda status: status.generation > 1).generation
    assert two.first.page.worker_status().n_workers == 1
    assert two.other.resize(1).n_workers == 1
    assert two.first.resize(2).n_workers == 2
    two.other.page.send(Directives(stop=True))
    assert two.other.exit_code() == 143
    status = two.first.await_status(lambda status: status.generation >= generation + 3)
    assert (status.n_workers, status.n_workers_lost, status.n_steps_redone) == (2, 0, 0)


def test_a_node_that_is_lost_is_done_without_and_may_come_back(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    two.first.await_status(lambda status: status.n_workers == 1)
    two.join()
    generation = two.first.page.worker_status().generation
    os.kill(two.other.agent_pid, signal.SIGKILL)
    two.first.await_status(lambda status: status.generation > generation)
    assert "a node must stay until it is told to leave" in two.first.output()
    wait_until(lambda: not two.other.is_running())
    two.join()
    os.kill(
        two.first.workers()[0], signal.SIGKILL
    )  # the first worker: another one takes its place, with the other's state
    status = two.first.await_status(lambda status: status.n_workers_lost == 1 and status.n_workers == 1)
    two.first.await_status(
        lambda later: later.generation > status.generation or later.last_stop_ns > status.last_stop_ns
    )


def test_without_the_first_node_the_other_ends(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    two.join()
    os.kill(two.first.agent_pid, signal.SIGKILL)
    assert two.other.exit_code() == 70


def test_a_training_that_ends_ends_on_all_nodes(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_a_while", "torch.distributed")
    two.join()
    assert two.first.exit_code() == 0
    assert two.other.exit_code() == 0


@pytest.mark.parametrize(
    ("group", "address", "told"),
    [
        (f"{ADDRESS}:1", ADDRESS, "each node of a job must reach its first one"),
        (f"{ADDRESS}:1", "192.0.2.1", "the address of a node must be one of its own"),
    ],
)
def test_a_node_that_cannot_reach_the_first_one_says_so(two: TwoNodes, group: str, address: str, told: str) -> None:
    environment = with_address({GROUP_VARIABLE: group, GROUP_KEY_VARIABLE: new_key().hex()})
    environment[NODE_ADDRESS_VARIABLE] = address
    two.other.start(LINK_TRAINING, "for_ever", **environment)
    cause = two.other.await_status(lambda status: status.request > 0).cause
    assert told in cause
    assert "the network" not in cause, "the other machine has answered: its process may have ended"
    two.other.page.send(Directives(stop=True))
    assert two.other.exit_code() == 70
    assert NODE_ADDRESS_VARIABLE in two.other.output()


def test_a_node_that_can_have_no_workers_says_so_and_the_others_go_on(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    two.first.await_status(lambda status: status.n_workers == 1)
    two.argv = LINK_TRAINING, "for_ever", "no_such_module"
    assert "No module named 'no_such_module'" in two.join().cause
    assert two.first.resize(2).n_workers == 2
    assert two.other.exit_code() == 70


def test_a_node_whose_forkserver_has_died_is_done_without(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    two.first.await_status(lambda status: status.n_workers == 1)
    two.join()
    generation = two.first.page.worker_status().generation
    (forkserver,) = children(two.other.agent_pid)
    os.kill(forkserver, signal.SIGKILL)
    two.first.await_status(lambda status: status.generation > generation)
    assert "got the process that workers are forked from has ended for node" in two.first.output()
    assert two.other.exit_code() == 70


def test_strangers_who_say_nothing_keep_nobody_from_joining(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    two.first.await_status(lambda status: status.n_workers == 1)
    port, _ = wait_until(two.first.page.group) or (0, b"")
    with ExitStack() as opened:
        for _ in range(5):
            opened.enter_context(socket.create_connection((ADDRESS, port)))
        assert two.join().n_workers == 1
        assert two.first.await_status(lambda status: status.generation > 1).n_workers_lost == 0


def test_who_does_not_have_the_key_does_not_join(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    stranger: Any = {GROUP_KEY_VARIABLE: new_key().hex()}
    status = two.join(**stranger)
    assert "CERTIFICATE_VERIFY_FAILED" in status.cause
    assert two.first.await_status(lambda status: status.n_workers == 1).generation == 1


def test_who_says_nothing_does_not_keep_workers_of_nodes_from_each_other(two: TwoNodes) -> None:
    two.start(LINK_TRAINING, "for_ever", "torch.distributed")
    two.join()
    ports = ports_of(two.first.agent_pid)
    assert len(ports) == 2
    generation = two.first.page.worker_status().generation
    with silence(ports):
        two.first.resize(2)
        status = two.first.resize(1)  # only after a step together
    assert (status.generation, status.n_workers, status.n_workers_lost) == (generation + 2, 1, 0)
    assert "a node must stay" not in two.first.output()


def test_a_training_on_one_node_does_not_listen(stage: Stage) -> None:
    stage.start(LINK_TRAINING, "for_ever", "torch.distributed", **with_address({}))
    stage.await_status(lambda status: status.n_workers == 1)
    assert stage.page.group() is None
