"""`punctual daemon`: the daemon in a terminal; and what a job inherits of the command that submits it."""

import os
import shutil
import signal
import subprocess
import sys

from tests.cli.programs import PAUSING, Terminal, without_rights
from tests.waiting import PATIENCE_S, wait_until

from punctual.executors.local.process_tree import state_of


def test_it_ends_with_its_last_job_and_there_is_one_of_it(terminal: Terminal) -> None:
    daemon = terminal.start("daemon", "--actuator", "pacing")
    wait_until(lambda: terminal.daemons() == [daemon.pid])
    second = terminal.punctual("daemon")
    assert (second.returncode, second.stderr) == (0, f"punctual: a daemon runs already, process {daemon.pid}\n")
    assert terminal.punctual("run", "--quiet", "--", "true").returncode == 0
    assert daemon.wait(PATIENCE_S) == 0


def test_with_stay_it_ends_when_it_is_asked_to(terminal: Terminal) -> None:
    daemon = terminal.start("daemon", "--stay", "--actuator", "pacing")
    wait_until(lambda: terminal.daemons() == [daemon.pid])
    assert terminal.punctual("run", "--quiet", "--", "true").returncode == 0
    assert daemon.poll() is None
    assert terminal.tell("down").returncode == 0
    assert daemon.wait(PATIENCE_S) == 0


def test_a_job_has_the_input_the_mask_the_limits_and_the_niceness_of_its_command(terminal: Terminal) -> None:
    first = terminal.start("daemon", "--stay", "--actuator", "pacing")
    wait_until(lambda: terminal.daemons() == [first.pid])
    shell = f"umask 027; ulimit -n 321; exec nice -n 7 {sys.executable} -m punctual run --quiet -- sh -c 'cat; umask; ulimit -n; nice'"
    done = subprocess.run(
        ["sh", "-c", shell], input="told\n", capture_output=True, text=True, env=terminal.environment,
        cwd=terminal.folder, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    niceness = os.getpriority(os.PRIO_PROCESS, 0) + 7
    assert done.stdout.split() == ["told", "0027", "321", str(min(niceness, 19))], done.stderr
    assert terminal.tell("down").returncode == 0


def test_a_job_given_to_a_stopped_daemon_is_another_one_s_and_that_is_told_meanwhile(terminal: Terminal) -> None:
    stopped = terminal.start("daemon", "--stay", "--actuator", "pacing")
    wait_until(lambda: terminal.daemons() == [stopped.pid])
    assert terminal.punctual("run", "--quiet", "--", "true").returncode == 0
    stopped.send_signal(signal.SIGSTOP)
    try:
        given = terminal.punctual("submit", "--name", "job", "--", "true")
        assert given.returncode == 0, given.stderr
        assert f"waiting for the daemon, process {stopped.pid}, to answer" in given.stderr.splitlines()[0]
        wait_until(lambda: terminal.jobs() == [])
    finally:
        stopped.send_signal(signal.SIGCONT)
    assert stopped.wait(PATIENCE_S) == 1
    assert terminal.tell("show", "job").stdout.startswith("Done")


def test_who_waits_for_a_stopped_command_that_starts_a_daemon_is_told_which_one(terminal: Terminal) -> None:
    lock = terminal.home / "runtime" / "host.lock"
    assert terminal.tell("ps").returncode == 0
    holding = f"import fcntl, os, signal; f = open({str(lock)!r}, 'w'); fcntl.flock(f, 2); os.kill(os.getpid(), 19); f.close()"
    holder = terminal.start_python("-c", holding)
    wait_until(lambda: state_of(holder.pid) == "T")
    given = terminal.start("submit", "--name", "job", "--", "true")
    assert given.stderr is not None
    assert f"waiting for process {holder.pid}" in (told := given.stderr.readline())
    assert f"kill -CONT {holder.pid}" in told
    holder.send_signal(signal.SIGCONT)
    assert given.wait(PATIENCE_S) == 0
    given.communicate()
    wait_until(lambda: terminal.jobs() == [])


#: Runs `punctual` so many steps nicer, without the right to undo that: CAP_SYS_NICE.
NICER = without_rights(23, before="os.nice(int(sys.argv.pop(1)))")
PRINTS_NICENESS = "import os; print(os.nice(0))"


def _finished(run: "subprocess.Popen[str]") -> tuple[str, str]:
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode == 0, errors
    return output.strip(), errors


def test_a_job_is_no_nicer_than_its_command_though_the_daemon_is(terminal: Terminal) -> None:
    first = terminal.start_forked("-c", NICER, "5", "run", "--name", "a", "--", *terminal.script(PAUSING))
    wait_until(lambda: (terminal.folder / "begun").exists() or first.poll() is not None)
    (before,) = terminal.daemons()
    program = [sys.executable, "-c", PRINTS_NICENESS]
    nicer = terminal.start_forked("-c", NICER, "7", "run", "--", *program)
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    assert _finished(nicer)[0] == str(min(niceness + 7, 19))
    assert terminal.daemons() == [before], "for a nicer job no other is needed"
    plain = terminal.start_forked("-c", NICER, "0", "run", "--", *program)
    assert _finished(plain)[0] == str(niceness)
    terminal.go_on()
    assert _finished(first)[0] == "trained"


def test_of_a_service_that_is_nicer_than_a_command_it_is_said(terminal: Terminal) -> None:
    service = terminal.start_forked("-c", NICER, "5", "daemon", "--stay", "--actuator", "pacing")
    wait_until(lambda: terminal.daemons() == [service.pid])
    program = [sys.executable, "-c", PRINTS_NICENESS]
    told, errors = _finished(terminal.start_forked("-c", NICER, "0", "run", "--", *program))
    niceness = os.getpriority(os.PRIO_PROCESS, 0)
    assert told == str(min(niceness + 5, 19))
    assert f"the job has niceness {told} and not {niceness}" in errors
    checked = terminal.tell("doctor")
    assert f"process {service.pid} has niceness {told}" in checked.stdout
    assert terminal.tell("down").returncode == 0


#: Runs `punctual` with such hard limits for core files and open files, without the right to raise any: CAP_SYS_RESOURCE.
LIMITED = without_rights(24, before="""
for name in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE):
    limit = int(sys.argv.pop(1))
    resource.setrlimit(name, (min(limit, resource.getrlimit(name)[0]), limit))
""")  # fmt: skip
PRINTS_LIMITS = (
    "import resource; print(*[resource.getrlimit(name)[1] for name in (resource.RLIMIT_CORE, resource.RLIMIT_NOFILE)])"
)


def test_a_job_has_the_hard_limits_of_its_command_though_the_daemon_has_less(terminal: Terminal) -> None:
    first = terminal.start_forked("-c", LIMITED, "1000", "900", "run", "--name", "a", "--", *terminal.script(PAUSING))
    wait_until(lambda: (terminal.folder / "begun").exists() or first.poll() is not None)
    (before,) = terminal.daemons()
    program = [sys.executable, "-c", PRINTS_LIMITS]

    def told(core: str, files: str) -> tuple[str, str]:
        return _finished(terminal.start_forked("-c", LIMITED, core, files, "run", "--", *program))

    assert told("500", "800")[0] == "500 800"
    assert terminal.daemons() == [before], "for a job with less no other is needed"
    output, errors = told("2000", "800")
    assert output == "1000 800"
    assert "RLIMIT_CORE 1000 and not 2000" in errors, "a daemon with less of another limit is none to take its place"
    assert terminal.daemons() == [before]
    output, errors = told("2000", "900")
    assert (output, "hard limits" in errors) == ("2000 900", False)
    terminal.go_on()
    assert _finished(first)[0] == "trained"


def test_of_a_service_with_lower_hard_limits_than_a_command_it_is_said(terminal: Terminal) -> None:
    service = terminal.start_forked("-c", LIMITED, "1000", "900", "daemon", "--stay", "--actuator", "pacing")
    wait_until(lambda: terminal.daemons() == [service.pid])
    program = [sys.executable, "-c", PRINTS_LIMITS]
    output, errors = _finished(terminal.start_forked("-c", LIMITED, "1000", "950", "run", "--", *program))
    assert output == "1000 900"
    assert "the job has the hard limits RLIMIT_" in errors
    assert "RLIMIT_NOFILE 900 and not 950" in errors
    assert "started again" in errors
    assert terminal.tell("down").returncode == 0


def test_the_end_of_a_pipe_of_its_caller_is_seen(terminal: Terminal) -> None:
    """A daemon has none of the descriptors of the command that starts it."""
    submit = [sys.executable, "-m", "punctual", "submit", "--name", "job", "--", "sleep", "100"]
    done = subprocess.run(
        submit, capture_output=True, text=True, env=terminal.environment, cwd=terminal.folder, timeout=PATIENCE_S,
        check=False,
    )  # fmt: skip
    assert done.stdout == "job\n", done.stderr
    assert terminal.daemons() != []
    assert terminal.tell("stop", "job").returncode == 0


def test_a_journal_that_cannot_be_read_keeps_no_new_job_from_running(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--name", "job", "--actuator", "pacing")
    run.kill()
    run.wait()
    terminal.kill_daemon()
    journal = terminal.home / "state" / "runs" / "daemon" / "journal.db"
    kept = {file: file.read_bytes() for file in (journal, journal.with_name("journal.db-wal"))}
    for file in kept:
        file.write_bytes(b"something else")
    new = terminal.punctual("run", "--quiet", "--name", "new", "--", "true")
    assert new.returncode == 0, new.stderr
    assert "jobs that nobody steers are left as they are" in new.stderr
    assert [job["state"] for job in terminal.jobs()] == ["unsteered"]
    for file, content in kept.items():
        file.write_bytes(content)
    assert terminal.tell("stop", "job").returncode == 0
    wait_until(lambda: terminal.jobs() == [])


def test_a_job_whose_journal_loses_its_last_messages_is_told_and_steered_to_its_end(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--name", "job", "--actuator", "pacing")
    journal = terminal.home / "state" / "runs" / "daemon" / "journal.db"
    for ending in ("-wal", "-shm"):
        journal.with_name(f"{journal.name}{ending}").unlink()
    assert terminal.wait_for_job(lambda job: job["state"] == "running")["job"] == "job"
    terminal.go_on()
    output, errors = run.communicate(timeout=PATIENCE_S)
    assert (run.returncode, output) == (0, "trained\n"), errors
    assert "its journal was lost" in errors
    assert "Traceback" not in errors


def test_a_job_whose_folder_was_removed_while_it_runs_is_told_and_can_be_stopped(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--name", "job", "--actuator", "pacing")
    shutil.rmtree(terminal.home / "state" / "runs" / "daemon")
    (job,) = terminal.jobs()
    assert job["job"] == "job"
    assert "the journal must exist" in terminal.tell("doctor").stdout
    assert terminal.tell("stop", "job").returncode == 0
    _, errors = run.communicate(timeout=PATIENCE_S)
    assert run.returncode != 0
    assert "Traceback" not in errors
    assert "to do: " in errors
    assert wait_until(lambda: terminal.jobs() == [])


def test_a_second_down_names_the_jobs_that_the_first_has_left(terminal: Terminal) -> None:
    terminal.begin(PAUSING, "--name", "job", "--actuator", "pacing").kill()
    (daemon,) = terminal.daemons()
    terminal.hold_back_successors()
    os.kill(daemon, signal.SIGSTOP)
    try:
        hung = terminal.tell("down")
        assert hung.returncode == 2
        assert f"kill -9 {daemon}" in hung.stderr
        assert f"kill -CONT {daemon}" in hung.stderr
    finally:
        os.kill(daemon, signal.SIGCONT)
    terminal.tell("down")  # it may leave already: it was asked before
    wait_until(lambda: terminal.daemons() == [])
    again = terminal.tell("down", "--jobs", "stop")
    assert again.returncode == 2
    assert "none; unsteered: job" in again.stderr
    assert "punctual stop job" in again.stderr
    assert terminal.tell("stop", "job").returncode == 0
    wait_until(lambda: terminal.jobs() == [])
    ended = terminal.tell("attach", "job")
    assert ended.returncode == 2
    assert "punctual show job" in ended.stderr
