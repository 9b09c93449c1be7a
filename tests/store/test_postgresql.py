"""A journal in PostgreSQL: the kit, claims, and what happens while the database is away."""

import json
import threading
from collections.abc import Iterator
from itertools import count
from math import inf
from pathlib import Path

import pytest
from tests.postgresql import Server
from tests.store.journal_kit import JournalConformance, ticks
from tests.waiting import wait_until

from punctual.core.errors import InvalidSpec
from punctual.core.events import StopRequested
from punctual.core.ids import JobId
from punctual.core.protocols import Journal
from punctual.store.place import StorePlace
from punctual.store.stored import JournalTaken, StoreUnreachable
from punctual.store.tables import VERSION
from punctual.store.upkeep import Upkeep, UpkeepLimits

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")
pytest.importorskip("psycopg")

from sqlalchemy import event

from punctual.store import buffered
from punctual.store.buffered import BufferedJournal
from punctual.store.postgresql import PostgresJournal

_names = count()


@pytest.fixture
def place(server: Server) -> StorePlace:
    return StorePlace(url=server.url, journal=f"journal-{next(_names)}")


def numbers(place: StorePlace) -> list[int]:
    with PostgresJournal(place, read_only=True) as journal:
        return [number for number, _ in journal.read_from(1)]


class TestPostgresJournal(JournalConformance):
    @pytest.fixture
    def journal(self, place: StorePlace) -> Iterator[Journal]:
        with PostgresJournal(place) as journal:
            yield journal


class TestBufferedJournal(JournalConformance):
    @pytest.fixture
    def journal(self, place: StorePlace) -> Iterator[Journal]:
        with BufferedJournal(place) as journal:
            yield journal


def test_goes_on_where_it_stopped_and_keeps_journals_apart(place: StorePlace, server: Server) -> None:
    other = StorePlace(url=server.url, journal=f"{place.journal}-other")
    with PostgresJournal(place) as journal, PostgresJournal(other) as beside:
        journal.append(ticks(2))
        beside.append(ticks(5))
        beside.save_snapshot(5, b"state")
    with PostgresJournal(place) as journal:
        assert journal.append(ticks(1, first=2)) == 3
        assert [message for _, message in journal.read_from(1)] == ticks(3)
        assert journal.latest_snapshot() is None
        journal.remove()
    assert numbers(place) == []
    assert len(numbers(other)) == 5


def test_the_newest_snapshot_that_is_whole_is_read(place: StorePlace, server: Server) -> None:
    with PostgresJournal(place) as journal:
        journal.append(ticks(9))
        for sequence in (2, 3, 7, 9):
            journal.save_snapshot(sequence, b"state %d" % sequence)
        journal.save_snapshot(9, b"again")
        assert journal.snapshot_sequences() == [7, 9]
        assert journal.latest_snapshot() == (9, b"again")
        of_newest = f"WHERE journal = '{place.journal}' AND sequence = 9"
        server.sql(f"UPDATE punctual_snapshot SET state = 'damaged' {of_newest}")
        assert journal.latest_snapshot() == (7, b"state 7")
        journal.thin([1, 2, 9], until=7)
        server.sql(f"UPDATE punctual_snapshot SET state = 'damaged' WHERE journal = '{place.journal}'")
        with pytest.raises(InvalidSpec, match="last two snapshots"):
            journal.latest_snapshot()
    assert numbers(place) == [3, 4, 5, 6, 7, 8, 9], "the last message stays"


def test_is_kept_small_by_the_same_upkeep(place: StorePlace) -> None:
    with BufferedJournal(place) as journal:
        upkeep = Upkeep(
            journal, lambda: b"state", limits=UpkeepLimits(snapshot_messages=20, snapshot_s=1.0, thin_messages=10)
        )
        for i in range(300):
            message = ticks(1, first=i)
            journal.append(message)
            upkeep(message[0])
    assert len(numbers(place)) < 300
    with PostgresJournal(place, read_only=True) as reader:
        snapshot = reader.latest_snapshot()
        assert snapshot is not None
        assert snapshot[0] > reader.thinned_until > 0


# Claims.


@pytest.mark.parametrize("kind", [PostgresJournal, BufferedJournal])
def test_one_writer_at_a_time(place: StorePlace, kind: type[PostgresJournal]) -> None:
    with kind(place) as first:
        first.append(ticks(2))
        with pytest.raises(JournalTaken) as refused:
            kind(place)
        assert refused.value.remedy
        with kind(place, take=True) as second:
            assert second.append(ticks(1)) == 3
            for write in (
                lambda: first.append(ticks(1)),
                lambda: first.save_snapshot(2, b"state"),
                lambda: first.thin([1], until=2),
                first.check_claim,
            ):
                with pytest.raises(JournalTaken):
                    write()
            assert not first.has_claim()
            assert second.append(ticks(1)) == 4
            assert second.snapshot_sequences() == []
    assert numbers(place) == [1, 2, 3, 4]


def test_anybody_may_read_and_nobody_writes_by_it(place: StorePlace) -> None:
    with PostgresJournal(place) as writer, PostgresJournal(place, read_only=True) as reader:
        writer.append(ticks(2))
        assert [number for number, _ in reader.read_from(1)] == [1, 2]
        with pytest.raises(JournalTaken):
            reader.append(ticks(1))
        assert reader.owner is not None
    with PostgresJournal(place, read_only=True) as reader:
        assert reader.owner is None


def test_an_owner_on_another_machine_lives_as_long_as_its_connection(place: StorePlace, server: Server) -> None:
    with PostgresJournal(place) as there:
        owner = {**json.loads(there._owner), "boot_id": "another", "machine": "another"}
        there._owner = json.dumps(owner)
        told = json.dumps(owner).replace("'", "''")
        server.sql(f"UPDATE punctual_fact SET value = '{told}' WHERE journal = '{place.journal}' AND name = 'owner'")
        assert there.append(ticks(1)) == 1
        with pytest.raises(JournalTaken, match="'another'"):
            PostgresJournal(place)
        there._drop()  # as its machine does when it loses power
        wait_until(lambda: server.sql("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'") == "0")
        with PostgresJournal(place) as here:
            assert here.append(ticks(1)) == 2
            with pytest.raises(JournalTaken):
                there.append(ticks(1))


# The database is away.


def test_what_comes_while_it_is_away_is_written_in_order_once_it_is_back(place: StorePlace, server: Server) -> None:
    with BufferedJournal(place) as journal:
        journal.append(ticks(3))
        server.stop()
        try:
            for i in range(3, 40):
                assert journal.append(ticks(1, first=i)) == i + 1
            assert journal.is_behind
            assert journal.n_waiting >= 37, "and what the server may have lost"
            assert journal.has_claim(), "as far as is known"
            assert not journal.beside(lambda: pytest.fail("the store is away"))
            with pytest.raises(StoreUnreachable) as refused:
                PostgresJournal(place, read_only=True)
            assert refused.value.remedy
        finally:
            server.start()
        wait_until(lambda: journal.has_claim() and not journal.is_behind)
        assert journal.append(ticks(1, first=40)) == 41
        assert journal.n_waiting == 0
        assert list(journal.read_from(1)) == list(enumerate(ticks(41), start=1))


def test_a_database_that_does_not_answer_holds_nobody_up(place: StorePlace, server: Server) -> None:
    with BufferedJournal(place) as journal:
        journal.append(ticks(1))
        with server.hanging():
            for i in range(1, 30):
                journal.append(ticks(1, first=i))
            assert journal.is_behind
            assert journal.has_claim()
        wait_until(lambda: journal.has_claim() and not journal.is_behind)
        assert list(journal.read_from(1)) == list(enumerate(ticks(30), start=1))


def test_connections_that_are_ended_lose_nothing(place: StorePlace, server: Server) -> None:
    is_over = threading.Event()

    def end_connections() -> None:
        while not is_over.is_set():
            server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'punctual'")

    ending = threading.Thread(target=end_connections)
    with BufferedJournal(place) as journal:
        ending.start()
        try:
            for i in range(150):
                journal.append(ticks(1, first=i))
        finally:
            is_over.set()
            ending.join()
        wait_until(lambda: journal.has_claim() and not journal.is_behind)
        assert list(journal.read_from(1)) == list(enumerate(ticks(150), start=1))


def test_what_waits_is_written_by_closing(place: StorePlace, server: Server) -> None:
    with BufferedJournal(place) as journal:
        server.stop()
        try:
            journal.append(ticks(2))
            assert journal.is_behind
        finally:
            server.start()
    assert numbers(place) == [1, 2]


def test_closing_does_not_wait_for_a_server_that_hangs(
    place: StorePlace, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(buffered, "_CLOSE_S", 0.5)
    journal = BufferedJournal(place)
    journal.append(ticks(1))
    with server.hanging():
        journal.append(ticks(1))
        journal.close()
        wait_until(lambda: not [each for each in threading.enumerate() if each.name.startswith("punctual-journal")])
    assert journal.n_waiting >= 1, "which is told in the log"


def test_whoever_took_it_while_it_was_away_has_it(place: StorePlace, server: Server) -> None:
    with BufferedJournal(place) as first:
        first.append(ticks(1))
        server.stop("fast")
        try:
            first.append(ticks(1))
            assert first.is_behind
        finally:
            server.start()
        with PostgresJournal(place, take=True) as second:
            assert second.append(ticks(1, first=7)) == 2
        wait_until(lambda: not first.has_claim())
        with pytest.raises(JournalTaken):
            first.append(ticks(1))
        assert first.last_written == 1, "who follows the other begins behind what this one has written"
    assert len(numbers(place)) == 2


def test_what_is_told_to_be_accepted_waits_for_the_servers_disk_and_other_messages_do_not(place: StorePlace) -> None:
    with BufferedJournal(place) as journal:
        journal.append(ticks(1))  # what came for a second is on the disk with it
        journal._on_disk_at = inf
        said: list[str] = []
        event.listen(journal._engine, "before_cursor_execute", lambda *told: said.append(told[2]))
        journal.append(ticks(1))
        assert "SET LOCAL synchronous_commit = off" in said
        said.clear()
        journal.append([StopRequested(at=1.0, job=JobId("a"), cause="test")])
        assert any(statement.startswith("INSERT") for statement in said)
        assert not any("synchronous_commit" in statement for statement in said)


# The tables.


def test_the_tables_are_those_that_the_migrations_make(place: StorePlace) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext
    from alembic.script import ScriptDirectory

    from punctual.store import tables
    from punctual.store.migrations import configuration

    with PostgresJournal(place) as journal, journal._connected() as connection:
        context = MigrationContext.configure(
            connection, opts={"version_table": tables.VERSION_TABLE, "compare_type": True}
        )
        assert compare_metadata(context, tables.METADATA) == []
    assert ScriptDirectory.from_config(configuration()).get_heads() == [tables.VERSION]


@pytest.mark.parametrize("read_only", [True, False])
def test_tables_of_another_version_are_refused_and_left_alone(
    place: StorePlace, server: Server, read_only: bool
) -> None:
    PostgresJournal(place).close()
    server.sql("UPDATE punctual_version SET version_num = '9999'")
    try:
        with pytest.raises(InvalidSpec, match="9999") as refused:
            PostgresJournal(place, read_only=read_only)
        assert not isinstance(refused.value, StoreUnreachable)
        assert "version" in refused.value.must
        assert server.sql("SELECT version_num FROM punctual_version") == "9999"
    finally:
        server.sql(f"UPDATE punctual_version SET version_num = '{VERSION}'")
    PostgresJournal(place, read_only=read_only).close()


def test_reading_makes_no_tables(server: Server) -> None:
    server.sql("CREATE DATABASE empty")
    url = server.url.replace("/postgres?", "/empty?")
    with pytest.raises(InvalidSpec, match="must hold journals"):
        PostgresJournal(StorePlace(url=url, journal="any"), read_only=True)


def test_a_user_without_rights_is_told_so(server: Server) -> None:
    server.sql("CREATE ROLE weak LOGIN")
    server.sql("CREATE DATABASE bare")
    url = server.url.replace("tester@", "weak:s3cret@").replace("/postgres?", "/bare?")
    with pytest.raises(InvalidSpec, match="right") as refused:
        PostgresJournal(StorePlace(url=url, journal="any"))
    assert "GRANT" in refused.value.remedy
    assert "s3cret" not in str(refused.value)


def test_a_database_that_is_not_there_is_named(server: Server) -> None:
    url = server.url.replace("/postgres?", "/nowhere?").replace("tester@", "tester:s3cret@")
    with pytest.raises(InvalidSpec, match="must be there") as refused:
        PostgresJournal(StorePlace(url=url, journal="any"))
    assert "nowhere" in refused.value.got
    assert "s3cret" not in str(refused.value)


def test_a_server_that_is_not_there_is_unreachable(tmp_path: Path) -> None:
    url = f"postgresql://me:s3cret@/db?host={tmp_path}"
    with pytest.raises(StoreUnreachable) as refused:
        PostgresJournal(StorePlace(url=url, journal="any"))
    assert "s3cret" not in str(refused.value)
