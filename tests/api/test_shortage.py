"""What is answered while this process or its user has too little of something."""

import errno
import os
from collections.abc import Callable

import pytest
from tests.api.live_service import LiveService, program

from punctual.daemon import runs
from punctual.daemon.run_folder import RunFolder

SHORTAGES: list[tuple[Callable[[], Exception], str]] = [
    (lambda: OSError(errno.EMFILE, os.strerror(errno.EMFILE)), "a descriptor"),
    (lambda: OSError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "a process"),
    (lambda: RuntimeError("can't start new thread"), "a process"),
    (MemoryError, "memory"),
]


@pytest.mark.parametrize(("place", "name"), [(runs, "_runs_in"), (RunFolder, "record_submitted")])
def test_a_request_is_to_be_made_again_later(
    service: LiveService, monkeypatch: pytest.MonkeyPatch, place: object, name: str
) -> None:
    for i, (error, what) in enumerate(SHORTAGES):
        asked = {"program": program(), "name": f"job-{i}"}

        def refuse(*_: object, error: Callable[[], Exception] = error, **__: object) -> None:
            raise error()

        with monkeypatch.context() as patch:
            patch.setattr(place, name, refuse)
            reply = service.caller.post("/jobs", asked)
        assert (reply.status, reply.headers["Retry-After"]) == (503, "1"), what
        assert reply.json()["detail"] == f"the service has to wait for {what}; jobs go on. Try again soon"
        assert service.caller.post("/jobs", asked).status == 201, "the refused request has not taken the name"


def test_another_fault_is_no_shortage(service: LiveService, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(runs, "_runs_in", refuse)
        assert service.caller.post("/jobs", {"program": program(), "name": "a"}).status == 500
