"""Compute the resources to request from the cluster's autoscaler for jobs that wait for room."""

from math import ceil

from punctual.core.cluster import Snapshot
from punctual.core.job import JobView
from punctual.core.resources import TOLERANCE, Resources
from punctual.executors.cluster.channel import Bundle

#: Seconds after its submission for which a job waits for a plan and not for room.
_NEW_S = 5.0


def requested(snapshot: Snapshot, n_nodes_max: int) -> list[Bundle]:
    """List the bundles of whole CPUs and GPUs that jobs hold or need to start; empty if none waits.

    An autoscaler compares the list with everything that the nodes have, so held resources are included. Bundles of
    waiting jobs are limited to the number of nodes that may be added: even if the autoscaler adds one node for each
    bundle, there are at most `n_nodes_max` nodes.
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
