"""What the supervisor does by itself, whatever has become of the process that started it."""

import errno
import json
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.executors.conftest import is_alive, until
from tests.small_disk import fill, may_write, mounted
from tests.waiting import PATIENCE_S

from punctual.core.ids import JobId
from punctual.executors.local import supervisor
from punctual.executors.local.job_files import read_end, takeover_socket_of
from punctual.executors.local.job_signals import SWEEP_S, Ending, descendants
from punctual.executors.local.successor import Successor, locked
from punctual.executors.local.supervisor import STAY_PAUSED, LaunchRequest
from punctual.executors.local.supervisor_client import (
    SteeringLostError,
    SupervisorLink,
    listen_for_takeover,
    start_supervisor,
    take_over,
)
from punctual.executors.local.supervisor_files import mark_of

GOES_ON = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nexit(7)"

Keep = Callable[..., SupervisorLink]


@pytest.fixture
def keep(tmp_path: Path) -> Iterator[Keep]:
    """Starts a supervisor with a job that runs some code, and sees to its end."""
    links: list[SupervisorLink] = []

    def start(code: str, **request: Any) -> SupervisorLink:
        fds = [fd for _, *ends in request.get("logs", ()) for fd in ends]
        fds += [request["takeover_fd"]] if "takeover_fd" in request else []
        link = start_supervisor((), fds, request.pop("output_fd", None))
        links.append(link)
        assert link.read() == {"ready": True, "keeper": link.pid}
        argv = request.pop("argv", [sys.executable, "-c", code])
        link.send(LaunchRequest(argv=argv, environment=dict(os.environ), cwd=str(tmp_path), **request))
        return link

    yield start
    for link in links:
        link.terminate()
        link.terminate()
        link.close()


def started(link: SupervisorLink) -> int:
    line = link.read()
    assert line is not None
    return int(line["started"])


def written(path: Path) -> str:
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(("code", "expected"), [("pass", 0), ("exit(7)", 7), ("import os; os.abort()", 134)])
def test_the_exit_code_is_passed_on(keep: Keep, code: str, expected: int) -> None:
    link = keep(code)
    started(link)
    last = link.read()
    assert last is not None
    assert last["ended"] == expected
    assert link.read() is None


def test_a_program_that_does_not_exist(keep: Keep) -> None:
    answer = keep("", argv=["no-such-program"]).read()
    assert answer == {"failed": "No such file or directory: 'no-such-program'", "code": 127, "errno": errno.ENOENT}


def test_a_program_that_may_not_be_run(keep: Keep, tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_text("")
    answer = keep("", argv=[str(path)]).read()
    assert answer == {"failed": f"Permission denied: '{path}'", "code": 126, "errno": errno.EACCES}


def test_a_script_without_a_first_line_is_the_shell_s(keep: Keep, tmp_path: Path) -> None:
    path = tmp_path / "train.sh"
    path.write_text("exit $1\n")
    path.chmod(0o755)
    link = keep("", argv=[str(path), "7"])
    answers = iter(link.read, None)
    assert [answer["ended"] for answer in answers if "ended" in answer] == [7]
    path.write_bytes(b"\x7fELF\x02\0\0")
    answer = keep("", argv=[str(path)]).read()
    assert answer == {"failed": f"Exec format error: '{path}'", "code": 126, "errno": errno.ENOEXEC}


def test_a_group_that_cannot_be_entered(keep: Keep, tmp_path: Path) -> None:
    answer = keep("", cgroup_procs_files=[str(tmp_path / "gone" / "cgroup.procs")]).read()
    assert answer is not None
    assert "cgroup.procs" in answer["failed"]


def test_a_group_that_refuses_the_job_is_named(keep: Keep) -> None:
    answer = keep("", cgroup_procs_files=["/dev/full"]).read()
    assert answer == {"failed": "No space left on device: '/dev/full'", "code": 126, "errno": errno.ENOSPC}


def test_what_was_made_for_the_job_is_removed(keep: Keep, tmp_path: Path) -> None:
    group, page = tmp_path / "punctual" / "group", tmp_path / "page"
    group.mkdir(parents=True)
    page.touch()
    link = keep("pass", remove_dirs=[str(group), str(group.parent)], cleanup_files=[[str(page), mark_of(str(page))]])
    started(link)
    assert link.read() is not None
    assert not group.parent.exists()
    assert not page.exists()


def test_a_folder_that_others_use_stays(keep: Keep, tmp_path: Path) -> None:
    other = tmp_path / "punctual" / "other"
    other.mkdir(parents=True)
    link = keep("pass", remove_dirs=[str(other.parent)])
    started(link)
    link.read()
    assert other.exists()


def test_the_job_has_a_session_and_groups_of_its_own(keep: Keep, tmp_path: Path) -> None:
    entrance = tmp_path / "cgroup.procs"
    link = keep("import time; time.sleep(60)", cgroup_procs_files=[str(entrance)])
    pid = started(link)
    assert os.getsid(pid) == os.getpgid(pid) == pid
    assert entrance.read_text() == str(pid)


def test_signals_mean_to_the_job_what_they_mean_without_a_supervisor(keep: Keep, tmp_path: Path) -> None:
    code = "print(open('/proc/self/status').read(), file=open('status', 'w'))"
    # Python itself ignores SIGPIPE and SIGXFSZ, so another program has to look.
    link = keep(code, argv=["cp", "/proc/self/status", str(tmp_path / "status")])
    started(link)
    link.read()
    (ignored,) = [line for line in written(tmp_path / "status").splitlines() if line.startswith("SigIgn")]
    mask = int(ignored.split()[1], 16)
    for number in (signal.SIGPIPE, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
        assert not mask >> (number - 1) & 1


ORPHAN = """
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "{code}"], start_new_session=True)
open("pid.new", "w").write(str(child.pid))
os.rename("pid.new", "pid")
"""


def test_what_the_job_leaves_behind_is_ended(keep: Keep, tmp_path: Path) -> None:
    link = keep(ORPHAN.format(code="import time; time.sleep(60)"))
    started(link)
    last = link.read()
    assert last is not None
    assert last["ended"] == 0
    assert last["left_running"] == [Path(sys.executable).name]
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_helpers_that_end_with_the_job_are_not_left_running(keep: Keep, tmp_path: Path) -> None:
    """As a `tee` does, which reads the job's output to its end."""
    link = keep("", argv=["bash", "-c", "exec > >(cat > output); echo whole"])
    started(link)
    last = link.read()
    assert last is not None
    assert "left_running" not in last
    assert written(tmp_path / "output") == "whole\n"


def test_what_does_not_listen_to_sigterm_is_killed(keep: Keep, tmp_path: Path) -> None:
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); open('deaf', 'w'); time.sleep(60)"
    link = keep(
        ORPHAN.format(code=deaf) + "\nimport time\nwhile not os.path.exists('deaf'): time.sleep(0.01)", kill_s=0.2
    )
    started(link)
    link.read()
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_without_punctual_the_job_goes_on_without_a_quota(keep: Keep, tmp_path: Path) -> None:
    quota, page = tmp_path / "quota", tmp_path / "page"
    page.touch()
    code = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nopen('done', 'w')"
    link = keep(code, lift=[[str(quota), "max 20000"]], cleanup_files=[[str(page), mark_of(str(page))]])
    pid = started(link)
    link.release()  # what happens to it when its holder dies
    until(lambda: written(quota))
    assert written(quota) == "max 20000"
    assert is_alive(pid)
    (tmp_path / "go").touch()
    until((tmp_path / "done").exists)
    until(lambda: not page.exists())


class Logged:
    """The pipes of a job with one log, and the options of `keep` for it."""

    def __init__(self, log: Path) -> None:
        self.log = log
        self._source_fd, self._write_fd = os.pipe()
        self.options = {"logs": [(str(log), self._source_fd)], "output_fd": self._write_fd}

    def close(self) -> None:
        """The supervisor has its ends."""
        for fd in (self._source_fd, self._write_fd):
            os.close(fd)


def test_output_is_kept_whether_anybody_steers_the_job_or_not(keep: Keep, tmp_path: Path) -> None:
    output = Logged(tmp_path / "log")
    code = "import os, time\nprint('first')\nwhile not os.path.exists('go'): time.sleep(0.01)\nprint('x' * 1_000_000)"
    link = keep(code, **output.options)
    output.close()
    started(link)
    link.release()
    (tmp_path / "go").touch()
    until(lambda: written(output.log) == "first\n" + "x" * 1_000_000 + "\n")


def test_sigterm_ends_the_job(keep: Keep, tmp_path: Path) -> None:
    quota = tmp_path / "quota"
    link = keep("import time; open('up', 'w'); time.sleep(60)", lift=[[str(quota), "-1"]])
    started(link)
    until((tmp_path / "up").exists)
    link.terminate()
    last = link.read()
    assert last is not None
    assert last["ended"] == 128 + signal.SIGTERM
    assert written(quota) == "-1"


def test_sigterm_before_the_job_was_started_is_not_lost(keep: Keep) -> None:
    link = start_supervisor(())
    assert link.read() == {"ready": True, "keeper": link.pid}
    link.terminate()
    link.send(LaunchRequest(argv=[sys.executable, "-c", "import time; time.sleep(60)"], environment=dict(os.environ)))
    started(link)
    last = link.read()
    link.close()
    assert last is not None
    assert last["ended"] == 128 + signal.SIGTERM


def test_a_second_sigterm_kills(keep: Keep, tmp_path: Path) -> None:
    link = keep("import signal, time; signal.signal(15, lambda *_: open('heard', 'w')); open('up', 'w')\n"
                "while True: time.sleep(1)")  # fmt: skip
    started(link)
    until((tmp_path / "up").exists)
    link.terminate()
    until((tmp_path / "heard").exists)
    link.terminate()
    last = link.read()
    assert last is not None
    assert last["ended"] == 128 + signal.SIGKILL


def test_a_kill_is_not_put_off_for_what_the_job_leaves_behind() -> None:
    ending = Ending(0, 60.0)
    ending.kill()  # SIGTERM came twice
    ending.own_has_ended()
    assert ending.left_s() <= SWEEP_S


def test_a_killed_supervisor_takes_the_job_with_it(keep: Keep) -> None:
    link = keep("import time; time.sleep(60)")
    pid = started(link)
    link.kill()
    until(lambda: not is_alive(pid))
    assert link.read() is None


def test_the_end_of_a_job_is_known_although_its_supervisor_was_killed_when_it_had_written_it_down(
    keep: Keep, address: Path, tmp_path: Path
) -> None:
    link = keep("import time; time.sleep(60)")
    started(link)
    (tmp_path / "end").write_text('{"ended": 0}')
    link.kill()
    assert link.await_end(address, tmp_path / "end", lambda: None) == {"ended": 0}


def test_the_last_line_is_kept_for_who_comes_later(keep: Keep, tmp_path: Path) -> None:
    link = keep("exit(7)", end_file=str(tmp_path / "end"))
    started(link)
    last = link.read()
    kept = read_end(tmp_path / "end")
    assert last is not None
    assert kept is not None
    assert {**last, "boot": kept["boot"], "page": "", "started_ns": kept["started_ns"]} == kept
    assert kept["started_ns"] <= kept["at_ns"]
    assert read_end(tmp_path / "other") is None


def test_the_last_line_is_kept_although_the_disk_is_full(keep: Keep, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        link = keep(GOES_ON, end_file=str(disk / "end"))
        started(link)
        filler = fill(disk)
        (tmp_path / "go").touch()
        last = link.read()
        assert last is not None
        assert filler.exists()
        kept = read_end(disk / "end")
    assert kept is not None
    assert kept["ended"] == last["ended"] == 7


def test_the_end_of_a_job_that_nobody_steers_is_kept_once_the_disk_can_be_written_again(
    keep: Keep, address: Path, tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk") as disk:
        link = keep_with_socket(keep, address, GOES_ON, end_file=str(disk / "end"))
        job = started(link)
        link.release()  # the supervisor takes it for gone
        may_write(disk, False)
        (tmp_path / "go").touch()
        until(lambda: not is_alive(job))
        assert is_alive(link.pid)
        assert address.exists(), "whoever takes the job over is told by the keeper"
        may_write(disk, True)
        kept = until(lambda: read_end(disk / "end"))
        until(lambda: not address.exists())
    assert kept is not None
    assert kept["ended"] == 7


def test_the_end_is_not_told_to_a_host_that_may_fail_to_write_it_before_it_is_kept(
    keep: Keep, address: Path, tmp_path: Path
) -> None:
    """Its journal is on the same disk: it ends when it tries, and the next host would run the job once more."""
    with mounted(tmp_path / "disk") as disk:
        link = keep_with_socket(keep, address, GOES_ON, end_file=str(disk / "end"))
        job = started(link)
        may_write(disk, False)
        (tmp_path / "go").touch()
        until(lambda: not is_alive(job))
        time.sleep(0.5)
        link.release()  # it has tried
        time.sleep(0.5)
        assert is_alive(link.pid)
        may_write(disk, True)
        kept = until(lambda: read_end(disk / "end"))
    assert kept is not None
    assert kept["ended"] == 7


def test_a_supervisor_that_cannot_write_the_end_waits_between_its_tries(
    keep: Keep, address: Path, tmp_path: Path
) -> None:
    with mounted(tmp_path / "disk") as disk:
        link = keep_with_socket(keep, address, GOES_ON, end_file=str(disk / "end"), fence_s=0.1)
        job = started(link)
        may_write(disk, False)
        (tmp_path / "go").touch()
        link.release()
        until(lambda: not is_alive(job))
        time.sleep(0.5)
        before_s = processor_s(link.pid)
        time.sleep(1.0)
        assert processor_s(link.pid) - before_s < 0.15
        may_write(disk, True)
        until(lambda: read_end(disk / "end"))


def processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_who_takes_over_a_job_whose_end_cannot_be_written_is_told(keep: Keep, address: Path, tmp_path: Path) -> None:
    with mounted(tmp_path / "disk") as disk:
        output = Logged(tmp_path / "log")
        link = keep_with_socket(keep, address, GOES_ON, end_file=str(disk / "end"), unkept_s=0.1, **output.options)
        output.close()
        job = started(link)
        link.release()
        may_write(disk, False)
        (tmp_path / "go").touch()
        until(lambda: not is_alive(job))
        kept = until(lambda: take_over(address))
        assert kept is not None
        last = kept.read()
        kept.close()
        may_write(disk, True)
    assert last is not None
    assert last["ended"] == 7


def test_descendants_are_found() -> None:
    assert os.getpid() in descendants(os.getppid())
    assert os.getppid() not in descendants(os.getpid())


def test_a_supervisor_without_a_request_ends(keep: Keep) -> None:
    link = start_supervisor(())
    assert link.read() == {"ready": True, "keeper": link.pid}
    link.close()
    assert not is_alive(link.pid)


def test_a_supervisor_whose_request_does_not_come_ends() -> None:
    reading_fd, writing_fd = os.pipe()
    try:
        os.write(writing_fd, b'{"argv": ')
        assert supervisor._read_request(reading_fd, 0.01) is None
    finally:
        os.close(reading_fd)
        os.close(writing_fd)


@pytest.mark.parametrize("is_made_again", [False, True])
def test_a_job_that_was_taken_over_before_it_was_started_is_not(
    keep: Keep, tmp_path: Path, is_made_again: bool
) -> None:
    """Its host was stopped just before it sent the request; whoever took its place may have started the job since."""
    address, group = tmp_path / "address", tmp_path / "group"
    address.touch()
    group.mkdir()
    mark = mark_of(str(address))
    address.unlink()
    if is_made_again:
        address.touch()
    link = keep("open('ran', 'w')", cleanup_files=[[str(address), mark]], remove_dirs=[str(group)])
    assert link.read() is None
    assert not (tmp_path / "ran").exists()
    assert not group.exists()
    assert address.exists() == is_made_again


# Taking over.


@pytest.fixture
def address(tmp_path: Path) -> Path:
    """Where the supervisor of a job called `job` is to be found."""
    return takeover_socket_of(tmp_path, JobId("job"))


def keep_with_socket(keep: Keep, address: Path, code: str, **request: Any) -> SupervisorLink:
    with listen_for_takeover(address) as listening:
        cleanup_files = [[str(address), mark_of(str(address))]]
        return keep(code, takeover_fd=listening.fileno(), cleanup_files=cleanup_files, **request)


def test_a_job_that_nobody_steers_is_handed_over_with_what_its_supervisor_knows(
    keep: Keep, address: Path, tmp_path: Path
) -> None:
    link = keep_with_socket(keep, address, GOES_ON, actuator="pacing")
    pid = started(link)
    link.release()
    kept = until(lambda: take_over(address))
    assert kept is not None
    assert (kept.job_pid, kept.pid) == (pid, link.pid)
    assert (kept.request.actuator, kept.request.environment) == ("pacing", {})
    (tmp_path / "go").touch()
    last = kept.read()
    assert last is not None
    assert last["ended"] == 7
    kept.close()
    assert not address.exists()


def test_a_job_that_is_steered_is_handed_over_to_nobody(keep: Keep, address: Path) -> None:
    link = keep_with_socket(keep, address, "import time; time.sleep(60)")
    pid = started(link)
    assert take_over(address) is None
    assert is_alive(pid)
    link.terminate()
    assert link.read() is not None
    assert take_over(address) is None


def test_a_job_can_be_released_and_taken_over_again_and_again(keep: Keep, address: Path, tmp_path: Path) -> None:
    quota = tmp_path / "quota"
    link = keep_with_socket(keep, address, "import time; time.sleep(60)", lift=[[str(quota), "max"]])
    pid = started(link)
    link.release()
    for _ in range(3):
        kept = until(lambda: take_over(address))
        assert kept is not None
        assert take_over(address) is None
        kept.close()
    until(lambda: written(quota))
    assert is_alive(pid)


#: A successor, which writes down who it is and waits.
SUCCESSOR = """
import os, time
os.write(2, b"called")
with open(f"{FOLDER}/successor.new", "w") as file:
    file.write(f"{os.getpid()} {os.getsid(0)} {os.getcwd()}")
os.rename(f"{FOLDER}/successor.new", f"{FOLDER}/successor")
while not os.path.exists(f"{FOLDER}/over"):
    time.sleep(0.01)
"""


@pytest.fixture
def successor(tmp_path: Path) -> Iterator[dict[str, Any]]:
    """The options of a supervisor that has a successor to start."""
    log = tmp_path / "daemon.log"
    log.touch()
    code = SUCCESSOR.replace("{FOLDER}", str(tmp_path))
    yield {"successor": [sys.executable, "-S", "-c", code], "successor_log": str(log)}
    (tmp_path / "over").touch()


def left_by_a_killed_process(link: SupervisorLink, address: Path) -> None:
    """Close the connection of a supervisor without a word, as the end of its process does."""
    link.release()
    kept = until(lambda: take_over(address))
    assert kept is not None
    kept.close()


def test_a_job_whose_steering_process_was_killed_gets_another_that_is_none_of_its_own(
    keep: Keep, address: Path, tmp_path: Path, successor: dict[str, Any]
) -> None:
    link = keep_with_socket(keep, address, GOES_ON, end_file=str(tmp_path / "end"), **successor)
    started(link)
    left_by_a_killed_process(link, address)
    pid, session, folder = until(lambda: written(tmp_path / "successor")).split()
    assert (session, folder) == (pid, "/")
    assert written(tmp_path / "daemon.log") == "called"
    assert int(pid) not in descendants(link.pid)
    (tmp_path / "go").touch()
    last = until(lambda: read_end(tmp_path / "end"))
    assert last is not None
    assert last["ended"] == 7
    until(lambda: not is_alive(link.pid))
    assert is_alive(int(pid))


def test_a_job_that_was_left_on_purpose_calls_nobody(
    keep: Keep, address: Path, tmp_path: Path, successor: dict[str, Any]
) -> None:
    link = keep_with_socket(keep, address, GOES_ON, **successor)
    started(link)
    link.release()
    (tmp_path / "go").touch()
    until(lambda: not is_alive(link.pid))
    assert not (tmp_path / "successor").exists()


def test_the_end_of_a_job_that_nobody_steers_is_not_left_to_the_next_command(
    keep: Keep, address: Path, tmp_path: Path, successor: dict[str, Any]
) -> None:
    link = keep_with_socket(keep, address, GOES_ON, lease_s=3600.0, **successor)
    started(link)
    left_by_a_killed_process(link, address)
    (tmp_path / "go").touch()
    assert until(lambda: written(tmp_path / "successor"))


def test_one_of_several_supervisors_calls(keep: Keep, address: Path, tmp_path: Path, successor: dict[str, Any]) -> None:
    lock = locked(successor["successor_log"])
    assert locked(successor["successor_log"]) == -1
    link = keep_with_socket(keep, address, GOES_ON, lease_s=3600.0, **successor)
    started(link)
    left_by_a_killed_process(link, address)
    (tmp_path / "go").touch()
    until(lambda: not is_alive(link.pid))
    assert not (tmp_path / "successor").exists()
    os.close(lock)


def test_a_process_that_comes_and_does_not_stay_is_followed_by_others_after_longer_and_longer_pauses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As while the disk is full: each takes the jobs over, and fails to write that down."""
    at = 100.0
    monkeypatch.setattr(f"{Successor.__module__}.time", SimpleNamespace(monotonic=lambda: at))
    monkeypatch.setattr(Successor, "_start", lambda _: None)
    next_one = Successor(["true"], str(tmp_path / "log"))
    waits = list[float]()
    for stayed_s in (1.0, 1.0, 60.0, 1.0):
        next_one.schedule()
        waits.append(next_one.left_s())
        next_one.start()
        next_one.cancel()
        at += stayed_s
    assert waits == [1.0, 2.0, 4.0, 1.0]


def test_a_supervisor_that_says_no_more_hands_nothing_over(address: Path) -> None:
    with listen_for_takeover(address) as listening:
        attempt = ThreadPoolExecutor(1).submit(take_over, address)
        connection, _ = listening.accept()
        connection.close()
        assert attempt.result(PATIENCE_S) is None


# The lease.


def test_the_last_word_to_the_supervisor_of_a_paused_job_is_that_it_stays_so() -> None:
    """One of an earlier version looks at nothing else."""
    ours, theirs = socket.socketpair()
    link = SupervisorLink(ours)
    link.renew(stays_paused=True)
    link.release()
    link.close()
    with theirs:
        assert theirs.recv(64).endswith(STAY_PAUSED)


def test_a_renewal_before_the_request_is_no_part_of_it() -> None:
    """A host renews all its leases at once, also while a supervisor has not got its request yet."""
    link = start_supervisor(())
    assert link.read() is not None
    link.renew()
    link.send(LaunchRequest(argv=["true"], environment=dict(os.environ)))
    started(link)
    assert link.read() is not None
    link.close()


def test_a_job_whose_supervisor_is_of_another_version_is_handed_over(address: Path) -> None:
    request = {"argv": ["train"], "actuator": "pacing", "what_an_earlier_version_had": 1}
    told = {"keeper": os.getpid(), "started": 7, "at_ns": 5 * 10**9, "request": request}
    with listen_for_takeover(address) as listening, ThreadPoolExecutor(1) as pool:

        def hand_over() -> None:
            connection, _ = listening.accept()
            with connection:
                connection.sendall(json.dumps(told).encode() + b"\n")

        pool.submit(hand_over)
        kept = take_over(address)
    assert kept is not None
    assert (kept.job_pid, kept.started_at, kept.request.argv) == (7, 5.0, ["train"])
    kept.close()


def test_a_connection_on_which_nothing_is_said_is_given_up(keep: Keep, address: Path, tmp_path: Path) -> None:
    quota = tmp_path / "quota"
    link = keep_with_socket(keep, address, GOES_ON, lift=[[str(quota), "max"]], lease_s=0.2)
    pid = started(link)
    assert link.read() == {"expired": True}
    until(lambda: written(quota))
    assert is_alive(pid)
    kept = until(lambda: take_over(address))
    assert kept is not None
    kept.close()


def test_a_process_that_was_stopped_for_too_long_steers_again(keep: Keep, address: Path, tmp_path: Path) -> None:
    link = keep_with_socket(keep, address, GOES_ON, lease_s=0.2)
    started(link)
    last = link.await_end(address, None, (tmp_path / "go").touch)
    assert last is not None
    assert last["ended"] == 7


def test_it_does_not_steer_again_what_another_process_has_taken_over(keep: Keep, address: Path) -> None:
    link = keep_with_socket(keep, address, GOES_ON, lease_s=3600.0)
    started(link)
    link._connection.shutdown(socket.SHUT_WR)  # the supervisor takes it for gone
    kept = until(lambda: take_over(address))
    assert kept is not None
    with pytest.raises(SteeringLostError):
        Expired(link).await_end(address, None, lambda: None)
    kept.close()


def test_it_finds_the_end_of_a_job_that_ended_meanwhile(keep: Keep, address: Path, tmp_path: Path) -> None:
    end_file = tmp_path / "end"
    link = keep_with_socket(keep, address, "exit(7)", end_file=str(end_file))
    started(link)
    assert link.read() is not None
    until(lambda: not address.exists())
    last = Expired(link).await_end(address, end_file, lambda: None)
    assert last is not None
    assert last["ended"] == 7


def test_a_renewed_lease_does_not_expire(keep: Keep, tmp_path: Path) -> None:
    """A lease of an hour that is renewed: the supervisor reads what it is sent and says nothing about it."""
    link = keep("import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)", lease_s=3600.0)
    started(link)
    for _ in range(3):
        link.renew()
    (tmp_path / "go").touch()
    last = link.read()
    assert last is not None
    assert last["ended"] == 0
    link.renew()  # to nobody


class Expired:
    """A link whose next line says that the lease has expired."""

    def __init__(self, link: SupervisorLink) -> None:
        self._link = link

    def await_end(self, address: Path, end_file: Path | None, on_regained: Callable[[], None]) -> dict[str, Any] | None:
        lines: list[dict[str, Any] | None] = [{"expired": True}]
        read = self._link.read
        self._link.read = lambda: lines.pop() if lines else read()  # type: ignore[method-assign]
        return self._link.await_end(address, end_file, on_regained)
