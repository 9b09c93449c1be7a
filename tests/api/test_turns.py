"""One question at a time is answered, and then none for as long as that took."""

import gc

from tests.api.live_service import live_service

from punctual.api.limits import SingleFlight


def test_one_has_its_turn_at_a_time_and_nobody_for_as_long_afterwards() -> None:
    now = [100.0]
    turns = SingleFlight(lambda: now[0])
    with turns.turn() as wait_s:
        assert wait_s == 0
        with turns.turn() as second_s:
            assert second_s == 1, "for how long is not known yet"
        now[0] = 104.0
    for at, expected in ((104.0, 4), (107.5, 1), (108.0, 0)):
        now[0] = at
        with turns.turn() as wait_s:
            assert wait_s == expected


def test_a_service_that_ends_thaws_nothing_that_others_have_frozen() -> None:
    n_frozen = gc.get_freeze_count()  # by `conftest`
    assert n_frozen
    with live_service():
        pass
    assert gc.get_freeze_count() >= 0.9 * n_frozen
