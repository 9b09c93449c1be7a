"""`punctual top`: all jobs that have not ended, as they go on."""

import sys
import time
from contextlib import ExitStack, suppress
from typing import Annotated, Self

import typer

from punctual.cli.ps import ps
from punctual.core.errors import InvalidSpec
from punctual.core.status import JobStatus
from punctual.runtime.followed_host import FollowedHost
from punctual.runtime.run_folder import RunFolder
from punctual.runtime.runs import live_folders
from punctual.runtime.when import Now

#: Between two looks at the journals; and how long a job is shown that has ended.
_LOOK_S, _ENDED_S = 0.5, 10.0


def top(
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per job and line, once.")] = False,
) -> None:
    """Show all jobs live, until Ctrl-C. Without a terminal it prints the list of `punctual ps` once."""
    if as_json or not sys.stdout.isatty():
        ps(as_json=as_json)
        return
    from rich.console import Console, Group, RenderableType
    from rich.live import Live
    from rich.text import Text

    from punctual.cli._view import table

    console, watched = Console(), Watched()

    def draw() -> RenderableType:
        tables = [table(jobs, now, console.width) for now, jobs in watched.jobs()]
        return Group(*tables) if tables else Text("no job runs", style="dim")

    with watched, Live(get_renderable=draw, console=console, auto_refresh=False, screen=True) as live:
        while True:
            watched.look()
            live.refresh()
            time.sleep(_LOOK_S)


class Watched:
    """All hosts of this user, as a command sees them that takes no part. A context manager."""

    def __init__(self) -> None:
        self._hosts: dict[RunFolder, FollowedHost] = {}

    def look(self) -> None:
        """Take in what is new."""
        live = {run for run in live_folders() if run.journal.is_file()}
        for run in self._hosts.keys() - live:
            self._hosts.pop(run).close()
        for run in live - self._hosts.keys():
            with suppress(InvalidSpec):  # its journal is just being made
                self._hosts[run] = FollowedHost(run, None, waits=False)
        for host in self._hosts.values():
            host.look()

    def jobs(self) -> list[tuple[Now, list[JobStatus]]]:
        """For each host that has any: the present on its clock, and its jobs, with those that have just ended."""
        told = []
        for host in self._hosts.values():
            now = host.clocks()
            jobs = [job for job in host.jobs() if job.ended_at is None or now.at - job.ended_at < _ENDED_S]
            if jobs:
                told.append((now, jobs))
        return told

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as closing:
            for host in self._hosts.values():
                closing.callback(host.close)
