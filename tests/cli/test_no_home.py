"""A user without a home folder and without an entry among the users of the machine, as `docker --user` has one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.forked_python import ForkedPython

#: As a container without HOME, seen from Python: no entry for the user.
PROGRAM = """
import os, sys
import pwd
def nobody(*_):
    raise KeyError("no such user")
pwd.getpwuid = pwd.getpwnam = nobody
from punctual.cli import main
sys.argv = ["punctual", *sys.argv[1:]]
main()
"""


def tell(*arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    kept = {name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ}
    command = [sys.executable, "-c", PROGRAM, *arguments]
    environment, pipe = {**kept, **variables}, subprocess.PIPE
    with ForkedPython(command, env=environment, stdout=pipe, stderr=pipe, text=True) as process:
        output, errors = process.communicate()
    return subprocess.CompletedProcess(command, process.returncode, output, errors)


@pytest.mark.parametrize(
    "words",
    [("ps",), ("run", "--", "true"), ("submit", "--no-start", "--", "true"), ("why", "a"), ("down",), ("clean",)],
)
def test_it_is_told_what_to_set(words: tuple[str, ...]) -> None:
    done = tell(*words)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "error: this user must have a home folder" in done.stderr
    assert "PUNCTUAL_HOME" in done.stderr


def test_with_a_folder_for_runs_all_is_well(tmp_path: Path) -> None:
    done = tell("ps", PUNCTUAL_HOME=str(tmp_path))
    assert (done.returncode, done.stderr.strip()) == (0, "no job runs; --all lists those that have ended")


def test_a_home_in_a_file_of_jobs_is_told_too(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text("[[job]]\nprogram = 'true'\ncwd = '~/work'\n")
    done = tell("run", "--jobs", str(tmp_path / "jobs.toml"), PUNCTUAL_HOME=str(tmp_path / "home"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "`cwd`" in done.stderr
