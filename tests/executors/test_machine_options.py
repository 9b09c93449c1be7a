"""Options of the providers of machines, and Slurm's commands that are missing, refuse or do not answer."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from punctual.core.errors import InvalidSpec
from punctual.core.ids import NodeId
from punctual.core.pools import Market, PoolSpec
from punctual.core.resources import Resources
from punctual.executors import ray_machines, slurm_machines
from punctual.executors.cluster.machines import ClusterPlace, MachinesUnknown, PoolTerms
from punctual.executors.slurm_machines import SlurmMachines

SPEC = PoolSpec(name="spot", capacity=Resources(cores=8.0, gpus=2), market="spot", most=4)
NODES = [NodeId("spot-0"), NodeId("spot-1")]

Commands = Callable[..., None]


def terms(options: Mapping[str, Any] | None = None, amounts: Mapping[str, float] | None = None) -> PoolTerms:
    return PoolTerms(
        spec=SPEC, price_usd_h=1.0, amounts={"cores": 8.0} if amounts is None else amounts, options=options or {}
    )


def place(folder: Path, address: str = "head:6379") -> ClusterPlace:
    return ClusterPlace(address=address, name="service-1", folder=str(folder))


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Commands:
    """Return a maker of commands of Slurm, scripts of a shell, that are found in place of real ones."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(**scripts: str) -> None:
        for name in ("sbatch", "squeue", "scancel"):
            (tmp_path / name).write_text(f"#!/bin/sh\n{scripts.get(name, 'true')}\n")
            (tmp_path / name).chmod(0o700)

    make()
    return make


def slurm(
    folder: Path,
    options: Mapping[str, Any] | None = None,
    of_pool: Mapping[str, Any] | None = None,
    amounts: Mapping[str, float] | None = None,
) -> SlurmMachines:
    return slurm_machines.provider([terms(of_pool, amounts)], place(folder), options or {})


WRONG_OF_SLURM: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "an unknown key": ({"quue": 1}, {}, "must be an option of machines of Slurm"),
    "a key of another table": ({}, {"wait_s": 5.0}, "must be an option of machines of Slurm"),
    "a wait that is text": ({"wait_s": "1m"}, {}, "`wait_s` must be seconds"),
    "a wait that is endless": ({"wait_s": float("inf")}, {}, "`wait_s` must be seconds"),
    "a command that is none": ({"ray": 3}, {}, "`ray` must be a command"),
    "options as one text": ({}, {"sbatch": "--constraint=spot"}, "`sbatch` must be a list of options"),
    "an option that is no text": ({}, {"sbatch": [1]}, "`sbatch` must be a list of options"),
    "a value alone": ({}, {"sbatch": ["--partition", "cloud"]}, "one text, its value included"),
    "a script": ({"sbatch": ["train.sh"]}, {}, "one text, its value included"),
    "another name": ({}, {"sbatch": ["-Jmine"]}, "without `--job-name`"),
    "an array": ({}, {"sbatch": ["--array=1-9"]}, "without `--array`"),
    "another cluster": ({"sbatch": ["-M", "far"]}, {}, "without `--clusters`"),
}


@pytest.mark.parametrize("kind", WRONG_OF_SLURM)
def test_wrong_options_of_slurm_are_refused_in_four_parts(kind: str, commands: Commands, tmp_path: Path) -> None:
    options, of_pool, must = WRONG_OF_SLURM[kind]
    with pytest.raises(InvalidSpec) as refused:
        slurm(tmp_path, options, of_pool)
    assert must in refused.value.must
    assert refused.value.where in ("`machines.options`", "`options` of pool 'spot'")
    assert refused.value.remedy


def test_without_slurm_the_user_is_told_where_to_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(InvalidSpec, match="no `sbatch`"):
        slurm(tmp_path)


def test_an_address_for_clients_is_none_for_nodes(commands: Commands, tmp_path: Path) -> None:
    for module in (slurm_machines, ray_machines):
        with pytest.raises(InvalidSpec, match="which is for clients"):
            module.provider([terms()], place(tmp_path, "ray://head:10001"), {})


def test_a_job_asks_for_the_machine_that_the_pool_describes(commands: Commands, tmp_path: Path) -> None:
    commands(sbatch=f'for each; do echo "$each"; done >> {tmp_path}/asked; echo 7')
    options = {"sbatch": ["--account=ml"], "ray": "apptainer exec image ray"}
    amounts = {"cores": 8.0, "gpus": 2.0, "memory_gib": 1.5}
    provider = slurm(tmp_path, options, {"sbatch": ["--partition=cloud"]}, amounts=amounts)
    assert list(provider.start(SPEC, NODES[:1]).nodes) == NODES[:1]
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {"--job-name=spot-0@service-1", "--cpus-per-task=8", "--gres=gpu:2", "--mem=1536M", "--no-requeue"} <= set(
        asked
    )
    assert asked.index("--account=ml") < asked.index("--partition=cloud")
    assert asked[-1] == (
        "--wrap=apptainer exec image ray start --address=head:6379 "
        "--labels=punctual.machine=spot-0,punctual.service=service-1 --block --disable-usage-stats --num-cpus=8 --num-gpus=2"
    )


def test_a_pool_that_names_no_cores_asks_for_whole_nodes(commands: Commands, tmp_path: Path) -> None:
    commands(sbatch=f'for each; do echo "$each"; done >> {tmp_path}/asked; echo 7')
    slurm(tmp_path, amounts={}).start(SPEC, NODES[:1])
    asked = set((tmp_path / "asked").read_text().splitlines())
    assert {"--exclusive", "--mem=0"} <= asked
    assert not any("num-cpus" in each or "cpus-per-task" in each for each in asked)


def test_an_order_that_slurm_refuses_in_part_says_why(commands: Commands, tmp_path: Path) -> None:
    refusal = "echo 'sbatch: error: Batch job submission failed: QOSMaxSubmitJobPerUserLimit' >&2; exit 1"
    commands(sbatch=f"[ -e {tmp_path}/one ] && {{ {refusal}; }}; touch {tmp_path}/one; echo 7")
    provider = slurm(tmp_path)
    started = provider.start(SPEC, NODES)
    assert list(started.nodes) == NODES[:1]
    assert started.cause == "Slurm: Batch job submission failed: QOSMaxSubmitJobPerUserLimit"
    commands(squeue="echo '7|RUNNING|NONE|None|spot-0@service-1'")
    assert list(provider.machines()) == NODES[:1]


NO_ANSWERS = {
    "missing": "rm -f $0; exec sh -c 'exit 127'",
    "controller away": "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
    "silent failure": "exit 3",
}


@pytest.mark.parametrize("kind", NO_ANSWERS)
def test_without_an_answer_machines_are_unknown_and_not_lost(kind: str, commands: Commands, tmp_path: Path) -> None:
    provider = slurm(tmp_path)
    commands(sbatch="echo 7", squeue="echo '7|RUNNING|NONE|None|spot-0@service-1'")
    provider.start(SPEC, NODES[:1])
    provider.machines()
    commands(squeue=NO_ANSWERS[kind])
    with pytest.raises(MachinesUnknown, match="Slurm does not tell its jobs"):
        provider.machines()
    commands(squeue="echo '7|RUNNING|NONE|None|spot-0@service-1'")
    assert list(provider.machines()) == NODES[:1]
    assert provider.lost() == {}


def test_lines_that_are_no_jobs_of_this_service_do_not_count(commands: Commands, tmp_path: Path) -> None:
    lines = ("", "nonsense", "7|RUNNING|NONE|None|spot-0@other", "8_1|RUNNING|x|None|spot-0@service-1", "9|RUNNING|1|2")
    commands(squeue="\n".join(f"echo '{line}'" for line in lines))
    provider = slurm(tmp_path)
    assert list(provider.machines()) == []


def test_the_user_s_formats_of_squeue_do_not_count(
    commands: Commands, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SQUEUE_STATES", "PENDING")
    commands(squeue="[ -z \"$SQUEUE_STATES\" ] && echo '7|RUNNING|NONE|None|spot-0@service-1'")
    provider = slurm(tmp_path)
    assert list(provider.machines()) == NODES[:1]
    assert os.environ["SQUEUE_STATES"] == "PENDING"


def pool(name: str = "spot", market: Market = "spot", **changes: Any) -> PoolTerms:
    spec = PoolSpec(name=name, capacity=SPEC.capacity, market=market, most=4)
    return PoolTerms(spec=spec, **{"amounts": {"cores": 8.0}, **changes})


WRONG_OF_RAY: dict[str, tuple[list[PoolTerms], dict[str, Any], str]] = {
    "an unknown key": ([pool()], {"speed": 1}, "must be an option of machines of Ray"),
    "an unknown key of a pool": ([pool(options={"sbatch": []})], {}, "must be an option of machines of Ray"),
    "a wait below zero": ([pool()], {"wait_s": -1}, "`wait_s` must be seconds"),
    "no cores": ([pool(amounts={})], {}, "must say its `cores`"),
    "labels as a list": ([pool(options={"labels": ["spot"]})], {}, "`labels` must be a table of texts"),
    "no label": ([pool(options={"labels": {}})], {}, "`labels` must be a table of texts"),
    "own machines without labels": ([pool(market="own")], {}, "must say the `labels`"),
    "pools of one label": ([pool(), pool("more")], {}, "must tell the nodes of one pool from those of another"),
}


@pytest.mark.parametrize("kind", WRONG_OF_RAY)
def test_wrong_options_of_ray_are_refused_in_four_parts(kind: str, tmp_path: Path) -> None:
    pools, options, must = WRONG_OF_RAY[kind]
    with pytest.raises(InvalidSpec) as refused:
        ray_machines.provider(pools, place(tmp_path), options)
    assert must in refused.value.must
    assert refused.value.remedy
