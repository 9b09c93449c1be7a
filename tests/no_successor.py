"""Keep jobs whose daemon was killed from starting the next one, where a test looks at them as they are meanwhile."""

from pathlib import Path

from punctual.executors.local.successor import locked


def hold_back_successors(home: Path) -> int:
    """Have the lock that a supervisor needs to start a daemon, until the returned descriptor is closed."""
    folder = home / "state"
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return locked(str(folder / "daemon.log"))
