"""Jobs that run one after the other: submitted in any order, refused where they never could."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.daemon.live_jobs import PACED, submission

from punctual.core.errors import InvalidSpec
from punctual.core.events import JobFinished, JobStarted, Message
from punctual.core.ids import JobId
from punctual.daemon.opening import new_host
from punctual.request.job_order import in_order
from punctual.request.submission import Submission


def after(name: str, *names: str, code: int = 0) -> Submission:
    made = submission(name, code=code)
    return replace(made, spec=replace(made.spec, after=tuple(map(JobId, names))))


def test_each_comes_behind_those_that_it_waits_for() -> None:
    jobs = [after("c", "b", "a"), after("b", "a"), after("x"), after("a")]
    assert [job.spec.id for job in in_order(jobs, lambda _: None)] == ["x", "a", "b", "c"]


@pytest.mark.parametrize(
    ("jobs", "must"),
    [
        ([after("a", "nobody")], "must name jobs submitted with it"),
        ([after("a", "c"), after("b", "a"), after("c", "b")], "must not lead back"),
    ],
)
def test_what_never_could_run_is_refused(jobs: list[Submission], must: str) -> None:
    with pytest.raises(InvalidSpec, match=must):
        in_order(jobs, lambda _: None)


def test_live_jobs_run_one_after_the_other_and_end_with_those_that_fail(tmp_path: Path) -> None:
    seen: list[tuple[str, JobId]] = []

    def listen(message: Message) -> None:
        if isinstance(message, JobStarted | JobFinished):
            seen.append((type(message).__name__, message.job))

    with new_host("host", PACED) as host:
        host.subscribe(listen)
        host.submit_all(
            [after("second", "first"), after("first"), after("fails", "second", code=3), after("never", "fails")]
        )
        host.run(host.all_ended)
        assert {status.id: status.state for status in host.jobs()} == {
            "first": "finished", "second": "finished", "fails": "failed", "never": "turned away",
        }  # fmt: skip
        assert host.status(JobId("never")).cause == "it is to run after 'fails', which failed"
        with pytest.raises(InvalidSpec, match=r"which has ended: failed \(its process ended with exit code 3\)"):
            host.submit(after("late", "fails"))
        with pytest.raises(InvalidSpec, match="which is none"):
            host.submit(after("late", "nobody"))
    first_started = dict.fromkeys(seen)  # a host may say a launch again
    assert list(first_started)[:4] == [
        ("JobStarted", "first"), ("JobFinished", "first"), ("JobStarted", "second"), ("JobFinished", "second"),
    ]  # fmt: skip
