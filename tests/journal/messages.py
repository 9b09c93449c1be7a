"""Hypothesis strategies for messages of every kind."""

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, NewType, Union, cast, get_args, get_origin, get_type_hints

from hypothesis import strategies as st

from punctual.core import lifecycle
from punctual.core.events import Message
from punctual.core.ids import JobId, Timer, TimerKind
from punctual.core.job import JobSpec
from punctual.core.program import Program
from punctual.core.resources import Resources

KINDS: tuple[type, ...] = tuple(lifecycle.KINDS.values())


def amounts() -> st.SearchStrategy[Resources]:
    """Any amount of hardware."""
    return st.builds(Resources, st.floats(0, 1e6), st.floats(0, 64), st.integers(0, 1 << 50))


@st.composite
def job_specs(draw: st.DrawFn) -> JobSpec:
    """Any valid specification."""
    floor = draw(amounts())
    return JobSpec(
        id=draw(st.text(min_size=1, max_size=20)),  # type: ignore[arg-type]
        floor=floor,
        ceiling=draw(amounts().filter(bool)).at_least(floor),
        work_steps=draw(st.none() | st.floats(1e-3, 1e12)),
        deadline_s=draw(st.none() | st.floats(1e-3, 1e9)),
        weight=draw(st.floats(1e-3, 1e3)),
        resize_cost_s=draw(st.floats(0, 1e4)),
        preemptible=draw(st.booleans()),
        controller=draw(st.text(max_size=20)),
        margin_frac=draw(st.none() | st.floats(0, 0.49)),
    )


def programs() -> st.SearchStrategy[Program]:
    """Any valid program."""
    texts = st.text(max_size=20)
    return st.builds(
        Program,
        argv=st.lists(st.text(min_size=1, max_size=20), min_size=1, max_size=3).map(tuple),
        cwd=st.none() | texts,
        environment=st.dictionaries(texts, texts, max_size=3),
        progress_pattern=st.none() | texts,
    )


def timers() -> st.SearchStrategy[Timer]:
    """Any timer."""
    kinds: tuple[TimerKind, ...] = get_args(TimerKind)
    return st.builds(Timer, st.sampled_from(kinds), st.text(max_size=20).map(JobId))


def _json_values() -> st.SearchStrategy[object]:
    plain = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20)
    return st.recursive(
        plain, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=5,
    )  # fmt: skip


def messages() -> st.SearchStrategy[Message]:
    """Any message, of any kind."""
    return st.sampled_from(KINDS).flatmap(messages_of)


def messages_of(kind: type) -> st.SearchStrategy[Message]:
    """Any message of one kind."""
    return cast(st.SearchStrategy[Message], _value_of(kind))


def _value_of(hint: Any) -> st.SearchStrategy[Any]:
    """Any value of a type, of those that occur in messages."""
    if hint in _SPECIAL:
        return _SPECIAL[hint]()
    if isinstance(hint, NewType):
        return _value_of(hint.__supertype__)
    if isinstance(hint, type) and is_dataclass(hint):
        hints = get_type_hints(hint)
        return st.builds(hint, **{field.name: _value_of(hints[field.name]) for field in fields(hint)})
    return _value_of_generic(get_origin(hint), get_args(hint))


def _value_of_generic(origin: Any, arguments: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, UnionType):
        return st.one_of([_value_of(argument) for argument in arguments])
    if origin is tuple:
        return st.lists(_value_of(arguments[0]), max_size=3).map(tuple)
    return st.dictionaries(_value_of(arguments[0]), _value_of(arguments[1]), max_size=3)


_SPECIAL: dict[Any, Callable[[], st.SearchStrategy[Any]]] = {
    float: lambda: st.floats(allow_nan=False),  # NaN is not equal to itself; infinities are allowed
    int: st.integers,
    bool: st.booleans,
    str: lambda: st.text(max_size=20),
    NoneType: st.none,
    object: _json_values,
    Any: _json_values,
    Resources: amounts,
    JobSpec: job_specs,
    Program: programs,
    Timer: timers,
}
