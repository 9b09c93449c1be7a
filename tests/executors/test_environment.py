"""What a job finds in its environment, and on its outputs."""

import os
import pty
import sys
from pathlib import Path

import pytest

from punctual.core.ids import JobId
from punctual.core.program import Program
from punctual.executors.local.launch import job_environment
from punctual.executors.local.output import ProcessSettings, logs_of, new_channel


def environment(
    ceiling_cores: float = 1.5,
    inherited: dict[str, str] | None = None,
    page: str | None = "/p",
    **given: str,
) -> dict[str, str]:
    program = Program(argv=("x",), environment=given)
    return job_environment(program, JobId("job"), ceiling_cores, page, inherited or {})


@pytest.mark.parametrize(("ceiling_cores", "n_threads"), [(0.2, "1"), (1.0, "1"), (1.5, "2")])
def test_as_many_threads_as_the_ceiling_has_cores(ceiling_cores: float, n_threads: str) -> None:
    made = environment(ceiling_cores)
    assert made["OMP_NUM_THREADS"] == made["MKL_NUM_THREADS"] == n_threads
    assert made["LOKY_MAX_CPU_COUNT"] == made["PYTHON_CPU_COUNT"] == n_threads
    assert made["OMP_WAIT_POLICY"] == "PASSIVE"


def test_what_the_user_has_set_stays() -> None:
    made = environment(
        inherited={"OMP_NUM_THREADS": "7", "OMP_WAIT_POLICY": "ACTIVE", "PATH": "/bin"},
        MKL_NUM_THREADS="5",
    )
    assert (made["OMP_NUM_THREADS"], made["MKL_NUM_THREADS"]) == ("7", "5")
    assert (made["OMP_WAIT_POLICY"], made["PATH"]) == ("ACTIVE", "/bin")


def test_the_job_learns_its_name_and_its_page_but_not_another_ones() -> None:
    made = environment()
    assert (made["PUNCTUAL_JOB"], made["PUNCTUAL_PAGE"]) == ("job", "/p")
    assert "PUNCTUAL_PAGE" not in environment(page=None, inherited={"PUNCTUAL_PAGE": "/other"})


def test_output_is_not_held_back() -> None:
    assert environment()["PYTHONUNBUFFERED"] == "1"


@pytest.mark.parametrize("is_split", [False, True], ids=["both there", "errors elsewhere"])
def test_on_a_terminal_the_job_has_a_terminal(is_split: bool) -> None:
    screen_fd, terminal_fd = pty.openpty()
    null_fd, saved_fds = os.open(os.devnull, os.O_WRONLY), [os.dup(1), os.dup(2)]
    try:
        os.dup2(terminal_fd, 1)
        os.dup2(null_fd if is_split else terminal_fd, 2)
        settings = ProcessSettings.here(None)
    finally:
        for number, saved_fd in enumerate(saved_fds, start=1):
            os.dup2(saved_fd, number)
        for fd in (screen_fd, terminal_fd, null_fd, *saved_fds):
            os.close(fd)
    fds = new_channel(settings.terminal_size)
    assert os.isatty(fds[1])
    for fd in fds:
        os.close(fd)
    assert logs_of(Path("log"), settings) == [Path("log"), *([Path("log.err")] if is_split else [])]
    assert sys.stdout is not None
