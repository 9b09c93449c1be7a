"""Tokens of the service, with a name, a role and an end. Stored records let no caller in."""

import hmac
import os
import re
import secrets
import sqlite3
import time
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Literal, get_args

from punctual.api.database import ServiceDatabase
from punctual.core.errors import InvalidSpec
from punctual.core.units import DAY_S
from punctual.daemon.paths import owner_token_file

#: Each may do what those before it may.
Role = Literal["viewer", "submitter", "operator"]
ROLES: tuple[Role, ...] = get_args(Role)

#: The token that the first start makes, for the service's own user.
OWNER = "owner"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_PREFIX = "punctual_"
#: An end that is farther away is a slip, and perhaps beyond the calendar.
_LIFETIME_S_MAX = 36_500 * DAY_S


@dataclass(frozen=True, slots=True)
class Token:
    """Record of a token; instants in seconds since 1970. `expires_at`: instant of its end; None: it does not expire."""

    name: str
    role: Role
    created_at: float
    expires_at: float | None

    def is_expired(self, at: float) -> bool:
        """Whether the token has expired."""
        return self.expires_at is not None and at >= self.expires_at


class Tokens:
    """The tokens of a service. A change counts from the next request on, also one made by another process."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database

    def create(self, name: str, role: str, lifetime_s: float | None = None) -> str:
        """Make a token; returns its text, which is kept nowhere.

        Raises `InvalidSpec`: the name, the role or the lifetime cannot be used.
        """
        _check(name, role, lifetime_s)
        text = _new_text()
        try:
            with self._database.writing() as connection:
                _insert(connection, name, role, text, lifetime_s)
        except sqlite3.IntegrityError as error:
            raise InvalidSpec(
                "the name of a token must be new",
                f"'{name}'",
                "the tokens of this service",
                f"Choose another name, or revoke that one first (`punctual token revoke {name}`).",
            ) from error
        return text

    def all(self) -> list[Token]:
        """Return all tokens that were not revoked, the oldest first; expired ones too."""
        rows = self._database.rows("SELECT name, role, created_at, expires_at FROM token ORDER BY created_at, name")
        return [Token(*row) for row in rows]

    def revoke(self, name: str) -> None:
        """Revoke the token, and end its present answers; raises `InvalidSpec` if there is none of that name."""
        with self._database.writing() as connection:
            n_removed = connection.execute("DELETE FROM token WHERE name = ?", (name,)).rowcount
        if not n_removed:
            known = ", ".join(token.name for token in self.all()) or "none"
            raise InvalidSpec("there must be a token of that name", f"'{name}'", "this service", f"Known: {known}.")
        if name == OWNER:
            owner_token_file(self._database.folder).unlink(missing_ok=True)

    def of(self, text: str) -> Token | None:
        """Return the token whose text is `text`; None: there is none, or it has expired.

        What is compared are digests of 256 random bits, each in the same time wherever they differ.
        """
        digest, now, told = _digest(text), time.time(), None
        for name, role, kept, created_at, expires_at in self._database.rows("SELECT * FROM token"):
            if hmac.compare_digest(digest, kept):
                told = Token(name, role, created_at, expires_at)
        return None if told is None or told.is_expired(now) else told

    def make_first(self) -> bool:
        """Make the owner's first token, in a file that only this user can read; return False if that was done before.

        The file is written first: if that fails or this process is killed, the next start does it again.
        """
        with self._database.writing() as connection:
            if connection.execute("SELECT 1 FROM fact WHERE name = 'had_first_token'").fetchone():
                return False
            # One of that name may be there: the user's own.
            if not connection.execute("SELECT 1 FROM token WHERE name = ?", (OWNER,)).fetchone():
                text = _new_text()
                _write_private(owner_token_file(self._database.folder), text)
                _insert(connection, OWNER, "operator", text)
            connection.execute("INSERT INTO fact VALUES ('had_first_token', 1)")
        return True


def _check(name: str, role: str, lifetime_s: float | None) -> None:
    if not _NAME.fullmatch(name):
        raise InvalidSpec(
            "the name of a token must be 1 to 64 letters, digits, '.', '_' or '-', and begin with a letter or digit",
            repr(name),
            "the new token",
            "Choose another name, as `laptop`.",
        )
    if role not in ROLES:
        raise InvalidSpec(
            "the role of a token must be a known one",
            repr(role),
            "the new token",
            f"Choose one of: {', '.join(ROLES)}.",
        )
    if lifetime_s is not None and not 0.0 < lifetime_s <= _LIFETIME_S_MAX:
        raise InvalidSpec(
            "a token must expire within a hundred years, or not at all",
            repr(lifetime_s),
            "the new token",
            "Give a shorter time, as `30d`; or none: it is good until it is revoked then.",
        )


def _new_text() -> str:
    return _PREFIX + secrets.token_urlsafe(32)


def _insert(connection: sqlite3.Connection, name: str, role: str, text: str, lifetime_s: float | None = None) -> None:
    now = time.time()
    row = (name, role, _digest(text), now, None if lifetime_s is None else now + lifetime_s)
    connection.execute("INSERT INTO token VALUES (?, ?, ?, ?, ?)", row)


def _digest(text: str) -> bytes:
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def _write_private(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    file = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as opened:
        opened.write(text + "\n")
