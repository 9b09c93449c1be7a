"""How workers with GPUs are connected, as far as that can be seen without one."""

import os
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from punctual.elastic_training import links
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.collectives import GroupFault
from punctual.elastic_training.group import WorkerGroup
from punctual.elastic_training.heartbeat_board import HeartbeatBoard
from punctual.elastic_training.membership import Membership

GPU = torch.device("cuda", 0)


class Work:
    """A collective that NCCL has taken."""

    def wait(self) -> None:
        """The device waits, and this process does not."""


class Device:
    """Is done after some looks; a member is gone after some others."""

    def __init__(self, n_looks: int, n_looks_whole: int) -> None:
        self.n_left, self._n_whole_left = n_looks, n_looks_whole

    def record(self) -> None:
        """From here on."""

    def query(self) -> bool:
        self.n_left -= 1
        return self.n_left < 0

    @property
    def generation_broken(self) -> int:
        self._n_whole_left -= 1
        return 2 if self._n_whole_left >= 0 else 3

    generation_wanted = 3


def wait_for(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "Event", lambda: device)
    monkeypatch.setattr(dist, "all_reduce", lambda *_, **__: Work())
    link: Any = device
    group = WorkerGroup(Membership(generation=3, rank=0, n_workers=2, i_device=0), GPU, link)
    group.add_up(torch.zeros(1))


def test_what_the_device_does_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(5, 100)
    wait_for(device, monkeypatch)
    assert device.n_left < 0


def test_a_wait_for_a_member_that_is_gone_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(GroupFault, match="a member of generation 3 is gone"):
        wait_for(Device(10**9, 5), monkeypatch)


@pytest.fixture
def backends(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Those that groups were connected by, without being connected."""
    seen: list[str] = []
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **_: seen.append(backend))
    monkeypatch.setattr(dist.distributed_c10d, "_set_pg_timeout", lambda timeout: None)
    for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_SOCKET_IFNAME"):
        monkeypatch.setenv(name, "")
    return seen


@pytest.mark.parametrize(
    ("device", "i_device", "found"),
    [
        (GPU, 0, ["nccl"]),
        (GPU, None, []),  # workers that may share a device, which NCCL refuses
        (torch.device("cpu"), None, []),
    ],
)
def test_nccl_is_for_workers_with_a_device_each(
    backends: list[str], tmp_path: Path, device: torch.device, i_device: int | None, found: list[str]
) -> None:
    with ExitStack() as opened:
        (fds, _) = links.make(2, opened)
        mine = links.Links.of(0, [os.dup(fd) for fd in fds[:1]])  # as if it had nobody to wait for
    path = str(tmp_path / "store")
    membership = Membership(generation=1, rank=0, n_workers=2, i_device=i_device, store_path=path, links=mine)
    group = WorkerGroup(membership, device, AgentClient())
    assert backends == found
    group.drop()


def test_a_generation_that_has_lost_a_member_is_on_the_board() -> None:
    board = HeartbeatBoard.create()
    assert board.generation_broken == -1
    board.generation_broken = 0
    assert (board.generation_broken, board.generation_wanted) == (0, 0)
    board.close()
