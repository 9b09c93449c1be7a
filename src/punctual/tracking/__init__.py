"""Interface for training scripts: `track` for steps, `phase` for other work, `on_stop` for requests to stop.

Everything here works unchanged when the script is not run by Punctual. Standard library only.
"""

from punctual.tracking.declaration import Phase
from punctual.tracking.device import use_device
from punctual.tracking.span import PhaseSpan, phase
from punctual.tracking.stop import on_stop
from punctual.tracking.track import Run, total_steps, track

__all__ = ["Phase", "PhaseSpan", "Run", "on_stop", "phase", "total_steps", "track", "use_device"]
