"""`punctual node`: have jobs leave a node before it is taken away, and use it again."""

from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from punctual.cli._help import show_commands
from punctual.cli._options import AsJson
from punctual.cli._words import clock
from punctual.cli.policy import Host, host_to_ask
from punctual.cli.steer import show_answer
from punctual.core.errors import InvalidSpec
from punctual.daemon import agent_process, control_client
from punctual.request.quantities import parse_ahead_s

node = typer.Typer(
    help="Have jobs leave a node that is taken away, and use it again.",
    invoke_without_command=True,
    callback=show_commands,
)

_Name = Annotated[str | None, typer.Argument(help="The node, as `punctual ps` names it. [default: the only one]")]
_Here = Annotated[
    bool, typer.Option("--here", help="The node of a cluster that is this machine; give the command there.")
]


@node.command()
def drain(
    name: _Name = None,
    within: Annotated[str, typer.Option("--in", metavar="TIME", help="Time until it is taken away.")] = "60s",
    here: _Here = False,
    host: Host = None,
    as_json: AsJson = False,
) -> None:
    """Have all jobs leave a node in time, after a checkpoint, and place nothing there any more."""
    in_s = parse_ahead_s(within, "`--in`")
    ends_wall = datetime.now().astimezone() + timedelta(seconds=in_s)
    answer = _request(name, in_s, host, here=here)
    line = f"node {answer['node']} is leaving at {clock(ends_wall)}: its jobs leave it by then, and no other comes"
    show_answer({**answer, "leaves_wall": ends_wall.isoformat(timespec="seconds")}, line, as_json=as_json)


@node.command()
def undrain(name: _Name = None, here: _Here = False, host: Host = None, as_json: AsJson = False) -> None:
    """Use a node again that was to be taken away."""
    answer = _request(name, None, host, here=here)
    show_answer({**answer, "leaves_wall": None}, f"node {answer['node']} stays, and is used again", as_json=as_json)


def _request(name: str | None, in_s: float | None, host: str | None, *, here: bool) -> dict[str, Any]:
    """Ask the daemon or, on the node itself, the node's agent."""
    if not here:
        return control_client.drain(host_to_ask(host), name or "", in_s)
    if name is not None:
        raise InvalidSpec("a node must be named once", f"'{name}' and `--here`", "`punctual node`", "Leave one out.")
    return agent_process.drain_here(in_s)
