"""Commands that need no running job."""

import json
import os
import re
from pathlib import Path

import pytest
from tests.cli.pieces import JOB, submitted
from tests.cli.programs import Terminal

from punctual import __version__, registry
from punctual.cli._app import COMMANDS
from punctual.cli._help import ELSEWHERE
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFailed
from punctual.core.ids import JobId
from punctual.daemon import paths
from punctual.daemon.control_client import change, standings, stop
from punctual.daemon.run_folder import create_run
from punctual.daemon.runs import job_to_tell_of, open_jobs
from punctual.journal.sqlite import SqliteJournal


@pytest.fixture
def terminal(tmp_path: Path) -> Terminal:
    """Where a test gives its commands; it is not closed, as some tests are the process of a run themselves."""
    return Terminal(tmp_path)


def test_the_version(terminal: Terminal) -> None:
    assert terminal.punctual("--version").stdout == f"punctual {__version__}\n"


def test_help_lists_every_command(terminal: Terminal) -> None:
    text = terminal.tell("--help").stdout
    for name in ("run", "deadline", "ps", "why", "stop", "report", "clean", "plugins", "reproduce", "demo"):
        assert f"  {name} " in text


@pytest.mark.parametrize("family", registry.families())
def test_plug_ins_are_listed_with_what_they_are(terminal: Terminal, family: str) -> None:
    lines = terminal.tell("plugins", family).stdout.splitlines()
    assert [line.split()[0] for line in lines] == registry.names(family)
    assert all(len(line.split()) > 3 for line in lines)


def test_nothing_runs(terminal: Terminal) -> None:
    listed = terminal.tell("ps")
    assert listed.returncode == 0
    assert listed.stdout == ""
    assert listed.stderr == "no job runs; --all lists those that have ended\n"
    assert terminal.tell("ps", "--all").stderr == "there is no job\n"


@pytest.mark.parametrize("command", [["why", "none"], ["stop"], ["deadline", "5m"], ["report", "none"]])
def test_a_job_that_is_not_there_is_a_four_part_error(terminal: Terminal, command: list[str]) -> None:
    done = terminal.tell(*command)
    assert done.returncode == 2
    for part in ("error: ", "got:", "for:", "to do:"):
        assert part in done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["nonsense"], ["--nonsense"], ["run"], ["run", "--deadline"], ["deadline"], ["ps", "all"], ["why", "--last", "0"],
        ["stop", "--nonsense"], ["report", "--out"], ["plugins", "all"], ["plugins", "--nonsense"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_command_line_that_cannot_be_read_is_a_four_part_error(terminal: Terminal, command: list[str]) -> None:
    done = terminal.tell(*command)
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["error:", "got:", "for:", "to"]


@pytest.mark.parametrize(
    "options",
    [["--work", "30m"], ["--like", "other"], ["--cores", "2"], ["--workers", "1..2"], ["--steps", "5"]],
    ids=" ".join,
)
def test_a_job_that_runs_is_quoted_with_no_option_of_a_program(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(terminal.home))
    create_run(JOB).record_job(JOB, "queued")
    refused = terminal.tell("quote", JOB, *options)
    assert refused.returncode == 2
    assert [line.split()[0] for line in refused.stderr.splitlines()] == ["error:", "got:", "for:", "to"]
    assert f"{options[0]}` of a job that runs" in refused.stderr


def test_a_parameter_without_the_name_of_its_policy_is_refused(terminal: Terminal) -> None:
    refused = terminal.tell("policy", "--parameter", "size=smallest")
    assert refused.returncode == 2
    assert "size=smallest" in refused.stderr


def test_work_that_ends_beyond_the_calendar_is_quoted(terminal: Terminal) -> None:
    quoted = terminal.tell("quote", "--work", "99999999d", "--", "true")
    assert quoted.returncode == 0, quoted.stderr
    assert "9999-" in quoted.stdout


def test_without_a_command_there_is_help(terminal: Terminal) -> None:
    for section in ("Run jobs:", "Watch them:", "Change them:", "Service:", "Simulate:"):
        assert section in terminal.tell().stdout


def test_help_is_had_in_all_the_usual_ways(terminal: Terminal) -> None:
    told = terminal.tell("ps", "--help").stdout
    assert told.startswith("Usage: punctual ps")
    assert terminal.tell("ps", "-h").stdout == terminal.tell("help", "ps").stdout == told
    assert terminal.tell("-h").stdout == terminal.tell("help").stdout == terminal.tell("--help").stdout
    assert terminal.tell("deadline", "-h").stdout == terminal.tell("deadline", "--help").stdout
    assert terminal.tell("token", "create", "-h").stdout.startswith("Usage: punctual token create")
    assert "'nonsense'" in terminal.tell("help", "nonsense").stderr
    assert terminal.tell("help", "run", "true").stdout == terminal.tell("run", "--help").stdout
    assert terminal.tell("help", "token", "create").stdout == terminal.tell("token", "create", "--help").stdout


@pytest.mark.parametrize(
    ("word", "command"),
    [
        ("status", "ps"),
        ("cancel", "stop"),
        ("kill", "stop"),
        ("list", "ps"),
        ("ls", "ps"),
        ("log", "logs"),
        ("version", "--version"),
    ],
)
def test_a_word_of_another_tool_is_told_what_does_the_same_here(terminal: Terminal, word: str, command: str) -> None:
    done = terminal.tell(word)
    assert done.returncode == 2
    assert f"`punctual {command}`" in done.stderr


@pytest.mark.parametrize(("word", "command"), [("simulat", "simulate"), ("submitt", "submit"), ("statuss", "ps")])
def test_a_slip_is_told_what_may_have_been_meant(terminal: Terminal, word: str, command: str) -> None:
    assert f"Did you mean `punctual {command}`?" in terminal.tell(word).stderr


def test_a_program_in_place_of_a_command_is_told_how_it_is_run(terminal: Terminal, tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    assert "`punctual run --deadline 1h -- python train.py`" in terminal.tell("train.py").stderr
    assert "`punctual run --deadline 1h -- python3`" in terminal.tell("python3").stderr


def test_no_word_of_another_tool_is_a_command_and_each_leads_to_one() -> None:
    assert not ELSEWHERE.keys() & COMMANDS.keys()
    assert set(ELSEWHERE.values()) <= COMMANDS.keys() | {"--version"}


@pytest.mark.parametrize("command", ["run", "submit"])
def test_the_options_of_a_job_are_in_sections_and_none_is_forgotten(terminal: Terminal, command: str) -> None:
    told = terminal.tell(command, "--help").stdout
    before, _, last = told.partition("\nOptions:\n")
    for section in ("Deadline:", "What it may have:", "Progress and end:", "Start:", "What is shown:"):
        assert f"\n{section}\n" in before
    assert re.findall(r"--[\w-]+", last.partition("Examples:")[0]) == ["--help"]
    assert f"$ punctual {command} --deadline " in told


def test_what_submit_can_only_do_where_it_waits_is_told_as_such(terminal: Terminal) -> None:
    told = terminal.tell("submit", "--help").stdout
    section = told.partition("Only with --wait:")[2].partition("Options:")[0]
    assert {"--strict", "--report", "--quiet", "--page"} == set(re.findall(r"  (--[\w-]+)", section))


def test_without_a_name_the_last_run_is_told_of(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(terminal.home))
    for name, age_s in (("a", 20.0), ("b", 10.0), ("c", 30.0)):
        run = create_run(name)
        with SqliteJournal(run.journal) as journal:
            journal.append([submitted(0.0, job=JobId(name)), JobFailed(at=1.0, job=JobId(name), cause="it broke")])
        run.record_job(JobId(name), "failed")
        run.remove_live_places()
        written_at = run.journal.stat().st_mtime - age_s
        os.utime(run.journal, (written_at, written_at))
    assert job_to_tell_of(None).job == "b"
    told = terminal.tell("why")
    assert told.returncode == 0, told.stderr
    decisive, first, last = told.stdout.splitlines()
    assert decisive.startswith("decisive at ")
    assert "it broke" in decisive
    assert "was submitted" in first
    assert "it broke" in last
    assert told.stderr == "job b:\n"


@pytest.mark.parametrize("command", ["attach", "stop", "quote"])
def test_the_name_of_a_job_that_has_ended_is_not_the_beginning_of_another_s(
    terminal: Terminal, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(terminal.home))
    run = create_run("host")
    run.record_job(JobId("train"), "failed")
    run.record_job(JobId("train-2"), "queued")
    (run.runtime_dir / "run.json").write_text(json.dumps({"name": run.name, "pid": 2**22 + 1, "start_ticks": 1}))
    refused = terminal.tell(command, "train")
    assert refused.returncode == 2
    assert "has ended" in refused.stderr


def test_a_host_that_does_not_answer_is_the_user_s_to_look_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    create_run(JOB).record_job(JOB, "queued")
    (starting,) = open_jobs()
    with pytest.raises(InvalidSpec, match="must answer") as refused:
        stop(starting)
    assert "just starting" in refused.value.remedy
    with pytest.raises(InvalidSpec, match="must answer"):
        change(starting, when="5m")
    assert standings(starting.run) == [{"job": JOB, "state": "starting"}]


def test_a_job_of_another_machine_is_told_and_left_to_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path))
    run = create_run(JOB)
    run.record_job(JOB, "queued")
    process = {"machine": "there", "boot": "another"}
    run.record_facts(**process)
    (run.runtime_dir / "run.json").write_text(json.dumps(run.record() | process))
    assert standings(run) == [{"job": JOB, "state": "elsewhere"}]
    with pytest.raises(InvalidSpec, match="on machine 'there'"):
        stop(open_jobs()[0])
