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

    Notes
    -----
    *Formula.* Dominant share of job i with weight w_i that holds the amounts a_ik of capacities C_k:
    s_i = max_k a_ik / C_k / w_i. Every job that runs or fits starts from the least that it may hold. Then, again and
    again, the job with the smallest s_i takes its next larger allowed amount if there is room; a job for which there is
    none stays as it is.

    *Source.* [ghodsi2011].

    *Differs.* See the page of this policy.

    *Properties.* Deterministic; O(n log n) in the steps that are taken. A job of which the number of workers stays keeps
    its nodes. No job is paused.

    *Fails when* resizing is expensive: every arrival and every end moves all shares.
    """

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        capacity = builder.hardware.total

        def share(participant: Participant) -> float:
            return max(shares_of(participant.amount, capacity)) / participant.view.spec.weight

        return ElasticFill(builder, least_cores=LEAST_CORES).filled(share)
