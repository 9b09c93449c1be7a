"""What `punctual why` tells of, and what it leaves out."""

from punctual.cli.why import grouped
from punctual.history.decision_trace import DecisionStep


def grant(elapsed_s: float, code: str = "line") -> DecisionStep:
    return DecisionStep(elapsed_s, "grant", f"asked at {elapsed_s:g} s", {"code": code})


def test_changes_for_one_reason_within_a_second_are_one() -> None:
    warned = DecisionStep(50.2, "warning", "it is late", {"code": "line"})
    links = [
        grant(10.0),
        grant(11.5),
        grant(50.0),
        warned,
        grant(50.3),
        grant(50.6, "scaled"),
        *map(grant, (50.7, 51.2, 51.7, 51.8)),
    ]
    told = [[link.elapsed_s for link in group] for group in grouped(links)]
    assert told == [[10.0], [11.5], [50.0], [50.2], [50.3], [50.6], [50.7, 51.2, 51.7], [51.8]]
