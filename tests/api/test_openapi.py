"""What the service answers is what its OpenAPI document says, whatever it is asked."""

import re
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.api.live_service import LiveService, live_service, program
from tests.architecture.source import ROOT

from punctual.core.ids import JobId

#: Of each operation, in each of two modes: requests as the document has them, and others.
N_EXAMPLES = 6
#: A stream, which goes on for ever where it is not refused.
STREAM = "/v1/events"
#: The operations there are, so that none is left out unseen.
OPERATIONS = {
    "GET /v1/budget/history", "GET /v1/cluster", "GET /v1/events", "GET /v1/health", "GET /v1/jobs", "GET /v1/jobs/{job}", "GET /v1/jobs/{job}/history",
    "GET /v1/jobs/{job}/logs", "GET /v1/jobs/{job}/program", "GET /v1/jobs/{job}/why", "GET /v1/metrics", "GET /v1/policies", "GET /v1/policy",
    "PATCH /v1/jobs/{job}",
    "POST /v1/jobs", "POST /v1/jobs/{job}/pause", "POST /v1/jobs/{job}/quote", "POST /v1/jobs/{job}/resume",
    "POST /v1/jobs/{job}/stop", "POST /v1/nodes/{node}/drain", "POST /v1/nodes/{node}/undrain", "POST /v1/quote", "POST /v1/what-if", "PUT /v1/policy",
}  # fmt: skip


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PUNCTUAL_HOME", str(tmp_path_factory.mktemp("home")))
        with live_service() as service:
            told: dict[str, Any] = service.caller.get("/openapi.json").json()
            return told


def test_the_document_has_all_routes_and_their_refusals(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    operations = {
        f"{method.upper()} {path}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }
    assert set(operations) == OPERATIONS
    for name, operation in operations.items():
        assert {"401", "403", "422", "429", "503"} <= set(operation["responses"]), name
        refusals = [answer for status, answer in operation["responses"].items() if status >= "400"]
        assert all(list(refusal["content"]) == ["application/problem+json"] for refusal in refusals), name
        assert operation["security"], name


def test_the_reference_names_each_field_and_parameter(document: dict[str, Any]) -> None:
    reference = (ROOT / "docs" / "reference" / "http-api.md").read_text("utf-8").lower()
    fields = {name for schema in document["components"]["schemas"].values() for name in schema.get("properties", {})}
    operations = [operation for methods in document["paths"].values() for operation in methods.values()]
    parameters = {each["name"] for operation in operations for each in operation.get("parameters", [])}
    assert len(fields) > 100
    assert not [name for name in sorted(fields | parameters) if not re.search(rf"[`{{]{name}\b".lower(), reference)]


@pytest.mark.filterwarnings("ignore")  # those of the library's own making
def test_no_request_leads_to_a_server_error_or_an_answer_that_is_not_documented(
    service: LiveService, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # nothing that is made up can be run
    service.caller.post("/jobs", {"program": program(), "name": "ended"})
    service.caller.post("/jobs", {"program": program(tmp_path / "never"), "name": "running"})
    headers = {"Authorization": f"Bearer {service.caller.token}"}
    schemathesis = import_module("schemathesis")  # takes a second, in each process that collects tests
    schema = schemathesis.openapi.from_url(f"{service.served.url}/v1/openapi.json", headers=headers)
    checked: list[Any] = []
    for result in schema.get_all_operations():
        operation = result.ok()
        if operation.path != STREAM:
            for mode in schemathesis.GenerationMode:
                checker(operation, mode, headers, checked)()
    assert {f"{method} {path}" for method, path, _ in checked} >= OPERATIONS - {f"GET {STREAM}"}
    assert len({status for *_, status in checked}) > 2
    assert {status.id for status in service.host.jobs()} == {"ended", "running"}
    assert service.host.has_ended(JobId("ended"))


def checker(operation: Any, mode: Any, headers: dict[str, str], checked: list[Any]) -> Callable[[], None]:
    """A test of one operation with requests of one mode; what came of each is added to `checked`."""
    from schemathesis.checks import not_a_server_error
    from schemathesis.specs.openapi import checks

    as_documented = [
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    jobs = ["ended"] if operation.path.endswith("/logs") else ["ended", "running"]  # else it may be followed for ever

    @settings(
        max_examples=N_EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
    )
    @given(case=operation.as_strategy(generation_mode=mode), job=st.sampled_from([*jobs, None]))
    def check(case: Any, job: str | None) -> None:
        if job is not None and "job" in (case.path_parameters or {}):
            case.path_parameters["job"] = job
        response = case.call_and_validate(headers=headers, checks=[not_a_server_error, *as_documented], timeout=100)
        checked.append((operation.method.upper(), operation.path, response.status_code))

    return check


def test_the_reference_names_every_route() -> None:
    """The page is read by people; a route that it does not name is not there for them."""
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
    assert not [operation for operation in OPERATIONS if f"`{operation}`" not in page]


def test_the_reference_names_every_field(document: dict[str, Any]) -> None:
    page = (ROOT / "docs" / "reference" / "http-api.md").read_text(encoding="utf-8")
    schemas = document["components"]["schemas"]
    fields = {
        f"{schema}.{field}"
        for schema in (
            "SubmitRequest",
            "ChangeRequest",
            "PolicyRequest",
            "PolicyStanding",
            "WhatIfRequest",
            "WhatIfAnswer",
            "WhatIfJob",
            "WhatIfOutcome",
            "CauseRequest",
            "JobQuoteRequest",
            "NewQuoteRequest",
            "QuoteAnswer",
            "FinishEntry",
            "HurtEntry",
            "JobStanding",
            "ClusterStanding",
            "Health",
            "Problem",
        )
        for field in schemas[schema]["properties"]
    }
    assert not sorted(field for field in fields if f"`{field.partition('.')[2]}`" not in page)
