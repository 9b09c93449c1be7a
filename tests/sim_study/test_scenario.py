"""A scenario says what is run, or says what is wrong with it and where."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.resources import Resources
from punctual.request.cluster_file import PLENTY_CORES, NodeGroup, n_devices, nodes_of
from punctual.sim.choice import PlugInChoice, value_of
from punctual.sim.scenario import DEFAULT_LOAD, DEFAULT_N_JOBS, Scenario, toml_of

LEAST: dict[str, Any] = {"policies": ["fifo"]}


def refused(keys: dict[str, Any]) -> InvalidSpec:
    with pytest.raises(InvalidSpec) as caught:
        Scenario.of({**LEAST, **keys}, "x.toml")
    return caught.value


def test_what_is_not_said_has_a_default() -> None:
    scenario = Scenario.of(LEAST)
    assert scenario.seeds == (0, 1, 2)
    assert scenario.trace.generator is not None
    assert (scenario.trace.generator.name, scenario.trace.jobs) == ("poisson", DEFAULT_N_JOBS)
    assert scenario.trace.load == DEFAULT_LOAD
    assert n_devices(scenario.cluster) == 32
    assert scenario.controller is None


def test_a_number_of_seeds_stands_for_the_first_ones() -> None:
    assert Scenario.of({**LEAST, "seeds": 4}).seeds == (0, 1, 2, 3)
    assert Scenario.of({**LEAST, "seeds": [7, 9]}).seeds == (7, 9)


@pytest.mark.parametrize("text", ["uniform-slack:1.2,4", "uniform-slack:low=1.2,high=4", "uniform-slack:1.2,high=4.0"])
def test_parameters_by_place_and_by_name_are_the_same(text: str) -> None:
    chosen = Scenario.of({**LEAST, "deadlines": text}).deadlines
    table = Scenario.of({**LEAST, "deadlines": {"name": "uniform-slack", "low": 1.2, "high": 4}}).deadlines
    assert chosen.parameters == table.parameters == {"low": 1.2, "high": 4}


@pytest.mark.parametrize(
    ("text", "parameters"),
    [
        ("x", {}),
        ("x:a=1", {"a": 1}),
        ("x:a=1.5,b=true,c=word,d=[1,2]", {"a": 1.5, "b": True, "c": "word", "d": [1, 2]}),
    ],
)
def test_values_on_the_command_line_are_as_in_toml(text: str, parameters: dict[str, Any]) -> None:
    assert PlugInChoice.model_validate(text).parameters == parameters


@pytest.mark.parametrize("text", ["uniform", "uniform:1.2,4", "uniform:1.2,high=4"])
def test_a_choice_is_read_as_it_was_written(text: str) -> None:
    choice = PlugInChoice.model_validate(text)
    assert PlugInChoice.model_validate(choice.model_dump()) == choice


@pytest.mark.parametrize(
    ("keys", "where", "words"),
    [
        ({"polices": []}, "polices", "policies"),
        ({"trace": {"jbos": 3}}, "trace.jbos", "jobs"),
        ({"trace": {"jobs": "many"}}, "trace.jobs", "whole number"),
        ({"trace": {"jobs": 0}}, "trace.jobs", "greater than or equal to 1"),
        ({"trace": {"load": True}}, "trace.load", "number"),
        ({"trace": {"load": float("inf")}}, "trace.load", "finite"),
        ({"trace": {"file": "a", "generator": "poisson"}}, "trace", "from a file or from a generator"),
        ({"trace": "generator:poison"}, "trace", "poisson"),
        ({"trace": {"load": 0.5, "generator": {"name": "poisson", "load": 0.9}}}, "trace", "0.5 and 0.9"),
        ({"trace": {"jobs": 20, "generator": {"name": "poisson", "n_jobs": 30}}}, "trace", "20 and 30"),
        ({"cluster": "16 nodes"}, "cluster", "16x8"),
        ({"cluster": [{"n_nodes": 2, "gpu": 8}]}, "cluster[0].gpu", "gpus"),
        ({"cluster": []}, "cluster", "machines"),
        ({"deadlines": "unifrom-slack"}, "deadlines", "uniform-slack"),
        ({"deadlines": "uniform-slack:lwo=2"}, "deadlines.lwo", "low"),
        ({"deadlines": "uniform-slack:low=wide"}, "deadlines.low", "number"),
        ({"deadlines": "uniform-slack:4,1"}, "deadlines", "low"),
        ({"deadlines": "keep:1"}, "deadlines", "as many values"),
        ({"scaling": "elastc"}, "scaling", "elastic"),
        ({"scaling": "measured"}, "scaling.tables", "NAME:tables="),
        ({"scaling": {"name": "adaptive-batch", "drifts": True}}, "scaling.tables", "no `tables`"),
        ({"physics": {"resize_s": -1}}, "physics", "resize_s"),
        ({"physics": {"resizes": 1}}, "physics.resizes", "resize_s"),
        ({"seeds": 999_999_999_999}, "seeds", "at most 10,000 seeds"),
        ({"trace": {"jobs": 99_999_999_999}}, "trace.jobs", "less than or equal to 10000000"),
        ({"trace": "generator:poisson:99999999999"}, "trace.generator", "at most 10,000,000"),
        ({"trace": {"unpacked_gib_max": 0.0}}, "trace.unpacked_gib_max", "greater than 0"),
        ({"cluster": "99999999x8"}, "cluster", "less than or equal to 100000"),
        ({"cluster": "9" * 5000 + "x8"}, "cluster", "16x8"),
        ({"cluster": "60000x8+60000x8"}, "cluster", "at most 100,000 nodes"),
        ({"cluster": [{"n_nodes": 999_999_999}]}, "cluster[0].n_nodes", "less than or equal to 100000"),
        ({"cluster": [{"cores": float("inf")}]}, "cluster[0].cores", "finite"),
        ({"scaling": "parameter-server:n_workers_max=9999999"}, "scaling", "1 to 1000"),
        ({"scaling": "layered"}, "scaling.tables", "NAME:tables="),
        ({"scaling": "layered:tables=nowhere.csv"}, "scaling", "can be read"),
        ({"controller": "remaining-costs"}, "controller", "remaining-cost"),
        ({"policies": ["fifo", "fifo"]}, "policies", "label"),
        ({"policies": ["ffo"]}, "policies", "fifo"),
        ({"policies": []}, "policies", "empty"),
        ({"policies": [{"label": "nameless"}]}, "policies[0].name", "given"),
        ({"seeds": 0}, "seeds", "how many seeds"),
        ({"policies": ["fifo:"]}, "", "colon"),
        ({"deadlines": "uniform-slack:4,1"}, "deadlines", "low=4, high=1"),
        ({"seeds": "3"}, "seeds", "list"),
        ({"seeds": [0, 1, 0]}, "seeds", "each once"),
        ({"seeds": [-1]}, "seeds", "greater than or equal to 0"),
    ],
)  # fmt: skip
def test_a_slip_is_told_with_its_place_and_a_way_out(keys: dict[str, Any], where: str, words: str) -> None:
    error = refused(keys)
    assert f"`{where}" in error.where
    assert "x.toml" in error.where
    assert words in str(error)
    assert error.remedy


def test_a_policy_may_appear_twice_under_different_labels() -> None:
    twice = [{"name": "fifo", "label": "a"}, {"name": "fifo", "label": "b"}]
    assert [one.shown for one in Scenario.of({"policies": twice}).policies] == ["a", "b"]


def test_a_scenario_survives_being_written(tmp_path: Path) -> None:
    scenario = Scenario.of(
        {
            "policies": ["fifo", {"name": "shortest-remaining", "label": "SRTF"}], "seeds": [3, 1], "controller": None,
            "trace": {"generator": "poisson", "jobs": 20, "load": 1.5}, "deadlines": "uniform-slack:1.2,4",
            "scaling": "rigid", "physics": {"resize_s": 30.0, "solver_s": 1.0},
            "cluster": [{"n_nodes": 2, "gpus": 4, "cores": 16.0, "memory_gib": 64.0, "device": "V100"}],
        }
    )  # fmt: skip
    path = tmp_path / "scenario.toml"
    path.write_text(scenario.toml(), encoding="utf-8")
    assert Scenario.read(path) == scenario
    assert Scenario.read(path).keys() == scenario.keys()


def test_a_trace_lies_beside_its_scenario(tmp_path: Path) -> None:
    path = tmp_path / "scenario.toml"
    path.write_text('policies = ["fifo"]\ntrace = "jobs.csv"\n', encoding="utf-8")
    assert Scenario.read(path).trace.file == str(tmp_path / "jobs.csv")


@pytest.mark.parametrize("text", [None, "policies = [", "\udcff", "a = " + "[" * 3000, "seeds = " + "9" * 5000])
def test_a_file_that_is_none_is_a_user_s_error(tmp_path: Path, text: str | None) -> None:
    path = tmp_path / "scenario.toml"
    if text is not None:
        path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(InvalidSpec) as caught:
        Scenario.read(path)
    assert str(path) in caught.value.where


@pytest.mark.parametrize("value", ["[" * 3000, "9" * 5000])
def test_a_value_on_the_command_line_that_is_no_toml_is_text(value: str) -> None:
    assert value_of(value) == value


def test_nodes_are_numbered_so_that_their_order_is_that_of_the_groups() -> None:
    groups = (NodeGroup(n_nodes=9, gpus=8, device="V100"), NodeGroup(n_nodes=3, cores=16.0, memory_gib=2.0))
    nodes = nodes_of(groups)
    assert [node.id for node in nodes] == sorted(node.id for node in nodes)
    assert [node.device for node in nodes] == ["V100"] * 9 + [""] * 3
    assert nodes[0].capacity.cores == 8 * PLENTY_CORES
    assert nodes[11].capacity == Resources(16.0, 0, 2 * 2**30)


@pytest.mark.parametrize("text", ["16x8", "16x8:V100+4x4:T4", "1x0"])
def test_a_cluster_as_text_is_written_as_it_was_read(text: str) -> None:
    assert Scenario.of({**LEAST, "cluster": text}).keys()["cluster"] == text


@pytest.mark.parametrize(
    "group",
    [
        {"nodes": ["tick", "tock"], "gpus": 8},
        {"gpus": 8, "device": "RTX 2080"},
        {"gpus": 8, "device": "A+B"},
        {"gpus": 8, "others": {"disk_mbps": 100.0}},
        {"gpus": 8, "memory_gib": 2.0},
    ],
)
def test_a_cluster_that_no_text_can_say_is_written_as_tables(group: dict[str, Any]) -> None:
    scenario = Scenario.of({**LEAST, "cluster": [group]})
    assert Scenario.of(scenario.keys()) == scenario


def test_what_is_written_is_what_python_reads() -> None:
    table: dict[str, object] = {
        "a": [1, True, {"b": 'a "word"\n', "none": None}],
        "c d": {"e": float("inf"), "f": [], "none": None},
        "g": None,
    }
    assert tomllib.loads(toml_of(table)) == {
        "a": [1, True, {"b": 'a "word"\n'}], "c d": {"e": float("inf"), "f": []},
    }  # fmt: skip


@pytest.mark.parametrize(
    "keys",
    [
        {"cluster": [{"gpus": 2, "memory_gib": 1e308}]},
        {"policies": ["smd"], "pool": [{"name": "a", "most": 1, "cores": 1.0, "memory_gib": 1e308}]},
        {"policies": [{"name": "smd", "subset_size": -(10**400)}]},
    ],
)
def test_amounts_beyond_all_numbers_are_refused_in_words(keys: dict[str, Any]) -> None:
    with pytest.raises(InvalidSpec):
        Scenario.of({"policies": ["fifo"], **keys})
