"""Words in time: deadlines that pass, trainings that stand still, results that come after the last step; live."""

import shlex
import signal
import time

import pytest
from tests.cli.programs import PAUSING, SPIN, Terminal, objects
from tests.waiting import PATIENCE_S, wait_until

#: Makes all its steps, and then works until it may go on.
WORKING_ON = """
import pathlib, time, punctual
for i in punctual.track(range(5)):
    pass
pathlib.Path("begun").touch()
while not pathlib.Path("go").exists():
    time.sleep(0.01)
"""

#: The same, and works when it ends, as it was told before its first step.
WORKING_AT_EXIT = """
import atexit, pathlib, time, punctual
def write_results():
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
atexit.register(write_results)
for i in punctual.track(range(5)):
    pass
"""

#: Trains in a process of its own, and evaluates when that has ended.
IN_CHILDREN = """
import multiprocessing, pathlib, time, punctual
def train():
    for i in punctual.track(range(5)):
        pass
if __name__ == "__main__":
    child = multiprocessing.Process(target=train)
    child.start()
    child.join()
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""

#: Saves when it is asked to stop, and stands still after some steps until then, or until it was started again.
STANDING_STILL = (
    SPIN
    + """
import pathlib, signal, sys, time, punctual
def save(*_):
    pathlib.Path("saved").touch()
    sys.exit(3)
signal.signal(signal.SIGTERM, save)
has_stood_still = pathlib.Path("begun").exists()
for i in punctual.track(range(200)):
    step(0.002)
    if i == 50 and not has_stood_still:
        pathlib.Path("begun").touch()
        time.sleep(1000)
print("trained", flush=True)
"""
)


@pytest.mark.parametrize("script", [WORKING_ON, WORKING_AT_EXIT], ids=["at once", "at exit"])
def test_results_that_come_after_the_deadline_are_late_though_the_steps_were_in_time(
    script: str, terminal: Terminal
) -> None:
    run = terminal.begin(script, "--deadline", "8s", "--strict", "--json")
    terminal.wait_for_job(lambda job: "deadline-passed" in terminal.tell("show", "--json").stdout)
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 75, errors
    *told, report = objects(output)
    assert report["on_time"] is False
    if report["worked_on_s"] >= report["deviation_s"]:  # else the machine was too busy for the steps too
        text = next(line["text"] for line in told if line.get("code") == "deadline-passed")
        assert "the program works on after it" in text
        assert "after its last declared step: put that into `punctual.phase`" in report["text"]


@pytest.mark.parametrize("way", ["after another", "in children"])
def test_what_other_processes_of_the_job_do_after_the_training_counts(way: str, terminal: Terminal) -> None:
    if way == "after another":
        training, rest = WORKING_ON.partition("while not")[0], "while not" + WORKING_ON.partition("while not")[2]
        train = shlex.join(terminal.script(training))
        after = shlex.join(terminal.script(f"import pathlib, time\n{rest}", "after.py"))
        command = ["bash", "-c", f"{train}; {after}"]
    else:
        command = terminal.script(IN_CHILDREN)
    run = terminal.start("run", "--deadline", "1h", "--json", "--", *command)
    wait_until(lambda: (terminal.folder / "begun").exists() or run.poll() is not None)
    terminal.wait_for_job(lambda job: job["landed"])
    time.sleep(3)  # longer than leaving takes
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    assert objects(output)[-1]["worked_on_s"] > 2.0


def test_a_deadline_that_passes_is_said_while_the_job_goes_on(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--deadline", "1h", "--json")
    assert terminal.tell("deadline", "1s").returncode == 0
    terminal.wait_for_job(lambda job: "deadline-passed" in terminal.tell("show", "--json").stdout)
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    text = next(line["text"] for line in objects(output) if line.get("code") == "deadline-passed")
    assert text.startswith("the deadline has passed at step 20 of 200")


def test_a_training_that_stands_still_is_listed_as_stalled_until_it_goes_on(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--deadline", "20s", "--json")
    terminal.wait_for_job(lambda job: job["state"] == "stalled")
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    codes = [line.get("code") for line in objects(output)]
    assert codes.index("stalled") < codes.index("steps-go-on")


def test_a_training_that_stands_still_is_stopped_where_that_is_wanted(terminal: Terminal) -> None:
    run = terminal.begin(STANDING_STILL, "--deadline", "20s", "--on-stall", "stop", "--json")
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 3, errors
    assert (terminal.folder / "saved").exists()
    assert "no step for" in objects(output)[-1]["cause"]


def test_a_training_that_stands_still_is_started_again_where_that_is_wanted(terminal: Terminal) -> None:
    run = terminal.begin(STANDING_STILL, "--deadline", "20s", "--on-stall", "retry", "--json")
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    assert "retried" in [line.get("code") for line in objects(output)]
    assert "trained" in errors


def test_a_training_that_would_not_be_done_has_saved_by_its_deadline(terminal: Terminal) -> None:
    program = STANDING_STILL.replace("time.sleep(1000)", "pass").replace("range(200)", "range(10**9)")
    program = program.replace("step(0.002)", "time.sleep(0.02)")  # others may compute meanwhile
    run = terminal.start("run", "--deadline", "12s", "--at-deadline", "stop", "--json", "--", *terminal.script(program))
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 3, errors
    assert (terminal.folder / "saved").exists()
    assert "deadline" in objects(output)[-1]["cause"]


def test_a_stop_that_is_asked_for_is_none_of_that(terminal: Terminal) -> None:
    run = terminal.begin(STANDING_STILL, "--deadline", "1h", "--on-stall", "retry")
    run.send_signal(signal.SIGTERM)
    run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 3
    assert wait_until(lambda: terminal.jobs() == [])
