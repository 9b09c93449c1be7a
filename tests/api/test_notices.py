"""Notices: which changes of a job are told, once each, and to whom."""

import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import create_server, socket
from threading import Event, Thread
from typing import Any

import pytest
from tests.api.live_service import program, steered_host
from tests.core.test_verdict import FAILED, LANDED, STATUS, STOPPED, TURNED_AWAY, expecting
from tests.forked_python import ForkedPython
from tests.waiting import wait_until

from punctual.api.database import ServiceDatabase
from punctual.api.notices import NoticeFilter, NoticeKind, notice_kind
from punctual.api.notifier import Notifier, NotifyOptions
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.daemon.host import Host
from punctual.daemon.paths import service_root
from punctual.request.deadlines import process_started_at
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of

ON_TRACK = expecting(999.0, earliest_s=500.0)
AT_RISK = expecting(999.0, std_s=10.0, earliest_s=990.0)
LATE = expecting(1060.0, earliest_s=1060.0, feasible=False)
STALLED = replace(ON_TRACK, warnings={"stalled": "no step has come for 5 minutes"})


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (STATUS, None),
        (ON_TRACK, None),
        (AT_RISK, "at-risk"),
        (replace(AT_RISK, rate_sps=0.0), None),  # no forecast can be believed yet
        (LATE, "late"),
        (expecting(float("inf"), earliest_s=float("inf"), feasible=False), "late"),
        (STALLED, "stalled"),
        (FAILED, "failed"),
        (LANDED, "landed"),
        (replace(LANDED, landed_at=1100.25), "landed"),
        (STOPPED, None),
        (TURNED_AWAY, None),
    ],
)
def test_a_change_is_told_once(status: JobStatus, kind: NoticeKind | None) -> None:
    assert notice_kind(status, 200.0) == kind
    found = NoticeFilter()
    assert [(told, is_news) for _, told, is_news in found.changes([status], 200.0)] == [(kind, kind is not None)]
    assert list(found.changes([status], 201.0)) == []


def test_what_was_told_before_is_not_told_again() -> None:
    assert list(NoticeFilter({JobId("a"): "late"}).changes([LATE], 200.0)) == []


def test_a_deadline_that_has_passed_is_late() -> None:
    assert notice_kind(AT_RISK, 1101.0) == "late"


def test_a_forecast_that_wavers_makes_one_notice_in_ten_minutes() -> None:
    found = NoticeFilter()
    news = [
        is_news
        for at in range(200, 1100, 10)
        for _, _, is_news in found.changes([AT_RISK if at // 10 % 2 else ON_TRACK], float(at))
    ]
    assert sum(news) == 2


@pytest.mark.parametrize(
    "options",
    [
        NotifyOptions(url="ftp://example.org/x"),
        NotifyOptions(url="file:///etc/passwd"),
        NotifyOptions(url="example.org"),
        NotifyOptions(url="https://"),
        NotifyOptions(url="https://me:secret@example.org/"),
        NotifyOptions(url="http://[::1/hook"),
        NotifyOptions(url="https://example.org/a hook"),
        NotifyOptions(url="https://example.org/hook\n"),
        NotifyOptions(url="https://example.org/h\u00f6rer"),
        NotifyOptions(url="https://[HOST]/hook"),
        NotifyOptions(url="https://example.org:99999/hook"),
        NotifyOptions(command="  "),
        NotifyOptions(command="'unended"),
    ],
)
def test_what_no_notice_can_be_sent_to_is_refused(options: NotifyOptions) -> None:
    with pytest.raises(InvalidSpec) as caught:
        options.check()
    assert "secret" not in str(caught.value)


@dataclass
class Receiver:
    """An HTTP server that keeps what is posted; it answers with the statuses of `answers`, then with 204."""

    answers: list[int] = field(default_factory=list)
    got: list[dict[str, Any]] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    url: str = ""

    @contextmanager
    def listening(self) -> Iterator["Receiver"]:
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                receiver.paths.append(self.path)
                status = receiver.answers.pop(0) if receiver.answers else 204
                if status < 300:
                    receiver.got.append(json.loads(body))
                self.send_response(status)
                if status == 307:
                    self.send_header("Location", f"{receiver.url}/elsewhere")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            Thread(target=server.serve_forever, daemon=True).start()
            self.url = f"http://127.0.0.1:{server.server_address[1]}"
            yield self
            server.shutdown()


@pytest.fixture
def host() -> Iterator[Host]:
    with steered_host() as host:
        yield host


def submit(host: Host, name: str, *argv: str) -> None:
    options = JobOptions(program=list(argv) or program(), name=name, deadline="10m")
    host.submit(submission_of(options, process_started_at(), host.capacity, None))
    wait_until(lambda: host.has_ended(JobId(name)))


FAILING = (sys.executable, "-c", "raise SystemExit(3)")


def test_a_notice_is_posted_once_also_beyond_a_new_daemon(host: Host) -> None:
    with Receiver().listening() as receiver:
        submit(host, "before")
        with Notifier(NotifyOptions(url=f"{receiver.url}/hook"), host):
            submit(host, "lands")
            submit(host, "fails", *FAILING)
        with Notifier(NotifyOptions(url=receiver.url), host):
            pass
    told = {each["job"]: each for each in receiver.got}
    assert sorted(each["job"] for each in receiver.got) == ["fails", "lands"], "each once, and none of before"
    assert set(receiver.paths) == {"/hook"}
    assert (told["lands"]["kind"], told["fails"]["kind"]) == ("landed", "failed")
    assert told["fails"]["text"].startswith("fails: Failed: exit status 3; took ")
    assert told["lands"]["deadline"] > told["lands"]["landing"] > ""


def test_a_receiver_that_is_busy_is_asked_again_and_one_that_refuses_is_not(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    with Receiver([503, 204, 404, 307]).listening() as receiver, Notifier(NotifyOptions(url=receiver.url), host):
        submit(host, "one")
        wait_until(lambda: len(receiver.paths) == 2)
        submit(host, "two")
        wait_until(lambda: len(receiver.paths) == 3)
        submit(host, "three")
        wait_until(lambda: len(receiver.paths) == 4)
        wait_until(lambda: "307" in caplog.text)
        submit(host, "four")
        wait_until(lambda: len(receiver.got) == 2)
    assert [each["job"] for each in receiver.got] == ["one", "four"]
    assert "/elsewhere" not in receiver.paths, "no redirect is followed"
    assert "the notice that two is landed was not taken by http://127.0.0.1: status 404" in caplog.text


def test_a_receiver_that_is_away_is_said_and_costs_nothing_else(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver().listening() as receiver:
        url = receiver.url
    with Notifier(NotifyOptions(url=f"{url}/secret-token"), host):
        submit(host, "one")
    assert "was not taken by http://127.0.0.1: " in caplog.text
    assert "secret-token" not in caplog.text


def test_a_command_gets_each_notice(host: Host, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    script = tmp_path / "told.py"
    script.write_text(
        "import json, os, pathlib, sys\n"
        "told = {**json.load(sys.stdin), 'variable': os.environ['PUNCTUAL_NOTICE_KIND']}\n"
        f"pathlib.Path({str(tmp_path)!r}, told['job'] + '.json').write_text(json.dumps(told))\n"
        "raise SystemExit(told['kind'] == 'failed' and 9)\n"
    )
    with Notifier(NotifyOptions(command=shlex.join([sys.executable, str(script)])), host):
        submit(host, "lands")
        submit(host, "fails", *FAILING)
    told = json.loads((tmp_path / "lands.json").read_text())
    assert (told["kind"], told["variable"]) == ("landed", "landed")
    assert "the notice that fails is failed: the command for notices ended with status 9" in caplog.text


def test_a_command_that_hangs_is_ended_with_what_it_has_started(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("punctual.api.notifier._COMMAND_S_MAX", 1.0)
    command = f"sh -c 'sleep 600 & echo $! > {tmp_path}/pid; wait'"
    with Notifier(NotifyOptions(command=command), host):
        submit(host, "one")
    assert "took longer than 1 s, and was ended" in caplog.text
    pid = int((tmp_path / "pid").read_text())
    wait_until(lambda: not Path(f"/proc/{pid}").exists() or "State:\tZ" in Path(f"/proc/{pid}/status").read_text())


def test_a_command_may_write_megabytes_and_fills_no_log(
    host: Host, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    script = tmp_path / "loud.py"
    script.write_text("print('no such user', 'x' * 5_000_000)\nprint('\\x1b[31m' * 1000)\nraise SystemExit(4)\n")
    with Notifier(NotifyOptions(command=shlex.join([sys.executable, str(script)])), host):
        submit(host, "one")
    assert "the command for notices ended with status 4; it said: no such user xxx" in caplog.text
    assert len(caplog.text) + sum(map(len, capfd.readouterr())) < 20_000
    assert "\x1b" not in caplog.text


@contextmanager
def _silent_server(*, drips: bool) -> Iterator[tuple[str, list[socket]]]:
    """Yield the address and connections of a server that takes a request and never answers, or byte by byte."""
    is_over, connections = Event(), list[socket]()
    with create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with suppress(OSError):
                while not is_over.is_set():
                    connections.append(server.accept()[0])

        def drip() -> None:
            while not is_over.wait(0.05):
                for connection in connections:
                    with suppress(OSError):
                        connection.sendall(b"H")

        for work in (serve, drip) if drips else (serve,):
            Thread(target=work, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}", connections
        is_over.set()
    for connection in connections:
        connection.close()


@pytest.mark.parametrize("drips", [False, True])
def test_a_receiver_that_never_answers_is_given_up(
    drips: bool, host: Host, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("punctual.api.notifier._ANSWER_S_MAX", 0.2)
    monkeypatch.setattr("punctual.api.notifier._PAUSES_S", (0.0,))
    with _silent_server(drips=drips) as (url, _), Notifier(NotifyOptions(url=url), host):
        submit(host, "one")
        wait_until(lambda: "the notice that one is landed was not taken" in caplog.text)


@pytest.mark.parametrize("receiver", ["command", "url"])
def test_a_daemon_that_leaves_its_jobs_waits_for_no_receiver(
    receiver: str, host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next daemon tells of what this one could not."""
    for name in ("_COMMAND_S_MAX", "_ANSWER_S_MAX", "_LAST_S_MAX"):
        monkeypatch.setattr(f"punctual.api.notifier.{name}", 600.0)
    command = f"sh -c 'echo $$ > {tmp_path}/pid; exec sleep 600'" if receiver == "command" else None
    waiting = [sys.executable, "-c", "import time; time.sleep(600)"]
    with Receiver().listening() as later, _silent_server(drips=False) as (url, connections):
        with Notifier(NotifyOptions(command=command, url=None if command else url), host):
            options = JobOptions(program=waiting, name="goes-on", deadline="10m")
            host.submit(submission_of(options, process_started_at(), host.capacity, None))
            submit(host, "one")
            wait_until(lambda: (tmp_path / "pid").exists() if command else connections)
        if command:
            pid = int((tmp_path / "pid").read_text())
            wait_until(lambda: not Path(f"/proc/{pid}").exists())
        with Notifier(NotifyOptions(url=later.url), host):
            wait_until(lambda: [each["job"] for each in later.got] == ["one"])
    host.stop(JobId("goes-on"), "the test is over")
    wait_until(lambda: host.has_ended(JobId("goes-on")))


@pytest.mark.parametrize("mode", [0o644, None])
def test_a_command_that_cannot_be_run_is_refused(mode: int | None, tmp_path: Path) -> None:
    script = tmp_path / "notify"
    if mode is not None:
        script.write_text("#!/bin/sh\n")
        script.chmod(mode)
    with pytest.raises(InvalidSpec, match="a program that can be run"):
        NotifyOptions(command=f"{script} now").check()


def test_a_command_is_found_from_another_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert NotifyOptions(command="./notify 'a b'").at_home().command == f"{tmp_path}/notify 'a b'"
    assert NotifyOptions(command="notify-send  x").at_home().command == "notify-send  x"


def test_a_change_that_came_while_no_daemon_was_there_is_told_by_the_next_one(host: Host) -> None:
    submit(host, "lands")
    with Receiver().listening() as receiver:
        database = ServiceDatabase(service_root())
        with database.writing() as connection:
            connection.execute("INSERT INTO notice VALUES (?, 'lands', NULL, 1e12)", (host.run_folder.name,))
        database.close()
        with Notifier(NotifyOptions(url=receiver.url), host):
            pass
    assert [each["job"] for each in receiver.got] == ["lands"]


def test_what_cannot_be_noted_is_sent_all_the_same(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    with Receiver().listening() as receiver, Notifier(NotifyOptions(url=receiver.url), host):
        submit(host, "one")
        wait_until(lambda: len(receiver.got) == 1)
        database = ServiceDatabase(service_root())
        with database.writing() as connection:  # another process keeps it locked, as a backup may
            connection.execute("DELETE FROM notice")
            for name in ("two", "three"):
                submit(host, name)
            wait_until(lambda: len(receiver.got) == 3)
        database.close()
        submit(host, "four")
        wait_until(lambda: len(receiver.got) == 4)
    assert [each["job"] for each in receiver.got] == ["one", "two", "three", "four"]
    assert caplog.text.count("cannot be noted: ") == 1


def test_notices_are_sent_beside_a_damaged_database(host: Host, caplog: pytest.LogCaptureFixture) -> None:
    (service_root() / "service.db").write_bytes(b"garbage" * 2000)
    with Receiver().listening() as receiver, Notifier(NotifyOptions(url=receiver.url), host):
        submit(host, "one")
        wait_until(lambda: len(receiver.got) == 1)
    assert "cannot be noted: the database of the service must be whole" in caplog.text


def test_nothing_is_remembered_of_jobs_that_the_host_has_forgotten() -> None:
    found = NoticeFilter()
    for n in range(100):
        assert len(list(found.changes([replace(LATE, spec=replace(LATE.spec, id=JobId(f"job-{n}")))], 1e4 * n))) == 1
    assert list(found.known) == ["job-99"]


def test_a_receiver_that_hangs_delays_no_other_one_and_the_order_is_kept(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.api.notifier._ANSWER_S_MAX", 600.0)
    monkeypatch.setattr("punctual.api.notifier._LAST_S_MAX", 0.0)
    told = tmp_path / "told"
    command = f"sh -c 'echo $PUNCTUAL_NOTICE_JOB >> {told}'"
    names = ["one", "two", "three"]
    with _silent_server(drips=False) as (url, connections), Notifier(NotifyOptions(url=url, command=command), host):
        for n, name in enumerate(names, start=1):
            submit(host, name)
            wait_until(lambda: told.read_text().split() if told.exists() else [], lambda seen: seen == names[:n])  # noqa: B023
        assert len(connections) == 1
    assert told.read_text().split() == names


def test_a_receiver_that_is_away_is_asked_once_for_each_notice_until_it_is_back(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.api.notifier._PAUSES_S", (0.0, 0.0))
    with Receiver([503] * 4).listening() as receiver, Notifier(NotifyOptions(url=receiver.url), host):
        for name, n_asked in (("one", 3), ("two", 4), ("three", 5)):
            submit(host, name)
            wait_until(lambda: len(receiver.paths), lambda seen: seen == n_asked)  # noqa: B023 -- it is done by then
    assert [each["job"] for each in receiver.got] == ["three"]


def test_what_a_receiver_cannot_take_in_time_is_dropped_and_said(
    host: Host, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("punctual.api.notifier.N_WAITING_MAX", 1)
    monkeypatch.setattr("punctual.api.notifier._LAST_S_MAX", 0.0)
    begun = tmp_path / "begun"
    with Notifier(NotifyOptions(command=f"sh -c 'touch {begun}; sleep 600'"), host):
        submit(host, "one")
        wait_until(begun.exists)
        submit(host, "two")
        submit(host, "three")
        wait_until(lambda: "1 notices were dropped" in caplog.text)


#: A daemon of one job, with a command for notices that hangs with a process of its own, beyond its session.
NOTIFYING = """
import sys, time
from tests.api.live_service import steered_host
from tests.api.test_notices import submit
from punctual.api.notifier import Notifier, NotifyOptions

with steered_host() as host, Notifier(NotifyOptions(command=sys.argv[1]), host):
    submit(host, "one")
    time.sleep(600)
"""


def test_a_command_does_not_outlive_a_daemon_that_is_killed(tmp_path: Path) -> None:
    pids = [tmp_path / "pid", tmp_path / "other-pid"]
    command = f"sh -c 'setsid sleep 600 & echo $! > {pids[1]}; echo $$ > {pids[0]}; wait'"
    daemon = ForkedPython([sys.executable, "-c", NOTIFYING, command])
    try:
        wait_until(lambda: all(pid.exists() and pid.read_text() for pid in pids) or daemon.poll() is not None)
    finally:
        daemon.kill()
        daemon.wait()
    places = [Path(f"/proc/{pid.read_text().strip()}") for pid in pids]
    wait_until(lambda: not any(place.exists() for place in places))
