"""One question at a time is answered, and then none for as long as that took."""

from punctual.api.limits import Turns


def test_one_has_its_turn_at_a_time_and_nobody_for_as_long_afterwards() -> None:
    now = [100.0]
    turns = Turns(lambda: now[0])
    with turns.turn() as wait_s:
        assert wait_s == 0
        with turns.turn() as second_s:
            assert second_s == 1, "for how long is not known yet"
        now[0] = 104.0
    for at, expected in ((104.0, 4), (107.5, 1), (108.0, 0)):
        now[0] = at
        with turns.turn() as wait_s:
            assert wait_s == expected
