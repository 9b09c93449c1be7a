"""Pacing: a unit that would be done ahead of the pacing line waits."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic_ns, sleep

from punctual.channel import Directives, SharedBlock
from punctual.tracking.record import PhaseRecord


def work_steps(n_steps: int, phases: Sequence[PhaseRecord], directives: Directives) -> float:
    """Work done, in steps: a unit of a phase counts as many steps as the directives say."""
    costs_steps = directives.phase_cost_steps
    return n_steps + sum(phase.n_units_done * cost for phase, cost in zip(phases, costs_steps, strict=False))


class Pacer:
    """The latest directives, and the waits that they require. `excused`: context inside of which waits are made."""

    def __init__(self, page: SharedBlock) -> None:
        self.directives = Directives()
        self.excused: Callable[[], AbstractContextManager[None]] = nullcontext
        self._page = page
        self._version = 0

    def refresh(self) -> None:
        """Read the directives if they have changed."""
        version = self._page.directives_version()
        if version != self._version:
            # The version is the older of the two: directives that change just now are read again next time.
            self.directives = self._page.directives()
            self._version = version

    def hold(self, n_steps: int, phases: Sequence[PhaseRecord]) -> None:
        """Wait until the line allows this much work to be done."""
        if self._wait_ns(n_steps, phases) > 0:
            with self.excused():
                while (wait_ns := self._wait_ns(n_steps, phases)) > 0:
                    # A sleep is cut into slices, so that new directives take effect within one.
                    sleep(min(wait_ns / 1e9, 0.1))
                    self.refresh()

    def _wait_ns(self, n_steps: int, phases: Sequence[PhaseRecord]) -> float:
        if not self.directives.pacing or self.directives.stop or self.directives.leave:
            return 0.0
        now_ns = monotonic_ns()
        # Punctual ticks at least every half second; after this long nobody steers, and training goes on at full
        # speed.
        if now_ns - self._page.heartbeat_ns() > 5_000_000_000:
            return 0.0
        return self.directives.unit_may_end_ns(work_steps(n_steps, phases, self.directives)) - now_ns
