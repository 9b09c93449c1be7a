"""Machines of pools as jobs of Slurm, each of which starts Ray on its node; Slurm wakes nodes that sleep."""

import logging
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.core.units import span
from punctual.executors.cluster.machines import (
    MACHINE_LABEL,
    ClusterPlace,
    DescribedMachines,
    MachinesUnknown,
    PoolTerms,
    Started,
    check_head,
    check_options,
    machine_by_label,
    pool_of,
    wait_s_in,
)
from punctual.executors.cluster.node_limits import NodeFacts
from punctual.executors.ray_requests import head_address
from punctual.executors.slurm_commands import SlurmFailure, slurm_answer

_LOG = logging.getLogger(__name__)

#: Label of a node of Ray that tells the machines of one service from those of another.
SERVICE_LABEL = "punctual.service"
#: Options of `sbatch` that would hide the machine's job from its service, or start another one: short ones with their long names.
_SHORT = dict(zip("JaMWHhV", ("job-name", "array", "clusters", "wait", "hold", "help", "version"), strict=True))
_FORBIDDEN = {*_SHORT.values(), "wrap", "test-only", "parsable", "requeue", "het-group", "usage"}
#: Variables that are of this machine, or mean a forbidden option.
_NOT_PASSED_ON = {
    "PUNCTUAL_NODE_ADDRESS",
    "RAY_ADDRESS",
    "SBATCH_ARRAY_INX",
    "SBATCH_CLUSTERS",
    "SBATCH_WAIT",
    "SLURM_CLUSTERS",
}
#: State of jobs whose processes have been told to end, and have some time for it.
_ENDING = "COMPLETING"
#: States of jobs that have ended.
_ENDED = {
    "BOOT_FAIL",
    "CANCELLED",
    "COMPLETED",
    "DEADLINE",
    "FAILED",
    "NODE_FAIL",
    "OUT_OF_MEMORY",
    "PREEMPTED",
    "REVOKED",
    "TIMEOUT",
}


class _SlurmJob(NamedTuple):
    """A machine's job as Slurm tells of it; `ends_wall` is 0 where it names no end."""

    number: str
    state: str
    ends_wall: float
    reason: str


class SlurmMachines(DescribedMachines):
    """Provider of machines that are jobs of Slurm, named after machine and service.

    * `sbatch`: options of `sbatch` for the machines of all pools.
    * `wait_s`: a machine that waits longer in Slurm's queue cannot be had now.
    * `ray`: command that is Ray on the nodes; empty: the one of this installation, at the same path.
    * `poll_interval_s`: seconds between two queries of `squeue`, which is work for Slurm's controller.
    * `retry_s`: seconds until a pool that had no more machines is thought to have some again: Slurm does not tell.
    """

    def __init__(
        self,
        pools: Sequence[PoolTerms],
        place: ClusterPlace,
        *,
        sbatch: Sequence[str] = (),
        wait_s: float = 60.0,
        ray: str = "",
        poll_interval_s: float = 5.0,
        retry_s: float = 300.0,
    ) -> None:
        super().__init__(pools)
        self._place, self._sbatch, self._wait_s, self._ray = place, sbatch, wait_s, ray
        self.poll_interval_s, self.retry_s = poll_interval_s, retry_s
        self._address = ""
        #: Jobs of the machines that start or run.
        self._jobs: dict[NodeId, _SlurmJob] = {}
        #: Numbers of jobs that were cancelled here, until Slurm says so too; and those of them that are not even ending.
        self._cancelled: set[str] = set()
        self._unheeded: set[str] = set()
        #: Instants since when machines wait in the queue.
        self._waits_since: dict[NodeId, float] = {}

    # The protocol.

    def start(self, pool: PoolSpec, nodes: Sequence[NodeId]) -> Started:
        """Submit a job for each machine, until Slurm refuses one."""
        started = list[NodeId]()
        cause = ""
        for node in nodes:
            try:
                answer = self._ask(["sbatch", *self._submission(self._pools[pool.name], node)])
            except (SlurmFailure, MachinesUnknown) as error:
                cause = f"Slurm: {error}" if isinstance(error, SlurmFailure) else str(error)
                break
            number = answer.strip().rpartition("\n")[2].partition(";")[0]
            if not number.isdecimal():
                cause = f"Slurm: sbatch has answered {answer!r}, and no number of a job"
                break
            self._jobs[node] = _SlurmJob(number, "PENDING", 0.0, "")
            started.append(node)
        return Started(nodes=started, cause=cause)

    def end(self, nodes: Collection[NodeId]) -> None:
        """Cancel the jobs of machines; where Slurm does not answer, as soon as it does."""
        self._cancel([self._jobs.pop(node).number for node in nodes if node in self._jobs])

    def machines(self) -> Collection[NodeId]:
        """Return the machines whose jobs wait or run.

        Raises `MachinesUnknown` if Slurm does not tell its jobs; otherwise the other queries tell what it has told now.
        """
        self._look()
        return list(self._jobs)

    def noticed(self) -> Mapping[NodeId, float]:
        """Return the end of each machine that Slurm ends within the notice of its pool, but a minute at least, or is ending."""
        now = time.time()
        return {
            node: job.ends_wall
            for node, job in self._jobs.items()
            if job.state in ("RUNNING", _ENDING) and 0 < job.ends_wall <= now + max(60.0, self._notice_s(node))
        }

    def name_of(self, facts: NodeFacts) -> NodeId | None:
        """Return the machine that a node is by its labels."""
        return machine_by_label(facts) if facts.labels.get(SERVICE_LABEL) == _label(self._place.name) else None

    def close(self, *, for_good: bool) -> None:
        """Cancel all jobs of this service, or leave them."""
        if not for_good:
            return
        try:
            self._look()
            self.end(list(self._jobs))
            self._look()  # what Slurm could not cancel is still there
        except MachinesUnknown:
            self.end(list(self._jobs))
            raise
        if self._unheeded:
            raise MachinesUnknown(
                f"Slurm has not ended jobs {', '.join(sorted(self._unheeded))} yet: `squeue --me` shows them"
            )

    # Slurm's answers.

    def _ask(self, command: Sequence[str]) -> str:
        environment = {name: value for name, value in os.environ.items() if name not in _NOT_PASSED_ON}
        # Slurm's programs try again for some 10 s by themselves where its controller is away.
        return slurm_answer(command, {**environment, "SLURM_TIME_FORMAT": "%s"}, 30.0)

    def _look(self) -> None:
        """Find out what has become of the machines."""
        try:
            listed = self._ask(["squeue", "--noheader", "--me", "--states=all", "--format=%A|%T|%e|%r|%j"])
        except SlurmFailure as error:
            raise MachinesUnknown(
                f"Slurm does not tell its jobs ({error}): machines that are there go on, and none is started until it answers"
            ) from error
        self._note(self._parsed(listed))

    def _parsed(self, listed: str) -> dict[NodeId, _SlurmJob]:
        """Return the latest job of each machine of this service."""
        jobs: dict[NodeId, _SlurmJob] = {}
        for line in listed.splitlines():
            number, state, end, reason, name = (*line.strip().split("|", 4), "", "", "", "")[:5]
            machine, _, service = name.rpartition("@")
            if service != self._place.name or not number.isdecimal():
                continue
            node, job = NodeId(machine), _SlurmJob(number, state, float(end) if end.isdecimal() else 0.0, reason)
            if node not in jobs or int(number) > int(jobs[node].number):
                jobs[node] = job
        return jobs

    def _note(self, jobs: Mapping[NodeId, _SlurmJob]) -> None:
        alive = {node: job for node, job in jobs.items() if job.state not in _ENDED}
        self._cancelled &= {job.number for job in alive.values()}
        for node in self._jobs.keys() - alive.keys():
            job = jobs.get(node, self._jobs[node])
            self._lose(node, job, f"is {job.state}" if node in jobs else "is not known any more")
        self._jobs = {node: job for node, job in alive.items() if job.number not in self._cancelled}
        now = time.monotonic()
        waiting = [node for node, job in self._jobs.items() if job.state == "PENDING"]
        self._waits_since = {node: self._waits_since.get(node, now) for node in waiting}
        for node, since in self._waits_since.items():
            if now - since > self._wait_s:
                job = self._jobs.pop(node)
                self._cancelled.add(job.number)
                self._lose(node, job, f"has waited for {span(self._wait_s)}")
        self._unheeded = self._cancelled - {job.number for job in alive.values() if job.state == _ENDING}
        self._cancel(self._unheeded)

    def _lose(self, node: NodeId, job: _SlurmJob, text: str) -> None:
        reason = "" if job.reason in ("", "None") else f" ({job.reason})"
        hint = "; `--output=FILE` in `options.sbatch` keeps what Ray says there" if job.state == "FAILED" else ""
        self._lost[node] = f"its job {job.number} of Slurm {text}{reason}{hint}"

    def _cancel(self, numbers: Collection[str]) -> None:
        """Cancel jobs; those that still wait or run at Slurm's next answer are cancelled again."""
        self._cancelled.update(numbers)
        if not numbers:
            return
        try:
            self._ask(["scancel", *sorted(numbers)])
        except SlurmFailure as error:  # one of them may have ended by itself
            _LOG.info("`scancel %s`: %s", " ".join(sorted(numbers)), error)

    def _notice_s(self, node: NodeId) -> float:
        pool = self._pools.get(pool_of(node))
        return pool.spec.notice_s if pool is not None else 0.0

    # The job of a machine.

    def _submission(self, pool: PoolTerms, node: NodeId) -> list[str]:
        return [
            "--parsable",
            f"--job-name={node}@{self._place.name}",
            "--no-requeue",
            "--nodes=1",
            "--ntasks=1",
            "--output=/dev/null",
            *_amounts(pool.amounts),
            *self._sbatch,
            *pool.options.get("sbatch", ()),
            f"--wrap={self._ray_start(pool, node)}",
        ]

    def _ray_start(self, pool: PoolTerms, node: NodeId) -> str:
        if not self._address:
            self._address = head_address(self._place.address)
        labels = f"{MACHINE_LABEL}={node},{SERVICE_LABEL}={_label(self._place.name)}"
        command = ["start", f"--address={self._address}", f"--labels={labels}", "--block", "--disable-usage-stats"]
        if "cores" in pool.amounts:
            command.append(f"--num-cpus={_count(pool.amounts['cores'])}")
        if "gpus" in pool.amounts:
            command.append(f"--num-gpus={_count(pool.amounts['gpus'])}")
        ray = self._ray or shlex.quote(str(Path(sys.executable).with_name("ray")))
        return f"{ray} {shlex.join(command)}"


def provider(pools: Sequence[PoolTerms], place: ClusterPlace, options: Mapping[str, Any]) -> SlurmMachines:
    """Make the provider; raises `InvalidSpec` if Slurm is not installed here, or an option is wrong."""
    for pool in pools:
        _check(pool.options, ("sbatch",), f"`options` of pool '{pool.spec.name}'")
    where = "`machines.options`"
    _check(options, ("sbatch", "wait_s", "ray"), where)
    wait_s_in(options, where)
    if not isinstance(options.get("ray", ""), str):
        raise InvalidSpec("`ray` must be a command", repr(options["ray"]), where, 'Write for example `ray = "ray"`.')
    check_head(place.address, "Slurm")
    missing = [command for command in ("sbatch", "squeue", "scancel") if shutil.which(command) is None]
    if missing:
        raise InvalidSpec(
            "Slurm's commands must be installed where machines are asked for",
            f"no `{missing[0]}`",
            "`machines.provider`",
            "Start the service where `sbatch` works: on a login node, say.",
        )
    return SlurmMachines(pools, place, **options)


def _check(options: Mapping[str, Any], known: Sequence[str], where: str) -> None:
    check_options(options, known, "Slurm", where)
    told = options.get("sbatch", ())
    if not isinstance(told, list | tuple) or not all(isinstance(each, str) for each in told):
        raise InvalidSpec(
            "`sbatch` must be a list of options", repr(told), where, 'Write for example `["--constraint=spot"]`.'
        )
    for each in told:
        _check_option(each, where)


def _check_option(option: str, where: str) -> None:
    if not re.fullmatch(r"--[a-z][a-z-]*(=.+)?|-[A-Za-z].*", option, re.DOTALL):
        raise InvalidSpec(
            "an option of sbatch must be one text, its value included",
            repr(option),
            where,
            'Write for example `["--partition=cloud", "--constraint=spot"]`.',
        )
    name = option.partition("=")[0][2:] if option.startswith("--") else _SHORT.get(option[1], "")
    if name in _FORBIDDEN:
        raise InvalidSpec(
            f"a machine must be one job that its service can follow: without `--{name}`",
            repr(option),
            where,
            "Leave it out.",
        )


def _amounts(amounts: Mapping[str, float]) -> list[str]:
    """Return the options of `sbatch` for a machine with these amounts: the whole node where no cores are named."""
    asked = [f"--cpus-per-task={_count(amounts['cores'])}"] if "cores" in amounts else ["--exclusive"]
    if "memory_gib" in amounts:
        asked.append(f"--mem={_count(amounts['memory_gib'] * 1024)}M")
    elif "cores" not in amounts:
        asked.append("--mem=0")
    if "gpus" in amounts:
        asked.append(f"--gres=gpu:{_count(amounts['gpus'])}")
    return asked


def _count(amount: float) -> int:
    return max(1, int(amount))


def _label(name: str) -> str:
    """Return a name as a value of a label: Ray allows 63 letters, digits, and `_.-` between them."""
    return re.sub(r"[^A-Za-z0-9_.-]", "-", name)[-63:].strip("_.-")
