"""Notice that this machine is taken away, for all of its agents, also those that start later."""

import os

from punctual.daemon.paths import agent_roots
from punctual.executors.json_files import read_object, write_json
from punctual.journal.boot import boot_id


class MachineNotice:
    """A file for each machine, which may share the folder with others; it holds until the machine is started again."""

    def __init__(self) -> None:
        self._file = agent_roots()[0].parent / f"{os.uname().nodename}.notice.json"

    def record(self, ends_at: float | None) -> None:
        """Record the instant of this machine's monotonic clock at which it is taken away; None: it stays. Raises `OSError`."""
        if ends_at is None:
            self._file.unlink(missing_ok=True)
        else:
            write_json(self._file, {"boot": boot_id(), "ends_at": ends_at})

    def ends_at(self) -> float | None:
        """Return the instant at which this machine is taken away; None: it stays."""
        told = read_object(self._file)
        return float(told["ends_at"]) if told.get("boot") == boot_id() else None
