"""The shared page: what one side writes the other reads, whole or not at all."""

import errno
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from math import isfinite
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from punctual import channel as wire
from punctual.channel import (
    Declaration,
    Directives,
    Fault,
    PageError,
    PhaseEntry,
    ProgramState,
    Progress,
    SharedBlock,
    WorkerStatus,
    WorkerTarget,
)

REGIONS = (
    wire._PROGRESS,
    wire._DECLARATION,
    wire._HEARTBEAT,
    wire._DIRECTIVES,
    wire._TARGET,
    wire._STATUS,
    wire._PHASES,
)
N_UNITS = 200_000


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "job.page")


@pytest.fixture
def page(path: str) -> Iterator[SharedBlock]:
    created = SharedBlock.create(path)
    yield created
    created.close()


@pytest.fixture
def training(page: SharedBlock, path: str) -> Iterator[SharedBlock]:
    """The same page as the training process maps it."""
    opened = SharedBlock.open(path)
    yield opened
    opened.close()


def open_guard(page: SharedBlock, region: wire._Region) -> None:
    """Leave `page` as a writer does that stops in the middle of a write."""
    region._guard.pack_into(page._map, region.offset, region.version(page._map) + 1)


def test_regions_lie_apart_within_the_page() -> None:
    spans = sorted((region.offset, region.end) for region in REGIONS)
    assert spans[0][0] >= len(wire._MAGIC)
    assert spans[-1][1] <= wire.PAGE_BYTES
    assert all(earlier[1] <= later[0] for earlier, later in pairwise(spans))


def test_regions_of_different_writers_share_no_cache_line() -> None:
    training = [wire._PROGRESS, wire._DECLARATION, wire._STATUS, wire._PHASES]
    punctual = [wire._HEARTBEAT, wire._DIRECTIVES, wire._TARGET]
    lines = [{i // 64 for r in side for i in range(r.offset, r.end)} for side in (training, punctual)]
    assert not lines[0] & lines[1]


def test_a_new_page_is_empty(training: SharedBlock) -> None:
    assert training.progress() == Progress()
    assert training.declaration() == Declaration()
    assert training.phases() == []
    assert training.directives() == Directives()
    assert training.heartbeat_ns() == 0


def test_progress_round_trip(page: SharedBlock, training: SharedBlock) -> None:
    training.publish_progress(7, 2**40, 2**35, 1)
    assert page.progress() == Progress(n_steps=7, stamp_ns=2**40, cpu_ns=2**35, i_phase=1)


def test_declaration_round_trip(page: SharedBlock, training: SharedBlock) -> None:
    declaration = Declaration(4711, 3000, 120, ProgramState.TRAINING, Fault.MORE_STEPS, can_stop=True)
    training.declare(declaration)
    assert page.declaration() == declaration


def test_directives_round_trip(page: SharedBlock, training: SharedBlock) -> None:
    before = training.directives_version()
    directives = Directives(True, False, False, 5_000_000_000, 1200.5, 2.5e7, (2.5, 1.0))
    page.send(directives)
    assert training.directives_version() != before
    seen = training.directives()
    assert replace(seen, phase_cost_steps=seen.phase_cost_steps[:2]) == directives
    assert set(seen.phase_cost_steps[2:]) == {0.0}


def test_stop_and_leave_are_directives(page: SharedBlock, training: SharedBlock) -> None:
    page.send(Directives(stop=True))
    assert training.directives() == Directives(stop=True, phase_cost_steps=(0.0,) * wire.N_PHASES_MAX)
    page.send(Directives(leave=True))
    assert training.directives() == Directives(leave=True, phase_cost_steps=(0.0,) * wire.N_PHASES_MAX)


def test_heartbeat_round_trip(page: SharedBlock, training: SharedBlock) -> None:
    page.heartbeat(123)
    assert training.heartbeat_ns() == 123


def test_a_worker_target_round_trip(page: SharedBlock, training: SharedBlock) -> None:
    assert training.worker_target() == WorkerTarget()
    target = WorkerTarget(request=7, n_workers=3, n_devices_each=1, n_servers=2, devices=(0, 5, 62))
    page.send_worker_target(target)
    assert training.worker_target() == target


def test_worker_status_round_trip_and_a_cause_is_cut_to_fit(page: SharedBlock, training: SharedBlock) -> None:
    assert page.worker_status() == WorkerStatus()
    status = WorkerStatus(4711, 7, 3, 12, 11, 200_000_000, 10**11, 1, 2, 1, (0, 3), "a worker ended: no memory left")
    training.publish_workers(status)
    assert page.worker_status() == status
    training.publish_workers(replace(status, cause="é" * 200))
    assert page.worker_status().cause == "é" * 80


@given(
    st.lists(
        st.builds(
            PhaseEntry,
            name=st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6),
            units_planned=st.floats(0, 1e9),
            n_units_done=st.integers(0, 2**62),
            n_units_measured=st.integers(0, 2**62),
            cpu_ns=st.integers(0, 2**62),
            wall_ns=st.integers(0, 2**62),
            cost_steps=st.floats(-1, 1e6),
        ),
        max_size=wire.N_PHASES_MAX,
    )
)
def test_phases_round_trip(tmp_path_factory: pytest.TempPathFactory, entries: list[PhaseEntry]) -> None:
    page = SharedBlock.create(str(tmp_path_factory.mktemp("page") / "job.page"))
    page.publish_phases(entries)
    assert page.phases() == entries
    page.close()


def test_phases_past_the_table_are_left_out(page: SharedBlock, training: SharedBlock) -> None:
    entries = [PhaseEntry(f"phase {i}") for i in range(wire.N_PHASES_MAX + 3)]
    training.publish_phases(entries)
    assert page.phases() == entries[: wire.N_PHASES_MAX]


@pytest.mark.parametrize("name", ["é" * 20, "x" + "é" * 20, "評価" * 10, "xx" + "評価" * 10, "x" * 21 + "😀😀"])
def test_a_long_name_is_cut_between_characters(page: SharedBlock, name: str) -> None:
    page.publish_phases([PhaseEntry(name)])
    (entry,) = page.phases()
    assert name.startswith(entry.name)
    # No room for one more character was left unused.
    assert len(name[: len(entry.name) + 1].encode()) > wire._NAME_BYTES


def test_versions_change_with_every_table(page: SharedBlock) -> None:
    seen = {page.phases_version()}
    for _ in range(3):
        page.publish_phases([])
        seen.add(page.phases_version())
    assert len(seen) == 4


def test_a_restarted_training_goes_on_counting(page: SharedBlock, path: str) -> None:
    for i in range(1, 4):
        training = SharedBlock.open(path)
        training.publish_progress(i, 0, 0, -1)
        training.close()
        assert page.progress().n_steps == i


@pytest.mark.parametrize("region", REGIONS)
def test_a_half_written_payload_is_not_read(page: SharedBlock, region: wire._Region) -> None:
    region.write(page._map, 5, *region._payload.unpack(bytes(region._payload.size)))
    assert region.read(page._map) is not None
    open_guard(page, region)
    assert region.read(page._map) is None


def test_a_writer_that_died_before_its_first_write_ended_leaves_nothing(page: SharedBlock) -> None:
    for region in REGIONS:
        open_guard(page, region)
    assert (page.progress(), page.declaration(), page.phases(), page.directives(), page.heartbeat_ns()) == (
        Progress(), Declaration(), [], Directives(), 0,
    )  # fmt: skip


def test_a_writer_standing_still_leaves_what_was_read_last(page: SharedBlock, training: SharedBlock) -> None:
    training.publish_progress(41, 1, 1, -1)
    assert page.progress().n_steps == 41
    open_guard(training, wire._PROGRESS)
    assert page.progress().n_steps == 41


def test_create_refuses_an_existing_file(page: SharedBlock, path: str) -> None:
    with pytest.raises(FileExistsError):
        SharedBlock.create(path)


def test_where_there_is_no_room_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(OSError, match="No space left"):
        SharedBlock.create(str(tmp_path / "page"))
    assert not (tmp_path / "page").exists()


def test_only_the_owner_may_read(page: SharedBlock, path: str) -> None:
    assert Path(path).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "not a Punctual page"),
        (b"x" * (wire.PAGE_BYTES - 1), "not a Punctual page"),
        (bytes(wire.PAGE_BYTES), "does not begin as"),
        (b"PNCTUAL\x01".ljust(wire.PAGE_BYTES, b"\0"), "another version"),
    ],
)
def test_another_file_is_refused(tmp_path: Path, content: bytes, complaint: str) -> None:
    other = tmp_path / "other"
    other.write_bytes(content)
    with pytest.raises(PageError, match=complaint):
        SharedBlock.open(str(other))


@given(st.lists(st.binary(min_size=wire.PAGE_BYTES - 64, max_size=wire.PAGE_BYTES - 64), min_size=1, max_size=3))
def test_whatever_a_training_writes_is_read_as_something(
    tmp_path_factory: pytest.TempPathFactory, contents: list[bytes]
) -> None:
    page = SharedBlock.create(str(tmp_path_factory.mktemp("page") / "job.page"))
    for content in contents:
        page._map[64:] = content
        for region in REGIONS:  # else nearly all of it would be taken for half-written
            closing = region.end - region._guard.size
            page._map[closing : region.end] = page._map[region.offset : region.offset + region._guard.size]
        n_losses, losses = page.losses()
        assert n_losses >= len(losses)
        assert len(page.phases()) <= wire.N_PHASES_MAX
        assert all(entry.units_planned >= 0 and isfinite(entry.cost_steps) for entry in page.phases())
        assert page.progress().n_steps >= 0
        assert page.progress().i_phase < wire.N_PHASES_MAX
        assert page.declaration().total_steps >= 0
        assert page.worker_status().n_workers >= 0
    page.close()


def test_the_pacing_line_is_anchored_at_its_end() -> None:
    directives = Directives(pacing=True, end_ns=10_000, end_work=100.0, ns_per_step=50.0)
    assert directives.unit_may_end_ns(100.0) == 10_000
    assert directives.unit_may_end_ns(60.0) == 10_000 - 40 * 50


def _hammer(path: str) -> None:
    page = SharedBlock.open(path)
    for i in range(1, N_UNITS + 1):
        page.publish_progress(i, i, i, i % wire.N_PHASES_MAX)


def test_a_reader_never_sees_a_torn_progress(page: SharedBlock, path: str) -> None:
    """Another process writes equal numbers as fast as it can; unequal or falling ones would be torn."""
    writer = multiprocessing.get_context("spawn").Process(target=_hammer, args=(path,))
    writer.start()
    seen = [page.progress()]
    while seen[-1].n_steps < N_UNITS and (writer.is_alive() or page.progress() != seen[-1]):
        progress = page.progress()
        if progress != seen[-1]:
            seen.append(progress)
    writer.join()
    assert seen[-1].n_steps == N_UNITS
    assert all(p == Progress(p.n_steps, p.n_steps, p.n_steps, p.n_steps % wire.N_PHASES_MAX) for p in seen[1:])
    assert all(earlier.n_steps < later.n_steps for earlier, later in pairwise(seen))
