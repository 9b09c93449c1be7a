"""Commands that share the machine: one daemon for all, which outlives each of them, and is replaced where it is killed."""

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import SPIN, Terminal, objects
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.events import JobStarted, JobSubmitted, SteeringResumed
from punctual.core.ids import JobId
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import messages_of

#: Waits, when it has begun, for a file of its own; says how often it was started.
NAMED = (
    SPIN
    + """
import os, pathlib, sys, time, punctual
name = sys.argv[1]
with open(name + ".begun", "a") as begun:
    begun.write(f"{os.getpid()}\\n")
for i in punctual.track(range(60), total_steps=60):
    step(0.0005)
    while i == 20 and not pathlib.Path(name + ".go").exists():
        time.sleep(0.01)
print("trained", name, flush=True)
print("a warning of", name, file=sys.stderr, flush=True)
"""
)


class SharedMachine(Terminal):
    """A terminal whose jobs are called by letters."""

    def begin_job(self, name: str, *options: str) -> "subprocess.Popen[str]":
        """A command with a job that has begun and waits."""
        run = self.submit(name, *options)
        wait_until(lambda: self.n_starts(name) or run.poll() is not None)
        assert run.poll() is None, run.communicate()
        return run

    def submit(self, name: str, *options: str) -> "subprocess.Popen[str]":
        script = self.script(NAMED, f"{name}.py")
        return self.start("run", "--actuator", "pacing", "--name", name, *options, "--", *script, name)

    def n_starts(self, name: str) -> int:
        begun = self.folder / f"{name}.begun"
        return len(begun.read_text().splitlines()) if begun.exists() else 0

    def let(self, *names: str) -> None:
        """Let jobs go on to their ends."""
        for name in names:
            (self.folder / f"{name}.go").touch()

    def runs(self) -> list[str]:
        return sorted(path.name for path in (self.home / "state" / "runs").iterdir())

    def daemon_pid(self) -> int:
        """The daemon of the one live run; 0: none is there just now."""
        folders = [path for path in (self.home / "runtime" / "live").iterdir() if path.is_dir()]
        assert len(folders) == 1
        run = self.run_folder(folders[0].name)
        return run.daemon_pid() or 0

    def messages(self, run: str) -> list[Any]:
        return messages_of(self.run_folder(run))

    def run_folder(self, name: str) -> RunFolder:
        return RunFolder(name, self.home / "runtime" / "live" / name, self.home / "state" / "runs" / name)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SharedMachine]:
    made = SharedMachine(tmp_path)
    yield made
    made.let("a", "b", "c")
    made.close()
    assert made.left_behind() == []


def finished(run: "subprocess.Popen[str]") -> tuple[str, str]:
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    return output, errors


def test_a_second_run_joins_the_first_and_each_shows_its_own_job(machine: SharedMachine) -> None:
    a = machine.begin_job("a")
    b = machine.begin_job("b", "--weight", "2")
    listed = wait_until(machine.jobs, lambda jobs: [job["state"] for job in jobs] == ["running", "running"])
    assert {job["job"]: job["host"] for job in listed} == {"a": "daemon", "b": "daemon"}
    held_cores = sum(job["grant_cores"] for job in listed)
    assert listed[-1]["host_free_cores"] == pytest.approx(listed[-1]["host_cores"] - held_cores, abs=0.5)
    table = machine.tell("ps").stdout
    assert "host daemon (promises-first): " in table
    assert "held by 2 jobs" in table
    machine.let("b")
    output, errors = finished(b)
    assert output == "trained b\n"
    assert "a warning of b" in errors
    assert "started job b" in errors
    assert "job a" not in errors
    machine.let("a")
    assert finished(a)[0] == "trained a\n"
    assert machine.runs() == ["daemon"]
    submitted = [message for message in machine.messages("daemon") if isinstance(message, JobSubmitted)]
    assert [(message.spec.id, message.spec.weight) for message in submitted] == [("a", 1.0), ("b", 2.0)]


@pytest.mark.parametrize("others", [[], ["a"]], ids=["first", "second"])
def test_a_command_whose_terminal_is_closed_goes_on_to_its_report(machine: SharedMachine, others: list[str]) -> None:
    for name in others:
        machine.begin_job(name)
    screen_fd, terminal_fd = pty.openpty()
    script, report = machine.script(NAMED, "b.py"), machine.folder / "b.html"
    options = ["--actuator", "pacing", "--name", "b", "--deadline", "1h", "--report", str(report)]
    b = machine.start_on(terminal_fd, "run", *options, "--", *script, "b")
    os.close(terminal_fd)
    seen = b""
    while b"deadline" not in seen:
        seen += os.read(screen_fd, 65536)
    os.close(screen_fd)
    changed = machine.tell("deadline", "b", "5s")
    assert changed.returncode == 0, changed.stderr
    machine.let("b")
    assert b.wait(PATIENCE_S) == 0
    assert report.exists()


def test_the_name_of_a_job_that_has_ended_can_be_used_again_in_the_same_run(machine: SharedMachine) -> None:
    b = machine.begin_job("b")
    machine.let("a")
    finished(machine.submit("a"))
    (machine.folder / "a.begun").unlink()
    again = machine.begin_job("a", "--weight", "2")
    output, errors = finished(again)
    assert output == "trained a\n"
    assert "punctual: the name 'a' was taken: this job is a-2" in errors
    assert machine.runs() == ["daemon"]
    submitted = [message.spec for message in machine.messages("daemon") if isinstance(message, JobSubmitted)]
    assert [(spec.id, spec.weight) for spec in submitted] == [("b", 1.0), ("a", 1.0), ("a-2", 2.0)]
    assert machine.run_folder("daemon").log(JobId("a-2")).read_text() == "trained a\n"
    assert str(machine.run_folder("daemon").log(JobId("a-2"))) in machine.punctual("why", "a-2").stderr
    machine.let("b")
    finished(b)


def test_two_runs_that_start_at_once_have_one_daemon(machine: SharedMachine) -> None:
    both = [machine.submit(name) for name in "ab"]
    wait_until(lambda: machine.n_starts("a") and machine.n_starts("b"))
    assert len(machine.runs()) == 1
    machine.let("a", "b")
    for run in both:
        finished(run)


def test_a_run_that_wants_to_be_alone_shares_nothing(machine: SharedMachine) -> None:
    a = machine.begin_job("a")
    b = machine.begin_job("b", "--alone")
    machine.let("a", "b")
    finished(a)
    finished(b)
    assert machine.runs() == ["b", "daemon"]


def test_what_is_started_on_other_gpus_is_not_moved_to_those_of_the_daemon(machine: SharedMachine) -> None:
    a = machine.begin_job("a")
    run = machine.run_folder("daemon")
    run.record_facts(gpus=["4096"])
    b = machine.begin_job("b")
    machine.let("a", "b")
    finished(a)
    finished(b)
    assert machine.runs() == ["daemon", "daemon-2"]


def test_a_job_that_the_daemon_refuses_is_told_as_everywhere(machine: SharedMachine) -> None:
    a = machine.begin_job("a")
    for options, must in (
        (("--name", "a"), "`name` must be new"),
        (("--policy", "fifo"), "`--policy` must be that of"),
    ):
        refused = machine.tell("run", *options, "--", "true")
        assert refused.returncode == 2
        assert must in refused.stderr
        assert "to do:" in refused.stderr
    machine.let("a")
    finished(a)


def test_the_command_that_has_started_the_daemon_may_end_first(machine: SharedMachine) -> None:
    a, b = machine.begin_job("a"), machine.begin_job("b", "--deadline", "1h", "--json")
    daemon_pid = machine.daemon_pid()
    machine.let("a")
    finished(a)
    assert machine.daemon_pid() == daemon_pid
    assert machine.tell("deadline", "b", "5s").returncode == 0
    machine.let("b")
    output, errors = finished(b)
    assert "trained b" in errors
    assert (objects(output)[-1]["status"], objects(output)[-1]["steps_done"]) == ("finished", 60)
    wait_until(lambda: machine.daemons() == [])


def test_a_daemon_that_is_killed_is_started_again(machine: SharedMachine) -> None:
    a, b = machine.begin_job("a", "--json"), machine.begin_job("b")
    c = machine.begin_job("c")
    c.kill()
    killed_pid = machine.daemon_pid()
    os.kill(killed_pid, signal.SIGKILL)
    wait_until(machine.daemon_pid, lambda pid: pid not in (0, killed_pid))
    wait_until(lambda: [job["state"] for job in machine.jobs()], lambda states: states == ["running"] * 3)
    machine.let("a", "b", "c")
    output = finished(a)[0]
    assert [line["type"] for line in objects(output)].count("resumed") == 1
    assert finished(b)[0] == "trained b\n"
    wait_until(lambda: machine.daemons() == [])
    messages = machine.messages("daemon")
    assert {message.job for message in messages if isinstance(message, JobStarted)} == {"a", "b", "c"}
    assert sum(isinstance(message, SteeringResumed) for message in messages) == 1
    assert [machine.n_starts(name) for name in "abc"] == [1, 1, 1]


def test_a_command_that_follows_a_job_starts_the_daemon_that_nothing_else_starts(machine: SharedMachine) -> None:
    a = machine.begin_job("a", "--json")
    killed_pid = machine.daemon_pid()
    machine.kill_daemon()
    wait_until(machine.daemon_pid, lambda pid: pid not in (0, killed_pid))
    machine.let("a")
    output = finished(a)[0]
    assert (objects(output)[-1]["status"], machine.n_starts("a")) == ("finished", 1)


def test_the_next_job_takes_up_those_that_nobody_follows(machine: SharedMachine) -> None:
    a = machine.begin_job("a")
    a.kill()
    machine.kill_daemon()
    assert machine.jobs() == [{"job": "a", "state": "unsteered"}]
    b = machine.begin_job("b")
    assert [(job["job"], job["state"], job["host"]) for job in machine.jobs()] == [
        ("a", "running", "daemon"),
        ("b", "running", "daemon"),
    ]
    machine.let("a", "b")
    finished(b)


def test_a_daemon_that_hangs_is_replaced_and_does_no_harm_when_it_goes_on(machine: SharedMachine) -> None:
    a, b = machine.begin_job("a", "--json"), machine.begin_job("b")
    hung_pid = machine.daemon_pid()
    os.kill(hung_pid, signal.SIGSTOP)
    try:
        wait_until(machine.daemon_pid, lambda pid: pid not in (0, hung_pid))
        wait_until(lambda: [job["state"] for job in machine.jobs()], lambda states: states == ["running"] * 2)
        b.send_signal(signal.SIGINT)
        assert b.wait(PATIENCE_S) == 130
    finally:
        os.kill(hung_pid, signal.SIGCONT)
    wait_until(lambda: not Path(f"/proc/{hung_pid}").exists())
    assert [job["state"] for job in machine.jobs()] == ["running"]
    machine.let("a")
    output, errors = finished(a)
    assert errors.count("trained a\n") == 1
    assert [line["type"] for line in objects(output)].count("resumed") == 1
    assert [machine.n_starts(name) for name in "ab"] == [1, 1]


def test_ctrl_c_stops_the_job_of_its_command_alone(machine: SharedMachine) -> None:
    a, b = machine.begin_job("a", "--json"), machine.begin_job("b")
    a.send_signal(signal.SIGINT)
    output, errors = a.communicate(timeout=PATIENCE_S)
    assert a.returncode == 130, errors
    assert "was stopped (Ctrl-C)" in objects(output)[-1]["text"]
    machine.let("b")
    assert finished(b)[0] == "trained b\n"
    assert machine.n_starts("b") == 1


def test_a_job_whose_command_was_killed_is_steered_on(machine: SharedMachine) -> None:
    a = machine.begin_job("a", "--deadline", "1h")
    a.kill()
    a.wait()
    assert [(job["job"], job["state"]) for job in machine.jobs()] == [("a", "running")]
    assert machine.tell("deadline", "a", "5s").returncode == 0
    machine.let("a")
    wait_until(lambda: machine.daemons() == [])
    assert machine.jobs() == []


def test_a_job_that_ended_while_its_command_was_stopped_is_told_with_its_own_status(machine: SharedMachine) -> None:
    a = machine.begin_job("a")
    a.send_signal(signal.SIGSTOP)
    try:
        assert machine.punctual("stop", "a").returncode == 0
        wait_until(lambda: machine.jobs() == [])
    finally:
        a.send_signal(signal.SIGCONT)
    _, errors = a.communicate(timeout=PATIENCE_S)
    assert a.returncode == 143, errors
    assert "was stopped" in errors


def test_from_another_terminal_a_job_is_changed_paused_and_resumed_and_the_policy_exchanged(
    machine: SharedMachine,
) -> None:
    a = machine.begin_job("a", "--deadline", "1h")
    b = machine.submit("b", "--after", "a")
    wait_until(lambda: [job["state"] for job in machine.jobs()], lambda states: states == ["running", "queued"])
    assert machine.jobs()[1]["waits_for"] == ["a"]

    def told(*words: str) -> dict[str, Any]:
        answer = machine.tell(*words, "--json")
        assert answer.returncode == 0, answer.stderr
        return dict(objects(answer.stdout)[-1])

    changed = told("set", "a", "--weight", "2", "--cores", "0.5..1", "--deadline", "+10m")
    assert (changed["weight"], changed["floor_cores"], changed["ceiling_cores"]) == (2.0, 0.5, 1.0)
    assert changed["deadline_s"] == pytest.approx(4200.0)
    assert "must be told what to change" in machine.tell("set", "a").stderr
    assert "only a job that its user has paused" in machine.tell("resume", "a").stderr
    assert told("pause", "a", "--why", "lunch") == {"job": "a"}
    wait_until(
        lambda: machine.jobs()[0], lambda job: (job["state"], job["paused"]) == ("paused", "paused by the user: lunch")
    )
    assert told("policy")["policy"] == "promises-first"
    assert told("policy", "fifo", "--parameter", "size=smallest")["before"] == "promises-first"
    assert told("policy")["parameters"] == {"size": "smallest"}
    assert machine.tell("policy", "unheard-of").returncode == 2
    assert "host daemon: fifo" in machine.tell("policy").stdout
    assert told("resume", "a") == {"job": "a"}
    why = machine.tell("why", "a", "--last", "50").stdout
    for words in (
        "the weight was changed by the user: now 2",
        "paused by the user: lunch",
        "resumed",
        "now fifo (size=smallest), before promises-first",
    ):
        assert words in why
    assert told("deadline", "a", "2s")["left_s"] <= 2.0
    machine.let("a", "b")
    output, lines = finished(a)
    assert output == "trained a\n"
    for words in (
        "the weight was changed by the user: now 2; what it may have was changed by the user: now ",
        "paused by the user: lunch",
        "the policy was changed by the user: now fifo (size=smallest), before promises-first",
        "resumed by the user",
    ):
        assert words in lines
    assert finished(b)[0] == "trained b\n"


#: Runs `punctual` on some of the CPUs.
ON_CPUS = """
import os, runpy, sys
os.sched_setaffinity(0, map(int, sys.argv.pop(1).split(",")))
runpy.run_module("punctual", run_name="__main__", alter_sys=True)
"""
#: Writes its CPUs into a file, and waits.
TELLS_CPUS = """
import os, pathlib, sys, time
name = sys.argv[1]
pathlib.Path(name + ".cpus").write_text(str(sorted(os.sched_getaffinity(0))))
while not pathlib.Path(name + ".go").exists():
    time.sleep(0.01)
"""


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_commands_on_other_cpus_have_the_same_daemon(machine: SharedMachine) -> None:
    one, two, *_ = sorted(os.sched_getaffinity(0))

    def on(cpus: str, *arguments: str) -> "subprocess.Popen[str]":
        return machine.start_forked("-c", ON_CPUS, cpus, *arguments)

    def job(name: str, cpus: str, verb: str = "run") -> "subprocess.Popen[str]":
        options = ["--quiet"] if verb == "run" else []
        return on(cpus, verb, *options, "--name", name, "--", *machine.script(TELLS_CPUS, f"{name}.py"), name)

    def told(name: str) -> str:
        file = machine.folder / f"{name}.cpus"
        return wait_until(lambda: file.read_text() if file.exists() else "")

    a = job("a", f"{one}")
    assert told("a") == f"[{one}]"
    daemon_pid = machine.daemon_pid()
    b, c = job("b", f"{one}"), job("c", f"{one},{two}")
    finished(job("d", f"{two}", "submit"))
    assert {name: told(name) for name in "bcd"} == {"b": f"[{one}]", "c": f"[{one}, {two}]", "d": f"[{two}]"}
    assert machine.daemon_pid() == daemon_pid
    assert machine.runs() == ["daemon"]

    def shares() -> bool:
        """Whether the jobs hold no more than their CPUs have."""
        held = {row["job"]: row["grant_cores"] for row in machine.jobs()}
        return held["a"] + held["b"] <= 1.01 and held["d"] <= 1.01 and sum(held.values()) <= 2.01

    wait_until(shares)
    (pid,) = machine.daemons()
    os.kill(pid, signal.SIGKILL)
    wait_until(machine.daemon_pid, lambda new: new not in (0, pid))
    wait_until(lambda: [row["state"] for row in machine.jobs()] == ["running"] * 4)
    wait_until(shares)
    found = on(f"{two}", "stop", "a")
    assert found.wait(PATIENCE_S) == 0
    assert a.wait(PATIENCE_S) != 0
    machine.let("b", "c", "d")
    for run in (b, c):
        finished(run)
