"""A job's times alone on the cluster, or on a private share of it; only the simulated world knows them."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import NamedTuple

from punctual.core.ids import JobId
from punctual.core.speed import Shape
from punctual.history.job import JobRecord
from punctual.request.cluster_file import NodeGroup, n_devices
from punctual.sim.job import SimJob


class _Option(NamedTuple):
    """The job on `n_devices` devices would take `run_s`."""

    n_devices: float
    run_s: float


class Ideal:
    """The true speeds of `jobs` on `groups`, as the metrics ask for them.

    A job of several workers lies on as few nodes of one kind as it fits on; of several kinds of nodes the fastest is
    taken. Start-up is left out.
    """

    def __init__(self, jobs: Sequence[SimJob], groups: Iterable[NodeGroup]) -> None:
        self._groups = tuple(groups)
        self._n_devices = n_devices(self._groups)
        self._jobs = {job.spec.id: job for job in jobs}

    @cached_property
    def alone_s(self) -> dict[JobId, float]:
        """Seconds of training with the job's ceiling."""
        return {id: options[-1].run_s for id, options in self._options.items()}

    @cached_property
    def least_device_s(self) -> dict[JobId, float]:
        """Return each job's fewest device-seconds over all its numbers of devices; omits jobs without devices."""
        products = {
            id: min(option.n_devices * option.run_s for option in options) for id, options in self._options.items()
        }
        return {id: device_s for id, device_s in products.items() if device_s > 0}

    def private_s(self, job: JobRecord) -> float | None:
        """Seconds on the private share, with whichever number of devices in it is fastest.

        A share below the least that the job can run on is used in turns with others, and slows it down in proportion.
        """
        options = self._options.get(job.id)
        if not options or not options[0].n_devices:
            return None
        share = self._n_devices / job.n_present
        fitting = [option for option in options if option.n_devices <= share]
        if fitting:
            return min(option.run_s for option in fitting)
        return options[0].run_s * options[0].n_devices / share

    @cached_property
    def _options(self) -> dict[JobId, list[_Option]]:
        options_of = {id: self._options_of(job) for id, job in self._jobs.items()}
        return {id: options for id, options in options_of.items() if options}

    def _options_of(self, job: SimJob) -> list[_Option]:
        worker = job.spec.worker
        if worker is None:
            shapes = [Shape(cores=job.spec.ceiling.cores, device=group.device) for group in self._groups]
            return [_Option(job.spec.ceiling.gpus, run_s) for run_s in self._fastest_s(job, shapes)]
        counts = job.spec.worker_counts()
        return [
            _Option(worker.gpus * n, run_s)
            for n in counts
            for run_s in self._fastest_s(job, [shape for group in self._groups for shape in _shapes(job, n, group)])
        ]

    def _fastest_s(self, job: SimJob, shapes: Sequence[Shape]) -> list[float]:
        """Return the seconds on the best of `shapes`, in a list; empty if it runs on none."""
        rate = max((job.truth.rate_sps(shape) for shape in shapes), default=0.0)
        return [job.work_steps / rate] if rate > 0 else []


def _shapes(job: SimJob, n_workers: int, group: NodeGroup) -> list[Shape]:
    """Return the shape of `n_workers` on the fewest nodes of `group`, in a list; empty if they do not fit."""
    worker = job.spec.worker
    n_per_node = group.capacity().n_times(worker) if worker else 0
    n_nodes = -(-n_workers // n_per_node) if n_per_node else group.n_nodes + 1
    if worker is None or n_nodes > group.n_nodes:
        return []
    return [Shape(n_workers=n_workers, cores=worker.cores * n_workers, n_nodes=n_nodes, device=group.device)]
