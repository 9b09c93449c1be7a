"""A service whose journal is in PostgreSQL: commands find it, and it may go away and come back."""

import json
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_service import RUN, Service, left
from tests.cli.test_sharing import NAMED, finished
from tests.postgresql import Server, running_server
from tests.waiting import wait_until

from punctual.cli._http import HttpOptions
from punctual.cli.up import unit
from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFinished, JobSubmitted, SpecChanged
from punctual.core.ids import JobId
from punctual.runtime.host_options import HostOptions

SECRET = "s3cret"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with running_server() as server:
        yield server


@pytest.fixture
def url(server: Server) -> str:
    return server.url.replace("tester@", f"tester:{SECRET}@")


@pytest.fixture
def machine(tmp_path: Path, server: Server) -> Iterator[Service]:
    made = Service(tmp_path)
    yield made
    made.let("a", "b", "c")
    made.close()
    wait_until(made.has_cleared_up)


def is_refused(machine: Service) -> bool:
    """Whether a change is, because the store is away."""
    refused = machine.tell("set", "a", "--weight", "2")  # a deadline could slow the job down
    return refused.returncode == 2 and "store of the journal" in refused.stderr and "to do: " in refused.stderr


def trained(machine: Service, name: str) -> bool:
    return "trained" in machine.run_folder(RUN).log(JobId(name)).read_text()


def test_commands_find_the_journal_and_tell_no_password(machine: Service, url: str) -> None:
    service = machine.up("--listen", "none", "--store", url)
    a = machine.begin_job("a")
    kept = machine.run_folder(RUN).state_dir
    assert not (kept / "journal.db").exists()
    assert stat.S_IMODE((kept / "store.json").stat().st_mode) == 0o600
    assert [file.name for file in kept.iterdir() if SECRET in file.read_text(errors="replace")] == ["store.json"]
    told = [
        machine.tell(*words) for words in (["why", "a"], ["show", "a"], ["show", "a", "--json"], ["doctor"], ["ps"])
    ]
    assert [command.returncode for command in told[:3]] == [0, 0, 0], [command.stderr for command in told]
    assert json.loads(told[2].stdout)["journal"].startswith("journal 'service-")
    assert "messages" in told[3].stdout
    machine.let("a")
    output, errors = finished(a)
    service.terminate()
    told_by_service = left(service)
    told.append(machine.tell("replay", RUN, "--json", "--no-report"))
    assert json.loads(told[-1].stdout)["faithfulness"]["n_landed"] == 1
    assert SECRET not in "".join(
        [*(command.stdout + command.stderr for command in told), output, errors, told_by_service]
    )
    assert [type(message) for message in machine.messages(RUN)].count(JobFinished) == 1


def test_jobs_go_on_while_the_database_is_away_and_nothing_is_half_done(
    machine: Service, server: Server, url: str
) -> None:
    service = machine.up("--listen", "none", "--store", url)
    a = machine.begin_job("a")
    server.stop()
    try:
        wait_until(lambda: is_refused(machine))
        assert machine.tell("show", "a").returncode == 2, "the journal cannot be read"
        submitted = machine.tell(
            "submit", "--actuator", "pacing", "--name", "b", "--", *machine.script(NAMED, "b.py"), "b"
        )
        assert submitted.returncode == 2, submitted.stdout
        assert machine.states() == {"a": "running"}
        machine.let("a")
        wait_until(lambda: trained(machine, "a"))
        assert service.poll() is None
        assert machine.run_folder(RUN).open_jobs() == ["a"], "its end is not in the journal"
    finally:
        server.start()
    assert finished(a)[0] == "trained a\n"
    wait_until(lambda: machine.run_folder(RUN).open_jobs() == [])
    b = machine.begin_job("b")
    machine.let("b")
    finished(b)
    service.terminate()
    left(service)
    messages = machine.messages(RUN)
    assert [message.job for message in messages if isinstance(message, JobFinished)] == ["a", "b"]
    assert [message.spec.id for message in messages if isinstance(message, JobSubmitted)] == ["a", "b"]
    assert all(message.spec.id == "a" for message in messages if isinstance(message, SpecChanged))
    assert [machine.n_starts(name) for name in "ab"] == [1, 1]


def test_the_end_of_a_job_is_not_lost_if_the_host_is_killed_while_the_database_is_away(
    machine: Service, server: Server, url: str
) -> None:
    service = machine.up("--listen", "none", "--store", url)
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    server.stop()
    try:
        wait_until(lambda: is_refused(machine))
        machine.let("a")
        wait_until(lambda: trained(machine, "a"))
        wait_until(lambda: machine.run_folder(RUN).end_record(JobId("a")))
        machine.kill(service)
    finally:
        server.start()
    again = machine.up("--listen", "none", "--store", url)
    wait_until(lambda: machine.jobs() == [])
    again.terminate()
    left(again)
    assert machine.runs() == [f"{RUN}.1"], "the second had no job"
    ends = [message for message in machine.messages(f"{RUN}.1") if isinstance(message, JobFinished)]
    assert [message.job for message in ends] == ["a"]
    assert machine.n_starts("a") == 1


def test_a_service_leaves_its_jobs_also_while_the_database_is_away(machine: Service, server: Server, url: str) -> None:
    service = machine.up("--listen", "none", "--store", url)
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    server.stop()
    try:
        wait_until(lambda: is_refused(machine))
        service.terminate()
        assert "1 job left" in left(service)
        assert machine.states() == {"a": "unsteered"}
        refused = machine.tell("attach", "a")
        assert refused.returncode == 2
        assert "store of the journal must be reachable" in refused.stderr
    finally:
        server.start()
    again = machine.up("--listen", "none")
    wait_until(lambda: machine.states() == {"a": "running"})
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    again.terminate()
    left(again)
    assert machine.n_starts("a") == 1


def test_a_service_in_the_background_has_its_store_in_no_list_of_processes(machine: Service, url: str) -> None:
    options = ["--detach", "--actuator", "pacing", "--listen", "none", "--json", "--store", url]
    started = machine.punctual("up", *options)
    assert started.returncode == 0, started.stderr
    pid = json.loads(started.stdout)["pid"]
    assert SECRET not in Path(f"/proc/{pid}/cmdline").read_text()
    store = machine.run_folder(RUN).store
    assert store is not None
    assert store.url == url
    submitted = machine.punctual(
        "submit", "--actuator", "pacing", "--name", "a", "--", *machine.script(NAMED, "a.py"), "a"
    )
    assert submitted.returncode == 0, submitted.stderr
    wait_until(lambda: machine.n_starts("a"))
    process = int((machine.folder / "a.begun").read_text())
    assert SECRET not in Path(f"/proc/{process}/environ").read_text()
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    assert machine.punctual("down").returncode == 0
    log = machine.home / "state" / "service.log"
    assert "the service has ended" in log.read_text()
    assert SECRET not in log.read_text()


def test_jobs_are_taken_over_with_their_store_and_no_other(machine: Service, server: Server, url: str) -> None:
    service = machine.up("--listen", "none", "--store", url)
    a = machine.begin_job("a")
    a.kill()
    a.wait()
    machine.kill(service)
    other = machine.punctual("up", "--listen", "none", "--store", f"postgresql://me:{SECRET}@localhost/other")
    assert other.returncode == 2
    assert "`--store` must be that of the jobs" in other.stderr
    assert SECRET not in other.stderr
    again = machine.up("--listen", "none")
    wait_until(lambda: machine.states() == {"a": "running"})
    machine.let("a")
    wait_until(lambda: machine.jobs() == [])
    again.terminate()
    left(again)
    assert [type(message) for message in machine.messages(RUN)].count(JobFinished) == 1
    store = machine.run_folder(RUN).store
    assert store is not None
    of_journal = f"SELECT count(*) FROM punctual_message WHERE journal = '{store.journal}'"
    assert int(server.sql(of_journal)) > 0
    assert machine.tell("clean", "--all").returncode == 0
    assert server.sql(of_journal) == "0"


@pytest.mark.parametrize("address", ["mysql://me:{}@db/jobs", "postgresql://me:{}@/jobs?host=/nowhere"])
def test_a_store_that_cannot_be_used_is_refused_and_nothing_is_begun(tmp_path: Path, address: str) -> None:
    machine = Service(tmp_path)
    try:
        refused = machine.punctual("up", "--listen", "none", "--store", address.format(SECRET))
        assert refused.returncode == 2
        assert refused.stderr.startswith("error: ")
        assert "to do: " in refused.stderr
        assert SECRET not in refused.stdout + refused.stderr
        assert not [*machine.home.rglob("store.json")]
        assert machine.left_behind() == []
    finally:
        machine.close()


def test_the_unit_for_systemd_names_the_store_and_no_password() -> None:
    lines = unit(HostOptions(), HttpOptions(), "postgresql://me@db/my%20jobs").splitlines()
    assert "Environment=PUNCTUAL_STORE=postgresql://me@db/my%%20jobs" in lines
    with pytest.raises(InvalidSpec, match="no password") as refused:
        unit(HostOptions(), HttpOptions(), f"postgresql://me:{SECRET}@db/jobs")
    assert "pgpass" in refused.value.remedy
    assert SECRET not in str(refused.value)


def test_doctor_tries_the_store_that_a_service_would_have(
    machine: Service, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUNCTUAL_STORE", url)
    told = machine.tell("doctor")
    assert "a journal can be made in postgresql://tester:***@" in told.stdout, told
    monkeypatch.setenv("PUNCTUAL_STORE", f"postgresql://me:{SECRET}@/jobs?host=/nowhere")
    away = machine.tell("doctor")
    assert "the store of the journal must be reachable" in away.stdout
    assert SECRET not in told.stdout + told.stderr + away.stdout + away.stderr
