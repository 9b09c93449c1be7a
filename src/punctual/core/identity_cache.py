"""Cache of a function of immutable objects, by identity."""

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")

#: More objects than any queue has.
N_REMEMBERED_MAX = 1 << 15


class IdentityCache(Generic[K, V]):
    """A function of an immutable object, computed once for each.

    The scheduler shows a job by the same view until something about it changes, so what only depends on the view need
    not be computed at every round. Objects are told apart by identity: comparing them would cost as much as computing.

    Parameters
    ----------
    n_max
        All that is remembered is forgotten when it would be of more objects than this.
    """

    def __init__(self, compute: Callable[[K], V], n_max: int = N_REMEMBERED_MAX) -> None:
        self._compute = compute
        self._n_max = n_max
        self._known: dict[int, tuple[K, V]] = {}

    def __call__(self, of: K) -> V:
        known = self._known.get(id(of))
        if known is not None:  # the object is kept with its value, so no other can have its identity
            return known[1]
        if len(self._known) >= self._n_max:
            self._known.clear()
        value = self._compute(of)
        self._known[id(of)] = of, value
        return value

    def each(self, objects: Iterable[K]) -> list[V]:
        """Return the function's values of `objects`, in order; most are cached and found without a call."""
        known = self._known
        return [known[id(of)][1] if id(of) in known else self(of) for of in objects]
