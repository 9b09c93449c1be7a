"""Optimus against fair shares and packing: completion times of jobs with parameter servers."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from statistics import fmean
from typing import Any

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.ids import JobId
from punctual.core.job import JobView
from punctual.core.loss import LossGoal, SeenLoss
from punctual.core.plan import Plan
from punctual.core.protocols import ConvergenceModel, Policy
from punctual.history.cluster import ClusterHistory
from punctual.papers.optimus.optimus_jobs import Optimus
from punctual.papers.optimus.parameter_servers import ParameterServers
from punctual.papers.reproduction import Reproduction, Row, supposed
from punctual.papers.simulations import record_of
from punctual.request.cluster_file import NodeGroup
from punctual.sim.job import SimJob
from punctual.sim.scaling import sim_jobs
from punctual.sim.traces import TraceJob
from punctual.sim.traces.draw import log_normal, stream

#: As many nodes as in the testbed, all alike; the testbed has two kinds.
_CLUSTER = (NodeGroup(n_nodes=13, gpus=2, cores=16.0, memory_gib=80.0),)
_TABLE = "profiles/dl2/config_speed.txt"
#: A checkpoint, new processes, and loading it.
_RESTART_S = 20.0
_N_MOST = 16

_JCT, _MAKESPAN = 2.39, 1.63
_OVERHEAD, _PERFECT = 2.54, 1.15
#: The policy, and the most workers and servers that its jobs ask for; one that does not resize gives them these.
_FIGURES = (("mean completion time", "jct_s", _JCT), ("makespan", "makespan_s", _MAKESPAN))
_BASELINES = {
    "tetris with 1 of each": ("tetris", 1),
    "tetris with 2 of each": ("tetris", 2),
    "tetris with 4 of each": ("tetris", 4),
}
_ERRORS = (0.05, 0.1, 0.2)

#: Parameters of ResNet-50's stages: blocks, and channels inside of a block.
_STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
_CUT_ABOVE, _N_DRAWS = 1_000_000, 200

#: Losses seen in an epoch, the noise on each, and how wrong an owner's guess of a job's length is.
_N_SEEN_PER_EPOCH, _LOSS_NOISE, _GUESS_SIGMA = 10, 0.01, 0.5

_NOTE = """\
9 jobs within 12,000 s on 13 nodes of 2 devices, 16 cores and 80 GiB; a worker holds 1 device and 2 cores, a server 3 or 4
cores, each 10 GiB. A resize restarts the job ({restart:g} s). Ratios are means of the seeds' ratios.
{speeds}
The source has three parts: which numbers (allocation), where they lie (placement), and which server holds which parameters
(balance). By the fitted law all traffic crosses the network and servers share equally. With placement, what stays on a node
costs nothing: a server exchanges its share with each worker on another node. Without balance, blocks of at most a million
parameters lie on servers drawn at random and larger ones are cut evenly, as MXNet does; the busiest server's share is that
of ResNet-50's blocks for all models, a mean of {n_draws} draws. The baselines have neither in the rows against the published
figures, and give each worker a server. Which models ran for how long is not published; durations are uniform from 2 to
20 hours with one worker and one server."""
_MEASURED = "Speeds: the law fitted to DL2's measured ones, for each model."
_ASSUMED = "Speeds: one assumed law for all models, because the measured ones ({table}) are not there."


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of one simulation."""

    jct_s: float
    makespan_s: float
    overhead_frac: float  # Time lost in restarts, as a share of the time that jobs held something.


@dataclass(frozen=True, slots=True)
class Curve:
    """The true loss of a job, ``1 / (slope * steps + 1) + floor``, and when it counts as converged."""

    slope: float
    floor: float
    goal: LossGoal

    @classmethod
    def reaching(cls, work_steps: float, drop: float) -> "Curve":
        """The curve that falls by `drop` in an epoch, for the first time, after `work_steps`.

        Notes
        -----
        With x = slope · work and n epochs, the drop around the end is x / n / (x + 1)^2; n is chosen so that x is well
        above 1.
        """
        n_epochs = max(2, int(1 / (5 * drop)))
        b = 1 / (n_epochs * drop) - 2
        x = (b + max(0.0, b * b - 4) ** 0.5) / 2
        return cls(x / work_steps, 0.1, LossGoal(drop=drop, epoch_steps=work_steps / n_epochs))

    def loss(self, steps: float) -> float:
        return 1 / (self.slope * steps + 1) + self.floor


@dataclass(slots=True)
class Guessing:
    """A policy that does not know how long jobs are: it estimates that from the losses seen so far.

    Until a job's losses say something it counts with what the owner guessed.
    """

    policy: Policy
    model: ConvergenceModel[Any]
    curves: Mapping[JobId, Curve]
    guesses: Mapping[JobId, float]
    seed: int
    _known: dict[tuple[JobId, float], float] = field(default_factory=dict)

    def allocate(self, snapshot: Snapshot) -> Plan:
        guessed = replace(
            snapshot,
            holding=tuple(map(self._guessed, snapshot.holding)),
            waiting=tuple(map(self._guessed, snapshot.waiting)),
        )
        return self.policy.allocate(guessed)

    def _guessed(self, view: JobView) -> JobView:
        key = view.id, view.done_steps
        if key not in self._known:
            self._known[key] = self._work_steps(view)
        return replace(view, spec=replace(view.spec, work_steps=self._known[key]))

    def _work_steps(self, view: JobView) -> float:
        curve, done = self.curves[view.id], view.done_steps
        left = self.model.steps_left(self._state(view, curve), curve.goal)
        if left.status == "ok":
            return max(done + left.expected, 1.0)
        return max(self.guesses[view.id], done + 1.0)

    def _state(self, view: JobView, curve: Curve) -> object:
        state, every = self.model.init(), curve.goal.epoch_steps / _N_SEEN_PER_EPOCH
        noise = stream(self.seed, "loss", view.id)
        for i in range(1, int(view.done_steps / every) + 1):
            seen = curve.loss(i * every) * log_normal(noise, _LOSS_NOISE)
            state = self.model.update(state, SeenLoss(i * every, seen))
        return state


def run(*, quick: bool, seeds: int, data: Path | None) -> Reproduction:
    """[optimus2018]: its policy against dominant shares and Tetris; wrong speeds and lengths; the price of resizing."""
    table = data / _TABLE if data else None
    tables = str(table) if table and table.is_file() else ""
    few = range(min(seeds, 2) if quick else seeds)
    rows = [*_against(few, tables), *_wrong(few, tables, _ERRORS[-1:] if quick else _ERRORS)]
    speeds = _MEASURED if tables else _ASSUMED.format(table=f"PUNCTUAL_DATA/{_TABLE}")
    title = "Optimus [optimus2018] against dominant shares and Tetris"
    return Reproduction(
        title=title, rows=tuple(rows), note=_NOTE.format(restart=_RESTART_S, speeds=speeds, n_draws=_N_DRAWS)
    )


def _against(seeds: Sequence[int], tables: str) -> Iterator[Row]:
    """Compare the policy with its baselines, with exact speeds and lengths; then each part alone."""
    placed, unbalanced = {"placed": True}, {"busiest_frac": busiest_frac()}
    ours = [simulated("optimus", seed, tables, rule=placed) for seed in seeds]
    fair = [simulated("dominant-share", seed, tables, rule=unbalanced) for seed in seeds]
    plain_ours, plain_fair = (
        [simulated(name, seed, tables) for seed in seeds] for name in ("optimus", "dominant-share")
    )
    placed_fair = [simulated("dominant-share", seed, tables, rule=placed) for seed in seeds]
    parts = [
        ("allocation alone", plain_fair, plain_ours),
        ("allocation and placement", plain_fair, ours),
        ("allocation and balance", fair, plain_ours),
        ("allocation, both placed and balanced alike", placed_fair, ours),
        ("placement alone, of dominant-share", plain_fair, placed_fair),
        ("balance alone, of dominant-share", fair, plain_fair),
    ]
    for what, key, published in _FIGURES:
        of_parts = {label: _ratios(theirs, mine, key) for label, theirs, mine in parts}
        measured = "; ".join(f"{label} {fmean(ratios):.2f}" for label, ratios in list(of_parts.items())[:3])
        yield Row(
            f"{what}, dominant-share over optimus", published, fmean(ratios := _ratios(fair, ours, key)),
            f"{measured}; {_spread(ratios)}",
        )  # fmt: skip
        for label, ratios in of_parts.items():
            yield Row(f"{what}, {label}", None, fmean(ratios), _spread(ratios))
    for label, (name, n_most) in _BASELINES.items():
        theirs = [simulated(name, seed, tables, n_most=n_most) for seed in seeds]
        for what, key, _ in _FIGURES:
            ratios = _ratios(theirs, plain_ours, key)
            yield Row(f"{what}, {label} over optimus, allocation alone", None, fmean(ratios), _spread(ratios))
    overhead = 100 * fmean(one.overhead_frac for one in plain_ours)
    needed_s = _RESTART_S * _OVERHEAD / overhead
    why = f"{_RESTART_S:g} s each; with as many restarts theirs would be {needed_s:.0f} s each; {supposed('it depends on the model')}"
    yield Row("time lost in restarts, %", _OVERHEAD, overhead, why)


def _spread(ratios: Sequence[float]) -> str:
    return f"seeds from {min(ratios):.2f} to {max(ratios):.2f}"


def busiest_frac(n_most: int = _N_MOST) -> tuple[float, ...]:
    """Share of the parameters on the busiest of 1, 2, ... servers without balance."""
    draw, blocks = Random(0), blocks_of_resnet()
    means = [fmean(_busiest(blocks, n, draw) for _ in range(_N_DRAWS)) for n in range(1, n_most + 1)]
    return tuple(mean / sum(blocks) for mean in means)


def _busiest(blocks: Sequence[int], n_servers: int, draw: Random) -> float:
    held = [sum(size for size in blocks if size > _CUT_ABOVE) / n_servers] * n_servers
    for size in blocks:
        if size <= _CUT_ABOVE:
            held[draw.randrange(n_servers)] += size
    return max(held)


def blocks_of_resnet() -> list[int]:
    """Return the parameters of each tensor of ResNet-50, without the few of normalisation."""
    sizes, before = [7 * 7 * 3 * 64], 64
    for n_blocks, channels in _STAGES:
        sizes.append(before * 4 * channels)
        for _ in range(n_blocks):
            sizes += [before * channels, 9 * channels * channels, channels * 4 * channels]
            before = 4 * channels
    return [*sizes, before * 1000]


def _wrong(seeds: Sequence[int], tables: str, errors: Sequence[float]) -> Iterator[Row]:
    """Yield the costs of wrong speeds and lengths."""
    right = [simulated("optimus", seed, tables) for seed in seeds]
    what = "mean completion time over that with right ones"
    for error in errors:
        for label, wrong in (("speeds", {"speed_error_frac": error}), ("lengths", {"size_sigma": error})):
            found = [simulated("optimus", seed, tables, rule=wrong) for seed in seeds]
            why = "published: at most, for all errors together" if label == "speeds" else "at each job's submission"
            yield Row(
                f"{label} wrong by {error:.0%}: {what}", _PERFECT if label == "speeds" else None,
                fmean(_ratios(found, right, "jct_s")), why,
            )  # fmt: skip
    fair = [simulated("dominant-share", seed, tables) for seed in seeds]
    found = [simulated("optimus", seed, tables, learns_length=True) for seed in seeds]
    yield Row(
        f"lengths learned from losses: {what}", _PERFECT, fmean(_ratios(found, right, "jct_s")),
        "published: at most; until losses say more, an owner's guess, wrong by a factor of about 1.6",
    )  # fmt: skip
    yield Row(
        "lengths learned from losses: mean completion time, dominant-share over optimus", _JCT,
        fmean(_ratios(fair, found, "jct_s")), "allocation alone",
    )  # fmt: skip


def simulated(
    name: str, seed: int, tables: str, *, rule: Mapping[str, Any] | None = None, learns_length: bool = False,
    n_jobs: int = 9, n_most: int = _N_MOST,
) -> Outcome:  # fmt: skip
    """Simulate one policy on one seed's jobs.

    Parameters
    ----------
    rule
        More parameters of the rule that makes the jobs.
    learns_length
        Whether lengths are estimated from losses instead of known.
    n_most
        Most workers, and most servers, of a job.
    """
    scaling = ParameterServers(
        startup_s=_RESTART_S, restarts=True, tables=tables, n_workers_max=n_most, n_servers_max=n_most, **(rule or {})
    )
    traces = list(Optimus(n_jobs=n_jobs).jobs(seed))
    jobs = list(sim_jobs(traces, scaling, seed=seed))
    policy: Policy = registry.load("policies", name)()
    if learns_length:
        policy = _guessing(policy, jobs, traces, seed)
    return _outcome(record_of(jobs, _CLUSTER, policy, seed))


def _guessing(policy: Policy, jobs: Sequence[SimJob], traces: Sequence[TraceJob], seed: int) -> Guessing:
    curves = {
        job.spec.id: Curve.reaching(job.work_steps, trace.parameters["loss_drop_frac"])
        for job, trace in zip(jobs, traces, strict=True)
    }
    guesses = {
        job.spec.id: job.work_steps * log_normal(stream(seed, "guess", job.spec.id), _GUESS_SIGMA) for job in jobs
    }
    return Guessing(policy, registry.load("convergence", "inverse-power")(), curves, guesses, seed)


def _outcome(record: ClusterHistory) -> Outcome:
    jobs = record.jobs()
    summary = record.summary()
    held_s = sum((job.jct_s or 0.0) - job.waiting_s for job in jobs)
    lost_s = _RESTART_S * sum(job.n_resizes for job in jobs)
    return Outcome(fmean(job.jct_s or 0.0 for job in jobs), summary.makespan_s, lost_s / held_s)


def _ratios(one: Sequence[Outcome], other: Sequence[Outcome], key: str) -> list[float]:
    return [getattr(a, key) / getattr(b, key) for a, b in zip(one, other, strict=True)]
