"""Who is let in, from where, and how much of it."""

import asyncio
import errno
import gzip
import http.client
import json
import os
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path

import pytest
from tests.api.live_service import OPTIONS, Caller, LiveService, live_service, program, steered_host
from tests.waiting import PATIENCE_S, wait_until

from punctual.api import connections, server
from punctual.api import database as database_module
from punctual.api import tokens as tokens_module
from punctual.api.database import ServiceDatabase
from punctual.api.limits import Limits, RequestRate
from punctual.api.server import _tcp_socket, check_installed, serve
from punctual.api.tls import Tls
from punctual.api.tokens import Tokens
from punctual.client.client import Client, ServiceFailed
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon.host import Host
from punctual.daemon.opening import new_host
from punctual.daemon.paths import service_root, service_socket
from punctual.daemon.run_folder import SERVICE
from punctual.journal.errors import StoreUnreachable

READS = ["/jobs", "/jobs/a", "/jobs/a/why", "/jobs/a/logs", "/cluster", "/policies", "/policy", "/metrics", "/health"]
CHANGES = [
    ("POST", "/jobs", {"program": ["x"]}),
    ("PATCH", "/jobs/a", {"deadline": "1h"}),
    ("POST", "/jobs/a/stop", {}),
    ("PUT", "/policy", {"name": "fifo"}),
    ("POST", "/nodes/local/drain", {"in": "5m"}),
    ("POST", "/nodes/local/undrain", {}),
]


@pytest.fixture
def tokens() -> Tokens:
    return Tokens(ServiceDatabase(service_root()))


# Tokens.


def test_the_text_of_a_token_is_kept_nowhere(tokens: Tokens) -> None:
    text = tokens.create("laptop", "viewer")
    assert tokens.of(text) == tokens.all()[0]
    kept = list(service_root().iterdir())
    assert kept
    assert not [path for path in kept if text.encode() in path.read_bytes()]
    assert {stat.S_IMODE(path.stat().st_mode) for path in kept} == {0o600}


def test_a_token_ends_when_it_expires_or_is_revoked(tokens: Tokens, monkeypatch: pytest.MonkeyPatch) -> None:
    short, long = tokens.create("short", "viewer", lifetime_s=60.0), tokens.create("long", "viewer")
    later = time.time() + 61.0
    monkeypatch.setattr(time, "time", lambda: later)
    assert tokens.of(short) is None
    assert tokens.of(long) is not None
    tokens.revoke("long")
    assert tokens.of(long) is None
    with pytest.raises(InvalidSpec, match="token of that name"):
        tokens.revoke("long")


@pytest.mark.parametrize(("name", "role"), [("", "viewer"), ("../a", "viewer"), ("a", "king"), ("a b", "viewer")])
def test_what_cannot_be_a_token_is_refused(tokens: Tokens, name: str, role: str) -> None:
    with pytest.raises(InvalidSpec):
        tokens.create(name, role)
    for lifetime_s in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(InvalidSpec, match="must expire within"):
            tokens.create("laptop", "viewer", lifetime_s)
    assert tokens.all() == []


def test_the_owners_token_is_made_once(tokens: Tokens) -> None:
    assert tokens.make_first()
    file = service_root() / "token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert tokens.of(file.read_text().strip()).role == "operator"
    tokens.revoke("owner")
    assert not file.exists()
    assert not tokens.make_first()  # what was revoked does not come back
    assert tokens.all() == []


def test_the_owners_token_is_made_again_if_its_file_could_not_be_written(
    tokens: Tokens, monkeypatch: pytest.MonkeyPatch
) -> None:
    def has_no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(tokens_module, "_write_private", has_no_room)
        with pytest.raises(OSError, match="No space left"):
            tokens.make_first()
    assert tokens.make_first()
    owner = tokens.of((service_root() / "token").read_text().strip())
    assert owner is not None
    assert (owner.name, owner.role) == ("owner", "operator")


def test_after_a_write_that_another_process_has_held_up_the_next_one_succeeds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(database_module, "_BUSY_S", 0.05)
    with closing(ServiceDatabase(service_root())) as database:
        tokens = Tokens(database)
        with closing(sqlite3.connect(service_root() / "service.db", isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM token").fetchall()
            with pytest.raises(StoreUnreachable, match="locked"):
                tokens.create("a", "viewer")
            other.execute("COMMIT")
        tokens.create("b", "viewer")
        assert [token.name for token in tokens.all()] == ["b"]


def test_a_caller_who_waits_for_locked_tokens_keeps_no_other_one_waiting(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, is_free, known = threading.Event(), threading.Event(), Tokens.of

    def waits(tokens: Tokens, text: str) -> tokens_module.Token | None:
        is_asked.set()
        return known(tokens, text) if is_free.wait(PATIENCE_S) else None

    monkeypatch.setattr(Tokens, "of", waits)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.caller.get, "/jobs")
        assert is_asked.wait(PATIENCE_S)
        assert Client().jobs() == []
        is_free.set()
        assert waiting.result().status == 200


def test_who_asks_for_the_health_while_the_journal_waits_for_the_disk_keeps_no_other_one_waiting(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_asked, is_free = threading.Event(), threading.Event()

    def waits(_: Host) -> bool:
        is_asked.set()
        return is_free.wait(PATIENCE_S)

    monkeypatch.setattr(Host, "takes_changes", property(waits))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(service.caller.get, "/health")
        assert is_asked.wait(PATIENCE_S)
        assert Client(timeout_s=PATIENCE_S / 2).jobs() == []
        is_free.set()
        assert waiting.result().json()["status"] == "ok"


def test_names_of_tokens_are_given_once(tokens: Tokens) -> None:
    tokens.create("a", "viewer")
    with pytest.raises(InvalidSpec, match="must be new"):
        tokens.create("a", "operator")


# Over TCP.


def test_nothing_is_answered_without_a_token(service: LiveService) -> None:
    for token in (None, "", "wrong", "punctual_" + "x" * 43):
        stranger = Caller(service.served, token)
        for path in (*READS, "/openapi.json", "/events", "/nothing"):
            reply = stranger.get(path)
            assert reply.status == 401, path
            assert reply.headers["WWW-Authenticate"].startswith("Bearer")
    assert service.caller.get("/openapi.json").status == 200


def test_a_viewer_reads_and_changes_nothing(service: LiveService) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a"})
    viewer = service.with_role("viewer")
    assert [viewer.get(path).status for path in READS] == [200] * len(READS)
    for method, path, body in CHANGES:
        assert viewer.send(method, path, body).status == 403, path
    assert [status.id for status in service.host.jobs()] == ["a"]


def test_a_submitter_submits_and_stops(service: LiveService, tmp_path: Path) -> None:
    submitter = service.with_role("submitter")
    assert submitter.post("/jobs", {"program": program(tmp_path / "never"), "name": "a"}).status == 201
    assert submitter.send("PATCH", "/jobs/a", {"weight": 2.0}).status == 200
    assert submitter.post("/jobs/a/stop").status == 202


def test_only_an_operator_changes_the_policy(service: LiveService) -> None:
    assert service.with_role("submitter").send("PUT", "/policy", {"name": "fifo"}).status == 403
    assert service.host.policy == "proportional"
    assert service.with_role("operator").send("PUT", "/policy", {"name": "fifo"}).status == 200
    wait_until(lambda: service.host.policy, lambda policy: policy == "fifo")


def test_a_revoked_token_is_refused_at_once(service: LiveService, tokens: Tokens) -> None:
    viewer = service.with_role("viewer")
    assert viewer.get("/health").json()["role"] == "viewer"
    tokens.revoke("a-viewer")
    assert viewer.get("/health").status == 401


@contextmanager
def open_stream(service: LiveService, token: str, path: str) -> Iterator[http.client.HTTPResponse]:
    """An answer that goes on, of which the beginning was read."""
    place = service.caller.place
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=100)
    with closing(connection):
        connection.request("GET", f"/v1{path}", headers={"Authorization": f"Bearer {token}"})
        with connection.getresponse() as response:
            assert response.status == 200
            response.readline()
            yield response


@pytest.mark.parametrize("path", ["/events", "/events?after=0", "/jobs/a/logs?follow=true"])
@pytest.mark.parametrize("ends", ["revoked", "expired", "made anew"])
def test_what_is_still_answered_ends_with_its_token(
    service: LiveService, tokens: Tokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, ends: str
) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a"})
    token, other = tokens.create("laptop", "viewer", 3600.0), tokens.create("other", "viewer")
    with open_stream(service, token, path) as stream, open_stream(service, other, path) as goes_on:
        if ends == "expired":
            later = time.time() + 4000.0
            monkeypatch.setattr(tokens_module.time, "time", lambda: later)
        else:
            tokens.revoke("laptop")
        if ends == "made anew":
            tokens.create("laptop", "operator")
        with pytest.raises(http.client.IncompleteRead):  # there was more to come
            stream.read()
        assert Caller(service.served, other).get("/health").status == 200
        assert not goes_on.isclosed()


def test_a_reader_who_stands_still_is_sent_away_when_its_token_ends(
    service: LiveService, tokens: Tokens, caplog: pytest.LogCaptureFixture
) -> None:
    command = [sys.executable, "-c", "import os\nfor _ in range(400): os.write(1, b'x' * 65535 + b'\\n')"]
    service.caller.post("/jobs", {"program": command, "name": "a"})
    wait_until(lambda: service.host.has_ended(JobId("a")))
    token, place = tokens.create("laptop", "viewer"), service.caller.place
    with socket.create_connection((place.hostname, place.port), timeout=100) as reader:
        head = f"GET /v1/jobs/a/logs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n"
        reader.sendall(head.encode())
        assert reader.recv(100)
        tokens.revoke("laptop")
        told = wait_until(
            lambda: [each for each in caplog.records if "the token of an answer has ended" in each.getMessage()]
        )
        assert not told[0].exc_info
        n_bytes = 0
        with suppress(ConnectionError):
            while piece := reader.recv(1 << 20):
                n_bytes += len(piece)
    assert n_bytes < 400 * 65_536


def test_idempotency_keys_are_those_of_the_token_and_not_of_its_name(service: LiveService, tokens: Tokens) -> None:
    asked, key = {"program": program()}, {"Idempotency-Key": "k1"}
    first = Caller(service.served, tokens.create("laptop", "submitter")).post("/jobs", asked, key).json()["name"]
    tokens.revoke("laptop")
    anew = Caller(service.served, tokens.create("laptop", "submitter"))
    second = anew.post("/jobs", asked, key)
    assert second.status == 201
    assert second.json()["name"] != first
    assert anew.post("/jobs", asked, key).json()["name"] == second.json()["name"]


def test_another_name_is_refused(service: LiveService) -> None:
    """A page whose name was pointed here reads nothing."""
    for host in ["example.org", "example.org:4747", "127.0.0.1.example.org", "", "[::1", "0x7f.1"]:
        assert service.caller.get("/jobs", {"Host": host}).status in {400, 403}, host
    assert service.caller.get("/jobs", {"Host": "LOCALHOST:1"}).status == 200


def test_a_page_of_another_origin_is_refused(service: LiveService) -> None:
    for headers in [
        {"Origin": "https://example.org"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Origin": "http://127.0.0.1"},
    ]:
        for reply in (
            service.caller.get("/jobs", headers),
            service.caller.post("/jobs", {"program": program()}, headers),
        ):
            assert reply.status == 403, headers
            assert "Access-Control-Allow-Origin" not in reply.headers, headers
        assert service.host.jobs() == (), headers


def test_a_link_to_the_page_on_another_page_can_be_followed(service: LiveService) -> None:
    for path, destination, status in [("/", "document", 200), ("/", "iframe", 403), ("/v1/jobs", "document", 403)]:
        connection = http.client.HTTPConnection(service.served.url.removeprefix("http://"), timeout=PATIENCE_S)
        headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": destination}
        connection.request("GET", path, headers={**headers, "Authorization": f"Bearer {service.caller.token}"})
        assert connection.getresponse().status == status, (path, destination)
        connection.close()


def test_no_other_origin_is_allowed_beforehand(service: LiveService) -> None:
    reply = service.caller.send("OPTIONS", "/jobs", headers={"Access-Control-Request-Method": "POST"})
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD, POST"), "of all routes of the path"
    assert "Access-Control-Allow-Origin" not in reply.headers


def test_head_is_answered_as_get_without_the_body(service: LiveService) -> None:
    """Also of a stream, which would never end."""
    for path in ["/jobs", "/openapi.json", "/events", "/metrics"]:
        head = service.caller.send("HEAD", path)
        assert (head.status, head.body) == (200, b""), path
        if path != "/events":
            got = service.caller.get(path)
            assert [head.headers[name] for name in ("Content-Type", "Content-Length")] == [
                got.headers[name] for name in ("Content-Type", "Content-Length")
            ], path
    assert service.caller.send("HEAD", "/quote").headers["Allow"] == "POST"


def test_a_request_to_a_proxy_is_refused_in_words(service: LiveService) -> None:
    for target in ["http://127.0.0.1:1/v1/jobs", "*", "example.org:443"]:
        connection = http.client.HTTPConnection(service.served.url.removeprefix("http://"), timeout=PATIENCE_S)
        connection.request("GET", target, headers={"Authorization": f"Bearer {service.caller.token}"})
        reply = connection.getresponse()
        assert (reply.status, "this service is no proxy" in json.load(reply)["detail"]) == (400, True), target
        connection.close()


def test_a_body_whose_length_is_told_in_two_ways_is_refused(service: LiveService) -> None:
    """A proxy before the service may take what follows one of them for another request."""
    lengths = {"Content-Length": "2", "Transfer-Encoding": "chunked"}
    refused = service.caller.send("POST", "/jobs", b"0\r\n\r\n", lengths)
    assert (refused.status, refused.headers["Connection"]) == (400, "close")
    assert "in one way" in refused.json()["detail"]


def test_a_compressed_body_is_refused_in_words(service: LiveService) -> None:
    body = gzip.compress(b'{"program": ["x"]}')
    refused = service.caller.send("POST", "/jobs", body, {"Content-Encoding": "gzip"})
    assert (refused.status, refused.headers["Accept-Encoding"]) == (415, "identity")
    assert "without `Content-Encoding`" in refused.json()["detail"]


def test_a_body_without_json_is_refused(service: LiveService) -> None:
    """A form of another site can send such a body, and no other."""
    body = b'{"program": ["x"]}'
    for kind in ("text/plain", "application/x-www-form-urlencoded", ""):
        refused = service.caller.send("POST", "/jobs", body, {"Content-Type": kind})
        assert (refused.status, "application/json" in refused.json()["detail"]) == (415, True)
    assert service.host.jobs() == ()


@pytest.mark.parametrize("damage", [b"garbage" * 2000, "locked"])
def test_where_tokens_cannot_be_read_nobody_is_let_in_and_strangers_are_told_no_more(
    service: LiveService, damage: bytes | str, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(sqlite3.connect(service_root() / "service.db", isolation_level=None)) as other:
        if isinstance(damage, bytes):
            (service_root() / "service.db").write_bytes(damage)
        else:
            other.execute("BEGIN EXCLUSIVE")
        reply = service.caller.get("/health")
    assert (reply.status, reply.headers["Content-Type"]) == (503, "application/problem+json")
    assert "Retry-After" in reply.headers
    assert str(service_root()) not in reply.body.decode()
    assert "the tokens cannot be read" in caplog.text
    assert "Traceback" not in caplog.text
    assert Client().health().status == "ok"


def test_what_is_answered_goes_on_where_it_cannot_be_read_whether_its_token_has_ended(
    service: LiveService, caplog: pytest.LogCaptureFixture
) -> None:
    with Client(service.served.url).events(kind=["JobSubmitted"]) as events:
        with closing(sqlite3.connect(service_root() / "service.db", isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            wait_until(lambda: "the tokens cannot be read" in caplog.text)
        Client().submit(program(), name="a")
        assert next(events).job == "a"


# Limits.


def test_a_body_that_is_too_long_is_refused() -> None:
    with live_service(limits=Limits(body_bytes=1000)) as service:
        assert service.caller.post("/jobs", {"program": ["x" * 1000]}).status == 413
        pieces = iter([b"x" * 600, b"x" * 600])
        connection = socket.create_connection((service.caller.place.hostname, service.caller.place.port))
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {service.caller.token}\r\n"
        connection.sendall(head.encode() + b"Transfer-Encoding: chunked\r\n\r\n")
        for piece in pieces:
            connection.sendall(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
        assert connection.recv(100).startswith(b"HTTP/1.1 413")
        connection.close()


def test_a_body_that_never_comes_and_a_connection_that_says_nothing_are_given_up() -> None:
    with live_service(limits=Limits(request_s=0.2)) as service:
        place = (service.caller.place.hostname, service.caller.place.port)
        head = f"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {service.caller.token}\r\n"
        with (
            socket.create_connection(place, timeout=100) as slow,
            socket.create_connection(place, timeout=100) as silent,
        ):
            slow.sendall(head.encode() + b"Content-Type: application/json\r\nContent-Length: 100\r\n\r\n{")
            assert slow.recv(100).startswith(b"HTTP/1.1 400")
            assert silent.recv(100) == b""


@pytest.mark.parametrize("head", [b"", b"Content-Length: 9\r\n"], ids=["the next", "the rest of its body"])
def test_a_connection_ends_too_if_it_says_nothing_more_after_a_request_and_one_byte(head: bytes) -> None:
    with live_service(limits=Limits(request_s=0.2)) as service:
        place = (service.caller.place.hostname, service.caller.place.port)
        with socket.create_connection(place, timeout=100) as stranger:
            stranger.sendall(b"GET /nothing HTTP/1.1\r\nHost: elsewhere\r\n" + head + b"\r\n")
            answer = http.client.HTTPResponse(stranger)
            answer.begin()
            assert (answer.status, bool(answer.read())) == (403, True)
            stranger.sendall(b"G")
            assert stranger.recv(100) == b""


def test_connections_beyond_the_limit_are_ended_and_make_room_when_they_end() -> None:
    with live_service(limits=Limits(n_connections=8, request_s=1000.0)) as service, ExitStack() as opened:
        place = (service.caller.place.hostname, service.caller.place.port)
        silent = [opened.enter_context(socket.create_connection(place)) for _ in range(40)]
        wait_until(lambda: sum(map(has_been_ended, silent)), lambda n: n == 32)
        assert Client().health().status == "ok"  # its own user is not kept out
        opened.close()
        wait_until(lambda: is_answered(service.caller))


def has_been_ended(connection: socket.socket) -> bool:
    """Whether the other end of a connection on which nothing is said is closed."""
    connection.setblocking(False)
    try:
        return connection.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def is_answered(caller: Caller) -> bool:
    try:
        return caller.get("/health").status == 200
    except (OSError, http.client.HTTPException):
        return False


def test_requests_beyond_the_rate_are_put_off() -> None:
    with live_service(limits=Limits(requests_per_s=1e-3, n_burst=3)) as service:
        replies = [service.caller.get("/health") for _ in range(4)]
        assert [reply.status for reply in replies] == [200, 200, 200, 429]
        assert int(replies[-1].headers["Retry-After"]) > 0
        assert service.with_role("viewer").get("/health").status == 200  # another token has a rate of its own


def test_what_is_not_asked_for_is_saved_up_to_a_burst() -> None:
    at = [0.0]
    rate = RequestRate(Limits(requests_per_s=2.0, n_burst=4), lambda: at[0])
    assert [rate.wait_s("a") for _ in range(5)] == [0, 0, 0, 0, 0.5]
    at[0] = 1.0
    assert [rate.wait_s("a") for _ in range(3)] == [0, 0, 0.5]
    at[0] = 1000.0
    assert sum(rate.wait_s("a") == 0 for _ in range(100)) == 4


def test_streams_beyond_the_limit_are_refused_and_make_room_when_they_end(tmp_path: Path) -> None:
    with live_service(limits=Limits(n_streams_each=1)) as service:
        client = Client(service.served.url)
        events = client.events(after=0)
        assert next(events).sequence >= 1
        assert service.caller.get("/events").status == 429
        events.close()
        wait_until(lambda: opens_a_stream(client))


def opens_a_stream(client: Client) -> bool:
    """Whether there is room for a stream, which is closed at once."""
    try:
        client.events(after=0).close()
    except ServiceFailed as error:
        return error.status != 429
    return True


# The socket of the service's own user.


def test_the_own_socket_needs_no_token_and_is_for_its_user_alone(service: LiveService) -> None:
    assert stat.S_IMODE(service.served.socket.stat().st_mode) == 0o600
    health = Client().health()
    assert (health.caller, health.role) == ("", "operator")


def test_a_process_of_another_user_is_not_heard(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections.os, "geteuid", lambda: os.getuid() + 1)
    with socket.socket(socket.AF_UNIX) as stranger:
        stranger.settimeout(100)
        stranger.connect(str(service.served.socket))
        try:
            stranger.sendall(b"GET /v1/jobs HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert stranger.recv(100) == b""
        except ConnectionError:
            pass


def test_services_for_different_processors_run_beside_each_other_and_the_first_has_the_socket() -> None:
    facts = {SERVICE: True}
    with (
        new_host("one", OPTIONS, facts=facts) as one,
        new_host("two", OPTIONS, facts=facts) as two,
        serve(one, "127.0.0.1:0") as first,
    ):
        two.run_folder.record_facts(gpus=["another"])
        with serve(two, "127.0.0.1:0") as second:
            assert (first.socket, second.socket) == (service_socket(), None)
            token = second.token_file.read_text().strip()
            assert [Caller(served, token).get("/health").json()["host"] for served in (first, second)] == ["one", "two"]
            assert Client().health().host == "one"
        assert Client().health().host == "one"


def test_the_socket_of_a_service_in_another_container_is_left_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    facts = {SERVICE: True}
    with (
        new_host("there", OPTIONS, facts=facts) as there,
        new_host("here", OPTIONS, facts=facts) as here,
        serve(there, "127.0.0.1:0"),
    ):
        there.run_folder.record_left()  # as it is seen from here: its process is none that has a number
        monkeypatch.setattr(server, "listener_pid", lambda _: 0)
        with serve(here, "127.0.0.1:0") as second:
            assert second.socket is None
        assert Client().health().host == "there"


def test_the_socket_goes_with_the_service() -> None:
    with live_service() as service:
        path = service.served.socket
        assert path.exists()
    assert not path.exists()
    assert not [thread for thread in threading.enumerate() if thread.name == "punctual-service"]


# Addresses.


def test_other_addresses_need_tls_or_a_flag() -> None:
    with steered_host() as host:
        with pytest.raises(InvalidSpec, match="loopback"), serve(host, "0.0.0.0:0"):
            pass
        with serve(host, "0.0.0.0:0", allow_plain=True) as served:
            assert served.url.startswith("http://0.0.0.0:")


@pytest.mark.parametrize(
    "address", ["", "127.0.0.1", ":80", "127.0.0.1:x", "127.0.0.1:70000", "no.such.host.invalid:1"]
)
def test_what_is_no_address_is_refused(address: str) -> None:
    with steered_host() as host, pytest.raises(InvalidSpec, match="address"), serve(host, address):
        pass


def test_a_port_that_is_taken_is_told(service: LiveService) -> None:
    with pytest.raises(InvalidSpec, match="must be free"), serve(service.host, "127.0.0.1:0"):
        pass  # its own socket is taken
    service.served.socket.unlink()
    with pytest.raises(InvalidSpec, match="able to listen"), serve(service.host, service.caller.place.netloc):
        pass


def test_what_goes_wrong_while_it_is_served_is_not_told_as_of_its_address() -> None:
    with steered_host() as host, pytest.raises(OSError, match="No space left"), serve(host, "127.0.0.1:0"):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_certificate_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.pem"
    nothing.touch()
    files = Tls(nothing, nothing)
    with steered_host() as host, pytest.raises(InvalidSpec, match="certificate"), serve(host, tls=files):
        pass


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    """A certificate of this machine, made just now."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    names = "subjectAltName=DNS:localhost,IP:127.0.0.1"
    words = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=localhost", "-addext", names]
    subprocess.run(["openssl", *words, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return Tls(certificate, key)


def test_who_does_not_agree_on_keys_is_counted_and_sent_away(tls: Tls) -> None:
    with live_service(tls=tls, limits=Limits(n_connections=2, request_s=1000.0)) as service, ExitStack() as opened:
        place = (service.caller.place.hostname, service.caller.place.port)
        silent = [opened.enter_context(socket.create_connection(place)) for _ in range(3)]
        wait_until(lambda: sum(map(has_been_ended, silent)), lambda n: n == 1)
    with live_service(tls=tls, limits=Limits(request_s=0.2)) as service:
        place = (service.caller.place.hostname, service.caller.place.port)
        with socket.create_connection(place, timeout=30) as stranger:
            assert stranger.recv(100) == b""


def test_with_a_certificate_what_is_sent_is_encrypted(tls: Tls) -> None:
    with live_service(tls=tls) as service:
        url = service.served.url
        assert url.startswith("https://")
        assert Client(url, ca_file=tls.certificate).health().caller == "owner"
        with pytest.raises(ServiceFailed, match="certificate"):
            Client(url).health()
        with pytest.raises(ServiceFailed):
            Client(url.replace("https", "http")).health()
        assert Client().health().caller == ""


def test_without_its_libraries_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setattr("punctual.distribution.find_spec", lambda name: None)
    with pytest.raises(InvalidSpec) as refused:
        check_installed()
    assert "pip install fastapi uvicorn" in refused.value.remedy


def test_small_answers_do_not_wait_for_an_acknowledgement() -> None:
    """Else each takes 40 ms on a connection that is kept: asyncio switches the delay off only for sockets that say TCP."""
    delays: list[int] = []

    async def accept_one() -> None:
        done = asyncio.Event()

        async def take(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            delays.append(writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()
            done.set()

        with _tcp_socket("127.0.0.1:0", None, allow_plain=False) as listening:
            async with await asyncio.start_server(take, sock=listening):
                _, writer = await asyncio.open_connection(*listening.getsockname())
                await done.wait()
                writer.close()

    asyncio.run(accept_one())
    assert delays == [1]
