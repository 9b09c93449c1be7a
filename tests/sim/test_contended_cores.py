"""Jobs on shares of one machine that is not enough for all at once, to their ends in simulation."""

import pytest
from _contended_cores import BACKGROUND, IN_TURN, URGENT, overload, simulate

from punctual.core.commands import ResizeJob
from punctual.core.resources import total
from punctual.policies.proportional import Proportional

#: A deadline that is missed by less was met: the controllers of all jobs aim a little before it.
TOLERANCE_FRAC = 0.003


def test_two_jobs_that_fit_only_one_after_the_other_are_both_on_time() -> None:
    outcome = simulate(IN_TURN)
    assert outcome.weight_on_time(IN_TURN, TOLERANCE_FRAC) == 2
    assert simulate(IN_TURN, Proportional(shortage="scale")).late_frac[0] == pytest.approx(0.59, abs=0.1)


@pytest.mark.parametrize("controller", ["remaining-cost", "proportional-integral", "decor-pi"])
def test_an_urgent_arrival_that_fits_is_on_time(controller: str) -> None:
    outcome = simulate(URGENT, controller=controller)
    assert outcome.weight_on_time(URGENT, TOLERANCE_FRAC) == 3
    late = simulate(URGENT, Proportional(shortage="scale"), controller=controller).late_frac[2]
    assert late is not None
    assert late > 0.1


def test_a_job_without_a_deadline_does_not_starve_and_the_others_are_on_time() -> None:
    """It has its share of the cores at all times, but while a job with a deadline is being measured."""
    outcome = simulate(BACKGROUND)
    assert outcome.weight_on_time(BACKGROUND, TOLERANCE_FRAC) == 3
    grants = [
        total(message.grant.values()).cores
        for message in outcome.journal
        if isinstance(message, ResizeJob) and message.job == "job-02" and 1.0 < message.at < 100.0
    ]
    assert min(grants) >= 0.1


@pytest.mark.parametrize("seed", range(3))
def test_under_overload_promises_are_kept_and_little_more_is_missed_than_must_be(seed: int) -> None:
    contention = overload(seed=seed)
    outcome = simulate(contention)
    assert not outcome.lost
    late = {i for i, late_frac in enumerate(outcome.late_frac) if late_frac is not None and late_frac > TOLERANCE_FRAC}
    assert late <= outcome.refused, "whoever was late was told so"
    assert outcome.weight_on_time(contention, TOLERANCE_FRAC) >= 0.95 * contention.bound().bound
