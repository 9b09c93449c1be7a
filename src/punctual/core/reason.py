"""Reasons of decisions, as data."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from punctual.core.fast_init import fast_init


@fast_init
@dataclass(frozen=True, slots=True)
class Reason:
    """Reason of a decision.

    Attributes
    ----------
    code
        A word for programs, from a small fixed set of the component that decides: ``"start-up"``.
    text
        One sentence for people.
    facts
        The numbers it rests on, named with their units.
    """

    code: str
    text: str
    facts: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.text


#: Codes of messages that are told once and need no attention.
NOTICES = frozenset({"progress-read"})
