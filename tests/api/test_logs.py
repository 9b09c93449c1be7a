"""A log that its reader leaves, before its end or before its beginning, is closed."""

import asyncio
import http.client
import socket
import threading
from collections.abc import MutableMapping
from contextlib import ExitStack, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from tests.api.live_service import LiveService, live_service, program
from tests.waiting import wait_until

from punctual.api.guard import SELF
from punctual.api.limits import Limits
from punctual.api.log_routes import logs
from punctual.client.client import Client
from punctual.core.ids import JobId
from punctual.daemon.log_snapshot import PIECE_BYTES


def n_open(path: Path) -> int:
    """How many descriptors of this process are of the file."""
    links = []
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            links.append(link.readlink())
    return links.count(path)


def n_followers() -> int:
    return sum(thread.name == "punctual-output" for thread in threading.enumerate())


def test_a_followed_log_that_its_reader_leaves_is_closed_while_the_job_goes_on(
    service: LiveService, tmp_path: Path
) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "a"})
    wait_until(lambda: service.caller.get("/jobs/a/logs").body, lambda log: log == b"nothing\n")
    log, client = service.host.run_folder.log(service.host.jobs()[0].id), Client(service.served.url)
    open_before, followers_before = n_open(log), n_followers()
    for _ in range(5):
        with client.logs("a", follow=True) as pieces:
            assert next(pieces) == b"nothing\n"
    wait_until(n_followers, lambda n: n == followers_before)
    assert n_open(log) <= max(open_before, 1)  # the service itself reads it
    (tmp_path / "go").touch()


def test_readers_that_take_nothing_of_logs_of_ended_jobs_keep_no_other_caller_waiting() -> None:
    """There are as many of them as there are threads for routes, and more."""
    writes = [program()[0], "-c", f"import sys; sys.stdout.write(({63 * 'x'!r} + chr(10)) * 250_000)"]
    with live_service(limits=Limits(n_streams_each=64)) as service, ExitStack() as reading:
        service.caller.post("/jobs", {"program": writes, "name": "a"})
        wait_until(lambda: service.host.has_ended(JobId("a")))
        others = n_followers()
        place, token = service.caller.place, service.caller.token
        for _ in range(50):
            reader = reading.enter_context(socket.socket())
            reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            reader.connect((place.hostname, place.port))
            head = f"Host: {place.netloc}\r\nAuthorization: Bearer {token}\r\n\r\n"
            reader.sendall(f"GET /v1/jobs/a/logs?follow=true HTTP/1.1\r\n{head}".encode())
        wait_until(n_followers, lambda n: n >= others + 50)
        asked = http.client.HTTPConnection(place.netloc, timeout=45.0)  # less than the readers are given
        asked.request("GET", "/v1/jobs/a/why", headers={"Authorization": f"Bearer {token}"})
        assert asked.getresponse().status == 200
        asked.close()


def test_a_long_log_whose_reader_has_gone_before_it_is_sent_is_closed(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    log.write_bytes(b"x" * 2 * PIECE_BYTES)
    host = SimpleNamespace(log=lambda *_, **__: log)
    context = SimpleNamespace(status=lambda job: SimpleNamespace(id=job, ended=False), host=host)

    async def gone() -> MutableMapping[str, Any]:
        return {"type": "http.disconnect"}

    async def never_taken(_: MutableMapping[str, Any]) -> None:
        await asyncio.Event().wait()

    async def answer() -> None:
        response = await logs("a", cast(Any, context), SELF)
        assert n_open(log) == 1
        await response({"type": "http", "method": "GET", "path": "/v1/jobs/a/logs"}, gone, never_taken)

    asyncio.run(answer())
    assert n_open(log) == 0
