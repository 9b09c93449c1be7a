"""What a run did not use of its grants, from its readings."""

from punctual.core.events import ProgressReported
from punctual.core.ids import JobId
from punctual.history.shortfall import Shortfall, shortfall


def readings(*rates: float, steps_from: int = 1) -> list[ProgressReported]:
    """A reading every half second; the first of `rates` is the usage in cores of the first second, and so on."""
    used_core_s, found = 0.0, []
    for i_half in range(2 * len(rates) + 1):
        found.append(
            ProgressReported(
                at=10.0 + i_half / 2,
                job=JobId("a"),
                steps_done=steps_from + i_half,
                steps_total=100,
                unit_at=10.0,
                used_core_s=used_core_s,
            )
        )
        used_core_s += 0.5 * rates[min(i_half // 2, len(rates) - 1)]
    return found


def test_a_job_that_uses_what_it_holds_lacks_nothing() -> None:
    assert shortfall(readings(1.0, 0.9, 1.0), [(0.0, 1.0)], [], 20.0) is None
    assert shortfall([], [], [], 20.0) is None


def test_a_training_of_one_thread_on_two_cores_lacks_nothing() -> None:
    assert shortfall(readings(1.0, 1.0, 1.0), [(0.0, 2.0)], [], 20.0) is None


def test_what_it_used_while_it_held_more_and_can_use_more() -> None:
    found = shortfall(readings(1.0, 0.4, 0.4, 0.4, 1.0), [(0.0, 1.0)], [], 20.0)
    assert found is not None
    assert (found.duration_s, round(found.used_cores, 3), found.granted_cores) == (3.0, 0.4, 1.0)


def test_a_smaller_grant_is_no_shortfall() -> None:
    assert shortfall(readings(1.0, 0.5, 0.5), [(0.0, 1.0), (11.0, 0.5)], [], 20.0) is None


def test_waiting_for_the_pacing_line_does_not_count() -> None:
    assert shortfall(readings(1.0, 0.1, 0.1), [(0.0, 1.0)], [(0.0, False), (11.0, True)], 20.0) is None
    after = shortfall(readings(1.0, 0.1, 0.1), [(0.0, 1.0)], [(11.0, True), (12.0, False)], 20.0)
    assert after == Shortfall(duration_s=1.0, used_cores=after.used_cores if after else 0.0, granted_cores=1.0)


def test_what_comes_before_the_first_step_or_after_landing_does_not_count() -> None:
    assert shortfall(readings(0.1, 1.0, 1.0, steps_from=-2), [(0.0, 1.0)], [], 20.0) is None
    assert shortfall(readings(1.0, 1.0, 0.1), [(0.0, 1.0)], [], 12.0) is None
