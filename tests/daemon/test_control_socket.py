"""Requests over the socket, and who may be where."""

import json
import os
import socket
import stat
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from threading import Event, active_count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import wait_until

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.daemon import control_socket
from punctual.daemon.control_client import change, is_silent
from punctual.daemon.control_socket import FDS, ControlFailed, ControlSilent, ControlSocket, ask
from punctual.daemon.run_folder import create_run
from punctual.daemon.runs import find_job, open_jobs
from punctual.executors.local.process_tree import state_of
from punctual.request.spec_change import SpecChange


def echo(request: dict[str, Any]) -> dict[str, Any]:
    return {"you said": request}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "control.sock"


def test_answers(path: Path) -> None:
    with ControlSocket(path, echo):
        assert ask(path, {"verb": "größe", "n": 1}) == {"you said": {"verb": "größe", "n": 1}}
        assert ask(path, {}) == {"you said": {}}


def test_is_for_its_owner_only_and_goes_with_the_run(path: Path) -> None:
    with ControlSocket(path, echo):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert not path.exists()
    with pytest.raises(ControlFailed, match="no answer"):
        ask(path, {})


def test_a_refusal_keeps_all_its_parts(path: Path) -> None:
    other = InvalidSpec("`weight` must be above zero", "-1", "job 'a'", "Give a positive one.", option="weight")
    refusal = InvalidSpec(
        "`deadline` must be later than now",
        "10 s ago",
        "job 'a'",
        "Give a later one.",
        option="deadline",
        others=[other],
    )

    def refuse(request: dict[str, Any]) -> dict[str, Any]:
        raise refusal

    with ControlSocket(path, refuse), pytest.raises(InvalidSpec) as caught:
        ask(path, {})
    assert str(caught.value) == str(refusal)
    assert caught.value.as_fields() == refusal.as_fields()
    assert [error.option for error in caught.value.all()] == ["deadline", "weight"]
    assert str(caught.value.others[0]) == str(other)


def test_a_failure_is_told_and_survived(path: Path) -> None:
    def fail(request: dict[str, Any]) -> dict[str, Any]:
        if request:
            return request
        raise KeyError("nothing")

    with ControlSocket(path, fail):
        with pytest.raises(ControlFailed, match="KeyError"):
            ask(path, {})
        assert ask(path, {"a": 1}) == {"a": 1}


def test_a_daemon_of_another_version_is_not_taken_for_one_that_hangs(tmp_path: Path) -> None:
    run = create_run("old")
    run.record_job(JobId("a"), "running")

    def fail(request: dict[str, Any]) -> dict[str, Any]:
        raise TypeError("an unexpected field")

    with ControlSocket(run.socket, fail), pytest.raises(InvalidSpec, match="an unexpected field") as caught:
        change(find_job("a", open_jobs()), SpecChange(weight=2.0))
    assert "punctual down --jobs continue" in caught.value.remedy


def test_a_daemon_that_refuses_to_tell_how_its_jobs_are_is_not_silent() -> None:
    run = create_run("other")

    def refuse(request: dict[str, Any]) -> dict[str, Any]:
        raise InvalidSpec("a daemon must know what it is asked", "a request that it does not", "it", "Ask otherwise.")

    with ControlSocket(run.socket, refuse):
        assert not is_silent(run)


@pytest.mark.parametrize("line", [b"no json\n", b"[]\n", b"\xff\n"])
def test_a_request_that_is_none_is_answered_with_a_failure(path: Path, line: bytes) -> None:
    with ControlSocket(path, echo):
        with socket.socket(socket.AF_UNIX) as client, client.makefile("rwb") as lines:
            client.connect(str(path))
            lines.write(line)
            lines.flush()
            assert "failed" in json.loads(lines.readline())
        assert ask(path, {}) == {"you said": {}}


def test_a_client_that_says_nothing_holds_up_nobody(path: Path) -> None:
    with ControlSocket(path, echo), socket.socket(socket.AF_UNIX) as silent:
        silent.connect(str(path))
        assert ask(path, {}) == {"you said": {}}


def test_a_client_that_says_a_letter_now_and_then_is_sent_away(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_REQUEST_S", 0.3)
    with ControlSocket(path, echo), socket.socket(socket.AF_UNIX) as slow:
        slow.connect(str(path))
        slow.settimeout(0.05)

        def is_sent_away() -> bool:
            try:
                slow.send(b"x")
                return slow.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        wait_until(is_sent_away)
        assert ask(path, {}) == {"you said": {}}


def refusal(path: Path) -> str:
    """Why there is no answer; empty: there is one."""
    try:
        ask(path, {})
    except ControlFailed as failed:
        return str(failed)
    return ""


def test_too_many_clients_are_sent_away_and_take_no_thread(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(control_socket, "_N_CLIENTS_MAX", 4)
    with ControlSocket(path, echo), ExitStack() as open_ones:
        n_threads = active_count()
        silent = [open_ones.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(200)]
        for client in silent:
            client.connect(str(path))
        wait_until(lambda: refusal(path), lambda said: "too many others" in said)
        assert active_count() <= n_threads + 4
        for client in silent:
            client.close()

        wait_until(lambda: refusal(path) == "")


@given(st.binary(max_size=200) | st.text('[{"0:,}]ab\\u', max_size=200).map(str.encode))
def test_any_line_has_an_answer(line: bytes) -> None:
    answer = control_socket._envelope(line, echo)
    assert set(answer) <= {"answer", "failed"}
    json.dumps(answer)


@pytest.mark.parametrize("line", [b"[" * 100_000, b"9" * 100_000, b'{"a":' * 100_000])
def test_a_line_without_end_has_an_answer(line: bytes) -> None:
    assert "failed" in control_socket._envelope(line, echo)


def test_descriptors_come_with_a_request_and_are_closed_after_it(path: Path) -> None:
    came: list[int] = []

    def copy(request: dict[str, Any]) -> dict[str, Any]:
        came.extend(request.get(FDS, ()))
        return {"read": [os.read(fd, 100).decode() for fd in request.get(FDS, ())]}

    reading, writing = os.pipe()
    try:
        os.write(writing, b"sent")
        with ControlSocket(path, copy):
            assert ask(path, {"verb": "submit"}, fds=[reading]) == {"read": ["sent"]}
            assert ask(path, {FDS: [reading]}) == {"read": []}, "a number is none"
        (there,) = came
        assert there != reading
        wait_until(lambda: not Path(f"/proc/self/fd/{there}").exists())
    finally:
        os.close(reading)
        os.close(writing)


def test_a_slow_answer_is_given_up_on(path: Path) -> None:
    may_answer = Event()

    def wait(request: dict[str, Any]) -> dict[str, Any]:
        may_answer.wait(30.0)
        return {}

    with ControlSocket(path, wait):
        with pytest.raises(ControlFailed, match="no answer"):
            ask(path, {}, timeout_s=0.05)
        may_answer.set()


#: Listens at a socket, stopped.
STOPPED = """
import os, signal, socket, sys
listening = socket.socket(socket.AF_UNIX)
listening.bind(sys.argv[1])
listening.listen()
os.kill(os.getpid(), signal.SIGSTOP)
"""


@pytest.mark.parametrize("n_bytes", [1, 1 << 24])
def test_a_process_that_is_stopped_is_not_waited_for(path: Path, n_bytes: int) -> None:
    slow: list[int] = []
    with subprocess.Popen([sys.executable, "-c", STOPPED, str(path)]) as stopped:
        try:
            wait_until(lambda: state_of(stopped.pid) == "T")
            with pytest.raises(ControlSilent, match=f"process {stopped.pid} is stopped"):
                ask(path, {"text": "x" * n_bytes}, timeout_s=3600.0, on_slow=slow.append)
        finally:
            stopped.kill()
    assert slow == [stopped.pid]


def test_long_requests_have_long_answers(path: Path) -> None:
    text = "ö" * (1 << 22)
    with ControlSocket(path, echo):
        assert ask(path, {"text": text}) == {"you said": {"text": text}}


def test_a_socket_left_behind_is_replaced(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()
    with ControlSocket(path, echo):
        assert ask(path, {}) == {"you said": {}}


def test_a_socket_that_answers_is_not(path: Path) -> None:
    with ControlSocket(path, echo):
        with pytest.raises(InvalidSpec, match="a socket that answers"):
            ControlSocket(path, echo)
        assert ask(path, {}) == {"you said": {}}


def test_another_file_is_left_alone(path: Path) -> None:
    path.write_text("mine")
    with pytest.raises(InvalidSpec, match="another kind of file"):
        ControlSocket(path, echo)
    assert path.read_text() == "mine"


def test_closing_twice(path: Path) -> None:
    opened = ControlSocket(path, echo)
    opened.close()
    opened.close()
    assert not path.exists()


def test_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 20) / ("longer" * 20)
    folder.mkdir(parents=True)
    path = folder / "control.sock"
    n_open = len(list(Path("/proc/self/fd").iterdir()))
    with ControlSocket(path, echo):
        assert ask(path, {"a": 1}) == {"you said": {"a": 1}}
    assert not path.exists()
    assert len(list(Path("/proc/self/fd").iterdir())) <= n_open
