"""One decision of `smd-exact`: all pairs of all waiting jobs in one knapsack of what they use."""

import numpy as np

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.optim.solution import FloatArray, IntArray
from punctual.policies._interval import Interval, Offer, Wish
from punctual.policies._menu import fill, undominated


def decide(snapshot: Snapshot, *, gap_limit: float) -> Plan:
    """The plan, with what its jobs are worth and a bound of it."""
    interval = Interval(snapshot)
    menus = [_Menu(interval, offers) for view in interval.waiting if (offers := interval.offers(view))]
    if not menus:
        return interval.plan()
    uses, utilities = [menu.uses for menu in menus], [menu.utilities for menu in menus]
    found = fill(uses, utilities, interval.free(), gap_limit=gap_limit)
    wishes = [menu.wish(int(way) - 1) for menu, way in zip(menus, found.choices, strict=True) if way]
    started = interval.start(wishes)
    return interval.plan(objective=started, bound=max(found.bound, started))


class _Menu:
    """The ways in which one job can run that no other way beats, on all kinds of nodes."""

    def __init__(self, interval: Interval, offers: list[Offer]) -> None:
        self._offers = offers
        kept = [undominated(offer.pairs.amounts, offer.worths) for offer in offers]
        self._of_offer: IntArray = np.concatenate([np.full(len(ways), i) for i, ways in enumerate(kept)])
        self._of_pair: IntArray = np.concatenate(kept)
        parts = [
            interval.on_kind(offer.kind, offer.pairs.amounts[ways]) for offer, ways in zip(offers, kept, strict=True)
        ]
        self.uses: FloatArray = np.concatenate(parts)
        self.utilities: FloatArray = np.concatenate(
            [offer.worths[ways] for offer, ways in zip(offers, kept, strict=True)]
        )

    def wish(self, way: int) -> Wish:
        return Wish(self._offers[int(self._of_offer[way])], int(self._of_pair[way]))
