"""Encode messages as text and decode them without loss.

Writing walks the dataclasses by itself, because a run only writes and pydantic is slow to start; reading checks what
it finds and uses pydantic. Infinite numbers are written as ``Infinity``. What a policy carries from plan to plan has
to consist of numbers, text, booleans, None, lists and dictionaries with text as keys.
"""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar

from punctual.core.errors import InvalidSpec
from punctual.core.events import Message
from punctual.core.lifecycle import KINDS
from punctual.core.resources import Resources

if TYPE_CHECKING:
    from pydantic import TypeAdapter

T = TypeVar("T")


def kind_of(message: Message) -> str:
    """Return the name under which messages of this kind are stored."""
    return type(message).__name__


def encode(message: Message) -> str:
    """Return the fields of `message` as JSON."""
    return _ENCODER.encode(message)


def decode(kind: str, text: str) -> Message:
    """Return the message that `encode` wrote.

    Raises
    ------
    InvalidSpec
        `kind` is unknown, or `text` is no message of this kind.
    """
    if kind not in KINDS:
        raise InvalidSpec(
            "a message must be of a known kind", f"'{kind}'", "a journal",
            "Read it with the version of Punctual that wrote it.",
        )  # fmt: skip
    try:
        return decode_fields(KINDS[kind], json.loads(text))
    except (ValueError, TypeError, OverflowError, RecursionError) as error:
        raise InvalidSpec(
            f"the text must hold a {kind}", repr(text)[:200], "a journal", f"The file may be damaged ({error})."
        ) from error


def decode_fields(kind: type[T], told: object) -> T:
    """Return the dataclass with the fields `told`, as of `dataclasses.asdict`; raise `ValueError` if they are wrong."""
    adapter: TypeAdapter[T] = _adapter(kind)  # type: ignore[arg-type]  # a class is hashable
    return adapter.validate_python(told)


def _as_dict(value: object) -> dict[str, Any]:
    if isinstance(value, Resources) and not value.others:  # most of what a journal keeps is amounts
        return {"cores": value.cores, "gpus": value.gpus, "memory_bytes": value.memory_bytes}
    if is_dataclass(value) and not isinstance(value, type):
        return {name: getattr(value, name) for name in _names_of(type(value))}
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"a journal cannot keep {type(value).__name__}: {value!r}")


@cache
def _names_of(kind: type) -> list[str]:
    """Return the names of a dataclass's fields."""
    return [field.name for field in fields(kind)]


#: Made once: `json.dumps` with these arguments makes one for each message.
_ENCODER = json.JSONEncoder(default=_as_dict, separators=(",", ":"))


@cache
def _adapter(kind: Any) -> "TypeAdapter[Any]":
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
