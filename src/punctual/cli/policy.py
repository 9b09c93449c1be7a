"""`punctual policy`: show the policy by which jobs share the machine, and change it while they run."""

import json
from typing import Annotated, Any

import typer

from punctual.cli._completion import policy_names
from punctual.cli._options import AsJson
from punctual.cli.steer import show_answer
from punctual.core.errors import InvalidSpec
from punctual.daemon.control_client import policy as ask_policy
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import known_runs
from punctual.history.user_requests import policy_text

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
    show_answer({"host": run.name, **answer}, line, as_json=as_json)


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
