"""What policies carry of their promises."""

from punctual.core.events import PlanProposed
from punctual.core.ids import JobId
from punctual.core.plan import Plan
from punctual.runtime.promises import Promises


def planned(carry: object) -> PlanProposed:
    return PlanProposed(at=1.0, plan=Plan(revision=1, grants={}, carry=carry), revision=1, cause="")


def test_the_last_plan_that_tells_of_promises_counts() -> None:
    promises = Promises()
    assert promises.until_at(JobId("a")) is None
    promises.take(planned({"promised": {"a": 60.0, "b": "soon"}}))
    promises.take(planned(None))
    assert promises.until_at(JobId("a")) == 60.0
    assert promises.until_at(JobId("b")) is None
    promises.take(planned({"promised": {}}))
    assert promises.until_at(JobId("a")) is None


def test_promises_to_jobs_on_shares_of_cores_count_beside_those_to_jobs_of_workers() -> None:
    promises = Promises()
    promises.take(planned({"promised": {"workers": 60.0}, "cores": {"promised": {"shares": 30.0}}}))
    assert promises.until_at(JobId("workers")) == 60.0
    assert promises.until_at(JobId("shares")) == 30.0
