"""One Slurm on this machine for all tests; skipped where it is not installed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.plants.slurm_cluster import SlurmCluster, missing_program


@pytest.fixture(scope="session")
def slurm_session(environment_of_its_own: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    if (program := missing_program()) is not None:
        pytest.skip(f"Slurm is not installed: no {program} (apt-get install slurm-wlm)")
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    try:
        cluster.open()
        yield cluster
    finally:
        cluster.close()


@pytest.fixture
def slurm(slurm_session: SlurmCluster, monkeypatch: pytest.MonkeyPatch) -> SlurmCluster:
    """Slurm, whose commands this process finds too."""
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, slurm_session.environment[name])
    return slurm_session


@pytest.fixture
def stand_in(tmp_path: Path) -> Path:
    """A program that is started in place of Ray: it notes its arguments in the file `started` and goes on until it is ended."""
    program = tmp_path / "ray"
    program.write_text(f'#!/bin/sh\necho "$SLURMD_NODENAME $@" >> "{tmp_path}/started"\nwhile :; do sleep 0.2; done\n')
    program.chmod(0o700)
    (tmp_path / "started").touch()
    return program
