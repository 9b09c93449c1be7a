"""The client's two faces, and that it costs nothing where it is not used."""

import sys
from pathlib import Path
from typing import Any

import pytest
from tests.api.live_service import LiveService, program
from tests.architecture.test_names import loaded_by
from tests.waiting import wait_until

import punctual
from punctual.client.client import Client, ServiceFailed
from punctual.core.errors import InvalidSpec


def test_a_job_is_submitted_from_python_as_from_a_shell(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the own socket, it has this process's variables and folder."""
    monkeypatch.setenv("SAID", "from here")
    monkeypatch.chdir(tmp_path)
    here = "import os, pathlib; print(os.environ['SAID'], pathlib.Path.cwd())"
    job = punctual.submit([sys.executable, "-c", here], name="a", deadline="10m")
    standing = job.wait()
    assert (standing.state, standing.verdict) == ("finished", "met")
    assert b"".join(job.logs(follow=True)) == f"from here {tmp_path}\n".encode()
    assert [job.name for job in punctual.Client().jobs(state=["finished"], verdict=["met"], name="a")] == ["a"]
    assert [entry.kind for entry in job.why()][-1] == "finished"


def test_a_job_and_the_policy_are_changed_from_python(service: LiveService, tmp_path: Path) -> None:
    job = punctual.submit(program(tmp_path / "never"), name="a", deadline="10m")
    standing = job.change(weight=2.0, cores="0.2..0.5", deadline=None)
    assert (standing.weight, standing.least_cores, standing.most_cores, standing.deadline) == (2.0, 0.2, 0.5, None)
    with pytest.raises(InvalidSpec) as refused:
        job.change(weight=3.0, workers="1..2")
    assert refused.value.option == "workers"
    changed = Client(service.served.url).change_policy("fifo", {"backfill": True})
    assert (changed.name, changed.before) == ("fifo", "proportional")
    told = wait_until(Client().policy, lambda policy: policy.name == "fifo")
    assert told.parameters == {"backfill": True}
    client = Client(service.served.url)
    with pytest.raises(InvalidSpec, match="local"):
        client.drain("nowhere")
    client.drain("local", "5m")
    wait_until(lambda: client.cluster().nodes[0].leaves)
    client.undrain("local")
    wait_until(lambda: client.cluster().nodes[0].leaves is None)


def test_over_tcp_a_job_has_what_it_is_given(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAID", "of this shell")
    job = Client(service.served.url).submit(program(), env={"OTHER": "x"})
    job.wait()
    assert b"nothing" in b"".join(job.logs(follow=True))


def test_errors_are_those_of_the_command_line(service: LiveService) -> None:
    client = Client()
    with pytest.raises(InvalidSpec) as refused:
        client.submit(["no-such-program"], deadline="soon")
    assert {error.option for error in refused.value.all()} == {"program", "deadline"}
    with pytest.raises(InvalidSpec) as refused:
        client.quote_new(["no-such-program"], deadline="soon")
    assert {error.option for error in refused.value.all()} == {"program", "deadline"}
    for ask in (client.submit, client.quote_new):
        with pytest.raises(InvalidSpec, match="Did you mean `deadline`") as refused:
            ask(program(), deadlin="10m")
        assert refused.value.option == "deadlin"
    with pytest.raises(ServiceFailed) as unknown:
        client.show("../a")
    assert unknown.value.status == 404
    with pytest.raises(ServiceFailed) as stranger:
        Client(service.served.url, token="wrong").health()
    assert stranger.value.status == 401


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ([], {}),
        ("sleep 1", {}),
        (None, {}),
        (["sleep", 1], {}),
        (["sleep", "\0"], {}),
        (["true"], {"deadline": 60}),
        (["true"], {"env": {"TOKEN": ["hidden"]}}),
        (["true"], {"idempotency_key": ""}),
        (["true"], {"idempotency_key": "a\r\nX: y"}),
    ],
)
def test_wrong_types_are_refused_in_four_parts(program: Any, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec) as refused:
        Client("http://127.0.0.1:9").submit(program, **options)
    assert refused.value.remedy
    assert "hidden" not in str(refused.value)


def test_without_a_service_it_says_how_to_start_one() -> None:
    with pytest.raises(ServiceFailed, match="punctual up"):
        Client().health()


@pytest.mark.parametrize("url", ["localhost", "ftp://localhost", "http://"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(InvalidSpec, match="url"):
        Client(url)


def test_a_submission_that_is_not_answered_is_said_again(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    """And leads to one job, though the service has heard it twice."""
    client, sent = Client(), []
    send = client._answer

    def lossy(*args: Any, **parts: Any) -> Any:
        answer = send(*args, **parts)
        sent.append(answer)
        if len(sent) == 1:
            raise ServiceFailed("the answer was lost")
        return answer

    monkeypatch.setattr(client, "_answer", lossy)
    job = client.submit(program())
    assert len(sent) == 2
    assert [status.id for status in service.host.jobs()] == [job.name]


def test_a_training_script_does_not_load_the_client() -> None:
    loaded = loaded_by("import punctual; punctual.track")
    assert not {"pydantic", "http", "ssl", "asyncio", "fastapi", "uvicorn"} & loaded
    assert not {"fastapi", "uvicorn", "httpx"} & loaded_by("import punctual; punctual.Client()")
