"""The server: the API at an address, with tokens, and at a socket for the service's own user."""

import gc
import os
import socket
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING

from punctual.api.database import ServiceDatabase
from punctual.api.host_names import LOOPBACK_NAMES, HostNames, check_host_name
from punctual.api.limits import LimitedSocket, Limits
from punctual.api.tls import Tls
from punctual.api.tokens import Tokens
from punctual.core.errors import InvalidSpec
from punctual.daemon.control_socket import listener_pid, make_room
from punctual.daemon.host import Host
from punctual.daemon.paths import owner_token_file, service_root, service_socket
from punctual.daemon.run_folder import RunFolder
from punctual.daemon.runs import live_folders
from punctual.distribution import check_extras
from punctual.executors.local.socket_path import short_enough
from punctual.sim.garbage import is_frozen

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

DEFAULT_ADDRESS = "127.0.0.1:4747"
#: Listening name for all addresses of the machine, of IPv4 and of IPv6.
_EVERYWHERE = "*"

_BACKLOG = 128


@dataclass(frozen=True, slots=True)
class ServedAddress:
    """Address of a service.

    * `url`: address over HTTP.
    * `socket`: socket for its own user's programs, without a token; None: another service of this user has it.
    * `token_file`: file of the owner's token, as long as that is not revoked.
    """

    url: str
    socket: Path | None
    token_file: Path


def free_address() -> str:
    """Return the usual address; if another program listens there, one with a free port chosen by the system."""
    name, port = _parsed(DEFAULT_ADDRESS)
    with socket.socket() as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((name, port))
        except OSError:
            return f"{name}:0"
    return DEFAULT_ADDRESS


def check_installed() -> None:
    """Raise `InvalidSpec` unless the libraries of the service are installed; imports none of them."""
    check_extras("the service", "service")


@contextmanager
def serve(
    host: Host,
    address: str = DEFAULT_ADDRESS,
    *,
    tls: Tls | None = None,
    host_names: Sequence[str] = (),
    allow_plain: bool = False,
    limits: Limits | None = None,
    tracer: "Tracer | None" = None,
) -> Iterator[ServedAddress]:
    """Serve a host over HTTP, in a thread of its own, while the block runs.

    * `address`: ``host:port`` to listen at, port 0: any that is free, host ``*``: all of this machine. It also listens at
      the socket of the service's own user, unless another service of theirs does.
    * `tls`: encrypts what goes over `address`. The service may be asked by the names of the certificate.
    * `host_names`: other names by which it may be asked.
    * `allow_plain`: also listen without TLS where other machines reach it.
    * `limits`: None: the usual ones.
    * `tracer`: makes a span of each request; None: none is made.

    Raises `InvalidSpec`: the libraries are not installed, the certificate cannot be read, a name is none, or it cannot
    listen there.
    """
    check_installed()
    from punctual.api.connections import Endpoint, endpoints_served
    from punctual.api.context import ServiceContext

    with ExitStack() as ending:
        context = None if tls is None else tls.context()
        listening = ending.enter_context(_tcp_socket(address, tls, allow_plain))
        path = service_socket()
        listener = listener_pid(path)
        # 0: a process of another PID namespace, a container say, with which the folder is shared.
        is_anothers = listener == 0 or _service_of(listener) not in (None, host.run_folder)
        own = None if is_anothers else ending.enter_context(_own_socket(path))
        database = ending.enter_context(closing(ServiceDatabase(service_root())))
        tokens = Tokens(database)
        tokens.make_first()
        names = _names(_parsed(address)[0], listening, tls, host_names)
        endpoints = [Endpoint(listening, tokens, HostNames([*names, *LOOPBACK_NAMES]), context)]
        endpoints += [] if own is None else [Endpoint(own, tokens=None, host_names=None)]
        service = ServiceContext(host, limits or Limits(), tracer)
        ending.enter_context(_quick_threads())
        ending.enter_context(endpoints_served(service, endpoints))
        socket_path = None if own is None else path
        yield ServedAddress(_url(names[0], listening, tls), socket_path, owner_token_file(database.folder))


@contextmanager
def _quick_threads() -> Iterator[None]:
    """Shorten the switch interval of threads: one answers while others steer, make plans and read journals."""
    usual_s = sys.getswitchinterval()
    # Seconds for which a computing thread may block the others. An answer waits for it up to once for each thing that
    # it has to ask of the system; the usual 5 ms make 20 of it.
    sys.setswitchinterval(0.0005)
    freezes = not is_frozen()
    if freezes:
        gc.freeze()  # what was imported stays: to look whether it is garbage would stop all threads for some 20 ms
    try:
        yield
    finally:
        if freezes:
            gc.unfreeze()
        sys.setswitchinterval(usual_s)


# Addresses.


def _parsed(address: str) -> tuple[str, int]:
    name, colon, port = address.rpartition(":")
    name = name.removeprefix("[").removesuffix("]")
    if not colon or not name or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise InvalidSpec(
            "the address must be a name or a number and a port",
            repr(address),
            "the service",
            f"Write for example `{DEFAULT_ADDRESS}`, or port 0 for any that is free.",
        )
    return name, int(port)


@contextmanager
def _tcp_socket(address: str, tls: Tls | None, allow_plain: bool) -> Iterator[LimitedSocket]:
    name, port = _parsed(address)
    with ExitStack() as opened:
        try:
            family, kind, protocol, _, place = socket.getaddrinfo(_bound(name), port, type=socket.SOCK_STREAM)[0]
            if tls is None and not allow_plain and not ip_address(place[0]).is_loopback:
                raise InvalidSpec(
                    "without TLS the service must listen on the loopback interface",
                    f"'{address}'",
                    "the service",
                    "Give a certificate (`--tls-cert`, `--tls-key`); or let tokens and jobs be read on the network (`--allow-plain`).",
                )
            # With its protocol named: only then does asyncio send small answers at once (TCP_NODELAY).
            listening = opened.enter_context(LimitedSocket(family, kind, protocol))
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if place[0] == "::" and socket.has_dualstack_ipv6():  # else the system says whether IPv4 comes here, too
                listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            listening.bind(place)
            listening.listen(_BACKLOG)
        except OSError as error:
            raise InvalidSpec(
                "the service must be able to listen at its address",
                f"'{address}': {error.strerror or error}",
                "the service",
                "Choose another address or port, port 0 for any that is free.",
            ) from error
        yield listening


@contextmanager
def _own_socket(path: Path) -> Iterator[LimitedSocket]:
    """Open a socket that only this user can use, and remove it at the end of the block."""
    make_room(path, take=_is_replaced(listener_pid(path)))
    with LimitedSocket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        with short_enough(path) as place:
            listening.bind(place)
            # Between bind and listen nobody can connect yet, so that there is no instant with a wider mode.
            Path(place).chmod(0o600)
        inode = path.stat().st_ino
        listening.listen(_BACKLOG)
        try:
            yield listening
        finally:
            if path.exists() and path.stat().st_ino == inode:  # else another process has taken its place
                path.unlink()


def _is_replaced(listener: int | None) -> bool:
    """Whether the listening process steers no run any more: it was stopped, and another one has its jobs."""
    if not listener or listener == os.getpid():
        return False
    return _service_of(listener) is None


def _service_of(pid: int | None) -> RunFolder | None:
    """Return the run that a process steers; None: there is no such process, or it steers none."""
    return next((run for run in live_folders() if run.is_live() and run.record()["pid"] == pid), None)


def _names(name: str, listening: socket.socket, tls: Tls | None, host_names: Sequence[str]) -> list[str]:
    """Return the names by which a service that listens at `name` may be addressed, the best one first."""
    given = [check_host_name(each) for each in host_names]
    certified = [] if tls is None else tls.names()
    bound = listening.getsockname()[0]
    if not ip_address(bound).is_unspecified:
        return [*given, name, *certified]
    told = [each for each in certified if not each.startswith("*")]
    return [*given, *told, bound, *certified, socket.gethostname()]


def _bound(name: str) -> str:
    """Bind the address to listen at."""
    if name == _EVERYWHERE:
        return "::" if socket.has_dualstack_ipv6() else "0.0.0.0"  # noqa: S104 -- it is asked for
    return name


def _url(name: str, listening: socket.socket, tls: Tls | None) -> str:
    port = listening.getsockname()[1]
    return f"{'http' if tls is None else 'https'}://{f'[{name}]' if ':' in name else name}:{port}"
