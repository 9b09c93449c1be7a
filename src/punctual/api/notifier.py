"""Delivery of notices to a URL and to a command, beside the steering and never in its way."""

import json
import logging
import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, replace
from http.client import HTTPException
from math import inf
from pathlib import Path
from threading import Event, Thread
from typing import Any, Self
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from punctual import __version__
from punctual.api.database import ServiceDatabase
from punctual.api.notices import NoticeFilter, NoticeKind, notice_kind
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.core.status import JobStatus
from punctual.core.units import DAY_S, span
from punctual.daemon.local_host import LocalHost
from punctual.daemon.paths import service_root
from punctual.history.judge import NO_WAIT, headline, landing_at
from punctual.request.deadlines import Now
from punctual.request.words import visible

_LOG = logging.getLogger(__name__)

#: Variables of the daemon's environment: they also hold for one that `punctual run` starts, and no list of processes shows
#: them, as it would a secret in a URL.
URL_VARIABLE, COMMAND_VARIABLE = "PUNCTUAL_NOTIFY_URL", "PUNCTUAL_NOTIFY_COMMAND"
#: Seconds that a receiver may take to answer, and pauses before it is tried again.
_ANSWER_S_MAX, _PAUSES_S = 10.0, (1.0, 5.0)
#: Seconds that a command may take.
_COMMAND_S_MAX = 30.0
#: Seconds for all notices of the last look, when the daemon ends; what is left then is dropped.
_LAST_S_MAX = 10.0


class _NoRedirects(HTTPRedirectHandler):
    """Takes a redirect for a failure: a notice goes where its user has sent it, and nowhere else."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


@dataclass(frozen=True, slots=True)
class NotifyOptions:
    """Receivers of notices; None: none of this sort."""

    url: str | None = None
    command: str | None = None

    @classmethod
    def from_environment(cls) -> Self:
        """Read the options that this process has in its environment."""
        return cls(os.environ.get(URL_VARIABLE) or None, os.environ.get(COMMAND_VARIABLE) or None)

    def arguments(self) -> list[str]:
        """Return these options as words of a command line."""
        given = (("--notify-url", self.url), ("--notify-command", self.command))
        return [word for option, value in given if value is not None for word in (option, value)]

    def at_home(self) -> Self:
        """Return these options with the whole path of the command's program: a daemon runs in another folder."""
        words = shlex.split(self.command or "")
        if not words or "/" not in words[0]:
            return self
        return replace(self, command=shlex.join([str(Path(words[0]).absolute()), *words[1:]]))

    def hand_on(self) -> None:
        """Put what is given into the environment of this process and of those that it starts."""
        for name, given in ((URL_VARIABLE, self.url), (COMMAND_VARIABLE, self.command)):
            if given is not None:
                os.environ[name] = given

    def check(self) -> None:
        """Raise `InvalidSpec` if a notice can be sent to none of them."""
        if self.url is not None:
            parts = urlsplit(self.url)
            if parts.scheme not in ("http", "https") or not parts.hostname or parts.username is not None:
                raise InvalidSpec(
                    "the receiver of notices must be an http or https address without a user's name",
                    f"'{parts.scheme}:…'",
                    f"`--notify-url`, or {URL_VARIABLE}",
                    "Write for example `https://example.org/hook`; for anything else give a command (`--notify-command`).",
                )
        if self.command is None:
            return
        words, where = list[str](), f"`--notify-command`, or {COMMAND_VARIABLE}"
        with suppress(ValueError):
            words = shlex.split(self.command)
        if not words:
            raise InvalidSpec(
                "the command for notices must be words as a shell has them",
                repr(self.command),
                where,
                "Write for example `notify-send Punctual` or `sh -c '…'`.",
            )
        if shutil.which(words[0]) is None:
            raise InvalidSpec(
                "the command for notices must begin with a program that can be run",
                f"'{visible(words[0])}', which is none here",
                where,
                "Write its whole path, and make it executable (`chmod +x`).",
            )


class Notifier:
    """Tells receivers of a host's jobs in a thread of its own; a context manager.

    A receiver that hangs delays other notices, and nothing else: what it was asked for is ended with the daemon.

    A notice counts as told once its receivers have had it, or have failed as often as they may. So a daemon that is killed
    meanwhile leaves it to the next one, which may tell it twice; what was told before is not told again.
    """

    def __init__(self, options: NotifyOptions, host: LocalHost) -> None:
        self._options, self._host = options, host
        self._run = host.run_folder.name
        self._ends = Event()
        self._thread = Thread(target=self._work, name="notices", daemon=True)
        self._opener = build_opener(_NoRedirects)
        now = host.now()
        #: Begins with the jobs that are over: of these it is known what was told, or that nothing is to be.
        self._filter = NoticeFilter({status.id: notice_kind(status, now) for status in host.jobs() if status.ended})
        #: Whether the next daemon goes on with these jobs, and tells of them.
        self._is_left = False
        #: Instant at which no receiver is waited for any more.
        self._give_up_at = inf
        #: Waits for the answer of the URL.
        self._posting: Thread | None = None

    def _work(self) -> None:
        try:
            with closing(ServiceDatabase(service_root())) as database:
                self._filter.known.update(self._told_before(database))
                while not self._ends.wait(1.0):
                    self._look(database, 120.0)
                self._look(database, _LAST_S_MAX)
        except Exception:  # noqa: BLE001 -- no notice may cost a job its daemon
            _LOG.exception("no notices are sent any more")

    def _told_before(self, database: ServiceDatabase) -> dict[JobId, NoticeKind | None]:
        """Return how each job of the run stood when it was last told of."""
        with database.writing() as connection:
            connection.execute("DELETE FROM notice WHERE at < ?", (time.time() - 30 * DAY_S,))
        rows = database.rows("SELECT job, kind FROM notice WHERE run = ?", self._run)
        return {JobId(job): kind for job, kind in rows}

    def _look(self, database: ServiceDatabase, batch_s_max: float) -> None:
        """Tell of what has changed since the last look."""
        give_up_at, n_dropped, jobs, now = time.monotonic() + batch_s_max, 0, self._host.jobs(), self._host.clocks()
        for status, kind, is_news in list(self._filter.changes(jobs, now.at)):
            is_late = time.monotonic() > give_up_at
            if is_news and not self._is_left and not is_late:
                self._deliver(_fields(self._host, status, kind, now), give_up_at)
            n_dropped += is_news and not self._is_left and is_late
            # The next daemon tells of what was not told for certain.
            told = None if is_news and self._is_left else kind
            with database.writing() as connection:
                row = (self._run, status.id, told, time.time())
                connection.execute("INSERT OR REPLACE INTO notice VALUES (?, ?, ?, ?)", row)
        if n_dropped:
            _LOG.warning("%d notices were dropped: their receivers took too long", n_dropped)

    def _deliver(self, fields: Mapping[str, Any], give_up_at: float) -> None:
        about = f"the notice that {fields['job']} is {fields['kind']}"
        if self._options.url is not None and (failure := self._posted(self._options.url, fields, give_up_at)):
            parts = urlsplit(self._options.url)
            _LOG.warning("%s was not taken by %s://%s: %s", about, parts.scheme, parts.hostname, failure)
        if self._options.command is not None and (
            failure := self._commanded(self._options.command, fields, give_up_at)
        ):
            _LOG.warning("%s: the command for notices %s", about, failure)

    def _posted(self, url: str, fields: Mapping[str, Any], give_up_at: float) -> str:
        """Post a notice, again if the receiver is away or busy; return why it was not taken, empty if it was."""
        headers = {"Content-Type": "application/json", "User-Agent": f"punctual/{__version__}"}
        request, pauses_s = Request(url, json.dumps(fields).encode(), headers), iter(_PAUSES_S)  # noqa: S310 -- checked
        while True:
            failure = self._refused(request)
            pause_s = next(pauses_s, None)
            last_at = min(give_up_at, self._give_up_at)
            if not failure or failure[1] or pause_s is None or time.monotonic() + pause_s > last_at:
                return failure[0] if failure else ""
            self._ends.wait(pause_s)

    def _refused(self, request: Request) -> tuple[str, bool] | None:
        """Post once; return why it failed, and whether for good; None: it was taken.

        An answer may come byte by byte, and a name server not at all: neither ends by a limit for each byte.
        """
        outcome = list[tuple[str, bool] | None]()
        if self._posting is None or not self._posting.is_alive():
            self._posting = Thread(target=lambda: outcome.append(self._answer(request)), name="notice", daemon=True)
            self._posting.start()
            self._wait(self._posting.is_alive, _ANSWER_S_MAX)
        return outcome[0] if outcome else (f"no answer within {span(_ANSWER_S_MAX)}", False)

    def _answer(self, request: Request) -> tuple[str, bool] | None:
        try:
            self._opener.open(request, timeout=_ANSWER_S_MAX).close()
        except HTTPError as error:
            with error:
                return f"status {error.code}", error.code < 500 and error.code != 429
        except (OSError, HTTPException, ValueError) as error:
            return str(getattr(error, "reason", error)) or type(error).__name__, False
        return None

    def _wait(self, lasts: Callable[[], bool], most_s: float) -> None:
        """Wait for a receiver while it `lasts`, for `most_s` seconds or until the daemon waits no more."""
        begun_at, pause_s = time.monotonic(), 0.01
        while lasts() and time.monotonic() < min(begun_at + most_s, self._give_up_at):
            time.sleep(pause_s)
            pause_s = min(2.0 * pause_s, 0.1)

    def _commanded(self, command: str, fields: Mapping[str, Any], give_up_at: float) -> str:
        """Run the command with a notice, as JSON and in its environment; return why it failed, empty if it did not."""
        told = {f"PUNCTUAL_NOTICE_{name.upper()}": visible(str(fields[name] or "")) for name in fields}
        limit_s, begun_at = max(1.0, min(_COMMAND_S_MAX, give_up_at - time.monotonic())), time.monotonic()
        with ExitStack() as opened:
            try:
                notice_fd = os.memfd_create("punctual-notice", os.MFD_CLOEXEC)
                opened.callback(os.close, notice_fd)
                os.write(notice_fd, json.dumps(fields).encode() + b"\n")
                os.lseek(notice_fd, 0, os.SEEK_SET)
                process = subprocess.Popen(
                    shlex.split(command),
                    stdin=notice_fd,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **told},
                    start_new_session=True,
                )
            except (OSError, ValueError) as error:
                return f"could not be started: {error}"
            assert process.stdout is not None
            said = _Said(opened.enter_context(process.stdout).fileno())
            self._wait(lambda: said.read_on() and process.poll() is None, limit_s)
            if process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                is_slow = time.monotonic() >= begun_at + limit_s
                why = f"took longer than {span(limit_s)}" if is_slow else "had not ended when the daemon did"
                return f"{why}, and was ended{said}"
            said.read_on()
        return f"ended with status {process.returncode}{said}" if process.returncode else ""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Tell of the last changes, unless the next daemon does; returns soon, whatever the receivers do."""
        self._is_left = kind is not None or bool(self._host.open_jobs())
        self._give_up_at = time.monotonic() + (0.0 if self._is_left else _LAST_S_MAX)
        self._ends.set()
        self._thread.join(max(0.0, self._give_up_at - time.monotonic()) + 1.0)


class _Said:
    """Beginning of what a command writes; the rest is read and dropped, so that no log is filled."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd, self._text = fd, b""

    def read_on(self) -> bool:
        """Read what is there, a megabyte at most: a command that writes without end costs no processor; return True."""
        with suppress(BlockingIOError):
            for _ in range(16):
                self._text = (self._text + os.read(self._fd, 1 << 16))[:2000]  # bytes enough for a reason
        return True

    def __str__(self) -> str:
        text = visible(" ".join(self._text.decode("utf-8", "replace").split()))
        return f"; it said: {text}" if text else ""


def _fields(host: LocalHost, status: JobStatus, kind: NoticeKind | None, now: Now) -> dict[str, Any]:
    wait, promised_at = host.waits(now.at).get(status.id, NO_WAIT), host.promised_until_at(status.id)
    cores = sum(node.capacity.cores for node in host.nodes())
    said = headline(status, now.at, now.clock, wait, most_cores=cores, is_promised=promised_at is not None)
    lands_at = landing_at(status, now.at)
    return {
        "job": status.id,
        "kind": kind,
        "text": f"{status.id}: {said}",
        "at": now.iso(now.at),
        "deadline": None if status.deadline_at is None else now.iso(status.deadline_at),
        "landing": None if lands_at is None else now.iso(lands_at),
        "cause": status.cause,
    }
