"""Neural-network training that finishes on time, on no more hardware than it needs.

A training script needs `track` for its loop and `phase` for work that is not a step, or `elastic` to be trained by a
number of workers that changes; a notebook that compares policies needs `simulate`; a program that has a service run jobs
needs `submit` or a `Client`. They are loaded on first use, so that importing the package costs next to nothing.
"""

import atexit
import sys

TYPE_CHECKING = False  # as typing's, whose import costs more than all the rest of this module
if TYPE_CHECKING:
    from punctual.client.client import Client, submit
    from punctual.distribution import __version__
    from punctual.elastic_training.entry import elastic
    from punctual.sim.api import simulate
    from punctual.tracking import Phase, Run, on_stop, phase, total_steps, track, use_device

__all__ = [
    "Client",
    "Phase",
    "Run",
    "__version__",
    "elastic",
    "on_stop",
    "phase",
    "simulate",
    "submit",
    "total_steps",
    "track",
    "use_device",
]


#: Modules of the names that are not in `punctual.tracking`.
_MODULES = {
    "Client": "punctual.client.client",
    "__version__": "punctual.distribution",
    "elastic": "punctual.elastic_training.entry",
    "simulate": "punctual.sim.api",
    "submit": "punctual.client.client",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'punctual' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_MODULES.get(name, "punctual.tracking")), name)


def _end_program() -> None:
    """Report the end of a tracked program, after the exit functions that it registered since it imported this."""
    if (session := sys.modules.get("punctual.tracking.session")) is not None:
        session.end_program()


atexit.register(_end_program)


def load_ipython_extension(shell: object) -> None:
    """Load the extension of ``%load_ext punctual``."""
    from punctual.integrations import notebook

    notebook.load(shell)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
