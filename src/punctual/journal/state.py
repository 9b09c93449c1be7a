"""Encode the scheduler's state as bytes and decode it, for snapshots.

A pickle, so that the state may hold what controllers and models keep: dataclasses, named tuples, enumerations and
numpy arrays. Reading one can build values and nothing else: it names no function, and no class but plain values and
those of the pure packages, which have no effects, and plain values of papers. A state that could not be read is refused when it is written.

A snapshot says which fields each of its classes had. One that was written with other fields, by another version of
Punctual, is refused instead of being misread.
"""

import io
import json
import pickle
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from punctual.core.errors import InvalidSpec

_MAGIC = b"punctual state 1\n"
#: Limit of an unpacked snapshot: far above any scheduler's state, and below a size that would stop the machine.
_N_BYTES_MAX = 1 << 28

_PURE = ("core", "solvers", "estimators", "controllers", "policies", "history")
_PAPERS = "punctual.papers."
_PLAIN = {
    "builtins": {"set", "frozenset", "bytearray", "complex", "range", "slice", "list", "dict", "tuple", "object"},
    "collections": {"OrderedDict", "deque", "defaultdict", "Counter"},
    "array": {"array", "_array_reconstructor"},
    "datetime": {"datetime", "date", "time", "timedelta", "timezone"},
    "decimal": {"Decimal"},
    "fractions": {"Fraction"},
    "numpy": {"ndarray", "dtype"},
}
#: Functions that rebuild arrays; numpy has moved them between its versions.
_ARRAYS = {"_reconstruct", "scalar", "_frombuffer"}
_ARRAY_MODULES = {f"numpy.{core}.{module}" for core in ("core", "_core") for module in ("multiarray", "numeric")}


def dumps(state: object) -> bytes:
    """`state` as bytes.

    Raises `InvalidSpec`: it holds something that `loads` would refuse: an open file, a function, a class that is
    neither plain nor of Punctual's pure packages.
    """
    must = "the state must consist of plain values, arrays and classes of Punctual's pure packages"
    with _refused(must, "Let controllers, models and policies keep such values only."):
        written = io.BytesIO()
        writer = _StatePickler(written, protocol=5)
        writer.dump(state)
        body, layouts = written.getvalue(), dict(map(_layout, filter(is_dataclass, writer.parts)))
        # Reading is the only sure way to know that something can be read, and costs more than writing: a state of many
        # jobs would hold up what it is of. So it is read if it has a part of a kind that none had that was read before.
        if not _READ.issuperset(writer.parts):
            _StateUnpickler(body, lambda name, layout: layouts.get(name) == layout).load()
            _READ.update(writer.parts)
    header = json.dumps(layouts).encode()
    return _MAGIC + zlib.compress(len(header).to_bytes(4, "big") + header + body, level=1)


def loads(state: bytes) -> Any:
    """Return the state that `dumps` encoded.

    Raises `InvalidSpec`: `state` is damaged, names objects other than values, or was written by a version with other
    fields.
    """
    must = "a snapshot must hold a state that this version of Punctual has written"
    with _refused(must, "Read the journal with the version of Punctual that wrote it."):
        unpacked = _unpacked(state)
        n_header = int.from_bytes(unpacked[:4], "big")
        layouts = json.loads(unpacked[4 : 4 + n_header])
        return _StateUnpickler(unpacked[4 + n_header :], lambda name, layout: layouts.get(name) == layout).load()


#: The `_StatePickler.parts` of all states that this process has written and been able to read.
_READ: set[Any] = set()


class _StatePickler(pickle.Pickler):
    """Pickles a state and notes the kinds of its parts: their classes, and the classes and functions among them."""

    def __init__(self, file: io.BytesIO, protocol: int) -> None:
        super().__init__(file, protocol)
        self.parts: set[Any] = set()

    def reducer_override(self, value: Any) -> Any:
        self.parts.add(value if hasattr(value, "__qualname__") else type(value))
        return NotImplemented  # it is written as it would be without this


def _layout(kind: Any) -> tuple[str, list[str]]:
    """Name of a dataclass, and its fields."""
    return f"{kind.__module__}.{kind.__qualname__}", [field.name for field in fields(kind)]


class _StateUnpickler(pickle.Unpickler):
    """Unpickles classes of values only; `knows` says whether a class has its recorded fields."""

    def __init__(self, body: bytes, knows: Callable[[str, list[str]], bool]) -> None:
        super().__init__(io.BytesIO(body))
        self._knows = knows

    def find_class(self, module: str, name: str) -> Any:
        if not (_is_ours(module) or name in _PLAIN.get(module, ()) or (module in _ARRAY_MODULES and name in _ARRAYS)):
            raise pickle.UnpicklingError(f"'{module}.{name}' is not among what a state may hold")
        value = super().find_class(module, name)
        if not _is_ours(module):
            return value
        if not isinstance(value, type) or (value.__module__, value.__qualname__) != (module, name):
            raise pickle.UnpicklingError(f"'{module}.{name}' is no class that is defined there")
        if module.startswith(_PAPERS) and not _is_value(value):
            raise pickle.UnpicklingError(f"'{module}.{name}' does more than hold values")
        if is_dataclass(value) and not self._knows(*_layout(value)):
            raise pickle.UnpicklingError(f"'{module}.{name}' has other fields now")
        return value


def _is_ours(module: str) -> bool:
    """Whether a state may hold classes of the module: it is pure, or a paper's, of which `_is_value` decides."""
    return module.startswith(_PAPERS) or (module.startswith("punctual.") and module.split(".")[1] in _PURE)


def _is_value(kind: type) -> bool:
    """Whether making a `kind` has no effect: papers also have classes that read files when they are made."""
    makes_itself = is_dataclass(kind) and getattr(kind, "__dataclass_params__").init  # noqa: B009 -- mypy knows none
    return (
        (makes_itself and not hasattr(kind, "__post_init__"))
        or issubclass(kind, Enum)
        or (issubclass(kind, tuple) and hasattr(kind, "_fields"))
    )


def _unpacked(state: bytes) -> bytes:
    if not state.startswith(_MAGIC):
        raise pickle.UnpicklingError("it does not begin as one")
    unpacking = zlib.decompressobj()
    unpacked = unpacking.decompress(state[len(_MAGIC) :], _N_BYTES_MAX)
    if not unpacking.eof:
        raise pickle.UnpicklingError("it is cut off, or too large")
    return unpacked


@contextmanager
def _refused(must: str, remedy: str) -> Iterator[None]:
    """Convert all exceptions within to `InvalidSpec`: a damaged pickle can raise nearly any."""
    try:
        yield
    except Exception as error:
        got = f"{type(error).__name__}: {error}"[:300]
        raise InvalidSpec(must, got, "a snapshot of the scheduler", remedy) from error
