"""Certificate of a service, and its names."""

import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from punctual.core.errors import InvalidSpec

#: Kinds of a certificate's names that a caller can ask for.
_KINDS = ("DNS", "IP Address")


@dataclass(frozen=True, slots=True)
class Tls:
    """Files with a certificate chain and its private key (PEM)."""

    certificate: Path
    key: Path

    def context(self) -> ssl.SSLContext:
        """Encrypts connections of callers; raises `InvalidSpec` if the files cannot be used."""
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.certificate, self.key)
        except OSError as error:  # also of the contents of the files
            raise InvalidSpec(
                "certificate and key must be files that can be read and fit together",
                f"'{self.certificate}' and '{self.key}': {error.strerror or error}",
                "the service",
                "Give PEM files: the certificate with its chain, and the key without a password.",
            ) from error
        return context

    def names(self) -> tuple[str, ...]:
        """Names and addresses of the certificate (its subjectAltName), in its order; empty if it has none."""
        try:
            shown = self._shown()
        except ssl.SSLError:  # callers cannot use it either, unless they do not check it
            return ()
        return tuple(name for kind, name in shown.get("subjectAltName", ()) if kind in _KINDS)

    def _shown(self) -> Mapping[str, Any]:
        """Return the certificate that a caller sees, by a handshake with this process: Python has no other way."""
        caller = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        caller.check_hostname = False
        caller.load_verify_locations(self.certificate)
        # OpenSSL's X509_V_FLAG_NO_CHECK_TIME, which Python has no name for: an expired certificate has the same
        # names.
        caller.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | 0x200000
        to_server, to_caller = ssl.MemoryBIO(), ssl.MemoryBIO()
        asking = caller.wrap_bio(to_caller, to_server)
        answering = self.context().wrap_bio(to_server, to_caller, server_side=True)
        for end in (asking, answering, asking):
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()
        return asking.getpeercert() or {}
