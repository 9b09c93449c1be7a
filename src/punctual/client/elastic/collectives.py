"""What the workers of one generation do together, in memory that all of them map.

Each puts what it has into its slot, waits until all have, and takes from the others' slots what it needs: all sums are
made in the order of ranks. Tensors longer than a slot go in chunks, and each worker has two slots that take turns: what
is written for one chunk cannot be what another worker still reads of the chunk before. Once all have come to the next wait,
all have read that one. Where only one worker has something to tell, it has the slots of all.
"""

import mmap
import os
import socket
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from punctual.client.elastic.links import N_TURNS, SLOT_BYTES, Links, n_memory_bytes
from punctual.client.elastic.virtual_ranks import cut

#: If all workers together have no more than this, each adds up everything: cheaper than to wait twice for the others.
_ONE_WAIT_BYTES = 1 << 18
#: How long a worker waits between two looks whether the generation has lost a member.
_LOOK_S = 0.1


class Collectives:
    """A worker's side. Tensors may be on a GPU, and must be contiguous and alike in all workers.

    Every method raises `OSError` if a member is gone, and then leaves its tensors in between.

    Parameters
    ----------
    is_broken
        Whether a member is known to be gone. Its sockets tell it too, unless a process that it has forked has copies.
    """

    def __init__(self, rank: int, n_workers: int, links: Links, is_broken: Callable[[], bool]) -> None:
        self._rank, self._n_workers = rank, n_workers
        self._links, self._is_broken = links, is_broken
        self._i_turn = 0
        memory = mmap.mmap(links.memory_fd, n_memory_bytes(n_workers))
        os.close(links.memory_fd)
        #: Shape (turns, workers, bytes of a slot).
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(N_TURNS, n_workers, SLOT_BYTES)
        for connection in links.connections:
            connection.settimeout(_LOOK_S)

    def close(self) -> None:
        self._slots = torch.empty(0)
        self._links.close()

    def add_up(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over all workers: each adds up a part of it, and takes the others' parts."""
        for chunk in _chunks(tensor):
            slots = self._next_slots(chunk)
            slots[self._rank].copy_(chunk)
            self.wait()
            if slots.numel() * slots.element_size() <= _ONE_WAIT_BYTES:
                chunk.copy_(_add_to_first(slots.clone()))
                continue
            part = cut(len(chunk), self._n_workers)[self._rank]
            _add_to_first(slots[:, part.start : part.stop])  # nobody else reads or writes this part of any slot
            self.wait()
            chunk.copy_(slots[0])

    def send_from(self, source: int, tensor: Tensor) -> None:
        """Replace `tensor` by that of the worker `source`."""
        for chunk in _chunks(tensor, self._n_workers):
            place = self._next_turn().view(-1).view(chunk.dtype)[: len(chunk)]
            if self._rank == source:
                place.copy_(chunk)
            self.wait()
            if self._rank != source:
                chunk.copy_(place)

    def exchange(self, outgoing: Tensor, sizes_in: Sequence[int]) -> list[Tensor]:
        """Send each worker its row of `outgoing`; the flat tensors that the workers have sent, of these sizes."""
        n_workers = self._n_workers
        rows = outgoing.flatten(1)
        received = [rows.new_empty(size) for size in sizes_in]
        n_each = SLOT_BYTES // rows.element_size() // n_workers
        for start in range(0, max(sizes_in), n_each):
            # By sender, receiver and element.
            slots = self._next_slots(rows, n_workers * n_each).unflatten(1, (n_workers, n_each))
            columns = rows[:, start : start + n_each]
            slots[self._rank, :, : columns.shape[1]].copy_(columns)
            self.wait()
            for sender, tensor in zip(slots, received, strict=True):
                part = tensor[start : start + n_each]
                part.copy_(sender[self._rank, : len(part)])
        return received

    def collect(self, tensor: Tensor) -> Tensor:
        """The flat tensors of all workers, equally long; shape (workers, elements)."""
        collected = tensor.new_empty(self._n_workers, len(tensor))
        start = 0
        for chunk in _chunks(tensor):
            slots = self._next_slots(chunk)
            slots[self._rank].copy_(chunk)
            self.wait()
            collected[:, start : start + len(chunk)].copy_(slots)
            start += len(chunk)
        return collected

    def wait(self) -> None:
        """Until all workers have come here."""
        links = self._links
        for child in links.children:
            self._hear(child)
        if links.parent is not None:
            links.parent.send(b".")
            self._hear(links.parent)
        for child in links.children:
            child.send(b".")

    def _hear(self, other: socket.socket) -> None:
        while True:
            try:
                word = other.recv(1)
            except TimeoutError:
                if self._is_broken():
                    raise ConnectionError("a member is gone") from None
                continue
            if not word:
                raise ConnectionError("a member has left")
            return

    def _next_slots(self, like: Tensor, n_elements: int | None = None) -> Tensor:
        """All workers' slots of this turn, of the type of `like` and its length; shape (workers, elements)."""
        return self._next_turn().view(like.dtype)[:, : len(like) if n_elements is None else n_elements]

    def _next_turn(self) -> Tensor:
        """All workers' slots of this turn; shape (workers, bytes)."""
        self._i_turn = (self._i_turn + 1) % N_TURNS
        return self._slots[self._i_turn]


def _chunks(tensor: Tensor, n_slots: int = 1) -> Sequence[Tensor]:
    """Flat parts of a contiguous tensor, none longer than so many slots."""
    flat = tensor.view(-1)
    return flat.split(n_slots * SLOT_BYTES // flat.element_size()) if len(flat) else ()


def _add_to_first(slots: Tensor) -> Tensor:
    total = slots[0]
    for slot in slots[1:]:
        total.add_(slot)
    return total
