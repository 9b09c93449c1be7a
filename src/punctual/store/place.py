"""Where a journal in a database is, and how that is told without its password."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from punctual.core.errors import InvalidSpec

#: Names the store of a service, as `punctual up --store` does, and is in no list of processes.
STORE_VARIABLE = "PUNCTUAL_STORE"

_SCHEMES = ("postgresql", "postgres")
_PASSWORD = re.compile(r"(?i)(^|[?&\s])((?:ssl)?password)=[^&\s]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class StorePlace:
    """One journal of a database.

    Attributes
    ----------
    url
        Of the database, ``postgresql://USER:PASSWORD@HOST:PORT/NAME``; it may hold a password.
    journal
        Names the journal among those of the database.
    """

    url: str
    journal: str

    def __repr__(self) -> str:
        return f"StorePlace({self.shown})"

    @property
    def shown(self) -> str:
        """For people, without the password."""
        return f"journal '{self.journal}' of {shown_url(self.url)}"

    def told(self) -> dict[str, str]:
        """These fields for a file that only this user can read."""
        return {"url": self.url, "journal": self.journal}

    @staticmethod
    def of(told: Mapping[str, object]) -> "StorePlace | None":
        """What `told` gave; None: it is not that."""
        match told:
            case {"url": str(url), "journal": str(journal)}:
                return StorePlace(url=url, journal=journal)
        return None


def check_url(url: str) -> str:
    """`url`, if it can be that of a store; raises `InvalidSpec`."""
    must, remedy = (
        "`--store` must be the URL of a PostgreSQL database",
        "Write postgresql://USER@HOST:5432/DATABASE, or leave it out for files of this machine.",
    )
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise InvalidSpec(must, "a URL that cannot be read", "`--store`", remedy) from error
    if parts.scheme not in _SCHEMES or not url.startswith(f"{parts.scheme}://") or len(parts.path) < len("/x"):
        raise InvalidSpec(must, f"'{shown_url(url)}'", "`--store`", remedy)
    return url


def shown_url(url: str) -> str:
    """`url` with `***` in place of a password."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:
        return "***"
    user, has_password, _ = parts.netloc.rpartition("@")[0].partition(":")
    netloc = f"{user}:***@{parts.netloc.rpartition('@')[2]}" if has_password else parts.netloc
    query = _PASSWORD.sub(r"\1\2=***", parts.query)
    return f"{parts.scheme}://{netloc}{parts.path}{'?' * bool(query)}{query}"


def without_password(url: str) -> SplitResult:
    """What two URLs of one database have in common when only the password was changed."""
    return urlsplit(shown_url(url).replace(":***@", "@"))


def passwords_of(url: str) -> list[str]:
    """What must not be told of `url`."""
    parts = urlsplit(url)
    in_query = [match[0].partition("=")[2] for match in _PASSWORD.finditer(parts.query)]
    return [password for password in (parts.password, *in_query) if password]
