"""Instances like those a cluster has: speed-ups that flatten, counts up to a job's own most, weights."""

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Counts = Literal["all", "powers"]


@dataclass(frozen=True, eq=False)
class Instance:
    """A knapsack; column 0 is holding nothing."""

    costs: NDArray[np.int64]
    values: NDArray[np.float64]
    capacity: int


@dataclass(frozen=True, eq=False)
class VectorInstance:
    """A vector knapsack; column 0 is holding nothing."""

    costs: NDArray[np.float64]
    values: NDArray[np.float64]
    capacities: NDArray[np.float64]


def cluster(n_jobs: int, capacity: int, seed: int, *, counts: Counts = "all", most: int = 32) -> Instance:
    """Weighted speed-ups n^a with noise, each job with its own largest count; wanted: several times the capacity.

    Parameters
    ----------
    most
        The largest count there is; each job has its own, up to this.
    """
    rng = np.random.default_rng(seed)
    columns = np.arange(most + 1) if counts == "all" else np.concatenate([[0], 2 ** np.arange(most.bit_length())])
    speed = _speed_up(rng, n_jobs, columns)
    own_most = rng.integers(1, most, size=n_jobs, endpoint=True)
    values = np.where(columns[None, :] <= own_most[:, None], rng.lognormal(0, 1, n_jobs)[:, None] * speed, -np.inf)
    return Instance(columns, values, capacity)


def vector_cluster(n_jobs: int, n_devices: int, seed: int, *, n_resources: int = 3, most: int = 16) -> VectorInstance:
    """The same with cores and memory beside the devices, so that sometimes one and sometimes another is short."""
    rng = np.random.default_rng(seed)
    one = cluster(n_jobs, n_devices, seed, most=most)
    per_device = np.concatenate([np.ones((n_jobs, 1)), rng.integers(2, 17, size=(n_jobs, n_resources - 1))], axis=1)
    costs = one.costs[None, :, None] * per_device[:, None, :]
    capacities = n_devices * np.concatenate([[1.0], rng.uniform(8.5, 10.5, n_resources - 1).round(1)])
    return VectorInstance(costs, one.values, capacities)


def small(rng: np.random.Generator, n_jobs: int, n_configurations: int, capacity: int) -> Instance:
    """No structure at all: any costs and values, some forbidden, perhaps without a solution."""
    costs = rng.integers(0, 8, size=(n_jobs, n_configurations))
    values = rng.integers(-5, 20, size=(n_jobs, n_configurations)).astype(float)
    values[rng.random(values.shape) < 0.15] = -np.inf
    return Instance(costs, values, capacity)


def _speed_up(rng: np.random.Generator, n_jobs: int, columns: NDArray[np.int64]) -> NDArray[np.float64]:
    power = rng.uniform(0.3, 1.0, n_jobs)[:, None]
    noise = 1 + 0.05 * rng.standard_normal((n_jobs, len(columns)))
    # A speed table measured with noise is neither concave nor increasing everywhere.
    return np.where(columns > 0, columns[None, :] ** power * noise, 0.0)
