"""The bytes of a page, which processes of different releases share: another layout needs another `MAGIC`."""

import mmap
import struct
from dataclasses import dataclass

from punctual.channel import N_LOSSES_MAX, N_PHASES_MAX

MAGIC = b"PNCTUAL\x04"
NAME_BYTES = 24
GUARD_BYTES = 8


@dataclass(frozen=True)
class Region:
    """A payload between two guards."""

    offset: int
    payload: str

    @property
    def end(self) -> int:
        return self.offset + 2 * GUARD_BYTES + struct.calcsize(f"<{self.payload}")

    @property
    def fields(self) -> list[object]:
        """A payload in which no field is zero."""
        zeros = struct.unpack(f"<{self.payload}", bytes(self.end - self.offset - 2 * GUARD_BYTES))
        return [b"x" if isinstance(zero, bytes) else type(zero)(1) for zero in zeros]

    def write(self, page: mmap.mmap, version: int, *fields: object) -> None:
        guard = struct.pack("<Q", version)
        page[self.offset : self.end] = guard + struct.pack(f"<{self.payload}", *fields) + guard

    def read(self, page: mmap.mmap) -> list[object]:
        """The payload, without the zeros that fill a text."""
        fields = struct.unpack_from(f"<{self.payload}", page, self.offset + GUARD_BYTES)
        return [field.rstrip(b"\0") if isinstance(field, bytes) else field for field in fields]

    def begin_write(self, page: mmap.mmap) -> None:
        """Leave the region as a writer does that stops in the middle of a write."""
        (version,) = struct.unpack_from("<Q", page, self.offset)
        struct.pack_into("<Q", page, self.offset, version + 1)


PROGRESS = Region(64, "qqqqqq")
DECLARATION = Region(128, "qqqqqq")
HEARTBEAT = Region(256, "q")
DIRECTIVES = Region(320, f"qqqqdd{N_PHASES_MAX}d")
TARGET = Region(448, "qqqqqq")
STATUS = Region(512, "qqqqqqqqqqq160s")
GROUP = Region(832, "q32s")
DEVICE = Region(896, "qqqq64s")
PHASES = Region(1024, "q" + f"{NAME_BYTES}sdqqqqqd" * N_PHASES_MAX)
LOSSES = Region(2048, "q" + "qd" * N_LOSSES_MAX)

BY_TRAINING = (PROGRESS, DECLARATION, STATUS, GROUP, DEVICE, PHASES, LOSSES)
BY_PUNCTUAL = (HEARTBEAT, DIRECTIVES, TARGET)
REGIONS = (*BY_TRAINING, *BY_PUNCTUAL)
