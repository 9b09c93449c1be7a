"""A promise is kept whatever comes later: also where restarts cost time, deadlines are tight, and there is too much to do."""

import pytest
from tests.policies.tight_deadlines import Outcome, elastic_job, outcome, tight_jobs

from punctual.policies.promises_first import PromisesFirst

#: One node and several; what does not depend on nodes and what does.
CLUSTERS = [(1, 32), (4, 8)]


def assert_kept(found: Outcome) -> None:
    assert not found.late_s
    assert not found.short
    assert not found.warned_at, "nothing was in danger"


def test_a_promise_is_kept_where_others_leave_in_the_same_plan() -> None:
    """The last job needs eight devices from the moment at which the plan pauses another one for it."""
    jobs = [
        elastic_job("j0", 254.857, {1: 1.0, 2: 1.6193, 4: 2.62213, 8: 4.24602}, 558.215, 639.896, 17.5),
        elastic_job("j1", 285.492, {2: 1.88713, 4: 3.3752, 8: 5.52826, 16: 8.02464}, 14786.965, 3242.714, 55.271),
        elastic_job(
            "j2", 355.151, {1: 1.0, 2: 1.90051, 4: 3.36085, 8: 5.22164, 16: 6.81304}, 8185.902, 5371.431, 45.57
        ),
        elastic_job("j3", 739.627, {1: 1.0, 2: 1.90499, 4: 3.47939, 8: 5.92974}, 7804.059, 1907.842, 28.45),
    ]
    found = outcome(PromisesFirst(admission="decline"), jobs, 1, 16)
    assert set(found.promised) == {"j0", "j1", "j2", "j3"}
    assert_kept(found)


@pytest.mark.parametrize("shape", CLUSTERS)
@pytest.mark.parametrize("parameters", [{"admission": "decline"}, {"promised_frac": 1.0, "work": "early"}, {}])
def test_no_promise_is_broken(parameters: dict[str, object], shape: tuple[int, int]) -> None:
    n_promised = 0
    for seed in range(2):
        found = outcome(PromisesFirst(**parameters), tight_jobs(seed, 30, n_gpus=32), *shape)  # type: ignore[arg-type]
        assert_kept(found)
        n_promised += len(found.promised)
    assert n_promised > 20
