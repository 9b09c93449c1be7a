"""Host names of a service."""

import re
from collections.abc import Iterable
from contextlib import suppress
from ipaddress import ip_address
from urllib.parse import urlsplit

from punctual.core.errors import InvalidSpec

#: Names of this machine for itself.
LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
#: A name in ASCII; its first label may stand for any.
_NAME = re.compile(r"(\*\.)?[a-z0-9_-]{1,63}(\.[a-z0-9_-]{1,63})*")


class HostNames:
    """Names for the header Host; `*.example.org` stands for one label and the rest, as in certificates."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = {_canonical(name) for name in names}

    def has(self, host: str, own_address: str | None) -> bool:
        """Whether a header Host is one of these names, or the address at which its connection arrived.

        Nobody can point an address elsewhere, as one can a name. A port in the header does not matter.
        """
        name = _name_of(host)
        if name is None:
            return False
        name = _canonical(name)
        is_own = own_address is not None and name == _canonical(own_address)
        return is_own or name in self._names or f"*.{name.partition('.')[2]}" in self._names


def check_host_name(name: str) -> str:
    """Return `name` as the header Host has it; raises `InvalidSpec` if it cannot stand there."""
    name = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    with suppress(ValueError):
        return str(ip_address(name))
    with suppress(UnicodeError):
        encoded = name.lower().encode("idna").decode()
        if _NAME.fullmatch(encoded):
            return encoded
    raise InvalidSpec(
        "a name of the service must be that of a host, or an address, without a port",
        repr(name),
        "`--host-name`",
        "Give for example `--host-name gpu-box.example.org`.",
    )


def _name_of(host: str) -> str | None:
    """Return the name in a header Host, without its port."""
    try:
        return urlsplit(f"//{host}").hostname
    except ValueError:
        return None


def _canonical(name: str) -> str:
    """Return a name in the form that is compared: in lower case, and an address in its shortest form."""
    try:
        address = ip_address(name)
    except ValueError:
        return name.lower()
    return str(getattr(address, "ipv4_mapped", None) or address)
