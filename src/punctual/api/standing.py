"""Standing of jobs and nodes, in the service's models."""

from collections import Counter
from datetime import datetime

from punctual.client import schema
from punctual.core.resources import NOTHING, Resources, total
from punctual.core.status import JobStatus
from punctual.core.verdict import remaining_time, slack_s, verdict
from punctual.daemon.host import Host
from punctual.executors.cluster.node_link import NO_NEWS
from punctual.history.judge import NO_WAIT, Judgement, Wait, headline, judge
from punctual.request.deadlines import Now


def job_standing(host: Host | None, status: JobStatus, now: Now, wait: Wait = NO_WAIT) -> schema.JobStanding:
    """Return one job's standing at `now`, without the headline; `host`: None: it is over, and so are its plans."""
    remaining, judged = remaining_time(status, now.at), judge(status, now.at, now.iso, wait)
    done_frac, reason = status.done_frac, wait.unbought or status.reason
    line_from = status.line_from or (None, None)
    counts = None if status.spec.worker is None else status.spec.worker_counts()
    return schema.JobStanding(
        name=status.id,
        state=status.display_state,
        verdict=verdict(status, now.at),
        kind=judged.kind,
        word=judged.word,
        phrase=judged.phrase,
        expected_start=wall_of(now, wait.starts_at),
        reason=None
        if reason is None
        else schema.ReasonText(code=reason.code, text=reason.text, facts=dict(reason.facts)),
        cause=status.cause,
        exit_code=status.exit_code,
        program=[] if status.program is None else list(status.program.argv),
        controller=status.spec.controller,
        weight=status.spec.weight,
        after=list(status.spec.after),
        submitted=now.wall_of(status.submitted_at),
        started=wall_of(now, status.started_at),
        landed=wall_of(now, status.landed_at),
        ended=wall_of(now, status.ended_at),
        deadline=wall_of(now, status.deadline_at),
        earliest_deadline=wall_of(now, _earliest_deadline_at(status)),
        progress_percentage=None if done_frac is None else 100.0 * done_frac,
        line_since=wall_of(now, line_from[0]),
        line_since_percentage=None if line_from[1] is None else 100.0 * line_from[1],
        steps_done=status.steps_done,
        steps_total=status.steps_expected or status.steps_total,
        steps_per_second=status.rate_sps,
        estimated_remaining_seconds=None if remaining is None else remaining.expected_s,
        estimated_remaining_seconds_low=None if remaining is None else remaining.low_s,
        estimated_remaining_seconds_high=None if remaining is None else remaining.high_s,
        slack_seconds=slack_s(status, now.at),
        promised_until=wall_of(now, None if host is None else host.promised_until_at(status.id)),
        granted_cores=status.held.cores,
        granted_gpus=status.held.gpus,
        nodes=sorted(status.granted),
        workers=status.n_workers or None,
        demand_cores=None if host is None or status.ended else host.demand_cores(status.id),
        used_cores=status.usage_cores,
        used_core_seconds=status.used_core_s,
        memory_bytes=status.memory_bytes or None,
        peak_memory_bytes=status.peak_memory_bytes or None,
        asked_memory_bytes=status.spec.ceiling.memory_bytes or None,
        least_cores=status.spec.floor.cores,
        most_cores=status.spec.ceiling.cores,
        least_workers=None if counts is None else counts[0],
        most_workers=None if counts is None else counts[-1],
        attempts=status.n_attempts,
        budget_usd=status.spec.budget_usd,
        warnings=dict(status.warnings),
    )


def standing_json(host: Host, status: JobStatus, now: Now, wait: Wait = NO_WAIT) -> bytes:
    """Encode `job_standing` as JSON."""
    return job_standing(host, status, now, wait).model_dump_json(by_alias=True).encode()


def job_answer(host: Host, status: JobStatus, now: Now) -> schema.JobStanding:
    """Return the standing of one job of a host, with its headline."""
    wait = host.waits(now.at).get(status.id, NO_WAIT)
    most_cores = sum(node.capacity.cores for node in host.nodes())
    standing = with_headline(job_standing(host, status, now, wait), status, now, most_cores)
    return standing.model_copy(update={"spent_usd": host.spent_usd(status.id)})


def with_headline(
    standing: schema.JobStanding, status: JobStatus, now: Now, most_cores: float | None = None
) -> schema.JobStanding:
    """Return the standing with its headline; `most_cores`: of all nodes."""
    judged = Judgement(standing.kind, standing.word, standing.phrase)
    is_promised = standing.promised_until is not None
    said = headline(status, judged, now.at, now.iso, most_cores=most_cores, is_promised=is_promised)
    return standing.model_copy(update={"headline": said})


def cluster_standing(host: Host) -> schema.ClusterStanding:
    """Return the standing of the cluster: capacity, held and free resources, promises."""
    now, jobs, promises, news = host.clocks(), host.jobs(), host.promises(), host.node_news()
    grants = [status.granted for status in jobs if status.granted]
    nodes, costs = list[schema.NodeStanding](), host.costs()
    capacity, held = NOTHING, NOTHING
    for node in host.nodes():
        of_node = news.get(node.id, NO_NEWS)
        on_node = total(granted[node.id] for granted in grants if node.id in granted)
        capacity, held = capacity + node.capacity, held + on_node
        nodes.append(
            schema.NodeStanding(
                name=node.id,
                device=node.device,
                slowness=node.slowness,
                silent_seconds=of_node.silent_s,
                leaves=wall_of(now, node.ends_at),
                lost=wall_of(now, now.at + of_node.lost_in_s) if of_node.silent_s else None,
                taken_cores=of_node.taken_cores,
                capacity=_amounts(node.capacity),
                held=_amounts(on_node),
                free=_amounts(node.capacity - on_node),
            )
        )
    return schema.ClusterStanding(
        policy=host.policy,
        nodes=nodes,
        capacity=_amounts(capacity),
        held=_amounts(held),
        free=_amounts(capacity - held),
        promised=[
            schema.PromiseEntry(job=status.id, until=now.wall_of(promises[status.id]))
            for status in jobs
            if status.id in promises and not status.ended
        ],
        jobs_by_state=dict(Counter(status.display_state for status in jobs)),
        usd_per_hour=None if costs is None else costs[0],
        spent_usd=None if costs is None else costs[1],
        lacking_machines=[
            schema.LackingMachines(
                pool=lack.pool.name,
                starting=lack.n_starting,
                refused=lack.n_refused,
                since=now.wall_of(lack.since_at),
                cause=lack.cause,
                asked_again=wall_of(now, lack.again_at),
            )
            for lack in host.lacks()
        ],
    )


def _earliest_deadline_at(status: JobStatus) -> float | None:
    """Earliest deadline that a job that was turned away could have had; None: it was not, or there is none."""
    if status.state != "turned away" or status.reason is None:
        return None
    earliest_s = status.reason.facts.get("earliest_deadline_s")
    return None if earliest_s is None else status.submitted_at + earliest_s


def wall_of(now: Now, at: float | None) -> datetime | None:
    """Wall time of an instant; None: there is none."""
    return None if at is None else now.wall_of(at)


def _amounts(resources: Resources) -> schema.Amounts:
    return schema.Amounts(cores=resources.cores, gpus=resources.gpus, memory_bytes=resources.memory_bytes)
