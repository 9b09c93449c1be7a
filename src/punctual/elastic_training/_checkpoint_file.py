"""Checkpoint files that `safetensors` can read: tensors one after the other, everything else in the header.

=========== ==========================================================================================================
bytes       content
=========== ==========================================================================================================
8           length of the header, little-endian
header      JSON: first the SHA-256 of the file (of all of it but these 64 digits), then this format's version, the
            values that are no tensors, names of tensors that are the same as another; then place, kind and shape of each
rest        the tensors, those with the largest elements first, so that each lies at a multiple of its element's size
=========== ==========================================================================================================
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import file_digest, sha256
from io import BufferedReader
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from punctual.elastic_training._memory import memory_of
from punctual.elastic_training.replica import TrainingState
from punctual.tracking.complaint import invalid

_VERSION = 1
_BEGIN = b'{"__metadata__":{"sha256":"'
_N_DIGITS = 64
_LENGTH_BYTES = 8
_DIGITS_AT = _LENGTH_BYTES + len(_BEGIN)
#: Names of element types in the layout.
_KINDS = {
    torch.float64: "F64", torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16",
    torch.float8_e4m3fn: "F8_E4M3", torch.float8_e5m2: "F8_E5M2", torch.complex64: "C64",
    torch.int64: "I64", torch.int32: "I32", torch.int16: "I16", torch.int8: "I8",
    torch.uint64: "U64", torch.uint32: "U32", torch.uint16: "U16", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


class Damaged(Exception):
    """Raised if the file is no checkpoint that can be read.

    * `reason`: what is wrong with it.
    * `is_later`: it is whole, and of a later version of Punctual.
    """

    def __init__(self, reason: str, *, is_later: bool = False) -> None:
        super().__init__(reason)
        self.is_later = is_later


@dataclass(frozen=True, slots=True)
class Image:
    """A state in the layout of its file.

    * `header`: the file up to the tensors, the digits of the digest being zeros.
    * `block`: the tensors' bytes, one after the other.
    """

    header: bytes
    block: Tensor


def image(state: TrainingState, block: Tensor | None) -> Image:
    """Copy `state` into an image; `block` and its memory are reused if it has the right size.

    * Raises `ValueError`: a tensor is sparse or quantised.
    * Raises `TypeError`, `ValueError`: a value is nothing that JSON has.
    """
    tensors = state.tensors
    places, aliases = _places(tensors)
    header = _header(tensors, places, json.dumps({"format": _VERSION, "values": state.values, "aliases": aliases}))
    n_bytes = max((end for _, end in places.values()), default=0)
    if block is None or block.numel() != n_bytes:
        block = torch.empty(n_bytes, dtype=torch.uint8, pin_memory=any(one.is_cuda for one in tensors.values()))
    for name, (start, end) in places.items():
        tensor = tensors[name].detach()
        block[start:end].view(tensor.dtype).view(tensor.shape).copy_(tensor, non_blocking=True)
    for device in {tensor.device for tensor in tensors.values() if tensor.is_cuda}:
        torch.cuda.synchronize(device)
    return Image(header, block)


def write(path: Path, content: Image) -> None:
    """Write the file at `path`, which must not exist, and return once it is on the disk."""
    digest = sha256(content.header[:_DIGITS_AT])
    digest.update(content.header[_DIGITS_AT + _N_DIGITS :])
    memory = memory_of(content.block)
    digest.update(memory)
    header = bytearray(content.header)
    header[_DIGITS_AT : _DIGITS_AT + _N_DIGITS] = digest.hexdigest().encode()
    with path.open("xb") as file:
        file.write(header)
        file.write(memory)
        file.flush()
        os.fsync(file.fileno())
        # What is read back to be verified shall be what the disk has, not what this program has just written.
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def verify(path: Path) -> None:
    """Read the whole file in pieces and check its sum.

    Raises `Damaged`: something is missing, or something is not as it was written.
    """
    with path.open("rb") as file:
        _verify(file)


def read(path: Path) -> TrainingState:
    """Read the state onto the CPU. Names that shared a tensor share one again.

    Anybody can write a digest that fits: what the header says is compared with what there is before it is believed.

    Raises `Damaged`: as for `verify`, or the header does not describe the file.
    """
    with path.open("rb") as file:
        _verify(file)
        file.seek(0)
        try:
            return _state(file)
        # Whatever a header can hold in place of what it should, and what `torch` makes of that.
        except (ValueError, TypeError, LookupError, AttributeError, RuntimeError, OverflowError) as error:
            raise Damaged(f"its header does not describe it ({type(error).__name__})") from error


def _state(file: BufferedReader) -> TrainingState:
    n_header = int.from_bytes(file.read(_LENGTH_BYTES), "little")
    n_bytes = os.fstat(file.fileno()).st_size - _LENGTH_BYTES - n_header
    if n_bytes < 0:
        raise Damaged(f"its header is to have {n_header} bytes, which it has not")
    entries = json.loads(file.read(n_header))
    ours = json.loads(entries.pop("__metadata__")["punctual"])
    if ours["format"] != _VERSION:
        reason = f"format {str(ours['format'])[:40]}, where this version of Punctual reads format {_VERSION}"
        raise Damaged(reason, is_later=isinstance(ours["format"], int) and ours["format"] > _VERSION)
    spans = [one["data_offsets"] for one in entries.values()]
    # Each tensor is copied: together they may not be more than there is.
    if (
        any(not 0 <= start <= end <= n_bytes for start, end in spans)
        or sum(end - start for start, end in spans) > n_bytes
    ):
        raise Damaged(f"its header tells of tensors that are not within its {n_bytes} bytes")
    block = torch.empty(n_bytes, dtype=torch.uint8)
    if file.readinto(memory_of(block)) != n_bytes:
        raise Damaged(f"it ends before its {n_bytes} bytes of tensors")
    tensors = {name: _view(block, entry) for name, entry in entries.items()}
    tensors |= {name: tensors[same] for name, same in ours["aliases"].items()}
    return TrainingState(tensors, dict(ours["values"]))


# The header.


def _places(tensors: Mapping[str, Tensor]) -> tuple[dict[str, tuple[int, int]], dict[str, str]]:
    """Return the byte range of each tensor, and names that share a tensor with another name."""
    first_of: dict[object, str] = {}
    aliases: dict[str, str] = {}
    places: dict[str, tuple[int, int]] = {}
    end = 0
    for name, tensor in sorted(tensors.items(), key=lambda item: -item[1].element_size()):
        _kind(name, tensor)
        first = first_of.setdefault(
            (tensor.data_ptr(), tensor.device, tensor.dtype, tensor.shape, tensor.stride()) if tensor.numel() else name,
            name,
        )
        if first != name:
            aliases[name] = first
            continue
        start, end = end, end + tensor.numel() * tensor.element_size()
        places[name] = (start, end)
    return places, aliases


def _header(tensors: Mapping[str, Tensor], places: Mapping[str, tuple[int, int]], ours: str) -> bytes:
    entries = {
        name: {"dtype": _kind(name, tensors[name]), "shape": list(tensors[name].shape), "data_offsets": place}
        for name, place in places.items()
    }
    about = {"sha256": "0" * _N_DIGITS, "punctual": ours}
    text = json.dumps({"__metadata__": about, **entries}, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _kind(name: str, tensor: Tensor) -> str:
    kind = _KINDS.get(tensor.dtype)
    if kind is None or tensor.layout != torch.strided:
        raise invalid(
            "a tensor of a checkpoint must be dense and of a plain type", f"{tensor.dtype}, {tensor.layout},",
            f"tensor '{name}'", "Leave it out of what `context.elastic` is given, or convert it.",
        )  # fmt: skip
    return kind


def _view(block: Tensor, entry: Mapping[str, Any]) -> Tensor:
    (dtype,) = (dtype for dtype, kind in _KINDS.items() if kind == entry["dtype"])
    start, end = entry["data_offsets"]
    # A copy: a view would keep the memory of the whole state as long as one tensor of it is needed.
    return block[start:end].view(dtype).view(entry["shape"]).clone()


def _verify(file: BufferedReader) -> None:
    begin, digits = file.read(_DIGITS_AT), file.read(_N_DIGITS)
    if begin[_LENGTH_BYTES:] != _BEGIN or len(digits) != _N_DIGITS:
        raise Damaged(f"its first {_DIGITS_AT + _N_DIGITS} bytes are not those of a checkpoint")
    digest = file_digest(file, lambda: sha256(begin))
    if digest.hexdigest().encode() != digits:
        raise Damaged(f"its {file.tell()} bytes are not those that were written: their SHA-256 differs")
