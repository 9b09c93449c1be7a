"""Pools of machines in a scenario: the how-to runs as it is written, and slips are told."""

import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.cli.programs import Terminal

from punctual.core.errors import InvalidSpec
from punctual.daemon.host_options import HostOptions
from punctual.request import input_file
from punctual.request.cluster_file import pools_of, read_cluster, read_pools
from punctual.sim.pool_traces import courses_of
from punctual.sim.scenario import Scenario

HOW_TO = (Path(__file__).parents[2] / "docs/how-to/spot-machines.md").read_text(encoding="utf-8")
MARKET, TRAIN, PROVIDER = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
QUOTE, SIMULATE, _ = re.findall(r"\$ punctual (.*)", HOW_TO)
#: Two days that were seen, and then hours in which spot machines go and come.
COUNTS = [4, 4, 2, 3, 4, 0] * 48 + [4] * 9 + [2] * 6 + [0] * 12 + [3] * 60
POOL = {"name": "spot", "market": "spot", "price_usd_h": 1.0, "most": 4}


def written(folder: Path) -> Path:
    """Write the files of the how-to and a trace."""
    (folder / "spot.json").write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": COUNTS}))
    (folder / "market.toml").write_text(MARKET)
    (folder / "train.toml").write_text(TRAIN)
    return folder / "train.toml"


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the commands of the how-to were run, whose simulation takes long: `told` answers at once."""
    folder = tmp_path_factory.mktemp("how-to")
    written(folder)
    told(folder, *SIMULATE.split())
    return folder


def test_the_how_to_runs_word_for_word(simulated: Path) -> None:
    assert told(simulated, *QUOTE.split())["prices"]
    (run,) = told(simulated, *SIMULATE.split())["runs"]
    assert run["summary"]["deadlines_met_frac"] == 1.0
    assert run["summary"]["cost_usd"] == pytest.approx(sum(run["bill"]["by_pool"].values()))
    assert set(run["bill"]["by_job"]) == {"train"}
    assert 12 * 0.92 <= run["summary"]["cost_usd"] <= 13 * 3.06, "96 h on 8 cores are 12 h of a machine"
    table = Terminal(simulated).tell(*SIMULATE.split()).stdout
    assert re.search(r"least-cost costs \$[0-9.]+: train \$[0-9.]+ \(machines: .*spot \$[0-9.]+.*\)", table)


def test_a_scenario_with_pools_is_written_and_read_again(tmp_path: Path) -> None:
    study = Scenario.read(written(tmp_path))
    assert study.cluster == ()
    assert Scenario.of(study.keys()) == study
    spot, _ = courses_of(study.pool)
    assert spot.course[0] == (-172800.0, 0.92, 4)


def test_pools_and_nodes_may_stand_side_by_side() -> None:
    study = Scenario.of({"policies": ["least-cost"], "cluster": "2x1", "pool": [POOL]})
    assert [group.n_nodes for group in study.machines] == [2, 4]


def test_a_live_cluster_s_pools_need_a_provider_which_a_simulation_does_without(tmp_path: Path) -> None:
    study, market = Scenario.read(written(tmp_path)), tmp_path / "market.toml"
    with pytest.raises(InvalidSpec) as caught:
        read_pools(market)
    assert "who starts their machines" in caught.value.must
    assert "punctual simulate" in caught.value.remedy
    market.write_text(PROVIDER + MARKET)
    pools, machines = read_pools(market)
    assert ([pool.name for pool in pools], pools[0].trace) == (["spot", "on-demand"], str(tmp_path / "spot.json"))
    assert machines is not None
    assert (machines.provider, machines.options) == ("market", {"speed": 600.0})
    assert read_cluster(market) == (), "other nodes are not used"
    assert Scenario.read(tmp_path / "train.toml") == study


@pytest.mark.parametrize("provider", ["market", "ray", "slurm"])
def test_the_providers_of_the_how_to_are_there(tmp_path: Path, provider: str) -> None:
    market = tmp_path / "market.toml"
    assert f"`{provider}`" in HOW_TO
    market.write_text(f'[machines]\nprovider = "{provider}"\n{MARKET}')
    HostOptions(engine="ray", cluster=str(market)).check()
    with pytest.raises(InvalidSpec, match="one way"):
        HostOptions(engine="ray", cluster=str(market), autoscale=3).check()


@pytest.mark.parametrize(
    ("table", "word"),
    [
        ("provider = 3", "provider"),
        ('provider = "p"\nspeed = 3', "speed"),
        ("", "provider"),
        ('provider = "p"\noptions = 3', "options"),
    ],
)
def test_slips_in_the_table_of_the_provider_are_told(tmp_path: Path, table: str, word: str) -> None:
    (tmp_path / "market.toml").write_text(f"[machines]\n{table}\n{MARKET}")
    with pytest.raises(InvalidSpec, match=word):
        read_pools(tmp_path / "market.toml")


@pytest.mark.parametrize(
    "name", ["nobody", "json:nothing", "punctual", "no_module:f", ":", ".x:y", "misspelt_provider:f"]
)
def test_a_provider_that_there_is_not_is_told(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "misspelt_provider.py").write_text("def f(:")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "market.toml").write_text(f'[machines]\nprovider = "{name}"\n{MARKET}')
    with pytest.raises(InvalidSpec, match="provider of machines must be one"):
        HostOptions(engine="ray", cluster=str(tmp_path / "market.toml")).check()


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


@pytest.mark.parametrize(
    ("key", "misspelt"), [("name", "nmae"), ("market", "markets"), ("most", "mots"), ("price_usd_h", "price-usd-h")]
)
def test_a_misspelt_key_is_named_also_if_the_right_one_is_needed(key: str, misspelt: str) -> None:
    table = {misspelt if name == key else name: value for name, value in POOL.items()}
    with pytest.raises(InvalidSpec, match=f"got `{misspelt}` .*Did you mean `{key}`"):
        pools_of([table], "'x.toml'")


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
        '{"metadata": {"gap_seconds": 60}, "data": [Infinity]}',
        '{"metadata": {"gap_seconds": Infinity}, "data": [1]}',
        '{"metadata": {"gap_seconds": 1e308}, "data": [1, 2, 1]}',
        pytest.param(100_000 * "[" + 100_000 * "]", id="deep"),
        "a pipe that nobody writes",
    ],
)
def test_a_trace_that_cannot_be_used_is_told(tmp_path: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(input_file, "_SILENT_S_MAX", 0.1)
    if text.startswith("a pipe"):
        os.mkfifo(tmp_path / "spot.json")
    else:
        (tmp_path / "spot.json").write_text(text)
    with pytest.raises(InvalidSpec) as caught:
        courses_of(pools_of([{**POOL, "trace": str(tmp_path / "spot.json")}], "'x.toml'"))
    assert "spot.json" in str(caught.value)


def test_a_trace_with_more_machines_than_the_pool_may_have_says_so_many(tmp_path: Path) -> None:
    trace = {"metadata": {"gap_seconds": 60}, "data": [10**30, 1]}
    (tmp_path / "spot.json").write_text(json.dumps(trace))
    (course,) = courses_of(pools_of([{**POOL, "trace": str(tmp_path / "spot.json")}], "'x.toml'"))
    assert [n for _, _, n in course.course] == [course.spec.most, 1]


def test_a_trace_has_prices_of_its_own_or_one_for_all_and_begins_within_itself(tmp_path: Path) -> None:
    trace = {"metadata": {"gap_seconds": 60}, "data": [1, 2], "prices": [0.5, 0.25]}
    (tmp_path / "spot.json").write_text(json.dumps(trace))
    free = {key: value for key, value in POOL.items() if key != "price_usd_h"}
    pool = {**free, "trace": str(tmp_path / "spot.json")}
    (course,) = courses_of(pools_of([{**pool, "trace_start_s": 60.0}], "'x.toml'"))
    assert course.course == [(-60.0, 0.5, 1), (0.0, 0.25, 2)]
    with pytest.raises(InvalidSpec, match="lasts 120 s"):
        courses_of(pools_of([{**pool, "trace_start_s": 120.0}], "'x.toml'"))


def told(folder: Path, *words: str) -> dict[str, Any]:
    """Return what a command says as JSON."""
    done = Terminal(folder).tell(*words, "--json")
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def test_a_budget_that_the_deadline_exceeds_is_kept_and_the_report_says_what_gave_way(tmp_path: Path) -> None:
    scenario = written(tmp_path)
    scenario.write_text(TRAIN.replace('deadline = "6h"', 'deadline = "4h"\nbudget-usd = 20'))
    (run,) = told(tmp_path, "simulate", scenario.name)["runs"]
    assert run["summary"]["deadlines_met_frac"] == 0.0
    assert 18.0 <= run["summary"]["cost_usd"] <= 20.0
    assert run["bill"]["told"][0]["at_s"] < 600.0
    assert "gives way to its budget" in run["bill"]["told"][0]["text"]
    last = [usd[-1] for usd in run["bill"]["course"]["by_pool"].values()]
    assert sum(last) == pytest.approx(run["summary"]["cost_usd"], abs=0.1)
    page = (tmp_path / "simulation/report.html").read_text()
    money = page.partition("<h2>Money</h2>")[2]
    assert "dollars by pool" in money
    assert "<th>job train</th>" in money
    assert "gives way" in page


def test_a_budget_without_prices_is_refused(tmp_path: Path) -> None:
    keys = {"policies": ["fifo"], "cluster": [{"n_nodes": 2, "cores": 8.0}]}
    with pytest.raises(InvalidSpec, match="prices"):
        Scenario.of({**keys, "job": [{"work": "1h", "budget_usd": 5.0}]})


QUOTED = ("--cores-per-worker", "8", "--steps", "12000", "--work", "96h", "--workers", "1..4")


def test_a_quote_tells_prices_of_deadlines_on_machines_that_are_not_there(tmp_path: Path) -> None:
    written(tmp_path)
    quote = told(tmp_path, "quote", "--cluster", "market.toml", *QUOTED, "--deadline", "6h")
    assert quote["policy"] == "least-cost"
    assert quote["can_be_promised"] is True
    prices = [round(price["usd"], 6) for price in quote["prices"]]
    assert [price["deadline_s"] for price in quote["prices"]] == sorted(
        (price["deadline_s"] for price in quote["prices"]), reverse=True
    )
    assert prices == sorted(prices), "an earlier deadline costs more"
    assert 12 * 0.92 <= prices[0] < prices[-1] <= 20 * 3.06
    assert {finish["n_workers"] for finish in quote["finishes"]} == {1, 2, 3, 4}
    text = Terminal(tmp_path).tell("quote", "--cluster", "market.toml", *QUOTED, "--deadline", "1h").stdout
    assert re.search(r"expected cost: \$\d+ by [^,]+, .*cannot be by ", text)


def test_what_is_quoted_is_about_what_is_paid(simulated: Path) -> None:
    (run,) = told(simulated, *SIMULATE.split())["runs"]
    quote = told(simulated, "quote", "--cluster", "market.toml", *QUOTED, "--deadline", "6h")
    usd = next(price["usd"] for price in quote["prices"] if price["deadline_s"] == pytest.approx(6 * 3600, abs=60))
    assert 0.5 * run["summary"]["cost_usd"] <= usd <= 1.2 * run["summary"]["cost_usd"]


def test_a_quote_tells_which_deadline_a_budget_buys(tmp_path: Path) -> None:
    written(tmp_path)
    command = ("quote", "--cluster", "market.toml", *QUOTED, "--budget")
    bought_s = [told(tmp_path, *command, usd)["bought_s"] for usd in ("5", "16", "20", "200")]
    assert bought_s[0] is None, "twelve hours of the cheapest machine cost $11"
    assert bought_s[1] > bought_s[2] > bought_s[3] > 3 * 3600


def test_a_spot_pool_without_a_trace_is_known_to_be_always_there(tmp_path: Path) -> None:
    pool = '[[pool]]\nname = "spot"\nmarket = "spot"\ncores = 8.0\nprice_usd_h = 1.0\nmost = 4\n'
    stays = pool.replace('"spot"', '"on-demand"').replace("1.0", "4.0")
    (tmp_path / "market.toml").write_text(pool + stays)
    quote = told(tmp_path, "quote", "--cluster", "market.toml", "--cores", "8", "--work", "80h", "--deadline", "20h")
    assert quote["prices"][0]["usd"] == pytest.approx(10.0, rel=0.1)


def test_nodes_alone_can_be_quoted_without_prices(tmp_path: Path) -> None:
    (tmp_path / "nodes.toml").write_text("[[cluster]]\nn_nodes = 2\ncores = 4.0\n")
    quote = told(tmp_path, "quote", "--cluster", "nodes.toml", "--work", "8h", "--deadline", "3h")
    assert quote["policy"] == "promises-first"
    assert quote["can_be_promised"] is True
    assert quote["prices"] == []


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (["--cluster", "market.toml", "--", "python", "x.py"], "what it costs"),
        (["--cluster", "gone.toml", "--work", "1h"], "gone.toml"),
        (["--cluster", "market.toml", "--work", "1h", "--budget", "-3"], "budget"),
        (["--cluster", "market.toml", "--work", "1h", "--deadline", "soon"], "soon"),
        (["--budget", "3", "--work", "1h", "--", sys.executable], "have prices"),
    ],
)
def test_a_slip_in_such_a_quote_is_told(tmp_path: Path, words: list[str], part: str) -> None:
    written(tmp_path)
    done = Terminal(tmp_path).tell("quote", *words)
    assert done.returncode == 2
    assert part in done.stderr
    assert "to do:" in done.stderr
