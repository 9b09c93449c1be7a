import time
from collections.abc import Sequence

import pytest

import punctual
from punctual.channel import Fault, PhaseEntry, ProgramState, SharedBlock
from punctual.elastic_training.agent_client import AgentClient
from punctual.elastic_training.progress_reporter import ProgressReporter
from punctual.tracking.declaration import Phases
from punctual.tracking.record import StepPlan


def evaluate(n_units: int = 1) -> None:
    with punctual.phase("evaluate", units=n_units) as progress:
        for _ in range(n_units):
            progress.advance()


def only(entries: Sequence[PhaseEntry]) -> PhaseEntry:
    assert len(entries) == 1
    return entries[0]


def planned(page: SharedBlock) -> dict[str, float]:
    return {entry.name: entry.units_planned for entry in page.phases()}


def test_a_phase_ends_the_step_in_whose_body_it_begins_and_only_once(page: SharedBlock) -> None:
    for i, _ in enumerate(punctual.track("abc", epochs=1)):
        assert page.progress().n_steps == i
        with punctual.phase("evaluate"):
            assert (page.progress().n_steps, page.progress().i_phase) == (i + 1, 0)
        with punctual.phase("checkpoint"):
            assert (page.progress().n_steps, page.progress().i_phase) == (i + 1, 1)
        assert (page.progress().n_steps, page.progress().i_phase) == (i + 1, -1)
    assert page.progress().n_steps == 3


def test_a_phase_without_units_is_one(page: SharedBlock) -> None:
    with punctual.phase("checkpoint"):
        pass
    assert (only(page.phases()).n_units_done, only(page.phases()).n_units_measured) == (1, 1)


def test_a_phase_that_never_advances_is_done_when_it_ends(page: SharedBlock) -> None:
    with punctual.phase("evaluate", units=5):
        assert only(page.phases()).n_units_done == 0
    assert only(page.phases()).n_units_done == 5


def test_units_are_told_as_they_are_done(page: SharedBlock) -> None:
    with punctual.phase("evaluate", units=3) as progress:
        for n_done in range(3):
            assert only(page.phases()).n_units_done == n_done
            before = page.progress()
            progress.advance()
            assert page.progress().stamp_ns > before.stamp_ns
    assert only(page.phases()).n_units_done == 3


def test_an_occurrence_that_failed_keeps_what_it_advanced(page: SharedBlock) -> None:
    with pytest.raises(KeyError), punctual.phase("evaluate", units=3) as progress:  # noqa: PT012
        progress.advance()
        raise KeyError
    assert (only(page.phases()).n_units_done, page.progress().i_phase) == (1, -1)


def test_a_rehearsal_is_measured_but_not_done(page: SharedBlock) -> None:
    with punctual.phase("evaluate", units=2, rehearsal=True) as progress:
        progress.advance()
        progress.advance()
    entry = only(page.phases())
    assert (entry.n_units_measured, entry.n_units_done, entry.units_planned) == (2, 0, 0)
    assert entry.wall_ns > 0
    assert page.declaration().state == ProgramState.STARTING


def test_a_phase_inside_another_is_measured_as_its_own(page: SharedBlock) -> None:
    begun_ns = time.monotonic_ns()
    with punctual.phase("evaluate"), punctual.phase("checkpoint"):
        time.sleep(0.05)
    elapsed_ns = time.monotonic_ns() - begun_ns
    outer, inner = page.phases()
    assert inner.wall_ns >= 50_000_000
    assert 0 < outer.wall_ns <= elapsed_ns - inner.wall_ns
    assert (outer.n_units_done, inner.n_units_done) == (1, 1)


def test_the_first_occurrence_of_a_phase_is_measured_with_its_cpu(page: SharedBlock) -> None:
    with punctual.phase("evaluate"):
        until = time.process_time_ns() + 20_000_000
        while time.process_time_ns() < until:
            pass
    assert only(page.phases()).cpu_ns >= 20_000_000


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        (("evaluate", "checkpoint"), {"evaluate": 4, "checkpoint": 4}),
        ("evaluate", {"evaluate": 4}),
        ({"evaluate": 7}, {"evaluate": 7}),
        ({"evaluate": punctual.Phase(units=5)}, {"evaluate": 20}),
        ({"evaluate": punctual.Phase(count=2, units=5)}, {"evaluate": 10}),
    ],
)
def test_what_is_told_in_advance_is_planned_at_once(
    page: SharedBlock, phases: Phases, expected: dict[str, float]
) -> None:
    punctual.track("abc", epochs=4, phases=phases)
    assert planned(page) == expected


def test_the_declared_cost_is_passed_on(page: SharedBlock) -> None:
    punctual.track("abc", epochs=4, phases={"evaluate": punctual.Phase(cost_steps=2.5), "checkpoint": 4})
    assert [entry.cost_steps for entry in page.phases()] == [2.5, -1.0]


@pytest.mark.parametrize(("start", "n_left"), [(0, 4), (2, 4), (3, 3), (10, 1), (12, 0)])
def test_a_resumed_training_plans_what_is_left(page: SharedBlock, start: int, n_left: int) -> None:
    punctual.track("abc", epochs=4, start_step=start, phases=("evaluate",))
    assert planned(page) == {"evaluate": n_left}


def test_another_first_worker_goes_on_with_phases_whose_names_the_page_had_no_room_for(page: SharedBlock) -> None:
    phases = "evaluate on the validation set", "evaluate on the validation set of the day"
    for is_beginning in (True, False):
        reporter = ProgressReporter(AgentClient())
        reporter.take(is_first=True, is_beginning=is_beginning, n_steps=0)
        reporter.declare(StepPlan(0, 8, 4), 2, phases, can_stop=False)
        assert [entry.units_planned for entry in page.phases()] == [2, 2]
    with punctual.phase(phases[0]):
        pass
    assert [entry.n_units_done for entry in page.phases()] == [1, 0]


def test_a_rehearsal_does_not_change_the_plan(page: SharedBlock) -> None:
    with punctual.phase("evaluate", units=2, rehearsal=True):
        pass
    punctual.track("abc", epochs=4, phases={"evaluate": punctual.Phase(units=5)})
    with punctual.phase("evaluate", units=3, rehearsal=True):
        pass
    assert planned(page) == {"evaluate": 20}


def test_planned_units_follow_from_the_units_of_an_occurrence(page: SharedBlock) -> None:
    run = punctual.track("abc", epochs=4, phases=("evaluate",))
    seen = []
    for _ in run:
        if run.epoch_ended:
            evaluate(n_units=5)
            seen.append(planned(page)["evaluate"])
    assert seen == [20, 20, 20, 20]


@pytest.mark.parametrize(
    ("n_steps", "every", "expected"),
    [(12, 3, [4, 4, 4, 4]), (12, 5, [2, 2]), (12, 12, [1]), (12, 8, [1]), (12, 1, [12] * 12)],
)
def test_a_phase_not_told_is_learned_from_its_first_occurrence(
    page: SharedBlock, n_steps: int, every: int, expected: list[int]
) -> None:
    seen = []
    for i, _ in enumerate(punctual.track(range(n_steps), total_steps=n_steps), start=1):
        if i % every == 0:
            evaluate()
            seen.append(planned(page)["evaluate"])
    assert seen == expected


def test_with_epochs_a_phase_not_told_is_expected_once_per_epoch(page: SharedBlock) -> None:
    run = punctual.track(range(10), epochs=5)
    seen = []
    for _ in run:
        if run.step % 10 == 2:
            evaluate()
            seen.append(planned(page)["evaluate"])
    assert seen == [5, 5, 5, 5, 5]


def test_several_occurrences_per_epoch_are_learned(page: SharedBlock) -> None:
    run = punctual.track(range(10), epochs=4)
    for _ in run:
        if run.step % 5 == 4:
            evaluate()
            if run.step > 5:
                assert planned(page)["evaluate"] == 8


def test_it_has_landed_when_the_last_planned_phase_ended(page: SharedBlock) -> None:
    run = punctual.track("ab", epochs=2, phases=("evaluate", "checkpoint"))
    for _ in run:
        if run.epoch_ended:
            evaluate(3)
            assert page.declaration().state == ProgramState.TRAINING
            with punctual.phase("checkpoint"):
                assert page.declaration().state == ProgramState.TRAINING
    assert page.declaration().state == ProgramState.LANDED
    assert only([entry for entry in page.phases() if entry.name == "checkpoint"]).n_units_done == 2


def test_it_has_landed_inside_the_body_of_the_last_step(page: SharedBlock) -> None:
    states = []
    for _ in punctual.track("ab", epochs=1, phases=("checkpoint",)):
        if page.progress().n_steps == 1:
            with punctual.phase("checkpoint"):
                pass
        states.append(page.declaration().state)
    assert states == [ProgramState.TRAINING, ProgramState.LANDED]


def test_a_phase_that_never_comes_keeps_it_from_landing(page: SharedBlock) -> None:
    list(punctual.track("ab", epochs=1, phases=("evaluate",)))
    assert page.declaration().state == ProgramState.TRAINING


@pytest.mark.parametrize("after", [[3], [6], [3, 6], [1, 2]])
def test_a_phase_not_told_is_not_waited_for_once_the_loop_has_ended(page: SharedBlock, after: list[int]) -> None:
    run = punctual.track("abc", epochs=3)
    for _ in run:
        if run.step + 1 in after:
            evaluate(2)
    assert (page.declaration().state, planned(page)["evaluate"]) == (ProgramState.LANDED, 2 * len(after))


def test_a_phase_not_told_is_expected_in_the_loops_that_follow(page: SharedBlock) -> None:
    punctual.total_steps(12)
    for _ in range(2):
        run = punctual.track("abc", epochs=2)
        for _ in run:
            if run.epoch_ended and run.step < 3:
                evaluate()
        if run.step < 6:
            assert planned(page)["evaluate"] == 3
    assert (page.declaration().state, planned(page)["evaluate"]) == (ProgramState.LANDED, 1)


def test_a_phase_taken_back_was_not_begun(page: SharedBlock) -> None:
    punctual.track("ab", epochs=2, phases=("checkpoint",))
    with punctual.phase("evaluate"):
        inner = punctual.phase("checkpoint")
        inner.__enter__()
        inner.withdraw()
        assert page.progress().i_phase == 1
    assert planned(page)["checkpoint"] == 2
    assert [entry.n_units_measured for entry in page.phases()] == [0, 1]


def test_a_phase_after_landing_goes_back_to_training(page: SharedBlock) -> None:
    list(punctual.track("ab", epochs=1))
    assert page.declaration().state == ProgramState.LANDED
    with punctual.phase("test"):
        assert page.declaration().state == ProgramState.TRAINING
    assert page.declaration().state == ProgramState.LANDED


def test_an_outer_phase_keeps_it_from_landing(page: SharedBlock) -> None:
    list(punctual.track("ab", epochs=1))
    with punctual.phase("test"):
        with punctual.phase("checkpoint"):
            pass
        assert page.declaration().state == ProgramState.TRAINING
        assert page.progress().i_phase == 0
    assert page.declaration().state == ProgramState.LANDED


def test_nested_loops_plan_their_phases_once(page: SharedBlock) -> None:
    for _ in range(3):
        for _ in punctual.track("ab", total_steps=6, phases=("evaluate",)):
            pass
        evaluate(2)
    entry = only(page.phases())
    assert (entry.n_units_done, entry.units_planned, page.declaration().state) == (6, 6, ProgramState.LANDED)


def test_more_kinds_of_phases_than_the_page_holds(page: SharedBlock, capsys: pytest.CaptureFixture[str]) -> None:
    for i in range(10):
        with punctual.phase(f"phase {i}"):
            assert page.progress().i_phase == (i if i < 8 else -1)
    assert (len(page.phases()), page.declaration().fault) == (8, Fault.TOO_MANY_PHASES)
    assert capsys.readouterr().err.count("more than 8 kinds of phases") == 1


@pytest.mark.parametrize("arguments", [{"count": -1}, {"units": 0}, {"units": 1.5}, {"cost_steps": float("nan")}])
def test_a_wrong_declaration_is_told_at_once(arguments: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="for a phase"):
        punctual.Phase(**arguments)  # type: ignore[arg-type]


def test_wrong_units_are_told_at_once() -> None:
    with pytest.raises(ValueError, match="`units` must be 1 or more: got 0 for phase 'evaluate'"):
        punctual.phase("evaluate", units=0)


def test_phases_work_without_punctual() -> None:
    run = punctual.track("ab", epochs=2, phases=("evaluate",))
    for _ in run:
        if run.epoch_ended:
            evaluate(3)
    assert run.step == 3
