"""What readers share."""

from collections.abc import Set as AbstractSet

from punctual.traces.source import Head

GIB = 2**30
MIB = 2**20
MS_PER_S = 1_000


def has_columns(head: Head, required: AbstractSet[str], optional: AbstractSet[str] = frozenset()) -> bool:
    """Whether the header names all that is `required` and nothing beyond it but what is `optional`."""
    found = set(head.columns())
    return required <= found <= required | optional
