"""Connected workers of one generation. Another generation is another group.

They are connected by what the agent has handed to them (`links`), which nobody else can reach: sums on CPUs, and where
workers share a GPU, are made in memory that they share; when a member dies its sockets close, and the others see it.
Workers of several nodes are connected over the network beside (`node_connections`).
Workers of one node with a GPU each add up gradients by NCCL, where the device waits and nothing breaks by itself: they look at the
board while they wait, and end the waiting when the agent has missed a member.
"""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import sleep
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.collectives import Collectives, GroupFault
from punctual.elastic_training.links import Links
from punctual.elastic_training.membership import Membership
from punctual.elastic_training.node_connections import NodeConnections

#: Whether NCCL's watchdog ends the process when a collective fails: it must not, the group is formed again.
_WATCHDOG_VARIABLE = "TORCH_NCCL_ASYNC_ERROR_HANDLING"
#: Network interface of NCCL: the workers are on one machine.
_INTERFACE_VARIABLE, _INTERFACE = "NCCL_SOCKET_IFNAME", "lo"


@contextmanager
def _group_faults() -> Iterator[None]:
    """Turn exceptions of a collective into `GroupFault`."""
    try:
        yield
    except (RuntimeError, OSError) as error:
        raise GroupFault(str(error)) from error


class WorkerGroup:
    """A worker's place in its group, and the group's collectives. A single worker needs no connection.

    * `rank`, `n_workers`: rank of this worker, and number of all.
    * `device`: device of the model, whose gradients are added up.

    Raises `GroupFault`: a member is gone already.
    """

    def __init__(self, membership: Membership, device: torch.device, agent: AgentClient | None = None) -> None:
        self._agent = agent
        self._collectives: Collectives | None = None
        self.membership = membership
        self.rank = membership.rank
        self.n_workers = membership.n_workers
        self.device = device
        if membership.links is not None:
            with _group_faults():
                self._connect(membership.links)

    def _connect(self, links: Links) -> None:
        membership = self.membership
        nodes: NodeConnections | None = None
        if links.listening is not None:
            try:
                nodes = NodeConnections.formed(membership, links.listening, self._is_broken)
            except OSError:
                links.close()  # those who wait for this worker see it
                os.close(links.memory_fd)
                raise
        self._collectives = Collectives(
            membership.rank,
            membership.n_workers,
            links,
            self._is_broken,
            places=membership.places,
            i_node=membership.i_node,
            nodes=nodes,
        )
        if not self._is_nccl:
            return
        self._collectives.wait()  # NCCL would wait for one that has died
        os.environ[_WATCHDOG_VARIABLE] = "0"
        os.environ.setdefault(_INTERFACE_VARIABLE, _INTERFACE)
        dist.init_process_group(
            "nccl",
            store=dist.FileStore(membership.store_path, membership.n_workers),
            rank=membership.rank,
            world_size=membership.n_workers,
            timeout=timedelta(seconds=30.0),
        )
        # Seconds of a collective of NCCL: as long as the slowest worker's step, phase or pause; hung workers are
        # found by the agent, which ends it.
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=1800.0))  # noqa: SLF001 -- has no public name

    def _is_broken(self) -> bool:
        return self._agent is not None and self._agent.generation_broken >= self.membership.generation

    @property
    def together(self) -> Collectives:
        """Collective operations through memory, of tensors on GPUs too; `add_up` takes NCCL if it can."""
        assert self._collectives is not None, "the group has been formed, of several workers, and not dropped"
        return self._collectives

    @property
    def _is_nccl(self) -> bool:
        """Whether NCCL adds up: it needs a device for each member (only the agent knows), and one node."""
        membership = self.membership
        has_own = membership.i_device is not None and not membership.shares_device
        return self.device.type == "cuda" and has_own and not membership.nodes

    def drop(self, *, after_fault: bool = False) -> None:
        """Disconnect. After a fault this informs the others, even those not connected to the dead member."""
        if self._collectives is not None:
            self._collectives.close()
            self._collectives = None
        if not self._is_nccl or not dist.is_initialized():
            return
        if after_fault:
            dist.distributed_c10d._abort_process_group()  # noqa: SLF001 -- torch has no public way to end NCCL's waiting
        else:
            dist.destroy_process_group()

    def add_up(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over all members."""
        if not self._is_nccl:
            self.together.add_up(tensor)
            return
        with _group_faults():
            self._await(dist.all_reduce(tensor, async_op=True))

    def _await(self, work: dist.Work | None) -> None:
        """Wait until NCCL has done a collective, or a member is gone."""
        assert work is not None, "this process is a member"
        work.wait()  # it is the device that waits
        done = torch.cuda.Event()
        done.record()
        while not done.query():
            if self._is_broken():
                raise RuntimeError(f"a member of generation {self.membership.generation} is gone")
            # Seconds between two looks at whether the device has done a collective.
            sleep(0.0001)

    def gather(self, value: Any) -> list[Any]:
        """Return each member's `value`, by rank. Values must be JSON; floats stay exact."""
        if self.n_workers == 1:
            return [value]
        mine = torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)
        sizes = self.together.collect(torch.tensor([len(mine)])).flatten().tolist()
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(mine)] = mine
        theirs = self.together.collect(padded)
        return [json.loads(bytes(text[:size].tolist())) for text, size in zip(theirs, sizes, strict=True)]
