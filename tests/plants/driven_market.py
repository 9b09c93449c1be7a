"""A market whose time is that in a file, so that a test decides when machines come and go."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from punctual.executors.cluster.machines import ClusterPlace, PoolTerms
from punctual.testing.machine_market import MachineMarket


def provider(pools: Sequence[PoolTerms], place: ClusterPlace, options: Mapping[str, Any]) -> MachineMarket:
    """Make one; `now` names the file."""
    now = Path(options["now"])
    return MachineMarket(pools, place, 1.0, lambda: float(now.read_text()))
