"""Uniform Progress, as SkyNomad's repository has it, for Frontier-CS, which has no rule of that paper: loaded from its files."""

import os
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

_FOLDER = Path(os.environ["PUNCTUAL_SKYNOMAD"]) / "sky_spot/strategies"
for _name in ("rc_threshold", "rc_cr_threshold"):
    _full = f"sky_spot.strategies.{_name}"
    _spec = spec_from_file_location(_full, _FOLDER / f"{_name}.py")
    assert _spec is not None
    assert _spec.loader is not None
    sys.modules[_full] = module_from_spec(_spec)
    setattr(sys.modules["sky_spot.strategies"], _name, sys.modules[_full])
    _spec.loader.exec_module(sys.modules[_full])

_Strategy: Any = sys.modules["sky_spot.strategies.rc_cr_threshold"].RCCRThresholdStrategy


class Solution(_Strategy):
    NAME = "punctual_uniform_progress"

    def solve(self, _spec_path: str) -> "Solution":
        return self

    def _step(self, last_cluster_type: Any, has_spot: bool) -> Any:
        return super()._step(last_cluster_type, has_spot)
