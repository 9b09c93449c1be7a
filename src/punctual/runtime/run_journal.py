"""The journal of a run, in its folder or where that says it is."""

import secrets
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from punctual.core.errors import InvalidSpec
from punctual.distribution import check_extras
from punctual.runtime.run_folder import RunFolder
from punctual.runtime.when import Now
from punctual.store.boot import clock_shift
from punctual.store.place import StorePlace, check_url, shown_url, without_password
from punctual.store.sqlite import SqliteJournal
from punctual.store.stored import StoredJournal

if TYPE_CHECKING:
    from punctual.store.postgresql import PostgresJournal


def reader(run: RunFolder) -> StoredJournal:
    """The journal to be read, whoever writes it; raises `InvalidSpec` if it is not there or cannot be reached."""
    if run.store is None:
        return SqliteJournal(run.journal, read_only=True)
    return _in_database(run.store, read_only=True)


def writer(run: RunFolder) -> StoredJournal:
    """The journal, claimed to write some messages; raises `InvalidSpec`, and `JournalTaken` if another has it."""
    return SqliteJournal(run.journal) if run.store is None else _in_database(run.store)


def host_journal(run: RunFolder, *, take: bool = False) -> StoredJournal:
    """The journal for a host, which steers on while a database is away; raises as `writer` does."""
    if run.store is None:
        return SqliteJournal(run.journal, take=take)
    check_driver()
    from punctual.store.buffered import BufferedJournal

    return BufferedJournal(run.store, take=take)


def keep_store(run: RunFolder, url: str) -> None:
    """Have a new run's journal be in a database."""
    run.keep_store(StorePlace(url=check_url(url), journal=f"{run.name}-{secrets.token_hex(8)}"))


def check_store(run: RunFolder, url: str | None) -> None:
    """Raise `InvalidSpec` if the journal of `run` is in another store than that of `url`; None: any will do.

    A new password is kept.
    """
    if url is None:
        return
    store = run.store
    if store is None or without_password(store.url) != without_password(check_url(url)):
        got = "the file of the run" if store is None else shown_url(store.url)
        raise InvalidSpec(
            "`--store` must be that of the jobs that there are",
            f"'{shown_url(url)}', and their journal is in {got}",
            f"run '{run.name}'",
            "Leave `--store` out, or end the jobs first (`punctual stop`).",
        )
    if store.url != url:
        run.keep_store(StorePlace(url=url, journal=store.journal))


def remove_journal(run: RunFolder) -> None:
    """Remove what a database has of the run's journal; raises `InvalidSpec` where that cannot be done."""
    if run.store is not None:
        with closing(_in_database(run.store)) as journal:
            journal.remove()


def try_store(url: str) -> None:
    """Begin a journal in a store and remove it; raises `InvalidSpec` if the store cannot be used, and why."""
    place = StorePlace(url=check_url(url), journal=f"doctor-{secrets.token_hex(8)}")
    with closing(_in_database(place)) as journal:
        journal.remove()


def _in_database(place: StorePlace, *, read_only: bool = False) -> "PostgresJournal":
    """Imported here, because a command without a database has no use for what it needs."""
    check_driver()
    from punctual.store.postgresql import PostgresJournal

    return PostgresJournal(place, read_only=read_only)


def check_driver() -> None:
    """Raise `InvalidSpec` where what PostgreSQL needs is not installed."""
    check_extras("a journal in PostgreSQL", "postgresql")


def now_of(run: RunFolder) -> Now:
    """The present in the time of the run's journal; raises `InvalidSpec` if it cannot be read."""
    with reader(run) as journal:
        now, shift_s = Now.read(), clock_shift(journal)
    return Now(now.at - shift_s, now.wall)


def written_at(run: RunFolder) -> float:
    """When the journal was last written, as far as the folder tells, in seconds since 1970; 0: there is none."""
    file: Path = run.journal if run.store is None else run.record_file
    return file.stat().st_mtime if file.exists() else 0.0
