"""Errors of a journal that callers tell apart."""

from punctual.core.errors import InvalidSpec


class JournalTaken(InvalidSpec):
    """Another process writes the journal; the messages were not written."""


class JournalUnusable(InvalidSpec):
    """The journal, or a needed part, is damaged or of another version of Punctual; a retry does not help."""


class JournalBusy(InvalidSpec):
    """Another process has been writing the journal for long: it was stopped meanwhile."""


class StoreUnreachable(InvalidSpec):
    """The store of the journal cannot be used now; the messages were not written."""
