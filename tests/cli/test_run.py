"""`punctual run` and what other terminals say to it, end to end in real time.

On a busy machine a job lands late, whoever steers it: only that it did not land early shows that it was held back.
"""

import json
import signal
import time
from pathlib import Path

import pytest
from tests.cli.programs import (
    FAILING,
    FEWER_STEPS,
    LOSING,
    MORE_STEPS,
    PAUSING,
    PAUSING_LONG,
    PRINTING,
    PRINTING_SOON,
    SILENT,
    STOPPABLE,
    STUBBORN,
    TRACKED,
    TRACKED_IDLE,
    ZERO_STEPS,
    Terminal,
    objects,
)
from tests.waiting import PATIENCE_S, wait_until


def assert_four_parts(text: str) -> None:
    for part in ("error: ", "got:", "for:", "to do:"):
        assert part in text
    assert "Traceback" not in text


def test_it_does_not_land_before_its_deadline_and_says_so_in_json(terminal: Terminal) -> None:
    options = ("--deadline", "8s", "--json", "--", *terminal.script(TRACKED), "150")
    command = terminal.start_python("-m", "punctual", "run", *options)  # the one here that loads its own modules
    output, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors
    assert errors == "trained 150\n"
    told = objects(output)
    kinds = [line["type"] for line in told]
    assert kinds[0] == "started"
    assert kinds[-1] == "report"
    assert "progress" in kinds
    assert {"grant", "warning"} & set(kinds), "where the machine is too busy to be held back, that is told"
    report = told[-1]
    assert report["deadline_s"] == pytest.approx(8.0)
    assert report["deviation_frac"] > -0.4  # at full speed it would land at a quarter of it
    assert report["steps"] == 150
    assert report["exit_code"] == report["job_exit_code"] == 0
    assert report["controller"] == "remaining-cost"
    assert report["actuator"] in ("cgroup-v2", "cgroup-v1", "pacing")
    assert report["controller_cpu_s"] > 0
    assert report["job"].startswith("train-")


def test_a_job_is_told_its_folder_of_checkpoints(terminal: Terminal, tmp_path: Path) -> None:
    done = terminal.punctual("run", "--checkpoint-dir", "kept", "--quiet", "--", "printenv", "PUNCTUAL_CHECKPOINT_DIR")
    assert done.stdout == f"{tmp_path / 'kept'}\n"


def test_a_training_ends_at_its_loss(terminal: Terminal) -> None:
    command = ("run", "--deadline", "10s", "--until", "loss < 0.2", "--json", "--", *terminal.script(LOSING))
    run = terminal.start(*command)
    assert run.stdout is not None
    assert run.stderr is not None
    for line in map(json.loads, run.stdout):
        if line["type"] == "progress" and line["steps_done"] > 30 and 50 < (line["steps_expected"] or 0) < 200:
            terminal.go_on()
        if line["type"] == "report":
            assert line["steps"] == 81
    errors = run.stderr.read()
    assert run.wait(PATIENCE_S) == 0, errors
    assert "left after 81" in errors  # the middle of the last three losses is there one step later


@pytest.mark.parametrize(
    ("options", "must"),
    [
        (["--until", "0.2"], "a goal must be a loss"),
        (["--until", "loss<0.2", "--progress-regex", "auto"], "must not go with `--progress-regex`"),
    ],
)
def test_goals_that_cannot_be_followed_are_refused(terminal: Terminal, options: list[str], must: str) -> None:
    done = terminal.tell("run", *options, "--", "true")
    assert done.returncode == 2
    assert_four_parts(done.stderr)
    assert must in done.stderr


def test_the_deadline_moves_from_another_terminal(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING_LONG, "--deadline", "1h", "--json", "--name", "mine")
    job = terminal.wait_for_job(lambda job: job.get("steps_done") == 20)
    assert (job["job"], job["state"]) == ("mine", "running")
    assert 0 < job["left_s"] < 3600
    refused = terminal.tell("deadline", "mine", "-2h")
    assert refused.returncode == 2
    assert_four_parts(refused.stderr)
    removed = terminal.tell("deadline", "mine", "none")
    assert removed.stdout == "mine: it has no deadline any more\n", removed.stderr
    full = terminal.wait_for_job(lambda job: "left_s" not in job and job["grant_cores"] == job["host_cores"])
    assert "deadline_wall" not in full
    assert terminal.tell("set", "mine", "--deadline", "none", "--json").returncode == 0
    refused = terminal.tell("deadline", "mine", "+10m")
    assert "job 'mine', which has no deadline" in refused.stderr
    moved = terminal.tell("deadline", "30m")
    assert moved.returncode == 0, moved.stderr
    assert moved.stdout.startswith("mine: the deadline is now ")
    terminal.go_on()
    # Half an hour for a minute of work: less will do, however busy the machine is.
    terminal.wait_for_job(lambda job: job["grant_cores"] < full["grant_cores"])
    (terminal.folder / "soon").touch()
    output, _ = run.communicate(timeout=PATIENCE_S)
    report = objects(output)[-1]
    assert any(line["type"] == "deadline" for line in objects(output))
    assert 1800 < report["deadline_s"] < 3600
    assert report["steps"] == 3000
    why = terminal.tell("why", "mine", "--last", "100")
    assert why.returncode == 0, why.stderr
    assert "asked to resize to" in why.stdout.rpartition("the deadline was changed")[2]


def test_stop_ends_the_job_and_lets_it_save(terminal: Terminal) -> None:
    saved = terminal.folder / "saved"
    run = terminal.start("run", "--", *terminal.script(STOPPABLE), str(saved))
    job = terminal.wait_for_job(lambda job: job.get("steps_done", 0) > 5)
    assert "left_s" not in job
    assert terminal.tell("ps").stdout.splitlines()[1].startswith("train-")
    assert terminal.tell("stop", job["job"][:5]).returncode == 0
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 143
    assert saved.read_text() == "saved"
    assert "asked to stop" in terminal.tell("why").stdout


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_lets_the_job_save_first(terminal: Terminal, number: signal.Signals, code: int) -> None:
    saved = terminal.folder / "saved"
    run = terminal.start("run", "--deadline", "50s", "--", *terminal.script(STOPPABLE), str(saved))
    terminal.wait_for_job(lambda job: job.get("steps_done", 0) > 5)
    run.send_signal(number)
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode == code
    assert saved.read_text() == "saved"


def test_a_closed_terminal_does_not_end_the_steering(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--json")
    run.send_signal(signal.SIGHUP)
    terminal.go_on()
    output, _ = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0
    assert objects(output)[-1]["steps"] == 200


def test_the_second_signal_ends_a_job_that_takes_its_time(terminal: Terminal) -> None:
    asked = terminal.folder / "asked"
    run = terminal.start("run", "--", *terminal.script(STUBBORN), str(asked))
    terminal.wait_for_job(lambda job: job.get("steps_done", 0) > 5)
    run.send_signal(signal.SIGINT)
    wait_until(lambda: asked.exists() and asked.read_text() != "")
    run.send_signal(signal.SIGINT)
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 130
    assert not Path(f"/proc/{asked.read_text()}").exists()


def test_a_program_that_is_not_there(terminal: Terminal) -> None:
    done = terminal.tell("run", "--", "no-such-program")
    assert done.returncode == 2
    assert "no-such-program" in done.stderr
    assert_four_parts(done.stderr)
    assert not list(terminal.home.glob("state/runs/*"))


def test_a_script_without_its_interpreter_is_told_what_is_missing(terminal: Terminal) -> None:
    terminal.script(TRACKED)
    done = terminal.tell("run", "--", "train.py")
    assert done.returncode == 2
    assert_four_parts(done.stderr)
    assert "`-- python train.py`" in done.stderr


def test_the_exit_status_of_the_job_is_passed_on(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--", *terminal.script(FAILING))
    assert done.returncode == 7
    assert "The job failed" in done.stderr


@pytest.mark.parametrize("code", [0, 3])
def test_a_lost_journal_does_not_change_how_the_program_ended(code: int, terminal: Terminal) -> None:
    run = terminal.begin(f"{PAUSING}\nraise SystemExit({code})\n", "--name", "job", "--actuator", "pacing")
    for file in terminal.home.glob("state/runs/*/journal.db*"):
        file.unlink()
    terminal.go_on()
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == code, errors
    assert f"job has ended ({'failed' if code else 'finished'})" in errors
    assert "to do: " in errors


def test_a_missed_deadline_is_told_and_strict_makes_it_a_failure(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--deadline", "1h", "--strict")
    moved = terminal.tell("deadline", "1s")
    assert moved.returncode == 0, moved.stderr
    time.sleep(1)
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 75, errors
    assert "Deadline missed" in errors
    assert "trained" in output


def test_output_is_read_for_progress(terminal: Terminal) -> None:
    command = terminal.script(PRINTING)
    done = terminal.punctual("run", "--deadline", "8s", "--json", "--progress-regex", "auto", "--", *command)
    assert done.returncode == 0, done.stderr
    report = objects(done.stdout)[-1]
    assert report["steps"] == report["steps_total"] == 150
    if report["actuator"] != "pacing":  # by which a program that only prints cannot be held back
        assert report["deviation_frac"] > -0.4


def test_the_output_of_a_program_without_track_is_read_and_told_in_a_line(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--", *terminal.script(PRINTING_SOON))  # no deadline: a busy machine would miss it
    assert done.returncode == 0, done.stderr
    told = [line for line in done.stderr.splitlines() if "progress is read from its output, 150 steps in all" in line]
    assert len(told) == 1, done.stderr
    assert "the program does not use `punctual.track`" in told[0]
    assert "WARNING" not in done.stderr


@pytest.mark.parametrize("options", [[], ["--progress-regex", "auto"]])
def test_that_pacing_has_no_effect_on_a_program_whose_output_is_read_is_said(
    terminal: Terminal, options: list[str]
) -> None:
    program = terminal.script(PRINTING_SOON)
    done = terminal.punctual("run", "--actuator", "pacing", "--quiet", *options, "--", *program)
    assert "WARNING: a program whose output is read cannot be paced" in done.stderr
    assert "progress is read" not in done.stderr


#: What a script prints, options, and words that are told of it; it is a success all the same.
SUCCESSES = [
    ("pass", [], ""),
    ("pass", ["--deadline", "30s"], "nothing that the program wrote counts its steps"),
    (
        "print('hello')",
        ["--deadline", "30s", "--progress-regex", r"step (\d+)/(\d+)"],
        "`--progress-regex` fitted no line",
    ),
    ("for i in range(0, 100, 10): print(f'step {i}/100 loss 0.1')", ["--deadline", "30s"], ""),
    ("for i in range(60): print(f'[{i}] rmse:0.1')", ["--deadline", "30s", "--steps", "60"], ""),
    ("for i in range(1, 41): print(f'step {i}/100 loss 0.1')", ["--deadline", "30s"], "counted to 40 of 100 steps"),
    ("for i in range(1, 141): print(f'step {i}/100 loss 0.1')", ["--deadline", "30s"], "gone beyond its total"),
    ("for i in range(1, 4): print(f'Epoch {i}/9 loss 0.1')", ["--progress-regex", "auto"], "counted to 3 of 9"),
]


@pytest.mark.parametrize(("code", "options", "words"), SUCCESSES)
def test_a_program_that_is_only_read_and_ends_with_0_is_a_success(
    terminal: Terminal, code: str, options: list[str], words: str
) -> None:
    done = terminal.punctual("run", *options, "--", *terminal.script(code))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("WARNING") == bool(words), done.stderr
    assert words in done.stderr
    assert "punctual.phase" not in done.stderr
    assert "run.finish" not in done.stderr


@pytest.mark.parametrize(("code", "options", "words"), SUCCESSES[1:])
def test_with_strict_what_was_not_read_is_a_failure(
    terminal: Terminal, code: str, options: list[str], words: str
) -> None:
    done = terminal.punctual("run", "--deadline", "30s", "--strict", *options, "--", *terminal.script(code))
    is_short = "counted to" in words or "nothing that" in words or "fitted no" in words
    assert done.returncode == (2 if is_short else 0), done.stderr


def test_the_first_line_is_short_and_why_tells_the_rest(terminal: Terminal) -> None:
    done = terminal.punctual("run", "--name", "mine", "--", *terminal.script(TRACKED), "5")
    first = done.stderr.splitlines()[0]
    assert "started job mine, controller remaining-cost, actuator " in first
    assert len(first) < 150
    assert "how grants are enforced: " in terminal.tell("why", "mine").stderr


def test_a_report_that_cannot_be_written_changes_nothing_else(terminal: Terminal) -> None:
    program = terminal.script("import os; os.mkdir('out.png')" + "\n" + TRACKED)
    done = terminal.punctual("run", "--actuator", "pacing", "--report", "out.png", "--", *program, "5")
    assert done.returncode == 0
    assert_four_parts(done.stderr)
    assert "report: out.png" not in done.stderr


@pytest.mark.parametrize("program", [ZERO_STEPS, FEWER_STEPS, MORE_STEPS])
def test_what_the_job_declared_wrongly_is_told_at_its_end(terminal: Terminal, program: str) -> None:
    done = terminal.punctual("run", "--", *terminal.script(program))
    assert done.returncode == 2, done.stderr
    assert_four_parts(done.stderr)


@pytest.mark.parametrize(
    "options",
    [
        ["--deadline", "2020-01-01 10:00"],
        ["--deadline", "soon"],
        ["--deadline", ""],
        ["--deadline", "999999999999d"],
        ["--deadlin", "3m"],
        ["--cores", "1000"],
        ["--cores", "2..1"],
        ["--cores", ""],
        ["--controller", "remaning-cost"],
        ["--margin", "much"],
        ["--margin", "80%"],
        ["--margin", ""],
        ["--actuator", "magic"],
        ["--steps", "0"],
        ["--steps", "many"],
        ["--name", "../up"],
        ["--name", ""],
        ["--report", "out.pdf"],
    ],
    ids=" ".join,
)
def test_what_cannot_be_run_is_refused_before_anything_starts(terminal: Terminal, options: list[str]) -> None:
    done = terminal.tell("run", *options, "--", *terminal.script(TRACKED), "5")
    assert done.returncode == 2
    assert_four_parts(done.stderr)
    assert "trained" not in done.stdout
    assert not list(terminal.home.glob("state/runs/*"))


def test_a_running_job_s_name_is_taken(terminal: Terminal) -> None:
    terminal.start("run", "--name", "mine", "--", *terminal.script(STOPPABLE), str(terminal.folder / "saved"))
    terminal.wait_for_job(lambda job: True)
    done = terminal.tell("run", "--name", "mine", "--", *terminal.script(TRACKED, "other.py"), "5")
    assert done.returncode == 2
    assert_four_parts(done.stderr)
    assert terminal.tell("stop").returncode == 0


def test_a_job_whose_command_and_daemon_are_killed_goes_on_and_can_still_be_found_and_ended(terminal: Terminal) -> None:
    command = terminal.start(
        "run", "--deadline", "60s", "--name", "orphan", "--", *terminal.script(TRACKED_IDLE), "5000"
    )
    terminal.wait_for_job(lambda job: (job.get("progress_frac") or 0) > 0)
    command.kill()
    command.wait()
    terminal.kill_daemon()
    assert terminal.jobs() == [{"job": "orphan", "state": "unsteered"}]
    assert terminal.tell("ps").stdout.splitlines()[1].split()[:2] == ["orphan", "unsteered"]
    refused = terminal.tell("deadline", "orphan", "+10s")
    assert refused.returncode == 2
    assert_four_parts(refused.stderr)
    assert terminal.tell("stop", "orphan").returncode == 0
    wait_until(lambda: terminal.jobs() == [])
    terminal.punctual("run", "--", *terminal.script(SILENT, "next.py"))  # sweeps what the killed daemon left


#: A command that is the daemon, with a journal that cannot be written any more after a while.
BROKEN = """
import sqlite3, sys
from punctual.cli import main
from punctual.journal.sqlite import SqliteJournal
append, n_appended = SqliteJournal.append, 0
def fail(self, messages):
    global n_appended
    n_appended += 1
    if n_appended > 20:
        raise sqlite3.OperationalError("database or disk is full")
    return append(self, messages)
SqliteJournal.append = fail
main()
"""


def test_a_failure_of_ours_does_not_end_the_training(terminal: Terminal) -> None:
    program = terminal.script(TRACKED_IDLE)
    broken = terminal.start_python("-c", BROKEN, "up", "--listen", "none")
    wait_until(lambda: terminal.daemons() != [])
    terminal.punctual("submit", "--deadline", "60s", "--name", "hardy", "--", *program, "5000")
    assert broken.wait(PATIENCE_S) == 70
    assert terminal.jobs() == [{"job": "hardy", "state": "unsteered"}]
    assert terminal.tell("stop", "hardy").returncode == 0
    wait_until(lambda: terminal.jobs() == [])
    assert broken.stderr is not None
    assert "disk is full" in broken.stderr.read()  # to its end, which is there when the job has let go of it too
    terminal.punctual("run", "--", *terminal.script(SILENT, "next.py"))  # sweeps what the broken daemon left


def test_the_report_is_drawn_at_the_end_and_again_later(terminal: Terminal) -> None:
    done = terminal.punctual(
        "run", "--deadline", "8s", "--report", "out.html", "--name", "mine", "--", *terminal.script(TRACKED), "80"
    )
    assert done.returncode == 0, done.stderr
    assert "course-chart" in (terminal.folder / "out.html").read_text()
    again = terminal.tell("report", "mine", "--out", "out.png")
    assert again.returncode == 0, again.stderr
    assert (terminal.folder / "out.png").read_bytes().startswith(b"\x89PNG")
    assert again.stdout.partition(" Why")[0].split("\n")[0] in done.stderr
