"""Minimum satisfactory share: the fewest devices that meet each deadline, one job after the other."""

from collections.abc import Iterable

import numpy as np

from slots.filling import Filling
from slots.problem import SlotPlan, SlotProblem, is_done


def minimum_share(problem: SlotProblem, order: Iterable[int] | None = None) -> SlotPlan:
    """Admit jobs in an order, each with the least share that meets its deadline; the others are declined.

    The rule that gives deadline guarantees in [elasticflow2023]; `most_on_time` is better and also never worse.

    Parameters
    ----------
    problem
        Jobs and free devices.
    order
        Jobs in the order in which they are admitted. None: by deadline. In the order of submission it is the published
        admission.

    Returns
    -------
    SlotPlan
        `value` is the weight on time, `bound` the weight of all jobs. Declined jobs hold nothing.

    Notes
    -----
    *Symbols.* q count; C_t devices left in slot t; r(c) rate; W work; d deadline.

    *Formula.* The least q with Σ_{t<d} max_{c ≤ min(q, C_t)} r(c) ≥ W. The job then holds the best count within
    min(q, C_t) in slot d − 1, d − 2, ... until its work is done.

    *Source.* [elasticflow2023]; the slots are filled from the deadline backwards, which leaves the near future free.

    *Differs.* (1) Counts need not be powers of two. (2) Where a smaller count is faster, it is taken.

    *Properties.* Deterministic; O(n m T).

    *Fails when* speed-ups are far from linear: a constant share is dear where the profile has gaps, and nobody is
    ever moved.

    Examples
    --------
    >>> problem = SlotProblem.of(counts=[0, 1, 2], rates=[[0, 1, 2]], work=[3], deadlines=[2], weights=[1], free=[2, 2])
    >>> minimum_share(problem).counts
    array([[2, 2]])
    """
    filling = Filling(problem)
    chosen = np.argsort(problem.deadlines, kind="stable").tolist() if order is None else order
    admit(filling, chosen)
    counts = filling.counts()
    on_time = is_done(problem, counts, problem.ends)
    value, bound = float(problem.weights[on_time].sum()), float(problem.weights.sum())
    return SlotPlan(
        status="optimal" if on_time.all() else "partial", value=value, bound=bound, counts=counts, on_time=on_time
    )


def admit(filling: Filling, order: Iterable[int]) -> None:
    """Place the jobs of `order` with their minimum satisfactory shares where there is one."""
    for job in order:
        columns = filling.least_share(job)
        if columns is not None:
            filling.hold(job, columns)
