"""`punctual page`: the link to the daemon's page, with the owner's token."""

import webbrowser
from typing import Annotated

import typer

from punctual.cli._help import examples
from punctual.cli._streams import write_answer
from punctual.core.errors import InvalidSpec
from punctual.daemon.control_client import page_of
from punctual.daemon.sharing import daemon_run

EXAMPLES = {"page": examples("punctual page", "punctual page --open", "punctual page --job train-3f2a")}


def page(
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Show this job. [default: all jobs]")] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the link to the daemon's page; whoever has the link may do all that you may."""
    run = daemon_run()
    if run is None:
        raise InvalidSpec(
            "a daemon must run, which has the page", "none", "`punctual page`", "Start one with `punctual up`."
        )
    url = page_of(run, job)
    write_answer({"url": url}, url, as_json=as_json)
    if opens and not webbrowser.open(url):
        raise InvalidSpec(
            "a browser must be there to open the page",
            "none that can be started",
            "`--open`",
            "Copy the link into a browser.",
        )
