"""What `bench/host.py` makes up must be what it says."""

from pathlib import Path

from _host_journals import DAY_S, day, drifting_job, written

from punctual.core.events import ProgressReported
from punctual.journal.maintenance import UpkeepLimits
from punctual.journal.sqlite import SqliteJournal


def test_a_journal_ends_where_most_has_to_be_read_again(tmp_path: Path) -> None:
    path = tmp_path / "journal.db"
    jobs = [drifting_job(f"job-{i}", 3600.0, 0.1, drift_s=60.0) for i in range(4)]
    with written(path, jobs, 2500, 3600.0) as writer:
        n_messages = writer.n_messages
    with SqliteJournal(path, read_only=True) as journal:
        latest = journal.latest_snapshot()
        assert latest is not None
        n_tail = sum(1 for _ in journal.read_from(latest[0] + 1))
        assert journal.last_sequence == n_messages
    limits = UpkeepLimits()
    assert limits.snapshot_messages <= n_tail <= limits.snapshot_messages_most + 100


def test_the_job_of_a_day_ticks_as_a_live_one_with_hours_left(tmp_path: Path) -> None:
    found = day(tmp_path, drift_s=300.0, hours=0.5)
    assert 800 <= found.n_reports <= 1000
    assert found.mb < found.mb_day
    with written(tmp_path / "again.db", [drifting_job("job", DAY_S, 1.0, 300.0)], None, 60.0) as writer:
        assert writer.n_reports > 20
    with SqliteJournal(tmp_path / "again.db", read_only=True) as journal:
        assert any(isinstance(message, ProgressReported) for _, message in journal.read_from(1))
