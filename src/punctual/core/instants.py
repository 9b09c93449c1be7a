"""Shift all instants of a message to another clock."""

from dataclasses import fields, replace
from typing import Any, TypeVar, cast

M = TypeVar("M")

#: The fields of messages that are instants.
_INSTANTS = {"at", "unit_at", "landed_at", "submitted_at"}


def moved(message: M, by_s: float) -> M:
    """Return `message` with all its instants `by_s` later."""
    instants = [field.name for field in fields(cast(Any, message)) if field.name in _INSTANTS]
    return cast(M, replace(cast(Any, message), **{name: getattr(message, name) + by_s for name in instants}))
