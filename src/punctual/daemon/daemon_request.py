"""Request to a process that is to be a daemon, and its answer."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Self

from punctual.daemon.host_options import HostOptions

#: Module that starts a daemon, and starts it again; it gets a `DaemonRequest` as JSON.
_MODULE = "punctual.api.watcher"


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonRequest:
    """Request to a process that is to be a daemon.

    * `options`: options of its host; those of the run that it resumes, if it resumes one.
    * `name`: name for a new run.
    * `run`: run to resume; empty: the shared one, or a new one.
    * `stays`: whether it stays when its jobs have ended.
    * `http`: fields of `punctual.api.http_options.HttpOptions`; None: HTTP is opened when it is asked for.
    * `ready_fd`: descriptor for the line of `Ready`; None: nobody waits for it.
    """

    options: HostOptions = field(default_factory=HostOptions)
    name: str = "daemon"
    run: str = ""
    stays: bool = False
    http: Mapping[str, Any] | None = None
    ready_fd: int | None = None

    def command(self) -> list[str]:
        """Return the command line of such a daemon, valid in any folder."""
        return [sys.executable, "-P", "-m", _MODULE, json.dumps(asdict(self))]

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read the argument of the command line."""
        told = json.loads(text)
        return cls(**{**told, "options": HostOptions(**told["options"])})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Answer of a daemon that was started: the run that is steered now, by it or by another one.

    `left_alone`: why jobs that no daemon has were left as they are; empty: there are none.
    """

    run: str
    pid: int
    addresses: Sequence[str] = ()
    taken_over: Sequence[str] = ()
    left_alone: str = ""
