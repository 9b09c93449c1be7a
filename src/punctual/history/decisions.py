"""Decisions with their reasons, and the proven gap of each plan."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from punctual.core.commands import LaunchJob, RejectJob, ResizeJob
from punctual.core.ids import JobId
from punctual.core.plan import Plan
from punctual.core.resources import total


@dataclass(frozen=True, slots=True)
class Decision:
    """One command about a job's grant.

    Attributes
    ----------
    kind
        ``"launch"``, ``"resize"``, ``"pause"`` or ``"reject"``.
    n_devices, cores, n_nodes
        The amount asked for; zero for a pause and a rejection.
    code, text
        The reason.
    gap_frac
        Largest distance of the plan in force from the best plan, by its bound; None: its policy proves nothing.
    """

    at: float
    job: JobId
    kind: str
    n_devices: float
    cores: float
    n_nodes: int
    code: str
    text: str
    gap_frac: float | None


@dataclass(frozen=True, slots=True)
class Gaps:
    """Gaps proven in a run: the number of plans, the number with a bound, and their gaps."""

    n_plans: int
    n_proven: int
    mean_frac: float | None
    max_frac: float | None


def decision_of(command: LaunchJob | ResizeJob | RejectJob, gap_frac: float | None) -> Decision:
    """Return the decision that a command stands for, under a plan with that proven gap."""
    grant = {} if isinstance(command, RejectJob) else command.grant
    amount = total(grant.values())
    kind = "reject" if isinstance(command, RejectJob) else "launch" if isinstance(command, LaunchJob) else "resize"
    return Decision(
        at=command.at,
        job=command.job,
        kind="pause" if kind == "resize" and not amount else kind,
        n_devices=amount.gpus,
        cores=amount.cores,
        n_nodes=len(grant),
        code=command.reason.code,
        text=command.reason.text,
        gap_frac=gap_frac,
    )


def gap_frac(plan: Plan) -> float | None:
    """Return the largest distance of the objective from the best one, as a share of the bound; None without a bound.

    Examples
    --------
    >>> gap_frac(Plan(revision=1, grants={}, bound=10.0, objective=9.9))
    0.01
    """
    if plan.bound is None or plan.objective is None:
        return None
    if plan.bound == plan.objective:
        return 0.0
    return round(max(0.0, plan.bound - plan.objective) / max(abs(plan.bound), 1e-12), 12)


def by_code(decisions: Iterable[tuple[str, str, str]]) -> list[tuple[str, str, int, str]]:
    """(kind, code, how often, an example) of decisions given as (kind, code, text), the most frequent first."""
    n_of: Counter[tuple[str, str]] = Counter()
    example: dict[tuple[str, str], str] = {}
    for kind, code, text in decisions:
        n_of[kind, code] += 1
        example.setdefault((kind, code), text)
    return [(kind, code, n, example[kind, code]) for (kind, code), n in n_of.most_common()]
