"""Collective operations of the workers of one generation, in memory that all of them map.

Each puts what it has into its slot, waits until all have, and takes from the others' slots what it needs: all sums are
made in the order of ranks. Tensors longer than a slot go in chunks, and each worker has two slots that take turns: what
is written for one chunk cannot be what another worker still reads of the chunk before. Once all have come to the next wait,
all have read that one. Where only one worker has something to tell, it has the slots of all.

While they wait, each also says what it does: workers that have come to different places of the script find it out at once.

Workers on several nodes have such memory on each. While the others wait, the first worker of each node sends what they have
written to the nodes that need it, into the same places there; so all that follows is the same, to the last bit.
"""

import mmap
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor

from punctual.elastic_training._memory import memory_of
from punctual.elastic_training.links import N_TURNS, SLOT_BYTES, Links, n_memory_bytes
from punctual.elastic_training.node_connections import NodeConnections
from punctual.elastic_training.virtual_ranks import cut

#: Returns contiguous parts of the memory that the first ranks have written and the second ones need.
Moves = Callable[[range, range], Sequence[Tensor]]

#: Codes of operations, which workers compare.
_SUM, _SENDING, _EXCHANGE, _COLLECTION, _NOTHING = b"+", b">", b"x", b"c", b"."


class GroupFault(ConnectionError):
    """Raised if a collective failed: a member is gone."""


class Apart(Exception):
    """Raised if another worker performs a different operation."""


class Collectives:
    """One worker's collective operations. Tensors may be on a GPU, and must be contiguous and alike in all workers.

    Every method raises `GroupFault` if a member is gone, and `Apart` if one does something else; it leaves its tensors in between.

    * `is_broken`: whether a member is known to be gone. Its sockets tell it too, unless a process that it has forked
      has copies.
    * `places`, `i_node`: the ranks of the workers of each node, and which node this is.
    * `nodes`: connections to other nodes, for the first worker of a node if there are several.
    """

    def __init__(
        self,
        rank: int,
        n_workers: int,
        links: Links,
        is_broken: Callable[[], bool],
        *,
        places: Sequence[range] = (),
        i_node: int = 0,
        nodes: NodeConnections | None = None,
    ) -> None:
        self._rank, self._n_workers = rank, n_workers
        self._places, self._i_node, self._nodes = places, i_node, nodes
        self._links, self._is_broken = links, is_broken
        self._i_turn = 0
        memory = mmap.mmap(links.memory_fd, n_memory_bytes(n_workers))
        os.close(links.memory_fd)
        #: Shape (turns, workers, bytes of a slot).
        self._slots = torch.frombuffer(memory, dtype=torch.uint8).view(N_TURNS, n_workers, SLOT_BYTES)
        for connection in links.connections:
            # Seconds between two checks whether the generation has lost a member.
            connection.settimeout(0.1)

    def close(self) -> None:
        self._slots = torch.empty(0)
        self._links.close()
        if self._nodes is not None:
            self._nodes.close()

    def add_up(self, tensor: Tensor) -> None:
        """Replace `tensor` by its sum over all workers: each adds up a part of it, and takes the others' parts."""
        for chunk in _chunks(tensor):
            slots = self._next_slots(chunk)
            slots[self._rank].copy_(chunk)
            # Bytes of all workers together up to which each adds up everything: cheaper than to wait twice for the
            # others.
            if slots.numel() * slots.element_size() <= 1 << 18:
                self.wait(partial(_all_of, slots), _SUM)
                chunk.copy_(_add_to_first(slots.clone()))
                continue
            parts = cut(len(chunk), self._n_workers)
            self.wait(partial(_parts_of, slots, parts), _SUM)
            part = parts[self._rank]
            _add_to_first(slots[:, part.start : part.stop])  # nobody else reads or writes this part of any slot
            self.wait(partial(_sums_of, slots[0], parts), _SUM)
            chunk.copy_(slots[0])

    def send_from(self, source: int, tensor: Tensor) -> None:
        """Replace `tensor` by that of the worker `source`."""
        for chunk in _chunks(tensor, self._n_workers):
            place = self._next_turn().view(-1).view(chunk.dtype)[: len(chunk)]
            if self._rank == source:
                place.copy_(chunk)
            self.wait(partial(_from_source, source, place), _SENDING)
            if self._rank != source:
                chunk.copy_(place)

    def exchange(self, outgoing: Tensor, sizes_in: Sequence[int]) -> list[Tensor]:
        """Send each worker its row of `outgoing`; return the flat tensors received from them, of these sizes."""
        n_workers = self._n_workers
        rows = outgoing.flatten(1)
        received = [rows.new_empty(size) for size in sizes_in]
        n_each = SLOT_BYTES // rows.element_size() // n_workers
        for start in range(0, max(sizes_in), n_each):
            # By sender, receiver and element.
            slots = self._next_slots(rows, n_workers * n_each).unflatten(1, (n_workers, n_each))
            columns = rows[:, start : start + n_each]
            slots[self._rank, :, : columns.shape[1]].copy_(columns)
            self.wait(partial(_rows_of, slots, [min(n_each, max(0, size - start)) for size in sizes_in]), _EXCHANGE)
            for sender, tensor in zip(slots, received, strict=True):
                part = tensor[start : start + n_each]
                part.copy_(sender[self._rank, : len(part)])
        return received

    def collect(self, tensor: Tensor) -> Tensor:
        """Return the flat tensors of all workers, equally long; shape (workers, elements)."""
        collected = tensor.new_empty(self._n_workers, len(tensor))
        start = 0
        for chunk in _chunks(tensor):
            slots = self._next_slots(chunk)
            slots[self._rank].copy_(chunk)
            self.wait(partial(_all_of, slots), _COLLECTION)
            collected[:, start : start + len(chunk)].copy_(slots)
            start += len(chunk)
        return collected

    def wait(self, moves: Moves | None = None, word: bytes = _NOTHING) -> None:
        """Wait until all workers of the node come with the same word, and the parts of `moves` from other nodes."""
        try:
            self._wait(moves, word)
        except OSError as error:
            raise GroupFault(str(error)) from error

    def _wait(self, moves: Moves | None, word: bytes) -> None:
        links = self._links
        for child in links.children:
            self._hear(child, word)
        if self._nodes is not None and moves is not None:
            self._move(self._nodes, moves, word)
        if links.parent is not None:
            links.parent.send(word)
            self._hear(links.parent, word)
        for child in links.children:
            child.send(word)

    def _move(self, nodes: NodeConnections, moves: Moves, word: bytes) -> None:
        """Exchange parts with the other nodes: send theirs, and write those needed here; each follows the word."""
        here = self._places[self._i_node]
        heard = bytearray(len(self._places))
        outgoing: dict[int, list[memoryview]] = {}
        incoming: dict[int, list[memoryview]] = {}
        for i_node, ranks in enumerate(self._places):
            if i_node != self._i_node:
                outgoing[i_node] = _behind(memoryview(word), moves(here, ranks))
                incoming[i_node] = _behind(memoryview(heard)[i_node : i_node + 1], moves(ranks, here))
        nodes.exchange(outgoing, incoming)
        if any(heard[i_node] != word[0] for i_node, parts in incoming.items() if parts):
            raise Apart

    def _hear(self, other: socket.socket, expected: bytes) -> None:
        while True:
            try:
                word = other.recv(1)
            except TimeoutError:
                if self._is_broken():
                    raise ConnectionError("a member is gone") from None
                continue
            if not word:
                raise ConnectionError("a member has left")
            if word != expected:
                raise Apart
            return

    def _next_slots(self, like: Tensor, n_elements: int | None = None) -> Tensor:
        """Return all workers' slots of this turn, of the type and length of `like`; shape (workers, elements)."""
        return self._next_turn().view(like.dtype)[:, : len(like) if n_elements is None else n_elements]

    def _next_turn(self) -> Tensor:
        """Return all workers' slots of this turn; shape (workers, bytes)."""
        self._i_turn = (self._i_turn + 1) % N_TURNS
        return self._slots[self._i_turn]


def _chunks(tensor: Tensor, n_slots: int = 1) -> Sequence[Tensor]:
    """Cut a contiguous tensor into flat parts, none longer than so many slots."""
    flat = tensor.view(-1)
    return flat.split(n_slots * SLOT_BYTES // flat.element_size()) if len(flat) else ()


def _add_to_first(slots: Tensor) -> Tensor:
    total = slots[0]
    for slot in slots[1:]:
        total.add_(slot)
    return total


# What workers of other nodes need of what the `senders` have written.


def _all_of(slots: Tensor, senders: range, _: range) -> list[Tensor]:
    """Return the senders' whole slots."""
    return [slots[rank] for rank in senders]


def _parts_of(slots: Tensor, parts: Sequence[range], senders: range, receivers: range) -> list[Tensor]:
    """Return the parts that the receivers add up."""
    start, stop = parts[receivers[0]].start, parts[receivers[-1]].stop
    return [slots[rank, start:stop] for rank in senders]


def _sums_of(total: Tensor, parts: Sequence[range], senders: range, _: range) -> list[Tensor]:
    """Return the parts that the senders have added up."""
    return [total[parts[senders[0]].start : parts[senders[-1]].stop]]


def _from_source(source: int, place: Tensor, senders: range, _: range) -> list[Tensor]:
    """Return the source's slots, if it is among the senders."""
    return [place] if source in senders else []


def _rows_of(slots: Tensor, n_used: Sequence[int], senders: range, receivers: range) -> list[Tensor]:
    """Return each sender's elements for each receiver; `slots` are by sender, receiver and element."""
    return [slots[sender, receiver, : n_used[sender]] for sender in senders for receiver in receivers]


def _behind(word: memoryview, parts: Sequence[Tensor]) -> list[memoryview]:
    """Return the bytes of the parts after the word; empty if there are no parts."""
    return [word, *map(memory_of, parts)] if parts else []
