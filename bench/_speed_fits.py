"""Speed models fitted to six shapes of our own trainings, and judged by the others."""

import statistics
from typing import Any

from _speed_runs import ALL_REDUCE, ASYNCHRONOUS, N_LAYERS, SYNCHRONOUS
from models import Choice, MeasuredJob, Miss, at_random, coverage, job_misses, percent, spread_out

from punctual.core.protocols import PerfModel
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.all_reduce import AllReduce
from punctual.papers.optimus.parameter_server import ParameterServer
from punctual.papers.smd.layered_model import Layered

N_POINTS = 6
N_DRAWS = 200

#: Layers of equal size: only the proportions are given, and both scales are learnt.
LAYERED = Layered(
    forward_s=(1.0,) * N_LAYERS, backward_s=(2.0,) * N_LAYERS, transfer_s=(1.0,) * N_LAYERS, overlap="sequential"
)
MODELS: dict[str, dict[str, PerfModel[Any]]] = {
    SYNCHRONOUS: {"parameter-server": ParameterServer(), "layered": LAYERED},
    ASYNCHRONOUS: {"parameter-server": ParameterServer(synchronous=False)},
    ALL_REDUCE: {"all-reduce": AllReduce()},
}


def table(kind: str, rates: dict[Shape, list[float]]) -> MeasuredJob:
    seen = [SeenRate(shape=shape, rate_sps=statistics.geometric_mean(found)) for shape, found in rates.items()]
    return MeasuredJob("own", kind, "", tuple(seen))


def judged(model: PerfModel[Any], job: MeasuredJob) -> dict[str, float]:
    """Errors in percent: over many draws of six shapes, of the worst draw in ten, and with shapes spread out."""

    def misses(choice: Choice, seed: int) -> list[Miss]:
        return job_misses(model, job, N_POINTS, choice, seed)

    draws = [misses(at_random, seed) for seed in range(N_DRAWS)]
    errors = sorted(percent(found) for found in draws)
    return {
        "mean_percent": statistics.fmean(errors),
        "worst_tenth_percent": errors[int(0.9 * len(errors))],
        "spread_out_percent": percent(misses(spread_out, 0)),
        "within_2_std": coverage([miss for found in draws for miss in found], 2.0),
    }
