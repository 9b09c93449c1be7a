"""The jobs of SMD's experiments: parameter servers, layers, a utility of the completion time."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from punctual.sim.traces.draw import Draw
from punctual.sim.traces.job import TraceJob

_MB, _GB = 1e6, 1e9
_GBPS_BYTES = 1e9 / 8


@dataclass(frozen=True, slots=True, kw_only=True)
class SmdJobs:
    """Jobs that wait for one decision on workers, parameter servers and admission.

    All are there at 0. What the speed model and the utility need stands in the parameters:

    - ``iterations``: E
    - ``model_bytes``, ``bandwidth_bytes_per_s``: g, B
    - ``batch_per_worker``, ``global_batch``: m, K
    - ``n_layers``, and for each layer from 1 ``forward_1_s``, ``backward_1_s``, ``push_1_s``: N, f, b, r
    - ``worker_overhead_s``, ``server_overhead_s``: β1, β2
    - ``overlap_frac``: α
    - ``worker_gpus``, ``worker_cores``, ``worker_memory_bytes``, ``worker_disk_bytes``: O
    - ``server_cores``, ``server_memory_bytes``, ``server_disk_bytes``: G
    - ``limit_factor``: ϑ, the job's own limit in workers and servers
    - ``utility_height``, ``utility_steepness``, ``utility_middle``: γ1, γ2, γ3

    The paper gives no unit of time for β1, β2 and γ3: compare ratios of utilities, not utilities.

    Parameters
    ----------
    n_jobs
        Number of jobs; 10 to 200 in the paper.
    """

    n_jobs: int = 50

    def jobs(self, seed: int) -> Iterator[TraceJob]:
        """The jobs, all submitted at 0."""
        draw = Draw(seed)
        return (_job(draw, i_job) for i_job in range(self.n_jobs))


def _job(draw: Draw, i_job: int) -> TraceJob:
    iterations, batch = draw.count(50, 200), draw.count(10, 100)
    parameters = {
        "iterations": float(iterations),
        "batch_per_worker": float(batch),
        "global_batch": float(batch * draw.count(1, 100)),
        **_drawn(draw, _COMMUNICATION),
        **_layers(draw),
        **_drawn(draw, _AMOUNTS),
    }
    batch_size = int(parameters["global_batch"])
    return TraceJob(
        id=f"smd-{i_job}", submitted_at=0.0, work_steps=iterations, batch_size=batch_size, parameters=parameters
    )


#: Bounds of uniform draws, and their unit; no unit: whole numbers.
_COMMUNICATION = {
    "model_bytes": (30, 575, _MB),
    "bandwidth_bytes_per_s": (5, 20, _GBPS_BYTES),
    "worker_overhead_s": (3, 4, 1.0),
    "server_overhead_s": (0, 0.01, 1.0),
    "overlap_frac": (0, 1, 1.0),
}
_AMOUNTS = {
    "worker_gpus": (0, 4, None),
    "worker_cores": (1, 10, None),
    "worker_memory_bytes": (2, 32, _GB),
    "worker_disk_bytes": (5, 10, _GB),
    "server_cores": (1, 10, None),
    "server_memory_bytes": (2, 32, _GB),
    "server_disk_bytes": (5, 10, _GB),
    "limit_factor": (1, 20, None),
    "utility_height": (1, 100, 1.0),
    "utility_steepness": (4, 6, 1.0),
    "utility_middle": (1, 15, 1.0),
}


def _drawn(draw: Draw, bounds: Mapping[str, tuple[float, float, float | None]]) -> dict[str, float]:
    return {
        name: float(draw.count(int(low), int(high))) if unit is None else draw.uniform(low, high) * unit
        for name, (low, high, unit) in bounds.items()
    }


def _layers(draw: Draw) -> dict[str, float]:
    n_layers = draw.count(10, 100)
    layers = {"n_layers": float(n_layers)}
    for i_layer in range(1, n_layers + 1):
        layers[f"backward_{i_layer}_s"] = draw.uniform(0.001, 0.3)
        layers[f"forward_{i_layer}_s"] = draw.uniform(0.001, 0.5)
        layers[f"push_{i_layer}_s"] = draw.uniform(0.08, 0.5)
    return layers
