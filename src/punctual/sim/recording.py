"""A live journal as the trace of a study, with two policies more.

`live` is the recorded run, and `replayed` the policy that ran, simulated with its changes by users.
"""

from collections.abc import Container, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from punctual.core.cluster import Node
from punctual.core.commands import RequestPlan
from punctual.core.errors import InvalidSpec
from punctual.core.events import Message, PlanProposed
from punctual.core.ids import JobId
from punctual.core.lifecycle import about
from punctual.core.units import GIB_BYTES
from punctual.history.cluster import ClusterHistory
from punctual.request.cluster_file import NodeGroup
from punctual.sim.choice import PolicyChoice
from punctual.sim.recorded import ALWAYS, UNUSED_KINDS, Period, RecordedLoad, recorded_load

#: Names of the two policies, and of the rows that they get.
LIVE, REPLAYED, AS_IT_WAS = "live", "replayed", "as it was live"
#: The rule of scaling of recorded jobs.
RECORDED = "recorded"
#: First bytes of a journal.
SQLITE_MAGIC = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Live:
    """The recorded run, beside simulated ones."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """The policy that ran, with its changes by users.

    Attributes
    ----------
    policy
        Its name; empty: as the record of the run says.
    """

    policy: str = ""


#: These two, by name.
RECORDED_POLICIES: Mapping[str, type] = {LIVE: Live, REPLAYED: Replayed}


@dataclass(frozen=True, slots=True)
class Recording:
    """The journal at `path` up to message number `until`, whatever a host writes after it, and a period of it."""

    path: Path
    until: int
    period: Period = ALWAYS

    @classmethod
    def of(cls, path: Path, until: int | None = None, start_s: float = 0.0, end_s: float = inf) -> "Recording":
        """Return the part of a journal from `start_s` until before `end_s` after its first submission.

        Raises
        ------
        InvalidSpec
            The journal cannot be read.
        """
        from punctual.journal.sqlite import About, SqliteJournal  # most studies read no journal

        with SqliteJournal(path, read_only=True) as journal:
            until = journal.last_sequence if until is None else until
            if start_s == 0 and end_s == inf:
                return cls(path, until)
            first = next(journal.read_from(1, About(kinds=("JobSubmitted",))), None)
        first_at = 0.0 if first is None else first[1].at
        return cls(path, until, Period(from_at=first_at + start_s, until_at=first_at + end_s))

    def messages(self) -> Iterator[Message]:
        """Yield the messages, without those that say nothing of a load."""
        from punctual.journal.sqlite import About, SqliteJournal

        with SqliteJournal(self.path, read_only=True) as journal:
            for _, message in journal.read_from(1, About(but_kinds=UNUSED_KINDS, until=self.until)):
                yield message

    def load(self) -> RecordedLoad:
        """Return the load of the journal."""
        return _load_of(self)

    def lived(self, jobs: Container[JobId]) -> tuple[ClusterHistory, int]:
        """Return the recorded run of some jobs with the plans of the period, and the number of its messages."""
        history, n_messages = ClusterHistory(details=True), 0
        for message in self.messages():
            subject = about(message)
            is_plan = isinstance(message, RequestPlan | PlanProposed)
            if subject in jobs or (subject is None and (not is_plan or self.period.has(message.at))):
                history.add(message)
                n_messages += 1
        return history, n_messages

    def keys(self) -> dict[str, Any]:
        """Return the keys of a scenario that plays the load on its machine; raise `InvalidSpec` if no job can be played."""
        load = self.load()
        _check_playable(load, str(self.path))
        return {
            "seeds": [0],
            "scaling": RECORDED,
            "cluster": [group.model_dump(exclude_defaults=True) for group in groups_of(load.nodes)],
            "physics": {"startup_s": load.startup_s, "resize_s": load.resize_s, "solver_s": load.solver_s},
        }

    def policies(self, given: Iterable[Any]) -> list[Any]:
        """Return the policies to compare: first `live` and `replayed`, with the names of their rows."""
        changes, ran = self.load().policy_changes, ""
        for policy in given:
            kind = RECORDED_POLICIES.get(name := _name_of(policy))
            if kind is not None:
                bound = PolicyChoice.model_validate(policy).bound_to(kind, f"policies.{name}")
                ran = bound.parameters.get("policy", ran)
        ran = (changes[0].before if changes else "") or ran or _policy_that_ran(self.path)
        live = {"name": LIVE, "label": AS_IT_WAS}
        again = {"name": REPLAYED, "label": f"{ran}{' and others' if changes else ''}, replayed", "policy": ran}
        return [live, again, *(policy for policy in given if _name_of(policy) not in RECORDED_POLICIES)]


def _name_of(policy: Any) -> str:
    """Return the name of a policy that is given as text or as a table."""
    return str(policy.get("name") if isinstance(policy, Mapping) else policy).partition(":")[0]


@lru_cache(maxsize=1)
def _load_of(recording: Recording) -> RecordedLoad:
    return recorded_load(recording.messages(), recording.period)


def is_journal(path: Path) -> bool:
    """Whether the file begins like a journal."""
    with suppress(OSError):
        if path.is_file():  # a pipe may be one that nobody writes
            with path.open("rb") as file:
                return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC
    return False


def _policy_that_ran(journal: Path) -> str:
    """Return the policy with which the host began, as the record beside the journal says; else a host's default."""
    from punctual.daemon.host_options import HostOptions
    from punctual.daemon.run_folder import RunFolder

    folder = journal.absolute().parent
    facts = RunFolder(folder.name, folder, folder).facts()
    return str(facts.get("options", {}).get("policy", HostOptions().policy))


def _check_playable(load: RecordedLoad, source: str) -> None:
    got = f"{len(load.left_out)} jobs, none of which can be played" if load.left_out else "no jobs"
    got += f", and {load.n_outside} that were not submitted in the time asked for" if load.n_outside else ""
    example = next(iter(load.left_out.items()), None)
    remedy = "Name a journal in which jobs have ended."
    if example is not None:
        remedy = f"'{example[0]}' for example: {example[1]}. {remedy}"
    if not load.jobs:
        raise InvalidSpec("a journal must have jobs whose work is known", got, f"'{source}'", remedy)
    if not load.nodes:
        raise InvalidSpec("a journal must say what the machine had", "no node", f"'{source}'", "Name another journal.")


def groups_of(nodes: Iterable[Node]) -> tuple[NodeGroup, ...]:
    """Return nodes as the groups of a scenario's cluster."""
    return tuple(
        NodeGroup(
            gpus=int(node.capacity.gpus),
            cores=node.capacity.cores or None,
            memory_gib=node.capacity.memory_bytes / GIB_BYTES or None,
            device=node.device,
            jobs_at_once=node.jobs_at_once,
            others=dict(node.capacity.others),
        )
        for node in nodes
    )
