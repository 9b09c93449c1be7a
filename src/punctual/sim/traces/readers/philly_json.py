"""Microsoft's Philly clusters of 2017, the original `cluster_job_log`: a list of JSON objects."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from punctual.core.errors import InvalidSpec
from punctual.sim.traces.bad_rows import BadRows
from punctual.sim.traces.job import TraceJob
from punctual.sim.traces.rows import Row, reason_of
from punctual.sim.traces.source import Head, Source

_BETWEEN = re.compile(r"[\s\[\],]*")
_DECODER = json.JSONDecoder()


def objects_of(source: Source, bad: BadRows) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield the objects and their first lines; after invalid JSON the rest is one bad row."""
    text, line = "", 1
    # The file is read in pieces of this size; an object that is not whole yet is tried again with the next piece.
    for piece in source.pieces(65_536):
        text += piece
        done = 0
        for start, end, value in _values(text):
            line += text.count("\n", done, start)
            if isinstance(value, dict):
                yield line, value
            else:
                bad.add(str(source), line, f"an object expected, {str(value)[:40]!r} found")
            line += text.count("\n", start, end)
            done = end
        text = text[done:]
        # Size far above any object of a trace: one that is not complete by then is broken.
        if len(text) > 4_000_000:
            break
    if rest := text[_start(text, 0) :]:
        bad.add(str(source), line + text.count("\n", 0, len(text) - len(rest)), f"not JSON from here on: {rest[:40]!r}")


def _values(text: str) -> Iterator[tuple[int, int, Any]]:
    """The values that are whole, with their places."""
    end = 0
    while (start := _start(text, end)) < len(text):
        try:
            value, end = _DECODER.raw_decode(text, start)
        except (ValueError, RecursionError):  # lists within lists without end, for the second
            return
        yield start, end, value


def _start(text: str, end: int) -> int:
    """Return the position of the next value."""
    between = _BETWEEN.match(text, end)
    return between.end() if between else end


@dataclass(frozen=True, slots=True)
class PhillyJson:
    """Real jobs of the Philly clusters, 2017, with every attempt to run them.

    A job's duration is the time of all attempts of which start and end are recorded, its devices are the most that one
    attempt had. Jobs that never ran are bad rows. Jobs that failed or were killed are jobs: they held devices.
    """

    def recognises(self, head: Head) -> bool:
        """Whether the first object has this format's names."""
        text = "\n".join(head.lines)
        return text.lstrip()[:1] in ("[", "{") and '"jobid"' in text and '"attempts"' in text

    def read(self, source: Source, bad: BadRows) -> Iterator[TraceJob]:
        """The jobs, in the order of the file."""
        for line, record in objects_of(source, bad):
            try:
                job = _job(line, record)
            except InvalidSpec as error:
                bad.add(str(source), line, reason_of(error))
            else:
                yield job


def _job(line: int, record: Mapping[str, Any]) -> TraceJob:
    cells = Row(line, {name: str(record.get(name, "")) for name in ("jobid", "submitted_time", "user", "vc")})
    attempts = [attempt for attempt in _objects(line, record, "attempts") if _attempt_s(line, attempt) > 0]
    if not attempts:
        raise InvalidSpec("a job must have run", "no attempt with a start and a later end", f"line {line}", "Skip it.")
    return TraceJob(
        id=cells.text("jobid"),
        submitted_at=cells.at("submitted_time"),
        n_gpus=max(_n_gpus(line, attempt) for attempt in attempts),
        duration_s=sum(_attempt_s(line, attempt) for attempt in attempts),
        user=cells.optional_text("user") or cells.optional_text("vc"),
    )


def _attempt_s(line: int, attempt: Mapping[str, Any]) -> float:
    """Seconds that an attempt ran; 0 if its start or end was not recorded."""
    cells = Row(line, {name: str(attempt.get(name, "")) for name in ("start_time", "end_time")})
    if cells.optional_text("start_time") is None or cells.optional_text("end_time") is None:
        return 0.0
    return cells.at("end_time") - cells.at("start_time")


def _n_gpus(line: int, attempt: Mapping[str, Any]) -> int:
    return sum(len(_listed(server, "gpus")) for server in _objects(line, attempt, "detail"))


def _objects(line: int, record: Mapping[str, Any], name: str) -> Sequence[Mapping[str, Any]]:
    listed = _listed(record, name)
    if not all(isinstance(item, dict) for item in listed):
        raise InvalidSpec(f"`{name}` must hold objects", str(listed)[:40], f"line {line}", "Skip it.")
    return listed


def _listed(record: Mapping[str, Any], name: str) -> Sequence[Any]:
    listed = record.get(name)
    return listed if isinstance(listed, list) else ()
