"""Errors of a journal that callers tell apart."""

from punctual.core.errors import InvalidSpec


class JournalTaken(InvalidSpec):
    """Another process writes the journal; what was to be written was not."""


class JournalUnusable(InvalidSpec):
    """The journal, or what is needed of it, is damaged or of another version of Punctual: to try again does not help."""


class JournalBusy(InvalidSpec):
    """Another process has been writing the journal for long: it was stopped meanwhile."""


class StoreUnreachable(InvalidSpec):
    """The store of the journal cannot be used now; what was to be written was not."""
