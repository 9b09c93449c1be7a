"""Over HTTP: the course of a job."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.api.live_service import LiveService, program
from tests.waiting import wait_until

from punctual.api.history_response import _curve
from punctual.client.schema import JobProgram
from punctual.core.events import NodeLost
from punctual.core.ids import JobId, NodeId
from punctual.daemon.runs import messages_of
from punctual.history.job import Curves, TracedMessage
from punctual.history.run import history_of, series

COUNTS = """
import time, punctual
for i in punctual.track(range(40)):
    time.sleep(0.05)
"""


def test_the_history_of_a_job_is_that_of_its_journal(service: LiveService) -> None:
    asked = {"program": [sys.executable, "-c", COUNTS], "name": "a", "deadline": "10s", "cores": "0.1..1"}
    assert service.caller.post("/jobs", asked).status == 201
    before = service.caller.get("/jobs/a/history")
    assert before.status == 200, before.body
    wait_until(lambda: service.host.has_ended(JobId("a")))
    told = service.caller.get("/jobs/a/history").json()
    known = series(history_of(messages_of(service.host.run_folder, [JobId("a")]), JobId("a")))
    assert told["progress"]["values"] == [pytest.approx(100 * done, abs=1e-5) for _, done in known.progress]
    assert told["progress"]["values"][-1] == pytest.approx(100.0)
    assert told["granted"]["values"] == [pytest.approx(cores, abs=1e-5) for _, cores in known.grant]
    assert told["granted"]["values"][-1] == 0
    assert told["deadlines"] == {"seconds": [0.0], "values": [10.0]}
    assert told["workers"]["seconds"] == []
    assert told["submitted"] < told["until"]


def test_a_job_that_waits_has_a_history_and_one_that_is_not_there_has_none(
    service: LiveService, tmp_path: Path
) -> None:
    service.caller.post("/jobs", {"program": program(tmp_path / "go"), "name": "first"})
    service.caller.post("/jobs", {"program": program(), "name": "second", "after": ["first"]})
    assert service.caller.get("/jobs/second/history").json()["granted"]["values"] == []
    assert service.caller.get("/jobs/none/history").status == 404
    assert service.caller.get("/jobs/first/history?points=1").status == 422
    (tmp_path / "go").touch()


def test_a_long_curve_keeps_its_ends() -> None:
    curve = _curve([(float(i), float(i * i)) for i in range(1000)], 7)
    assert len(curve.seconds) == 7
    assert (curve.seconds[0], curve.seconds[-1], curve.values[-1]) == (0.0, 999.0, 998001.0)
    assert curve.seconds == sorted(set(curve.seconds))


def test_a_long_course_is_thinned_evenly_and_keeps_its_ends() -> None:
    course = Curves(forecasts=[(float(i), 2.0 * i) for i in range(5000)])
    course.thin(100, 100)
    assert 100 <= len(course.forecasts) <= 201
    assert course.forecasts[0] == (0.0, 0.0)
    assert course.forecasts[-1] == (4999.0, 9998.0)
    steps = [after[0] - before[0] for before, after in zip(course.forecasts[:-2], course.forecasts[1:-1], strict=True)]
    assert max(steps) == min(steps)


def test_a_long_trace_keeps_the_last_commands_and_changes_before_them() -> None:
    trace = [TracedMessage(NodeLost(at=float(i), node=NodeId("n")), None, None, None, i % 10 > 0) for i in range(1000)]
    course = Curves(trace=list(trace))
    course.thin(100, 50)
    assert course.trace[-50:] == trace[-50:]
    assert course.trace[:-50] == trace[450:950:10]


def test_of_a_program_s_variables_that_a_caller_gives_only_names_are_told(service: LiveService, tmp_path: Path) -> None:
    job = {"program": [*program(tmp_path / "go"), "--token=t0p"], "name": "a", "env": {"WHAT": "hidden-value"}}
    service.caller.post("/jobs", job)
    told = service.caller.get("/jobs/a/program")
    assert told.json()["arguments"][-1] == "--token=***"
    assert "WHAT" in told.json()["handedOn"]
    assert b"hidden-value" not in told.body
    assert b"t0p" not in told.body
    assert service.caller.get("/jobs/none/program").status == 404
    (tmp_path / "go").touch()


def test_what_a_job_was_submitted_with_leads_to_such_a_job_again(service: LiveService, tmp_path: Path) -> None:
    asked = {
        "memory": "64MiB..128MiB", "steps": "1200", "margin": "2%", "retries": "3", "progressRegex": r"(?P<step>\d+)/(?P<total>\d+)",
        "checkpointDir": str(tmp_path), "deadline": "1h",
    }  # fmt: skip
    job = {"program": program(tmp_path / "go"), **asked, "steps": 1200, "retries": 3}
    assert service.caller.post("/jobs", {**job, "name": "a"}).status == 201
    options = service.caller.get("/jobs/a/program").json()["options"]
    assert options == {name: text for name, text in asked.items() if name != "deadline"}
    again = {**options, "program": job["program"], "deadline": "1h", "steps": 1200, "retries": 3, "name": "b"}
    assert service.caller.post("/jobs", again).status == 201
    first, second = (service.host.status(JobId(name)).spec for name in ("a", "b"))
    assert second.deadline_s == pytest.approx(3600.0)
    assert replace(second, id=first.id, deadline_s=first.deadline_s) == first
    service.caller.post("/jobs", {"program": program(), "name": "c"})
    assert service.caller.get("/jobs/c/program").json()["options"] == {}
    (tmp_path / "go").touch()


def test_an_argument_that_is_no_text_is_told_as_far_as_it_is() -> None:
    told = JobProgram(arguments=["a\udcff", "ü"], folder=None, variables={"A": "\udc80"}, handed_on=[])
    assert json.loads(told.model_dump_json(by_alias=True)) == {
        "arguments": ["a?", "ü"], "folder": None, "variables": {"A": "?"}, "handedOn": [], "options": {},
    }  # fmt: skip
