"""Let the job with the smallest dominant share grow first."""

from dataclasses import dataclass

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.core.resources import LEAST_CORES
from punctual.policies._base import PolicyBase
from punctual.policies._elastic_fill import ElasticFill, Participant
from punctual.policies._jobs import shares_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DominantShare(PolicyBase):
    """Equalises the dominant shares of jobs: each one's largest share of any kind of hardware (DRF).

    Use it where jobs differ in what they need: some many cores, some memory, some devices. With one kind of hardware it
    is `max-min`. It does not look at deadlines.

    Formula, properties and differences: `docs/explanation/policies/dominant-share.md`.
    """

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        capacity = builder.hardware.total

        def share(participant: Participant) -> float:
            return max(shares_of(participant.amount, capacity)) / participant.view.spec.weight

        return ElasticFill(builder, least_cores=LEAST_CORES).filled(share)
