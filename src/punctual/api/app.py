"""The application: its routes and its OpenAPI document."""

from typing import Any

from fastapi import Depends, FastAPI, Request
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer
from starlette.routing import BaseRoute

from punctual import __version__
from punctual.api import budget_routes, cluster_routes, event_routes, job_routes, log_routes, problems, quote_routes
from punctual.api.context import ServiceContext
from punctual.client.schema import Problem
from punctual.core.errors import InvalidSpec, did_you_mean

PREFIX = "/v1"

_ROUTES = (job_routes, quote_routes, log_routes, event_routes, cluster_routes, budget_routes)

_DESCRIPTION = (
    "Trainings that finish on time. Durations and times are written as on the command line; names are those of "
    "`punctual run`. Why a request was refused is `application/problem+json`, a user's mistake in four parts."
)


class _Application(FastAPI):
    """Makes its OpenAPI document on the first request for it: that takes longer than the rest of the start."""

    def openapi(self) -> dict[str, Any]:
        """Return the OpenAPI document, which is cached."""
        if self.openapi_schema is None:
            # No route has `Problem` as its model: its schema, and those of its parts, are added here.
            schema = Problem.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
            super().openapi()["components"]["schemas"].update({**schema.pop("$defs", {}), "Problem": schema})
        return super().openapi()


def make_app(context: ServiceContext) -> FastAPI:
    """Make the application of a host. It lets every caller in: `punctual.api.guard` stands before it."""
    app = _Application(
        title="Punctual",
        version=__version__,
        description=_DESCRIPTION,
        openapi_url=f"{PREFIX}/openapi.json",
        docs_url=None,  # these pages load programs from elsewhere
        redoc_url=None,
        redirect_slashes=False,
        generate_unique_id_function=_operation_id,
        dependencies=[
            Depends(HTTPBearer(auto_error=False, description="Not needed over the user's own socket.")),
            Depends(_check_query),
        ],
    )
    app.state.context = context
    for routes in _ROUTES:
        app.include_router(routes.router, prefix=PREFIX)
    problems.install(app)
    return app


async def _check_query(request: Request) -> None:
    """Refuse parameters that the route does not have: a misspelt filter would find everything."""
    known = [parameter.alias for parameter in request.scope["route"].dependant.query_params]
    for name in request.query_params:
        if name not in known:
            remedy = f"{did_you_mean(name[:64], known)}Known: {', '.join(known) or 'none'}."
            where = f"`{request.method} {request.url.path}`"
            raise InvalidSpec("a parameter of a query must be one that its route has", f"'{name[:64]}'", where, remedy)


def _operation_id(route: APIRoute | BaseRoute) -> str:
    return str(getattr(route, "name", ""))
