"""Numbers side by side: means over seeds, and which is best."""

from types import SimpleNamespace
from typing import cast

import numpy as np
import polars as pl
import pytest

from punctual.sim.drawing import figures
from punctual.sim.drawing.figures import averaged
from punctual.sim.measures import MEASURES, Estimate, best_of
from punctual.sim.stored import StoredRun

JCT = next(one for one in MEASURES if one.name == "jct_mean_s")
MET = next(one for one in MEASURES if one.name == "deadlines_met_frac")
SHOWN_ONLY = next(one for one in MEASURES if one.better == "neither")


def estimates(*means: float | None) -> list[Estimate | None]:
    return [None if mean is None else Estimate(mean, None) for mean in means]


def test_the_best_is_the_lowest_or_the_highest() -> None:
    assert best_of(JCT, estimates(3.0, 2.0, None, 2.0)) == [1, 3]
    assert best_of(MET, estimates(0.3, 0.2)) == [0]


def test_nobody_is_best_where_there_is_nothing_to_choose() -> None:
    assert best_of(JCT, estimates(2.0, 2.0)) == best_of(JCT, estimates(2.0, None)) == []
    assert best_of(SHOWN_ONLY, estimates(1.0, 2.0)) == []


def test_an_estimate_needs_every_seed() -> None:
    assert Estimate.of([1.0, None]) is None
    assert Estimate.of([]) is None
    assert Estimate.of([2.0]) == Estimate(2.0, None)
    one = Estimate.of([1.0, 2.0, 3.0])
    assert one is not None
    assert (one.mean, one.half_width) == (2.0, pytest.approx(4.30265 / 3**0.5, rel=1e-4))


def test_averages_keep_what_was_used() -> None:
    curve = {"at": [0.0, 1.0, 4.0, 5.0], "mean": [8.0, 0.0, 4.0, 2.0], "until_at": 8.0}
    assert averaged(curve, n_stretches=4) is curve
    found = averaged(curve, n_stretches=2)
    assert found == {"at": [0.0, 4.0], "mean": [2.0, (4.0 + 3 * 2.0) / 4], "until_at": 8.0}


@pytest.mark.parametrize(("latest_frac", "scale"), [(0.4, "linear"), (30.0, "symlog")])
def test_the_latest_job_is_in_the_plot_of_lateness_and_those_that_never_land_are_missing(
    latest_frac: float, scale: str
) -> None:
    from matplotlib.figure import Figure  # takes half a second

    jobs = pl.DataFrame({"jct_s": [0.5, 1.0, 1.0 + latest_frac, None], "deadline_s": [1.0] * 4})
    axes = Figure().subplots()
    figures.lateness(axes, {"fifo": [cast(StoredRun, SimpleNamespace(jobs=jobs))]})
    assert np.asarray(axes.lines[0].get_ydata())[-1] == pytest.approx(75.0)
    assert axes.get_xscale() == scale
    assert axes.get_xlim()[1] > 100 * latest_frac
