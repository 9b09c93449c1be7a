"""Report interval of each node, from how often its jobs are observed."""

from punctual.core.ids import JobId, NodeId

#: A node is lost after so many seconds without a word. No job ends because a connection was cut for half a minute, and everything has
#: noticed only ten seconds later that it is back.
LOST_AFTER_S = 90.0
#: A look at a job may find a report as old as this share of the time since the look before.
_AGE_FRAC = 0.25


class PollSchedule:
    """Instants at which a host has observed its jobs, by node; not thread-safe.

    A controller looks at a job every two seconds where hours are left, and ten times a second just before its deadline. A
    node that reports as often as the second needs it would mostly report to nobody.

    `least_s`, `most_s`: a node waits at least and at most so long with its next report.
    """

    def __init__(self, least_s: float, most_s: float) -> None:
        self._least_s, self._most_s = least_s, max(least_s, most_s)
        #: Last observation of each job, and the seconds between that and the one before.
        self._looks: dict[NodeId, dict[JobId, tuple[float, float]]] = {}

    def looked(self, node: NodeId, job: JobId, at: float) -> None:
        """Note that the host has observed the job on `node` at instant `at`."""
        jobs = self._looks.setdefault(node, {})
        last_at, gap_s = jobs.get(job, (at, 0.0))
        if at > last_at:  # what changes for all jobs has each looked at once more
            gap_s = at - last_at
        jobs[job] = at, gap_s

    def forget(self, node: NodeId, job: JobId) -> None:
        """Forget a job that has left the node."""
        self._looks.get(node, {}).pop(job, None)

    def wait_s(self, node: NodeId) -> float:
        """Seconds that the node may wait with its next report while nothing happens there."""
        gaps_s = [gap_s for _, gap_s in self._looks.get(node, {}).values()]
        return min(self._most_s, max(self._least_s, _AGE_FRAC * min(gaps_s, default=self._most_s / _AGE_FRAC)))
