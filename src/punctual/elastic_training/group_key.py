"""The secret that the processes of one job share, and connections that require it.

A certificate follows from the secret, the same one everywhere: each side shows it, and believes nobody who does not have
its private key. So a connection is encrypted, and both ends are known to be processes of this job.
"""

import os
import secrets
import socket
import ssl
from contextlib import suppress
from datetime import UTC, datetime
from hashlib import sha256

from punctual.tracking.complaint import invalid

#: Clocks of nodes may differ, and the key lives no longer than its job.
_VALID_FROM, _VALID_UNTIL = datetime(2000, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)


def new_key() -> bytes:
    return secrets.token_bytes(32)


def certificate_of(key: bytes) -> str:
    """Return the certificate with its private key, as PEM.

    Raises `ValueError`: the library that makes it is not installed.
    """
    try:
        from cryptography import x509
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.x509.oid import NameOID
    except ImportError as error:
        raise invalid(
            "workers on several nodes need the package `cryptography`",
            str(error),
            "this Python",
            "Install it on each node: pip install cryptography.",
        ) from None
    private = Ed25519PrivateKey.from_private_bytes(sha256(b"punctual group" + key).digest())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "punctual")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(1)
        .not_valid_before(_VALID_FROM)
        .not_valid_after(_VALID_UNTIL)
        .sign(private, None)
    )
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()) + certificate.public_bytes(
        Encoding.PEM
    )
    return pem.decode()


class SecureSockets:
    """Makes connections to processes that have the same certificate, and accepts theirs."""

    def __init__(self, certificate: str) -> None:
        self._contexts = {is_server: _context(certificate, is_server=is_server) for is_server in (False, True)}

    def connect(self, address: tuple[str, int], timeout_s: float) -> ssl.SSLSocket:
        """Connect to a process that has the key; raises `OSError` if none answers within about the time limit."""
        connection = self.begin(socket.create_connection(address, timeout_s), is_server=False)
        try:
            connection.do_handshake()
        except BaseException:
            connection.close()
            raise
        return connection

    def begin(self, connection: socket.socket, *, is_server: bool) -> ssl.SSLSocket:
        """Wrap the connection for encryption, before its handshake; `connection` itself is not to be used then."""
        try:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return self._contexts[is_server].wrap_socket(
                connection, server_side=is_server, do_handshake_on_connect=False
            )
        except BaseException:
            with suppress(OSError):
                connection.close()
            raise


def _context(certificate: str, *, is_server: bool) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.check_hostname = False  # who has the key is known, wherever it is
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=certificate[certificate.index("-----BEGIN CERTIFICATE") :])
    if is_server:
        context.num_tickets = 0
    fd = os.memfd_create("punctual-certificate")  # it is loaded from files only, and this one has no name
    try:
        os.write(fd, certificate.encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}")
    finally:
        os.close(fd)
    return context
