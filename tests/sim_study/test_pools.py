"""Pools of machines in a scenario: the how-to runs as it is written, and slips are told."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from punctual.core.errors import InvalidSpec
from punctual.request.cluster_file import read_cluster
from punctual.request.pool_file import pools_of
from punctual.sim.pool_traces import courses_of
from punctual.sim.scenario import Scenario

HOW_TO = (Path(__file__).parents[2] / "docs/how-to/spot-machines.md").read_text(encoding="utf-8")
MARKET, TRAIN = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
#: Two days that were seen, and then hours in which spot machines go and come.
COUNTS = [4, 4, 2, 3, 4, 0] * 48 + [4] * 9 + [2] * 6 + [0] * 12 + [3] * 60
POOL = {"name": "spot", "market": "spot", "price_usd_h": 1.0, "most": 4}


def written(folder: Path) -> Path:
    """Write the files of the how-to and a trace."""
    (folder / "spot.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": COUNTS}))
    (folder / "market.toml").write_text(MARKET)
    (folder / "train.toml").write_text(TRAIN)
    return folder / "train.toml"


def test_the_how_to_runs_word_for_word(tmp_path: Path) -> None:
    written(tmp_path)
    (command,) = re.findall(r"\$ punctual (.*)", HOW_TO)
    words = [sys.executable, "-m", "punctual", *command.split(), "--json"]
    told = json.loads(subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True).stdout)
    (run,) = told["runs"]
    assert run["summary"]["deadlines_met_frac"] == 1.0
    assert run["summary"]["cost_usd"] == pytest.approx(sum(run["bill"]["by_pool"].values()))
    assert set(run["bill"]["by_job"]) == {"train"}
    assert 12 * 0.92 <= run["summary"]["cost_usd"] <= 13 * 3.06, "96 h on 8 cores are 12 h of a machine"
    table = subprocess.run(words[:-1], cwd=tmp_path, capture_output=True, text=True, check=True).stdout
    assert re.search(r"least-cost costs \$[0-9.]+: train \$[0-9.]+ \(machines: .*spot \$[0-9.]+\)", table)


def test_a_scenario_with_pools_is_written_and_read_again(tmp_path: Path) -> None:
    study = Scenario.read(written(tmp_path))
    assert study.cluster == ()
    assert Scenario.of(study.keys()) == study
    spot, _ = courses_of(study.pool)
    assert spot.course[0] == (-172800.0, 0.92, 4)


def test_pools_and_nodes_may_stand_side_by_side() -> None:
    study = Scenario.of({"policies": ["least-cost"], "cluster": "2x1", "pool": [POOL]})
    assert [group.n_nodes for group in study.machines] == [2, 4]


def test_a_live_cluster_s_file_with_pools_is_refused(tmp_path: Path) -> None:
    written(tmp_path)
    with pytest.raises(InvalidSpec) as caught:
        read_cluster(tmp_path / "market.toml")
    assert "no engine asks for machines" in caught.value.must
    assert "punctual simulate" in caught.value.remedy


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"name": ""}, "name"),
        ({"market": "spott"}, "market"),
        ({"most": 0}, "most"),
        ({"least": 5}, "least"),
        ({"price_usd_h": None}, "price"),
        ({"price_usd_h": -1.0}, "price_usd_h"),
        ({"market": "own"}, "no price"),
        ({"trace_start_s": 5.0}, "needs a trace"),
        ({"notice": 30}, "notice_s"),
    ],
)
def test_a_slip_in_a_pool_is_told(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        pools_of([{**POOL, **changed}], "'x.toml'")
    assert words in str(caught.value)
    assert caught.value.remedy


def test_two_pools_of_one_name_are_refused() -> None:
    with pytest.raises(InvalidSpec, match="different names"):
        pools_of([POOL, POOL], "'x.toml'")


@pytest.mark.parametrize(
    "text",
    [
        "[]",
        "{",
        '{"data": [1]}',
        '{"metadata": {"gap_seconds": 0}, "data": [1]}',
        '{"metadata": {"gap_seconds": 60}, "data": [-1]}',
    ],
)
def test_a_trace_that_cannot_be_used_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / "spot.json").write_text(text)
    with pytest.raises(InvalidSpec) as caught:
        courses_of(pools_of([{**POOL, "trace": str(tmp_path / "spot.json")}], "'x.toml'"))
    assert "spot.json" in str(caught.value)
