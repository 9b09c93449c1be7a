"""Judge jobs: the word, the phrase and the sentence that all displays, notices and the API have of each."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import Protocol, get_args

from punctual.core.ids import JobId
from punctual.core.pools import SPENT, Lack
from punctual.core.reason import Reason
from punctual.core.status import JobStatus
from punctual.core.units import span
from punctual.core.verdict import JobKind, Verdict, remaining_time, verdict

#: Kinds of jobs that are over.
OVER: frozenset[JobKind] = frozenset({"met", "missed", "done", "failed", "stopped"})
#: Names of kinds for people.
NAMES: Mapping[JobKind, str] = {
    **{kind: kind for kind in get_args(JobKind)},
    "late": "will be late",
    "risk": "at risk",
    "good": "on track",
    "free": "no deadline",
}
#: Kind of a measured job by its verdict; with no verdict it has no deadline.
_BY_VERDICT: Mapping[Verdict | None, JobKind] = {
    "on_track": "good",
    "at_risk": "risk",
    "infeasible": "late",
    "met": "met",
    "missed": "missed",
    None: "free",
}


class TimeText(Protocol):
    """Writes the time of day of an instant; `about`: to the minute."""

    def __call__(self, at: float, *, about: bool = False) -> str: ...


@dataclass(frozen=True, slots=True)
class Wait:
    """Events that a waiting job waits for, as far as they are known.

    Attributes
    ----------
    starts_at
        Instant at which it is expected to start; of a job that runs after others, the earliest. None: not known.
    ends, ends_at
        Job whose end is the next one expected, and when, for a job that waits for room; None: not known.
    lacks
        Machines of pools that it could use and that are not there.
    unbought
        Why no machine is bought for it, of those that can be had; None: one is, or nothing is known of it.
    after
        Jobs after which it starts that have not ended; None: all of its declaration.
    """

    starts_at: float | None = None
    ends: JobId | None = None
    ends_at: float = inf
    lacks: tuple[Lack, ...] = ()
    unbought: Reason | None = None
    after: tuple[JobId, ...] | None = None

    def roughly(self, step_s: float) -> tuple[object, ...]:
        """Return what the same wait, some seconds nearer or farther, has in common with this one."""
        times = [
            None if at is None or not isfinite(at) else round(at / step_s) for at in (self.starts_at, self.ends_at)
        ]
        return (self.ends, *times, self.lacks, str(self.unbought or ""), self.after)


NO_WAIT = Wait()


@dataclass(frozen=True, slots=True)
class Judgement:
    """Kind of a job, the kind's name for people, and the reason in some words."""

    kind: JobKind
    word: str
    phrase: str


def judge(status: JobStatus, at: float, clock: TimeText, wait: Wait = NO_WAIT) -> Judgement:
    """Judge a job at instant `at`."""
    kind = kind_of(status, at)
    return Judgement(kind, _word(status, kind, at), _phrase(status, kind, at, clock, wait))


def kind_of(status: JobStatus, at: float) -> JobKind:
    """Return the kind of a job's standing, in one word."""
    said, state = verdict(status, at), status.display_state
    if state == "failed" and status.landed_at is None:
        return "failed"
    if state in ("stopped", "turned away"):
        return "stopped"
    if _is_over(status):
        return "done" if said is None else _BY_VERDICT[said]
    if said == "missed":
        return "late"
    if state == "queued":
        return "waiting"
    if state == "paused":
        return "paused"
    if state == "stalled":
        return "late" if said == "infeasible" else "risk"
    has_verdict = status.deadline_at is None or remaining_time(status, at) is not None
    return _BY_VERDICT[said] if has_verdict else "measuring"


def landing_at(status: JobStatus, at: float) -> float | None:
    """Instant at which the job landed, or is expected to; None: not known."""
    if status.landed_at is not None:
        return status.landed_at
    remaining = None if status.state == "queued" else remaining_time(status, at)
    return None if remaining is None else at + remaining.expected_s


def expected_waits(
    jobs: Sequence[JobStatus], at: float, lacks: Sequence[Lack] = (), unbought: Mapping[JobId, Reason] | None = None
) -> dict[JobId, Wait]:
    """Return what each waiting job waits for, as far as it is known.

    A job waits for the machines in `lacks`, which are not there, that start, or else for all on which it fits; one for which no
    machine is bought, and why, is in `unbought`: with its budget spent it waits for no machine. One that runs after others starts
    when the last of them has landed. Of one that waits for room the next end is known once all that run are measured; and its
    start, if it alone waits, and that end gives it room.
    """
    landings = {status.id: landing_at(status, at) for status in jobs}
    running = [status for status in jobs if status.granted and not status.ended]
    ends = [(max(at, landing), status.id) for status in running if (landing := landings[status.id]) is not None]
    next_at, next_job = min(ends) if ends and len(ends) == len(running) else (inf, None)  # any other may end first
    waiting = [status for status in jobs if status.display_state == "queued"]
    over = {status.id for status in jobs if status.ended}
    behind = {status.id: tuple(other for other in status.spec.after if other not in over) for status in waiting}
    n_for_room = sum(not others for others in behind.values())
    n_for_room += sum(status.state == "paused" and status.pause is None for status in jobs)
    waits = {}
    for status in waiting:
        if behind[status.id]:
            after = [landings.get(other) for other in behind[status.id]]
            known = [landing for landing in after if landing is not None and isfinite(landing)]
            waits[status.id] = Wait(max(at, *known) if len(known) == len(after) else None)
        elif (reason := (unbought or {}).get(status.id)) is not None:
            waits[status.id] = Wait(lacks=() if reason.code == SPENT else _usable(lacks, status), unbought=reason)
        elif usable := _usable(lacks, status):
            waits[status.id] = Wait(lacks=usable)
        elif next_job is not None and isfinite(next_at) and _waits_for_an_end(status):
            is_next = n_for_room == 1 and (len(running) == 1 or _needs_a_place_only(status, running))
            waits[status.id] = Wait(next_at if is_next else None, next_job, next_at)
        if behind[status.id] != status.spec.after:
            waits[status.id] = replace(waits.get(status.id, NO_WAIT), after=behind[status.id])
    return waits


def _usable(lacks: Sequence[Lack], status: JobStatus) -> tuple[Lack, ...]:
    """Return the machines of `lacks` on which the job fits: those that start, or else all."""
    least = status.spec.floor if status.spec.unit is None else status.spec.unit
    fitting = tuple(lack for lack in lacks if least.fits_in(lack.pool.capacity))
    return tuple(lack for lack in fitting if lack.n_starting) or fitting


def lack_text(lack: Lack, clock: TimeText) -> str:
    """Say which machines are not there, since when, why, and when they are asked for again."""
    n = lack.n_starting or lack.n_refused
    machines = f"{n} machines" if n > 1 else "a machine"
    since = f"since {clock(lack.since_at)}"
    if lack.n_starting:
        return f"{machines} of pool '{lack.pool.name}', starting {since}"
    again = "when there are more" if lack.again_at is None else f"at {clock(lack.again_at)}"
    cause = " ".join(lack.cause.split()) or "no more can be had"
    return f"{machines} of pool '{lack.pool.name}' {since}: {cause}; asked for again {again}"


def headline(
    status: JobStatus,
    judged: Judgement,
    at: float,
    clock: TimeText,
    *,
    most_cores: float | None = None,
    is_promised: bool = False,
) -> str:
    """Say in one sentence how a job stands.

    Parameters
    ----------
    judged
        How it stands at that instant, as `judge` has it.
    most_cores
        Cores of all nodes; None: not known.
    is_promised
        Whether the policy has promised its deadline.
    """
    begun = _begun(status, judged.kind)
    if _is_over(status):
        parts = [*_ended(status, judged)]
    else:
        held = _held(status, most_cores, is_promised=is_promised)
        parts = [_expected(status, judged, at, clock), _due(status, at), held]
    told = "; ".join(part for part in parts if part and part.lower() != begun.lower())
    if judged.kind == "waiting":
        return told[:1].upper() + told[1:]
    return f"{begun}: {told}" if told else begun


def attention(kind: JobKind) -> int:
    """Rank of a kind: late first, then at risk, what else runs, what waits, and what is over."""
    if kind in OVER:
        return 4
    return {"late": 0, "risk": 1, "waiting": 3}.get(kind, 2)


def figures(kinds: Iterable[JobKind]) -> list[tuple[JobKind, str]]:
    """Count jobs by how they stand, in words: on track, at risk, late and done, whether there are any or not."""
    counts = Counter(kinds)

    def told(words: str, *others: JobKind) -> str:
        return ", ".join([words, *(f"{n} {NAMES[kind]}" for kind in others if (n := counts[kind]))])

    n_done, n_missed = sum(counts[kind] for kind in ("met", "missed", "done")), counts["missed"]
    return [
        ("good", told(f"{counts['good']} on track", "measuring", "waiting")),
        ("risk", told(f"{counts['risk']} at risk")),
        ("late", told(f"{counts['late']} late")),
        ("done", told(f"{n_done} done today" + (f" ({n_missed} late)" if n_missed else ""), "failed")),
    ]


def _is_over(status: JobStatus) -> bool:
    """Whether the job has left its work behind."""
    return status.landed_at is not None or status.ended


def _waits_for_an_end(status: JobStatus) -> bool:
    return status.reason is not None and status.reason.code == "waits"


def _needs_a_place_only(status: JobStatus, running: Sequence[JobStatus]) -> bool:
    """Whether the end of any running job gives the job room: as many run as may run at once, and it asks for no memory."""
    is_for_a_place = (
        status.reason is not None and "n_jobs" in status.reason.facts and not status.spec.asked_memory_bytes
    )
    return is_for_a_place and all(other.spec.worker is None for other in running)


def _word(status: JobStatus, kind: JobKind, at: float) -> str:
    if status.display_state in ("stalled", "turned away"):
        return status.display_state
    return "late" if kind == "late" and verdict(status, at) == "missed" else NAMES[kind]


def _phrase(status: JobStatus, kind: JobKind, at: float, clock: TimeText, wait: Wait) -> str:
    if status.landed_at is not None:
        if status.deadline_at is None:
            return f"took {span(status.landed_at - status.submitted_at)}"
        return _against(status.deadline_at - status.landed_at, is_past=True)
    if kind == "failed":
        first, *_ = status.cause.splitlines() or [""]
        return f"exit status {status.exit_code}" if status.exit_code else first.partition(";")[0] or "failed"
    if kind == "waiting":
        return _waiting(status, clock, wait)
    if status.display_state == "stalled":
        return "no step for a while"
    if kind in ("stopped", "paused"):
        return status.display_state
    if kind == "measuring":
        if status.state == "starting":
            return "starts"
        return "no progress yet" if status.done_frac is None else "measures its speed"
    return _landing(status, kind, at)


def _landing(status: JobStatus, kind: JobKind, at: float) -> str:
    """Say how far from its deadline the job is expected to land."""
    deadline_at, landing, remaining = status.deadline_at, landing_at(status, at), remaining_time(status, at)
    if deadline_at is None:
        return "shares what is free"
    if landing is None or remaining is None:
        return "deadline passed"
    late_s = at + remaining.high_s - deadline_at
    return f"may be {span(late_s)} late" if kind == "risk" and 0 < late_s < inf else _against(deadline_at - landing)


def _waiting(status: JobStatus, clock: TimeText, wait: Wait) -> str:
    if after := status.spec.after if wait.after is None else wait.after:
        earliest = "" if wait.starts_at is None else f", not before {clock(wait.starts_at, about=True)}"
        return f"starts after {', '.join(after)}{earliest}"
    if wait.lacks or wait.unbought:
        machines = ", or for ".join(lack_text(lack, clock) for lack in wait.lacks)
        return "; ".join(
            [*([wait.unbought.text] if wait.unbought else []), *([f"waits for {machines}"] if machines else [])]
        )
    if wait.ends is None:
        return "waits for room"
    about = f"about {clock(wait.ends_at, about=True)}"
    if wait.starts_at is not None:
        return f"waits for room: starts {about}, when {wait.ends} ends"
    return f"waits for room: {wait.ends} ends {about}"


def _against(early_s: float, *, is_past: bool = False) -> str:
    if not isfinite(early_s):
        return "never lands at this pace"
    if not is_past and abs(early_s) < 1.0:  # no forecast is better
        return "lands on time"
    return f"{'landed' if is_past else 'lands'} {span(early_s)} {'late' if early_s < 0 else 'early'}"


def _begun(status: JobStatus, kind: JobKind) -> str:
    """Return the word with which the sentence begins."""
    if status.display_state in ("stalled", "turned away"):
        return status.display_state.capitalize()
    return {"late": "Late", "free": "Running"}.get(kind, NAMES[kind].capitalize())


def _ended(status: JobStatus, judged: Judgement) -> tuple[str, str]:
    ended_at = status.ended_at if status.landed_at is None else status.landed_at
    took = "" if status.ended_at is None or ended_at is None else f"took {span(ended_at - status.submitted_at)}"
    return "" if judged.kind in ("done", "stopped") else judged.phrase, took


def _expected(status: JobStatus, judged: Judgement, at: float, clock: TimeText) -> str:
    kind, deadline_at = judged.kind, status.deadline_at
    landing, remaining = landing_at(status, at), remaining_time(status, at)
    has_no_forecast = kind == "paused" or status.display_state == "stalled"
    if has_no_forecast or landing is None or remaining is None or not isfinite(landing):
        return "its speed is not known yet" if kind == "measuring" else judged.phrase
    late = ""
    if kind == "late" and deadline_at is not None and landing > deadline_at:
        late = f", {span(landing - deadline_at)} after its deadline"
    spread_s = max(0.1, (remaining.high_s - remaining.low_s) / 2)
    return f"lands {clock(landing)}, ± {span(spread_s)}{late}"


def _due(status: JobStatus, at: float) -> str:
    if status.deadline_at is None:
        return ""
    left_s = status.deadline_at - at
    return f"due in {span(left_s)}" if left_s > 0 else f"due {span(left_s)} ago"


def _held(status: JobStatus, most_cores: float | None, *, is_promised: bool) -> str:
    held = status.held.cores
    if not held:
        return ""
    of = f" of {round(most_cores, 2):g}" if most_cores else ""
    unit = "core" if round(most_cores or held, 2) == 1 else "cores"
    return f"holds {round(held, 2):g}{of} {unit}{', promised' if is_promised else ''}"
