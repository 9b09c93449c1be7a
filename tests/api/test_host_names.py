"""By which names a service may be asked from other machines: those of its certificate, those given, and its addresses."""

import http.client
import shutil
import socket
import ssl
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from tests.api.live_service import steered_host

from punctual.api.host_names import HostNames, check_host_name
from punctual.api.server import ServedAddress, serve
from punctual.api.tls import Tls
from punctual.core.errors import InvalidSpec

SUBJECTS = "DNS:gpu-box.example,DNS:*.pool.example,IP:127.0.0.9,IP:2001:db8::1"
#: Addresses of this machine that a service at all of them can be reached at.
IPV4, IPV6 = "127.0.0.5", "::1"
needs_ipv6 = pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")


def certificate(folder: Path, *words: str) -> Tls:
    """A certificate made just now."""
    if shutil.which("openssl") is None:
        pytest.skip("needs openssl to make a certificate")
    key, file = folder / "key.pem", folder / "certificate.pem"
    options = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1", "-subj", "/CN=cn.example", *words]
    subprocess.run(["openssl", *options, "-keyout", key, "-out", file], check=True, capture_output=True)
    return Tls(file, key)


@pytest.fixture
def tls(tmp_path: Path) -> Tls:
    return certificate(tmp_path, "-addext", f"subjectAltName={SUBJECTS}")


def asked(served: ServedAddress, host: str, at: str = IPV4, tls: Tls | None = None, server_name: str = "") -> int:
    """The status of an answer to a request for `host`, sent to the address `at`; by TLS the name is checked."""
    port = urlsplit(served.url).port
    connection = http.client.HTTPConnection(at, port, timeout=100)
    if tls is not None:
        context = ssl.create_default_context(cafile=str(tls.certificate))
        connection.connect()
        assert connection.sock is not None
        connection.sock = context.wrap_socket(connection.sock, server_hostname=server_name)
    try:
        token = served.token_file.read_text().strip()
        headers = {"Host": host.format(port=port), "Authorization": f"Bearer {token}"}
        connection.request("GET", "/v1/health", headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize("address", ["0.0.0.0:0", "*:0", "[::]:0"])
def test_over_tls_it_may_be_asked_by_every_name_of_its_certificate_at_all_addresses(tls: Tls, address: str) -> None:
    if "." not in address and not socket.has_dualstack_ipv6():
        pytest.skip("this machine has no IPv6")
    with steered_host() as host, serve(host, address, tls=tls) as served:
        assert asked(served, "gpu-box.example:{port}", tls=tls, server_name="gpu-box.example") == 200
        assert asked(served, "GPU-BOX.EXAMPLE", tls=tls, server_name="gpu-box.example") == 200
        assert asked(served, "n7.pool.example:{port}", tls=tls, server_name="n7.pool.example") == 200
        assert asked(served, "127.0.0.9:{port}", "127.0.0.9", tls, "127.0.0.9") == 200
        assert asked(served, "localhost:{port}", tls=tls, server_name="gpu-box.example") == 200
        others = ["pool.example", "a.b.pool.example", "cn.example", "gpu-box.example.org", "gpu-box.example."]
        assert [asked(served, other, tls=tls, server_name="gpu-box.example") for other in others] == [403] * 5
        assert urlsplit(served.url).hostname == "gpu-box.example"


@needs_ipv6
@pytest.mark.parametrize("address", ["*:0", "[::]:0"])
def test_all_addresses_are_those_of_ipv4_and_ipv6(tls: Tls, address: str) -> None:
    with steered_host() as host, serve(host, address, tls=tls) as served:
        assert asked(served, "[::1]:{port}", IPV6, tls, "gpu-box.example") == 200
        assert asked(served, "[0:0:0:0:0:0:0:1]:{port}", IPV6, tls, "gpu-box.example") == 200
        assert asked(served, "[2001:db8::1]:{port}", IPV6, tls, "gpu-box.example") == 200
        assert asked(served, "[2001:db8::2]:{port}", IPV6, tls, "gpu-box.example") == 403


def test_without_tls_it_may_be_asked_by_its_addresses_and_by_given_names() -> None:
    names = ["trainer.example", "*.lab.example", "192.0.2.7"]
    with steered_host() as host, serve(host, "*:0", allow_plain=True, host_names=names) as served:
        assert asked(served, f"{IPV4}:{{port}}") == 200  # the address at which it comes
        assert asked(served, "127.0.0.6:{port}") == 403  # another one
        for name in ("trainer.example:80", "a.lab.example", "192.0.2.7", socket.gethostname()):
            assert asked(served, name) == 200, name
        assert asked(served, "evil.example") == 403
        assert served.url.startswith("http://trainer.example:")


def test_everywhere_needs_tls() -> None:
    with steered_host() as host:
        for address in ("*:0", "[::]:0", "0.0.0.0:0", "0:0"):
            with pytest.raises(InvalidSpec, match="loopback"), serve(host, address):
                pass


def test_a_certificate_without_names_has_none(tmp_path: Path) -> None:
    assert certificate(tmp_path).names() == ()


def test_names_are_read_from_certificates_of_each_kind(tmp_path: Path) -> None:
    expected = ("gpu-box.example", "*.pool.example", "127.0.0.9")
    for i, words in enumerate(
        [
            ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"],
            ["-addext", "basicConstraints=critical,CA:FALSE", "-addext", "keyUsage=digitalSignature"],
            ["-days", "3650", "-addext", "extendedKeyUsage=serverAuth"],
        ]
    ):
        (folder := tmp_path / str(i)).mkdir()
        made = certificate(folder, "-addext", f"subjectAltName={SUBJECTS}", *words)
        assert made.names()[:3] == expected, words


@pytest.mark.parametrize("name", ["", "*", "a:80", "a/b", "a b", "http://a", "user@a", "a?b", "[::1", "a\n", "x" * 300])
def test_what_is_no_name_is_refused(name: str) -> None:
    with pytest.raises(InvalidSpec, match="--host-name"):
        check_host_name(name)


def test_names_are_compared_as_they_stand_in_a_request() -> None:
    assert check_host_name("b\u00fccher.example") == "xn--bcher-kva.example"
    assert check_host_name("[2001:DB8::1]") == check_host_name("2001:db8:0::1") == "2001:db8::1"
    names = HostNames([check_host_name("GPU.Example"), "::ffff:192.0.2.1"])
    assert names.has("gpu.example:1", None)
    assert names.has("192.0.2.1", None)
    assert names.has("192.0.2.2", "::ffff:192.0.2.2")
    assert not names.has("", None)
    assert not names.has("[::1", "::1")
