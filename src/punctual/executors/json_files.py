"""Small JSON files that one process replaces and others may read meanwhile."""

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any


def read_json(path: Path) -> Any:
    """Return the value in a file; None: there is no file, or no JSON in it."""
    with suppress(OSError, ValueError):
        return json.loads(path.read_text(encoding="utf-8"))
    return None


def read_object(path: Path) -> dict[str, Any]:
    """Return the object in a file; empty: there is none."""
    value = read_json(path)
    return value if isinstance(value, dict) else {}


def write_json(path: Path, value: object) -> None:
    """Replace the file in one step, readable by this user only; what JSON lacks, as a date, becomes text.

    Its folder is this user's alone. Raises `OSError`, for a full disk say; the file is then as before.
    """
    prepared = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        prepared.touch(mode=0o600)
        prepared.write_text(json.dumps(value, default=str), encoding="utf-8")
        prepared.replace(path)
    except OSError:
        prepared.unlink(missing_ok=True)
        raise
