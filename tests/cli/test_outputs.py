"""Commands whose output nobody reads, or has no room, and commands that are interrupted."""

import json
import os
import pty
import signal
import subprocess
import sys
from array import array
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from fcntl import ioctl
from pathlib import Path
from termios import FIONREAD

import pytest
from tests.cli.programs import PAUSING, PRINTING_SOON, TRACKED, Terminal
from tests.cli.test_looking import TALKING
from tests.waiting import PATIENCE_S, wait_until

from punctual.executors.local.output import write_or_discard


def close(process: subprocess.Popen[str]) -> None:
    """Stop reading what it prints."""
    assert process.stdout is not None
    process.stdout.close()


def end(process: subprocess.Popen[str]) -> tuple[int, str]:
    """Its exit status, and what it wrote to standard error."""
    assert process.stderr is not None
    errors = process.stderr.read()
    return process.wait(PATIENCE_S), errors


def test_a_run_whose_json_nobody_reads_goes_on_and_ends_with_the_status_of_its_job(terminal: Terminal) -> None:
    run = terminal.begin(PAUSING, "--deadline", "8s", "--json", "--name", "unread")
    assert run.stdout is not None
    assert json.loads(run.stdout.readline())["type"] == "started"
    close(run)
    terminal.go_on()
    assert end(run) == (0, "trained\n")
    assert "anded" in terminal.tell("report", "unread").stdout


def test_a_job_whose_output_nobody_reads_goes_on(terminal: Terminal) -> None:
    run = terminal.start("run", "--progress-regex", "auto", "--name", "unread", "--", *terminal.script(PRINTING_SOON))
    close(run)
    code, errors = end(run)
    assert (code, "Traceback" in errors) == (0, False), errors
    assert "step 150/150" in (terminal.home / "state" / "runs" / "daemon" / "unread.log").read_text()


@pytest.mark.parametrize("arguments", [["plugins"], ["plugins", "policies"]], ids=" ".join)
def test_a_command_whose_output_has_no_room_says_so(terminal: Terminal, arguments: list[str]) -> None:
    process = terminal.start_forked("-c", INTO.format("/dev/full"), *arguments)
    code, errors = end(process)
    assert code == 2
    assert "No space left" in errors
    assert "to do:" in errors
    assert "Traceback" not in errors


def test_a_job_whose_name_cannot_be_written_is_told_on_the_other_stream(terminal: Terminal) -> None:
    words = ["submit", "--name", "unnamed", "--", *terminal.script(PAUSING)]
    code, errors = end(terminal.start_forked("-c", INTO.format("/dev/full"), *words))
    assert (code, "No space left" in errors) == (2, True), errors
    assert "punctual logs unnamed" in errors
    assert [job["job"] for job in terminal.jobs()] == ["unnamed"]
    terminal.go_on()
    wait_until(lambda: terminal.jobs() == [])


def test_a_job_whose_folder_has_gone_before_it_could_start_is_told_so(terminal: Terminal, tmp_path: Path) -> None:
    first = terminal.begin(PAUSING, "--name", "first")
    folder = tmp_path / "gone"
    folder.mkdir()
    environment = {**os.environ, "PUNCTUAL_HOME": str(terminal.home)}
    words = [sys.executable, "-m", "punctual", "submit", "--name", "second", "--after", "first", "--", "true"]
    subprocess.run(words, cwd=folder, env=environment, check=True, capture_output=True)
    folder.rmdir()
    terminal.go_on()
    assert first.wait(PATIENCE_S) == 0
    wait_until(lambda: terminal.jobs() == [])
    assert "the job's folder must be there" in terminal.tell("show", "second").stdout
    unwritten = terminal.tell("logs", "second")
    assert unwritten.returncode == 2
    assert "it has ended" in unwritten.stderr
    assert "punctual show second" in unwritten.stderr


def test_a_command_whose_output_nobody_reads_is_silent(terminal: Terminal) -> None:
    process = terminal.start_forked("-c", UNREAD, "plugins")
    assert end(process) == (1, "")


@pytest.mark.parametrize("options", [[], ["--json"], ["--follow"], ["--follow", "--json"]], ids=" ".join)
def test_a_job_s_output_that_nobody_reads_or_has_no_room_ends_the_command(
    terminal: Terminal, options: list[str]
) -> None:
    run = terminal.begin(TALKING, "--name", "talk", "--actuator", "pacing")
    full = terminal.start_forked("-c", INTO.format("/dev/full"), "logs", "talk", *options)
    unread = terminal.start_forked("-c", UNREAD, "logs", "talk", *options)
    code, errors = end(full)
    assert (code, "No space left" in errors, "Traceback" in errors) == (2, True, False), errors
    assert end(unread) == (1, "")
    terminal.go_on()
    assert run.wait(PATIENCE_S) == 0


def test_a_log_that_is_followed_is_left_when_its_reader_goes_though_the_job_is_silent(terminal: Terminal) -> None:
    run = terminal.begin(f"print('once', flush=True)\n{PAUSING}", "--name", "quiet", "--actuator", "pacing")
    following = terminal.start("logs", "quiet", "--follow")
    assert following.stdout is not None
    assert following.stdout.readline() == "once\n"
    following.stdout.close()
    assert following.wait(PATIENCE_S) == 1
    terminal.go_on()
    assert run.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("options", [[], ["--json"]], ids=str)
def test_a_log_whose_reader_pauses_is_left_by_ctrl_c_without_a_word(terminal: Terminal, options: list[str]) -> None:
    run = terminal.begin(FLOODING, "--name", "flood", "--actuator", "pacing")
    following = terminal.start("logs", "flood", "--follow", *options)
    output = following.stdout
    assert output is not None

    def is_full() -> bool:
        waiting = array("i", [0])
        ioctl(output, FIONREAD, waiting)
        return waiting[0] >= PIPE_BYTES

    wait_until(is_full)
    following.send_signal(signal.SIGINT)
    assert end(following) == (130, "")
    terminal.go_on()
    assert run.wait(PATIENCE_S) == 0


@pytest.mark.parametrize("closed", [[1], [2], [0, 1, 2]], ids=str)
def test_a_stream_that_is_closed_is_one_that_nobody_reads(terminal: Terminal, closed: list[int]) -> None:
    script = terminal.script(TRACKED)
    for arguments in (["plugins"], ["run", "--", *script, "5"]):
        code, errors = end(terminal.start_python("-c", CLOSED.format(closed), *arguments))
        assert (code, "Traceback" in errors) == (0, False), errors


def test_errors_that_go_to_a_file_are_there_and_not_on_the_terminal_of_the_output(
    terminal: Terminal, tmp_path: Path
) -> None:
    screen_fd, terminal_fd = pty.openpty()
    script = terminal.script("import sys; print('SEEN'); print('KEPT', file=sys.stderr)")
    with (tmp_path / "errors").open("wb") as errors:
        run = terminal.start_on(terminal_fd, "run", "--name", "both", "--", *script, errors_fd=errors.fileno())
    os.close(terminal_fd)
    seen = b""
    with suppress(OSError):  # which says that the terminal's other end is closed
        while piece := os.read(screen_fd, 65536):
            seen += piece
    os.close(screen_fd)
    assert run.wait(PATIENCE_S) == 0
    assert (b"SEEN" in seen, b"KEPT" in seen) == (True, False)
    assert "KEPT" in (tmp_path / "errors").read_text()


@pytest.mark.parametrize(
    ("asking", "ends_by"),
    [
        ("input('Name? ')", "EOFError"), ("import getpass; getpass.getpass()", "EOFError"),
        ("breakpoint()", "bdb.BdbQuit"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("stdin", ["pty.openpty()[1]", "os.open(os.devnull, os.O_RDONLY)"], ids=["terminal", "null"])
def test_a_program_that_asks_the_terminal_is_told_where_a_job_gets_answers_from(
    terminal: Terminal, asking: str, ends_by: str, stdin: str
) -> None:
    code, errors = end(terminal.start_forked("-c", FROM.format(stdin), "run", "--", *terminal.script(asking)))
    assert (code, ends_by in errors) == (1, True)
    assert ("a job gets none from a terminal" in errors) == stdin.startswith("pty")


def test_a_slow_reader_of_a_stream_that_does_not_block_gets_all_of_it() -> None:
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    text = "step 1\n" * 50_000
    with ThreadPoolExecutor(1) as pool, open(write_fd, "w") as stream, open(read_fd) as reader:  # noqa: PTH123
        reading = pool.submit(reader.read)
        write_or_discard(stream, write_fd, text)
        stream.close()
        assert reading.result() == text


#: What a pipe holds of what nobody has read, with all that Linux gives it unasked.
PIPE_BYTES = 1 << 16
#: Writes more than that, and waits.
FLOODING = """
import pathlib, time, punctual
for _ in punctual.track(range(1)):
    print("x" * (1 << 20), flush=True)
    pathlib.Path("begun").touch()
    while not pathlib.Path("go").exists():
        time.sleep(0.01)
"""

#: The command, with its standard output into a file.
INTO = """
import os
from punctual.cli import main
os.dup2(os.open({!r}, os.O_WRONLY), 1)
main()
"""

#: The command, with its standard input from elsewhere.
FROM = """
import os, pty
from punctual.cli import main
os.dup2({}, 0)
main()
"""

#: The command, with its standard output into a pipe that nobody reads.
UNREAD = """
import os
from punctual.cli import main
read_fd, write_fd = os.pipe()
os.close(read_fd)
os.dup2(write_fd, 1)
main()
"""

#: The command, with standard streams closed.
CLOSED = """
import os, sys
for fd in {}:
    os.close(fd)
os.execv(sys.executable, [sys.executable, "-m", "punctual", *sys.argv[1:]])
"""

#: The command, which is interrupted as by Ctrl-C where it imports a module, and where it has begun.
INTERRUPTED_IMPORT = """
import os, signal, sys
from importlib.abc import MetaPathFinder
class Interrupting(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "punctual.cli.ps":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupting())
from punctual.cli import main
main()
"""
INTERRUPTED_CALL = """
import os, signal
from punctual.cli import main, ps
ps.sweep = lambda: os.kill(os.getpid(), signal.SIGINT)
main()
"""


@pytest.mark.parametrize("program", [INTERRUPTED_IMPORT, INTERRUPTED_CALL], ids=["importing", "begun"])
def test_an_interrupted_command_leaves_without_a_word(terminal: Terminal, program: str) -> None:
    process = terminal.start_python("-c", program, "ps")
    code, errors = end(process)
    assert (code, errors.strip()) == (130, "")
