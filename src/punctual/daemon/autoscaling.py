"""What a cluster is asked to have room for, where jobs wait because no node has it."""

from math import ceil

from punctual.core.cluster import Snapshot
from punctual.core.job import JobView
from punctual.core.resources import TOLERANCE, Resources
from punctual.executors.cluster.channel import Bundle

#: Who has just come waits for a plan, and not yet for room; seconds.
_NEW_S = 5.0


def requested(snapshot: Snapshot, n_nodes_max: int) -> list[Bundle]:
    """What jobs are to hold and what waiting ones need to start, in whole CPUs and GPUs; nothing if none waits.

    An autoscaler compares it with all that the nodes have, so it names both. Of what waits there is no more than that many
    nodes could be added for, each with room for one of it: so there are `n_nodes_max` nodes at most, if it adds one for each.
    """
    waiting = [view for view in snapshot.waiting if snapshot.at >= view.submitted_at + _NEW_S]
    lacking = [_bundle(_least(view)) for view in waiting if view.status != "stopping"]
    lacking = lacking[: max(0, n_nodes_max - len(snapshot.nodes))]
    held = [_bundle(amount) for view in snapshot.holding for amount in (view.planned or view.granted).values()]
    return sorted((*held, *lacking), key=lambda bundle: (bundle["GPU"], bundle["CPU"])) if lacking else []


def _least(view: JobView) -> Resources:
    spec = view.spec
    return spec.floor if spec.unit is None else spec.unit * next(iter(spec.worker_counts()), 1)


def _bundle(amount: Resources) -> Bundle:
    return {"CPU": max(1, ceil(amount.cores - TOLERANCE)), "GPU": ceil(amount.gpus - TOLERANCE)}
