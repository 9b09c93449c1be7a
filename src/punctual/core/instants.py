"""Shift all instants of a message to another clock."""

from dataclasses import fields, replace
from typing import Any, TypeVar, cast

M = TypeVar("M")

#: The fields of messages that are instants.
_INSTANTS = {"at", "unit_at", "landed_at", "submitted_at", "ends_at", "again_at"}


def moved(message: M, by_s: float) -> M:
    """Return `message` with all its instants shifted by `by_s` seconds."""
    names = [field.name for field in fields(cast(Any, message)) if field.name in _INSTANTS]
    instants = {name: at for name in names if (at := getattr(message, name)) is not None}
    return cast(M, replace(cast(Any, message), **{name: at + by_s for name, at in instants.items()}))
