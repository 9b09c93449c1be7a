"""Jobs on shares of one machine's cores that want more than it has, simulated: who is how late under which policy."""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from punctual import registry
from punctual.core.cluster import Node
from punctual.core.commands import WarnUser
from punctual.core.events import JobFinished, Message
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobSpec
from punctual.core.protocols import Policy
from punctual.core.resources import Resources
from punctual.sim.job import SimJob
from punctual.sim.physics import Physics
from punctual.sim.simulation import Simulation
from punctual.sim.speed_laws import CoresTruth
from punctual.solvers.core_deadlines import CoreJob, fewest_misses
from punctual.solvers.solution import Solution
from punctual.solvers.timeline import Timeline

#: CPU seconds of a step.
STEP_CORE_S = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class CoreLoad:
    """A linear job: so many core-seconds, from an instant on, by a deadline after it (None: none).

    Attributes
    ----------
    dearer_after_frac, dearer_factor
        From this share of its steps on a step costs so many times as much: a neighbour outside takes the rest.
    """

    core_s: float
    deadline_s: float | None
    at: float = 0.0
    weight: float = 1.0
    ceiling_cores: float | None = None
    dearer_after_frac: float = 1.0
    dearer_factor: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Contention:
    """Jobs and the cores of the machine on which they meet."""

    cores: float
    loads: Sequence[CoreLoad]

    def bound(self) -> Solution:
        """The jobs of largest weight that can be on time, where all are there from the beginning."""
        jobs = [
            CoreJob(
                work_core_s=load.core_s, most_cores=load.ceiling_cores or self.cores, due_s=load.deadline_s,
                weight=load.weight,
            )
            for load in self.loads if load.deadline_s is not None
        ]  # fmt: skip
        return fewest_misses(jobs, Timeline.of(self.cores))


#: Fit one after the other, but not with constant demands of 1.96 and 0.98 cores.
IN_TURN = Contention(cores=2.0, loads=[CoreLoad(core_s=98.0, deadline_s=50.0), CoreLoad(core_s=98.0, deadline_s=100.0)])
#: The third arrives when the others have planned with all cores, and fits.
URGENT = Contention(
    cores=4.0,
    loads=[
        CoreLoad(core_s=400.0, deadline_s=300.0),
        CoreLoad(core_s=400.0, deadline_s=300.0),
        CoreLoad(core_s=200.0, deadline_s=80.0, at=100.0),
    ],
)
#: One without a deadline among jobs that nearly fill the machine.
BACKGROUND = Contention(
    cores=2.0,
    loads=[
        CoreLoad(core_s=90.0, deadline_s=100.0),
        CoreLoad(core_s=90.0, deadline_s=100.0),
        CoreLoad(core_s=40.0, deadline_s=None),
        CoreLoad(core_s=60.0, deadline_s=60.0, at=100.0),
    ],
)


def overload(load_frac: float = 1.6, n_jobs: int = 12, cores: float = 4.0, seed: int = 0) -> Contention:
    """Jobs that are there at once and want so many times what the machine has until the last deadline."""
    random = Random(seed)
    dues_s = [round(random.uniform(60.0, 300.0)) for _ in range(n_jobs)]
    shares = [random.uniform(0.3, 1.0) * due_s for due_s in dues_s]
    scale = load_frac * cores * max(dues_s) / sum(shares)
    return Contention(
        cores=cores,
        loads=[
            CoreLoad(
                core_s=min(scale * share, 0.9 * cores * due_s), deadline_s=float(due_s),
                weight=float(random.choice([1, 1, 2, 4])),
            )
            for due_s, share in zip(dues_s, shares, strict=True)
        ],
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Outcomes of the jobs, in the order of the loads.

    Attributes
    ----------
    late_frac
        By how much the deadline was missed, as a share of it; negative: early. None without a deadline.
    """

    took_s: list[float | None]  # From submission to the end; None: it did not end.
    late_frac: list[float | None]
    refused: set[int]  # Indices of jobs that were told that their deadline is not promised.
    lost: set[int]  # ... that a promise cannot be kept any more.
    journal: list[Message]  # All messages.

    def weight_on_time(self, contention: Contention, tolerance_frac: float = 0.005) -> float:
        """Weight of the jobs that were late by no more than this share of their deadline."""
        pairs = zip(contention.loads, self.late_frac, strict=True)
        return sum(load.weight for load, late in pairs if late is not None and late <= tolerance_frac)


def simulate(
    contention: Contention, policy: str | Policy = "promises-first", *, controller: str = "remaining-cost",
    physics: Physics | None = None, seed: int = 0, beside: Sequence[SimJob] = (), n_gpus: int = 0,
) -> Outcome:  # fmt: skip
    """Play the jobs to their end under `policy`, each steered by `controller`; jobs made of workers may run beside, on GPUs too."""
    made = registry.load("policies", policy)() if isinstance(policy, str) else policy
    jobs = [_job(i, load, contention.cores, controller) for i, load in enumerate(contention.loads)] + list(beside)
    journal: list[Message] = []
    node = Node(NodeId("node"), Resources(cores=contention.cores, gpus=n_gpus))
    Simulation(
        sorted(jobs, key=lambda job: job.submitted_at), [node], made, listeners=[journal.append], seed=seed,
        controllers={controller: registry.load("controllers", controller)()}, physics=physics,
        models={"tabulated": registry.load("models", "tabulated")()},
    ).run()  # fmt: skip
    ends = {message.job: message.at for message in journal if isinstance(message, JobFinished)}
    took_s = [ends[_name(i)] - load.at if _name(i) in ends else None for i, load in enumerate(contention.loads)]
    return Outcome(
        took_s=took_s,
        late_frac=[_late_frac(load, took) for load, took in zip(contention.loads, took_s, strict=True)],
        refused=_told(journal, "not-promised"),
        lost=_told(journal, "promise-lost"),
        journal=journal,
    )


def _name(i: int) -> JobId:
    return JobId(f"job-{i:02}")


def _job(i: int, load: CoreLoad, cores: float, controller: str) -> SimJob:
    steps = load.core_s / STEP_CORE_S
    spec = JobSpec(
        id=_name(i), ceiling=Resources(cores=load.ceiling_cores or cores), work_steps=steps,
        deadline_s=load.deadline_s, weight=load.weight, controller=controller,
    )  # fmt: skip
    truths = [CoresTruth(step_core_s=factor * STEP_CORE_S, serial_frac=0.0) for factor in (1.0, load.dearer_factor)]
    phases = ((0.0, truths[0]), (load.dearer_after_frac * steps, truths[1])) if load.dearer_factor != 1.0 else ()
    return SimJob(load.at, spec, truths[0], steps, phases=phases)


def _late_frac(load: CoreLoad, took_s: float | None) -> float | None:
    return None if load.deadline_s is None or took_s is None else took_s / load.deadline_s - 1.0


def _told(journal: Sequence[Message], code: str) -> set[int]:
    warnings = (message for message in journal if isinstance(message, WarnUser) and message.reason.code == code)
    return {int(message.job.rpartition("-")[2]) for message in warnings if message.job is not None}
