"""Hard limits of resources that a job is to have and that its daemon may not give it."""

import resource
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from punctual.core.reason import Reason

#: Soft and hard limits by their names in `resource`.
Limits = Mapping[str, tuple[int, int]]


def own_limits() -> Limits:
    """Return the limits of this process."""
    names = [name for name in dir(resource) if name.startswith("RLIMIT_")]
    return {name: resource.getrlimit(getattr(resource, name)) for name in names}


def hard_limits(pid: int, wanted: Limits) -> dict[str, tuple[int, int]]:
    """Return each hard limit of a process beside the wanted one; none of a process that has ended."""
    limits = {}
    for name, (_, limit) in wanted.items():
        with suppress(OSError, ValueError):  # it has just ended, or this kernel does not know the limit
            limits[name] = resource.prlimit(pid, getattr(resource, name))[1], limit
    return limits


def lower_limits(pid: int, wanted: Limits) -> dict[str, tuple[int, int]]:
    """Return the hard limits of a process below the wanted ones that it may not raise, and these."""
    limits = {name: each for name, each in hard_limits(pid, wanted).items() if is_lower(*each)}
    try:
        # CAP_SYS_RESOURCE, which has the number 24, lets a process raise any limit.
        return {} if not limits or has_capability(pid, 24) else limits
    except OSError:  # it has just ended
        return {}


def is_lower(limit: int, other: int) -> bool:
    """Whether a limit of a resource is lower than another one; either may be infinite."""
    if limit == resource.RLIM_INFINITY:
        return False
    return other == resource.RLIM_INFINITY or limit < other


def has_capability(pid: int, number: int) -> bool:
    """Whether a process has the capability of this number; raises `OSError` if it has ended."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    return bool(int(status.partition("CapEff:")[2].split()[0], 16) >> number & 1)


def limits_warning(limits: Mapping[str, tuple[int, int]]) -> Reason:
    """Return the warning of a job that has these hard limits instead of the wanted ones."""
    lower = [f"{name} {_text(hard)} and not {_text(wanted)}" for name, (hard, wanted) in limits.items()]
    return Reason(
        "lower-limits",
        f"the job has the hard limits {'; '.join(lower)}: its daemon was started with less, and this user may not raise them. "
        "A service has others once it is started again (`punctual down`, `punctual up`); another daemon ends with its last job",
    )


def _text(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)
