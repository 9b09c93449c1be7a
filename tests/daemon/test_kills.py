"""Some of the rounds of ``bench/host_kills.py``: SIGKILL for a host, its keepers and its jobs when a given message comes."""

import pytest
from host_kills import KINDS, SCENARIOS, Round, drawn, played
from tests.forked_python import ForkedPython

HOST, KEEPERS = ("host",), ("host", "keeper", "guard")
ALL = ("host", "keeper", "guard", "planner", "job")


@pytest.mark.parametrize(
    ("kind", "moment", "victims", "actuator"),
    [
        # Jobs that were accepted, and of which the journal says nothing yet.
        ("NodeJoined", "performed", HOST, "pacing"),
        # A launch that was never done, and processes that nobody has been told of.
        ("LaunchJob", "written", HOST, "auto"),
        ("LaunchJob", "performed", HOST, "pacing"),
        # A process that failed while nobody steered it is started again; one that looked after it cannot say so.
        ("ProgressReported", "written", ("host", "job"), "auto"),
        ("JobStarted", "performed", KEEPERS, "pacing"),
        ("StopRequested", "unwritten", ("guard",), "pacing"),
        # What the journal tells already is not told again.
        ("JobFailed", "written", HOST, "pacing"),
        ("JobFinished", "unwritten", HOST, "auto"),
        # Whoever takes over is killed as well.
        ("SteeringResumed", "written", ALL, "pacing"),
        # With the first jobs there is no planner yet.
        ("PlanProposed", "unwritten", ("planner", "keeper"), "auto"),
    ],
)
def test_no_job_is_lost_or_run_twice_and_nothing_is_left(
    kind: str, moment: str, victims: tuple[str, ...], actuator: str
) -> None:
    nth = 4 if kind == "PlanProposed" else 1
    round_ = Round(kind=kind, nth=nth, moment=moment, victims=victims, actuator=actuator, seed=0)
    assert played(round_, ForkedPython[bytes]).faults == []
    assert round_.n_killed > 0


@pytest.mark.parametrize("name", SCENARIOS)
def test_there_are_rounds_of_every_kind_of_message_that_a_scenario_has(name: str) -> None:
    kinds = set(KINDS) - set(SCENARIOS[name].without)
    assert {round_.kind for round_ in drawn(name, 0)} == kinds
    assert {round_.kind for round_ in drawn(name, 0, len(kinds))} == kinds
