"""`punctual attach` follows a job again; one whose daemon was killed too, by cores or by workers, gets a new one."""

import json
import os
import signal
import subprocess
from datetime import datetime, timedelta
from typing import Any

import pytest
from tests.cli.programs import PAUSING, PRINTING_SOON, STOPPABLE, Terminal, objects
from tests.waiting import PATIENCE_S, wait_until

from punctual.daemon.control_socket import ControlFailed, ask

#: Waits like `PAUSING`, and says what came out of the training.
ELASTIC = """
import pathlib, sys, time, punctual

def train(context):
    import torch  # where it is needed: the process that looks after workers would load it too
    torch.manual_seed(0)
    model = torch.nn.Linear(8, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    dataset = torch.utils.data.TensorDataset(torch.ones(640, 8), torch.ones(640, 1))
    with context.elastic(model=model, optimizer=optimizer, deterministic=True, virtual_ranks=2) as run:
        for epoch in run.epochs(10):
            for inputs, targets in run.batches(dataset, global_batch_size=32, seed=0):
                run.backward((run.model(inputs) - targets).square().mean())
                run.step()
            while epoch == 1 and not pathlib.Path("go").exists():
                pathlib.Path("begun").touch()
                time.sleep(0.01)
        run.print("trained", run.step_number, model.weight.detach().sum().item())

if __name__ == "__main__":
    punctual.elastic(train)
"""
#: Waits like `PAUSING`, and only prints.
PRINTING_PAUSED = (
    "import pathlib, time\n"
    + PRINTING_SOON
    + """\
    while i == 20 and not pathlib.Path("go").exists():
        pathlib.Path("begun").touch()
        time.sleep(0.01)
"""
)


def kill(terminal: Terminal, command: "subprocess.Popen[str]") -> None:
    """Kill a command, and then the daemon, which nobody starts again."""
    command.kill()
    command.wait()
    terminal.kill_daemon()


def attached(terminal: Terminal, *options: str) -> "subprocess.Popen[str]":
    """A command that has taken the job over."""
    command = terminal.start("attach", *options)
    wait_until(lambda: command.poll() is not None or state(terminal) == "running")
    return command


def state(terminal: Terminal) -> str:
    """What the command that steers the job says of it; empty: there is none, or not yet."""
    try:
        (job,) = ask(terminal.home / "runtime" / "live" / "daemon" / "control.sock", {"verb": "status"})["jobs"]
        return str(job["state"])
    except ControlFailed:
        return ""


def report_of(command: "subprocess.Popen[str]") -> dict[str, Any]:
    output, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors
    return objects(output)[-1]


def test_times_of_day_are_those_of_the_command_whatever_zone_the_first_one_had(terminal: Terminal) -> None:
    terminal.environment["TZ"] = "XXX-11:30"
    terminal.begin(PAUSING, "--name", "job", "--deadline", "20h")
    told = terminal.tell("deadline", "job", "23:59:30 tomorrow")
    assert "23:59:30" in told.stdout
    [row] = objects(terminal.tell("ps", "--json").stdout)
    deadline = datetime.fromisoformat(row["deadline_wall"]).astimezone()
    assert (deadline + timedelta(milliseconds=500)).strftime("%H:%M:%S") == "23:59:30"
    assert "23:59:30" in terminal.tell("ps").stdout
    terminal.go_on()


@pytest.mark.parametrize("actuator", ["pacing", pytest.param("auto", marks=pytest.mark.cgroup)])
def test_a_job_with_cores_is_steered_again(terminal: Terminal, actuator: str) -> None:
    run = terminal.begin(PAUSING, "--name", "job", "--deadline", "20s", "--actuator", actuator)
    kill(terminal, run)
    assert "punctual attach job" in terminal.tell("ps").stderr
    command = attached(terminal, "job", "--json")
    assert terminal.tell("deadline", "job", "3s").returncode == 0
    terminal.go_on()
    report = report_of(command)
    assert (report["status"], report["steps_done"]) == ("finished", 200)
    assert len(report["deadlines"]) == 2
    assert report["unsteered_s"] > 0
    assert "Nobody steered it for" in report["text"]
    assert "it is steered again" in terminal.tell("why", "job", "--last", "1000").stdout


def test_a_job_of_workers_is_steered_again_with_the_result_it_would_have_had(terminal: Terminal) -> None:
    terminal.go_on()
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    expected = subprocess.check_output(terminal.script(ELASTIC), env=alone, cwd=terminal.folder, text=True)
    (terminal.folder / "go").unlink()
    run = terminal.begin(ELASTIC, "--name", "job", "--workers", "1..2", "--deadline", "10s")
    kill(terminal, run)
    command = attached(terminal, "--json")
    job = terminal.wait_for_job(lambda job: job.get("steps_done") == 40)
    assert (job["job"], job["controller"]) == ("job", "two-level")
    assert job["n_workers"] in (1, 2)
    terminal.go_on()
    output, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors
    report = objects(output)[-1]
    assert (report["status"], report["steps_done"]) == ("finished", 200)
    assert expected in errors


def test_it_can_be_taken_over_again_when_that_command_dies_too(terminal: Terminal) -> None:
    kill(terminal, terminal.begin(PAUSING, "--name", "job"))
    for _ in range(2):
        kill(terminal, attached(terminal))
    assert terminal.jobs() == [{"job": "job", "state": "unsteered"}]
    command = attached(terminal, "--json")
    terminal.go_on()
    assert report_of(command)["status"] == "finished"


def test_a_job_taken_over_can_be_stopped_and_saves_first(terminal: Terminal) -> None:
    saved = terminal.folder / "saved"
    run = terminal.start("run", "--deadline", "60s", "--name", "job", "--", *terminal.script(STOPPABLE), str(saved))
    terminal.wait_for_job(lambda job: (job.get("progress_frac") or 0) > 0)
    kill(terminal, run)
    command = attached(terminal)
    command.send_signal(signal.SIGINT)
    _, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 130, errors
    assert saved.read_text() == "saved"


def test_a_job_whose_output_is_read_is_read_on(terminal: Terminal) -> None:
    run = terminal.begin(PRINTING_PAUSED, "--name", "job", "--progress-regex", "auto")
    terminal.wait_for_job(lambda job: (job.get("progress_frac") or 0) > 0)
    kill(terminal, run)
    command = attached(terminal, "--json")
    terminal.go_on()
    output, errors = command.communicate(timeout=PATIENCE_S)
    assert command.returncode == 0, errors
    assert objects(output)[-1]["steps_done"] == 150
    assert "step 150/150" in errors


def test_a_job_that_is_steered_is_followed_again(terminal: Terminal) -> None:
    assert "and there are none" in refused(terminal.tell("attach"))
    run = terminal.begin(PAUSING, "--name", "job")
    run.kill()
    run.wait()
    command = attached(terminal, "--json")
    terminal.go_on()
    report = report_of(command)
    assert (report["status"], report["steps_done"]) == ("finished", 200)
    assert refused(terminal.tell("attach", "job")) == "one that has ended"
    assert "and there are none" in refused(terminal.tell("attach")), "none that has not ended"


def test_a_job_that_cannot_be_taken_over_goes_on(terminal: Terminal) -> None:
    kill(terminal, terminal.begin(PAUSING, "--name", "job"))
    journal = terminal.home / "state" / "runs" / "daemon" / "journal.db"
    record = terminal.home / "runtime" / "live" / "daemon" / "run.json"
    kept = journal.rename(journal.with_suffix(".kept"))
    assert refused(terminal.tell("attach", "job")) == "no such file"
    kept.rename(journal)
    here = record.read_text()
    record.write_text(json.dumps({**json.loads(here), "machine": "elsewhere", "boot": "another"}))
    supervisor = record.with_name("job.supervisor.json")
    kept_by = supervisor.read_text()
    supervisor.write_text(json.dumps({**json.loads(kept_by), "boot": "another"}))
    assert refused(terminal.tell("attach", "job")) == "one of machine 'elsewhere'"
    record.write_text(here)
    supervisor.write_text(kept_by)
    command = attached(terminal, "--json")
    terminal.go_on()
    assert report_of(command)["status"] == "finished"


def test_two_may_follow_it(terminal: Terminal) -> None:
    kill(terminal, terminal.begin(PAUSING, "--name", "job"))
    both = [terminal.start("attach", "job", "--quiet") for _ in range(2)]
    wait_until(lambda: state(terminal) == "running")
    terminal.go_on()
    assert [one.wait(PATIENCE_S) for one in both] == [0, 0]


def refused(done: "subprocess.CompletedProcess[str]") -> str:
    """What was got, by the error."""
    assert done.returncode == 2, done.stderr
    lines = done.stderr.splitlines()
    assert [line.split(":")[0].strip() for line in lines] == ["error", "got", "for", "to do"]
    return lines[1].split(":", 1)[1].strip()


def test_a_job_that_is_gone_with_its_command_is_started_again(terminal: Terminal) -> None:
    kill(terminal, terminal.begin(PAUSING, "--name", "job"))
    supervisor = json.loads((terminal.home / "runtime" / "live" / "daemon" / "job.supervisor.json").read_text())
    os.kill(supervisor["pid"], signal.SIGKILL)
    listed = wait_until(lambda: terminal.tell("ps"), lambda listed: "interrupted" in listed.stdout)
    assert "punctual attach job" in listed.stderr
    assert refused(terminal.tell("run", "--name", "job", "--", "true")) == "'job', which was interrupted"
    terminal.go_on()
    command = terminal.start("attach", "--json")
    report = report_of(command)
    assert (report["status"], report["steps_done"]) == ("finished", 200)
    assert terminal.jobs() == []
    assert "finished" in terminal.tell("ps", "--all").stdout
