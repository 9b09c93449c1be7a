"""HTTP options of a daemon: address, TLS, host names and telemetry of a service."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from punctual.api.host_names import check_host_name
from punctual.api.server import check_installed, free_address, serve
from punctual.api.telemetry_options import check_telemetry, is_configured
from punctual.api.tls import Tls
from punctual.core.errors import InvalidSpec
from punctual.daemon.host import Host
from punctual.daemon.logs import log_to_stderr, write_error

if TYPE_CHECKING:
    from opentelemetry.trace import Tracer

#: Instead of an address: no HTTP at all.
NO_HTTP = "none"


def notice_without_http() -> list[str]:
    """Explain why a service has no page and no HTTP API; no line if it has."""
    try:
        check_installed()
    except InvalidSpec as error:
        return [f"punctual: no page, and no HTTP: {error.must}. {error.remedy}"]
    return []


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpOptions:
    """Options of a service's HTTP access, as values that JSON has.

    * `address`: ``host:port``; `NO_HTTP`; None: the usual one, or any free port where that is taken, and nothing where
      the libraries are not installed.
    * `tls_cert`, `tls_key`: absolute paths.
    * `host_names`: names by which it may be addressed, beside those of the address and the certificate.
    * `otel`: traces and metrics go to OpenTelemetry; otherwise only if the environment names a collector.
    """

    address: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    host_names: Sequence[str] = ()
    allow_plain: bool = False
    otel: bool = False

    def check(self) -> None:
        """Raise `InvalidSpec` if options contradict each other or need missing libraries."""
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidSpec(
                "a certificate and its key must be given together",
                "one of them",
                "`punctual up`",
                "Give both `--tls-cert` and `--tls-key`.",
            )
        for name in self.host_names:
            check_host_name(name)
        if self.address not in (None, NO_HTTP):
            check_installed()
        if self.otel:
            check_telemetry()

    @contextmanager
    def served(self, host: Host) -> Iterator[Sequence[str]]:
        """Serve a host over HTTP; yield the addresses."""
        with ExitStack() as ending:
            tracer = ending.enter_context(self._telemetry(host))
            yield ending.enter_context(self._served(host, tracer)) if self._is_wanted() else ()

    @contextmanager
    def _served(self, host: Host, tracer: "Tracer | None") -> Iterator[Sequence[str]]:
        log_to_stderr("punctual: %(message)s")
        logging.getLogger("punctual.api").setLevel(logging.INFO)  # who changed what
        tls = None if self.tls_cert is None or self.tls_key is None else Tls(Path(self.tls_cert), Path(self.tls_key))
        address, names, allow_plain = self.address or free_address(), self.host_names, self.allow_plain
        with serve(host, address, tls=tls, host_names=names, allow_plain=allow_plain, tracer=tracer) as served:
            if served.socket is None:
                write_error(
                    "punctual: another service of this user, for other processors, answers at the user's own socket; programs "
                    "reach this one at its address, with a token"
                )
            yield [str(place) for place in (served.socket, served.url) if place is not None]

    def _telemetry(self, host: Host) -> "AbstractContextManager[Tracer | None]":
        """Start the host's telemetry; a collector named by the environment alone may be missing, with a message."""
        if not self.otel:
            if not is_configured():
                return nullcontext()
            try:
                check_telemetry()
            except InvalidSpec as error:
                write_error(f"punctual: no OpenTelemetry: {error.must}: got {error.got}. {error.remedy}")
                return nullcontext()
        from punctual.api.telemetry import telemetry

        return telemetry(host)

    def _is_wanted(self) -> bool:
        if self.address is not None:
            return self.address != NO_HTTP
        notice = notice_without_http()
        if notice:
            write_error(*notice)
        return not notice
