"""The workers of one generation, connected. Another generation is another group.

On CPUs, and where workers share a GPU, they are connected by gloo: when a member dies its connections break, and the
others see it. Workers with a GPU each are connected by NCCL, where the device waits and nothing breaks by itself: they
look at the board while they wait, and end the waiting when the agent has missed a member.
"""

import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic, sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from punctual.client.elastic.agent_client import AgentClient
from punctual.client.elastic.membership import Membership

#: A collective may have to wait as long as the slowest worker's step, phase or pause takes; who is hung is found out
#: by the agent, which ends it.
_TIMEOUT_S = 1800.0

#: All members are alive when they are told the membership, but may be short of processor time. When one dies, the agent wants
#: another generation at once. Whoever gave up by itself would leave the others waiting for it in turn.
_GATHERING_TIMEOUT_S = 300.0
_CONNECTING_TIMEOUT_S = 30.0
_GATHERING_POLL_S = 0.0005
#: Between two looks at whether the device has done a collective.
_DEVICE_POLL_S = 0.0001

#: Whether NCCL's watchdog ends the process when a collective fails: it must not, the group is formed again.
_WATCHDOG_VARIABLE = "TORCH_NCCL_ASYNC_ERROR_HANDLING"


class GroupFault(Exception):
    """A collective failed: a member is gone."""


@contextmanager
def group_faults() -> Iterator[None]:
    """Turn what a collective raises into `GroupFault`."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise GroupFault(str(error)) from error


class Group:
    """A worker's place among the others, and what they do together. A worker that is alone needs no connection.

    Attributes
    ----------
    rank, n_workers
        Which worker this is, and of how many.
    device
        Where tensors must be that are sent.
    """

    def __init__(self, membership: Membership, device: torch.device, agent: AgentClient | None = None) -> None:
        self._agent = agent
        self.membership = membership
        self.rank = membership.rank
        self.n_workers = membership.n_workers
        self.device = device

    @classmethod
    def form(cls, membership: Membership, agent: AgentClient, device: torch.device) -> "Group":
        """Connect with the other members.

        Raises
        ------
        GroupFault
            One of them did not come, or a newer generation is wanted already.
        """
        group = cls(membership, device, agent)
        if membership.n_workers > 1:
            with group_faults():
                group._connect(agent)
        return group

    def _connect(self, agent: AgentClient) -> None:
        membership = self.membership
        store = dist.PrefixStore(
            f"{membership.generation}",
            dist.TCPStore(membership.store_host, membership.store_port, is_master=False, wait_for_workers=False),
        )
        self._await_all(store, agent)
        if self._is_nccl:
            os.environ[_WATCHDOG_VARIABLE] = "0"
        dist.init_process_group(
            "cpu:gloo,cuda:nccl" if self._is_nccl else "gloo", store=store, rank=membership.rank,
            world_size=membership.n_workers, timeout=timedelta(seconds=_CONNECTING_TIMEOUT_S),
        )  # fmt: skip
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=_TIMEOUT_S))  # noqa: SLF001 -- has no public name

    @property
    def _is_nccl(self) -> bool:
        """NCCL wants a device for each member; only the agent knows whether there is."""
        membership = self.membership
        return self.device.type == "cuda" and membership.i_device is not None and not membership.shares_device

    def _await_all(self, store: dist.Store, agent: AgentClient) -> None:
        """Wait until all members are here: forming the group would wait for one that has died.

        Whoever comes to a verdict first, that all are here or that one is missing, decides for all.
        """
        store.set(f"here/{self.rank}", "")
        all_here = [f"here/{rank}" for rank in range(self.n_workers)]
        give_up_at = monotonic() + _GATHERING_TIMEOUT_S
        while not (is_complete := store.check(all_here)):
            if monotonic() > give_up_at or agent.generation_wanted > self.membership.generation:
                break
            sleep(_GATHERING_POLL_S)
        if store.compare_set("verdict", "", "complete" if is_complete else "incomplete") != b"complete":
            raise RuntimeError(f"a member of generation {self.membership.generation} did not come")

    def drop(self, *, after_fault: bool = False) -> None:
        """Disconnect. After a fault the others find out by it, those too that had no connection with the dead one."""
        if not dist.is_initialized():
            return
        if after_fault and self._is_nccl:
            dist.distributed_c10d._abort_process_group()  # noqa: SLF001 -- torch has no public way to end NCCL's waiting
        else:
            dist.destroy_process_group()

    def begin_sum(self, tensor: Tensor) -> dist.Work | None:
        """Begin to replace `tensor` by its sum over all members."""
        with group_faults():
            return dist.all_reduce(tensor, async_op=True)

    def end_sum(self, work: dist.Work | None) -> None:
        if work is not None:
            with group_faults():
                self._await(work)

    def _await(self, work: dist.Work) -> None:
        """Wait until a collective is done, or a member is gone."""
        work.wait()  # with NCCL it is the device that waits
        if not self._is_nccl:
            return
        done = torch.cuda.Event()
        done.record()
        while not done.query():
            if self._agent is not None and self._agent.generation_broken >= self.membership.generation:
                raise RuntimeError(f"a member of generation {self.membership.generation} is gone")
            sleep(_DEVICE_POLL_S)

    def send_from(self, source: int, tensor: Tensor) -> None:
        """Replace `tensor` by that of the member `source`."""
        if self.n_workers > 1:
            with group_faults():
                self._await(dist.broadcast(tensor, source, async_op=True))

    def exchange(self, outgoing: Tensor, sizes_in: Sequence[int]) -> list[Tensor]:
        """Send each member its row of `outgoing`; the flat tensors that the members have sent, of these sizes."""
        received = outgoing.new_empty(sum(sizes_in))
        n_each = outgoing[0].numel()
        with group_faults():
            sizes_out = [n_each] * self.n_workers
            flat = outgoing.reshape(-1)
            self._await(dist.all_to_all_single(received, flat, list(sizes_in), sizes_out, async_op=True))
        return list(received.split(sizes_in))

    def collect(self, tensor: Tensor) -> Tensor:
        """The flat tensors of all members, equally long, one behind the other."""
        collected = tensor.new_empty(len(tensor) * self.n_workers)
        with group_faults():
            self._await(dist.all_gather(list(collected.split(len(tensor))), tensor, async_op=True))
        return collected

    def gather(self, value: Any) -> list[Any]:
        """What each member gave, by rank. Anything JSON can carry, and a float comes out as it went in."""
        if self.n_workers == 1:
            return [value]
        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        with group_faults():
            sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(self.n_workers)]
            dist.all_gather(sizes, torch.tensor([len(mine)]))
            longest = max(int(size) for size in sizes)
            padded = torch.zeros(longest, dtype=torch.uint8)
            padded[: len(mine)] = mine
            theirs = [torch.empty_like(padded) for _ in range(self.n_workers)]
            dist.all_gather(theirs, padded)
        return [json.loads(bytes(text[: int(size)].tolist())) for text, size in zip(theirs, sizes, strict=True)]
