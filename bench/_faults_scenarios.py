"""Tables of jobs that the hosts of `host_kills.py` run, with what their users do and which policy shares the machine."""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from _faults_training import Job

from punctual.core.commands import Command
from punctual.core.events import Event

KINDS = tuple(kind.__name__ for kind in (*get_args(Event), *get_args(Command)))
MOMENTS = ("unwritten", "written", "performed")
_ALL = ("host", "keeper", "guard", "planner", "job")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """Jobs by name, their policy, and where they are disturbed.

    Attributes
    ----------
    victims
        Who is killed, in this order; of more than one, the order is drawn.
    moments
        A round of each kind is drawn for each victims with a moment out of each of these.
    n_most
        How often at least a kind of message comes in a round, where that is more than once.
    without
        The kinds that it does not have, and why.
    rare_n
        Every so many rounds have the jobs that take long.
    n_quick
        Rounds for a look.
    """

    policy: str
    jobs: Mapping[str, Job]
    victims: Sequence[tuple[str, ...]]
    moments: Sequence[tuple[str, ...]]
    n_most: Mapping[str, int]
    n_quick: int
    without: Mapping[str, str] = field(default_factory=dict)
    rare_n: int = 1

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds of messages at which processes are killed."""
        return tuple(kind for kind in KINDS if kind not in self.without)


@dataclass
class Round:
    """One round, and what became of it.

    Attributes
    ----------
    kind, nth, moment, victims
        Who is killed at the n-th message of which kind, and when. No kind: nobody.
    has_rare
        Whether the jobs are there that take long.
    final
        What the elastic training said of its weights in the end.
    """

    kind: str
    nth: int
    moment: str
    victims: tuple[str, ...]
    actuator: str
    seed: int
    stubborn: bool = False
    scenario: str = "pauses"
    has_rare: bool = False
    n_killed: int = 0
    n_hosts: int = 0
    took_s: float = 0.0
    final: str = ""
    faults: list[str] = field(default_factory=list)

    def jobs(self) -> dict[str, Job]:
        """The jobs that are there, by name."""
        return {name: job for name, job in SCENARIOS[self.scenario].jobs.items() if self.has_rare or not job.is_rare}


#: Messages that only users of a service cause; `bench/service_faults.py` kills processes while they come.
_SAID_TO_SERVICES = {
    "PauseRequested": "nobody pauses a job",
    "ResumeRequested": "nobody resumes a job",
    "PolicyChanged": "nobody changes the policy",
    "UsePolicy": "nobody changes the policy",
}

#: One that needs the whole machine comes when the others run, and they are paused for it.
_PAUSES = Scenario(
    policy="earliest-deadline",
    jobs={
        "tracked": Job(n_steps=30, cores=0.4, is_rigid=True, deadline_s=1.5, moves=("tracked", 4), moved_s=2.0),
        "goal": Job(n_steps=20, cores=0.4, is_rigid=True, has_goal=True, is_stubborn=True),
        "stopped": Job(n_steps=100_000, cores=0.4, is_rigid=True, stops=("stopped", 4), ends="stopped"),
        "failing": Job(n_steps=8, exit_code=3, cores=0.4, is_rigid=True, n_retries=0, ends="fails"),
        "urgent": Job(n_steps=8, is_rigid=True, deadline_s=0.3, preemptible=False, arrives=("goal", 4)),
    },
    victims=(
        ("host",), ("keeper",), ("guard",), ("planner",), ("job",), ("host", "keeper"), ("host", "job"),
        ("host", "keeper", "guard"), _ALL,
    ),
    moments=(("unwritten", "written"), ("performed",)),
    n_most=dict.fromkeys(
        ("JobSubmitted", "JobStarted", "ProgressReported", "GrantApplied", "PlanProposed", "TimerFired", "PhaseReported",
         "LossReported", "LaunchJob", "ResizeJob", "RequestPlan", "SetTimer"), 3,
    ),
    without=_SAID_TO_SERVICES,
    n_quick=4,
)  # fmt: skip

#: In sum there are cores enough, but not for what all demand at the same time.
_CONTENTION = Scenario(
    policy="promises-first",
    jobs={
        "long": Job(n_steps=180, compute_s=0.01, sleep_s=0.0, cores=1.0, deadline_s=12.0),
        "moved": Job(n_steps=200, compute_s=0.01, sleep_s=0.0, cores=1.0, deadline_s=16.0, moves=("moved", 10), moved_s=11.0, waits_at=100),
        "stopped": Job(n_steps=40_000, compute_s=0.003, sleep_s=0.0, deadline_s=400.0, stops=("urgent", 40), ends="stopped"),
        "crashing": Job(n_steps=100, compute_s=0.01, sleep_s=0.0, cores=1.0, deadline_s=13.0, crashes_at=52),
        "plain": Job(n_steps=80, compute_s=0.01, sleep_s=0.0, cores=1.0, arrives=("moved", 10), is_stubborn=True),
        "urgent": Job(n_steps=80, compute_s=0.012, sleep_s=0.0, cores=1.0, deadline_s=4.0, arrives=("long", 60)),
        "steady": Job(n_steps=80, compute_s=0.01, sleep_s=0.0, cores=1.0, deadline_s=11.0, arrives=("moved", 60)),
        "elastic": Job(n_steps=180, workers=(1, 2), n_epochs=6, sleep_s=0.0, deadline_s=20.0, arrives=("long", 5), is_rare=True),
    },
    victims=(("host",), ("host", "keeper"), ("host", "job"), ("host", "planner"), ("host", "keeper", "guard"), _ALL),
    moments=(("unwritten",), ("written",), ("performed",)),
    n_most={
        "JobSubmitted": 7, "JobStarted": 7, "ProgressReported": 60, "PhaseReported": 12, "LossReported": 40, "JobFinished": 4,
        "JobFailed": 2, "GrantApplied": 25, "PlanProposed": 25, "TimerFired": 60, "LaunchJob": 8, "ResizeJob": 25,
        "RequestPlan": 25, "SetTimer": 100, "WarnUser": 4,
    },
    without=_SAID_TO_SERVICES
    | {
        "JobWarned": "its programs give no cause for a warning",
        "GrantFailed": "nothing keeps a grant from being applied, but now and then the end of a job that is just then given another one",
        "NodeLost": "its one node is this machine",
        "RejectJob": "no job is turned away, stopped while it waits, or out of retries",
    },
    rare_n=4,
    n_quick=1,
)  # fmt: skip

SCENARIOS: dict[str, Scenario] = {"pauses": _PAUSES, "contention": _CONTENTION}


def drawn(name: str, seed: int, n_rounds: int | None = None) -> list[Round]:
    """Rounds of every kind of message with every victims, before and after; None: all of them, once."""
    rng, scenario = random.Random(seed), SCENARIOS[name]
    chosen = [
        (kind, victims, rng.choice(moments))
        for kind in scenario.kinds
        for victims in scenario.victims
        for moments in scenario.moments
    ]
    made = [
        Round(
            kind=kind, nth=rng.randint(1, scenario.n_most.get(kind, 1)), moment=moment, victims=victims,
            actuator=rng.choice(("auto", "pacing")), seed=rng.randrange(1 << 30), stubborn=rng.random() < 0.2,
            scenario=name,
        )
        for kind, victims, moment in chosen
    ]  # fmt: skip
    rng.shuffle(made)
    if n_rounds is not None:
        made = _various(made)[:n_rounds]
    for i, round_ in enumerate(made):
        round_.has_rare = i % scenario.rare_n == scenario.rare_n - 1
    return made


def _various(rounds: Sequence[Round]) -> list[Round]:
    """First one of each kind that kills the host, then one of each kind and moment, then the rest."""
    left = list(rounds)
    ordered: list[Round] = []
    for key in (lambda round_: round_.kind, lambda round_: (round_.kind, round_.moment)):
        seen: set[Any] = {key(round_) for round_ in ordered}
        for round_ in list(left):
            if "host" in round_.victims and key(round_) not in seen:
                seen.add(key(round_))
                ordered.append(round_)
                left.remove(round_)
    return [*ordered, *left]
