"""`punctual daemon`: the daemon in this terminal; other commands start it in the background."""

from typing import Annotated

import typer

from punctual.api.http_options import NO_HTTP
from punctual.cli._options import JobsAtOnce
from punctual.cli.up import Policy, serve
from punctual.daemon.daemon_request import DaemonRequest
from punctual.daemon.host_options import ACTUATORS, SHARING_POLICY, HostOptions


def daemon(
    policy: Policy = SHARING_POLICY,
    actuator: Annotated[str, typer.Option(help=f"Enforcement of grants: {', '.join(ACTUATORS)}.")] = "auto",
    jobs_at_once: JobsAtOnce = None,
    stay: Annotated[bool, typer.Option("--stay", help="Stay when the last job has ended, as `punctual up`.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object about the daemon.")] = False,
) -> None:
    """Run the daemon in this terminal, until its last job has ended. Other commands start it by themselves."""
    options = HostOptions(actuator=actuator, policy=policy, shared=True, jobs_at_once=jobs_at_once)
    options.check()
    http = {"address": NO_HTTP} if stay else None
    raise typer.Exit(serve(DaemonRequest(options=options, stays=stay, http=http), as_json=as_json))
