"""Ray Train needs no adapter: its workers find the page of the job that has started Ray."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from punctual.channel import ProgramState, SharedBlock

# Not by importing it: Ray reads once for each process how it is to authenticate, and the tests of clusters have tokens.
if not all(map(find_spec, ("ray", "pandas", "pyarrow", "tensorboardX"))):
    pytest.skip("Ray Train is not installed: ray[train]", allow_module_level=True)

SCRIPT = """
import os, ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer

def function():
    import punctual
    from ray import train
    run = punctual.track(range(5), epochs=2, phases=("report",))
    for i in run:
        if run.epoch_ended:
            with punctual.phase("report"):
                train.report({"epoch": run.epoch})

ray.init(address="local", num_cpus=1, include_dashboard=False, log_to_driver=False)
TorchTrainer(
    function, scaling_config=ScalingConfig(num_workers=1), run_config=RunConfig(storage_path=os.getcwd(), name="x")
).fit()
ray.shutdown()
"""


def test_a_worker_tells_its_steps_and_reports(page: SharedBlock, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "RAY_USAGE_STATS_ENABLED": "0"}
    environment.pop("RAY_ADDRESS", None)
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert (page.declaration().state, page.declaration().total_steps, page.progress().n_steps) == (
        ProgramState.LANDED,
        10,
        10,
    )
    assert [(phase.name, phase.n_units_done) for phase in page.phases()] == [("report", 2)]
