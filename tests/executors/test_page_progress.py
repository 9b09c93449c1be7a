"""What a job writes to its page is not believed because it stands there."""

import mmap
import time
from math import inf, isnan, nan
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tests import page_layout as layout
from tests.core.desk import A, Desk, cores, only
from tests.executors.conftest import JOB, SPIN, Stage

from punctual import channel as wire
from punctual import registry
from punctual.channel import PAGE_BYTES, Declaration, PhaseEntry, ProgramState, SharedBlock, WorkerStatus, WorkerTarget
from punctual.core.commands import LaunchJob, ResizeJob
from punctual.core.control import PacingLine
from punctual.core.events import Event, JobFinished, JobStarted, JobWarned, LossReported, PhaseReported
from punctual.daemon.adoption import recorded_end
from punctual.daemon.run_folder import boot_id
from punctual.executors.local.progress import PageProgress

EDGES = [0, 1, 7, 40, -1, -(2**63), 2**63 - 1, 2**53, 2**53 + 1, 2**28, 2**29 - 1, 2**31, 2**32, 3_000]
COUNTS = st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.sampled_from([0.0, 1.0, -1.0, nan, inf, -inf, 1e308, 5e-324]) | st.floats()
NAMES = st.sampled_from([b"", b"evaluate", b"\xff\xfe", "größe".encode()]) | st.binary(max_size=24)
PHASE = st.tuples(NAMES, NUMBERS, COUNTS, COUNTS, COUNTS, COUNTS, COUNTS, NUMBERS)
PAYLOADS = st.fixed_dictionaries(
    {},
    optional={
        layout.PROGRESS: st.tuples(*[COUNTS] * 6),
        layout.DEVICE: st.tuples(*[COUNTS] * 4, st.binary(max_size=64)),
        layout.DECLARATION: st.tuples(*[COUNTS] * 6),
        layout.STATUS: st.tuples(*[COUNTS] * 11, st.binary(max_size=160)),
        layout.PHASES: st.tuples(COUNTS, *[PHASE] * wire.N_PHASES_MAX).map(lambda told: (told[0], *sum(told[1:], ()))),
        layout.LOSSES: st.tuples(COUNTS, *[COUNTS, NUMBERS] * wire.N_LOSSES_MAX),
        # What Punctual writes there, the job can write over.
        layout.DIRECTIVES: st.tuples(*[COUNTS] * 4, *[NUMBERS] * (2 + wire.N_PHASES_MAX)),
        layout.HEARTBEAT: st.tuples(COUNTS),
        layout.TARGET: st.tuples(*[COUNTS] * 6),
        layout.GROUP: st.tuples(COUNTS, st.binary(max_size=32)),
    },
)
VERSIONS = st.integers(1, 2**64 - 1) | st.sampled_from([2**63, 2**64 - 1])
LINES = st.builds(
    PacingLine,
    end_s=NUMBERS,
    end_work=NUMBERS,
    s_per_step=NUMBERS,
    phase_cost_steps=st.dictionaries(st.sampled_from(["evaluate", "save"]), NUMBERS),
)


def memory() -> mmap.mmap:
    return mmap.mmap(-1, PAGE_BYTES)


def reported(progress: PageProgress, at: float, used_core_s: float) -> list[Event]:
    """What an executor tells of the job."""
    phases, losses = progress.new_phases(), progress.new_losses()
    sample, _ = progress.latest(used_core_s), progress.device_use()
    return [
        *([] if phases is None else [PhaseReported(at=at, job=A, phases=phases)]),
        *([LossReported(at=at, job=A, losses=losses)] if losses else []),
        sample.report(at, A, 0.0, used_core_s),
    ]


@given(st.lists(PAYLOADS, min_size=1, max_size=4))
@example([{layout.DECLARATION: (2**28, 100, 0, 1, 0, 0), layout.PROGRESS: (1, 1, 1, -1, 1, 0)}])
def test_whatever_stands_there_the_job_is_steered_on(told: list[dict[layout.Region, tuple[object, ...]]]) -> None:
    mapped = memory()
    page, desk = SharedBlock.made(mapped), Desk()
    progress, at = PageProgress(page, 0.0), 0.0
    desk.run(A, 1.0)
    for version, payloads in enumerate(told, start=1):
        for region, payload in payloads.items():
            region.write(mapped, version, *payload)
        at += 1.0
        for event in reported(progress, at, at):
            desk.tell(event)
        desk.tick(A, at=at)
        progress.pace(PacingLine(end_s=50.0, end_work=100.0, s_per_step=0.5, phase_cost_steps={"evaluate": 2.0}))
    assert desk.granted() == {A: cores(1.0)}


@pytest.mark.parametrize("controller", registry.names("controllers"))
@given(
    st.lists(
        st.tuples(PAYLOADS, st.floats(0.1, 3.0), st.floats(0.0, 1.0), st.sampled_from([0.1, 0.5, 2.0])),
        min_size=2,
        max_size=8,
    ),
    st.booleans(),
    st.booleans(),
)
def test_no_controller_fails_on_what_a_page_says(
    controller: str,
    told: list[tuple[dict[layout.Region, tuple[object, ...]], float, float, float]],
    can_pace: bool,
    can_cap: bool,
) -> None:
    """Between what is written so there are honest steps, so that there is something to steer by."""
    mapped = memory()
    page, desk = SharedBlock.made(mapped), Desk(registry.load("controllers", controller)())
    at = used_core_s = 0.0
    desk.submit(A)
    launch = only(desk.plan({A: cores(1.0)}), LaunchJob)
    desk.tell(
        JobStarted(at=at, job=A, request=launch.request, granted=launch.grant, can_pace=can_pace, can_cap=can_cap)
    )
    progress = PageProgress(page, 0.0)
    for n_steps, (payloads, wall_s, share, grant) in enumerate(told, start=1):
        page.declare(Declaration(pid=1, total_steps=40, state=ProgramState.TRAINING))
        page.publish_progress(n_steps, int(at * 1e9) + 1, int(used_core_s * 1e9), -1)
        for written in ({}, payloads):
            for region, payload in written.items():
                region.write(mapped, n_steps, *payload)
            at, used_core_s = at + wall_s, used_core_s + share * wall_s
            commands = [command for event in reported(progress, at, used_core_s) for command in desk.tell(event)]
            commands += desk.tick(A, at=at) + desk.plan({A: cores(grant)}, at=at)
            for resize in [command for command in commands if isinstance(command, ResizeJob)]:
                progress.pace(resize.pacing)
                desk.applied(resize, at=at)


def test_what_makes_sense_is_believed_and_what_does_not_is_named() -> None:
    mapped = memory()
    page = SharedBlock.made(mapped)
    progress = PageProgress(page, 0.0)
    page.declare(Declaration(pid=1, total_steps=10, state=ProgramState.TRAINING))
    page.publish_progress(3, 1, 0, -1)
    page.publish_losses(1, [(3, 0.5)])
    assert [len(progress.new_losses()), progress.latest(0.0).unreadable] == [1, ""]
    layout.LOSSES.write(mapped, 2, 3, 4, nan, 5, 0.25, 6, inf, *[0, 0.0] * (wire.N_LOSSES_MAX - 3))
    assert [seen.loss for seen in progress.new_losses()] == [0.25]
    layout.DECLARATION.write(mapped, 9, 1, -10, 0, 77, 0, 0)
    sample = progress.latest(0.0)
    assert (sample.steps_done, sample.steps_total, sample.landed) == (3, None, False)
    assert "its declaration, losses cannot be" in sample.unreadable


def test_a_step_that_is_still_to_come_counts_as_now() -> None:
    page = SharedBlock.made(memory())
    page.publish_progress(3, 2**62, 0, -1)
    sample = PageProgress(page, 0.0).latest(0.0)
    assert sample.unit_at is not None
    assert sample.unit_at <= time.monotonic()
    assert "progress" in sample.unreadable


def test_a_job_that_spoils_its_page_is_warned_of_once_and_ends_as_it_does(stage: Stage) -> None:
    spoil = (
        f"import mmap, os, sys\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\nfrom tests import page_layout\n"
        "page = mmap.mmap(os.open(os.environ['PUNCTUAL_PAGE'], os.O_RDWR), 0)\n"
        "page_layout.DECLARATION.write(page, 99, -1, -5, -5, 77, 88, 5)\n"
        "page_layout.PROGRESS.write(page, 99, 4, 1, 0, 77, -1, 2**62)\n"
        "import pathlib\n"
        "pathlib.Path('spoiled').touch()\n"
        "while not pathlib.Path('go').exists(): time.sleep(0.01)\n"
    )
    place = stage.runtime_dir.parent
    stage.run(SPIN + spoil, cwd=str(place))
    stage.look_until(lambda report: report.steps_done == 4)
    for _ in range(3):
        stage.look()
    (place / "go").touch()
    assert isinstance(stage.ended(), JobFinished)
    (warned,) = [event for event in stage.events if isinstance(event, JobWarned)]
    assert (warned.job, warned.reason.code) == (JOB, "unreadable-progress")


@given(LINES, VERSIONS, PAYLOADS)
@example(PacingLine(end_s=inf, end_work=inf, s_per_step=1.0), 1, {})
@example(PacingLine(end_s=1e18, end_work=1e12, s_per_step=0.0), 2**64 - 1, {})
@example(PacingLine(end_s=-1e300, end_work=1e300, s_per_step=5e-324), 2**63, {})
def test_any_line_can_be_told_and_is_one_that_can_be_kept_to(
    line: PacingLine, version: int, payloads: dict[layout.Region, tuple[object, ...]]
) -> None:
    mapped = memory()
    page = SharedBlock.made(mapped)
    page.publish_phases([PhaseEntry("evaluate"), PhaseEntry("save")])
    for region, payload in payloads.items():
        region.write(mapped, version, *payload)
    host, training = SharedBlock(mapped), SharedBlock(mapped)  # a host that takes over what the job has spoilt
    progress = PageProgress(host, time.monotonic())
    progress.new_phases()
    progress.pace(line)
    progress.heartbeat()
    host.send_worker_target(WorkerTarget(2**70, 2, 0, 0, (), False))
    assert training.worker_target().request == 2**63 - 1
    told = training.directives()
    assert not told.pacing or not isnan(told.unit_may_end_ns(1.0))
    progress.ask_to_stop()
    assert training.directives().stop


@pytest.mark.parametrize("steps", [10**9, 10**12, 10**15])
def test_a_line_that_ends_in_thousands_of_years_is_kept_to_now(steps: int) -> None:
    mapped = memory()
    page = SharedBlock.made(mapped)
    submitted_at = time.monotonic()
    line = PacingLine(end_s=0.2 * steps + 5.0, end_work=float(steps), s_per_step=0.2)
    PageProgress(page, submitted_at).pace(line)
    told = SharedBlock(mapped).directives()
    assert told.pacing
    for done in (0, 1, 1000):
        expected_at = submitted_at + 5.0 + 0.2 * done
        assert told.unit_may_end_ns(done) / 1e9 == pytest.approx(expected_at, abs=0.2)


def test_a_unit_that_ended_before_the_process_began_counts_as_at_its_beginning() -> None:
    page, now = SharedBlock.made(memory()), time.monotonic()
    progress = PageProgress(page, now - 100.0)
    progress.begin(now - 1.0)
    page.declare(Declaration(pid=1, total_steps=3))
    page.publish_progress(3, 1, 0, -1)
    assert progress.latest(0.0).unit_at == progress.landed_at() == now - 1.0
    assert "progress" in progress.latest(0.0).unreadable


def test_no_more_is_in_flight_than_the_job_has_used() -> None:
    page = SharedBlock.made(memory())
    page.declare(Declaration(pid=1, total_steps=3))
    page.publish_progress(1, 1, 0, -1)
    page.publish_workers(WorkerStatus(agent_pid=1, n_workers=2**62))
    assert PageProgress(page, 0.0).latest(0.25).in_flight_core_s <= 0.25


@pytest.mark.parametrize("total_steps", [2**53, 2**62, 2**63 - 1])
def test_more_steps_than_can_be_counted_are_no_fault(total_steps: int) -> None:
    page = SharedBlock.made(memory())
    page.declare(Declaration(pid=1, total_steps=total_steps))
    page.publish_progress(1, 1, 0, -1)
    progress = PageProgress(page, 0.0)
    assert progress.latest(1.0).steps_total == 2**53
    assert not progress.latest(1.0).unreadable


def test_what_a_supervisor_has_left_of_a_page_is_believed_no_more_than_the_page_was() -> None:
    mapped, now_ns = memory(), time.monotonic_ns()
    page = SharedBlock.made(mapped)
    started_ns = now_ns - 10**9
    page.declare(Declaration(pid=1, total_steps=3, state=ProgramState.LANDED))
    page.publish_progress(3, 1, 0, -1)
    record = {
        "ended": 0, "at_ns": now_ns, "core_s": 1.0, "boot": boot_id(), "page": bytes(mapped).hex(), "started_ns": started_ns,
    }  # fmt: skip
    report, end = recorded_end(JOB, record, at_least=0.0)
    assert report is not None
    assert isinstance(end, JobFinished)
    assert report.unit_at == end.landed_at == started_ns / 1e9
