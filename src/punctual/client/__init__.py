"""What a training script uses: `track` for its steps, `phase` for work that is not a step, `on_stop` to be asked.

Everything here works unchanged when the script is not run by Punctual. Standard library only.
"""

from punctual.client.declaration import Phase
from punctual.client.device import use_device
from punctual.client.span import PhaseSpan, phase
from punctual.client.stop import on_stop
from punctual.client.track import Run, total_steps, track

__all__ = ["Phase", "PhaseSpan", "Run", "on_stop", "phase", "total_steps", "track", "use_device"]
