"""Routes of the cluster, the policies, the metrics, and the service's health."""

from functools import cache

from fastapi import APIRouter
from starlette.responses import Response

from punctual import __version__, registry
from punctual.api.context import Context, Operator, ServiceContext, Submitter, Viewer, encoded, note_change
from punctual.api.guard import Caller
from punctual.api.metrics_text import MEDIA_TYPE, metrics_text
from punctual.api.problems import Refused, answers, within
from punctual.api.standing import cluster_standing, wall_of
from punctual.client import schema
from punctual.core.errors import OptionChecks
from punctual.core.ids import NodeId
from punctual.request.deadlines import Now
from punctual.request.quantities import parse_ahead_s
from punctual.request.submission import check_policy
from punctual.sim.what_if import SimulatedEnd, WhatIfFailed, what_if_apart

router = APIRouter(tags=["cluster"])


@router.get("/cluster", response_model=schema.ClusterStanding, responses=answers())
async def cluster(context: Context) -> Response:
    """Show the nodes, and their held, free and promised resources."""
    return encoded(cluster_standing(context.host))


@router.post("/nodes/{node}/drain", response_model=schema.ClusterStanding, responses=answers(415))
def drain(node: str, context: Context, caller: Operator, asked: schema.DrainRequest | None = None) -> Response:
    """Have all jobs leave a node that is taken away soon; nothing is placed there any more."""
    context.check_takes_changes()
    asked = asked or schema.DrainRequest.model_validate({})
    checks = OptionChecks()
    in_s = checks.read("in", parse_ahead_s, asked.in_, 0.0)
    checks.done()
    return _noted(context, caller, context.host.drain(node, in_s, by=str(caller)), f"is drained in {asked.in_}")


@router.post("/nodes/{node}/undrain", response_model=schema.ClusterStanding, responses=answers())
def undrain(node: str, context: Context, caller: Operator) -> Response:
    """Use a node again that was to be taken away."""
    context.check_takes_changes()
    return _noted(context, caller, context.host.drain(node, None, by=str(caller)), "stays")


def _noted(context: ServiceContext, caller: Caller, node: NodeId, what: str) -> Response:
    context.host.settle()
    note_change(caller, f"node '{node}' {what}")
    return encoded(cluster_standing(context.host))


@router.get("/policies", responses=answers())
def policies(context: Context) -> schema.PolicyList:
    """List the policies with their parameters."""
    active = context.host.policy
    return schema.PolicyList(policies=[each.model_copy(update={"active": each.name == active}) for each in _policies()])


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        **answers(),
        200: {"description": "Prometheus's text", "content": {"text/plain": {"schema": {"type": "string"}}}},
    },
)
async def metrics(context: Context) -> Response:
    """Show the metrics, in Prometheus's text format."""
    return Response(metrics_text(context.host, context.metrics), media_type=MEDIA_TYPE)


@router.get("/health", responses=answers())
def health(context: Context, caller: Viewer) -> schema.Health:
    """Show that the service answers, and the caller's name and role."""
    host = context.host
    return schema.Health(
        status="ok" if host.takes_changes else "leaving",
        version=__version__,
        host=host.run_folder.name,
        caller=caller.name,
        role=caller.role,
        takes_jobs=True,
    )


@cache
def _policies() -> list[schema.PolicyEntry]:
    return [
        schema.PolicyEntry(
            name=name,
            summary=registry.summary("policies", name),
            parameters=registry.parameters("policies", name),
            active=False,
        )
        for name in registry.names("policies")
    ]


@router.get("/policy", responses=answers())
async def policy(context: Context) -> schema.PolicyStanding:
    """Show the policy that makes the plans, and its parameters."""
    return schema.PolicyStanding(name=context.host.policy, parameters=dict(context.host.policy_parameters), before=None)


@router.put("/policy", responses=answers(415))
def change_policy(asked: schema.PolicyRequest, context: Context, caller: Operator) -> schema.PolicyStanding:
    """Make plans with another policy, or with other parameters; jobs go on meanwhile."""
    context.check_takes_changes()
    before = context.host.policy
    checks = OptionChecks()
    with checks.of("name"):
        context.host.change_policy(asked.name, asked.parameters, by=str(caller))
    checks.done()
    context.host.settle()
    note_change(caller, f"policy '{asked.name}' with {asked.parameters} took the place of '{before}'")
    return schema.PolicyStanding(name=asked.name, parameters=dict(asked.parameters), before=before)


@router.post("/what-if", responses=answers(415))
def what_if(question: schema.WhatIfRequest, context: Context, _: Submitter) -> schema.WhatIfAnswer:
    """Simulate all jobs under another policy and the present one; nothing is changed.

    One question at a time is answered, and then none for as long as that took.
    """
    policy, now = question.policy, context.host.clocks()
    with within("policy"):
        check_policy(policy.name, policy.parameters)
    with context.what_ifs.turn() as wait_s:
        if wait_s:
            raise Refused(429, "another question of this kind is or was just answered", {"Retry-After": str(wait_s)})
        try:
            # CPU time that the simulation under each policy may take.
            told = what_if_apart(context.host.run_folder, policy.name, policy.parameters, 5.0)
        except WhatIfFailed as error:
            raise Refused(503, f"there is no answer just now: {error}", {"Retry-After": "5"}) from error
    jobs = [
        schema.WhatIfJob(
            job=job.job,
            deadline=wall_of(now, job.deadline_at),
            today=_outcome(job.today, now),
            other=_outcome(job.other, now),
        )
        for job in told.jobs
    ]
    return schema.WhatIfAnswer(since=now.wall_of(told.at), policy=told.policy, other=policy.name, jobs=jobs)


def _outcome(outcome: SimulatedEnd, now: Now) -> schema.WhatIfOutcome:
    return schema.WhatIfOutcome(
        state=outcome.state,
        verdict=outcome.verdict,
        landed=wall_of(now, outcome.landed_at),
        cause=outcome.cause,
        unknown=outcome.unknown,
    )
