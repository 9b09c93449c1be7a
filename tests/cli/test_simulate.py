"""`punctual simulate` and `punctual compare` as a user has them."""

import json
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from tests.cli.programs import INLINE, Terminal
from tests.waiting import PATIENCE_S, wait_until

from punctual.cli.simulate import USUAL_DEADLINES, USUAL_POLICIES, scenario_of, stopping_where_told
from punctual.sim.choice import PlugInChoice
from punctual.sim.study import Study, StudyProgress

SMALL = ("--policy", "fifo", "--policy", "shortest-remaining", "--jobs", "30", "--seeds", "2", "--cluster", "2x4")


def test_from_options_to_a_table_a_report_and_a_comparison(terminal: Terminal) -> None:
    done = terminal.punctual(
        "simulate", *SMALL, "--load", "1.4", "--deadlines", "uniform:1.2,4", "--save", "s.toml", "--export", "jobs.csv"
    )
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0].split()[:3] == ["policy", "deadlines", "met"]
    assert [row.split()[0] for row in rows[1:3]] == ["fifo", "shortest-remaining"]
    assert "±" in rows[1]
    assert "*" in done.stdout
    assert rows[-1] == "report: simulation/report.html"
    assert (terminal.folder / "simulation" / "report.html").read_text().startswith("<!doctype html>")
    assert pl.read_csv(terminal.folder / "jobs.csv").height == 120

    # The saved scenario is the same study: nothing is run again.
    runs = sorted((terminal.folder / "simulation" / "runs").iterdir())
    assert terminal.tell("simulate", "s.toml").returncode == 0
    assert sorted((terminal.folder / "simulation" / "runs").iterdir()) == runs

    compared = terminal.tell("compare", "simulation", "--json")
    assert compared.returncode == 0, compared.stderr
    (found,) = json.loads(compared.stdout)["comparisons"]
    assert (found["first"], found["other"], found["n_common"]) == ("fifo", "shortest-remaining", 60)
    assert "60 jobs in common" in terminal.tell("compare", "simulation").stdout


def test_the_jobs_of_a_file_are_simulated_on_this_machine_or_on_the_nodes_of_another_file(terminal: Terminal) -> None:
    (terminal.folder / "jobs.toml").write_text('[[job]]\nname = "a"\nprogram = "true"\ncores = 0.5\nwork = "10s"\n')
    (terminal.folder / "cluster.toml").write_text('[[cluster]]\nnodes = ["tick"]\ncores = 8.0\n')
    few = ("--policy", "fifo", "--seeds", "1", *INLINE)
    here = terminal.tell("simulate", "jobs.toml", *few)
    assert here.returncode == 0, here.stderr
    assert "no `--cluster` was given: the jobs run on one machine with" in here.stderr
    there = terminal.tell("simulate", "--trace", "jobs.toml", "--cluster", "cluster.toml", *few, "--json")
    assert there.returncode == 0, there.stderr
    scenario = json.loads(there.stdout)["scenario"]
    assert scenario["cluster"][0]["nodes"] == ["tick"]
    assert scenario["job"] == [{"name": "a", "cores": 0.5, "work": "10s"}]


def test_a_scenario_of_declared_jobs_can_have_other_jobs_and_another_scenario_declared_ones(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text('[[job]]\nname = "a"\nprogram = "true"\ncores = 0.5\nwork = "10s"\n')
    declared, generated = tmp_path / "declared.toml", tmp_path / "generated.toml"
    cluster = [{"n_nodes": 1, "cores": 4.0}]
    declared.write_text(scenario_of(None, {"trace": str(jobs), "policies": ["fifo"], "cluster": cluster}, ())[0].toml())
    generated.write_text(scenario_of(None, {"policies": ["fifo"], "cluster": cluster}, ())[0].toml())
    other, _ = scenario_of(declared, {"trace": "generator:poisson"}, ())
    assert (other.scaling.name, other.job) == ("rigid", ())
    other, _ = scenario_of(generated, {"trace": str(jobs)}, ())
    assert (other.scaling.name, len(other.job)) == ("declared", 1)


def test_jobs_with_parameter_servers_scale_as_a_table_of_layers_says(terminal: Terminal) -> None:
    (terminal.folder / "net.csv").write_text("forward_s,backward_s,parameter_bytes\n0.01,0.03,8e6\n0.03,0.05,5e7\n")
    arguments = (
        "simulate",
        "--trace",
        "generator:optimus:n_jobs=4",
        "--cluster",
        "4x4",
        "--seeds",
        "1",
        "--json",
        *INLINE,
    )
    done = terminal.tell(*arguments, "--policy", "smd", "--policy", "optimus", "--scaling", "layered:tables=net.csv")
    assert done.returncode == 0, done.stderr
    (terminal.folder / "net.csv").write_text("forward_s,backward_s,parameter_bytes\n0.01,0.03,8e6\n0.03,slow,5e7\n")
    done = terminal.tell(*arguments, "--scaling", "layered:tables=net.csv")
    assert done.returncode == 2
    assert "'slow' in row 2 of 'net.csv'" in done.stderr


def test_without_a_policy_a_usual_few_are_compared(terminal: Terminal) -> None:
    done = terminal.tell("simulate", "--jobs", "5", "--seeds", "1", "--cluster", "1x2", *INLINE)
    assert done.returncode == 0, done.stderr
    assert [row.split()[0] for row in done.stdout.splitlines()[1:5]] == list(USUAL_POLICIES)
    assert "no `--policy` was given" in done.stderr


@pytest.mark.parametrize("folder", ["/proc/here", "taken", "taken/below", ""])
def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_is_computed(
    terminal: Terminal, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (terminal.folder / "taken").touch()
    monkeypatch.setattr(Study, "run", None)
    done = terminal.tell("simulate", *SMALL, "--out", folder)
    assert done.returncode == 2
    assert done.stderr.startswith("error: results must go into a folder that can be written to")
    assert folder in done.stderr


def test_why_tells_of_a_simulated_job_what_each_policy_decided(terminal: Terminal) -> None:
    options = ("--policy", "fifo", "--policy", "elastic-mip", "--scaling", "elastic", "--jobs", "20", "--seeds", "2")
    assert terminal.tell("simulate", *options, *INLINE, "--export", "jobs.csv").returncode == 0
    name = pl.read_csv(terminal.folder / "jobs.csv")["id"][7]

    told = terminal.tell("why", name, "--study", "simulation")
    assert told.returncode == 0, told.stderr
    heads = [line for line in told.stdout.splitlines() if line.endswith(":")]
    assert heads == ["fifo, seed 0:", "elastic-mip, seed 0:"]
    assert "below the best" in told.stdout or "proven best" in told.stdout

    found = [
        json.loads(line) for line in terminal.tell("why", name, "--study", "simulation", "--json").stdout.splitlines()
    ]
    assert {one["job"] for one in found} == {name}
    assert all(one["text"] for one in found)
    assert {one["gap_frac"] is None for one in found if one["policy"] == "fifo"} == {True}

    unknown = terminal.tell("why", "nobody", "--study", "simulation")
    assert unknown.returncode == 2
    assert "got:   'nobody'" in unknown.stderr
    assert terminal.tell("why", "--study", "simulation").returncode == 2


def test_a_policy_alone_is_enough(terminal: Terminal) -> None:
    done = terminal.tell("simulate", "--policy", "fifo", *INLINE, "--json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert [run["summary"]["n_jobs"] for run in found["runs"]] == [200, 200, 200]
    assert found["policies"][0]["policy"] == "fifo"


def test_options_go_over_the_file_s_keys(terminal: Terminal) -> None:
    (terminal.folder / "s.toml").write_text('policies = ["fifo"]\nseeds = 1\n[trace]\njobs = 7\n')
    done = terminal.tell("simulate", "s.toml", *INLINE, "--jobs", "5", "--set", "physics.resize_s=2", "--json")
    found = json.loads(done.stdout)
    assert found["scenario"]["trace"]["jobs"] == found["runs"][0]["summary"]["n_jobs"] == 5
    assert found["scenario"]["physics"] == {"resize_s": 2}


def test_options_go_over_what_the_file_says_in_short(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text(
        'policies = ["fifo"]\ntrace = "generator:diurnal:7"\ndeadlines = "uniform:1.2,4"\nscaling = "elastic"\n'
    )
    settings = ("deadlines.high=5", "scaling.least=2", "trace.generator.duration_s=60.0")
    scenario, notices = scenario_of(file, {"trace.load": 0.5}, settings)
    assert notices == []
    assert scenario.trace.generator == PlugInChoice(name="diurnal", parameters={"n_jobs": 7, "duration_s": 60.0})
    assert scenario.trace.load == 0.5
    assert scenario.deadlines.parameters == {"low": 1.2, "high": 5}
    assert scenario.scaling.parameters == {"least": 2}


def test_a_study_without_a_word_about_deadlines_tells_how_many_were_met(terminal: Terminal) -> None:
    done = terminal.tell("simulate", "--jobs", "5", "--seeds", "1", *INLINE)
    assert done.returncode == 0, done.stderr
    assert "deadlines met" in done.stdout.splitlines()[0]
    assert f"no `--deadlines` was given: each is 1.2 to 4 times what its job takes ({USUAL_DEADLINES})" in done.stderr


@pytest.mark.parametrize(
    ("keys", "has_default"),
    [
        ({}, True),
        ({"trace": "generator:poisson:20"}, True),
        ({"trace": "generator:diurnal", "trace.load": 0.5}, True),
        ({"deadlines": "keep"}, False),
        ({"trace": "generator:modelarts-like"}, False),  # it draws some of its own
    ],
)
def test_generated_jobs_have_deadlines_unless_something_else_is_said(keys: dict[str, Any], has_default: bool) -> None:
    scenario, notices = scenario_of(None, keys, ())
    assert (scenario.deadlines.name == "uniform") == has_default
    assert any("--deadlines" in notice for notice in notices) == has_default


def test_a_scenario_file_says_all_of_its_deadlines(tmp_path: Path) -> None:
    file = tmp_path / "s.toml"
    file.write_text('policies = ["fifo"]\n')
    assert scenario_of(file, {}, ())[0].deadlines.name == "keep"


@pytest.mark.parametrize(
    "arguments",
    [
        ["--jobs", "0"], ["--cluster", "axb"], ["--deadlines", "foo"], ["--trace", "nofile"], ["--trace", "none.toml"],
        ["--seeds", "0"], ["--export", "x.xls"], ["--out", "/proc/x"], ["--trace", "generator:nosuch"],
    ],
    ids=" ".join,
)  # fmt: skip
def test_an_error_comes_without_notices_of_what_was_chosen_instead(terminal: Terminal, arguments: list[str]) -> None:
    done = terminal.tell("simulate", *arguments)
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["error:", "got:", "for:", "to"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--policy", "ffo"], "fifo"),
        (["--policy", "fifo", "--trace", "none.csv"], "none.csv"),
        (["--policy", "fifo", "--cluster", "many"], "16x8"),
        (["--policy", "fifo", "--set", "physics.resize"], "physics.resize_s=30"),
        (["--policy", "fifo", "--set", "phisics.resize_s=1"], "physics"),
        (["--policy", "fifo", "--export", "jobs.xls"], ".csv"),
        (["--policy", "fifo", "--processes", "0"], "above zero"),
        (["none.toml"], "none.toml"),
    ],
)
def test_a_slip_is_a_four_part_error(terminal: Terminal, arguments: list[str], words: str) -> None:
    done = terminal.tell("simulate", *arguments)
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["error:", "got:", "for:", "to"]
    assert words in done.stderr
    assert not (terminal.folder / "simulation").exists()


@pytest.mark.parametrize("arguments", [["none"], ["simulation", "--baseline", "greedy"], ["simulation"]], ids=" ".join)
def test_a_comparison_that_cannot_be_made_is_a_four_part_error(terminal: Terminal, arguments: list[str]) -> None:
    assert terminal.tell("simulate", "--policy", "fifo", "--jobs", "3", "--seeds", "1", *INLINE).returncode == 0
    done = terminal.tell("compare", *arguments)
    assert done.returncode == 2
    assert [line.split()[0] for line in done.stderr.splitlines()] == ["error:", "got:", "for:", "to"]


@pytest.mark.parametrize("command", ["simulate --policy fifo", "compare simulation"])
def test_without_the_extra_a_user_is_told_what_to_install(terminal: Terminal, command: str) -> None:
    without = "sys.modules.update(dict.fromkeys(['scipy', 'polars', 'matplotlib']))"
    program = f"import sys; {without}; sys.argv[1:] = {command.split()}; from punctual.cli import main; main()"
    process = terminal.start_python("-c", program)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 2, errors
    assert "pip install matplotlib polars scipy tomli-w" in errors


@pytest.fixture
def interruptible() -> Iterator[None]:
    """A shell that starts tests in the background has them ignore Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_is_not_lost_where_a_function_drops_exceptions() -> None:
    """As destructors do: what is raised there is printed, and the study would go on."""
    progress = StudyProgress(n_runs=2, n_done=0, n_found=0, done_frac=0.0)
    told: list[StudyProgress] = []
    with stopping_where_told(told.append) as tell:
        tell(progress)
        with suppress(BaseException):
            signal.raise_signal(signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            tell(progress)
        with pytest.raises(KeyboardInterrupt):  # the second one does not wait
            signal.raise_signal(signal.SIGINT)
    assert told == [progress]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_ctrl_c_leaves_finished_results_and_nothing_else(terminal: Terminal) -> None:
    runs = terminal.folder / "simulation" / "runs"
    command = ("simulate", "--policy", "fifo", "--seeds", "400", "--jobs", "300", "--processes", "2")
    process = terminal.start(*command)
    wait_until(lambda: any(runs.glob("[0-9a-f]*/run.json")))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 130, errors
    assert "is not run again" in errors
    assert not list(runs.glob(".*"))
    assert all((run / "jobs.parquet").is_file() for run in runs.iterdir())
