"""Requests to stop: the script's hook makes a checkpoint, then the process ends."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from punctual.tracking.complaint import invalid
from punctual.tracking.session import current

Hook = TypeVar("Hook", bound=Callable[[], object])

_hooks: list[Callable[[], object]] = []


def on_stop(hook: Hook) -> Hook:
    """Register `hook`, called without arguments between two steps when Punctual asks the training to stop or to leave.

    After it (after all of them, in order of registration) the loop raises ``SystemExit``, or what a hook has raised. The exit
    code is 143 if the job ends, and 79 if it is to be started again later, from the checkpoint that the hook has made.
    """
    if not callable(hook):
        raise invalid(
            "`hook` must be a function without arguments", repr(hook), "`punctual.on_stop`",
            "Write @punctual.on_stop above the function that saves a checkpoint.",
        )  # fmt: skip
    _hooks.append(hook)
    current().allow_stop()
    return hook


def forget(hook: Callable[[], object]) -> None:
    """Remove `hook`: its training is done, and needs no more checkpoints."""
    if hook in _hooks:
        _hooks.remove(hook)
        if not _hooks:
            current().allow_stop(False)


def has_hooks() -> bool:
    """Whether the script has registered hooks."""
    return bool(_hooks)


def obey(exit_code: int) -> None:
    """Call the hooks and exit; without a hook Punctual ends the process itself."""
    with ExitStack() as calls:  # a hook that fails must not cost the others their checkpoint
        for hook in reversed(_hooks):
            calls.callback(hook)
    if _hooks:
        current().leave()
        raise SystemExit(exit_code)
