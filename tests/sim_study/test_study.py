"""Studies: what is finished is found again, what is not leaves nothing behind."""

import json
import subprocess
import sys
from errno import ENOSPC
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any
from uuid import uuid4

import polars as pl
import pytest

from punctual import registry
from punctual.core.errors import InvalidSpec
from punctual.history.cluster import ClusterHistory
from punctual.sim import fingerprint, study
from punctual.sim.api import simulate
from punctual.sim.result import Result
from punctual.sim.scenario import Scenario
from punctual.sim.stored import read_run, write_run
from punctual.sim.study import Study, StudyProgress

SMALL: dict[str, Any] = {
    "policies": ["fifo", "shortest-remaining"], "seeds": 2, "cluster": "2x4", "deadlines": "uniform:1.2,4",
    "trace": {"generator": {"name": "poisson", "gpus": [[1, 0.5], [4, 0.5]]}, "jobs": 25, "load": 1.3},
}  # fmt: skip


def run(out: Path, n_processes: int = 1, **keys: Any) -> tuple[Result, list[StudyProgress]]:
    told: list[StudyProgress] = []
    result = Study(Scenario.of({**SMALL, **keys}), out).run(n_processes=n_processes, tell=told.append)
    return result, told


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return run(tmp_path_factory.mktemp("study"))[0]


def test_every_policy_has_every_seed_and_every_job(finished: Result) -> None:
    assert not finished.failures
    assert [(one.seed, one.policy) for one in finished.runs] == [
        (0, "fifo"), (0, "shortest-remaining"), (1, "fifo"), (1, "shortest-remaining"),
    ]  # fmt: skip
    assert all(one.summary["n_finished"] == one.jobs.height == 25 for one in finished.runs)


def test_policies_meet_the_same_jobs_and_seeds_other_ones(finished: Result) -> None:
    by_seed: dict[int, list[pl.DataFrame]] = {}
    for one in finished.runs:
        by_seed.setdefault(one.seed, []).append(one.jobs.select("id", "submitted_at", "deadline_s"))
    assert by_seed[0][0].equals(by_seed[0][1])
    assert not by_seed[0][0].equals(by_seed[1][0])


def test_tables_have_a_row_for_each_policy_and_for_each_job(finished: Result) -> None:
    assert finished.summary["policy"].to_list() == ["fifo", "shortest-remaining"]
    means = finished.by_seed.group_by("policy", maintain_order=True).mean()
    assert finished.summary["jct_mean_s"].to_list() == pytest.approx(means["jct_mean_s"].to_list())
    assert finished.jobs.height == 100
    assert finished.jobs.columns[:3] == ["policy", "seed", "id"]
    assert hasattr(finished.jobs, "__arrow_c_stream__")  # what other libraries take a table by


def test_an_interval_over_two_seeds_is_student_s(finished: Result) -> None:
    one, other = (run.summary["jct_mean_s"] or 0.0 for run in finished.by_policy["fifo"])
    row = finished.summary.row(0, named=True)
    assert row["jct_mean_s"] - row["jct_mean_s_low"] == pytest.approx(12.7062 * abs(one - other) / 2, rel=1e-4)


def test_what_is_finished_is_not_run_again(tmp_path: Path) -> None:
    first, _ = run(tmp_path)
    written = {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")}
    again, told = run(tmp_path)
    assert written == {path: path.stat().st_mtime_ns for path in tmp_path.glob("runs/*/*")}
    assert told[0].n_found == told[0].n_done == 4
    assert told[0].done_frac == 1.0
    assert [one.facts for one in again.runs] == [one.facts for one in first.runs]


def test_only_what_is_new_is_run(tmp_path: Path) -> None:
    run(tmp_path, policies=["fifo"], seeds=1)
    _, told = run(tmp_path)
    assert (told[0].n_found, told[-1].n_done, told[-1].done_frac) == (1, 4, 1.0)


@pytest.mark.parametrize(
    "changed",
    [
        {"cluster": "3x4"}, {"deadlines": "uniform:1.2,5"}, {"physics": {"resize_s": 1.0}}, {"seeds": [5, 6]},
        {"policies": [{"name": "fifo", "backfill": True}]}, {"trace": {**SMALL["trace"], "load": 1.31}},
    ],
)  # fmt: skip
def test_a_key_changes_with_everything_that_matters(tmp_path: Path, changed: dict[str, Any]) -> None:
    before = {one.key for one in Study(Scenario.of(SMALL), tmp_path).assignments}
    assert not before & {one.key for one in Study(Scenario.of({**SMALL, **changed}), tmp_path).assignments}


def test_a_key_changes_with_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = {one.key for one in Study(Scenario.of(SMALL), tmp_path).assignments}
    monkeypatch.setattr(fingerprint, "of_program", lambda: "0.1.0+other")
    assert not before & {one.key for one in Study(Scenario.of(SMALL), tmp_path).assignments}


def test_a_key_changes_with_the_tables_of_the_rule_of_scaling(tmp_path: Path) -> None:
    tables = tmp_path / "speeds.txt"

    def keys(speed: float) -> set[str]:
        tables.write_text(repr(("net", "dist_sync", 32, 1, 1, [speed], [1.0], [0.5])))
        scaling = {"name": "parameter-server", "tables": str(tables)}
        return {one.key for one in Study(Scenario.of({**SMALL, "scaling": scaling}), tmp_path).assignments}

    assert keys(1.0) == keys(1.0)
    assert not keys(1.0) & keys(2.0)


def test_a_key_changes_with_the_trace_of_a_pool(tmp_path: Path) -> None:
    trace = tmp_path / "spot.json"
    pool = {"name": "spot", "market": "spot", "price_usd_h": 1.0, "most": 4, "trace": str(trace)}

    def keys(n: int) -> set[str]:
        trace.write_text(json.dumps({"metadata": {"gap_seconds": 600}, "data": [n, n]}))
        scenario = Scenario.of({**SMALL, "policies": ["least-cost"], "pool": [pool]})
        return {one.key for one in Study(scenario, tmp_path).assignments}

    assert keys(1) == keys(1)
    assert not keys(1) & keys(2)


@pytest.mark.parametrize(
    ("family", "keys"),
    [
        ("controllers", {"controller": "strange"}),
        ("controllers", {"trace": {}, "cluster": [{"cores": 1.0}], "job": [{"work": "1m", "controller": "strange"}]}),
        ("models", {"scaling": {"name": "rigid", "model": "strange"}}),
        ("traces.generators", {"trace": "generator:strange"}),
        ("scaling", {"scaling": "strange"}),
    ],
)
def test_a_key_changes_with_a_plug_in_of_another_distribution(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, family: str, keys: dict[str, Any]
) -> None:
    module = f"strange_{uuid4().hex}"
    source = tmp_path / f"{module}.py"
    source.write_text("class Strange:\n    pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    offered = EntryPoint("strange", f"{module}:Strange", f"punctual.{family}")
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: [offered] if group == offered.group else [])
    scenario = Scenario.of({**SMALL, **keys})
    before = {one.key for one in Study(scenario, tmp_path).assignments}
    assert before == {one.key for one in Study(scenario, tmp_path).assignments}
    source.write_text("class Strange:\n    better = True\n")
    assert not before & {one.key for one in Study(scenario, tmp_path).assignments}


def test_the_program_is_all_that_a_simulation_imports() -> None:
    modules = "punctual.sim.one_run", "punctual.sim.declared", "punctual.sim.simulation"
    files = "(module.__file__ for name, module in sys.modules.items() if name.startswith('punctual.'))"
    program = f"import sys, {', '.join(modules)}; print(*{files}, sep='\\n')"
    told = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    home = Path(fingerprint.__file__).parents[1]
    imported = {Path(path).relative_to(home).as_posix() for path in told.split()}
    assert {"sim/one_run.py", "core/scheduler.py"} <= imported
    assert not {path for path in imported if path.startswith(("executors/", "journal/"))}
    # How a training reports is named by the options of jobs, and changes nothing of what is simulated.
    live = ("progress_text/", "channel.py")
    known = {path.relative_to(home).as_posix() for path in fingerprint._sources(home)}
    assert not {path for path in imported if not path.startswith(live)} - known


def test_a_label_is_no_part_of_the_key(tmp_path: Path) -> None:
    run(tmp_path, policies=["fifo"], seeds=1)
    result, told = run(tmp_path, policies=[{"name": "fifo", "label": "first come"}], seeds=1)
    assert told[0].n_found == 1
    assert [one.policy for one in result.runs] == ["first come"]


def test_several_processes_give_the_same_results(tmp_path: Path, finished: Result) -> None:
    result, told = run(tmp_path, n_processes=2)
    assert result.jobs.equals(finished.jobs)
    assert told[-1].n_done == 4
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == sorted(one.key for one in result.runs)


def test_a_trace_counts_by_its_contents(tmp_path: Path) -> None:
    header = "timestamp,duration,num_gpus,gpu_time,cluster\n"
    one, other = tmp_path / "one.csv", tmp_path / "other.csv"
    one.write_text(header + "2017-10-03 00:00:00,60,1,60,a\n2017-10-03 00:00:10,60,1,60,a\n")
    other.write_text(one.read_text())
    keys = {**SMALL, "trace": {"file": str(one)}, "seeds": 1, "deadlines": "keep"}
    before = [item.key for item in Study(Scenario.of(keys), tmp_path).assignments]
    moved = {**keys, "trace": {"file": str(other)}}
    assert [item.key for item in Study(Scenario.of(moved), tmp_path).assignments] == before
    other.write_text(one.read_text().replace("00:00:10", "00:00:11"))
    assert [item.key for item in Study(Scenario.of(moved), tmp_path).assignments] != before


def test_an_interruption_leaves_what_is_finished_and_nothing_else(tmp_path: Path) -> None:
    def interrupt(progress: StudyProgress) -> None:
        if progress.n_done == 1 and progress.done_frac > 0.3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Study(Scenario.of(SMALL), tmp_path).run(tell=interrupt)
    (left,) = (tmp_path / "runs").iterdir()
    assert json.loads((left / "run.json").read_text())["policy"] == "fifo"
    assert len(json.loads((tmp_path / "study.json").read_text())["runs"]) == 1
    assert run(tmp_path)[1][0].n_found == 1


def test_a_broken_policy_costs_its_own_runs_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = study.simulate_one

    def broken(scenario: Scenario, policy: Any, seed: int, tell: Any) -> Any:
        if policy.name == "fifo":
            raise ZeroDivisionError("division by zero")
        return real(scenario, policy, seed, tell)

    monkeypatch.setattr(study, "simulate_one", broken)
    result, _ = run(tmp_path, seeds=1)
    assert [one.policy for one in result.runs] == ["shortest-remaining"]
    assert [(one.policy, one.what) for one in result.failures] == [("fifo", "ZeroDivisionError: division by zero")]
    assert "broken" in result.failures[0].trace


def test_what_a_user_can_repair_is_raised(tmp_path: Path) -> None:
    with pytest.raises(InvalidSpec, match="jobs"):
        run(tmp_path, trace={**SMALL["trace"], "start_s": 1e12})


def test_a_damaged_result_is_told_of(tmp_path: Path) -> None:
    result, _ = run(tmp_path, policies=["fifo"], seeds=1)
    (result.runs[0].folder / "run.json").write_text("{")
    with pytest.raises(InvalidSpec, match="JSON"):
        run(tmp_path, policies=["fifo"], seeds=1)


def test_a_run_without_its_record_is_done_again(tmp_path: Path) -> None:
    result, _ = run(tmp_path, policies=["fifo"], seeds=1)
    (result.runs[0].folder / "run.json").unlink()
    again, _ = run(tmp_path, policies=["fifo"], seeds=1)
    assert again.runs[0].summary == result.runs[0].summary
    assert not again.failures


def test_a_run_that_another_process_has_finished_meanwhile_is_kept(tmp_path: Path) -> None:
    result, _ = run(tmp_path, policies=["fifo"], seeds=1)
    (done,) = result.runs
    write_run(done.folder, {"key": "other"}, ClusterHistory(details=True), "token")
    assert read_run(done.folder) == done
    assert list((tmp_path / "runs").iterdir()) == [done.folder]


def test_a_result_that_cannot_be_put_in_place_is_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "rename", full)
    result, _ = run(tmp_path, policies=["fifo"], seeds=1)
    assert [failure.what for failure in result.failures] == ["OSError: [Errno 28] No space left on device"]
    assert not result.runs


def test_controllers_steer_shares_of_cores(tmp_path: Path) -> None:
    result, _ = run(
        tmp_path, policies=["proportional"], seeds=1, controller="remaining-cost", scaling="cores",
        cluster=[{"cores": 8.0}], deadlines="uniform:3,6", trace={"jobs": 6, "load": 0.4},
    )  # fmt: skip
    assert not result.failures
    (one,) = result.runs
    assert one.summary["n_finished"] == 6
    # It takes what the deadline needs: most of the time is used, and none is missed.
    assert one.summary["deadlines_met_frac"] == 1.0
    used = (one.jobs["jct_s"] / one.jobs["deadline_s"]).to_list()
    assert min(used) > 0.9


def test_from_python(tmp_path: Path) -> None:
    result = simulate(policies="fifo", seeds=1, cluster="2x4", trace={"jobs": 5}, out=tmp_path)
    assert result.summary.height == 1
    assert result.summary["jct_mean_s"][0] > 0
    titles = [axes.get_title() for axes in result.plot().axes]
    assert titles == ["Job completion time", "Queue (seed 0)", "Devices in use (seed 0)"]
    assert "<table" in result._repr_html_()


def test_a_scenario_from_python_can_be_changed(tmp_path: Path) -> None:
    scenario = Scenario.of(SMALL)
    result = simulate(scenario, policies=["fifo"], seeds=[4], out=tmp_path)
    assert [(one.policy, one.seed) for one in result.runs] == [("fifo", 4)]


@pytest.mark.parametrize("policy", registry.names("policies"))
def test_every_policy_can_be_studied_in_a_world_that_fails(tmp_path: Path, policy: str) -> None:
    physics = {"resize_s": 5.0, "solver_s": 1.0, "failures_per_device_h": 0.1, "node_mtbf_s": 50_000.0}
    scaling = {"name": "elastic", "startup_s": 20.0}
    result, _ = run(tmp_path, policies=[policy], seeds=1, physics=physics, scaling=scaling)
    assert not result.failures
    (one,) = result.runs
    assert one.summary["n_jobs"] == 25
    assert one.segments["until_at"].max() <= one.curves["queue"]["until_at"]
