"""Explanations of jobs' grants, read from the journal as it grows."""

from functools import partial

from punctual.api.history_cache import HistoryCache
from punctual.core.ids import JobId
from punctual.daemon.run_folder import RunFolder
from punctual.history.decision_trace import DecisionStep, DecisionTrace

#: Links of a job that can be asked for.
N_LINKS_MAX = 10_000


class DecisionTraceCache:
    """Chains of some jobs of a run. Thread-safe."""

    def __init__(self, run: RunFolder) -> None:
        self._chains = {every: HistoryCache(run, partial(DecisionTrace, every=every)) for every in (False, True)}

    def links(self, job: JobId, n_links: int, *, every: bool) -> list[DecisionStep]:
        """Return the last links of the job's chain, `N_LINKS_MAX` at most; `every` as in `punctual.history.decision_trace`.

        Raises `InvalidSpec` where the journal cannot be read.
        """
        with self._chains[every].of(job) as chain:
            del chain.links[: -2 * N_LINKS_MAX]
            return [link.copied() for link in chain.links[-n_links:]]
