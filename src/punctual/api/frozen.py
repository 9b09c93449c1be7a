"""Frozen page: one file that shows the jobs of a run as they stood, and makes no requests.

It has the scripts of the page, and in place of a service what that would have answered.
"""

import json
import re
from base64 import b64encode
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from punctual import __version__
from punctual.api.history_response import history_answer, job_program, spending, why_answer
from punctual.api.standing import job_standing, with_headline
from punctual.client.schema import Health, JobList, JobStanding
from punctual.core.events import Message
from punctual.core.ids import JobId
from punctual.core.status import JobStatus, StatusBoard
from punctual.daemon.log_snapshot import LogSnapshot
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import now_of
from punctual.history.costs import CostHistory
from punctual.history.run import history_of
from punctual.request.deadlines import Now
from punctual.request.json_text import json_text

FOLDER = Path(__file__).with_name("dashboard")

#: Number of the last reasons of a job that the page contains.
_N_REASONS = 50
_STREAMS = {"stdout": False, "stderr": True}
_IMPORTED = re.compile(r'"\./(\w+\.js)"')
_POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"


def frozen_page(run: RunFolder, messages: Sequence[Message], said: Mapping[JobId, str]) -> str:
    """Return the page with some jobs of a run, as HTML.

    * `messages`: messages of the journal that may concern one of the jobs, oldest first.
    * `said`: the jobs, and what each came to in a sentence or two.
    """
    now, board = now_of(run), StatusBoard(n_ended=len(messages))  # none is forgotten
    for message in messages:
        board.fold(message)
    statuses = [board.job(job) for job in said]
    told = {"at": now.wall.isoformat(), "said": said, "answers": _answers(run, messages, statuses, now)}
    return _document(told, title=", ".join(said))


def _answers(run: RunFolder, messages: Sequence[Message], statuses: Sequence[JobStatus], now: Now) -> dict[str, str]:
    """Compute a service's answers, by path."""
    costs, standings = CostHistory(), list[JobStanding]()
    for message in messages:
        costs.add(message)
    costs.settle(now.at if any(not status.ended for status in statuses) else costs.bill.last_at)
    for status in statuses:
        standing = with_headline(job_standing(None, status, now), status, now)
        standings.append(standing.model_copy(update={"spent_usd": _spent_usd(run, status, costs)}))
    told = {
        "/health": Health(
            status="leaving", version=__version__, host=run.name, caller="", role="viewer", takes_jobs=False
        ),
        "/jobs?limit=500": JobList(jobs=standings, next_cursor=None),
    }
    for status, standing in zip(statuses, standings, strict=True):
        history = history_of(messages, status.id)
        path = f"/jobs/{status.id}"
        told[path] = standing
        told[f"{path}/program"] = job_program(run, status)
        spent = [] if standing.spent_usd is None else spending(status, costs, standing.spent_usd)
        told[f"{path}/history"] = history_answer(status, history, now, spent=spent)
        told[f"{path}/why?last={_N_REASONS}"] = why_answer(status, history, now, _N_REASONS)
    logs = {
        f"/jobs/{status.id}/logs?follow=true&stream={stream}": _end_of(run.log_of(status.id, of_errors=of_errors))
        for status in statuses
        for stream, of_errors in _STREAMS.items()
    }
    return {path: answer.model_dump_json(by_alias=True) for path, answer in told.items()} | logs


def _spent_usd(run: RunFolder, status: JobStatus, costs: CostHistory) -> float | None:
    """Return the dollars that the job has cost, as recorded at its end or, for an open job, by the messages so far."""
    if status.ended or run.removed_jobs():
        spent_usd: float | None = run.end_facts(status.id).get("spent_usd")
        return spent_usd
    return costs.bill.by_job.get(status.id, 0.0) if costs.bill.has_price else None


def _end_of(log: Path) -> str:
    kept = LogSnapshot(log)
    # Bytes of the end of a job's output that the page contains.
    begin = max(0, kept.n_bytes - 500_000)
    return b"".join(kept.pieces(begin, kept.n_bytes)).decode(errors="replace")


def _document(told: Mapping[str, object], title: str) -> str:
    scripts = {f"punctual/{path.name}": _inline(path) for path in sorted(FOLDER.glob("*.js"))}
    data = json_text(told).replace("<", "\\u003c")  # so that nothing in it ends the element
    head = "\n".join(
        [
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{escape(title)}</title>",
            f"<style>\n{(FOLDER / 'page.css').read_text(encoding='utf-8')}</style>",
            f'<script type="application/json" id="frozen">{data}</script>',
            f'<script type="importmap">{json.dumps({"imports": scripts})}</script>',
            '<script type="module">import "punctual/overview.js";</script>',
        ]
    )
    page = (FOLDER / "index.html").read_text(encoding="utf-8")
    before, _, rest = page.partition("<title>")
    return f"{before}{head}\n</head>{rest.partition('</head>')[2]}"


def _inline(path: Path) -> str:
    """Return a script as a data address, with its imports under the names of the import map."""
    text = _IMPORTED.sub(r'"punctual/\1"', path.read_text(encoding="utf-8"))
    return "data:text/javascript;base64," + b64encode(text.encode()).decode()
