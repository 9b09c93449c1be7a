"""Executors of a host's jobs: this machine alone, or the agents of a cluster's nodes."""

import json
import os
import secrets
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from math import ceil
from typing import TYPE_CHECKING

from punctual.core.cluster import Snapshot
from punctual.core.events import NodeJoined
from punctual.core.ids import JobId, NodeId
from punctual.core.job import JobView
from punctual.core.pools import HeldMachines, PoolSpec
from punctual.core.protocols import Sink
from punctual.core.resources import TOLERANCE, Resources
from punctual.daemon.capacity import capacity_here
from punctual.daemon.contained import HostExecutor
from punctual.daemon.cpu_sets import CpuSets
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host_options import HostOptions, limits
from punctual.daemon.machine_providers import machines_ended, pools_of, provider_of
from punctual.daemon.paths import log_file
from punctual.daemon.run_folder import RunFolder
from punctual.distribution import __version__, check_extras
from punctual.executors.local.actuator import Choice
from punctual.executors.local.context import ExecutorContext
from punctual.executors.local.executor import LocalExecutor
from punctual.executors.local.job_log import LOG_BYTES_MAX, note_time, rotate
from punctual.executors.local.output import JobInputs, cpus_here
from punctual.executors.local.supervisor_client import LEASE_S
from punctual.journal.sqlite import SqliteJournal

if TYPE_CHECKING:  # most daemons have jobs of this machine alone, and no use for asyncio
    from punctual.executors.cluster.channel import Bundle, Members
    from punctual.executors.cluster.executor import ClusterExecutor
    from punctual.executors.cluster.node_link import NodeNews

#: This machine.
HERE = NodeId("local")


def requested(snapshot: Snapshot, n_nodes_max: int) -> "list[Bundle]":
    """List the bundles of whole CPUs and GPUs that jobs hold or need to start; empty if none waits.

    An autoscaler compares the list with everything that the nodes have, so held resources are included. Bundles of
    waiting jobs are limited to the number of nodes that may be added: even if the autoscaler adds one node for each
    bundle, there are at most `n_nodes_max` nodes.
    """
    # Seconds after its submission for which a job waits for a plan and not for room.
    waiting = [view for view in snapshot.waiting if snapshot.at >= view.submitted_at + 5.0]
    lacking = [_bundle(_least(view)) for view in waiting if view.status != "stopping"]
    lacking = lacking[: max(0, n_nodes_max - len(snapshot.nodes))]
    held = [_bundle(amount) for view in snapshot.holding for amount in (view.planned or view.granted).values()]
    return sorted((*held, *lacking), key=lambda bundle: (bundle["GPU"], bundle["CPU"])) if lacking else []


def _least(view: JobView) -> Resources:
    spec = view.spec
    return spec.floor if spec.unit is None else spec.unit * next(iter(spec.worker_counts()), 1)


def _bundle(amount: Resources) -> "Bundle":
    return {"CPU": max(1, ceil(amount.cores - TOLERANCE)), "GPU": ceil(amount.gpus - TOLERANCE)}


@dataclass(frozen=True, slots=True)
class ExecutorSetup:
    """Place where jobs run: the executor, its nodes and its capacity.

    * `options`: options of the host.
    * `join`: sends the sink joins and losses of nodes from now on, in the time of this machine.
    * `capacity`: most that one job can have; None: limited by the nodes that have joined.
    * `pooled`: pools whose machines may join.
    * `scale`: gets a snapshot of the jobs at each beat of the host, and asks the cluster for nodes where jobs wait for
      room; None: the cluster is not asked.
    * `news`: returns the news of a cluster's nodes for the user.
    * `inputs`: standard inputs of jobs that have not started; those on a cluster's nodes get none.
    * `cpu_sets`: CPUs of the jobs on this machine; those on a cluster's nodes have the nodes'.
    """

    executor: HostExecutor
    options: HostOptions
    join: Callable[[Sink], None]
    capacity: Resources | None = None
    pooled: Sequence[PoolSpec] = ()
    scale: Callable[[Snapshot], None] | None = None
    news: "Callable[[], Mapping[NodeId, NodeNews]]" = dict
    inputs: JobInputs = field(default_factory=JobInputs)
    cpu_sets: CpuSets | None = None


def local_executor(run: RunFolder, journal: SqliteJournal, actuator: str | Choice, inputs: JobInputs) -> LocalExecutor:
    """Make the executor of the jobs of `run` on this machine, usable while this process has the journal."""
    context = ExecutorContext(
        node=HERE,
        actuator=actuator,
        runtime_dir=run.runtime_dir,
        lease_s=LEASE_S,
        on_kept=run.record_supervisor,
        start_facts_of=run.start_facts,
        end_file_of=run.end_file,
        log_of=run.log,
        input_of=inputs.take,
        may_steer=journal.has_claim,
        successor=DaemonRequest(run=run.name).command(),
        successor_log=log_file(),
    )
    return LocalExecutor(context)


def local_site(run: RunFolder, executor: LocalExecutor, options: HostOptions, inputs: JobInputs) -> ExecutorSetup:
    """Return the site of this machine alone."""
    cpu_sets = CpuSets(cpus_here())
    for job in run.open_jobs():
        if (facts := run.start_facts(job)) is not None:
            cpu_sets.add(job, facts.settings.cpus)
    capacity = capacity_here(len(cpu_sets.all))

    def join(sink: Sink) -> None:
        jobs_at_once = options.jobs_at_once_on(capacity)
        sink(NodeJoined(at=time.monotonic(), node=HERE, capacity=capacity, jobs_at_once=jobs_at_once))

    return ExecutorSetup(executor, options, join, capacity, inputs=inputs, cpu_sets=cpu_sets)


def cluster_executor(
    run: RunFolder, options: HostOptions, known: Collection[NodeId] = (), held: Mapping[str, HeldMachines] = {}
) -> "ClusterExecutor":
    """Make the executor of the jobs of `run` on a cluster.

    The nodes in `known` may already have jobs of it, and the machines in `held` are there or start.
    """
    from punctual.executors.cluster.executor import ClusterExecutor

    facts = run.facts()
    generation = int(facts.get("generation", 0)) + 1
    # Agents are those of one run: another of the same name, also of another machine, has others.
    run.record_facts(generation=generation, agents=facts.get("agents") or f"{run.name}-{secrets.token_hex(4)}")
    return ClusterExecutor(
        members_of(run, options),
        generation=generation,
        known=known,
        start_facts_of=run.start_facts,
        on_output=partial(_keep_output, run),
        lost_after_s=options.lost_after_s,
        jobs_at_once=options.jobs_at_once_on,
        version=__version__,
        provider=provider_of(run, options.cluster, options.address),
        held=held,
        on_machines_ended=partial(machines_ended, run),
    )


def _keep_output(run: RunFolder, job: JobId, output: bytes) -> None:
    """Append output that a job has written on its node to the job's log here."""
    log = run.log(job)
    with suppress(OSError):  # the disk is full, say
        if log.exists() and log.stat().st_size > LOG_BYTES_MAX:
            rotate(str(log))
        note_time(str(log))
        fd = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        with os.fdopen(fd, "ab") as file:
            file.write(output)


def cluster_site(executor: "ClusterExecutor", options: HostOptions) -> ExecutorSetup:
    """Return the site of a cluster's nodes."""

    def scale(snapshot: Snapshot) -> None:
        executor.want(requested(snapshot, options.autoscale))

    return ExecutorSetup(
        executor,
        options,
        executor.start,
        pooled=[pool.spec() for pool in pools_of(options.cluster)],
        scale=scale if options.autoscale else None,
        news=executor.news,
    )


def new_setup(run: RunFolder, journal: SqliteJournal, options: HostOptions) -> ExecutorSetup:
    """Make the site for the jobs of a new run."""
    if options.engine == "local":
        inputs = JobInputs()
        return local_site(run, local_executor(run, journal, options.actuator, inputs), options, inputs)
    return cluster_site(cluster_executor(run, options), options)


def members_of(run: RunFolder, options: HostOptions) -> "Members":
    """Return the members of the Ray cluster, reached through a separate process."""
    from punctual.executors.cluster.bridge import BridgedMembers
    from punctual.executors.cluster.node_names import NodeNames

    check_extras("a Ray cluster", "ray")
    told = {"name": run.facts()["agents"], "options": asdict(options)}
    command = [sys.executable, "-P", "-m", "punctual.daemon.ray_process", json.dumps(told)]
    return BridgedMembers(command, NodeNames(limits(options.cluster), run.state_dir / "nodes.json"))
