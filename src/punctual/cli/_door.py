"""What a run answers to other terminals, and how they ask."""

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from punctual.cli._json_lines import standing
from punctual.cli._picture import Picture
from punctual.core.errors import InvalidSpec
from punctual.core.events import Event, SpecChanged, StopRequested
from punctual.runtime.control_socket import ControlFailed, ask
from punctual.runtime.paths import Run, find_run, live_runs, unsteered_runs
from punctual.runtime.when import Now, moved_deadline_s


class Door:
    """Answers requests about one running job; each is called in a thread of its own.

    Parameters
    ----------
    glance
        Gives the present picture.
    post
        Takes events to the loop.
    facts
        What does not change: controller, actuator.
    """

    def __init__(
        self, glance: Callable[[], Picture], post: Callable[[Event], None], facts: Callable[[], dict[str, Any]]
    ) -> None:
        self._glance = glance
        self._post = post
        self._facts = facts

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """The answer to `request`, whose `verb` is `status`, `deadline` or `stop`."""
        match request:
            case {"verb": "status"}:
                return self._status()
            case {"verb": "deadline", "when": str(when)}:
                return self._move_deadline(when)
            case {"verb": "stop"}:
                return self._stop()
        raise ValueError(f"no such request: {request}")

    def _status(self) -> dict[str, Any]:
        picture, now = self._glance(), Now.read()
        deadline_at = picture.deadline_at
        return {
            "job": picture.spec.id,
            "state": picture.status,
            "elapsed_s": now.at - picture.submitted_at,
            "deadline_wall": None if deadline_at is None else now.wall_of(deadline_at).isoformat(),
            "left_s": None if deadline_at is None else deadline_at - now.at,
            **standing(picture),
            **self._facts(),
        }

    def _move_deadline(self, when: str) -> dict[str, Any]:
        picture, now = self._glance(), Now.read()
        self._check_running(picture)
        spec = picture.spec
        deadline_s = moved_deadline_s(
            when, started_at=picture.submitted_at, present_s=spec.deadline_s, job=spec.id, now=now
        )
        self._post(SpecChanged(at=now.at, spec=replace(spec, deadline_s=deadline_s)))
        wall = now.wall_of(picture.submitted_at + deadline_s)
        left_s = picture.submitted_at + deadline_s - now.at
        return {"job": spec.id, "deadline_s": deadline_s, "deadline_wall": wall.isoformat(), "left_s": left_s}

    def _stop(self) -> dict[str, Any]:
        picture = self._glance()
        self._post(StopRequested(at=Now.read().at, job=picture.spec.id, cause="`punctual stop`"))
        return {"job": picture.spec.id}

    def _check_running(self, picture: Picture) -> None:
        if picture.landed or picture.ended or picture.status == "stopping":
            raise InvalidSpec(
                "the deadline can be changed only while the job works",
                "a job that has landed" if picture.landed else f"a job that is {picture.status}",
                f"job '{picture.spec.id}'", "Let it end.",
            )  # fmt: skip


def move_deadline(run: Run, when: str) -> dict[str, Any]:
    """Ask `run` to change its deadline; raises `InvalidSpec` when it is refused or nobody answers."""
    if not run.is_live():
        raise InvalidSpec(
            "the deadline can be changed only while the job is steered", "a job whose `punctual run` was killed",
            f"job '{run.job}'", f"Take it over first (`punctual attach {run.job}`), or end it (`punctual stop {run.job}`).",
        )  # fmt: skip
    return _asked(run, {"verb": "deadline", "when": when})


def stop(run: Run) -> dict[str, Any]:
    """Ask `run`, or the keeper of a job that nobody steers, to end the job."""
    keeper_pid = run.keeper_pid()
    if run.is_live() or keeper_pid is None:
        return _asked(run, {"verb": "stop"})
    os.kill(keeper_pid, signal.SIGTERM)
    return {"job": run.job}


def _asked(run: Run, request: dict[str, Any]) -> dict[str, Any]:
    try:
        return ask(run.socket, request)
    except ControlFailed as error:
        raise InvalidSpec(
            "a running job must answer", str(error), f"job '{run.job}'",
            "It may be just starting or ending: look with `punctual ps`, and try again.",
        ) from error  # fmt: skip


def status(run: Run) -> dict[str, Any]:
    """How `run` stands."""
    return ask(run.socket, {"verb": "status"})


def running(text: str | None) -> Run:
    """The running job that `text` names or begins, steered or not; None: the only one that runs."""
    return find_run(text, [*live_runs(), *unsteered_runs()])
