"""A client for programs: `punctual.Client`.

It needs the standard library and the answers' models, and is loaded on first use.
"""

import http.client
import json
import os
import re
import secrets
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from datetime import datetime
from math import inf
from pathlib import Path
from typing import Any, Literal, NoReturn, Self, TypedDict, TypeVar, Unpack
from urllib.parse import SplitResult, quote, urlencode, urlsplit

from pydantic import ValidationError
from pydantic.alias_generators import to_snake

from punctual.client import schema
from punctual.core.errors import InvalidSpec, did_you_mean
from punctual.core.status import ToldState
from punctual.core.units import span
from punctual.core.verdict import Verdict
from punctual.daemon.control_socket import connected
from punctual.daemon.paths import owner_token_file, service_root, service_socket
from punctual.distribution import __version__
from punctual.request.redaction import redacted

A = TypeVar("A", bound=schema.AnswerBody)
T = TypeVar("T")

#: Names of this machine for itself: there the owner's token is looked for.
_LOOPBACK_NAMES = frozenset({"127.0.0.1", "::1", "localhost"})
#: Number of tries for a submission that gets no answer, and seconds between them.
_N_TRIES, _PAUSE_S = 3, 0.5
#: Seconds without a sign of life after which a stream of events has broken off: the service gives one every 15 s.
_SILENCE_S = 40.0


class ServiceFailed(Exception):
    """Raised if the service did not answer, or refused a request for a reason that is not in its content.

    Attributes
    ----------
    status
        The HTTP status; None: no answer came.
    """

    def __init__(self, message: str, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class JobEvent:
    """A message of the journal.

    Attributes
    ----------
    sequence
        Its number; `events(after=sequence)` goes on behind it.
    message
        Its fields, as the journal has them.
    """

    sequence: int
    kind: str
    job: str | None
    time: str
    message: Mapping[str, Any]


class ChangeOptions(TypedDict, total=False):
    """Changes of a job, written as for `punctual set`; `deadline`, `budget_usd` None: none any more."""

    deadline: str | None
    weight: float
    cores: str
    workers: str
    budget_usd: float | None


class Client:
    """Sends requests to a service. Thread-safe.

    Parameters
    ----------
    url
        ``http://127.0.0.1:4747``, ``https://…``; None: the service of this user on this machine, by its socket.
    token
        None: at an address of this machine the owner's, if this user has it; by the socket none is needed.
    ca_file
        Certificates that are trusted beside those of the system.
    timeout_s
        Seconds that an answer may take.
    """

    def __init__(
        self, url: str | None = None, token: str | None = None, *, ca_file: Path | None = None, timeout_s: float = 30.0
    ) -> None:
        self._url = None if url is None else _service_url(url)
        if not 0.0 < timeout_s < 1e9:
            _refuse("`timeout_s` must be a number of seconds above zero", repr(timeout_s), "Write for example `30.0`.")
        self._timeout_s = timeout_s
        self._tls = None
        if self._url is not None and self._url.scheme == "https":
            try:
                self._tls = ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
            except OSError as error:
                _refuse("`ca_file` must be a file of certificates", f"'{ca_file}': {error}", "Give one in PEM.")
        self._token = self._owners_token() if token is None else token.strip()
        if re.fullmatch(r"[!-~]*", self._token or "") is None:
            got = "a value that is not repeated here"
            _refuse("`token` must be visible ASCII characters", got, "Give it as `punctual token create` printed it.")

    # Jobs.

    def submit(self, program: Sequence[str], *, idempotency_key: str | None = None, **options: Any) -> "Job":
        """Submit a job; returns once the service has it for good.

        `options` are the other fields of `SubmitRequest`, written as for `punctual run`. Asked by its socket the service
        gives the job this process's variables (`env` over them) and folder, as `punctual run` does; asked by its URL
        only what `env` and `cwd` say.

        Raises
        ------
        InvalidSpec
            The job is refused.
        ServiceFailed
            No answer came.
        """
        asked = self._request_of(program, options)
        body = asked.model_dump(by_alias=True, exclude_unset=True)
        key = secrets.token_hex(16) if idempotency_key is None else str(idempotency_key)  # so that it can be said again
        if re.fullmatch(r"[!-~]{1,128}", key) is None:
            must = "an idempotency key must be 1 to 128 visible characters"
            _refuse(must, repr(key), "Choose another key, or leave it out.")
        headers = {"Idempotency-Key": key}
        for i_try in range(_N_TRIES):
            try:
                return Job(self, self._answer(schema.JobStanding, "POST", "/jobs", body=body, headers=headers).name)
            except ServiceFailed as error:
                if error.status not in {None, 503} or i_try == _N_TRIES - 1:
                    raise
            time.sleep(_PAUSE_S)
        raise AssertionError

    def job(self, name: str) -> "Job":
        """Return the job of that name; raises `ServiceFailed` (404) if there is none."""
        return Job(self, self.show(name).name)

    def jobs(
        self,
        *,
        state: ToldState | Sequence[ToldState] = (),
        verdict: Verdict | Sequence[Verdict] = (),
        name: str | None = None,
    ) -> list[schema.JobStanding]:
        """Return the remembered jobs in order of submission, optionally of some states, verdicts or names.

        Parameters
        ----------
        name
            Beginning of the job's name.
        """
        query = {"state": state, "verdict": verdict, "name": name, "limit": 500}
        page = self._answer(schema.JobList, "GET", "/jobs", query=query)
        jobs = page.jobs
        while page.next_cursor is not None:
            page = self._answer(schema.JobList, "GET", "/jobs", query={**query, "cursor": page.next_cursor})
            jobs += page.jobs
        return jobs

    def show(self, name: str) -> schema.JobStanding:
        """Return the job's standing."""
        return self._answer(schema.JobStanding, "GET", _path(name))

    def why(self, name: str, *, last: int = 10, every: bool = False) -> list[schema.WhyEntry]:
        """Return the events that led to the job's grants, oldest first."""
        query = {"last": last, "every": str(every).lower()}
        return self._answer(schema.WhyAnswer, "GET", _path(name, "why"), query=query).entries

    def change(self, name: str, **changes: Unpack[ChangeOptions]) -> schema.JobStanding:
        """Change the deadline (``+30m``, ``90s`` from now, ``18:00``), weight, cores, workers or budget of a job that works.

        Raises
        ------
        InvalidSpec
            Something of it cannot be; then nothing is changed.
        """
        return self._answer(schema.JobStanding, "PATCH", _path(name), body=changes)

    def stop(self, name: str, cause: str = "") -> schema.JobStanding:
        """Ask the job to end, after a checkpoint if it can make one."""
        return self._answer(schema.JobStanding, "POST", _path(name, "stop"), body={"cause": cause})

    def pause(self, name: str, cause: str = "") -> schema.JobStanding:
        """Pause the job until `resume`; its deadline goes on counting."""
        return self._answer(schema.JobStanding, "POST", _path(name, "pause"), body={"cause": cause})

    def resume(self, name: str) -> schema.JobStanding:
        """Resume a paused job."""
        return self._answer(schema.JobStanding, "POST", _path(name, "resume"))

    def quote(self, name: str, *, deadline: str | None = None, cores: Sequence[float] = ()) -> schema.QuoteAnswer:
        """Quote another deadline of the job, and its finish with each of `cores`; changes nothing."""
        return self._answer(
            schema.QuoteAnswer, "POST", _path(name, "quote"), body={"deadline": deadline, "cores": list(cores)}
        )

    def quote_new(self, program: Sequence[str], *, amounts: Sequence[float] = (), **options: Any) -> schema.QuoteAnswer:
        """Quote a job that is not submitted; `amounts` are of cores. Changes nothing."""
        asked = self._request_of(program, options)
        body = {"job": asked.model_dump(by_alias=True, exclude_unset=True), "cores": list(amounts)}
        return self._answer(schema.QuoteAnswer, "POST", "/quote", body=body)

    def wait(self, name: str, timeout_s: float | None = None) -> schema.JobStanding:
        """Wait for the job's end and return its standing; raises `TimeoutError` if that takes longer."""
        give_up_at = inf if timeout_s is None else time.monotonic() + timeout_s
        pause_s = 0.05
        while (standing := self.show(name)).ended is None:
            if time.monotonic() >= give_up_at:
                raise TimeoutError(f"job '{name}' has not ended in {span(timeout_s or 0.0)}")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, 1.0)
        return standing

    def logs(
        self,
        name: str,
        *,
        stream: Literal["stdout", "stderr"] = "stdout",
        follow: bool = False,
        since: datetime | None = None,
    ) -> "Stream[bytes]":
        """Return the job's output, in pieces; with `follow` as it comes, until the job has ended.

        Where the service ends before, the next piece raises `ServiceFailed`.

        Parameters
        ----------
        since
            Only what was written from then on, to a second; with a time zone.
        """
        query = {"stream": stream, "follow": str(follow).lower()}
        if since is not None:
            query["since"] = since.isoformat()
        silence_s = None if follow else self._timeout_s
        return Stream(self._opened("GET", _path(name, "logs"), query=query, silence_s=silence_s), _pieces)

    def events(
        self, *, job: str | None = None, kind: Sequence[str] = (), after: int | None = None
    ) -> "Stream[JobEvent]":
        """Return the messages as they come, after the one of number `after`; None: from now on.

        Where the service is killed, the next one raises `ServiceFailed`.
        """
        query = {"job": job, "kind": kind, "after": after}
        return Stream(self._opened("GET", "/events", query=query, silence_s=_SILENCE_S), _events)

    # The cluster.

    def cluster(self) -> schema.ClusterStanding:
        """Return the cluster's capacity, and the resources that are held and free."""
        return self._answer(schema.ClusterStanding, "GET", "/cluster")

    def drain(self, node: str, in_: str = "60s") -> schema.ClusterStanding:
        """Have all jobs leave a node that is taken away after the time `in_`; nothing is placed there any more.

        Raises
        ------
        InvalidSpec
            There is no such node.
        ServiceFailed
            The token has not the role of an operator (403), or no answer came.
        """
        return self._answer(schema.ClusterStanding, "POST", f"/nodes/{quote(node, safe='')}/drain", body={"in": in_})

    def undrain(self, node: str) -> schema.ClusterStanding:
        """Use a node again that was to be taken away; raises as `drain` does."""
        return self._answer(schema.ClusterStanding, "POST", f"/nodes/{quote(node, safe='')}/undrain")

    def policies(self) -> list[schema.PolicyEntry]:
        """Return the available policies."""
        return self._answer(schema.PolicyList, "GET", "/policies").policies

    def policy(self) -> schema.PolicyStanding:
        """Return the policy that makes the plans."""
        return self._answer(schema.PolicyStanding, "GET", "/policy")

    def change_policy(self, name: str, parameters: Mapping[str, Any] | None = None) -> schema.PolicyStanding:
        """Make plans with another policy, or with other parameters; jobs go on meanwhile.

        Raises
        ------
        InvalidSpec
            There is no such policy, or it cannot be made so.
        ServiceFailed
            The token has not the role of an operator (403), or no answer came.
        """
        body = {"name": name, "parameters": dict(parameters or {})}
        return self._answer(schema.PolicyStanding, "PUT", "/policy", body=body)

    def metrics(self) -> str:
        """Return the metrics in Prometheus's format."""
        with self._opened("GET", "/metrics") as answered:
            return answered.all().decode(errors="replace")

    def health(self) -> schema.Health:
        """Return the service's health, and the caller's name and role."""
        return self._answer(schema.Health, "GET", "/health")

    # Asking.

    def _answer(self, kind: type[A], method: str, path: str, **parts: Any) -> A:
        with self._opened(method, path, **parts) as answered:
            body = answered.all()
        try:
            return kind.model_validate_json(body)
        except ValidationError:
            told = f"the answer to `{method} /v1{path}` is none that Punctual {__version__} knows"
            raise ServiceFailed(f"{told}; is it a service, and of this version?", 200) from None

    def _opened(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        silence_s: float | None = 0.0,
    ) -> "Answered":
        """Send a request. `silence_s`: seconds between two parts of a stream; None: any; 0: as for any answer."""
        told = {name: value for name, value in (query or {}).items() if value is not None}
        target = f"/v1{path}?{urlencode(told, doseq=True)}" if told else f"/v1{path}"
        sent = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        data = None if body is None else json.dumps(body)
        if data is not None:
            sent["Content-Type"] = "application/json"
        connection = self._connection()
        try:
            connection.request(method, target, data, {**sent, **(headers or {})})
            opened = connection.sock  # the connection lets go of it where the service ends it after the answer
            answered = Answered(opened, connection.getresponse())
            if silence_s != 0.0:
                opened.settimeout(silence_s)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise ServiceFailed(self._unanswered(error)) from error
        answered.check()
        return answered

    def _connection(self) -> http.client.HTTPConnection:
        if self._url is None:
            return _SocketConnection(service_socket(), self._timeout_s)
        name, port = str(self._url.hostname), self._url.port
        if self._tls is not None:
            return http.client.HTTPSConnection(name, port, timeout=self._timeout_s, context=self._tls)
        return http.client.HTTPConnection(name, port, timeout=self._timeout_s)

    def _unanswered(self, error: Exception) -> str:
        if self._url is None:
            return f"no service of this user answers ({error}); start one with `punctual up`"
        return f"no service answers at {self._url.geturl()} ({error})"

    def _owners_token(self) -> str | None:
        if self._url is None or self._url.hostname not in _LOOPBACK_NAMES:
            return None
        with suppress(OSError, ValueError):
            return owner_token_file(service_root()).read_text(encoding="ascii").strip()
        return None

    def _request_of(self, program: Sequence[str], options: dict[str, Any]) -> schema.SubmitRequest:
        known = schema.SubmitRequest.model_fields
        unknown = next((name for name in options if name not in known), None)
        if unknown is not None:
            remedy = f"{did_you_mean(unknown, known)}Known: {', '.join(known)}."
            must = "an option must be one of `punctual run`"
            raise InvalidSpec(must, f"`{unknown}`", "the job", remedy, option=unknown)
        if self._url is None:
            own = {name: value for name, value in os.environ.items() if _is_text(value) and _is_text(name)}
            options = {"cwd": str(Path.cwd()), **options, "env": {**own, **options.get("env", {})}}
        words = program if isinstance(program, str) or not isinstance(program, Sequence) else list(program)
        try:
            return schema.SubmitRequest.model_validate({"program": words, **options})
        except ValidationError as error:  # its text has the values, which may be secrets
            complaint = error.errors(include_url=False, include_input=False)[0]
            field, remedy = str(complaint["loc"][0]), "Write it as the reference of the Python client says."
            got = "a value that is not repeated here"
            raise InvalidSpec(f"`{field}`: {complaint['msg']}", got, "the job", remedy, option=field) from None


class Job:
    """A job of a service, by its name."""

    def __init__(self, client: Client, name: str) -> None:
        self._client = client
        self.name = name

    def status(self) -> schema.JobStanding:
        """Return its standing."""
        return self._client.show(self.name)

    def wait(self, timeout_s: float | None = None) -> schema.JobStanding:
        """Wait for its end and return its standing; raises `TimeoutError` if that takes longer."""
        return self._client.wait(self.name, timeout_s)

    def change(self, **changes: Unpack[ChangeOptions]) -> schema.JobStanding:
        """Change the job; see `Client.change`."""
        return self._client.change(self.name, **changes)

    def stop(self, cause: str = "") -> schema.JobStanding:
        """Ask the job to end, after a checkpoint if it can make one."""
        return self._client.stop(self.name, cause)

    def pause(self, cause: str = "") -> schema.JobStanding:
        """Pause the job until `resume`."""
        return self._client.pause(self.name, cause)

    def resume(self) -> schema.JobStanding:
        """Resume the job after `pause`."""
        return self._client.resume(self.name)

    def quote(self, *, deadline: str | None = None, cores: Sequence[float] = ()) -> schema.QuoteAnswer:
        """Quote another deadline; see `Client.quote`."""
        return self._client.quote(self.name, deadline=deadline, cores=cores)

    def why(self, *, last: int = 10, every: bool = False) -> list[schema.WhyEntry]:
        """Return the events that led to its grants, oldest first."""
        return self._client.why(self.name, last=last, every=every)

    def logs(
        self,
        *,
        stream: Literal["stdout", "stderr"] = "stdout",
        follow: bool = False,
        since: datetime | None = None,
    ) -> "Stream[bytes]":
        """Return its output, in pieces; see `Client.logs`."""
        return self._client.logs(self.name, stream=stream, follow=follow, since=since)

    def __repr__(self) -> str:
        return f"Job({self.name!r})"


def submit(program: Sequence[str], **options: Any) -> Job:
    """Submit a job to this user's service on this machine; see `Client.submit`."""
    return Client().submit(program, **options)


# One request.


class Answered:
    """Answer to one request, on a connection of its own."""

    def __init__(self, opened: socket.socket, response: http.client.HTTPResponse) -> None:
        self._socket, self._response = opened, response
        #: Bytes that are still to come; None: the service has not said how many.
        self._n_left = response.length

    def check(self) -> None:
        """Raise the refusal of the request, if it was refused: `InvalidSpec`, or `ServiceFailed`."""
        status = self._response.status
        if 200 <= status < 300:
            return
        with self:
            body = self.all()
        try:
            told = schema.Problem.model_validate_json(body)
        except ValidationError:  # of another program
            raise ServiceFailed(self._response.reason or f"status {status}", status) from None
        if status == 422 and told.must is not None:
            raise _invalid(told, [_invalid(other) for other in told.others])
        raise ServiceFailed(told.detail, status)

    def all(self) -> bytes:
        """Return the whole answer."""
        try:
            return self._response.read()
        except (OSError, http.client.HTTPException) as error:
            raise ServiceFailed(f"the answer broke off ({error})") from error

    def piece(self) -> bytes:
        """Return the next bytes, at least one; empty: there are no more."""
        piece = b"" if self._n_left == 0 else self._response.read1(65_536)
        if self._n_left is not None:
            if self._n_left and not piece:
                raise http.client.IncompleteRead(b"", self._n_left)
            self._n_left -= len(piece)
        return piece

    def close(self) -> None:
        """Close the connection; a thread that waits for it gets no more."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _SocketConnection(http.client.HTTPConnection):
    """Connection to the socket of this user's service."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = connected(self._path, self.timeout)


class Stream(Iterator[T]):
    """Parts of an answer as they come; to be closed, or left as a context manager, if not all are wanted."""

    def __init__(self, answered: Answered, parts: Callable[[Answered], Iterator[T]]) -> None:
        self._answered = answered
        self._parts = parts(answered)
        self._is_closed = False

    def __next__(self) -> T:
        try:
            return next(self._parts)
        except StopIteration:
            self.close()
            raise
        except (OSError, ValueError, TypeError, KeyError, http.client.HTTPException) as error:
            if self._is_closed:  # by its reader
                raise StopIteration from None
            self.close()
            raise ServiceFailed(f"the answer broke off ({error})") from error

    def close(self) -> None:
        """Close the connection; the rest is lost."""
        self._is_closed = True
        self._answered.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _pieces(answered: Answered) -> Iterator[bytes]:
    while piece := answered.piece():
        yield piece


def _events(answered: Answered) -> Iterator[JobEvent]:
    rest = b""
    while piece := answered.piece():
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                told = json.loads(line[5:])
                yield JobEvent(**{field.name: told[field.name] for field in fields(JobEvent)})


def _invalid(told: schema.Problem | schema.FaultText, others: Sequence[InvalidSpec] = ()) -> InvalidSpec:
    names = (told.field or "").removeprefix("/job/").strip("/").split("/")  # a quote has its job in a part
    option = to_snake(names[0]) or None
    parts = (part or "" for part in (told.must, told.got, told.where, told.remedy))
    return InvalidSpec(*parts, option=option, others=others)


def _refuse(must: str, got: str, remedy: str) -> NoReturn:
    raise InvalidSpec(must, got, "the client", remedy) from None


def _service_url(url: str) -> SplitResult:
    """Return the parts of a service's address; raises `InvalidSpec` if it is none."""
    with suppress(ValueError):  # a bracket without its other one, or a port that is none
        parts = urlsplit(url)
        is_bare = parts.username is None and not parts.query and not parts.fragment and parts.path in ("", "/")
        if (
            parts.scheme in {"http", "https"}
            and re.fullmatch(r"\S+", parts.hostname or "")
            and is_bare
            and parts.port != 0
        ):
            return parts
    shown = " ".join(redacted([url.partition("#")[0]]))  # a token may follow
    _refuse("`url` must be a service's address alone", repr(shown), "Write for example `http://127.0.0.1:4747`.")


def _path(name: str, *more: str) -> str:
    return "/".join(["/jobs", quote(name, safe=""), *more])


def _is_text(value: str) -> bool:
    """Whether a variable can be sent: bytes that are no text, which Python reads as lone surrogates, cannot."""
    return re.search("[\ud800-\udfff]", value) is None
