"""Delivery of notices to a URL and to a command, beside the steering and never in its way."""

import json
import logging
import os
import re
import shlex
import shutil
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from http.client import HTTPException
from math import inf
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Lock, Thread
from typing import Any, Self, TypeVar
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
from punctual.daemon.host import Host
from punctual.daemon.paths import service_root
from punctual.executors.local.supervisor import LaunchRequest
from punctual.executors.local.supervisor_client import SupervisorLink, start_supervisor
from punctual.history.judge import NO_WAIT, headline, judge, landing_at
from punctual.request.deadlines import Now
from punctual.request.words import visible

T = TypeVar("T")

_LOG = logging.getLogger(__name__)

#: Variables of the daemon's environment: they also hold for one that `punctual run` starts, and no list of processes shows
#: them, as it would a secret in a URL.
URL_VARIABLE, COMMAND_VARIABLE = "PUNCTUAL_NOTIFY_URL", "PUNCTUAL_NOTIFY_COMMAND"
#: Seconds that a receiver may take to answer, and pauses before it is tried again.
_ANSWER_S_MAX, _PAUSES_S = 10.0, (1.0, 5.0)
#: Seconds that a command may take.
_COMMAND_S_MAX = 30.0
#: Most notices that wait for a receiver, as many as a person would read: one that hangs must not fill the memory.
N_WAITING_MAX = 100
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
            before, colon, _ = self.url.partition(":")
            is_address, scheme = False, before if colon and before.isalpha() else ""
            with suppress(ValueError):  # a bracket without its other one, or a port that is none
                parts = urlsplit(self.url)
                is_web = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
                is_address = is_web and parts.username is None and re.fullmatch("[!-~]+", self.url) is not None
            if not is_address:
                raise InvalidSpec(
                    "the receiver of notices must be an http or https address without a user's name",
                    f"'{scheme}:…'",
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


@dataclass(slots=True)
class _Notice:
    """A notice, and how many receivers have still to have it."""

    job: JobId
    kind: NoticeKind | None
    fields: Mapping[str, Any]
    n_left: int


class _Receiver(ABC):
    """Has notices one after the other, in a thread of its own: one that hangs delays no other receiver."""

    def __init__(self, has_had: Callable[[_Notice], None]) -> None:
        self._waiting: SimpleQueue[_Notice | None] = SimpleQueue()
        #: Called with each notice once this receiver has had it, or cannot have it.
        self._has_had = has_had
        #: Whether the next daemon tells of what this receiver has not had.
        self.is_left = False
        #: Instant at which nothing is waited for any more.
        self.give_up_at = inf
        #: Thread of the last work that `within` began; it may hang.
        self.working = Thread()
        self._thread = Thread(target=self._work, name="notices", daemon=True)
        self._thread.start()

    def add(self, notice: _Notice) -> bool:
        """Add a notice; return whether there is room for it."""
        if self._waiting.qsize() >= N_WAITING_MAX:
            return False
        self._waiting.put(notice)
        return True

    def leave(self, give_up_at: float, *, is_left: bool) -> None:
        """Give the notices that wait until `give_up_at`, and then no more."""
        self.is_left, self.give_up_at = is_left, give_up_at
        self._waiting.put(None)

    def join(self) -> None:
        """Return when it has had all notices or gives up."""
        self._thread.join(max(0.0, self.give_up_at - time.monotonic()) + 1.0)

    @abstractmethod
    def deliver(self, fields: Mapping[str, Any]) -> str:
        """Deliver a notice; return why that failed, empty if it did not."""

    def _work(self) -> None:
        while (notice := self._waiting.get()) is not None:
            failure = " was not sent in time" if time.monotonic() > self.give_up_at else self._delivered(notice.fields)
            if failure and self.is_left:
                continue
            if failure:
                _LOG.warning("the notice that %s is %s%s", notice.fields["job"], notice.fields["kind"], failure)
            self._has_had(notice)

    def _delivered(self, fields: Mapping[str, Any]) -> str:
        try:
            return self.deliver(fields)
        except Exception as error:  # noqa: BLE001 -- the next notice may be taken
            _LOG.exception("a notice could not be sent")
            return f" was not sent: {error}"

    def wait(self, lasts: Callable[[], bool], most_s: float) -> None:
        """Wait while something `lasts`, for `most_s` seconds or until the daemon waits no more."""
        begun_at, pause_s = time.monotonic(), 0.01
        while lasts() and time.monotonic() < min(begun_at + most_s, self.give_up_at):
            time.sleep(pause_s)
            pause_s = min(2.0 * pause_s, 0.1)

    def within(self, most_s: float, work: Callable[[], T], meanwhile: Callable[[], None] = lambda: None) -> list[T]:
        """Return what `work` returns, in a list: empty if it takes longer than `wait` allows.

        It is done in another thread, which may hang; as long as one hangs no other is started.
        """
        outcome = list[T]()
        if not self.working.is_alive():
            self.working = Thread(target=lambda: outcome.append(work()), name="notice", daemon=True)
            self.working.start()

        def lasts() -> bool:
            meanwhile()
            return self.working.is_alive()

        self.wait(lasts, most_s)
        return outcome


class _UrlReceiver(_Receiver):
    """Posts notices to an address."""

    def __init__(self, url: str, has_had: Callable[[_Notice], None]) -> None:
        self._url, self._opener = url, build_opener(_NoRedirects)
        #: Whether it has not taken the last notice: it is asked once for each until it takes one.
        self._is_away = False
        super().__init__(has_had)

    def deliver(self, fields: Mapping[str, Any]) -> str:
        """Post a notice, again if the receiver is away or busy."""
        headers = {"Content-Type": "application/json", "User-Agent": f"punctual/{__version__}"}
        request = Request(self._url, json.dumps(fields).encode(), headers)  # noqa: S310 -- checked
        pauses_s = iter(() if self._is_away else _PAUSES_S)
        while True:
            # An answer may come byte by byte, and a name server not at all: neither ends by a limit for each byte.
            unanswered = (f"no answer within {span(_ANSWER_S_MAX)}", False)
            (failure,) = self.within(_ANSWER_S_MAX, partial(self._answer, request)) or [unanswered]
            pause_s = next(pauses_s, None)
            self._is_away = failure is not None and not failure[1]
            if failure is None:
                return ""
            if failure[1] or pause_s is None or time.monotonic() + pause_s > self.give_up_at:
                parts = urlsplit(self._url)
                return f" was not taken by {parts.scheme}://{parts.hostname}: {failure[0]}"
            self.wait(lambda: True, pause_s)

    def _answer(self, request: Request) -> tuple[str, bool] | None:
        """Post once; return why it failed, and whether for good; None: it was taken."""
        try:
            self._opener.open(request, timeout=_ANSWER_S_MAX).close()
        except HTTPError as error:
            with error:
                return f"status {error.code}", error.code < 500 and error.code != 429
        except (OSError, HTTPException, ValueError) as error:
            return str(getattr(error, "reason", error)) or type(error).__name__, False
        return None


class _CommandReceiver(_Receiver):
    """Runs a command for each notice, under a supervisor: nothing of it outlives the daemon, also one that is killed."""

    def __init__(self, command: str, has_had: Callable[[_Notice], None]) -> None:
        self._command = command
        super().__init__(has_had)

    def deliver(self, fields: Mapping[str, Any]) -> str:
        """Run the command with a notice, as JSON and in its environment."""
        failure = self._failure(fields)
        return f": the command for notices {failure}" if failure else ""

    def _failure(self, fields: Mapping[str, Any]) -> str:
        told = {f"PUNCTUAL_NOTICE_{name.upper()}": visible(str(fields[name] or "")) for name in fields}
        with ExitStack() as opened:
            try:
                notice_fd = os.memfd_create("punctual-notice", os.MFD_CLOEXEC)
                opened.callback(os.close, notice_fd)
                os.write(notice_fd, json.dumps(fields).encode() + b"\n")
                os.lseek(notice_fd, 0, os.SEEK_SET)
                said_fd, write_fd = os.pipe()
                opened.callback(os.close, said_fd)
                with ExitStack() as starting:
                    starting.callback(os.close, write_fd)
                    link = start_supervisor((), (), write_fd, write_fd, notice_fd)
            except OSError as error:
                return f"could not be started: {error}"
            opened.callback(link.finish)
            # The command ends so many seconds after a daemon that is killed, or hangs.
            environment, fence_s = {**os.environ, **told}, 10.0
            argv = shlex.split(self._command)
            request = LaunchRequest(argv=argv, environment=environment, fence_s=fence_s, grace_s=0.0, kill_s=1.0)
            return self._outcome(link, request, _Said(said_fd))

    def _outcome(self, link: SupervisorLink, request: LaunchRequest, said: "_Said") -> str:
        """Return why the command of `request` has failed; empty: it has not."""

        def last_word() -> dict[str, Any] | None:
            """Return how the command ended, or that it did not start; None: its supervisor was killed."""
            while (word := link.read()) is not None and not {"failed", "ended"} & word.keys():
                if "ready" in word:
                    with suppress(OSError):  # it has ended
                        link.send(request)
            return word

        def look() -> None:
            said.read_on()
            link.renew()

        begun_at = time.monotonic()
        outcome = self.within(_COMMAND_S_MAX, last_word, look)
        if not outcome:
            is_slow = time.monotonic() >= begun_at + _COMMAND_S_MAX
            link.terminate()
            self.working.join(5.0)  # more than it takes to kill it
            why = f"took longer than {span(_COMMAND_S_MAX)}" if is_slow else "had not ended when the daemon did"
            return f"{why}, and was ended{said}"
        said.read_on()
        (last,) = outcome
        if last is None:
            return f"was killed{said}"
        if "failed" in last:
            return f"could not be started: {last['failed']}"
        return f"ended with status {last['ended']}{said}" if last["ended"] else ""


class Notifier:
    """Tells receivers of a host's jobs; a context manager.

    A receiver that hangs delays its own notices, and nothing else: what it was asked for is ended with the daemon.

    A notice counts as told once its receivers have had it, or have failed as often as they may. So a daemon that is killed
    meanwhile leaves it to the next one, which may tell it twice; what was told before is not told again.
    """

    def __init__(self, options: NotifyOptions, host: Host) -> None:
        self._host = host
        self._run = host.run_folder.name
        self._ends = Event()
        self._thread = Thread(target=self._work, name="notices", daemon=True)
        self._lock = Lock()
        self._database: ServiceDatabase | None = None
        self._is_unusable = False
        self._receivers = list[_Receiver]()
        if options.url is not None:
            self._receivers.append(_UrlReceiver(options.url, self._has_had))
        if options.command is not None:
            self._receivers.append(_CommandReceiver(options.command, self._has_had))
        now = host.now()
        #: Begins with the jobs that are over: of these it is known what was told, or that nothing is to be.
        self._filter = NoticeFilter({status.id: notice_kind(status, now) for status in host.jobs() if status.ended})
        #: Whether the next daemon goes on with these jobs, and tells of them.
        self._is_left = False

    def _work(self) -> None:
        try:
            with ExitStack() as ending:
                with self._unless_unusable():
                    self._database = ending.enter_context(closing(ServiceDatabase(service_root())))
                    self._filter.known.update(self._told_before(self._database))
                while not self._ends.wait(1.0):
                    self._look()
                self._look()
                give_up_at = time.monotonic() + (0.0 if self._is_left else _LAST_S_MAX)
                for receiver in self._receivers:
                    receiver.leave(give_up_at, is_left=self._is_left)
                for receiver in self._receivers:
                    receiver.join()
                with self._lock:
                    self._database = None
        except Exception:  # noqa: BLE001 -- no notice may cost a job its daemon
            _LOG.exception("no notices are sent any more")

    @contextmanager
    def _unless_unusable(self) -> Iterator[None]:
        """Leave the block where the database is damaged, locked or full, and say so once: notices are sent all the same."""
        try:
            yield
        except InvalidSpec as error:
            if not self._is_unusable:
                _LOG.warning("the next daemon may send notices that were sent before: they cannot be noted: %s", error)
            self._is_unusable = True

    def _told_before(self, database: ServiceDatabase) -> dict[JobId, NoticeKind | None]:
        """Return how each job of the run stood when it was last told of."""
        with database.writing() as connection:
            connection.execute("DELETE FROM notice WHERE at < ?", (time.time() - 30 * DAY_S,))
        rows = database.rows("SELECT job, kind FROM notice WHERE run = ?", self._run)
        return {JobId(job): kind for job, kind in rows}

    def _look(self) -> None:
        """Give the receivers what has changed since the last look."""
        n_dropped, jobs, now = 0, self._host.jobs(), self._host.clocks()
        for status, kind, is_news in list(self._filter.changes(jobs, now.at)):
            # Until it was told the next daemon has to tell of it.
            self._note(status.id, None if is_news else kind)
            if is_news and not self._is_left:
                notice = _Notice(status.id, kind, _fields(self._host, status, kind, now), len(self._receivers))
                for receiver in self._receivers:
                    if not receiver.add(notice):
                        self._has_had(notice)
                        n_dropped += 1
        if n_dropped:
            _LOG.warning("%d notices were dropped: their receivers took too long", n_dropped)

    def _has_had(self, notice: _Notice) -> None:
        """Note at once that a receiver has had a notice: a daemon that is killed then leaves nothing to be told again."""
        with self._lock:
            notice.n_left -= 1
            if not notice.n_left and self._filter.known.get(notice.job) == notice.kind:
                self._note(notice.job, notice.kind)

    def _note(self, job: JobId, told: NoticeKind | None) -> None:
        if self._database is None:
            return
        row = (self._run, job, told, time.time())
        with self._unless_unusable(), self._database.writing() as connection:
            connection.execute("INSERT OR REPLACE INTO notice VALUES (?, ?, ?, ?)", row)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Tell of the last changes, unless the next daemon does; returns soon, whatever the receivers do."""
        self._is_left = kind is not None or bool(self._host.open_jobs())
        if self._is_left:
            for receiver in self._receivers:
                receiver.leave(time.monotonic(), is_left=True)
        self._ends.set()
        self._thread.join((0.0 if self._is_left else _LAST_S_MAX) + 2.0)


class _Said:
    """Beginning of what a command writes; the rest is read and dropped, so that no log is filled."""

    def __init__(self, fd: int) -> None:
        os.set_blocking(fd, False)
        self._fd, self._text = fd, b""

    def read_on(self) -> None:
        """Read what is there, a megabyte at most: a command that writes without end costs no processor."""
        with suppress(BlockingIOError):
            for _ in range(16):
                self._text = (self._text + os.read(self._fd, 1 << 16))[:2000]  # bytes enough for a reason

    def __str__(self) -> str:
        text = visible(" ".join(self._text.decode("utf-8", "replace").split()))
        return f"; it said: {text}" if text else ""


def _fields(host: Host, status: JobStatus, kind: NoticeKind | None, now: Now) -> dict[str, Any]:
    wait, promised_at = host.waits(now.at).get(status.id, NO_WAIT), host.promised_until_at(status.id)
    cores = sum(node.capacity.cores for node in host.nodes())
    judged = judge(status, now.at, now.clock, wait)
    said = headline(status, judged, now.at, now.clock, most_cores=cores, is_promised=promised_at is not None)
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
