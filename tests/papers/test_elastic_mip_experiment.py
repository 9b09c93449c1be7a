"""The experiment `elastic-mip`: its parts, on a few jobs."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from punctual.papers.elastic_mip import experiment as elastic_mip
from punctual.papers.reproduction import Row, load, names
from punctual.sim.traces import TraceJob


def _case(n_jobs: int, least: str) -> elastic_mip.Case:
    def jobs(load: float, seed: int) -> Sequence[TraceJob]:
        made = elastic_mip.generated(n_jobs, load, seed)
        return elastic_mip.from_asked(made) if least == elastic_mip.ASKED else made

    return elastic_mip.Case("modelarts-like", least, jobs, ("fraction", "throughput"))


def test_it_is_found_by_its_name() -> None:
    assert "elastic-mip" in names()
    assert load("elastic-mip") is elastic_mip.run


def test_all_policies_get_the_same_jobs_and_change_is_counted_from_greedy() -> None:
    case = _case(25, elastic_mip.ASKED)
    found = elastic_mip.outcomes_of(case, 1.5, 2)
    assert {name: len(many) for name, many in found.items()} == {"greedy": 2, "fraction": 2, "throughput": 2}
    assert all(0 < one.efficiency <= 1 and one.queued_s >= 30 for many in found.values() for one in many)
    same = elastic_mip.compared(case, 1.5, "fraction", found["greedy"], found["greedy"])
    assert [row.obtained for row in same] == [0.0, 0.0]


def test_rows_say_what_was_compared() -> None:
    greedy = [elastic_mip.Outcome(100.0, 0.5, 0.0), elastic_mip.Outcome(300.0, 0.5, 0.0)]
    ours = [elastic_mip.Outcome(50.0, 0.6, 0.0), elastic_mip.Outcome(90.0, 0.7, 0.0)]
    queueing, efficiency = elastic_mip.compared(_case(1, elastic_mip.ASKED), 0.8, "fraction", greedy, ours)
    assert queueing.obtained == pytest.approx(-65.0)
    assert efficiency.obtained == pytest.approx(30.0)
    assert queueing.why == "greedy's queue: 200 s; seeds from -70 to -50"
    assert efficiency.why == "seeds from +20 to +40"
    assert queueing.what.endswith("modelarts-like, from what it asked for, load 0.8, fraction")


def test_both_headlines_come_from_the_one_setting_that_is_nearest_to_both() -> None:
    def setting(name: str, queueing: float, efficiency: float) -> list[Row]:
        return [
            Row(f"queueing, change in %: {name}", None, queueing),
            Row(f"efficiency, change in %: {name}", None, efficiency),
        ]

    rows = [*setting("short queues", -90.0, 1.0), *setting("efficient", 400.0, 79.0), *setting("both", -40.0, 30.0)]
    queueing, efficiency, decision = elastic_mip.headlines(rows, 0.001)
    assert (queueing.obtained, efficiency.obtained, decision.obtained) == (-40.0, 30.0, 0.001)
    assert queueing.what == "queueing, change in %, in both"
    assert "of 3 settings the nearest to both figures; 1 reach both at once" in queueing.why


def test_what_is_said_of_all_settings_is_counted_from_their_rows() -> None:
    def row(what: str, case: str, obtained: float, why: str = "") -> Row:
        return Row(f"{what}, change in %: {case}, fraction", None, obtained, why)

    rows = [
        row("queueing", "a, from what it asked for, load 1", -40.0, "greedy's queue: 500 s"),
        row("queueing", "b, from what it asked for, load 1", 5.0, "greedy's queue: 90 s"),
        row("queueing", "a, from a quarter of it, load 1", 100.0, "greedy's queue: 30 s, the start-up"),
        row("efficiency", "a, from what it asked for, load 1", 24.0),
        row("efficiency", "b, from what it asked for, load 1", 5.0),
    ]
    longer = "* Queueing with the fraction, where greedy's own queue is longer than the start-up"
    assert elastic_mip.ranges(rows).splitlines() == [
        f"{longer}: -40.0 to +5.0 %; -32 % or beyond in 1 of 2 settings.",
        "* Queueing with the fraction, where it is the start-up: +100.0 to +100.0 %; -32 % or beyond in 0 of 1 settings.",
        "* Efficiency with the fraction, jobs from what it asked for: +5.0 to +24.0 %; +24 % or beyond in 1 of 2 settings.",
    ]


def test_no_job_runs_with_less_than_it_asked_for() -> None:
    for before, after in zip(elastic_mip.generated(50, 1.0, 0), _case(50, elastic_mip.ASKED).jobs(1.0, 0), strict=True):
        assert after.parameters["n_gpus_min"] == before.n_gpus
        assert before.n_gpus <= after.parameters["n_gpus_max"] <= 256


def test_missing_traces_are_named(tmp_path: Path) -> None:
    assert "philly_jobs_pollux.csv" in elastic_mip.note_of(None, "")
    assert "cluster10.csv" in elastic_mip.note_of(tmp_path, "")
    assert [case.name for case in elastic_mip.cases(tmp_path, quick=False)] == ["modelarts-like"] * 2
