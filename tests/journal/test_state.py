"""States survive being written, and nothing but states is read."""

import io
import os
import pickle
import pickletools
import zlib
from collections import Counter, OrderedDict, defaultdict, deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.journal.messages import messages

from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.core.ids import JobId, Timer
from punctual.core.job import JobSpec
from punctual.core.resources import Resources
from punctual.journal import state
from punctual.journal.state import dumps, loads
from punctual.papers.decor_nn.decor_pi import DecorPi
from punctual.papers.pollux.adaptive_batch import AdaptiveBatch


@given(messages())
@settings(deadline=None, max_examples=examples(100), suppress_health_check=[HealthCheck.too_slow])
def test_any_message(message: Message) -> None:
    again = loads(dumps(message))
    assert again == message
    assert type(again) is type(message)


PLAIN = [
    None, {1, 2}, frozenset("ab"), (1, [2.5, {"a": b"\0"}]), deque([1, 2], maxlen=2), OrderedDict(a=1), Counter("aab"),
    defaultdict(list, {"a": [1]}), 1 << 100, float("inf"), 1j, range(3), bytearray(b"x"), Timer("tick", JobId("a")),
    Resources(cores=1.5),
]  # fmt: skip


@pytest.mark.parametrize("value", PLAIN, ids=lambda value: type(value).__name__)
def test_plain_values(value: object) -> None:
    again = loads(dumps(value))
    assert again == value
    assert type(again) is type(value)


ARRAYS = [
    np.arange(6.0).reshape(2, 3), np.arange(6).reshape(2, 3).T, np.arange(100)[::7], np.zeros(0), np.array(3),
    np.array([1, "a", None], dtype=object), np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]), np.array(["ab"]),
]  # fmt: skip


@pytest.mark.parametrize("array", ARRAYS, ids=lambda array: f"{array.dtype}-{array.shape}")
def test_arrays(array: Any) -> None:
    again = loads(dumps({"array": array}))["array"]
    assert again.dtype == array.dtype
    np.testing.assert_array_equal(again, array)


@pytest.mark.parametrize("scalar", [np.float64(0.1), np.int32(7), np.bool_(True)], ids=repr)
def test_scalars(scalar: Any) -> None:
    again = loads(dumps(scalar))
    assert again == scalar
    assert type(again) is type(scalar)


class Stranger:
    """Of no package that a state may name."""


REFUSED = {
    "a built-in function": print,
    "a method": Resources.__add__,
    "a command": os.system,
    "a path": Path("x"),
    "an object of another package": Stranger(),
    "a class of another package": Stranger,
    "a function without a name": lambda: 1,
    "a function of numpy": np.sum,
    "an open file": io.StringIO(),
}


@pytest.mark.parametrize("value", REFUSED.values(), ids=REFUSED)
def test_what_could_not_be_read_is_refused_when_it_is_written(value: object) -> None:
    with pytest.raises(InvalidSpec, match="plain values") as refused:
        dumps({"deep": [value]})
    assert refused.value.remedy


#: How a state begins; another format has another number.
MAGIC = b"punctual state 1\n"


def packed(body: bytes) -> bytes:
    """A state with that pickle in it, as `dumps` would write it."""
    return MAGIC + zlib.compress((2).to_bytes(4, "big") + b"{}" + body)


class Call:
    """A pickle of this calls a function when it is read."""

    def __init__(self, function: object, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


MARK = "/nonexistent/punctual-mark"
HOSTILE = {
    "a command": Call(os.system, "true"),
    "code": Call(eval, "1"),
    "an attribute": Call(getattr, "x", "join"),
    "a file": Call(open, MARK),
    "an import": Call(__import__, "os"),
    "a folder": Call(os.mkdir, MARK),
    "a class with effects": Call(Path, "x"),
}


@pytest.mark.parametrize("value", HOSTILE.values(), ids=HOSTILE)
@pytest.mark.parametrize("protocol", [0, 2, 5])
def test_hostile_pickles_are_refused(value: object, protocol: int) -> None:
    with pytest.raises(InvalidSpec, match="not among what a state may hold"):
        loads(packed(pickle.dumps(value, protocol)))


def named(module: str, name: str) -> bytes:
    """A pickle that is nothing but that name."""
    return b"\x80\x04" + _text(module) + _text(name) + b"\x93."


def _text(text: str) -> bytes:
    return b"\x8c" + bytes([len(text)]) + text.encode()


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("punctual.journal.sqlite", "SqliteJournal"),
        ("punctual.executors.local", "LocalExecutor"),
        ("punctual.daemon.paths", "remove_live_places"),
        ("punctual.core.resources", "Resources.__init__"),
        ("punctual.core.resources", "total"),
        ("punctual.core.resources", "Resources.__init__.__globals__"),
        ("punctual.core.resources", "NoSuchClass"),
        ("punctual.core.nothing", "Resources"),
        ("punctual.core.scheduler", "Resources"),
        ("builtins", "eval"),
        ("builtins", "type"),
        ("numpy", "load"),
        ("posix", "system"),
        ("punctual", "core"),
        ("", ""),
    ],
)
def test_names_of_other_things_than_values_are_refused(module: str, name: str) -> None:
    body = named(module, name)
    pickletools.dis(body, out=io.StringIO())  # it is a pickle
    with pytest.raises(InvalidSpec, match="state"):
        loads(packed(body))


@given(st.binary(max_size=200))
def test_garbage_is_refused(garbage: bytes) -> None:
    for text in (garbage, MAGIC + garbage):
        with pytest.raises(InvalidSpec):
            loads(text)


@given(st.data())
@settings(deadline=None, max_examples=examples(60))
def test_a_damaged_state_is_refused_or_harmless(data: st.DataObject) -> None:
    """zlib's own checksum finds nearly all of it; what it lets through was never changed."""
    whole = dumps({"grants": [Resources(cores=float(i)) for i in range(20)]})
    i_byte = data.draw(st.integers(0, len(whole) - 1))
    damaged = whole[:i_byte] + bytes([whole[i_byte] ^ data.draw(st.integers(1, 255))]) + whole[i_byte + 1 :]
    try:
        again = loads(damaged)
    except InvalidSpec:
        return
    assert again == loads(whole)


def test_a_state_that_is_cut_off_is_refused() -> None:
    with pytest.raises(InvalidSpec):
        loads(dumps(list(range(1000)))[:-5])


def test_a_state_that_unpacks_to_more_than_there_is_room_for_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    text = dumps(b"\0" * 10_000)
    monkeypatch.setattr(state, "_N_BYTES_MAX", 5_000)
    with pytest.raises(InvalidSpec, match="too large"):
        loads(text)


def test_a_class_with_other_fields_now_is_refused() -> None:
    text = dumps(Resources(cores=1.0))
    unpacked = zlib.decompress(text[len(MAGIC) :])
    assert b'"cores", ' in unpacked
    other = unpacked.replace(b'"cores", ', b'"seats", ', 1)
    with pytest.raises(InvalidSpec, match="other fields now"):
        loads(MAGIC + zlib.compress(other))


def test_of_papers_only_plain_values_are_held() -> None:
    """A rule of scaling reads files when it is made; the state of a controller only holds numbers."""
    held = DecorPi().init(JobSpec(id=JobId("a"), ceiling=Resources(cores=2.0), deadline_s=60.0))
    assert loads(dumps(held)) == held
    with pytest.raises(InvalidSpec, match="does more than hold values"):
        dumps([AdaptiveBatch])
