"""The job that has least grows first."""

from dataclasses import dataclass

from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.core.resources import LEAST_CORES
from punctual.policies._base import PolicyBase
from punctual.policies._elastic_fill import ElasticFill, Participant


@dataclass(frozen=True, slots=True, kw_only=True)
class MaxMin(PolicyBase):
    """Makes the smallest share as large as possible, then the next, and so on (weighted max-min fairness).

    Use it for elastic jobs of equal standing. It looks neither at deadlines nor at how much a job gains by growing, so
    jobs that hardly run faster with more get as much as the others.

    Formula, properties and differences: `docs/explanation/policies/max-min.md`.
    """

    def allocate(self, snapshot: Snapshot) -> Plan:
        builder = self._builder(snapshot)
        capacity = builder.hardware.total

        def share(participant: Participant) -> float:
            amount, weight = participant.amount, participant.view.spec.weight
            if amount.gpus and capacity.gpus:
                return amount.gpus / (capacity.gpus * weight)
            return amount.cores / ((capacity.cores or 1.0) * weight)

        return ElasticFill(builder, least_cores=LEAST_CORES).filled(share)
