"""Estimate the offset of another machine's clock."""

from math import inf

#: Greatest drift between two clocks, seconds a second.
_DRIFT = 1e-4


class ClockOffset:
    """Offset of another clock to this one, from exchanges that both have stamped.

    A request that is sent at t₀ and received at r (the other clock) cannot have arrived before it was sent, so the offset is at
    most r − t₀; its answer, sent at s and received at t₁, says in the same way that it is at least s − t₁. The middle of the
    narrowest such interval is taken, as far as it is not too old.
    """

    def __init__(self) -> None:
        self._width_s, self._taken_at = inf, -inf
        self.offset_s = 0.0

    def take(self, sent_at: float, received: float, answered: float, heard_at: float) -> None:
        """Take one exchange into account: `received` and `answered` are of the other clock."""
        least_s, most_s = answered - heard_at, received - sent_at
        width_s = most_s - least_s
        if width_s <= self._width_s + _DRIFT * (heard_at - self._taken_at):
            self._width_s, self._taken_at = width_s, heard_at
            self.offset_s = (least_s + most_s) / 2.0
