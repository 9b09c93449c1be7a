"""`punctual submit`: jobs for the daemon, which is started if there is none."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.programs import objects
from tests.cli.test_service import Service, left
from tests.cli.test_sharing import NAMED
from tests.waiting import PATIENCE_S, wait_until

from punctual.core.ids import JobId

#: Says where it runs and with what, and goes on when it may.
TELLING = """
import os, pathlib, sys, time
print(os.getcwd(), os.environ["FLAVOUR"], sys.argv[1], flush=True)
print("to standard error", file=sys.stderr, flush=True)
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""
PACED = ("--actuator", "pacing")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setenv("FLAVOUR", "vanilla")
    made = Service(tmp_path)
    yield made
    made.go_on()
    made.let("a", "b")
    wait_until(lambda: made.jobs() == [])
    made.tell("down")
    made.close()
    assert made.left_behind() == []


def test_a_job_for_which_no_daemon_runs_starts_one(machine: Service) -> None:
    machine.script(TELLING, "tell.py")
    told = machine.punctual("submit", *PACED, "--name", "a", "--", machine.script("")[0], "tell.py", "first")
    assert told.returncode == 0, told.stderr
    assert told.stdout == "a\n"
    assert "punctual: started the daemon, process" in told.stderr
    assert f"punctual: what it says is in {machine.home / 'state' / 'daemon.log'}\n" in told.stderr
    log = machine.run_folder("daemon").log(JobId("a"))
    wait_until(lambda: log.exists() and len(log.read_text().splitlines()) == 2)
    assert set(log.read_text().splitlines()) == {f"{machine.folder} vanilla first", "to standard error"}
    again = machine.punctual("submit", "--json", "--name", "b", "--", machine.script("")[0], "tell.py", "second")
    assert again.stderr == ""
    assert json.loads(again.stdout)["job"] == "b"
    assert machine.runs() == ["daemon"]


def test_of_commands_that_find_no_daemon_at_the_same_time_one_starts_it_for_all(machine: Service) -> None:
    names = ["a", "b", "c"]
    waiting = machine.script("import pathlib, time\nwhile not pathlib.Path('go').exists(): time.sleep(0.05)")
    commands = [machine.start("submit", *PACED, "--name", name, "--", *waiting) for name in names]
    told = [command.communicate(timeout=PATIENCE_S) for command in commands]
    assert [command.returncode for command in commands] == [0, 0, 0], told
    assert [out for out, _ in told] == [f"{name}\n" for name in names]
    assert len(machine.runs()) == 1


def test_without_a_service_a_job_is_refused_if_none_may_be_started(machine: Service) -> None:
    refused = machine.tell("submit", "--no-start", "--", "true")
    assert refused.returncode == 2
    assert "a daemon must run" in refused.stderr
    assert "punctual up" in refused.stderr
    assert machine.jobs() == []


def test_what_only_a_command_that_waits_can_tell_is_refused(machine: Service) -> None:
    refused = machine.tell("submit", "--strict", "--no-start", "--", "true")
    assert refused.returncode == 2
    assert "`--strict` must go with `--wait`" in refused.stderr


def test_a_command_that_waits_shows_its_job_and_leaves_with_its_status(machine: Service) -> None:
    service = machine.up()
    script = machine.script("import sys; print('begun', flush=True); sys.exit(7)", "fail.py")
    told = machine.punctual("submit", "--wait", "--name", "a", "--", *script)
    assert told.returncode == 7, told.stderr
    assert told.stdout == "begun\n"
    assert machine.daemon_pid() == service.pid
    service.terminate()
    left(service)


def test_the_jobs_of_a_file_are_given_to_the_service(machine: Service) -> None:
    service = machine.up()
    script = machine.script(NAMED, "named.py")
    jobs = "".join(
        f'[[job]]\nname = "{name}"\nprogram = {json.dumps([*script, name])}\nweight = 2.0\n' for name in "ab"
    )
    (machine.folder / "jobs.toml").write_text(jobs)
    told = machine.punctual("submit", "--jobs", "jobs.toml", "--json")
    assert told.returncode == 0, told.stderr
    assert [job["job"] for job in objects(told.stdout)] == ["a", "b"]
    wait_until(lambda: machine.n_starts("a") and machine.n_starts("b"))
    machine.let("a", "b")
    wait_until(lambda: machine.jobs() == [])
    service.terminate()
    left(service)


def test_the_name_of_a_job_that_has_ended_gets_a_number(machine: Service) -> None:
    service = machine.up()
    for expected in ("a", "a-2"):
        told = machine.punctual("submit", "--name", "a", "--", "true")
        assert told.stdout == f"{expected}\n"
        wait_until(lambda: machine.jobs() == [])
    service.terminate()
    left(service)


#: More than what the machine can do in the time that is asked for.
TOO_SOON = ("--guarantee", "--deadline", "10s", "--cores", "0.5", "--work", "10m")


@pytest.mark.parametrize("command", ["submit", "run"])
def test_a_job_whose_deadline_cannot_be_guaranteed_is_turned_away_with_one_that_can(
    machine: Service, command: str
) -> None:
    service = machine.up()
    script = machine.script(NAMED, "named.py")
    refused = machine.punctual(command, *TOO_SOON, "--name", "a", "--", *script, "a")
    assert refused.returncode == 2
    assert refused.stdout == ""
    assert "turned away" in refused.stderr
    assert "failed" not in refused.stderr
    assert "output:" not in refused.stderr, "it never ran"
    assert machine.n_starts("a") == 0
    named = re.search(r"`--deadline (\S+)`", refused.stderr)
    assert named is not None, refused.stderr
    (past,) = machine.tell("ps", "--all").stdout.splitlines()[1:2]
    assert "turned away" in past
    again = ("--guarantee", "--deadline", named[1], "--cores", "0.5", "--work", "10m", "--name", "b")
    accepted = machine.punctual("submit", *again, "--json", "--", *script, "b")
    assert accepted.returncode == 0, accepted.stderr
    (standing,) = machine.jobs()
    assert standing["promised_until_wall"] is not None
    assert machine.tell("stop", "b").returncode == 0  # it would be paced to its deadline
    wait_until(lambda: machine.jobs() == [])
    service.terminate()
    left(service)


def test_a_guarantee_without_knowing_the_work_is_refused_with_what_to_say(machine: Service) -> None:
    service = machine.up()
    for command in ("submit", "run"):
        refused = machine.punctual(command, "--guarantee", "--deadline", "1h", "--", "true")
        assert refused.returncode == 2
        assert "turned away" in refused.stderr
        assert "say it (`--work 30m` of core time)" in refused.stderr
    service.terminate()
    left(service)


def test_a_guarantee_of_a_job_that_waits_for_another_is_not_waited_for(machine: Service) -> None:
    service = machine.up()
    script = machine.script(NAMED, "named.py")
    assert machine.punctual("submit", "--name", "a", "--", *script, "a").returncode == 0
    told = machine.punctual("submit", *TOO_SOON, "--after", "a", "--name", "b", "--", *script, "b")
    assert (told.returncode, told.stdout) == (0, "b\n"), told.stderr
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    rows = machine.tell("ps", "--all").stdout.splitlines()
    assert [row for row in rows if row.startswith("b ") and "turned away" in row]
    service.terminate()
    left(service)
