"""Random kills: each victim meets each moment, and a run that was interrupted goes on."""

from pathlib import Path

import _kills_random
import pytest
from _kills_random import MOMENTS, VICTIMS, Round, play_rounds, sections
from _report import targets_of


def test_each_victim_meets_each_moment_equally_often() -> None:
    n_kinds = len(VICTIMS) * len(MOMENTS)
    kinds = [(one.victim, one.moment) for one in (Round.drawn(i, 7) for i in range(2 * n_kinds))]
    assert len(set(kinds[:n_kinds])) == len(set(kinds[n_kinds:])) == n_kinds
    assert Round.drawn(3, 7) == Round.drawn(3, 7)


def test_rounds_that_were_played_are_not_played_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[int] = []

    def play(one: Round) -> None:
        played.append(one.number)
        one.has_hit = True
        if one.number == 2 and len(played) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(_kills_random, "play", play)
    log = tmp_path / "log"
    with pytest.raises(KeyboardInterrupt):
        play_rounds(4, 0, 60.0, log=log)
    assert [one.reached for one in targets_of(sections(play_rounds(4, 0, 60.0, log=log)))] == [True, True]
    assert played == [0, 1, 2, 2, 3]
    rounds, _ = targets_of(sections(play_rounds(8, 0, 0.0, log=log)))
    assert (rounds.got, rounds.limit, rounds.reached) == (4, 8, False), "the time is over, and four rounds are left"
