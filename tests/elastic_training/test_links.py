"""What connects workers: it does what it should, and nobody but the job's own processes can reach it."""

import ctypes
import json
import os
import resource
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.elastic_training.agent_stage import Stage
from torch import Tensor

from punctual.elastic_training import links
from punctual.elastic_training.collectives import Apart, Collectives
from punctual.elastic_training.membership import Progress, source_of
from punctual.executors.local.job_signals import descendants

HERE = Path(__file__).parent
NOBODY = 65534
#: As the kernel numbers it on every processor.
PIDFD_GETFD = 438
#: Longer than a slot, and not a multiple of its length.
LONG = links.SLOT_BYTES // 4 + 1001
#: Longer than the slots of three workers.
LONGEST = 3 * LONG

Worker = Callable[[int, Collectives], Any]


def test_many_workers_and_servers_need_more_files_than_a_process_has_by_default() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    few = max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()) + 50
    resource.setrlimit(resource.RLIMIT_NOFILE, (few, hard))
    try:
        with ExitStack() as opened:
            fds = links.make(12, opened, n_servers=11)
            assert [len(own) for own in fds[12:]] == [12] * 11
            assert len({fd for own in fds for fd in own}) == 1 + 2 * (11 + 12 * 11)
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (few, hard)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class Team:
    """Workers in threads, connected as the agent would connect them."""

    def __init__(self, n_workers: int) -> None:
        self.is_broken = False
        with ExitStack() as opened:
            fds = links.make(n_workers, opened)
            self.members = [
                Collectives(rank, n_workers, links.Links.of(rank, list(map(os.dup, own))), lambda: self.is_broken)
                for rank, own in enumerate(fds)
            ]

    def play(self, work: Worker) -> list[Any]:
        """What each has returned, or raised as an `OSError`."""
        found: list[Any] = [None] * len(self.members)

        def run(rank: int) -> None:
            try:
                found[rank] = work(rank, self.members[rank])
            except OSError as error:
                found[rank] = error

        threads = [threading.Thread(target=run, args=(rank,)) for rank in range(len(self.members))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


@pytest.fixture
def team() -> Iterator[Callable[[int], Team]]:
    with ExitStack() as opened:

        def make(n_workers: int) -> Team:
            made = Team(n_workers)
            for member in made.members:
                opened.callback(member.close)
            return made

        yield make


def numbers(rank: int, n: int, dtype: torch.dtype) -> Tensor:
    generator = torch.Generator().manual_seed(rank)
    return torch.randint(-9, 9, (n,), generator=generator).to(dtype)


@pytest.mark.parametrize("n_workers", [2, 3, 11])  # eleven: some are not below the first
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64])
def test_all_have_the_sum_of_all(team: Callable[[int], Team], n_workers: int, dtype: torch.dtype) -> None:
    sizes = (1, 7, LONG, 0, 5000, 3)

    def work(rank: int, member: Collectives) -> list[Tensor]:
        tensors = [numbers(rank, n, dtype) for n in sizes]
        for tensor in tensors:
            member.add_up(tensor)
        return tensors

    sums = [torch.stack([numbers(rank, n, dtype) for rank in range(n_workers)]).sum(0, dtype=dtype) for n in sizes]
    for tensors in team(n_workers).play(work):
        assert all(map(torch.equal, tensors, sums))


def test_everything_else_arrives_too(team: Callable[[int], Team]) -> None:
    sizes_in = [LONG, 0, 3]  # each row of the third has three elements, the second sends nothing

    def work(rank: int, member: Collectives) -> tuple[Tensor, Tensor, list[Tensor]]:
        sent = numbers(rank, LONGEST, torch.float32)
        member.send_from(1, sent)
        collected = member.collect(numbers(rank, LONG, torch.float64))
        rows = torch.stack([numbers(10 * rank + i, sizes_in[rank], torch.float32) for i in range(3)])
        return sent, collected, member.exchange(rows, sizes_in)

    for rank, (sent, collected, received) in enumerate(team(3).play(work)):
        assert torch.equal(sent, numbers(1, LONGEST, torch.float32))
        assert torch.equal(collected, torch.stack([numbers(one, LONG, torch.float64) for one in range(3)]))
        for sender, tensor in enumerate(received):
            assert torch.equal(tensor, numbers(10 * sender + rank, sizes_in[sender], torch.float32))


def test_who_leaves_is_missed_by_all(team: Callable[[int], Team]) -> None:
    def work(rank: int, member: Collectives) -> None:
        try:
            if rank != 10:
                member.wait()
        finally:
            member.close()

    found = team(11).play(work)
    assert all(isinstance(one, ConnectionError) for one in found[:10])


@pytest.mark.parametrize("n_workers", [2, 3, 11])
@pytest.mark.parametrize("i_other", [0, 1])
def test_who_does_something_else_is_found_out(team: Callable[[int], Team], n_workers: int, i_other: int) -> None:
    def work(rank: int, member: Collectives) -> str:
        try:
            if rank == i_other:
                member.collect(torch.ones(1))
            else:
                member.add_up(torch.ones(LONG))
        except Apart:
            return "apart"
        finally:
            member.close()  # as the end of its process would
        return "together"

    heard = team(n_workers).play(work)
    assert "apart" in heard
    assert all(said == "apart" or isinstance(said, ConnectionError) for said in heard)


def test_a_wait_ends_when_the_agent_has_missed_a_member(team: Callable[[int], Team]) -> None:
    """One whose sockets stay open, because a process that it has forked has copies of them."""
    made = team(2)
    made.is_broken = True
    (error, _) = made.play(lambda rank, member: member.wait() if rank == 0 else None)
    assert "a member is gone" in str(error)


@pytest.mark.parametrize(
    ("progresses", "source", "lacking"),
    [
        ([None, None], -1, ()),
        ([(4, 0), (4, 0), None], 0, (2,)),
        ([(4, 0), (5, 0)], 1, (0,)),
        ([(5, 0), (5, 1), (4, 9)], 1, (2,)),  # an evaluation has only a result more
        ([None, (0, 0)], 1, (0,)),
        ([None, (), ()], 1, (0,)),  # steps are not compared
    ],
)
def test_the_agent_says_whose_state_counts(progresses: list[Progress], source: int, lacking: tuple[int, ...]) -> None:
    assert source_of(progresses) == (source, lacking)


# Others on the machine.


def sockets_of(pids: list[int]) -> set[str]:
    """Inodes of all sockets of these processes."""
    found = set()
    for pid in pids:
        for file in Path(f"/proc/{pid}/fd").iterdir():
            target = str(file.readlink())
            if target.startswith("socket:["):
                found.add(target[len("socket:[") : -1])
    return found


def reachable(pids: list[int]) -> list[str]:
    """Their sockets of the internet, and those of Unix that listen, as the kernel shows them."""
    own, found = sockets_of(pids), []
    for kind in ("tcp", "tcp6", "udp", "udp6"):
        lines = Path(f"/proc/net/{kind}").read_text().splitlines()[1:]
        found += [f"{kind} {line}" for line in lines if line.split()[9] in own]
    for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[6] in own and int(fields[3], 16) & 0x10000:
            found.append(f"unix {line}")
    return found


def as_nobody(attempt: Callable[[], list[str]]) -> list[str]:
    """What `attempt` finds as another user."""
    out, into = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = attempt()
        except BaseException as error:  # noqa: BLE001 -- a copy of pytest must not go on
            found = [repr(error)]
        os.write(into, "\n".join(found).encode())
        os._exit(0)
    os.close(into)
    with os.fdopen(out) as file:
        text = file.read()
    os.waitpid(pid, 0)
    return text.splitlines()


def attack(pids: list[int]) -> list[str]:
    """What another user can open of these processes: their files, their memory, copies of their sockets."""
    libc, found = ctypes.CDLL(None, use_errno=True), []
    for pid in pids:
        paths = [f"/proc/{pid}/mem", *(f"/proc/{pid}/fd/{fd}" for fd in range(3, 40))]
        for path in paths:
            for flags in (os.O_RDONLY, os.O_RDWR):
                try:
                    os.close(os.open(path, flags | os.O_NONBLOCK))
                except OSError:
                    continue
                found.append(path)
        handle = os.pidfd_open(pid)
        copies = [libc.syscall(PIDFD_GETFD, handle, fd, 0) for fd in range(3, 40)]
        for copy in [copy for copy in copies if copy >= 0]:
            found.append(f"{pid}: a copy of a descriptor")
            os.close(copy)
        os.close(handle)
    return found


@pytest.fixture
def pids(stage: Stage, tmp_path: Path) -> list[int]:
    """The processes of a training: the agent, the forkserver, two workers and a parameter server."""
    options = {"folder": str(tmp_path), "kind": "sgd", "n_epochs": 10**6, "step_s": 0.01}
    stage.start(str(HERE / "server_script.py"), json.dumps(options), n_workers=2, n_servers=1)
    stage.await_status(lambda status: status.n_workers == 2)
    stage.await_step(1)
    processes = [stage.agent_pid, *descendants(stage.agent_pid)]
    assert len(processes) >= 5
    return processes


def test_no_process_of_a_training_can_be_connected_to(pids: list[int]) -> None:
    assert not reachable(pids)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_another_user_cannot_open_what_connects_a_training(pids: list[int], stage: Stage) -> None:
    assert not as_nobody(lambda: attack(pids))
    assert attack(pids[:1]), "who may open them finds them"
    n_steps = stage.page.progress().n_steps
    stage.await_step(n_steps + 10)
    assert stage.page.worker_status().n_workers_lost == 0
