"""Routes of the cluster, the policies, the metrics, and the service's health."""

from functools import cache

from fastapi import APIRouter
from starlette.responses import Response

from punctual import __version__, registry
from punctual.api.context import Context, Operator, ServiceContext, Viewer, note_change, told
from punctual.api.guard import Caller
from punctual.api.metrics_text import MEDIA_TYPE, metrics_text
from punctual.api.problems import answers
from punctual.api.standing import cluster_standing
from punctual.client.schema import ClusterStanding, DrainRequest, Health, PolicyEntry, PolicyList
from punctual.core.errors import OptionChecks
from punctual.core.ids import NodeId
from punctual.request.quantities import parse_duration_s

router = APIRouter(tags=["cluster"])


@router.get("/cluster", response_model=ClusterStanding, responses=answers())
async def cluster(context: Context) -> Response:
    """Show the nodes, and their held, free and promised resources."""
    return told(cluster_standing(context.host))


@router.post("/nodes/{node}/drain", response_model=ClusterStanding, responses=answers(415))
def drain(node: str, context: Context, caller: Operator, asked: DrainRequest | None = None) -> Response:
    """Have all jobs leave a node that is taken away soon; nothing is placed there any more."""
    context.check_takes_changes()
    asked = asked or DrainRequest.model_validate({})
    checks = OptionChecks()
    in_s = checks.read("in", parse_duration_s, asked.in_, 0.0)
    checks.done()
    return _noted(context, caller, context.host.drain(node, in_s, by=str(caller)), f"is drained in {asked.in_}")


@router.post("/nodes/{node}/undrain", response_model=ClusterStanding, responses=answers())
def undrain(node: str, context: Context, caller: Operator) -> Response:
    """Use a node again that was to be taken away."""
    context.check_takes_changes()
    return _noted(context, caller, context.host.undrain(node, by=str(caller)), "stays")


def _noted(context: ServiceContext, caller: Caller, node: NodeId, what: str) -> Response:
    context.host.settle()
    note_change(caller, f"node '{node}' {what}")
    return told(cluster_standing(context.host))


@router.get("/policies", responses=answers())
def policies(context: Context) -> PolicyList:
    """List the policies with their parameters."""
    active = context.host.policy
    return PolicyList(
        policies=[
            PolicyEntry(name=name, summary=summary, parameters=dict(parameters), active=name == active)
            for name, summary, parameters in _policies()
        ]
    )


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
async def health(context: Context, caller: Viewer) -> Health:
    """Show that the service answers, and the caller's name and role."""
    host = context.host
    return Health(
        status="ok" if host.takes_changes else "leaving",
        version=__version__,
        host=host.run_folder.name,
        caller=caller.name,
        role=caller.role,
        takes_jobs=True,
    )


@cache
def _policies() -> list[tuple[str, str, dict[str, str]]]:
    names = registry.names("policies")
    return [(name, registry.summary("policies", name), registry.parameters("policies", name)) for name in names]
