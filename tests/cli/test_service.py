"""The service: it stays when jobs have ended, takes over what runs, and leaves jobs as it is told to."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from tests.api.collector import collector
from tests.api.test_notices import Receiver
from tests.cli.programs import objects
from tests.cli.test_sharing import NAMED, SharedMachine, finished
from tests.waiting import PATIENCE_S, wait_until

from punctual.cli.up import UpOptions, unit
from punctual.core.events import JobFinished, JobSubmitted, SteeringResumed
from punctual.core.ids import JobId
from punctual.daemon.detached import LOG_BYTES_MAX
from punctual.executors.local.supervisor_client import LEASE_S

RUN = "daemon"


class Service(SharedMachine):
    """A machine with a service.

    Attributes
    ----------
    told
        What the last service has told of itself.
    """

    told: dict[str, Any]

    def up(self, *options: str) -> "subprocess.Popen[str]":
        """A service that has told that it runs."""
        service = self.start("up", "--actuator", "pacing", "--json", *(options or ("--listen", "none")))
        assert service.stdout is not None
        line = service.stdout.readline()
        assert line, service.communicate()
        self.told = json.loads(line)
        assert self.told["pid"] == service.pid
        return service

    def kill(self, service: "subprocess.Popen[str]") -> None:
        self.hold_back_successors()
        service.kill()
        service.wait()

    def states(self) -> dict[str, str]:
        return {job["job"]: job["state"] for job in self.jobs()}


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.let("a", "b", "c")
    made.close()
    wait_until(made.has_cleared_up)


def left(service: "subprocess.Popen[str]") -> str:
    """What a service says that has ended as it should."""
    _, errors = service.communicate(timeout=PATIENCE_S)
    assert service.returncode == 0, errors
    return errors


def test_a_service_has_the_jobs_of_other_commands_and_stays_when_they_have_ended(machine: Service) -> None:
    service = machine.up()
    a = machine.begin_job("a")
    assert machine.daemon_pid() == service.pid
    machine.let("a")
    assert finished(a)[0] == "trained a\n"
    b = machine.begin_job("b")
    machine.let("b")
    finished(b)
    ended = machine.tell("down")
    assert ended.returncode == 0, ended.stderr
    assert "No job was left" in left(service)
    assert machine.runs() == [RUN]
    submitted = [message.spec.id for message in machine.messages(RUN) if isinstance(message, JobSubmitted)]
    assert submitted == ["a", "b"]


def test_of_two_services_the_second_is_refused(machine: Service) -> None:
    service = machine.up()
    for command in (["up"], ["up", "--detach"]):
        refused = machine.punctual(*command)
        assert refused.returncode == 2
        assert "one service at a time" in refused.stderr
        assert f"process {service.pid}" in refused.stderr
        assert "punctual down" in refused.stderr
    service.send_signal(signal.SIGINT)
    assert "(SIGINT)" in left(service)


def test_a_service_that_has_had_no_job_leaves_nothing(machine: Service) -> None:
    service = machine.up()
    service.terminate()
    left(service)
    assert machine.runs() == []
    assert machine.jobs() == []


def test_a_service_takes_the_place_of_a_command_which_then_follows(machine: Service) -> None:
    a, b = machine.begin_job("a", "--json"), machine.begin_job("b")
    service = machine.up()
    assert machine.daemon_pid() == service.pid
    wait_until(lambda: machine.states() == {"a": "running", "b": "running"})
    machine.let("a", "b")
    output, errors = a.communicate(timeout=PATIENCE_S)
    assert a.returncode == 0, errors
    assert objects(output)[-1]["steps_done"] == 60
    assert "resumed" in [line["type"] for line in objects(output)]
    finished(b)
    service.terminate()
    left(service)
    assert [machine.n_starts(name) for name in "ab"] == [1, 1]
    assert machine.runs() == ["daemon"]


def test_no_job_is_lost_or_run_twice_when_the_service_is_killed(machine: Service) -> None:
    service = machine.up()
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    machine.kill(service)
    assert machine.states() == {"a": "unsteered"}
    again = machine.up()
    assert machine.daemon_pid() == again.pid
    wait_until(lambda: machine.states() == {"a": "running"})
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    again.terminate()
    left(again)
    resumed = [message for message in machine.messages(RUN) if isinstance(message, SteeringResumed)]
    assert [set(message.granted) for message in resumed] == [{"a"}]
    assert machine.n_starts("a") == 1


def test_the_next_command_takes_the_jobs_of_a_service_that_was_killed(machine: Service) -> None:
    service = machine.up()
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    machine.kill(service)
    b = machine.begin_job("b")
    assert machine.daemon_pid() not in (0, service.pid)
    assert machine.states() == {"a": "running", "b": "running"}
    again = machine.up()
    assert machine.daemon_pid() == again.pid
    machine.let("a", "b")
    finished(b)
    wait_until(lambda: machine.jobs() == [])
    again.terminate()
    left(again)
    assert [machine.n_starts(name) for name in "ab"] == [1, 1]


def test_a_service_takes_the_place_of_one_that_is_stopped_and_its_http_socket(machine: Service) -> None:
    stopped = machine.up("--listen", "127.0.0.1:0")
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    machine.hold_back_successors()
    stopped.send_signal(signal.SIGSTOP)
    try:
        again = machine.up("--listen", "127.0.0.1:0")
    finally:
        stopped.send_signal(signal.SIGCONT)
    stopped.communicate(timeout=PATIENCE_S)
    assert stopped.returncode in (1, -signal.SIGKILL)  # killed if it was just writing its journal
    assert machine.daemon_pid() == again.pid
    wait_until(lambda: machine.states() == {"a": "running"})
    assert (machine.home / "runtime" / "service" / f"api-{os.uname().nodename}.sock").exists()
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    again.terminate()
    left(again)
    assert machine.n_starts("a") == 1


def test_a_stopped_service_without_a_job_is_replaced_by_the_next_service(machine: Service) -> None:
    stopped = machine.up()
    stopped.send_signal(signal.SIGSTOP)
    try:
        again = machine.punctual("up", "--detach", "--actuator", "pacing", "--listen", "none")
        assert again.returncode == 0, again.stderr
    finally:
        stopped.send_signal(signal.SIGCONT)
    stopped.communicate(timeout=PATIENCE_S)
    assert machine.daemon_pid() not in (0, stopped.pid)
    machine.let("a")
    finished(machine.submit("a"))
    assert machine.tell("down").returncode == 0


def test_a_service_takes_over_a_job_whose_command_was_killed(machine: Service) -> None:
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    service = machine.up()
    wait_until(lambda: machine.states() == {"a": "running"})
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    service.terminate()
    left(service)
    assert machine.n_starts("a") == 1


def test_jobs_go_on_when_the_service_ends(machine: Service) -> None:
    service = machine.up()
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    ended = machine.tell("down", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [(job["job"], job["became"]) for job in objects(ended.stdout)] == [("a", "unsteered")]
    assert "punctual up" in objects(ended.stdout)[0]["text"]
    assert "1 job left" in left(service)
    assert machine.states() == {"a": "unsteered"}
    machine.let("a")


def test_a_command_that_waits_for_its_job_steers_it_when_the_service_has_ended(machine: Service) -> None:
    service = machine.up()
    a = machine.begin_job("a")
    assert machine.tell("down").returncode == 0
    left(service)
    wait_until(machine.daemon_pid, lambda pid: pid not in (0, service.pid))
    machine.let("a")
    assert finished(a)[0] == "trained a\n"


def test_jobs_are_stopped_with_the_service_if_that_is_asked(machine: Service) -> None:
    service = machine.up()
    a = machine.begin_job("a")
    ended = machine.tell("down", "--jobs", "stop", "--json")
    assert ended.returncode == 0, ended.stderr
    assert [(job["job"], job["became"]) for job in objects(ended.stdout)] == [("a", "stopped")]
    left(service)
    _, told = a.communicate(timeout=PATIENCE_S)
    assert a.returncode == 128 + signal.SIGTERM
    assert "The job was stopped (`punctual down`)" in told
    assert machine.jobs() == []


def test_jobs_that_are_paused_with_the_service_stand_still_until_they_are_resumed(machine: Service) -> None:
    service = machine.up()
    script = machine.script(NAMED, "a.py")
    assert machine.punctual("submit", "--name", "a", "--", *script, "a").returncode == 0
    pid = int(wait_until(lambda: machine.folder.joinpath("a.begun").read_text() if machine.n_starts("a") else ""))
    ended = machine.tell("down", "--jobs", "pause", "--json")
    assert ended.returncode == 0, ended.stderr
    (told,) = objects(ended.stdout)
    assert (told["job"], told["became"]) == ("a", "paused")
    assert told["text"] == "stands still until it is resumed: punctual up, then punctual resume a"
    left(service)

    machine.let("a")  # it would end at once if it went on
    used_s = cpu_s(pid)
    time.sleep(1.5 * LEASE_S)  # its supervisor has noticed by now that nobody steers it
    assert cpu_s(pid) == used_s
    assert machine.jobs() == [{"job": "a", "state": "paused", "paused": "paused by the user: `punctual down`"}]
    listed = machine.tell("ps")
    assert "(paused by the user: `punctual down`). Have it go on: punctual up, then punctual resume a" in listed.stderr
    assert json.loads(machine.tell("show", "a", "--json").stdout)["state"] == "paused"
    again = machine.up()
    (paused,) = wait_until(machine.jobs, lambda jobs: [job["state"] for job in jobs] == ["paused"])
    assert paused["paused"] == "paused by the user: `punctual down`"
    assert cpu_s(pid) == used_s
    assert machine.tell("resume", "a").returncode == 0
    wait_until(lambda: not any(row.pause for row in machine.run_folder(RUN).rows()))
    wait_until(lambda: machine.jobs() == [])
    again.terminate()
    left(again)
    assert machine.run_folder(RUN).log(JobId("a")).read_text().startswith("trained a\n")
    assert machine.n_starts("a") == 1
    assert [type(message) for message in machine.messages(RUN) if isinstance(message, JobFinished)] == [JobFinished]


def cpu_s(pid: int) -> float:
    """CPU time that a process has used, in ticks of the kernel as seconds; raises if it is gone."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_without_a_service_there_is_none_to_end(machine: Service) -> None:
    refused = machine.tell("down")
    assert refused.returncode == 2
    assert "a daemon must run" in refused.stderr


def test_a_service_in_the_background_outlives_the_command_that_starts_it(machine: Service) -> None:
    started = machine.punctual("up", "--detach", "--actuator", "pacing", "--listen", "none", "--json")
    assert started.returncode == 0, started.stderr
    told = json.loads(started.stdout)
    assert machine.daemon_pid() == told["pid"]
    assert [Path(address).name for address in told["addresses"]] == ["control.sock"]
    assert told["token_file"] is None
    submitted = machine.punctual("submit", "--name", "a", "--", sys.executable, "-c", "print('said by the job')")
    assert submitted.returncode == 0, submitted.stderr
    wait_until(lambda: machine.jobs() == [])
    assert machine.tell("down").returncode == 0
    log = machine.home / "state" / "daemon.log"
    assert "the daemon has ended" in log.read_text()
    assert "said by the job" not in log.read_text()  # only in its own log, which is removed with it
    assert log.stat().st_mode & 0o077 == 0
    assert "said by the job" in machine.run_folder(RUN).log(JobId("a")).read_text()


def test_a_service_in_the_background_tells_which_jobs_it_took_over(machine: Service) -> None:
    options = ("up", "--detach", "--actuator", "pacing", "--listen", "none", "--json")
    assert json.loads(machine.punctual(*options).stdout)["taken_over"] == []
    assert machine.punctual("submit", "--name", "a", "--", *machine.script(NAMED, "a.py"), "a").returncode == 0
    wait_until(lambda: machine.states() == {"a": "running"})
    assert machine.tell("down").returncode == 0
    assert json.loads(machine.punctual(*options).stdout)["taken_over"] == ["a"]
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    assert machine.tell("down").returncode == 0


def test_a_service_answers_over_http_whoever_has_its_token(machine: Service) -> None:
    service = machine.up("--listen", "127.0.0.1:0")
    address = next(address for address in machine.told["addresses"] if address.startswith("http"))
    token_file = machine.home / "state" / "service" / "token"
    with pytest.raises(HTTPError) as refused:
        urlopen(f"{address}/v1/jobs")
    assert refused.value.code == 401
    refused.value.close()
    a = machine.begin_job("a")
    request = Request(f"{address}/v1/jobs", headers={"Authorization": f"Bearer {token_file.read_text().strip()}"})
    with urlopen(request) as answer:
        assert [job["name"] for job in json.load(answer)["jobs"]] == ["a"]
    machine.let("a")
    finished(a)
    service.terminate()
    left(service)


@pytest.mark.parametrize(
    "options",
    [
        ["--tls-cert", "a.pem"],
        ["--listen", "nowhere"],
        ["--listen", "0.0.0.0:0"],
        ["--listen", "*:0"],
        ["--host-name", "a:80"],
    ],
)
def test_where_a_service_cannot_listen_is_refused(machine: Service, options: list[str]) -> None:
    refused = machine.punctual("up", *options)
    assert refused.returncode == 2
    assert refused.stderr.startswith("error: ")
    assert "Traceback" not in refused.stderr


def test_notices_are_sent_by_a_service_and_not_again_by_the_next_one(machine: Service) -> None:
    with Receiver().listening() as receiver:
        service = machine.up("--listen", "none", "--notify-url", receiver.url)
        machine.punctual("submit", "--name", "fails", "--", sys.executable, "-c", "raise SystemExit(3)")
        wait_until(lambda: receiver.got)
        machine.punctual("submit", "--name", "goes-on", "--", *machine.script("import time; time.sleep(600)"))
        wait_until(lambda: machine.states() == {"goes-on": "running"})
        machine.kill(service)
        machine.environment["PUNCTUAL_NOTIFY_URL"] = receiver.url  # as well as the option
        service = machine.up("--listen", "none")
        machine.punctual("submit", "--name", "lands", "--", "true")
        wait_until(lambda: len(receiver.got) == 2)
    assert [(each["job"], each["kind"]) for each in receiver.got] == [("fails", "failed"), ("lands", "landed")]
    machine.punctual("stop", "goes-on")


def test_a_daemon_that_ends_with_its_job_has_told_of_it(machine: Service) -> None:
    told = machine.folder / "told"
    machine.environment["PUNCTUAL_NOTIFY_COMMAND"] = f"cp /dev/stdin {told}"
    assert machine.punctual("run", "--actuator", "pacing", "--name", "one", "--", "true").returncode == 0
    wait_until(lambda: told.exists() and told.read_text().endswith("}\n"))
    notice = json.loads(told.read_text())
    assert (notice["job"], notice["kind"]) == ("one", "landed")
    assert notice["text"].startswith("one: Done: took ")


@pytest.mark.parametrize("option", [("--notify-url", "ftp://example.org"), ("--notify-command", "'unended")])
def test_a_receiver_that_cannot_be_told_is_refused(machine: Service, option: tuple[str, str]) -> None:
    refused = machine.tell("up", *option)
    assert refused.returncode == 2
    assert f"`{option[0]}`" in refused.stderr


def test_the_link_to_the_page_is_told_at_a_terminal_alone(machine: Service) -> None:
    machine.up("--listen", "127.0.0.1:0")
    submitted = machine.punctual("submit", "--name", "one", "--", "true")
    assert "punctual page --open" in submitted.stderr
    assert "token" not in submitted.stderr
    terminal_fd, output_fd = pty.openpty()
    submitting = machine.start_on(output_fd, "submit", "--name", "two", "--", "true")
    os.close(output_fd)
    seen = b""
    with suppress(OSError):  # which says that the terminal's other end is closed
        while piece := os.read(terminal_fd, 65536):
            seen += piece
    os.close(terminal_fd)
    assert submitting.wait(PATIENCE_S) == 0
    assert re.search(rb"punctual ps, or http://127.0.0.1:\d+/#token=\S+&job=two\r\n", seen), seen
    wait_until(lambda: machine.jobs() == [])  # one that waits when the service ends would be left


def test_the_log_of_a_service_in_the_background_is_limited(machine: Service) -> None:
    machine.tell("ps")  # makes the folders
    log = machine.home / "state" / "daemon.log"
    log.write_bytes(b"of an earlier service\n" * (LOG_BYTES_MAX // 20))
    assert machine.punctual("up", "--detach", "--listen", "none").returncode == 0
    wait_until(lambda: log.stat().st_size < LOG_BYTES_MAX)
    assert log.with_name("daemon.log.1").stat().st_size <= LOG_BYTES_MAX + 1000
    assert machine.tell("down").returncode == 0
    assert "has ended" in log.read_text()


def test_it_may_be_asked_by_a_name_that_it_is_given(machine: Service) -> None:
    service = machine.start(
        "up", "--actuator", "pacing", "--json", "--listen", "127.0.0.1:0", "--host-name", "gpu.example"
    )
    assert service.stdout is not None
    told = json.loads(service.stdout.readline())
    address = told["addresses"][-1]
    assert address.startswith("http://gpu.example:")
    token = Path(told["token_file"]).read_text().strip()

    def asked(host: str) -> int:
        headers = {"Authorization": f"Bearer {token}", "Host": host}
        with urlopen(Request(f"http://127.0.0.1:{address.rpartition(':')[2]}/v1/health", headers=headers)) as answer:
            return int(answer.status)

    assert asked("gpu.example") == 200
    with pytest.raises(HTTPError, match="403") as refused:
        asked("other.example")
    assert b"--host-name" in refused.value.read()
    refused.value.close()
    service.terminate()
    left(service)


def test_a_service_that_cannot_start_in_the_background_says_why(machine: Service) -> None:
    refused = machine.punctual("up", "--detach", "--policy", "no-such-policy")
    assert refused.returncode == 2
    assert "no-such-policy" in refused.stderr


def test_the_unit_for_systemd_starts_this_service_and_leaves_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PUNCTUAL_HOME", "/home/a user/runs")
    address = {"listen": "127.0.0.1:80", "tls_key": Path("/key"), "tls_cert": Path("/cert"), "host_name": ["a", "b"]}
    of_command = {"systemd": True, "detach": True, "as_json": True}
    lines = unit(UpOptions.given({"policy": "fifo", **address, **of_command})).splitlines()
    command = next(line for line in lines if line.startswith("ExecStart="))
    assert command.endswith(
        "-m punctual up --policy fifo --listen 127.0.0.1:80 --tls-cert /cert --tls-key /key --host-name a --host-name b"
    )
    assert {"Type=notify", "KillMode=process", "Restart=on-failure"} < set(lines)
    assert "Environment='PUNCTUAL_HOME=/home/a user/runs'" in lines


def test_the_unit_for_systemd_has_paths_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/opt/50%/a$b/python")
    given = UpOptions.given({"tls_key": Path("/a%h$b.pem"), "tls_cert": Path("/cert"), "allow_plain": True})
    command = next(line for line in unit(given).splitlines() if line.startswith("ExecStart="))
    assert command.startswith("ExecStart='/opt/50%%/a$b/python' ")
    assert "'/a%%h$$b.pem'" in command


def test_a_service_tells_a_collector_of_its_jobs(machine: Service) -> None:
    with collector() as server:
        machine.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = server.url
        service = machine.up("--listen", "none")
        a = machine.begin_job("a")
        machine.let("a")
        finished(a)
        machine.tell("down")
        left(service)
        assert {"job", "plan"} <= {span.name for span in server.spans}
        assert "punctual_jobs" in server.metrics


def test_an_environment_that_cannot_be_followed_is_told_and_refused_only_if_asked(machine: Service) -> None:
    machine.environment["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    machine.environment["OTEL_EXPORTER_OTLP_PROTOCOL"] = "grpc"
    refused = machine.punctual("up", "--otel", "--listen", "none")
    assert refused.returncode == 2
    assert "OTEL_EXPORTER_OTLP_PROTOCOL must be http/protobuf" in refused.stderr
    service = machine.up("--listen", "none")
    machine.tell("down")
    assert "no OpenTelemetry: OTEL_EXPORTER_OTLP_PROTOCOL" in left(service)


#: Has Python find neither of the libraries of the extra `service`.
WITHOUT_LIBRARIES = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name in ("fastapi", "uvicorn"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""


@pytest.mark.parametrize("command", [["up", "--detach"], ["submit", "--", "sleep", "0"]], ids=["up", "submit"])
def test_a_service_in_the_background_that_has_no_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: list[str]
) -> None:
    (tmp_path / "sitecustomize.py").write_text(WITHOUT_LIBRARIES)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    machine = Service(tmp_path)
    started = machine.start_python("-m", "punctual", *command)
    _, errors = started.communicate(timeout=PATIENCE_S)
    assert started.returncode == 0, errors
    assert "punctual: no page, and no HTTP: the service needs" in errors
    assert "`pip install fastapi uvicorn`" in errors
    wait_until(lambda: machine.jobs() == [])
    assert machine.tell("down").returncode == 0
    machine.close()
    wait_until(machine.has_cleared_up)
