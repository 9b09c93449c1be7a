"""Being asked to stop: the script's hook makes a checkpoint, then the process ends."""

from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from punctual.client.complaint import invalid
from punctual.client.session import current
from punctual.wire import EXIT_STOPPED

Hook = TypeVar("Hook", bound=Callable[[], object])

_hooks: list[Callable[[], object]] = []


def on_stop(hook: Hook) -> Hook:
    """Register `hook`, called without arguments between two steps when Punctual asks the training to stop.

    After it (after all of them, in order of registration) the loop raises ``SystemExit(143)``, or what a hook has raised.
    """
    if not callable(hook):
        raise invalid(
            "`hook` must be a function without arguments", repr(hook), "`punctual.on_stop`",
            "Write @punctual.on_stop above the function that saves a checkpoint.",
        )  # fmt: skip
    _hooks.append(hook)
    current().allow_stop()
    return hook


def has_hooks() -> bool:
    """Whether the script has registered any."""
    return bool(_hooks)


def obey() -> None:
    """Call the hooks and leave; without a hook Punctual ends the process itself."""
    with ExitStack() as calls:  # a hook that fails must not cost the others their checkpoint
        for hook in reversed(_hooks):
            calls.callback(hook)
    if _hooks:
        raise SystemExit(EXIT_STOPPED)
