"""`punctual page`: the link to the service's page, with the owner's token."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated
from urllib.parse import quote

import typer

from punctual.cli._help import examples
from punctual.cli._service import addresses_of
from punctual.cli._streams import write_line
from punctual.core.errors import InvalidSpec
from punctual.daemon.paths import owner_token_file, service_root
from punctual.daemon.sharing import service_run
from punctual.request.json_text import json_text

EXAMPLES = examples("punctual page", "punctual page --open", "punctual page --job train-3f2a")


def page(
    job: Annotated[str | None, typer.Option(metavar="JOB", help="Show this job. [default: all jobs]")] = None,
    opens: Annotated[bool, typer.Option("--open", help="Open the page in a browser, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Print the link to the service's page; whoever has the link may do all that you may."""
    run = service_run()
    if run is None:
        raise InvalidSpec(
            "a service must run, which has the page", "no service", "`punctual page`", "Start one with `punctual up`."
        )
    url = page_link(addresses_of(run), owner_token_file(service_root()), job)
    write_line(json_text({"url": url}) if as_json else url)
    if opens and not webbrowser.open(url):
        raise InvalidSpec(
            "a browser must be there to open the page",
            "none that can be started",
            "`--open`",
            "Copy the link into a browser.",
        )


def page_link(addresses: Sequence[str], token_file: Path, job: str | None = None) -> str:
    """Return the page's address with the owner's token, as the page takes it out of its address again.

    Raises
    ------
    InvalidSpec
        The service listens on its socket only; or the file of the token is missing.
    """
    url = next((address for address in addresses if address.startswith(("http:", "https:"))), None)
    if url is None:
        remedy = "Start the service anew with `punctual up --listen 127.0.0.1:4747`; the page needs `pip install fastapi uvicorn`."
        raise InvalidSpec(
            "the service must listen on an address that a browser reaches", "its socket only", "`punctual page`", remedy
        )
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except OSError as error:
        remedy = "Start the service anew, which makes one."
        raise InvalidSpec("the owner's token must be there", str(error), str(token_file), remedy) from error
    shown = "" if job is None else f"&job={quote(job, safe='')}"
    return f"{url}/#token={quote(token, safe='')}{shown}"
