"""`punctual doctor`: what it finds wrong, and that it says what to do."""

import signal
import socket
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import objects
from tests.cli.test_service import Service
from tests.waiting import PATIENCE_S, wait_until

from punctual.cli import doctor
from punctual.distribution import EXTRAS, install_command


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.go_on()
    made.close()


def levels(doctor: "subprocess.CompletedProcess[str]") -> dict[str, set[str]]:
    """What was said of each thing."""
    told: dict[str, set[str]] = {}
    for finding in objects(doctor.stdout):
        told.setdefault(finding["about"], set()).add(finding["level"])
        assert finding["remedy"] or finding["level"] == "ok"
    return told


def test_everything_is_looked_at_and_nothing_is_left(machine: Service) -> None:
    found = machine.tell("doctor", "--json")
    assert found.returncode == 0, found.stdout
    assert set(levels(found)) == {
        "control groups", "processors", "folders", "disk", "store", "tokens", "torch", "extras", "clock", "hosts", "ports",
    }  # fmt: skip
    assert machine.runs() == []
    assert "control groups" in machine.tell("doctor").stdout


@pytest.mark.parametrize("n_whole_bytes", [0, 4096])
def test_a_damaged_database_of_the_service_is_a_fault(machine: Service, n_whole_bytes: int) -> None:
    machine.tell("token", "create", "laptop")
    (database,) = machine.folder.rglob("service.db")
    database.write_bytes(database.read_bytes()[:n_whole_bytes] + b"garbage" * 2000)
    found = machine.tell("doctor", "--json")
    assert (found.returncode, levels(found)["tokens"]) == (1, {"fault"})
    (told,) = (each for each in objects(found.stdout) if each["about"] == "tokens")
    assert "Move it away" in told["remedy"]


@pytest.mark.parametrize("fault", ["unable to open database file", "database is locked"])
def test_a_database_of_the_service_that_cannot_be_used_now_is_a_fault(machine: Service, fault: str) -> None:
    machine.tell("token", "create", "laptop")
    (database,) = machine.folder.rglob("service.db")
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        if "locked" in fault:
            other.execute("BEGIN EXCLUSIVE")
        else:
            database.unlink()
            database.mkdir()
        found, listed = machine.tell("doctor", "--json"), machine.tell("token", "list")
    assert (found.returncode, levels(found)["tokens"]) == (1, {"fault"})
    assert objects(found.stdout)[-1]["about"] == "ports", "the rest is looked at, too"
    assert (listed.returncode, f"got:   {fault}" in listed.stderr) == (2, True)


def test_each_extra_is_told_with_what_would_install_it(machine: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    told = [each for each in objects(machine.tell("doctor", "--json").stdout) if each["about"] == "extras"]
    assert [each["text"].split("`")[1] for each in told] == list(EXTRAS)
    monkeypatch.setattr("punctual.distribution.find_spec", lambda name: None)
    found = machine.tell("doctor", "--json")
    assert found.returncode == 0, "nobody needs them all"
    told = [each for each in objects(found.stdout) if each["about"] == "extras"]
    assert all(" is not there" in each["text"] for each in told)
    assert [install_command(extra) in each["remedy"] for extra, each in zip(EXTRAS, told, strict=True)] == [True] * len(
        EXTRAS
    )


def test_what_comes_after_a_damaged_pytorch_is_looked_at_as_well(machine: Service) -> None:
    (machine.folder / "torch.py").write_text("raise ImportError('libcudart.so.12: cannot open shared object file')")
    program = f"import sys; sys.path.insert(0, {str(machine.folder)!r}); from punctual.cli import main; main()"
    output, errors = machine.start_python("-c", program, "doctor", "--json").communicate(timeout=PATIENCE_S)
    (found,) = (each for each in objects(output) if each["about"] == "torch")
    assert (found["level"], "libcudart" in found["text"]) == ("warning", True), errors
    assert objects(output)[-1]["about"] == "ports"


def test_a_port_that_is_taken_is_a_fault(machine: Service) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        found = machine.tell("doctor", "--json", "--port", str(port))
    assert found.returncode == 1
    assert levels(found)["ports"] == {"fault"}
    told = machine.tell("doctor", "--port", str(port)).stdout
    assert f"port {port} is free" in told


def test_a_host_that_does_not_answer_is_a_fault(machine: Service) -> None:
    service = machine.up()
    assert levels(machine.tell("doctor", "--json"))["hosts"] == {"ok"}
    service.send_signal(signal.SIGSTOP)
    try:
        found = machine.tell("doctor", "--json")
    finally:
        service.send_signal(signal.SIGCONT)
    assert found.returncode == 1
    faults: list[dict[str, Any]] = [each for each in objects(found.stdout) if each["level"] == "fault"]
    assert [(each["about"], str(service.pid) in each["remedy"]) for each in faults] == [("hosts", True)]


def test_a_folder_that_is_open_to_others_is_a_fault(machine: Service) -> None:
    machine.tell("ps")
    machine.home.chmod(0o777)
    machine.hide_torch()
    found = machine.punctual("doctor", "--json")
    machine.home.chmod(0o700)
    assert found.returncode == 1
    assert "fault" in levels(found)["folders"]


def test_a_journal_that_cannot_be_read_is_a_fault(machine: Service) -> None:
    machine.tell("ps")
    run = machine.home / "state" / "runs" / "a"
    run.mkdir()
    (run / "journal.db").write_text("this is no journal")
    found = machine.tell("doctor", "--json")
    assert found.returncode == 1
    assert "fault" in levels(found)["store"]


def test_jobs_that_nobody_steers_are_a_warning(machine: Service) -> None:
    service = machine.up()
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    machine.kill(service)
    assert levels(machine.tell("doctor", "--json"))["hosts"] == {"warning"}
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])


class SlurmService:
    """A live run whose machines are of Slurm."""

    def __init__(self, cluster: Path) -> None:
        self._options = {"engine": "local", "cluster": str(cluster)}

    def is_live(self) -> bool:
        return True

    def facts(self) -> dict[str, Any]:
        return {"options": self._options}


@pytest.mark.parametrize(
    ("script", "level", "word"),
    [
        ("true", "ok", "Slurm answers"),
        (
            "echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1",
            "warning",
            "Unable to contact",
        ),
    ],
)
def test_slurm_is_asked_where_a_service_has_machines_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, level: str, word: str
) -> None:
    cluster = tmp_path / "cluster.toml"
    pool = '[[pool]]\nname = "spot"\nmarket = "spot"\nprice_usd_h = 1.0\nmost = 2\n'
    cluster.write_text(f'[machines]\nprovider = "slurm"\n{pool}')
    (tmp_path / "squeue").write_text(f"#!/bin/sh\n{script}\n")
    (tmp_path / "squeue").chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(doctor, "live_folders", lambda: [SlurmService(cluster)])
    (finding,) = doctor.slurm_services()
    assert finding.level == level
    assert word in finding.text
