"""A host that is steered in a thread and served, as `punctual up` has it, for the tests of the service."""

import http.client
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import wait_until

from punctual.api.database import ServiceDatabase
from punctual.api.server import ServedAddress, serve
from punctual.api.tokens import Tokens
from punctual.daemon.host import Host
from punctual.daemon.host_options import HostOptions
from punctual.daemon.opening import new_host
from punctual.daemon.paths import service_root

#: Without control groups, which not every machine has; the policy needs no process of its own.
OPTIONS = HostOptions(actuator="pacing", policy="proportional")

#: Prints a variable and a line, and waits for a file, if one is named.
PROGRAM = """
import os, pathlib, sys, time
print(os.environ.get("SAID", "nothing"), flush=True)
while len(sys.argv) > 1 and not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.02)
print("done", flush=True)
"""


def program(awaited: Path | None = None) -> list[str]:
    """A command line that ends at once, or when the file `awaited` is there."""
    return [sys.executable, "-c", PROGRAM, *([] if awaited is None else [str(awaited)])]


@contextmanager
def steered_host(options: HostOptions = OPTIONS) -> Iterator[Host]:
    """A host whose jobs are steered until this is left, which ends them."""
    hosts: list[Host] = []
    is_over, has_ended = Event(), Event()

    def steer() -> None:
        try:
            with new_host("service", options) as host:
                hosts.append(host)
                while not is_over.is_set():
                    host.run_for(0.05)
        finally:
            has_ended.set()

    thread = Thread(target=steer, name="steering")
    thread.start()
    try:
        wait_until(lambda: hosts or has_ended.is_set())
        yield hosts[0]
    finally:
        is_over.set()
        thread.join()


@dataclass
class Reply:
    """What came of one request."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def json(self) -> Any:
        return json.loads(self.body)


class Caller:
    """Sends requests to a service's address, exactly as they are said."""

    def __init__(self, served: ServedAddress, token: str | None) -> None:
        self.place = urlsplit(served.url)
        self.token = token

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] | None = None, **options: Any
    ) -> Reply:
        connection = http.client.HTTPConnection(str(self.place.hostname), self.place.port, timeout=100)
        sent = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        try:
            connection.request(method, f"/v1{path}", data, {**sent, **(headers or {})}, **options)
            response = connection.getresponse()
            return Reply(response.status, response.headers, response.read())
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] | None = None) -> Reply:
        return self.send("GET", path, headers=headers)

    def post(self, path: str, body: Any = None, headers: Mapping[str, str] | None = None) -> Reply:
        return self.send("POST", path, body, headers)


@dataclass
class LiveService:
    """A host, where it is served, and who asks with the owner's token."""

    host: Host
    served: ServedAddress
    caller: Caller

    def with_role(self, role: str) -> Caller:
        """Somebody with a token of that role."""
        database = ServiceDatabase(service_root())
        try:
            return Caller(self.served, Tokens(database).create(f"a-{role}", role))
        finally:
            database.close()


@contextmanager
def live_service(
    host_options: HostOptions = OPTIONS,
    *,
    observing: Callable[[Host], AbstractContextManager[Any]] = lambda _: nullcontext(),
    **options: Any,
) -> Iterator[LiveService]:
    """A service at a free port of the loopback interface; `observing` gives what its requests are traced with."""
    with ExitStack() as ending:
        host = ending.enter_context(steered_host(host_options))
        tracer = ending.enter_context(observing(host))
        served = ending.enter_context(serve(host, "127.0.0.1:0", tracer=tracer, **options))
        yield LiveService(host, served, Caller(served, served.token_file.read_text().strip()))
