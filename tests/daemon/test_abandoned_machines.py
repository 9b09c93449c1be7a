"""Machines of pools whose daemon was killed: they are gone on with, or found and ended, and never paid for unseen."""

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.daemon.live_jobs import PACED, submission
from tests.daemon.test_cluster import until_all
from tests.forked_python import ForkedPython, punctual
from tests.plants.cluster import FixedMembers
from tests.waiting import wait_until

from punctual.cli.doctor import findings
from punctual.core.errors import InvalidSpec
from punctual.daemon import host_executor
from punctual.daemon.host_options import HostOptions
from punctual.daemon.machine_providers import abandoned, end_abandoned, fleets, has_machines
from punctual.daemon.opening import new_host
from punctual.daemon.restore import AllEndedError, resumed_host
from punctual.daemon.retention import RetentionLimits, prune
from punctual.daemon.run_folder import run_named

FILE = """
[machines]
provider = "{provider}"
options = {{ cloud = "{cloud}" }}

[[pool]]
name = "{pool}"
market = "on-demand"
cores = 64.0
price_usd_h = 1.0
least = 2
most = 3
"""
PROVIDER = "tests.plants.file_machines:provider"


class Cloud:
    """A folder of machines, and the file of pools of a service."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder / "cloud", folder / "cluster.toml"
        self.folder.mkdir()
        self.describe()

    def describe(self, provider: str = PROVIDER, pool: str = "spot") -> None:
        self.file.write_text(FILE.format(provider=provider, cloud=self.folder, pool=pool))

    @property
    def machines(self) -> list[str]:
        return sorted(file.name.partition("@")[2] for file in self.folder.glob("*@*"))

    def set_away(self, is_away: bool) -> None:
        (self.folder / "away").touch() if is_away else (self.folder / "away").unlink()

    @property
    def options(self) -> HostOptions:
        return replace(PACED, engine="ray", policy="least-cost", cluster=str(self.file), shared=True)


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cloud:
    monkeypatch.setattr(host_executor, "members_of", lambda run, options: FixedMembers({}))
    return Cloud(tmp_path)


KILLED = """
import os, signal, sys
from tests.daemon.test_abandoned_machines import killed_daemon
killed_daemon(sys.argv[1], sys.argv[2])
"""


def killed_daemon(cluster: str, job: str) -> None:
    """Be a service that has the least machines, and is killed."""
    host_executor.members_of = lambda run, options: FixedMembers({})
    options = replace(PACED, engine="ray", policy="least-cost", cluster=cluster, shared=True)
    with new_host("daemon", options, facts={"is_service": True}) as host:
        if job:
            host.submit(submission(job))
        while not [lack for lack in host.lacks() if lack.n_starting == 2]:
            host.run_for(0.1)
        os._exit(9)


def kill_a_daemon(cloud: Cloud, job: str = "") -> None:
    with ForkedPython[bytes]([sys.executable, "-c", KILLED, str(cloud.file), job]) as daemon:
        assert daemon.wait() == 9
    wait_until(lambda: cloud.machines == ["spot-0", "spot-1"])


def test_machines_end_with_their_daemon_and_nothing_is_told_of_them(cloud: Cloud) -> None:
    with new_host("daemon", cloud.options) as host:
        until_all(host, lambda: cloud.machines == ["spot-0", "spot-1"])
        (fleet,) = fleets(host.run_folder)
        assert fleet.is_kept
        assert not abandoned()
    assert not cloud.machines
    assert not abandoned()


def test_the_parent_of_a_killed_daemon_without_jobs_has_the_next_one_go_on_with_its_machines(cloud: Cloud) -> None:
    kill_a_daemon(cloud)
    run = run_named("daemon")
    assert has_machines(run)
    with resumed_host(run, is_service=True) as host:
        host.run_for(1.0)
        assert cloud.machines == ["spot-0", "spot-1"], "none is started or ended"
    assert not cloud.machines
    assert not has_machines(run)
    with pytest.raises(AllEndedError), resumed_host(run, is_service=True):
        pass


def test_machines_that_no_daemon_goes_on_with_are_told_and_ended_by_the_next_one(cloud: Cloud) -> None:
    kill_a_daemon(cloud)
    run = run_named("daemon")
    prune(RetentionLimits(age_s=-1.0))
    assert [fleet.run for fleet in abandoned()] == [run], "what is left of a run stays as long as its machines"
    (finding,) = [each for each in findings() if each.about == "machines"]
    assert finding.level == "fault"
    assert "`punctual clean` ends them" in finding.remedy
    cloud.set_away(True)
    end_abandoned()
    with pytest.raises(InvalidSpec, match="the cloud does not answer"):
        abandoned()[0].end()
    cloud.set_away(False)
    assert len(cloud.machines) == 2
    end_abandoned()
    assert not cloud.machines
    assert not abandoned()


def test_machines_wait_with_the_jobs_of_a_killed_daemon_until_these_are_given_up(cloud: Cloud) -> None:
    kill_a_daemon(cloud, "a")
    assert not abandoned()
    (finding,) = [each for each in findings() if each.about == "machines"]
    assert finding.level == "warning"
    done = punctual("stop", "a")
    assert done.returncode == 0, done.stderr
    assert not cloud.machines
    assert not abandoned()


@pytest.mark.parametrize("command", [["clean"], ["down"]])
def test_commands_end_machines_that_are_left(cloud: Cloud, command: list[str]) -> None:
    kill_a_daemon(cloud)
    assert "punctual clean ends them" in punctual("ps").stderr
    done = punctual(*command)
    assert done.returncode == 0, done.stderr
    assert "spot-0, spot-1" in done.stdout + done.stderr
    assert not cloud.machines


def test_machines_of_a_provider_that_the_file_names_no_more_are_ended_on_their_own_terms(cloud: Cloud) -> None:
    kill_a_daemon(cloud, "a")
    cloud.describe(provider="tests.plants.driven_market:provider")
    cloud.file.write_text(cloud.file.read_text().replace("cloud = ", "now = "))
    now = cloud.folder
    cloud.file.write_text(cloud.file.read_text().replace(str(now), str(now / "now")))
    (now / "now").write_text("0.0")
    run = run_named("daemon")
    with resumed_host(run) as host:
        host.run_for(0.5)
        (left,) = abandoned()
        assert left.end() == ["spot-0", "spot-1"]
        host.stop(host.jobs()[0].id, "it is enough")
    assert not cloud.machines


def test_a_pool_that_the_file_has_no_more_keeps_its_machines_only_as_long_as_they_are_used(cloud: Cloud) -> None:
    kill_a_daemon(cloud)
    cloud.describe(pool="other")
    with resumed_host(run_named("daemon"), is_service=True) as host:
        until_all(host, lambda: cloud.machines == ["other-0", "other-1"])


def test_a_daemon_that_cannot_end_its_machines_leaves_a_record_of_them(cloud: Cloud) -> None:
    with new_host("daemon", cloud.options) as host:
        until_all(host, lambda: len(cloud.machines) == 2)
        cloud.set_away(True)
    assert len(cloud.machines) == 2
    assert abandoned()
    cloud.set_away(False)
    end_abandoned()
    assert not cloud.machines
