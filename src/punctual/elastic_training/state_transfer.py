"""Transfer of a state from one worker to others, and checksums that all have the same."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor

from punctual.elastic_training.group import WorkerGroup
from punctual.elastic_training.replica import TrainingState

#: Small tensors are sent together; one as large as this goes alone, without being copied.
_PARCEL_BYTES = 1 << 20


def share(group: WorkerGroup, source: int, state: TrainingState | None, *, wants: bool) -> TrainingState | None:
    """Send the source's state to all members.

    * `state`: state of the source; other members pass None.
    * `wants`: whether this member needs the state; if not, what it receives is thrown away.

    Returns
    -------
    TrainingState | None
        The state received, in memory of its own; None if it was not wanted.
    """
    header = group.gather(_header(state) if state is not None else None)[source]
    entries = [_Entry(*entry) for entry in header["tensors"]]
    tensors = state.tensors if state is not None else {}
    received: dict[str, Tensor] = {}
    for parcel in _parcels(entries):
        packed = _packed(parcel, tensors, group.device) if tensors else _room(parcel, group.device)
        group.send_from(source, packed)
        if wants:
            received.update(_unpacked(parcel, packed))
    return TrainingState(received, header["values"]) if wants else None


class _Entry:
    """Description of a tensor in the header."""

    def __init__(self, name: str, kind: str, shape: list[int], device: str) -> None:
        self.name = name
        self.dtype: torch.dtype = getattr(torch, kind)
        self.shape = torch.Size(shape)
        self.device = device
        self.n_bytes = self.shape.numel() * self.dtype.itemsize


def _header(state: TrainingState) -> dict[str, object]:
    entries = [
        (name, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), tensor.device.type)
        for name, tensor in state.tensors.items()
    ]
    return {"values": state.values, "tensors": entries}


def _parcels(entries: list[_Entry]) -> Iterator[list[_Entry]]:
    parcel: list[_Entry] = []
    for entry in entries:
        if entry.n_bytes >= _PARCEL_BYTES:
            yield [entry]
            continue
        if sum(other.n_bytes for other in parcel) + entry.n_bytes > _PARCEL_BYTES:
            yield parcel
            parcel = []
        parcel.append(entry)
    if parcel:
        yield parcel


def _packed(parcel: list[_Entry], tensors: Mapping[str, Tensor], device: torch.device) -> Tensor:
    bytes_of_each = [_as_bytes(tensors[entry.name].to(device)) for entry in parcel]
    return bytes_of_each[0] if len(parcel) == 1 else torch.cat(bytes_of_each)


def _as_bytes(tensor: Tensor) -> Tensor:
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


def _room(parcel: list[_Entry], device: torch.device) -> Tensor:
    return torch.empty(sum(entry.n_bytes for entry in parcel), dtype=torch.uint8, device=device)


def _unpacked(parcel: list[_Entry], packed: Tensor) -> Iterator[tuple[str, Tensor]]:
    for entry, part in zip(parcel, packed.split([entry.n_bytes for entry in parcel]), strict=True):
        # A copy of what came with others: their places in the parcel need not be multiples of their size.
        mine = part if len(parcel) == 1 else part.clone()
        tensor = mine.view(entry.dtype).view(entry.shape)
        yield entry.name, tensor.cpu() if entry.device == "cpu" else tensor


def checksums(tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Return a checksum of each tensor; unequal tensors hardly ever share one."""
    sums = [_bits(tensor).sum(dtype=torch.int64).cpu() for tensor in tensors.values()]
    return dict(zip(tensors, torch.stack(sums).tolist() if sums else (), strict=True))


def differences(everyones: Sequence[Mapping[str, int]]) -> list[tuple[str, list[int], int]]:
    """Return the tensors whose sums differ: name, ranks with another sum than most, and a rank with the usual one.

    `everyones`: results of `checksums`, by rank.
    """
    different = []
    for name in dict.fromkeys(name for sums in everyones for name in sums):
        column = [sums.get(name) for sums in everyones]
        usual = Counter(column).most_common(1)[0][0]  # of equally many that of the lowest rank
        others = [rank for rank, value in enumerate(column) if value != usual]
        if others:
            different.append((name, others, column.index(usual)))
    return different


def _bits(tensor: Tensor) -> Tensor:
    """View the tensor's memory as integers: of 64 bits if they fit, whose sum is the fastest by far, else bytes."""
    flat = _as_bytes(tensor)
    if flat.numel() % 8:
        return flat
    is_aligned = flat.storage_offset() % 8 == 0  # which may differ between workers, and the sum must not
    return (flat if is_aligned else flat.clone()).view(torch.int64)
