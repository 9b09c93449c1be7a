"""Why jobs got what they got, read from the journal as it grows."""

from threading import Lock

from punctual.core.ids import JobId
from punctual.runtime.chain import Chain, Link
from punctual.runtime.run_folder import Run
from punctual.runtime.run_journal import reader
from punctual.runtime.runs import read_about

#: Links of a job that can be asked for.
N_LINKS_MAX = 10_000
#: Chains that are kept, those asked for last.
_N_CHAINS = 32


class KeptChains:
    """The chains of some jobs of a run; of each only what is new in the journal is read. May be used by any thread."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._lock = Lock()
        #: Chain, and number of the first message that it does not have; the one asked for last is the last.
        self._kept: dict[tuple[JobId, bool], tuple[Chain, int]] = {}

    def links(self, job: JobId, n_links: int, *, every: bool) -> list[Link]:
        """The last links of the job's chain, `N_LINKS_MAX` at most; `every` as `punctual.runtime.chain.chain` has it.

        Raises `InvalidSpec` where the journal cannot be read.
        """
        with self._lock:
            chain, sequence = self._kept.pop((job, every), (Chain(job, every=every), 1))
            with reader(self._run) as journal:
                for number, message in read_about(journal, [job], sequence):
                    chain.take(message)
                    sequence = number + 1
            del chain.links[: -2 * N_LINKS_MAX]
            self._kept[job, every] = chain, sequence
            if len(self._kept) > _N_CHAINS:
                del self._kept[next(iter(self._kept))]
            return [link.copied() for link in chain.links[-n_links:]]
