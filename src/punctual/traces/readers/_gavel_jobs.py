"""What the formats of Gavel and Shockwave have in common: commands, models with a batch size in the name."""

import re
from collections.abc import Sequence

from punctual.traces.rows import Row
from punctual.traces.source import Head

_JOB_TYPE = re.compile(r"(?P<model>.+?)(?: \(batch size (?P<batch>[0-9]+)\))?")

#: The commands that these traces run.
_INTERPRETERS = ("python3 ", "python ")


def is_gavel_like(head: Head, columns: Sequence[str]) -> bool:
    """Whether the first line, which is no header, has the fields of `columns`."""
    matched = head.columns("\t")
    return len(matched) == len(columns) and matched[columns.index("command")].startswith(_INTERPRETERS)


def model_name(row: Row) -> str:
    """``ResNet-50`` of ``ResNet-50 (batch size 64)``."""
    return _JOB_TYPE.fullmatch(row.text("job_type"))["model"]  # type: ignore[index]


def batch_size(row: Row) -> int | None:
    """64 of ``ResNet-50 (batch size 64)``; None where there is none."""
    matched = _JOB_TYPE.fullmatch(row.text("job_type"))
    return int(matched["batch"]) if matched and matched["batch"] else None


def slack_factor(row: Row) -> float | None:
    """How many times its run time a job may take, waiting included; None: any time."""
    factor = row.number("slo")
    return factor if factor > 0 else None
