"""Each route against a real host with real programs."""

import http.client
import json
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from math import inf
from pathlib import Path
from typing import Any

import pytest
from tests.api.live_service import LiveService, live_service, program
from tests.waiting import PATIENCE_S, wait_until

from punctual import registry
from punctual.api.quote_routes import quote_answer
from punctual.client.client import Client, ServiceFailed
from punctual.core.codec import decode_fields
from punctual.core.events import (
    JobSubmitted,
    Message,
    NodeNoticed,
    PauseRequested,
    PolicyChanged,
    ResumeRequested,
    SpecChanged,
    StopRequested,
)
from punctual.core.ids import JobId
from punctual.core.quoting import DeadlinePrice, Finish, HurtJob, Quote
from punctual.core.reason import Reason
from punctual.daemon import host as host_module
from punctual.daemon.control_socket import ask
from punctual.daemon.host import Host
from punctual.daemon.quotes import quote_fields
from punctual.daemon.runs import messages_of
from punctual.executors.local.job_log import times_of
from punctual.journal.sqlite import SqliteJournal
from punctual.request.deadlines import Now
from punctual.request.spec_change import SpecChange


def ended(service: LiveService, name: str) -> Any:
    """How the job stands once it has ended."""
    return wait_until(lambda: service.caller.get(f"/jobs/{name}").json(), lambda job: job["ended"] is not None)


def test_a_job_is_submitted_shown_and_lands(service: LiveService) -> None:
    reply = service.caller.post("/jobs", {"program": program(), "name": "a", "deadline": "10m", "weight": 2.0})
    assert reply.status == 201, reply.body
    assert reply.headers["Location"] == "/v1/jobs/a"
    told = reply.json()
    assert (told["name"], told["weight"], told["program"][0]) == ("a", 2.0, sys.executable)
    deadline, submitted = (datetime.fromisoformat(told[field]) for field in ("deadline", "submitted"))
    assert deadline - submitted == timedelta(minutes=10)
    job = ended(service, "a")
    assert (job["state"], job["verdict"], job["exitCode"]) == ("finished", "met", 0)
    assert job["slackSeconds"] > 0


def test_a_job_gets_the_variables_it_is_given_and_not_those_of_the_service(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SAID", "of the service")
    service.caller.post("/jobs", {"program": program(), "name": "none"})
    service.caller.post("/jobs", {"program": program(), "name": "given", "env": {"SAID": "given"}})
    service.caller.post("/jobs", {"program": program(), "name": "asked", "inheritEnv": ["SAID"]})
    outputs = {}
    for name in ("none", "given", "asked"):
        ended(service, name)
        outputs[name] = service.caller.get(f"/jobs/{name}/logs?follow=true").body
    assert outputs == {"none": b"nothing\ndone\n", "given": b"given\ndone\n", "asked": b"of the service\ndone\n"}


def test_no_answer_has_a_secret(service: LiveService, tmp_path: Path) -> None:
    words = [*program(tmp_path), "--api-key=k3y", "s3cret"]
    asked = {"program": words, "name": "a", "env": {"SAID": "s3cret"}, "secretEnv": ["SAID"]}
    submitted = service.caller.post("/jobs", asked)
    ended(service, "a")
    folder = service.host.run_folder.state_dir
    for reply in (submitted, *(service.caller.get(path) for path in ("/jobs", "/jobs/a", "/jobs/a/why", "/metrics"))):
        assert reply.status in {200, 201}
        assert b"s3cret" not in reply.body
        assert b"k3y" not in reply.body
    wait_until(lambda: not [path for path in folder.glob("journal*") if b"s3cret" in path.read_bytes()])


def test_what_is_wrong_is_told_in_four_parts_with_its_place(service: LiveService) -> None:
    reply = service.caller.post("/jobs", {"program": ["no-such-program"], "deadline": "soon", "coresPerWorker": "1"})
    assert reply.status == 422
    assert reply.headers["Content-Type"] == "application/problem+json"
    told = reply.json()
    assert all(told[part] for part in ("must", "got", "where", "remedy"))
    fields = {fault["field"] for fault in (told, *told["others"])}
    assert fields == {"/program", "/deadline", "/coresPerWorker"}
    assert service.host.jobs() == ()


def test_no_number_that_is_infinite_or_none_is_taken(service: LiveService) -> None:
    kind = {"Content-Type": "application/json"}
    for number in ["1e999", "-1e999", "Infinity", "NaN", "1e308", '"inf"']:
        for name in ("weight", "steps", "retries", "deadline", "cores", "workers", "margin"):
            body = json.dumps({"program": program(), name: "PLACE"}).replace('"PLACE"', number)
            reply = service.caller.send("POST", "/jobs", body.encode(), kind)
            assert 400 <= reply.status < 500, (name, number, reply.body)
        reply = service.caller.post("/jobs", {"program": program(), "until": f"loss<{number}"})
        assert reply.status == (201 if number == "1e308" else 422), (number, reply.body)
        body = json.dumps({"name": "fifo", "parameters": {"size": "PLACE"}}).replace('"PLACE"', number)
        assert 400 <= service.caller.send("PUT", "/policy", body.encode(), kind).status < 500, number
        jobs = service.caller.get("/jobs")
        json.loads(jobs.body, parse_constant=pytest.fail)
        assert len(jobs.json()["jobs"]) <= 1, number


def test_what_cannot_be_a_job_is_refused(service: LiveService) -> None:
    for asked, field in [
        ({}, "/program"),
        ({"program": []}, "/program"),
        ({"program": ["a\0b"]}, "/program/0"),
        ({"program": ["a"], "wieght": 2}, "/wieght"),
        ({"program": ["a"], "weight": -1}, "/weight"),
        ({"program": ["a"], "cwd": "here"}, "/cwd"),
        ({"program": ["a"], "cwd": "/" + "x" * 300}, "/cwd"),
        ({"program": ["a"], "env": {"A=B": "s3cret"}}, None),
        ({"program": ["a"], "env": {"A": 5}}, "/env/A"),
        ({"program": ["a"], "inheritEnv": ["NOT_THERE"]}, "/inheritEnv"),
        ({"program": ["a"], "name": "../a"}, "/name"),
        ({"program": ["a"], "name": "\ud800"}, "/name"),
    ]:
        reply = service.caller.post("/jobs", asked)
        assert reply.status == 422, (asked, reply.body)
        told = reply.json()
        assert field is None or field in {fault.get("field") for fault in (told, *told["others"])}, asked
        assert b"s3cret" not in reply.body, asked


def test_jobs_are_listed_by_filters_and_in_pages(service: LiveService, tmp_path: Path) -> None:
    for i in range(5):
        service.caller.post("/jobs", {"program": program(), "name": f"short-{i}", "deadline": "10m"})
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "long"})
    for i in range(5):
        ended(service, f"short-{i}")
    names, query = [], "limit=2"
    while query:
        page = service.caller.get(f"/jobs?{query}").json()
        assert len(page["jobs"]) <= 2
        names += [job["name"] for job in page["jobs"]]
        query = page["nextCursor"] and f"limit=2&cursor={page['nextCursor']}"
    assert names == [*(f"short-{i}" for i in range(5)), "long"]

    def listed(query: str) -> list[str]:
        return [job["name"] for job in service.caller.get(f"/jobs?{query}").json()["jobs"]]

    assert listed("name=lo") == ["long"]
    assert listed("state=finished") == names[:5]
    wait_until(lambda: listed("state=running&state=starting"), lambda names: names == ["long"])
    assert listed("verdict=met") == names[:5]
    assert service.caller.get("/jobs?cursor=x").status == 422


def test_a_deadline_is_moved_by_an_edit(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a", "deadline": "10m"})
    before = datetime.fromisoformat(service.caller.get("/jobs/a").json()["deadline"])
    reply = service.caller.send("PATCH", "/jobs/a", {"deadline": "+30m"})
    assert reply.status == 200
    moved = datetime.fromisoformat(reply.json()["deadline"])
    assert abs(moved - before - timedelta(minutes=30)) < timedelta(seconds=1)
    wait_until(
        lambda: service.host.status(JobId("a")).spec.deadline_s, lambda deadline_s: deadline_s == pytest.approx(2400.0)
    )
    again = service.caller.send("PATCH", "/jobs/a", {"deadline": moved.isoformat(timespec="seconds")})
    assert again.status == 200, again.body
    assert service.caller.send("PATCH", "/jobs/a", {"deadline": None}).json()["deadline"] is None
    refused = service.caller.send("PATCH", "/jobs/a", {"deadline": "2020-01-01 00:00"})
    assert (refused.status, refused.json()["field"]) == (422, "/deadline")


def test_weight_and_bounds_are_changed_together_or_not_at_all(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a", "deadline": "10m"})
    before = service.host.status(JobId("a")).spec
    wrong = {"weight": 3.0, "cores": "0.2..1", "workers": "1..2", "deadline": "2020-01-01 00:00"}
    refused = service.caller.send("PATCH", "/jobs/a", wrong)
    assert (refused.status, refused.json()["field"]) == (422, "/deadline")
    refused = service.caller.send("PATCH", "/jobs/a", {**wrong, "deadline": "+5m", "cores": "9999"})
    told = refused.json()
    assert refused.status == 422
    assert [fault["field"] for fault in (told, *told["others"])] == ["/cores", "/workers"]
    assert all(told[part] for part in ("must", "got", "where", "remedy"))
    assert service.caller.get("/jobs/a").json()["weight"] == 1.0
    assert service.host.change(before.id, SpecChange()) == before, "nothing of it counts"

    reply = service.caller.send("PATCH", "/jobs/a", {"weight": 3.0, "cores": "0.2..0.5", "deadline": "+5m"})
    assert reply.status == 200, reply.body
    bounds = (reply.json()[field] for field in ("weight", "leastCores", "mostCores", "leastWorkers"))
    assert tuple(bounds) == (3.0, 0.2, 0.5, None)
    spec = wait_until(lambda: service.host.status(before.id).spec, lambda spec: spec.weight == 3.0)
    assert (spec.floor.cores, spec.ceiling.cores, spec.deadline_s) == (0.2, 0.5, pytest.approx(900.0))
    changes = [message for message in messages_of(service.host.run_folder) if isinstance(message, SpecChanged)]
    assert [message.by for message in changes if message.spec.weight == 3.0] == ["token 'owner'"]


def test_the_policy_is_changed_and_the_journal_says_by_whom(service: LiveService) -> None:
    assert service.caller.get("/policy").json() == {"name": "proportional", "parameters": {}, "before": None}
    asked = {"name": "fifo", "parameters": {"backfill": True}}
    reply = service.caller.send("PUT", "/policy", asked)
    assert (reply.status, reply.json()) == (200, {**asked, "before": "proportional"})
    wait_until(lambda: service.caller.get("/policy").json(), lambda told: told == {**asked, "before": None})
    assert service.caller.get("/cluster").json()["policy"] == "fifo"
    changes = [message for message in messages_of(service.host.run_folder) if isinstance(message, PolicyChanged)]
    assert [(message.policy, message.by) for message in changes] == [("fifo", "token 'owner'")]


def test_what_cannot_be_a_policy_is_refused(service: LiveService) -> None:
    for asked, field in [
        ({"name": "fifi"}, "/name"),
        ({"name": "fifo", "parameters": {"depth": 2}}, "/parameters"),
        ({"name": "fifo", "parameters": {"size": "no size"}}, "/parameters"),
        ({"name": "fifo", "parameters": {"backfill": "yes"}}, "/parameters"),
        ({"name": "fifo", "parameters": {"size": {"deep": {}}}}, "/parameters/size"),
        ({"policy": "fifo"}, "/name"),
    ]:
        reply = service.caller.send("PUT", "/policy", asked)
        assert reply.status == 422, (asked, reply.body)
        told = reply.json()
        assert all(told[part] for part in ("must", "got", "where", "remedy")), asked
        assert any(fault["field"].startswith(field) for fault in (told, *told["others"])), asked
        assert service.host.policy == "proportional", asked


def test_a_change_is_logged_in_words(service: LiveService, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a"})
    with caplog.at_level("INFO", "punctual"):
        service.caller.send("PATCH", "/jobs/a", {"weight": 2, "cores": "0.1..1"})
        service.caller.post("/nodes/local/drain", {"in": "30s\n"})
    assert "job 'a' was changed: weight 2.0, cores 0.1..1, by token 'owner'" in caplog.text
    assert r"is drained in 30s\n, by token 'owner'" in caplog.text


def test_a_job_is_stopped_and_says_by_whom(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a"})
    assert service.caller.post("/jobs/a/stop", {"cause": "enough"}).status == 202
    job = ended(service, "a")
    assert job["state"] == "stopped"
    assert job["cause"] == "stopped over HTTP by token 'owner': enough"
    assert service.caller.post("/jobs/a/stop").status == 202  # a second time, it stays as it is


def test_a_job_is_paused_and_resumed(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "a"})
    wait_until(lambda: service.caller.get("/jobs/a").json()["state"], lambda state: state == "running")
    assert service.caller.post("/jobs/a/pause", {"cause": "lunch"}).status == 202
    wait_until(lambda: service.caller.get("/jobs/a").json()["state"], lambda state: state == "paused")
    wait_until(lambda: service.caller.get("/jobs/a").json()["grantedCores"], lambda cores: cores == 0.0)
    pause = service.host.status(JobId("a")).pause
    assert pause is not None
    assert (pause.cause, pause.by) == ("lunch", "token 'owner'")
    assert service.caller.post("/jobs/a/resume").status == 202
    wait_until(lambda: service.caller.get("/jobs/a").json()["state"], lambda state: state == "running")
    assert service.caller.post("/jobs/a/resume").status == 422
    (tmp_path / "go").touch()
    ended(service, "a")


def test_a_quote_tells_the_earliest_deadline_and_changes_nothing(service: LiveService) -> None:
    job = {"program": program(), "cores": "1", "work": "60s", "deadline": "10m"}
    told = service.caller.post("/quote", {"job": job, "cores": [0.5]})
    assert told.status == 200, told.body
    quote = told.json()
    assert [finish["cores"] for finish in quote["finishes"]] == [0.5]
    took = datetime.fromisoformat(quote["finishes"][0]["finish"]) - datetime.now().astimezone()
    assert timedelta(seconds=60) < took < timedelta(seconds=240)
    assert service.caller.get("/jobs").json()["jobs"] == []
    assert service.caller.post("/jobs/none/quote", {"deadline": "1h"}).status == 404


def test_what_is_wrong_within_a_job_to_be_quoted_is_named_and_its_secrets_are_not_repeated(
    service: LiveService,
) -> None:
    """The job is a part of the request: it is the field within it that is told of."""
    told = service.caller.post("/quote", {"job": {"program": program(), "weight": "much"}})
    assert (told.status, told.json()["field"]) == (422, "/job/weight")
    assert told.json()["must"].startswith("`weight`: ")
    found = service.caller.post("/quote", {"job": {"program": program(), "deadline": "soon", "coresPerWorker": "1"}})
    assert found.status == 422
    assert {fault["field"] for fault in (found.json(), *found.json()["others"])} == {
        "/job/deadline",
        "/job/coresPerWorker",
    }
    costly = service.caller.post("/quote", {"job": {"program": program(), "budgetUsd": 40}})
    assert (costly.status, costly.json()["field"]) == (422, "/job/budgetUsd")
    assert "prices" in costly.json()["must"]
    secret = service.caller.post("/quote", {"job": {"program": program(), "env": {"TOKEN": 4711}}})
    assert secret.status == 422
    assert secret.json()["must"].startswith("`env`: ")
    assert b"4711" not in secret.body


def test_what_is_wrong_within_a_policy_to_be_tried_is_named(service: LiveService) -> None:
    for policy, field in [
        ({"name": "fifi"}, "/policy"),
        ({"name": "fifo", "parameters": {"no": 1}}, "/policy/parameters"),
    ]:
        told = service.caller.post("/what-if", {"policy": policy})
        assert (told.status, told.json()["field"]) == (422, field)


def test_a_quote_says_the_same_over_http_as_beside_a_terminal() -> None:
    now = Now.read()
    finish = Finish(cores=1.5, n_workers=3, finish_at=now.at + 60, low_at=now.at + 50, high_at=now.at + 70)
    hurt = HurtJob(job=JobId("b"), promised_until_at=now.at + 90, cores_before=2.0, cores_after=1.0, later_s=inf)
    quote = Quote(
        job=JobId("a"), at=now.at, promises=True, deadline_at=now.at + 80, can_be_promised=False, earliest_at=None,
        expected=finish, finishes=(finish,), hurt=(hurt,), reason=Reason("tight", "no room", {"free_cores": inf}),
        prices=(DeadlinePrice(deadline_at=now.at + 80, usd=41.0), DeadlinePrice(deadline_at=now.at + 9, usd=None)),
        budget_usd=50.0, bought_at=now.at + 70,
    )  # fmt: skip
    fields, answer = quote_fields(quote, now), quote_answer(quote, now)
    assert (answer.job, answer.promises, answer.can_be_promised) == ("a", True, False)
    assert (answer.deadline, answer.earliest) == (datetime.fromisoformat(fields["deadline_wall"]), None)
    assert answer.expected == answer.finishes[0]
    assert [(price.deadline, price.usd) for price in answer.prices] == [
        (now.wall_of(now.at + 80), 41.0),
        (now.wall_of(now.at + 9), None),
    ]
    assert (answer.budget_usd, answer.bought) == (50.0, now.wall_of(now.at + 70))
    assert decode_fields(Quote, asdict(quote)) == quote
    entry = answer.finishes[0]
    assert (entry.cores, entry.workers, entry.finish) == (1.5, 3, now.wall_of(now.at + 60))
    assert (entry.low, entry.high) == (now.wall_of(now.at + 50), now.wall_of(now.at + 70))
    (told_hurt,) = answer.hurt
    assert (told_hurt.job, told_hurt.promised_until, told_hurt.later_seconds) == ("b", now.wall_of(now.at + 90), None)
    assert (told_hurt.cores_before, told_hurt.cores_after) == (2.0, 1.0)
    assert (answer.reason.code, answer.reason.text, answer.reason.facts) == ("tight", "no room", {"free_cores": None})


def test_why_tells_what_has_happened(service: LiveService) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a"})
    ended(service, "a")
    entries = service.caller.get("/jobs/a/why").json()["entries"]
    assert entries[0]["kind"] == "submitted"
    assert entries[-1]["kind"] == "finished"
    assert len(service.caller.get("/jobs/a/why?last=1").json()["entries"]) == 1


def test_logs_are_given_in_ranges_and_followed(service: LiveService, tmp_path: Path) -> None:
    awaited = tmp_path / "go"
    service.caller.post("/jobs", {"program": program(awaited), "name": "a"})
    wait_until(lambda: service.caller.get("/jobs/a/logs").body, lambda log: log == b"nothing\n")
    for said, body, place in [
        ("bytes=0-2", b"not", "bytes 0-2/8"),
        ("bytes=3-", b"hing\n", "bytes 3-7/8"),
        ("bytes=-2", b"g\n", "bytes 6-7/8"),
    ]:
        part = service.caller.get("/jobs/a/logs", {"Range": said})
        assert (part.status, part.body, part.headers["Content-Range"]) == (206, body, place)
    assert service.caller.get("/jobs/a/logs", {"Range": "bytes=8-"}).status == 416
    assert service.caller.get("/jobs/a/logs", {"Range": "lines=1-"}).body == b"nothing\n"
    assert service.caller.get("/jobs/a/logs?stream=stderr").body == b""
    awaited.touch()
    assert service.caller.get("/jobs/a/logs?follow=true").body == b"nothing\ndone\n"


def test_a_followed_log_is_cut_off_where_the_service_ends_before_the_job(tmp_path: Path) -> None:
    seen: list[object] = []
    with live_service() as service:
        Client(service.served.url).submit(program(tmp_path / "go"), name="a")
        pieces = Client(service.served.url).logs("a", follow=True)
        seen.append(next(pieces))

        def read() -> None:
            try:
                seen.extend(pieces)
            except (OSError, http.client.HTTPException, ServiceFailed) as error:
                seen.append(error)

        reading = threading.Thread(target=read, daemon=True)
        reading.start()
    reading.join(PATIENCE_S)
    assert seen[0] == b"nothing\n"
    assert isinstance(seen[-1], Exception)


def test_an_idempotency_key_is_free_again_once_its_job_is_removed(service: LiveService) -> None:
    key = {"Idempotency-Key": "nightly"}
    first = service.caller.post("/jobs", {"program": program()}, key).json()["name"]
    ended(service, first)
    assert service.caller.post("/jobs", {"program": program()}, key).json()["name"] == first
    service.host.run_folder.records.forget([JobId(first)])
    for query in ("", "?follow=true"):
        assert service.caller.get(f"/jobs/{first}/logs{query}").status == 410, "it has not written nothing"
    assert service.caller.post("/jobs", {"program": program()}, key).json()["name"] != first


def test_logs_are_given_from_a_time_on(service: LiveService, tmp_path: Path) -> None:
    awaited = tmp_path / "go"
    service.caller.post("/jobs", {"program": program(awaited), "name": "a"})
    wait_until(lambda: service.caller.get("/jobs/a/logs").body, lambda log: log == b"nothing\n")
    log = service.host.log(JobId("a"))
    between = datetime.now(UTC)
    wait_until(lambda: time.time() - log.stat().st_mtime > 1)  # times are noted to a second
    awaited.touch()
    ended(service, "a")
    client = Client(service.served.url, token=service.caller.token)
    for follow in (False, True):
        for hours, kept in ((-1, b"nothing\ndone\n"), (0, b"done\n"), (1, b"")):
            since = between + timedelta(hours=hours)
            assert b"".join(client.logs("a", follow=follow, since=since)) == kept
    assert service.caller.get("/jobs/a/logs?since=yesterday").status == 422
    Path(times_of(str(log))).unlink()  # a job of a former release has none
    assert b"".join(client.logs("a", since=between)) == b"nothing\ndone\n"


def test_a_followed_log_begins_at_a_time_that_is_still_to_come(service: LiveService, tmp_path: Path) -> None:
    awaited = tmp_path / "go"
    service.caller.post("/jobs", {"program": program(awaited), "name": "a"})
    wait_until(lambda: service.caller.get("/jobs/a/logs").body, lambda log: log == b"nothing\n")
    place = service.caller.place
    connection = http.client.HTTPConnection(str(place.hostname), place.port, timeout=PATIENCE_S)
    since = (datetime.now(UTC) + timedelta(days=1)).isoformat().replace("+", "%2B")
    headers = {"Authorization": f"Bearer {service.caller.token}"}
    connection.request("GET", f"/v1/jobs/a/logs?follow=true&since={since}", headers=headers)
    response = connection.getresponse()
    awaited.touch()
    assert response.read() == b""
    connection.close()


def test_the_cluster_says_what_is_held(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a"})
    held = wait_until(lambda: service.caller.get("/cluster").json(), lambda cluster: cluster["held"]["cores"] > 0)
    assert held["capacity"]["cores"] == pytest.approx(held["held"]["cores"] + held["free"]["cores"])
    assert [node["name"] for node in held["nodes"]] == ["local"]
    assert held["policy"] == "proportional"


def test_jobs_save_and_wait_while_their_only_node_is_drained(service: LiveService, tmp_path: Path) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "a"})

    def until_is(state: str) -> Any:
        return wait_until(lambda: service.caller.get("/jobs/a").json(), lambda job: job["state"] == state)

    until_is("running")
    assert service.caller.post("/nodes/local/drain", {"in": "999999999d"}).status == 422
    unknown = service.caller.post("/nodes/nowhere/drain", {})
    assert (unknown.status, unknown.json()["got"]) == (422, "'nowhere'")
    assert "local" in unknown.json()["remedy"]
    assert service.caller.post("/nodes/local/drain", {"in": "soon"}).json()["field"] == "/in"
    drained = service.caller.post("/nodes/local/drain", {"in": "20s"})
    assert drained.status == 200, drained.body
    (node,) = wait_until(lambda: service.caller.get("/cluster").json()["nodes"], lambda nodes: nodes[0]["leaves"])
    left_s = (datetime.fromisoformat(node["leaves"]) - datetime.now().astimezone()).total_seconds()
    assert 0 < left_s <= 20
    until_is("queued")
    waits = wait_until(
        lambda: service.caller.get("/jobs/a").json()["reason"], lambda told: told and told["code"] == "waits"
    )
    assert "all are leaving" in waits["text"]
    assert service.caller.post("/nodes/local/undrain", {}).status == 200
    job = until_is("running")
    assert job["attempts"] == 2
    noticed = [message for message in messages_of(service.host.run_folder) if isinstance(message, NodeNoticed)]
    assert [(message.ends_at is None, message.by) for message in noticed] == [
        (False, "token 'owner'"),
        (True, "token 'owner'"),
    ]
    kinds = [entry["kind"] for entry in service.caller.get("/jobs/a/why?last=100").json()["entries"]]
    assert "moved" in kinds
    assert "failed" not in kinds


def test_policies_are_those_of_the_registry(service: LiveService) -> None:
    told = {policy["name"]: policy for policy in service.caller.get("/policies").json()["policies"]}
    assert list(told) == registry.names("policies")
    assert [name for name, policy in told.items() if policy["active"]] == ["proportional"]
    assert told["fifo"]["parameters"] == {"size": "'largest'", "backfill": "False"}


def test_metrics_can_be_read_by_prometheus(service: LiveService) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a", "deadline": "10m"})
    ended(service, "a")
    lines = service.caller.get("/metrics").body.decode().splitlines()
    assert 'punctual_jobs{state="finished"} 1' in lines
    assert 'punctual_job_verdict{job="a",verdict="met"} 1' in lines
    names = {line.split("{")[0] for line in lines if not line.startswith("#")}
    assert names <= {line.split()[2] for line in lines if line.startswith("# TYPE")}


def test_metrics_are_not_rounded(service: LiveService) -> None:
    n_bytes = service.caller.get("/cluster").json()["nodes"][0]["capacity"]["memoryBytes"]
    line = f'punctual_node_capacity_memory_bytes{{node="local"}} {n_bytes}'
    assert line in service.caller.get("/metrics").body.decode().splitlines()


def test_a_parameter_that_a_route_does_not_have_is_refused_with_the_one_that_was_meant(service: LiveService) -> None:
    service.caller.post("/jobs", {"program": program(), "name": "a"})
    for path, meant in [
        ("/jobs?stat=running", "state"),
        ("/jobs/a/logs?folow=true", "follow"),
        ("/jobs/a/why?lats=3", "last"),
    ]:
        refused = service.caller.get(path)
        assert refused.status == 422, path
        assert refused.json()["remedy"].startswith(f"Did you mean `{meant}`?"), path
    assert "Known: none" in service.caller.get("/health?verbose=1").json()["remedy"]


def test_a_host_that_leaves_takes_no_changes(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.caller.get("/health").json()["status"] == "ok"
    monkeypatch.setattr(service.host, "is_handed_over", True)
    reply = service.caller.post("/jobs", {"program": program()})
    assert (reply.status, reply.headers["Retry-After"]) == (503, "1")
    assert service.caller.get("/health").json()["status"] == "leaving"


def test_what_is_not_there_is_404(service: LiveService) -> None:
    for path in ["/jobs/none", "/jobs/none/why", "/jobs/none/logs", "/nothing", "/jobs/..%2f..%2fetc"]:
        reply = service.caller.get(path)
        assert (reply.status, reply.headers["Content-Type"]) == (404, "application/problem+json"), path


# Idempotency.


def test_the_same_request_with_the_same_key_leads_to_one_job(service: LiveService) -> None:
    asked, key = {"program": program()}, {"Idempotency-Key": "k1"}
    first, second = (service.caller.post("/jobs", asked, key) for _ in range(2))
    assert (first.status, second.status) == (201, 201)
    assert first.json()["name"] == second.json()["name"]
    assert len(service.host.jobs()) == 1
    other = service.caller.post("/jobs", {**asked, "weight": 2}, key)
    assert other.status == 422
    assert service.caller.post("/jobs", asked).json()["name"] != first.json()["name"]


def test_the_journal_and_the_log_tell_once_who_has_submitted_a_job(
    service: LiveService, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="punctual.api")
    caller, key = service.with_role("submitter"), {"Idempotency-Key": "k1"}
    for _ in range(2):
        assert caller.post("/jobs", {"program": program(), "name": "a"}, key).status == 201
    told = [message.by for message in messages_of(service.host.run_folder) if isinstance(message, JobSubmitted)]
    assert told == ["token 'a-submitter'"]
    noted = [record.getMessage() for record in caplog.records if "was submitted" in record.getMessage()]
    assert noted == ["job 'a' was submitted, by token 'a-submitter'"]
    assert "submitted by token 'a-submitter'" in service.caller.get("/jobs/a/why").json()["entries"][0]["text"]


def test_a_key_never_runs_a_job_twice_that_the_host_has_forgotten(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, key = {"program": program(), "name": "a"}, {"Idempotency-Key": "k1"}
    assert service.caller.post("/jobs", asked, key).status == 201
    ended(service, "a")
    with monkeypatch.context() as later:
        later.setattr(Host, "knows", lambda *_: False)
        reply = service.caller.post("/jobs", asked, key)
    assert reply.status == 410
    assert "job 'a'" in reply.json()["detail"]
    assert service.caller.post("/jobs", asked, key).status == 201
    assert [status.id for status in service.host.jobs()] == ["a"]


def test_a_request_said_again_before_the_host_has_come_to_it_is_not_refused_because_of_itself(
    service: LiveService, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = SqliteJournal.append

    def slow(journal: SqliteJournal, messages: Iterable[Message]) -> int:
        time.sleep(0.5)
        return write(journal, messages)

    monkeypatch.setattr(host_module, "_TELL_S_MAX", 0.05)
    monkeypatch.setattr(SqliteJournal, "append", slow)
    asked, key = {"program": program(), "name": "a"}, {"Idempotency-Key": "k1"}
    assert service.caller.post("/jobs", asked, key).status == 503
    assert service.caller.post("/jobs", asked, key).status == 201


def test_a_key_of_a_refused_request_can_be_used_again(service: LiveService) -> None:
    key = {"Idempotency-Key": "k1"}
    assert service.caller.post("/jobs", {"program": ["no-such-program"]}, key).status == 422
    assert service.caller.post("/jobs", {"program": program()}, key).status == 201


def test_what_is_acknowledged_is_in_the_journal(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "a"})
    wait_until(lambda: service.caller.get("/jobs/a").json()["state"] == "running")
    write = SqliteJournal.append

    def slow(journal: SqliteJournal, messages: Iterable[Message]) -> int:
        time.sleep(0.2)
        return write(journal, messages)

    monkeypatch.setattr(SqliteJournal, "append", slow)
    requests: list[tuple[type[Message], Callable[[], object]]] = [
        (SpecChanged, lambda: service.caller.send("PATCH", "/jobs/a", {"deadline": "10m"})),
        (PauseRequested, lambda: service.caller.post("/jobs/a/pause")),
        (ResumeRequested, lambda: service.caller.post("/jobs/a/resume")),
        (SpecChanged, lambda: ask(service.host.run_folder.socket, {"verb": "change", "job": "a", "change": {"weight": 3}})),
        (PauseRequested, lambda: ask(service.host.run_folder.socket, {"verb": "pause", "job": "a"})),
        (ResumeRequested, lambda: ask(service.host.run_folder.socket, {"verb": "resume", "job": "a"})),
        (PolicyChanged, lambda: ask(
            service.host.run_folder.socket, {"verb": "policy", "policy": "max-min", "parameters": {}}
        )),
        (StopRequested, lambda: service.caller.post("/jobs/a/stop")),
    ]  # fmt: skip
    for kind, request in requests:
        n_before = sum(isinstance(message, kind) for message in messages_of(service.host.run_folder))
        request()
        n_after = sum(isinstance(message, kind) for message in messages_of(service.host.run_folder))
        assert n_after == n_before + 1, kind
