"""The jobs of Optimus's experiments: some models, submitted within a few hours."""

from collections.abc import Iterator
from dataclasses import dataclass

from punctual.core.errors import check_not_negative
from punctual.core.units import HOUR_S
from punctual.sim.traces.draw import Draw
from punctual.sim.traces.generators._base import check_jobs
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.named import check_bounds

_NAME = "optimus"
_GIB = 2**30

#: Model, batch size per worker: those with published speeds (with DL2, by the same group).
_MODELS = (
    ("resnet-50", 32),
    ("vgg-16", 32),
    ("resnext-110", 128),
    ("inception-bn", 128),
    ("seq2seq", 64),
    ("cnn-text-classification", 50),
    ("dssm", 256),
    ("wlm", 160),
)

#: Cores of a parameter server where the authors' code says them; 3 elsewhere.
_SERVER_CORES = {"vgg-16": 4.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimus:
    """Jobs with workers and parameter servers, submitted at random within the first hours.

    A worker holds 1 GPU and 2 cores, a server 3 cores (`vgg-16`: 4), each 10 GiB; they stand in the parameters
    ``worker_gpus``, ``worker_cores``, ``worker_memory_bytes``, ``server_cores``, ``server_memory_bytes``; so does
    ``loss_drop_frac``, the drop of the loss per epoch under which a job counts as converged.

    Formula, properties and differences: `docs/explanation/policies/optimus.md`.

    Parameters
    ----------
    n_jobs
        Number of jobs; 9 in the paper's testbed.
    horizon_s
        Submissions are uniform from 0 to here.
    duration_low_s, duration_high_s
        Bounds of the duration with one worker and one server, which is uniform. These are ours: how long the paper's
        jobs run follows from models and sets of pictures that are not published.
    """

    n_jobs: int = 9
    horizon_s: float = 12_000.0
    duration_low_s: float = 2.0 * HOUR_S
    duration_high_s: float = 20.0 * HOUR_S

    def __post_init__(self) -> None:
        check_jobs(_NAME, self.n_jobs)
        check_not_negative(_NAME, horizon_s=self.horizon_s)
        check_bounds(_NAME, duration_low_s=self.duration_low_s, duration_high_s=self.duration_high_s)

    def jobs(self, seed: int) -> Iterator[TraceJob]:
        """The jobs in order of submission."""
        draw = Draw(seed)
        arrivals = sorted(draw.uniform(0.0, self.horizon_s) for _ in range(self.n_jobs))
        return (self._job(draw, i_job, at) for i_job, at in enumerate(arrivals))

    def _job(self, draw: Draw, i_job: int, at: float) -> TraceJob:
        model, batch_size = draw.one_of(_MODELS)
        return TraceJob(
            id=f"optimus-{i_job}",
            submitted_at=at,
            n_gpus=1.0,
            duration_s=draw.uniform(self.duration_low_s, self.duration_high_s),
            model_name=model,
            batch_size=batch_size,
            parameters={
                "worker_gpus": 1.0,
                "worker_cores": 2.0,
                "worker_memory_bytes": 10.0 * _GIB,
                "server_cores": _SERVER_CORES.get(model, 3.0),
                "server_memory_bytes": 10.0 * _GIB,
                "loss_drop_frac": draw.uniform(0.01, 0.05),
            },
        )
