"""No stranger makes the log of a service grow: one line a minute from one place, with a count."""

import errno
import logging
import os
import socket
from pathlib import Path

import pytest
from tests.api.live_service import LiveService, live_service
from tests.api.test_host_names import certificate
from tests.waiting import wait_until

from punctual.api.limits import LimitedSocket
from punctual.api.log_limit import LogLimit

#: What callers without a token send, and how the server ends it.
NONSENSE = {
    "bytes": b"\x00\x01\r\n\r\n",
    "no version": b"GET /\r\n\r\n",
    "upgrade": b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
    "length": b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: -1\r\n\r\n",
    "long length": b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "header": b"GET / HTTP/1.1\r\nHost: localhost\r\nA" + b"b" * 70_000 + b": c\r\n\r\n",
    "chunk": b"POST /v1/jobs HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
    "target": b"GET http://[::1 HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


def send(service: LiveService, sent: bytes) -> None:
    """Send something and wait for the end of the answer, or of the connection."""
    with socket.create_connection((service.caller.place.hostname, service.caller.place.port), timeout=100) as stranger:
        try:
            stranger.sendall(sent)
            stranger.shutdown(socket.SHUT_WR)
            while stranger.recv(65_536):
                pass
        except ConnectionError:
            pass


@pytest.mark.parametrize("sent", NONSENSE.values(), ids=NONSENSE)
def test_what_strangers_send_is_logged_once_a_minute(sent: bytes, caplog: pytest.LogCaptureFixture) -> None:
    with live_service() as service:
        for _ in range(20):
            send(service, sent)
    lines = [line for record in caplog.records for line in record.getMessage().splitlines()]
    assert len(lines) <= 2, lines  # one from each place
    assert not [record for record in caplog.records if record.exc_info]


def test_callers_who_do_not_agree_on_keys_are_logged_once_a_minute(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with live_service(tls=certificate(tmp_path)) as service:
        for sent in (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\x16\x03\x01\x00\x05hello", b""):
            for _ in range(10):
                send(service, sent)
    assert len(caplog.records) <= 2
    assert not [record for record in caplog.records if record.exc_info]


def test_want_of_descriptors_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with live_service() as service:
        refused = []

        def refuse(_: LimitedSocket) -> None:
            refused.append(1)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

        with monkeypatch.context() as patched:
            patched.setattr(LimitedSocket, "accept", refuse)
            with socket.create_connection((service.caller.place.hostname, service.caller.place.port), timeout=100):
                wait_until(lambda: len(refused) > 50)
        assert wait_until(lambda: service.caller.get("/health").status) == 200  # there is room again
    told = [record for record in caplog.records if "Too many open files" in record.getMessage()]
    assert len(told) == 1
    assert told[0].exc_info is None
    assert "\n" not in told[0].getMessage()


def test_what_was_left_out_is_counted_in_the_next_line() -> None:
    at = [0.0]
    limit = LogLimit(60.0, now=lambda: at[0])

    def record(line: int, text: str) -> logging.LogRecord:
        return logging.LogRecord("asyncio", logging.WARNING, "file.py", line, "bad %s", (text,), None)

    assert limit.filter(record(1, "a"))
    assert not any(limit.filter(record(1, str(i))) for i in range(1234))
    assert limit.filter(record(2, "a"))  # another place
    at[0] = 60.0
    last = record(1, "z")
    assert limit.filter(last)
    assert last.getMessage() == "bad z (1,234 more like this since the last line)"
    at[0] = 120.0
    last = record(1, "z")
    assert limit.filter(last)
    assert last.getMessage() == "bad z"
