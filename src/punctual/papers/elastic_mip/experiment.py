"""The elastic allocator against its greedy baseline: queueing and training efficiency by load."""

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from statistics import fmean

from punctual import registry
from punctual.core.cluster import Snapshot
from punctual.core.plan import Plan
from punctual.core.protocols import Policy
from punctual.papers.elastic_mip.modelarts_like import ModelartsLike
from punctual.papers.reproduction import Reproduction, Row, supposed
from punctual.papers.simulations import record_of
from punctual.request.cluster_file import NodeGroup
from punctual.sim.ideal import Ideal
from punctual.sim.scaling import sim_jobs
from punctual.sim.scaling.elastic import Elastic
from punctual.sim.traces import TraceJob, read
from punctual.sim.traces.load import rescaled
from punctual.sim.traces.order import normalized

#: The abstract's figures, each "up to", and the time of a decision.
_QUEUEING, _EFFICIENCY, _DECISION_S = -32.0, 24.0, 0.4
_QUEUED_IN, _EFFICIENT_IN = "queueing, change in %: ", "efficiency, change in %: "
_GREEDY = "greedy"
#: Said of a queue in which a job hardly waits for anything else.
_START_UP = ", the start-up"
_OBJECTIVES = ("fraction", "throughput")
_LOADS = (0.6, 0.8, 1.0, 1.2, 1.5)
_CLUSTER = (NodeGroup(n_nodes=32, gpus=8),)
_N_DEVICES = 256
_STARTUP_S = 30.0
#: A job may grow to this multiple of what it asked for.
_STRETCH = 4
_PHILLY = "traces/philly_2017/philly_jobs_pollux.csv"
_CLUSTER10 = "traces/microsoft_itp_2021/with_models_deadlines/cluster10.csv"
#: The first weeks of the trace are sparse.
_PHILLY_FIRST, _PHILLY_APART, _N_PHILLY = 20_000, 5_000, 2_000
ASKED, _QUARTER = "from what it asked for", "from a quarter of it"

NOTE = """\
Change against greedy in % (means over the seeds; `seeds` has the least and the most of them). Training efficiency: the
time with the most workers, alone, over the time from the first start to the end. 256 devices on nodes of 8, a start or a
resize costs 30 s, jobs may have powers of two of the devices up to four times what they asked for; nobody is paused.

The published figures are "up to". The two at the head are both from one setting, the nearest to both of them; the best
of each alone come from different settings and are far beyond, see the rows.
By setting (a queue of less than twice the start-up counts as the start-up):

{ranges}

No row takes a part of either policy away, so why is not measured. Supposed: the fraction starts whatever finishes soon,
while greedy serves its queue in order, so that one large job blocks all behind it; and it gives devices to jobs that are
about to end, greedy to whoever gains most seconds, which are the long jobs. Greedy is our reconstruction.
The source says neither its ranges nor its loads, and its jobs were not published."""


@dataclass(frozen=True, slots=True)
class Case:
    """A trace and the bound of its jobs' shrinking; `n_seeds` None: as many as the caller asks for."""

    name: str
    least: str
    jobs: Callable[[float, int], Sequence[TraceJob]]
    objectives: tuple[str, ...]
    n_seeds: int | None = None


@dataclass(slots=True)
class _Timed:
    """A policy whose decisions are timed."""

    policy: Policy
    spans_s: list[float] = field(default_factory=list)

    def allocate(self, snapshot: Snapshot) -> Plan:
        begun_s = time.process_time()  # to which other work on the machine does not add
        plan = self.policy.allocate(snapshot)
        self.spans_s.append(time.process_time() - begun_s)
        return plan


@dataclass(frozen=True, slots=True)
class Outcome:
    """Means over the jobs of one simulation, and over its decisions."""

    queued_s: float
    efficiency: float
    decision_s: float


def run(*, quick: bool, seeds: int, data: Path | None) -> Reproduction:
    """[hu2021]: the programme against greedy by load, on generated arrivals and, with `data`, on two real traces."""
    loads = (0.8, 1.5) if quick else _LOADS
    seeds = min(seeds, 1) if quick else seeds
    rows: list[Row] = []
    spans_s: list[float] = []
    for case in cases(data, quick=quick):
        for load in loads:
            found = outcomes_of(case, load, case.n_seeds or seeds)
            spans_s += [one.decision_s for one in found["fraction"]]
            for objective in case.objectives:
                rows += compared(case, load, objective, found[_GREEDY], found[objective])
    heads = headlines(rows, fmean(spans_s))
    note = note_of(data, ranges(rows))
    return Reproduction(title="Elastic allocator [hu2021] against greedy", rows=(*heads, *rows), note=note)


def headlines(rows: Sequence[Row], decision_s: float) -> list[Row]:
    """The published figures beside ours, both from the one setting of `rows` that is nearest to both of them."""
    queueing, efficiency = (
        {row.what.removeprefix(prefix): row for row in rows if row.what.startswith(prefix)}
        for prefix in (_QUEUED_IN, _EFFICIENT_IN)
    )

    def distance(place: str) -> float:
        """The larger of the two differences, as a share of what is published."""
        changes = queueing[place].obtained / _QUEUEING, efficiency[place].obtained / _EFFICIENCY
        return max(abs(change - 1) for change in changes)

    place = min(queueing, key=distance)
    reached = [
        name for name in queueing if queueing[name].obtained <= _QUEUEING and efficiency[name].obtained >= _EFFICIENCY
    ]
    why = f"of {len(queueing)} settings the nearest to both figures; {len(reached)} reach both at once; the source's is not known"
    solver = supposed("a solver for this kind of programme, another machine, other sizes")
    return [
        Row(f"queueing, change in %, in {place}", _QUEUEING, queueing[place].obtained, f"{why}; {queueing[place].why}"),
        Row(
            f"training efficiency, change in %, in {place}", _EFFICIENCY, efficiency[place].obtained,
            f"as above; {efficiency[place].why}",
        ),
        Row("decision, CPU seconds on average", _DECISION_S, decision_s, solver),
    ]  # fmt: skip


def ranges(rows: Sequence[Row]) -> str:
    """Return a summary of the rows by objective, one line for each group of settings."""
    lines = []
    for objective in _OBJECTIVES:
        mine = [row for row in rows if row.what.endswith(f", {objective}")]
        queueing = [row for row in mine if row.what.startswith(_QUEUED_IN)]
        short = [row for row in queueing if _START_UP in row.why]
        long = [row for row in queueing if row not in short]
        lines += _extent(
            "Queueing", f"{objective}, where greedy's own queue is longer than the start-up", long, _QUEUEING
        )
        lines += _extent("Queueing", f"{objective}, where it is the start-up", short, _QUEUEING)
        for least in (ASKED, _QUARTER):
            some = [row for row in mine if row.what.startswith(_EFFICIENT_IN) and f", {least}, " in row.what]
            lines += _extent("Efficiency", f"{objective}, jobs {least}", some, _EFFICIENCY)
    return "\n".join(lines)


def _extent(what: str, where: str, rows: Sequence[Row], published: float) -> list[str]:
    """A line on the least and the most of the changes, and on how many are as far from 0 as is published."""
    if not rows:
        return []
    found = [row.obtained for row in rows]
    n_reached = sum(change / published >= 1 for change in found)
    extent = f"{min(found):+,.1f} to {max(found):+,.1f} %"
    return [f"* {what} with the {where}: {extent}; {published:+g} % or beyond in {n_reached} of {len(rows)} settings."]


def compared(case: Case, load: float, objective: str, greedy: Sequence[Outcome], ours: Sequence[Outcome]) -> list[Row]:
    """Changes of the queue and of the efficiency from greedy to the programme, in %."""
    place = f"{case.name}, {case.least}, load {load:g}, {objective}"
    queued = [[one.queued_s for one in many] for many in (greedy, ours)]
    efficient = [[one.efficiency for one in many] for many in (greedy, ours)]
    its_s = fmean(queued[0])
    its_queue = f"greedy's queue: {its_s:,.0f} s{_START_UP if its_s < 2 * _STARTUP_S else ''}"
    return [
        Row(f"{_QUEUED_IN}{place}", None, _change(*queued), f"{its_queue}{_spread(*queued)}"),
        Row(f"{_EFFICIENT_IN}{place}", None, _change(*efficient), _spread(*efficient).removeprefix("; ")),
    ]


def _change(before: Sequence[float], after: Sequence[float]) -> float:
    return 100.0 * (fmean(after) / fmean(before) - 1.0)


def _spread(before: Sequence[float], after: Sequence[float]) -> str:
    changes = [_change([one], [other]) for one, other in zip(before, after, strict=True)]
    return f"; seeds from {min(changes):+.0f} to {max(changes):+.0f}" if len(changes) > 1 else ""


def outcomes_of(case: Case, load: float, n_seeds: int) -> dict[str, list[Outcome]]:
    """Return by policy one outcome for each seed; all policies get the same jobs."""
    made = {_GREEDY: registry.load("policies", _GREEDY)()}
    for objective in _OBJECTIVES:
        if objective in case.objectives:
            made[objective] = registry.load("policies", "elastic-mip")(objective=objective)
    jobs = [list(case.jobs(load, seed)) for seed in range(n_seeds)]
    return {
        name: [_simulated(traces, policy, seed) for seed, traces in enumerate(jobs)] for name, policy in made.items()
    }


def _simulated(traces: Sequence[TraceJob], policy: Policy, seed: int) -> Outcome:
    rule = Elastic(startup_s=_STARTUP_S, resize_cost_s=_STARTUP_S, preemptible=False)
    jobs = list(sim_jobs(traces, rule, seed=seed))
    timed = _Timed(policy)
    summary = record_of(jobs, _CLUSTER, timed, seed).summary(alone_s=Ideal(jobs, _CLUSTER).alone_s)
    assert summary.queued_s is not None
    assert summary.efficiency is not None
    return Outcome(summary.queued_s.mean, summary.efficiency.mean, fmean(timed.spans_s))


# Whose jobs.


def cases(data: Path | None, *, quick: bool) -> Iterator[Case]:
    """Yield the traces that are there."""
    n_jobs, both = (400, _OBJECTIVES[:1]) if quick else (500, _OBJECTIVES)
    yield Case("modelarts-like", ASKED, lambda load, seed: from_asked(generated(n_jobs, load, seed)), both)
    yield Case("modelarts-like", _QUARTER, lambda load, seed: generated(n_jobs, load, seed), both)
    if data is None or quick:
        return
    if (data / _PHILLY).exists():
        philly = normalized(read(data / _PHILLY))
        yield Case("philly", ASKED, lambda load, seed: _slice(philly, load, seed), _OBJECTIVES[:1])
    if (data / _CLUSTER10).exists():
        # Only its arrivals, devices and durations: the models were assigned later.
        recorded = [replace(job, work_steps=None) for job in normalized(read(data / _CLUSTER10))]
        yield Case(
            "cluster10", ASKED, lambda load, _: from_asked(rescaled(recorded, load, _N_DEVICES)), _OBJECTIVES[:1], 1
        )


def generated(n_jobs: int, load: float, seed: int) -> list[TraceJob]:
    """Jobs of the generator."""
    return list(ModelartsLike(n_jobs=n_jobs, n_devices=_N_DEVICES, load=load).jobs(seed))


def _slice(trace: Sequence[TraceJob], load: float, seed: int) -> list[TraceJob]:
    first = (_PHILLY_FIRST + seed * _PHILLY_APART) % (len(trace) - _N_PHILLY)
    return from_asked(rescaled(trace[first : first + _N_PHILLY], load, _N_DEVICES))


def from_asked(jobs: Sequence[TraceJob]) -> list[TraceJob]:
    """Return the jobs with their request as least number of devices."""
    return [replace(job, parameters=_range(max(1, ceil(job.n_gpus or 1)))) for job in jobs]


def _range(n_gpus: int) -> dict[str, float]:
    return {"n_gpus_min": n_gpus, "n_gpus_max": max(n_gpus, min(_STRETCH * n_gpus, _N_DEVICES))}


def note_of(data: Path | None, shown: str) -> str:
    """Return the notes, with the traces that are not there."""
    missing = [name for name in (_PHILLY, _CLUSTER10) if data is None or not (data / name).exists()]
    note = NOTE.format(ranges=shown)
    return f"{note}\nWithout the traces {', '.join(missing)}: see `--data`." if missing else note
