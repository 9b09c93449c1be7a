"""The scheduler of a live host, which knows every plug-in that is installed."""

from punctual import registry
from punctual.core.scheduler import Scheduler


def new_scheduler() -> Scheduler:
    """One without jobs."""
    return Scheduler(
        {name: registry.load("controllers", name)() for name in registry.names("controllers")},
        models={name: registry.load("models", name)() for name in registry.names("models")},
        convergences={name: registry.load("convergence", name)() for name in registry.names("convergence")},
    )
