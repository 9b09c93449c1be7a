"""Where the journal of a run is: in its folder, or in the store that the folder names."""

import pytest

from punctual.core.errors import InvalidSpec
from punctual.runtime import run_journal
from punctual.runtime.run_folder import RunFolder, create_run
from punctual.runtime.run_journal import check_store, keep_store, reader, writer

URL = "postgresql://me:s3cret@db/jobs"


@pytest.fixture
def run() -> RunFolder:
    return create_run("run")


def test_without_a_store_it_is_a_file(run: RunFolder) -> None:
    assert not run.has_journal()
    with writer(run) as journal, reader(run) as reading:
        assert journal.file == reading.file == run.journal
    assert run.has_journal()
    assert run.journal_place == str(run.journal)


def test_each_run_has_a_journal_of_its_own_in_a_store(run: RunFolder) -> None:
    other = create_run("other")
    for each in (run, other):
        keep_store(each, URL)
        assert each.has_journal()
        assert "s3cret" not in each.journal_place
    assert run.store is not None
    assert other.store is not None
    assert run.store.url == other.store.url == URL
    assert run.store.journal != other.store.journal


def test_a_new_password_is_kept_and_another_store_refused(run: RunFolder) -> None:
    keep_store(run, URL)
    before = run.store
    check_store(run, None)
    check_store(run, URL.replace("s3cret", "n3w"))
    assert before is not None
    assert run.store is not None
    assert (run.store.url, run.store.journal) == (URL.replace("s3cret", "n3w"), before.journal)
    with pytest.raises(InvalidSpec, match="must be that of the jobs") as refused:
        check_store(run, URL.replace("/jobs", "/others"))
    assert "s3cret" not in str(refused.value)


def test_a_run_with_a_file_goes_on_with_that(run: RunFolder) -> None:
    with pytest.raises(InvalidSpec, match="the file of the run"):
        check_store(run, URL)


def test_a_driver_that_is_missing_is_named_with_what_installs_it(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("punctual.distribution.find_spec", lambda name: None if name == "psycopg" else object())
    keep_store(run, URL)
    for opened in (reader, writer, run_journal.host_journal):
        with pytest.raises(InvalidSpec, match="without psycopg") as refused:
            opened(run)
        assert "pip install alembic 'psycopg[binary]' sqlalchemy" in refused.value.remedy
