"""Journals of both kinds by one word, so that one test can be for both, and its processes too."""

import json
from pathlib import Path
from typing import Any

from punctual.store.place import StorePlace
from punctual.store.sqlite import SqliteJournal
from punctual.store.stored import StoredJournal


def opened(where: str, **options: Any) -> StoredJournal:
    """The journal at `where`: a path, or what `StorePlace.told` gives as JSON; with options of its class."""
    if not where.startswith("{"):
        return SqliteJournal(Path(where), **options)
    from punctual.store.postgresql import PostgresJournal

    place = StorePlace.of(json.loads(where))
    assert place is not None
    return PostgresJournal(place, **options)
