"""The client's two faces, and that it costs nothing where it is not used."""

import json
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
from tests.api.live_service import LiveService, program
from tests.architecture.test_names import loaded_by
from tests.waiting import PATIENCE_S, wait_until

import punctual
from punctual.client.client import Client, JobEvent, ServiceFailed
from punctual.core.errors import InvalidSpec


def test_a_job_is_submitted_from_python_as_from_a_shell(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the own socket, it has this process's variables and folder."""
    monkeypatch.setenv("SAID", "from here")
    monkeypatch.chdir(tmp_path)
    here = "import os, pathlib; print(os.environ['SAID'], pathlib.Path.cwd())"
    job = punctual.submit([sys.executable, "-c", here], name="a", deadline="10m")
    standing = job.wait()
    assert (standing.state, standing.verdict) == ("finished", "met")
    assert b"".join(job.logs(follow=True)) == f"from here {tmp_path}\n".encode()
    assert [job.name for job in punctual.Client().jobs(state=["finished"], verdict=["met"], name="a")] == ["a"]
    assert [entry.kind for entry in job.why()][-1] == "finished"


def test_a_job_and_the_policy_are_changed_from_python(service: LiveService, tmp_path: Path) -> None:
    job = punctual.submit(program(tmp_path / "never"), name="a", deadline="10m")
    standing = job.change(weight=2.0, cores="0.2..0.5", deadline=None)
    assert (standing.weight, standing.least_cores, standing.most_cores, standing.deadline) == (2.0, 0.2, 0.5, None)
    with pytest.raises(InvalidSpec) as refused:
        job.change(weight=3.0, workers="1..2")
    assert refused.value.option == "workers"
    changed = Client(service.served.url).change_policy("fifo", {"backfill": True})
    assert (changed.name, changed.before) == ("fifo", "proportional")
    told = wait_until(Client().policy, lambda policy: policy.name == "fifo")
    assert told.parameters == {"backfill": True}
    client = Client(service.served.url)
    with pytest.raises(InvalidSpec, match="local"):
        client.drain("nowhere")
    client.drain("local", "5m")
    wait_until(lambda: client.cluster().nodes[0].leaves)
    client.undrain("local")
    wait_until(lambda: client.cluster().nodes[0].leaves is None)


def test_over_tcp_a_job_has_what_it_is_given(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAID", "of this shell")
    job = Client(service.served.url).submit(program(), env={"OTHER": "x"})
    job.wait()
    assert b"nothing" in b"".join(job.logs(follow=True))


def test_errors_are_those_of_the_command_line(service: LiveService) -> None:
    client = Client()
    with pytest.raises(InvalidSpec) as refused:
        client.submit(["no-such-program"], deadline="soon")
    assert {error.option for error in refused.value.all()} == {"program", "deadline"}
    with pytest.raises(InvalidSpec) as refused:
        client.quote_new(["no-such-program"], deadline="soon")
    assert {error.option for error in refused.value.all()} == {"program", "deadline"}
    for ask in (client.submit, client.quote_new):
        with pytest.raises(InvalidSpec, match="Did you mean `deadline`") as refused:
            ask(program(), deadlin="10m")
        assert refused.value.option == "deadlin"
    with pytest.raises(ServiceFailed) as unknown:
        client.show("../a")
    assert unknown.value.status == 404
    with pytest.raises(ServiceFailed) as stranger:
        Client(service.served.url, token="wrong").health()
    assert stranger.value.status == 401


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ([], {}),
        ("sleep 1", {}),
        (None, {}),
        (["sleep", 1], {}),
        (["sleep", "\0"], {}),
        (["true"], {"deadline": 60}),
        (["true"], {"env": {"TOKEN": ["hidden"]}}),
        (["true"], {"idempotency_key": ""}),
        (["true"], {"idempotency_key": "a\r\nX: y"}),
    ],
)
def test_wrong_types_are_refused_in_four_parts(program: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as refused:
        Client("http://127.0.0.1:9").submit(program, **options)
    assert refused.value.remedy
    assert "hidden" not in str(refused.value)


def test_without_a_service_it_says_how_to_start_one() -> None:
    with pytest.raises(ServiceFailed, match="punctual up"):
        Client().health()


@pytest.mark.parametrize("url", ["localhost", "ftp://localhost", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpec, match="url"):
        Client(url)


def test_a_submission_that_is_not_answered_is_said_again(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leads to one job, though the service has heard it twice."""
    client, sent = Client(), []
    send = client._answer

    def lossy(*args: Any, **parts: Any) -> Any:
        answer = send(*args, **parts)
        sent.append(answer)
        if len(sent) == 1:
            raise ServiceFailed("the answer was lost")
        return answer

    monkeypatch.setattr(client, "_answer", lossy)
    job = client.submit(program())
    assert len(sent) == 2
    assert [status.id for status in service.host.jobs()] == [job.name]


def test_a_training_script_does_not_load_the_client() -> None:
    loaded = loaded_by("import punctual; punctual.track")
    assert not {"pydantic", "http", "ssl", "asyncio", "fastapi", "uvicorn"} & loaded
    assert not {"fastapi", "uvicorn", "httpx"} & loaded_by("import punctual; punctual.Client()")


# Another service than it should be.


@contextmanager
def answering(*parts: bytes, closes: bool = True) -> Iterator[Client]:
    """A client of a program that answers with these bytes, whatever it is asked, and then closes or says no more."""
    with ExitStack() as opened, socket.create_server(("127.0.0.1", 0)) as listening:

        def answer() -> None:
            with suppress(OSError):  # it listens no more
                while True:
                    connection = opened.enter_context(listening.accept()[0])
                    connection.recv(1 << 16)
                    for part in parts:
                        connection.sendall(part)
                    if closes:
                        connection.shutdown(socket.SHUT_RDWR)

        thread = Thread(target=answer, daemon=True)
        thread.start()
        yield Client(f"http://127.0.0.1:{listening.getsockname()[1]}", token="x", timeout_s=PATIENCE_S)
        listening.shutdown(socket.SHUT_RDWR)
        thread.join(PATIENCE_S)


def whole(body: bytes, status: str = "200 OK") -> bytes:
    return f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


@pytest.mark.parametrize(
    "answer",
    [
        whole(b"<html>"),
        whole(b""),
        whole(b"\xff"),
        whole(b'{"status": "of a later version"}'),
        whole(b"", "302 Found"),
        whole(b"[]", "400 Bad Request"),
        whole(b"\xff", "500 Internal Server Error"),
        whole(b'{"must": "a", "others": null}', "422 Unprocessable Entity"),
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"SSH-2.0-OpenSSH\r\n",
        b"",
    ],
)
def test_an_answer_of_another_program_or_version_is_a_failure_of_the_service(answer: bytes) -> None:
    with answering(answer) as client, pytest.raises(ServiceFailed):
        client.health()


@pytest.mark.parametrize("head", [b"Content-Length: 9\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n"])
def test_a_log_that_breaks_off_is_no_whole_one(head: bytes) -> None:
    with answering(b"HTTP/1.1 200 OK\r\n" + head) as client:
        pieces = client.logs("a")
        assert next(pieces) == b"abc"
        with pytest.raises(ServiceFailed, match="broke off"):
            next(pieces)
        assert list(pieces) == []


STREAM = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_fields_of_a_later_version_in_an_event_are_left_out_and_missing_ones_are_a_failure() -> None:
    event: dict[str, Any] = {"sequence": 1, "kind": "JobFinished", "job": "a", "time": "", "message": {}}
    cases: list[tuple[dict[str, Any], bool]] = [({**event, "new": 1}, True), ({"sequence": 1}, False)]
    for fields, is_known in cases:
        data = b"data: " + json.dumps(fields).encode() + b"\n\n"
        with answering(STREAM, b"%x\r\n%b\r\n" % (len(data), data), closes=False) as client, client.events() as events:
            if is_known:
                assert next(events) == JobEvent(**event)
            else:
                with pytest.raises(ServiceFailed):
                    next(events)


@pytest.mark.parametrize(("end", "is_whole"), [(b"0\r\n\r\n", True), (b"", False)])
def test_events_that_break_off_are_not_all(end: bytes, is_whole: bool) -> None:
    with answering(STREAM, b"7\r\nretry:\n\r\n", end) as client:
        if is_whole:
            assert list(client.events()) == []
        else:
            with pytest.raises(ServiceFailed, match="broke off"):
                next(client.events())


@pytest.mark.parametrize("kind", ["logs", "events"])
def test_a_stream_that_another_thread_closes_has_no_more(kind: str) -> None:
    with answering(STREAM, b"7\r\nretry:\n\r\n", closes=False) as client:
        stream: Any = client.logs("a", follow=True) if kind == "logs" else client.events()
        seen, is_over = list[object](), Event()

        def read() -> None:
            try:
                seen.extend(stream)
            except Exception as error:  # noqa: BLE001 -- it is what is looked for
                seen.append(error)
            is_over.set()

        Thread(target=read, daemon=True).start()
        stream.close()
        assert is_over.wait(PATIENCE_S)
        assert not [each for each in seen if isinstance(each, Exception)]
        assert list(stream) == []


def test_events_may_be_rarer_than_an_answer_may_take(service: LiveService) -> None:
    with Client(timeout_s=2.0).events() as events:
        time.sleep(2.5)
        Client().submit(program(), name="a")
        assert next(events).job == "a"


@pytest.mark.parametrize(
    ("url", "options"),
    [
        ("http://[::1", {}),
        ("http://127.0.0.1:99999", {}),
        ("http://127.0.0.1:x", {}),
        ("http://a b", {}),
        ("http://127.0.0.1:1/v1", {}),
        ("http://127.0.0.1:1?x", {}),
        ("http://me:s3cret@127.0.0.1:1", {}),
        ("http://127.0.0.1:1/#token=s3cret", {}),
        ("https://127.0.0.1:1", {"ca_file": Path("/nowhere")}),
        (None, {"token": "s3cret\r\nX: y"}),
        (None, {"token": "s3cr\u00e9t"}),
        *[(None, {"timeout_s": seconds}) for seconds in (0, -1, float("nan"), float("inf"))],
    ],
)
def test_what_cannot_be_a_client_is_refused_at_once_and_without_secrets(url: str | None, options: Any) -> None:
    with pytest.raises(InvalidSpec) as refused:
        Client(url, **options)
    assert refused.value.remedy
    assert "s3cr" not in str(refused.value)


def test_a_token_may_be_given_as_it_stands_in_its_file(service: LiveService) -> None:
    assert Client(service.served.url, token=f"{service.caller.token}\n").health().caller == "owner"


def test_one_state_and_one_kind_need_no_list(service: LiveService) -> None:
    client = Client()
    job = client.submit(program(), name="a")
    assert job.wait(timeout_s=PATIENCE_S).name == "a"
    assert [each.name for each in client.jobs(state="finished")] == ["a"]
    with client.events(kind="JobFinished", after=0) as events:
        assert next(events).kind == "JobFinished"


def test_a_job_that_has_ended_needs_no_time_to_be_waited_for(service: LiveService) -> None:
    job = Client().submit(program(), name="a")
    job.wait()
    assert job.wait(timeout_s=0).state == "finished"
    with pytest.raises(TimeoutError):
        Client().submit(program(Path("/never")), name="b").wait(timeout_s=0)
