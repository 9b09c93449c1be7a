"""Measure how well speed models predict measured tables: fitted on a few shapes of a job, compared in all others.

The error is that of the time of a step, |predicted - measured| / measured, averaged over the held-back measurements of
a job, then over seeds and the jobs (batch sizes) of a network. That is how the figures that parameter-server is
compared with were computed; the same error of the rate is printed beside it. Nothing is tuned per table: all models
have their default parameters.

*Our own trainings*, with parameter servers and with an all-reduce over gloo, were measured once, each process with an equal share
of a core, all shapes in turns and several times; the geometric mean over the passes counts. Their speeds stay in the file of results.
"""

import ast
import csv
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, inf, isfinite
from pathlib import Path
from typing import Any

import numpy as np
from _common import Results, on_record, parser
from _published import data, has_data
from _report import Column, Section, Target, conclude_report, page_of, table_of
from scipy.optimize import nnls

from punctual.core.ids import JobId
from punctual.core.job import JobSpec
from punctual.core.protocols import PerfModel
from punctual.core.resources import Resources
from punctual.core.speed import SeenRate, Shape
from punctual.estimators.speed.all_reduce import AllReduce
from punctual.estimators.speed.amdahl import Amdahl
from punctual.papers.optimus.parameter_server import ParameterServer
from punctual.papers.smd.layered_model import Layered

# The measured speed tables, each as jobs with the shapes and speeds that were measured.

#: Workers on a node in the tables that give only the number of devices.
PER_NODE = {"throughputs_A100": 8, "throughputs_T4": 4}
#: Times of the table that were calculated, not measured, are left out.
CALCULATED = {"gpt_pmp"}


@dataclass(frozen=True, slots=True)
class MeasuredJob:
    """Measurements of one job: one neural network with one batch size on one kind of device."""

    table: str
    network: str
    variant: str
    seen: tuple[SeenRate, ...]


def folder() -> Path | None:
    """The folder of profiles; None if there is none."""
    path = data() / "profiles"
    return path if has_data() and path.is_dir() else None


def elasticflow(profiles: Path) -> Iterator[MeasuredJob]:
    """Constant global batch; the columns are numbers of devices, packed on as few nodes as possible."""
    for kind, per_node in PER_NODE.items():
        for path in sorted((profiles / "elasticflow" / kind).glob("*.csv")):
            for row in csv.DictReader(path.open()):
                batch = row.pop("global_batch_size")
                seen = [
                    _seen(int(n), ceil(int(n) / per_node), float(speed or 0)) for n, speed in row.items()
                ]  # fmt: skip
                yield _job(f"elasticflow {kind[12:]}", path.stem, batch, seen)


def pollux(profiles: Path) -> Iterator[MeasuredJob]:
    """Constant batch of a worker; a step of all workers takes as long as the table says."""
    for network in sorted((profiles / "pollux_osdi21").iterdir()):
        yield from _placed("pollux T4", network, "")


def sia(profiles: Path) -> Iterator[MeasuredJob]:
    """Like Pollux, for six kinds of nodes."""
    for network in sorted((profiles / "sia").iterdir()):
        if network.name not in CALCULATED:
            for path in sorted(network.glob("placements-*.csv")):
                kind = path.stem.removeprefix("placements")
                yield from _placed(f"sia {kind[1:]}", network, kind)


def dl2(profiles: Path) -> Iterator[MeasuredJob]:
    """Synchronous training with parameter servers; the speed is the batches per second of all workers together.

    A run in which a worker stood still is left out.
    """
    networks: dict[str, list[SeenRate]] = defaultdict(list)
    for line in (profiles / "dl2" / "config_speed.txt").read_text().splitlines():
        if line.strip():
            network, _, _, n_servers, n_workers, speeds, *_ = ast.literal_eval(line)
            shape = Shape(n_workers=n_workers, n_servers=n_servers)
            networks[network].append(SeenRate(shape=shape, rate_sps=sum(speeds) if min(speeds) > 0 else 0.0))
    for network, seen in networks.items():
        yield _job("dl2", network, "", seen)


def synergy(profiles: Path) -> Iterator[MeasuredJob]:
    """One device, so many CPU cores, as much memory as there is; the speed is relative."""
    rows: dict[tuple[str, str], list[dict[str, str]]] = defaultdict(list)
    for row in csv.DictReader((profiles / "synergy" / "cpu_mem_sensitivity.csv").open()):
        rows[row["set"], row["model"]].append(row)
    for (group, network), cells in rows.items():
        most = max(float(cell["mem_gb_per_gpu"]) for cell in cells)
        seen = [
            SeenRate(shape=Shape(cores=float(cell["cpu_cores_per_gpu"])), rate_sps=float(cell["norm_throughput"]))
            for cell in cells
            if float(cell["mem_gb_per_gpu"]) == most
        ]
        yield _job(f"synergy {group}", network, "", seen)


def _placed(table: str, network: Path, kind: str) -> Iterator[MeasuredJob]:
    by_batch: dict[str, list[SeenRate]] = defaultdict(list)
    for name in ("placements", "scalability"):
        for row in csv.DictReader((network / f"{name}{kind}.csv").open()):
            by_batch[row["local_bsz"]].append(_seen(*_workers_and_nodes(row), 1 / float(row["step_time"])))
    for batch, seen in by_batch.items():
        yield _job(table, network.name, batch, seen)


def _workers_and_nodes(row: dict[str, str]) -> tuple[int, int]:
    digits = row.get("placement")
    if digits is not None:
        return sum(map(int, digits)), len(digits)
    return int(row["num_replicas"]), int(row["num_nodes"])


def _seen(n_workers: int, n_nodes: int, rate_sps: float) -> SeenRate:
    return SeenRate(shape=Shape(n_workers=n_workers, n_nodes=n_nodes), rate_sps=rate_sps)


def _job(table: str, network: str, variant: str, seen: Iterable[SeenRate]) -> MeasuredJob:
    measured = (one for one in seen if isfinite(one.rate_sps) and one.rate_sps > 0)
    return MeasuredJob(table, network, variant, tuple(measured))


# Errors of the models.

N_POINTS = 6
ALL_REDUCE_TARGET = 8.0
#: Percent: all points, 10 points; the source's form fitted to these data by plain least squares.
PARAMETER_SERVER_TARGETS = {
    "cnn-text-classification": (3.0, 5.3), "dssm": (4.9, 6.5), "inception-bn": (4.8, 6.9), "resnet-50": (8.8, 12.2),
    "resnext-110": (6.6, 9.4), "seq2seq": (9.1, 12.7), "vgg-16": (8.2, 12.1), "wlm": (8.0, 12.0),
}  # fmt: skip

Jobs = Sequence[MeasuredJob]
Choice = Callable[[list[Shape], int, random.Random], list[Shape]]


@dataclass(frozen=True, slots=True)
class Miss:
    """Errors of the time of a step and of the rate, relative to the measured ones; and the standard deviation relative to the prediction."""

    time_frac: float
    rate_frac: float
    std_frac: float


def at_random(shapes: list[Shape], n: int, drawn: random.Random) -> list[Shape]:
    return drawn.sample(shapes, n)


def spread_out(shapes: list[Shape], n: int, _drawn: random.Random) -> list[Shape]:
    """The smallest and the largest, then always the one farthest from those chosen: a plan one can make beforehand."""

    def distance(one: Shape, other: Shape) -> float:
        pairs = ((one.n_workers, other.n_workers), (one.n_nodes, other.n_nodes))
        return sum((max(pair) / min(pair) - 1) ** 0.5 for pair in pairs)

    chosen = [shapes[0], shapes[-1]]
    while len(chosen) < n:
        chosen.append(max(shapes, key=lambda one: (min(distance(one, other) for other in chosen), repr(one))))
    return chosen


def by_shape(job: MeasuredJob) -> dict[Shape, list[SeenRate]]:
    def order(one: SeenRate) -> tuple[float, ...]:
        return (one.shape.n_workers, one.shape.n_nodes, one.shape.n_servers, one.shape.cores)

    found: dict[Shape, list[SeenRate]] = {}
    for one in sorted(job.seen, key=order):
        found.setdefault(one.shape, []).append(one)
    return found


def misses(model: PerfModel[Any], profile: list[SeenRate], held_back: list[SeenRate]) -> list[Miss]:
    worker = None if profile[0].shape.cores else Resources(1.0)
    state = model.init(JobSpec(id=JobId("measured"), ceiling=Resources(1000.0), worker=worker, profile=tuple(profile)))
    found = []
    for one in held_back:
        rate_sps = model.rate_sps(state, one.shape)
        ratio, std_frac = (
            value / rate_sps if rate_sps else inf for value in (one.rate_sps, model.std_sps(state, one.shape))
        )
        found.append(Miss(abs(ratio - 1), abs(1 / ratio - 1), std_frac))
    return found


def job_misses(
    model: PerfModel[Any], job: MeasuredJob, n_points: int, choice: Choice, seed: int, noise_frac: float = 0.0
) -> list[Miss]:  # fmt: skip
    """Misses of the shapes that were not chosen; of a chosen shape that was measured twice, the first one is shown."""
    shapes, drawn = by_shape(job), random.Random(f"{seed} {job.table} {job.network} {job.variant}")
    chosen = choice(list(shapes), n_points, drawn)
    profile = [shapes[shape][0] for shape in chosen]
    if noise_frac:
        profile = [replace(one, rate_sps=one.rate_sps * max(0.1, drawn.gauss(1, noise_frac))) for one in profile]
    held_back = [one for shape, seen in shapes.items() if shape not in chosen for one in seen]
    return misses(model, profile, held_back)


def in_turns(model: PerfModel[Any], job: MeasuredJob, n_parts: int, seed: int) -> list[Miss]:
    """Every measurement predicted once, from the shapes of the other parts."""
    shapes = by_shape(job)
    order = random.Random(seed).sample(list(shapes), len(shapes))
    found: list[Miss] = []
    for i_part in range(n_parts):
        back = set(order[i_part::n_parts])
        profile = [shapes[shape][0] for shape in shapes if shape not in back]
        found += misses(model, profile, [one for shape in back for one in shapes[shape]])
    return found


def percent(found: Iterable[Miss]) -> float:
    return 100 * statistics.fmean(miss.time_frac for miss in found)


def coverage(found: Iterable[Miss], n_std: float) -> float:
    """Share of the held-back measurements within so many standard deviations (infinite ones cover anything)."""
    return statistics.fmean(miss.time_frac <= n_std * miss.std_frac for miss in found)


def enough(jobs: Iterable[MeasuredJob], n_points: int) -> list[MeasuredJob]:
    """Jobs with at least one shape more than are shown."""
    return [job for job in jobs if len(by_shape(job)) > n_points]


Networks = dict[str, dict[str, float]]


def all_reduce_tables(jobs: Jobs, choice: Choice, seeds: range) -> tuple[Networks, Networks]:
    """Table -> network -> percent of the time and of the rate; a network's jobs and seeds count alike."""
    found: dict[tuple[str, str], list[list[Miss]]] = defaultdict(list)
    for job in jobs:
        found[job.table, job.network] += [job_misses(AllReduce(), job, N_POINTS, choice, seed) for seed in seeds]
    times, rates = defaultdict[str, dict[str, float]](dict), defaultdict[str, dict[str, float]](dict)
    for (table, network), draws in found.items():
        times[table][network] = statistics.fmean(map(percent, draws))
        rates[table][network] = statistics.fmean(
            100 * statistics.fmean(one.rate_frac for one in draw) for draw in draws
        )
    return times, rates


def floors(jobs: Jobs) -> dict[str, float]:
    """Table -> percent where even the best function of the shape errs: repeated measurements around their median."""
    found: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        for seen in by_shape(job).values():
            middle = statistics.median(one.rate_sps for one in seen)
            if len(seen) > 2:
                found[job.table] += [100 * abs(one.rate_sps / middle - 1) for one in seen]
    return {table: statistics.fmean(errors) for table, errors in found.items()}


def online(jobs: Jobs, seeds: range) -> dict[str, float]:
    """Three different shapes, each measured once with 10 % noise."""
    model = AllReduce(noise_frac=0.1)
    found = [miss for job in jobs for seed in seeds for miss in job_misses(model, job, 3, at_random, seed, 0.1)]
    return {
        "mean_percent": percent(found), "median_percent": 100 * statistics.median(miss.time_frac for miss in found),
        "within_1_std": coverage(found, 1.0), "within_2_std": coverage(found, 2.0),
    }  # fmt: skip


@dataclass(frozen=True)
class PlainLeastSquares:
    """The source's synchronous form without priors and misfit, for comparison on the same draws."""

    def init(self, spec: JobSpec) -> tuple[float, ...]:
        rows = [[term * seen.rate_sps for term in _terms(seen.shape)] for seen in spec.profile]
        return tuple(nnls(np.array(rows), np.ones(len(rows)))[0])

    def update(self, state: tuple[float, ...], seen: SeenRate) -> tuple[float, ...]:
        return state

    def rate_sps(self, state: tuple[float, ...], shape: Shape) -> float:
        return 1 / sum(term * one for term, one in zip(_terms(shape), state, strict=True))

    def std_sps(self, state: tuple[float, ...], shape: Shape) -> float:
        return 0.0


def _terms(shape: Shape) -> list[float]:
    w, p = shape.n_workers, shape.n_servers
    return [1 / w, 1, w / p, w, p]


def parameter_servers(jobs: Jobs, seeds: range) -> list[dict[str, Any]]:
    rows = []
    for job in jobs:
        ten = [miss for seed in seeds for miss in job_misses(ParameterServer(), job, 10, at_random, seed)]
        plain = [miss for seed in seeds for miss in job_misses(PlainLeastSquares(), job, 10, at_random, seed)]
        many = [miss for seed in seeds[:3] for miss in in_turns(ParameterServer(), job, 10, seed)]
        target_all, target_ten = PARAMETER_SERVER_TARGETS[job.network]
        rows.append(
            {
                "network": job.network, "all": percent(many), "all_target": target_all, "ten": percent(ten),
                "ten_target": target_ten, "ten_plain": percent(plain), "within_2_std": coverage(ten, 2.0),
            }
        )  # fmt: skip
    return rows


def cores(jobs: Jobs, seeds: range) -> dict[str, float]:
    found = [miss for job in jobs for seed in seeds for miss in job_misses(Amdahl(), job, 4, at_random, seed)]
    return {"mean_percent": percent(found), "within_2_std": coverage(found, 2.0)}


#: Of the layered model only the proportions are given, and both scales are learnt.
_LAYERED = Layered(forward_s=(1.0,) * 3, backward_s=(2.0,) * 3, transfer_s=(1.0,) * 3, overlap="sequential")
OWN_MODELS: dict[str, dict[str, PerfModel[Any]]] = {
    "synchronous servers": {"parameter-server": ParameterServer(), "layered": _LAYERED},
    "asynchronous servers": {"parameter-server": ParameterServer(synchronous=False)},
    "all-reduce": {"all-reduce": AllReduce()},
}
#: Percent, and the models that it is for.
OWN_TARGET, OWN_COUNTED = 10.0, ("parameter-server", "all-reduce")


def own_trainings(recorded: dict[str, Any], seeds: range) -> dict[str, Any]:
    """Return the recorded speeds of our own trainings with the errors of models that are fitted to six of them."""
    return {
        **recorded,
        "setting": {**recorded["setting"], "n_draws": len(seeds)},
        "models": [
            {"training": kind, "model": name, **_judged(model, kind, recorded["rates"], seeds)}
            for kind, models in OWN_MODELS.items()
            for name, model in models.items()
        ],
    }


def _judged(model: PerfModel[Any], kind: str, rates: list[dict[str, Any]], seeds: range) -> dict[str, float]:
    """Errors in percent: over many draws of six shapes, of the worst draw in ten, with shapes spread out; and of the passes."""
    passes = {
        Shape(n_workers=row["n_workers"], n_servers=row["n_servers"]): row["rates_sps"]
        for row in rates
        if row["training"] == kind
    }
    means = {shape: statistics.geometric_mean(found) for shape, found in passes.items()}
    job = _job("own", kind, "", [SeenRate(shape=shape, rate_sps=rate) for shape, rate in means.items()])
    draws = [job_misses(model, job, N_POINTS, at_random, seed) for seed in seeds]
    errors = sorted(percent(found) for found in draws)
    return {
        "mean_percent": statistics.fmean(errors), "worst_tenth_percent": errors[int(0.9 * len(errors))],
        "spread_out_percent": percent(job_misses(model, job, N_POINTS, spread_out, 0)),
        "within_2_std": coverage([miss for found in draws for miss in found], 2.0),
        "repeats_percent": 100 * statistics.fmean(abs(one / means[shape] - 1) for shape, found in passes.items() for one in found),
    }  # fmt: skip


def group(table: str) -> str:
    return table.split(maxsplit=1)[0]


def means(networks: Networks) -> dict[str, float]:
    """Source -> mean over its tables and networks."""
    found: dict[str, list[float]] = defaultdict(list)
    for table, errors in networks.items():
        found[group(table)] += errors.values()
    return {source: statistics.fmean(errors) for source, errors in found.items()}


def measured(profiles: Path, *, quick: bool) -> dict[str, Any]:
    n_seeds = 2 if quick else 10
    seeds = range(n_seeds)
    every = 9 if quick else 1
    ring = enough([*elasticflow(profiles), *list(pollux(profiles))[::every], *list(sia(profiles))[::every]], N_POINTS)
    times, rates = all_reduce_tables(ring, at_random, seeds)
    spread, _ = all_reduce_tables(ring, spread_out, range(1))
    return {
        "n_seeds": n_seeds,
        "parameter_server": parameter_servers(list(dl2(profiles)), range(10 if quick else 50)),
        "all_reduce": {
            "n_points": N_POINTS, "target": ALL_REDUCE_TARGET, "n_jobs": len(ring),
            "random": times, "random_means": means(times), "random_rate": rates, "random_rate_means": means(rates),
            "spread": spread, "spread_means": means(spread), "repeats": floors(ring),
        },
        "online": {source: online([job for job in ring if group(job.table) == source], seeds) for source in means(spread)},
        "amdahl": cores(enough(synergy(profiles), 4), seeds),
        "own": own_trainings(on_record("models")["own"], range(20 if quick else 200)),
    }  # fmt: skip


PERCENT, FRAC = "{:.1f}".format, "{:.0%}".format


def sections(found: Results) -> list[Section]:
    """Return each table that is printed and written; targets stand with the first."""
    ring = found["all_reduce"]
    networks = [
        {
            "table": table, "mean": statistics.fmean(errors.values()), "median": statistics.median(errors.values()),
            "rate": statistics.fmean(ring["random_rate"][table].values()),
            "spread": statistics.fmean(ring["spread"][table].values()), "repeats": ring["repeats"].get(table),
            "networks": ", ".join(f"{network} {error:.1f}" for network, error in errors.items()),
        }
        for table, errors in ring["random"].items()
    ]  # fmt: skip
    servers = table_of(found["parameter_server"], {"network": "network"}, [
        Column("9 of 10 parts", "all", PERCENT), Column("target", "all_target", PERCENT), Column("10 points", "ten", PERCENT),
        Column("target", "ten_target", PERCENT), Column("plain", "ten_plain", PERCENT), Column("within 2 std", "within_2_std", FRAC),
    ])  # fmt: skip
    ring_table = table_of(networks, {"table": "table"}, [
        Column("random: mean", "mean", PERCENT), Column("median", "median", PERCENT), Column("rate", "rate", PERCENT),
        Column("spread", "spread", PERCENT), Column("repeats", "repeats", PERCENT), Column("networks, random", "networks", of=max),
    ])  # fmt: skip
    few = table_of([{"source": source, **row} for source, row in found["online"].items()], {"source": "source"}, [
        Column("mean error %", "mean_percent", PERCENT), Column("median %", "median_percent", PERCENT),
        Column("within 1 std", "within_1_std", FRAC), Column("within 2 std", "within_2_std", FRAC),
    ])  # fmt: skip
    cpus = table_of([{"model": "amdahl", **found["amdahl"]}], {"model": "model"}, [
        Column("mean error %", "mean_percent", PERCENT), Column("within 2 std", "within_2_std", FRAC),
    ])  # fmt: skip
    own = table_of(found["own"]["models"], {"training": "training", "model": "model"}, [
        Column("random", "mean_percent", PERCENT), Column("worst tenth", "worst_tenth_percent", PERCENT),
        Column("spread out", "spread_out_percent", PERCENT), Column("within 2 std", "within_2_std", FRAC),
        Column("repeats", "repeats_percent", PERCENT),
    ])  # fmt: skip
    return [
        Section("parameter-server on DL2: mean relative error in percent", *servers, targets(found)),
        Section("all-reduce from 6 points: mean relative error in percent", *ring_table),
        Section("all-reduce from 3 points with 10 % noise", *few),
        Section("amdahl over CPU cores (Synergy) from 4 points", *cpus),
        Section("Our own trainings from 6 points: mean relative error in percent", *own),
    ]


def targets(found: Results) -> list[Target]:
    percents = "{:.1f} %".format
    return [
        *(
            Target(f"all-reduce from {N_POINTS} points, {source}", ALL_REDUCE_TARGET, error, percents)
            for source, error in found["all_reduce"]["random_means"].items()
        ),
        *(
            Target(f"parameter-server, {row['network']}, {text}", row[f"{key}_target"], row[key], percents)
            for row in found["parameter_server"]
            for key, text in (("all", "9 of 10 parts"), ("ten", "10 points"))
        ),
        *(
            Target(f"own trainings, {row['training']} from 6 points", OWN_TARGET, row["mean_percent"], percents)
            for row in found["own"]["models"]
            if row["model"] in OWN_COUNTED
        ),
    ]


def page(results: Results) -> str:
    setting, stamp = results["own"]["setting"], results["own"]["stamp"]
    own = (
        f"Our own trainings: {setting['n_parameters']:,} parameters; global batch {setting['global_batch']}, asynchronous "
        f"{setting['local_batch_asynchronous']} each; {setting['cores_each']} cores for each worker and each server; "
        f"{setting['n_passes']} passes of {setting['watch_s']} s each at revision {stamp['revision']}. Six shapes are drawn "
        f"{setting['n_draws']} times; *spread out* chooses them beforehand."
    )
    return page_of(sections(results), results, "", f"{results['n_seeds']} seeds.", "", own)


def main() -> int:
    options = parser("Errors of the speed models on measured tables.").parse_args()
    profiles = folder()
    if profiles is None:
        print("no measured tables: set PUNCTUAL_DATA to the folder that holds profiles/: not run")
        return 0
    return conclude_report("models", measured(profiles, quick=options.quick), sections, page, quick=options.quick)


if __name__ == "__main__":
    sys.exit(main())
