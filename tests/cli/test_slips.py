"""What a newcomer types wrong is told once, by its right name, with what to do; and nothing wrong is taken in silence."""

import json
import os
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from tests.cli.programs import Terminal
from tests.cli.test_sharing import SharedMachine, finished
from tests.waiting import wait_until

from punctual import registry
from punctual.daemon.host_options import ACTUATORS


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[SharedMachine]:
    made = SharedMachine(tmp_path)
    yield made
    made.let("a", "b")
    made.close()
    assert made.left_behind() == []


def errors(told: str) -> list[str]:
    """What must hold, of each error."""
    return [line.removeprefix("error: ") for line in told.splitlines() if line.startswith("error: ")]


def test_a_deadline_behind_the_program_is_the_program_s_and_that_is_told(terminal: Terminal) -> None:
    for given in (["--deadline", "1m"], ["--deadline=1m"]):
        done = terminal.punctual("run", "true", *given)
        assert done.returncode == 0
        assert done.stderr.count("`--deadline` stands behind the program") == 1
    assert "stands behind" not in terminal.punctual("run", "--deadline", "1m", "true", "--deadline", "2").stderr


@pytest.mark.parametrize(
    ("options", "must"),
    [
        (["--name", ""], "`name` must be 1 to 64 letters"),
        (["--name", "../x", "--weight", "2"], "`name` must be 1 to 64 letters"),
        (["--weight", "0"], "`weight` must be above zero"),
        (["--weight", "0", "--cores", "0.5"], "`weight` must be above zero"),
        (["--budget", "5"], "a job with a budget must run on machines of pools"),
        (["--budget", "-5", "--no-preemptible"], "`budget` must be finite and above zero"),
        (["--budget", "5", "--no-preemptible"], "`budget` needs a job that may be paused"),
        (["--margin", "1%"], "`--margin` needs a deadline"),
        (["--strict"], "`--strict` needs a deadline that can be missed"),
        (["--workers", "0"], "`--workers` must be a range of whole numbers"),
        (["--policy", "nosuch"], "the name must be one of the policies"),
        (["--actuator", "nosuch"], "`--actuator` must be one that there is"),
        (["--checkpoint-dir", "/proc/nope"], "`--checkpoint-dir` must be a folder that is there or can be made"),
        (["--checkpoint-dir", "/dev/null"], "`--checkpoint-dir` must be a folder that is there or can be made"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_one_slip_is_one_error(terminal: Terminal, options: list[str], must: str) -> None:
    done = terminal.punctual("run", *options, "--", "true")
    assert done.returncode == 2
    (told,) = errors(done.stderr)
    assert told.startswith(must)
    assert done.stderr.startswith("error: "), "nothing is told before it"


def test_several_slips_are_told_together_and_each_once(terminal: Terminal) -> None:
    done = terminal.tell("run", "--name", "", "--weight", "0", "--deadline", "soon", "--", "true")
    assert sorted(error.split()[0] for error in errors(done.stderr)) == ["`deadline`", "`name`", "`weight`"]


def test_a_slip_about_workers_does_not_lead_to_gpus(terminal: Terminal) -> None:
    assert "--gpus" not in terminal.tell("run", "--workers", "0", "--", "true").stderr
    assert "--gpus 0.5" in terminal.tell("run", "--gpus", "0", "--", "true").stderr


def test_beside_a_host_an_unknown_name_is_told_as_unknown(machine: SharedMachine) -> None:
    machine.begin_job("a")
    for option, known in (("--policy", registry.names("policies")), ("--actuator", ACTUATORS)):
        for command in ("run", "submit", "up"):
            program = [] if command == "up" else ["--", "true"]
            refused = machine.tell(command, option, "nosuch", *program)
            assert refused.returncode == 2
            assert all(name in refused.stderr for name in known)
            assert "host" not in refused.stderr
    others = machine.tell("run", "--policy", "fifo", "--", "true")
    assert "must be that of the host" in others.stderr


def test_a_policy_names_the_parameters_that_it_has(machine: SharedMachine) -> None:
    machine.begin_job("a")
    refused = machine.tell("policy", "fifo", "--parameter", "backfil=true")
    assert refused.returncode == 2
    assert "__init__" not in refused.stderr
    assert "Did you mean `backfill`? Known: size, backfill." in refused.stderr


def test_an_unclosed_quotation_mark_in_a_file_of_jobs_is_told_as_one(terminal: Terminal) -> None:
    (terminal.folder / "jobs.toml").write_text('[[job]]\nprogram = "python \'x"\n')
    refused = terminal.tell("run", "--jobs", "jobs.toml")
    assert refused.returncode == 2
    assert "no closing quotation" in refused.stderr
    assert "kind of its option" not in refused.stderr


@pytest.mark.parametrize(
    ("words", "told"), [(["done"], "'done', which has ended"), (["nosuch"], "'nosuch', which is neither")]
)
def test_a_quote_of_what_is_no_open_job_says_so(machine: SharedMachine, words: list[str], told: str) -> None:
    assert machine.punctual("run", "--quiet", "--name", "done", "--", "true").returncode in (0, 2)
    refused = machine.tell("quote", *words)
    assert refused.returncode == 2
    assert told in refused.stderr


@pytest.mark.parametrize("is_beside", [False, True], ids=["alone", "beside a host"])
def test_a_quote_at_more_cores_than_there_are_is_refused(machine: SharedMachine, is_beside: bool) -> None:
    if is_beside:
        machine.begin_job("a")
    cores = os.cpu_count() or 1
    refused = machine.tell("quote", "--at", str(cores + 1), "--work", "10m", "--", "true")
    assert refused.returncode == 2
    assert "`--at` must not ask for more than there is" in refused.stderr
    answered = machine.tell("quote", "--at", "0.5", "--work", "10m", "--", "true")
    assert "with 0.50 cores: done" in answered.stdout


@pytest.mark.parametrize("options", [["--work", "10m"], ["--cores", "1", "--deadline", "1h"], ["--budget", "5"]])
def test_a_quote_of_no_program_asks_for_the_program(machine: SharedMachine, options: list[str]) -> None:
    refused = machine.tell("quote", *options)
    assert refused.returncode == 2
    assert "-- python train.py" in refused.stderr


def test_a_relative_home_is_refused(terminal: Terminal) -> None:
    terminal.home = Path("here")
    for command in (["ps"], ["run", "--", "true"], ["submit", "--no-start", "--", "true"]):
        refused = terminal.tell(*command)
        assert refused.returncode == 2
        assert errors(refused.stderr) == ["`PUNCTUAL_HOME` must be an absolute path"]


def test_a_job_may_run_after_one_that_finished_under_an_earlier_host(machine: SharedMachine) -> None:
    for name, code in (("done", 0), ("broken", 3)):
        program = [*machine.script(f"import sys, punctual; list(punctual.track(range(3))); sys.exit({code})"), name]
        assert machine.punctual("run", "--quiet", "--name", name, "--", *program).returncode == code
    b = machine.begin_job("b", "--after", "done")
    assert machine.jobs()[0].get("waits_for") == []
    machine.let("b")
    finished(b)
    refused = machine.tell("run", "--after", "broken", "--", "true")
    assert refused.returncode == 2
    assert "'broken'" in refused.stderr


def test_why_tells_the_time_of_day_beside_the_time_since_the_start(machine: SharedMachine) -> None:
    machine.begin_job("a")
    submitted = next(job["submitted_wall"] for job in machine.jobs())
    decisive, *lines = machine.tell("why", "a").stdout.splitlines()
    assert decisive.startswith("decisive at ")
    first = next(line.split() for line in lines if line.split()[1:3] == ["0", "s"])
    told = json.loads(machine.tell("why", "a", "--json").stdout.splitlines()[0])
    time = datetime.fromisoformat(told["time"])
    assert abs(time - datetime.fromisoformat(submitted)) < timedelta(seconds=10)
    assert re.fullmatch(r"\d\d:\d\d:\d\d", first[0])


@pytest.mark.parametrize(
    "command", [["report", "a"], ["plugins", "policies"], ["plugins"], ["clean", "--dry-run", "--all"]]
)
def test_what_is_told_is_told_to_machines_too(machine: SharedMachine, command: list[str]) -> None:
    a = machine.begin_job("a")
    machine.let("a")
    finished(a)
    told = [json.loads(line) for line in machine.tell(*command, "--json").stdout.splitlines()]
    assert told
    assert all(isinstance(each, dict) for each in told)


def test_a_report_for_machines_is_that_of_the_command_and_has_no_instants_of_the_machine_s_clock(
    machine: SharedMachine,
) -> None:
    run = machine.begin_job("a", "--json", "--deadline", "5s")
    machine.let("a")
    told = json.loads(finished(run)[0].splitlines()[-1])
    later = json.loads(machine.tell("report", "a", "--json").stdout)
    assert not [name for name in told if name.endswith("_at")]
    shared = later.keys() - {"report"}
    assert shared <= told.keys()
    assert {name: told[name] for name in shared if name != "text"} == {
        name: later[name] for name in shared if name != "text"
    }
    assert 0 < later["started_s"] < later["landed_s"] <= later["ended_s"]
    assert later["deadlines"] == [{"at_s": 0.0, "deadline_s": pytest.approx(5.0)}]


def test_counts_have_one_type_and_an_ended_job_grows_no_older(machine: SharedMachine) -> None:
    a = machine.begin_job("a", "--json")
    wait_until(lambda: [job for job in machine.jobs() if job.get("steps_done", 0) > 0])
    machine.let("a")
    lines = [json.loads(line) for line in finished(a)[0].splitlines()]
    shown = [json.loads(machine.tell("show", "a", "--json").stdout) for _ in range(2)]
    counts = [line["steps_done"] for line in lines if "steps_done" in line] + [one["steps_done"] for one in shown]
    assert {type(count) for count in counts} == {float}
    assert shown[0]["elapsed_s"] == shown[1]["elapsed_s"]
