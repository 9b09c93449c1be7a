"""Measure how long a host takes to know what a journal leads to: `python _host_start.py JOURNAL`, in a process with nothing else in it.

It prints CPU seconds, which other work on the machine does not add to, and what a turn of the reference takes in the same process.
"""

import time

BEGUN_AT = time.process_time()

import json  # noqa: E402 -- what it costs is measured
import sys  # noqa: E402
from pathlib import Path  # noqa: E402

from _reference import turn_s  # noqa: E402

from punctual.daemon.restore import restored_state  # noqa: E402
from punctual.daemon.run_folder import RunFolder  # noqa: E402
from punctual.journal.sqlite import SqliteJournal  # noqa: E402


def main(path: Path) -> None:
    imported_at = time.process_time()
    with SqliteJournal(path, take=True) as journal:
        state, _ = restored_state(RunFolder("many", path.parent, path.parent), journal)
        restored_at = time.process_time()
        n_read = journal.last_sequence - (journal.snapshot_sequences() or [0])[-1]
    assert state.board.jobs()
    found = {
        "n_read": n_read,
        "import_s": imported_at - BEGUN_AT,
        "restore_s": restored_at - imported_at,
        "turn_us": turn_s() * 1e6,
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
