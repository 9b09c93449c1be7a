"""Workers connected as they were before what connects them was private: by gloo, through a store on TCP.

Anybody on the machine can reach both. For comparisons only.
"""

from collections.abc import Sequence
from datetime import timedelta
from time import sleep

import torch
from torch import Tensor, distributed

from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.group import PendingSum, WorkerGroup, group_faults
from punctual.elastic_training.membership import Membership

HOST = "127.0.0.1"
_TIMEOUT_S = 300.0
_POLL_S = 0.0005


class _Gloo:
    """Collectives by gloo."""

    def __init__(self, membership: Membership, port: int) -> None:
        self._rank, self._n_workers = membership.rank, membership.n_workers
        store = distributed.PrefixStore(
            f"{membership.generation}", distributed.TCPStore(HOST, port, is_master=False, wait_for_workers=False)
        )
        self._await_all(store)
        distributed.init_process_group(
            "gloo", store=store, rank=self._rank, world_size=self._n_workers, timeout=timedelta(seconds=_TIMEOUT_S)
        )

    def _await_all(self, store: distributed.Store) -> None:
        """Forming a group would wait for one that has died, so it was first made sure that all are there."""
        store.set(f"here/{self._rank}", "")
        everybody = [f"here/{rank}" for rank in range(self._n_workers)]
        while not store.check(everybody):
            sleep(_POLL_S)
        store.compare_set("verdict", "", "complete")

    def close(self) -> None:
        distributed.destroy_process_group()

    def send_from(self, source: int, tensor: Tensor) -> None:
        distributed.broadcast(tensor, source)

    def exchange(self, outgoing: Tensor, sizes_in: Sequence[int]) -> list[Tensor]:
        received = outgoing.new_empty(sum(sizes_in))
        sizes_out = [outgoing[0].numel()] * self._n_workers
        distributed.all_to_all_single(received, outgoing.reshape(-1), list(sizes_in), sizes_out)
        return list(received.split(sizes_in))

    def collect(self, tensor: Tensor) -> Tensor:
        collected = tensor.new_empty(self._n_workers, len(tensor))
        distributed.all_gather(list(collected), tensor)
        return collected


class OpenGroup(WorkerGroup):
    """A `WorkerGroup` over them.

    Attributes
    ----------
    port
        Where the store listens.
    """

    port = 0

    @classmethod
    def form(cls, membership: Membership, agent: AgentClient, device: torch.device) -> "OpenGroup":
        group = cls(membership, device, agent)
        with group_faults():
            group._collectives = _Gloo(membership, cls.port)  # type: ignore[assignment]
        return group

    def begin_sum(self, tensor: Tensor) -> PendingSum:
        """Sent at once, while the rest of backward is under way."""
        work = distributed.all_reduce(tensor, async_op=True)
        assert work is not None
        return work.wait
