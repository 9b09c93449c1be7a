"""Work that is not a step: evaluations, checkpoints."""

from typing import Self

from punctual.tracking.complaint import whole
from punctual.tracking.declaration import check_name
from punctual.tracking.record import PhaseRecord
from punctual.tracking.session import Session, current


def phase(name: str, *, units: int | None = None, rehearsal: bool = False) -> "PhaseSpan":
    """Return one occurrence of a phase: ``with punctual.phase("evaluate", units=20) as progress:``.

    The step in whose body it begins is done at that moment, unless the phase stands at the top of the body. A phase inside another is measured as its own, not as
    part of the outer one. An occurrence left by an exception keeps only the units it had advanced by.

    Parameters
    ----------
    name
        Kind of phase; occurrences of the same name share one estimate.
    units
        Units of this occurrence, reported by `PhaseSpan.advance`. None: as declared or as the last occurrence had.
        An occurrence that never advances is done as a whole when it ends.
    rehearsal
        Whether to measure only: the units tell what the phase will cost, but are not counted as done.

    Raises
    ------
    ValueError
        `name` is not a text, or `units` not a whole number of 1 or more.
    """
    check_name(name)
    n_units = None if units is None else whole(units, "units", f"phase '{name}'", least=1)
    return PhaseSpan(current(), name, n_units, rehearsal)


class PhaseSpan:
    """An occurrence of a phase, from its `with` to its end. Made by `phase`."""

    def __init__(self, session: Session, name: str, n_units: int | None, is_rehearsal: bool) -> None:
        self._session = session
        self._name = name
        self._n_units_declared = n_units
        self._is_rehearsal = is_rehearsal
        self._n_units = 0
        self._outer: PhaseRecord | None = None

    def __enter__(self) -> Self:
        self._outer = self._session.begin_phase(self._name, self._n_units_declared, self._is_rehearsal)
        return self

    def advance(self, n_units: int = 1, *, of: int | None = None) -> None:
        """Report that `n_units` more units are done.

        Parameters
        ----------
        of
            Units of this occurrence in all, where they become known only now; None: as said before.

        Raises
        ------
        ValueError
            `n_units` is not a whole number of 0 or more, or `of` of 1 or more.
        """
        n_units = whole(n_units, "n_units", f"phase '{self._name}'")
        if of is not None and not self._is_rehearsal:
            self._session.expect_units(whole(of, "of", f"phase '{self._name}'", least=1) - self._n_units)
        self._n_units += n_units
        self._session.units_done(n_units, self._is_rehearsal)

    def withdraw(self) -> None:
        """Take the begin of this occurrence back: it does not come now."""
        self._session.withdraw_phase(self._outer)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None and not self._n_units:
            self.advance(self._n_units_declared or 1)
        self._session.end_phase(self._n_units, self._is_rehearsal, self._outer)
