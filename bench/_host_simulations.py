"""The row of `bench/host.py` about simulations: what they cost with the present code and with an earlier one, in turns."""

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

SCRIPT = Path(__file__).with_name("_simulator_cases.py")
HERE = Path(__file__).parents[1]


@dataclass(frozen=True)
class Compared:
    """One simulation: its CPU seconds with either code, the cheapest of several runs."""

    case: str
    before_s: float
    after_s: float
    #: Whether both came to the same jobs at the same times.
    is_same: bool

    @property
    def ratio(self) -> float:
        return self.after_s / self.before_s


def compared(before: Path, cases: list[str], n_rounds: int) -> list[Compared]:
    """Each case with the code of checkout `before` and with this one, in turns; who comes first changes from turn to turn."""
    for checkout in (before, HERE):
        _check_used(checkout)
    runs: dict[tuple[str, Path], list[dict[str, Any]]] = {}
    for i_round in range(n_rounds):
        for case in cases:
            order = (before, HERE) if i_round % 2 == 0 else (HERE, before)
            for checkout in order:
                runs.setdefault((case, checkout), []).append(json.loads(_output(checkout, [str(SCRIPT), case])))
    return [_compared(case, runs[case, before], runs[case, HERE]) for case in cases]


def ratio_of(rows: list[Compared]) -> float:
    """The geometric mean over all cases."""
    return geometric_mean(row.ratio for row in rows)


def _compared(case: str, before: list[dict[str, Any]], after: list[dict[str, Any]]) -> Compared:
    # A neighbour on the same core only ever makes a run dearer, so the cheapest is nearest to what the code costs.
    results = [
        {name: run[name] for name in ("n_finished", "jct_mean_s", "makespan_s")} for run in (before[0], after[0])
    ]
    return Compared(
        case, min(run["run_s"] for run in before), min(run["run_s"] for run in after), results[0] == results[1]
    )


def _check_used(checkout: Path) -> None:
    place = _output(checkout, ["-c", "import punctual; print(punctual.__file__)"])
    if not Path(place).is_relative_to(checkout.resolve()):
        raise SystemExit(f"a process that is to use '{checkout}' uses '{place}'")


def _output(checkout: Path, arguments: list[str]) -> str:
    environment = {**os.environ, "PYTHONPATH": str(checkout.resolve() / "src")}
    run = subprocess.run([sys.executable, *arguments], check=True, capture_output=True, text=True, env=environment)
    return run.stdout.splitlines()[-1]
