"""Windows in SkyNomad's simulator, by its own code: reads the runs that are wanted on stdin, writes what they cost on stdout.

A process of its own: its package has the name of that of Frontier-CS.
"""

import importlib
import json
import logging
import sys
import tempfile
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import Any

_CHECKPOINT_GB = 50.0


def main() -> None:
    wanted = json.load(sys.stdin)
    sys.path[:0] = [wanted["folder"], str(Path(__file__).parent)]
    logging.disable()
    rows = [
        _played(wanted, rule, trace, start_h)
        for rule in wanted["rules"]
        for trace in wanted["traces"]
        for start_h in wanted["starts_h"]
    ]
    json.dump(rows, sys.stdout)


def _played(wanted: dict[str, Any], rule: str, trace: str, start_h: float) -> dict[str, Any]:
    """Play a window; return its dollars, or None if it was late."""
    env_lib, simulate = (importlib.import_module(f"sky_spot.{name}") for name in ("env", "simulate"))
    task_lib, strategy_lib = (importlib.import_module(f"sky_spot.{name}") for name in ("task", "strategies.strategy"))
    if rule == "punctual_least_cost":
        importlib.import_module("_judge_strategy")
    kind = strategy_lib.Strategy.get(rule)
    options = Namespace(
        deadline_hours=wanted["deadline_h"], task_duration_hours=[wanted["work_h"]],
        restart_overhead_hours=[wanted["startup_h"]], inter_task_overhead=[0.0], checkpoint_size_gb=_CHECKPOINT_GB,
        env_start_hours=start_h,
    )  # fmt: skip
    argv, sys.argv = sys.argv, sys.argv[:1]
    parsed = kind._from_args(ArgumentParser()).args  # noqa: SLF001  # how that package makes a strategy
    sys.argv = argv
    strategy = kind(Namespace(**{**vars(parsed), **vars(options)}))
    many = issubclass(kind, strategy_lib.MultiRegionStrategy)
    env = (
        env_lib.MultiTraceEnv([trace], start_h, wanted["deadline_h"])
        if many
        else env_lib.TraceEnv(trace, start_h, wanted["deadline_h"])
    )
    usd = None
    with tempfile.TemporaryDirectory() as folder:
        try:
            played = simulate.simulate(
                [env], strategy, task_lib.SingleTask({"duration": wanted["work_h"], "checkpoint_size_gb": _CHECKPOINT_GB}),
                trace, wanted["deadline_h"], [wanted["startup_h"]], start_h, folder, {}, silent=True, dump_history=False,
            )  # fmt: skip
            usd = played["costs"][0]
        except ValueError as error:
            if "Deadline exceeded" not in str(error):
                raise
    return {"rule": rule, "zone": Path(trace).parent.name, "start_h": start_h, "usd": usd}


if __name__ == "__main__":
    main()
