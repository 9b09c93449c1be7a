"""What the runs of `bench/deadline.py` come to: jobs told apart by size, and the runs at the source's ratios."""

from typing import Any

import deadline
from _deadline_tables import OURS, PUBLISHED, by_bound, over_decor, sections, targets


def run(controller: str, deviation_frac: float, used_core_s: float, **more: Any) -> dict[str, Any]:
    made = {
        "app": "vision", "ratio": 1.5, "condition": "undisturbed", "controller": controller, "deadline_s": 45.0,
        "final_deadline_s": 45.0, "repeat": 0, "deviation_frac": deviation_frac, "used_core_s": used_core_s,
        "granted_core_s": used_core_s, "n_resizes": 5, "warnings": [], "controller_cpu_s": 0.1, "ended_s": 45.0,
        "landed_s": 45.0, "submitted_at": 0.0, "revision": "abc",
    }  # fmt: skip
    return made | more


def test_jobs_are_told_apart_by_the_size_below_which_decor_pi_is_unstable() -> None:
    small = [run(OURS, -0.001, 20.0, ratio=2.0), run("decor-pi", 0.05, 27.0, ratio=2.0)]
    large = [run(OURS, -0.001, 30.0), run("decor-pi", 0.004, 25.0)]
    assert by_bound([*small, *large]) == (small, large)
    assert (over_decor(small), over_decor(large)) == (0.02, 0.25)
    assert over_decor(small[:1]) is None


def test_runs_at_the_sources_ratios_have_a_table_of_their_own() -> None:
    works = deadline.published(100.0)
    assert len(works) == 9
    assert {work.deadline_s for work in works} == {100.0, 150.0, 180.0}
    runs = [
        run(OURS, -0.001, 100.0, ratio=1.8, condition=PUBLISHED, deadline_s=180.0),
        run("decor-pi", 0.003, 101.0, ratio=1.8, condition=PUBLISHED, deadline_s=180.0),
    ]
    assert {deadline.part_of(each) for each in runs} == {PUBLISHED}
    found = sections([*runs, run(OURS, -0.001, 20.0)], deadline.CONDITIONS, deadline.CONTROLLERS, ())
    row = ["1.8", "100 to 101", "0.100%, -0.10% (1/1)", "0.300%, +0.30% (0/1)"]
    assert [section.rows for section in found if section.name == "At the ratios of [decor2025]"] == [[row]]
    figures = {target.text: target.got for target in targets([*runs, run(OURS, -0.005, 200.0, deadline_s=300.0)], [])}
    assert figures["mean deviation, jobs of 5 min"] == 0.005
