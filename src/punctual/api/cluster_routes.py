"""Routes of the cluster, the policies, the metrics, and the service's health."""

from functools import cache

from fastapi import APIRouter
from starlette.responses import Response

from punctual import __version__, registry
from punctual.api.context import Context, Viewer, told
from punctual.api.metrics_text import MEDIA_TYPE, metrics_text
from punctual.api.problems import answers
from punctual.api.standing import cluster_standing
from punctual.client.schema import ClusterStanding, Health, PolicyEntry, PolicyList

router = APIRouter(tags=["cluster"])


@router.get("/cluster", response_model=ClusterStanding, responses=answers())
async def cluster(context: Context) -> Response:
    """Show the nodes, and their held, free and promised resources."""
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
