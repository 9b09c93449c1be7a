"""Machines of pools that are jobs of a real Slurm; a program stands in for Ray on them."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.plants.slurm_cluster import GRACE_S, SlurmCluster
from tests.waiting import wait_until

from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.executors.cluster.machines import ClusterPlace, MachinesUnknown, PoolTerms
from punctual.executors.slurm_machines import SlurmMachines

SPOT = PoolSpec(name="spot", capacity=Resources(cores=1.0), market="spot", most=4)

Maker = Callable[..., SlurmMachines]


@pytest.fixture
def make(slurm: SlurmCluster, stand_in: Path, tmp_path: Path) -> Iterator[Maker]:
    """Return a maker of the provider of one service; what it has started is ended after the test."""
    place = ClusterPlace(address="127.0.0.1:1", name=f"service-{tmp_path.name}", folder=str(tmp_path))
    made = list[SlurmMachines]()

    def make(sbatch: Sequence[str] = ("--constraint=spot",), pool: PoolSpec = SPOT, **changes: Any) -> SlurmMachines:
        terms = PoolTerms(spec=pool, price_usd_h=1.0, amounts={"cores": 1.0}, options={"sbatch": sbatch})
        made.append(SlurmMachines([terms], place, ray=str(stand_in), **changes))
        return made[-1]

    yield make
    for provider in made:
        provider.close(for_good=True)
    wait_until(lambda: not [job for job in slurm.jobs() if place.name in job])


def machines(provider: SlurmMachines) -> list[NodeId]:
    return sorted(provider.machines())


def noticed(provider: SlurmMachines) -> Mapping[NodeId, float]:
    """Return the notices after another look."""
    provider.machines()
    return provider.noticed()


def losses(provider: SlurmMachines) -> Mapping[NodeId, str]:
    """Return the lost machines after another look."""
    provider.machines()
    return provider.lost()


def names(*numbers: int) -> list[NodeId]:
    return [NodeId(f"spot-{i}") for i in numbers]


def await_running(slurm: SlurmCluster, n_jobs: int) -> None:
    wait_until(lambda: [job for job in slurm.jobs() if job.endswith(" RUNNING")], lambda jobs: len(jobs) == n_jobs)


def test_a_machine_is_a_job_that_starts_ray_with_its_name_and_its_end_is_the_jobs(
    make: Maker, slurm: SlurmCluster, tmp_path: Path
) -> None:
    provider = make()
    started = provider.start(SPOT, names(0, 1))
    assert (list(started.nodes), started.cause) == (names(0, 1), "")
    lines = wait_until(lambda: (tmp_path / "started").read_text().splitlines(), lambda lines: len(lines) == 2)
    assert {line.split()[0] for line in lines} == {"up1", "up2"}
    for name in names(0, 1):
        (line,) = (line for line in lines if f"punctual.machine={name}," in line)
        assert " start --address=127.0.0.1:1 " in line
        assert " --block " in line
        assert " --num-cpus=1" in line
    assert machines(provider) == names(0, 1)
    assert provider.lost() == {}
    assert provider.noticed() == {}
    provider.end(names(0))
    assert machines(provider) == names(1)
    wait_until(lambda: len(slurm.jobs()) == 1)
    assert provider.lost() == {}


def test_a_sleeping_node_is_woken_and_sleeps_again(make: Maker, slurm: SlurmCluster, tmp_path: Path) -> None:
    provider = make(["--constraint=cloud"])
    provider.start(SPOT, names(0))
    (line,) = wait_until(lambda: (tmp_path / "started").read_text().splitlines())
    assert line.startswith("cloud")
    assert machines(provider) == names(0)


def test_more_machines_than_there_are_are_given_up_with_slurms_reason(make: Maker, slurm: SlurmCluster) -> None:
    provider = make(wait_s=1.0)
    provider.start(SPOT, names(0, 1))
    await_running(slurm, 2)
    assert list(provider.start(SPOT, names(2)).nodes) == names(2)
    ((name, cause),) = wait_until(lambda: losses(provider)).items()
    assert name == "spot-2"
    assert "has waited for 1 s (Resources)" in cause
    assert machines(provider) == names(0, 1)


def test_a_pool_that_is_refused_says_why(make: Maker) -> None:
    provider = make(["--constraint=none-such"])
    refused = provider.start(SPOT, names(0))
    assert list(refused.nodes) == []
    assert refused.cause == "Slurm: Batch job submission failed: Invalid feature specification"


def test_the_end_of_a_preempted_machine_is_a_notice(make: Maker, slurm: SlurmCluster) -> None:
    pool = replace(SPOT, notice_s=400.0)
    provider = make(pool=pool)
    provider.start(pool, names(0))
    await_running(slurm, 1)
    assert machines(provider) == names(0)
    assert provider.noticed() == {}
    (node,) = slurm.jobs("%N")
    try:
        slurm.ask("sbatch", "--partition=urgent", f"--nodelist={node}", "--job-name=urgent", "--wrap=true")
        ((name, ends_wall),) = wait_until(lambda: noticed(provider)).items()
    finally:
        slurm.ask("scancel", "--name=urgent")
    assert name == "spot-0"
    assert 0.0 < ends_wall - time.time() < GRACE_S + 5.0


def test_the_end_of_a_time_limit_is_a_notice(make: Maker, slurm: SlurmCluster) -> None:
    provider = make(["--constraint=spot", "--time=1"])
    provider.start(SPOT, names(0))
    await_running(slurm, 1)
    ((_, ends_wall),) = wait_until(lambda: noticed(provider)).items()
    assert 0.0 < ends_wall - time.time() <= 61.0


def test_a_machine_whose_job_ends_is_lost_with_its_state(make: Maker, slurm: SlurmCluster) -> None:
    provider = make()
    provider.start(SPOT, names(0, 1))
    await_running(slurm, 2)
    assert len(machines(provider)) == 2
    slurm.ask("scancel", "--name=" + next(name for name in slurm.jobs("%j") if name.startswith("spot-1@")))
    lost = wait_until(lambda: losses(provider))
    assert list(lost) == names(1)
    assert "is CANCELLED" in lost[NodeId("spot-1")]
    assert machines(provider) == names(0)


def test_a_machine_whose_ray_does_not_start_is_lost_with_a_hint(
    make: Maker, stand_in: Path, slurm: SlurmCluster
) -> None:
    stand_in.write_text("#!/bin/sh\nexit 3\n")
    provider = make()
    provider.start(SPOT, names(0))
    wait_until(lambda: not slurm.jobs())
    ((_, cause),) = wait_until(lambda: losses(provider)).items()
    assert "is FAILED (NonZeroExitCode); `--output=FILE`" in cause


def test_another_process_of_the_service_finds_its_machines_and_another_service_does_not(
    make: Maker, slurm: SlurmCluster, tmp_path: Path
) -> None:
    make().start(SPOT, names(0, 1))
    later = make()
    assert machines(later) == names(0, 1)
    pool = PoolTerms(spec=SPOT, price_usd_h=1.0)
    other = SlurmMachines([pool], ClusterPlace(address="a:1", name="other", folder=str(tmp_path)))
    assert machines(other) == []
    other.close(for_good=True)
    assert len(slurm.jobs()) == 2
    later.close(for_good=False)
    assert len(slurm.jobs()) == 2
    later.close(for_good=True)
    wait_until(lambda: not slurm.jobs())


def test_while_the_controller_is_away_nothing_counts_as_lost_and_ends_are_made_up_for(
    make: Maker, slurm: SlurmCluster
) -> None:
    provider = make()
    provider.start(SPOT, names(0, 1))
    await_running(slurm, 2)
    assert len(machines(provider)) == 2
    slurm.end_controller()
    try:
        with pytest.raises(MachinesUnknown, match=r"Unable to contact slurm controller.*machines that are there go on"):
            wait_until(provider.machines, lambda _: False)
        provider.end(names(0))
    finally:
        slurm.start_controller()

    def answered() -> list[NodeId]:
        try:
            return machines(provider)
        except MachinesUnknown:
            return []

    assert wait_until(answered) == names(1)
    wait_until(lambda: len(slurm.jobs()) == 1)
    assert provider.lost() == {}
