"""Quotes of a live host: asked from other threads and processes, while jobs run."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from tests.core.test_quoting import TWO
from tests.core.test_quoting import new as new_job
from tests.daemon.live_jobs import PACED, submission
from tests.policies.pictures import picture

from punctual.cli.quote import sentences
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.quoting import Quote, QuoteRequest
from punctual.daemon.control_client import quote_job, quote_new
from punctual.daemon.host import Host
from punctual.daemon.opening import new_host
from punctual.daemon.planner import InlinePlanner, ProcessPlanner, QuoteFailed
from punctual.daemon.runs import find_job, open_jobs
from punctual.policies.proportional import Proportional
from punctual.request.submission import encode_submission

LONG_S = 60.0


@pytest.fixture
def host() -> Iterator[Host]:
    with new_host("host", PACED) as made:
        yield made


def test_a_new_job_and_a_running_one_are_quoted_while_the_host_steers(host: Host, tmp_path: Path) -> None:
    awaited = tmp_path / "go"
    first = submission("first", awaited=awaited)
    host.submit(first)
    new = submission("new")
    new = replace(new, spec=replace(new.spec, work_core_s=10.0, deadline_s=3600.0))

    def asked() -> tuple[Quote, dict[str, object], dict[str, object]]:
        try:
            quoted = host.quote(new.spec, limit_s=LONG_S)
            by_socket = quote_new(host.run_folder, new, [1.0])
            return quoted, by_socket, quote_job(find_job("first", open_jobs()), "1h", [])
        finally:
            awaited.touch()

    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(asked)
        host.run(host.all_ended)
        quoted, by_socket, running = answers.result()
    assert quoted.can_be_promised
    assert quoted.earliest_at is not None
    assert by_socket["can_be_promised"] is True
    assert by_socket["finishes"][0]["finish_s"] == pytest.approx(10.0, abs=1.0)  # type: ignore[index]
    assert running["job"] == "first"
    assert "can be promised" in sentences(by_socket)[0]
    assert host.status(JobId("first")).state == "finished"
    assert not host.knows(JobId("new")), "a quote changes nothing"


def test_of_an_unknown_job_nothing_is_quoted(host: Host) -> None:
    with pytest.raises(InvalidSpec, match="job of that name"):
        host.quote(JobId("nobody"))


def test_a_policy_that_fails_or_is_not_there_gives_no_quote_and_goes_on_planning() -> None:
    request = QuoteRequest(snapshot=picture([], TWO), view=new_job("new", 100.0, 600.0))
    inline = InlinePlanner(Proportional()).quote(request, 1.0)
    assert inline.reason.code == "no-promises"
    with closing(ProcessPlanner("promises-first")) as planner:
        answer = planner.quote(request, LONG_S)
        assert (answer.can_be_promised, answer.job) == (True, "new")
        assert planner.quote(request, LONG_S) == answer
    with closing(ProcessPlanner("no-such-policy")) as planner, pytest.raises(QuoteFailed):
        planner.quote(request, 5.0)


def test_what_is_told_of_a_submission_is_what_is_quoted() -> None:
    new = submission("new")
    assert (
        encode_submission(replace(new, spec=replace(new.spec, work_core_s=10.0)))["submitted"].count("work_core_s") == 1
    )
