"""Idempotency keys: a submission that is repeated with the same key leads to one job."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from threading import Lock

from punctual.api.database import ServiceDatabase
from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId


class SubmissionKeys:
    """Job of each caller's key."""

    def __init__(self, database: ServiceDatabase) -> None:
        self._database = database
        #: One submission with a key at a time: the second of two with one key waits for the first.
        self._lock = Lock()

    @contextmanager
    def claimed(self, caller: str, key: str, request: bytes) -> Iterator["ClaimedKey"]:
        """Yield a key, which no other request may use meanwhile.

        Raises
        ------
        InvalidSpec
            Another request had the key.
        """
        with self._lock:
            yield ClaimedKey(self._database, caller, key, sha256(request).digest())


class ClaimedKey:
    """A key that a request holds."""

    def __init__(self, database: ServiceDatabase, caller: str, key: str, digest: bytes) -> None:
        self._database = database
        self._row = (caller, key, digest)
        query = "SELECT digest, job, is_accepted FROM submission_key WHERE caller = ? AND key = ?"
        #: The job that it was given to; None: the key is new.
        self.job: JobId | None = None
        #: Whether that was accepted, and so is not to be submitted again whatever has become of it.
        self.is_accepted = False
        for kept, job, is_accepted in database.rows(query, caller, key):
            if kept != digest:
                raise InvalidSpec(
                    "an idempotency key must be used for one request only",
                    "another request with the same key",
                    f"key '{key}'",
                    "Send the same request again, or choose another key.",
                )
            self.job, self.is_accepted = JobId(job), bool(is_accepted)

    def give_to(self, job: JobId) -> None:
        """Assign the key to `job`; to be called before the job is submitted, in case of a kill."""
        now = time.time()
        with self._database.writing() as connection:
            # A key is remembered for so long.
            connection.execute("DELETE FROM submission_key WHERE at < ?", (now - 86_400.0,))
            connection.execute(
                "INSERT OR REPLACE INTO submission_key VALUES (?, ?, ?, ?, ?, 0)", (*self._row, job, now)
            )

    def accept(self) -> None:
        """Note that the host has the job for good."""
        with self._database.writing() as connection:
            connection.execute("UPDATE submission_key SET is_accepted = 1 WHERE caller = ? AND key = ?", self._row[:2])

    def forget(self) -> None:
        """Free the key after the job was refused."""
        with self._database.writing() as connection:
            connection.execute("DELETE FROM submission_key WHERE caller = ? AND key = ?", self._row[:2])
