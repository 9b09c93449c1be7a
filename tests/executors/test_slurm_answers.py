"""Machines of Slurm by what `squeue` says of them; programs of the test stand in for Slurm's."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from punctual.core.ids import NodeId
from punctual.core.pools import PoolSpec
from punctual.core.resources import Resources
from punctual.executors.cluster.machines import ClusterPlace, MachinesUnknown, PoolTerms
from punctual.executors.slurm_machines import SlurmMachines

SPOT = PoolSpec(name="spot", capacity=Resources(cores=1.0), market="spot", most=4)
_PROGRAM = '#!/bin/sh\necho "$0 $*" >> "{folder}/asked"\ncat "{folder}/answer.$(basename "$0")"\n'


class StandInSlurm:
    """`answer` is what a command prints from now on; `cancelled` are the jobs that were to be cancelled."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        for name in ("sbatch", "squeue", "scancel"):
            (folder / name).write_text(_PROGRAM.format(folder=folder))
            (folder / name).chmod(0o700)
            self.answer(name, [])

    def answer(self, command: str, lines: Sequence[str]) -> None:
        (self._folder / f"answer.{command}").write_text("".join(f"{line}\n" for line in lines))

    def cancelled(self) -> list[str]:
        lines = (self._folder / "asked").read_text().splitlines()
        return [line.split(" ", 1)[1] for line in lines if line.split()[0].endswith("/scancel")]


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandInSlurm:
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    return StandInSlurm(tmp_path)


@pytest.fixture
def machines(slurm: StandInSlurm, tmp_path: Path) -> SlurmMachines:
    """The provider, with one machine that runs as job 7."""
    place = ClusterPlace(address="127.0.0.1:1", name="service", folder=str(tmp_path))
    made = SlurmMachines([PoolTerms(spec=SPOT, price_usd_h=1.0, amounts={"cores": 1.0})], place)
    slurm.answer("sbatch", ["7"])
    slurm.answer("squeue", [_line("RUNNING")])
    assert list(made.start(SPOT, [NodeId("spot-0")]).nodes) == ["spot-0"]
    assert list(made.machines()) == ["spot-0"]
    return made


def _line(state: str, end: str = "N/A") -> str:
    return f"7|{state}|{end}|None|spot-0@service"


def test_a_machine_whose_job_is_completing_ends_now_and_is_lost_when_the_job_has_ended(
    machines: SlurmMachines, slurm: StandInSlurm
) -> None:
    ended_at = round(time.time()) - 1
    slurm.answer("squeue", [_line("COMPLETING", str(ended_at))])
    assert list(machines.machines()) == ["spot-0"], "its processes may still train"
    assert machines.lost() == {}
    assert machines.noticed() == {"spot-0": ended_at}
    slurm.answer("squeue", [_line("PREEMPTED", str(ended_at))])
    assert list(machines.machines()) == []
    assert machines.lost() == {"spot-0": "its job 7 of Slurm is PREEMPTED"}


def test_a_machine_that_was_given_back_is_none_while_its_job_is_completing(
    machines: SlurmMachines, slurm: StandInSlurm
) -> None:
    machines.end([NodeId("spot-0")])
    slurm.answer("squeue", [_line("COMPLETING", "1")])
    assert list(machines.machines()) == []
    assert (machines.noticed(), machines.lost()) == ({}, {})
    machines.close(for_good=True)
    assert slurm.cancelled() == ["7"], "Slurm ends it already"


@pytest.mark.parametrize(("lines", "n_started"), [([], 0), (["Submitted"], 0), (["Be patient", "8;main"], 1)])
def test_a_machine_is_started_if_slurm_names_its_job_whatever_it_says_before(
    machines: SlurmMachines, slurm: StandInSlurm, lines: Sequence[str], n_started: int
) -> None:
    slurm.answer("sbatch", lines)
    started = machines.start(SPOT, [NodeId("spot-1")])
    assert len(started.nodes) == n_started
    assert bool(started.cause) == (not n_started)
    assert not started.cause or "sbatch has answered" in started.cause


def test_a_machine_is_one_job_whatever_options_of_sbatch_are_in_the_environment(
    machines: SlurmMachines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SBATCH_ARRAY_INX", "0-3")
    (tmp_path / "sbatch").write_text(
        '#!/bin/sh\necho "array=$SBATCH_ARRAY_INX" >&2\ntest -z "$SBATCH_ARRAY_INX" && echo 8\n'
    )
    assert list(machines.start(SPOT, [NodeId("spot-1")]).nodes) == ["spot-1"]


@pytest.mark.parametrize("end", [lambda machines: machines.end([NodeId("spot-0")]), lambda machines: None])
def test_a_job_that_does_not_end_is_told_at_the_close(
    machines: SlurmMachines, slurm: StandInSlurm, end: Callable[[SlurmMachines], None]
) -> None:
    end(machines)
    with pytest.raises(MachinesUnknown, match="Slurm has not ended jobs 7 yet"):
        machines.close(for_good=True)
    slurm.answer("squeue", [])
    machines.close(for_good=True)
