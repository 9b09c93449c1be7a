"""`punctual policy` and `punctual node`: show and change the policy of a host, and have jobs leave a node of it."""

import json
from datetime import datetime, timedelta
from typing import Annotated, Any

import typer

from punctual.cli._help import show_commands
from punctual.cli._options import AsJson, policy_names
from punctual.cli._streams import write_answer
from punctual.cli._words import clock
from punctual.core.errors import InvalidSpec
from punctual.daemon import control_client
from punctual.daemon.control_client import policy as ask_policy
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import known_runs
from punctual.history.user_requests import policy_text
from punctual.request.quantities import parse_ahead_s

Host = Annotated[
    str | None, typer.Option(metavar="NAME", help="Name of the host, as `punctual ps` has it; if there are several.")
]


def policy(
    name: Annotated[
        str | None,
        typer.Argument(
            help="See `punctual plugins policies`; left out: show the present one.", autocompletion=policy_names
        ),
    ] = None,
    parameter: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", help="A parameter of it; once for each.")
    ] = None,
    host: Host = None,
    as_json: AsJson = False,
) -> None:
    """Show the policy by which jobs share the machine, or change it."""
    if parameter and name is None:
        raise InvalidSpec(
            "`--parameter` must come with the policy that it is of",
            f"'{parameter[0]}' alone",
            "`punctual policy`",
            f"Name the policy, the present one too: `punctual policy NAME --parameter {parameter[0]}`.",
        )
    run = host_to_ask(host)
    answer = ask_policy(run, name, dict(_parameter(text) for text in parameter or ()))
    line = f"host {run.name}: {policy_text(answer['policy'], answer.get('parameters', {}))}"
    line += f", before {answer['before']}" if "before" in answer else ""
    write_answer({"host": run.name, **answer}, line, as_json=as_json)


def host_to_ask(name: str | None) -> RunFolder:
    """Return the run of the host of that name; None: that of the only one."""
    hosts = [run for run in known_runs() if run.is_live() and name in (None, run.name)]
    if len(hosts) == 1:
        return hosts[0]
    raise InvalidSpec(
        "there must be one host to ask" if name is None else "there must be a host of that name",
        "none" if not hosts else ", ".join(run.name for run in hosts),
        "this machine",
        "See `punctual ps`; name one with `--host`.",
    )


def _parameter(text: str) -> tuple[str, Any]:
    """Parse `KEY=VALUE`; a value that is no JSON is a text."""
    key, sign, value = text.partition("=")
    if not sign:
        raise InvalidSpec("a parameter must be `KEY=VALUE`", repr(text), "`--parameter`", "Write `--parameter size=2`.")
    try:
        return key, json.loads(value)
    except ValueError:
        return key, value


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
    write_answer({**answer, "leaves_wall": ends_wall.isoformat(timespec="seconds")}, line, as_json=as_json)


@node.command()
def undrain(name: _Name = None, here: _Here = False, host: Host = None, as_json: AsJson = False) -> None:
    """Use a node again that was to be taken away."""
    answer = _request(name, None, host, here=here)
    write_answer({**answer, "leaves_wall": None}, f"node {answer['node']} stays, and is used again", as_json=as_json)


def _request(name: str | None, in_s: float | None, host: str | None, *, here: bool) -> dict[str, Any]:
    """Ask the daemon or, on the node itself, the node's agent."""
    if not here:
        return control_client.drain(host_to_ask(host), name or "", in_s)
    if name is not None:
        raise InvalidSpec("a node must be named once", f"'{name}' and `--here`", "`punctual node`", "Leave one out.")
    from punctual.daemon.agent_process import drain_here  # it needs all that an agent does

    return drain_here(in_s)
