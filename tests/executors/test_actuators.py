"""The choice of an actuator, and control groups on a tree of plain files."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.executors.conftest import SPIN, until

from punctual.core.errors import InvalidSpec
from punctual.core.ids import JobId
from punctual.executors.local import cgroup_files
from punctual.executors.local.actuator import Actuator, Unusable, choose
from punctual.executors.local.cgroup_files import Hierarchy, group_name, hierarchy, remove_abandoned
from punctual.executors.local.cgroups import CgroupV1, CgroupV2, UserScope, in_force, limit_us, try_out
from punctual.executors.local.process_tree import TreeUsage, cpu_clock_ns

JOB = JobId("train/1")

MOUNTINFO = """\
31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 - cgroup cgroup rw,cpu,cpuacct
33 31 0:30 /docker/1 /sys/fs/cgroup/my\\040memory rw - cgroup cgroup rw,memory
34 31 0:31 / /sys/fs/cgroup/unified rw,nosuid shared:3 - cgroup2 cgroup2 rw
"""
MEMBERSHIP = "4:memory:/docker/1/inner\n3:cpu,cpuacct:/user.slice\n0::/user.slice/session.scope\n"


@pytest.mark.parametrize(
    ("controller", "mount", "own"),
    [
        ("cpu", "cpu,cpuacct", "cpu,cpuacct/user.slice"),
        ("cpuacct", "cpu,cpuacct", "cpu,cpuacct/user.slice"),
        ("memory", "my memory", "my memory/inner"),
        ("", "unified", "unified/user.slice/session.scope"),
    ],
)
def test_hierarchies_are_found(controller: str, mount: str, own: str) -> None:
    tree = hierarchy(controller, MOUNTINFO, MEMBERSHIP)
    assert tree is not None
    assert tree.mount == Path("/sys/fs/cgroup") / mount
    assert tree.own == Path("/sys/fs/cgroup") / own


def test_hierarchies_that_are_not_mounted_or_not_visible() -> None:
    assert hierarchy("blkio", MOUNTINFO, MEMBERSHIP) is None
    outside = hierarchy("memory", MOUNTINFO, "4:memory:/docker/2\n")
    assert outside is not None
    assert outside.own == outside.mount


@pytest.mark.parametrize(
    ("cores", "quota_us", "period_us"),
    [
        (0.5, 10_000, 20_000),
        (0.3, 6_000, 20_000),
        (1.999999, 39_999, 20_000),
        (0.05, 1_000, 20_000),
        (0.04, 4_000, 100_000),
        (0.001, 1_000, 100_000),
        (0.0, 1_000, 100_000),
        (2.0, None, 20_000),
    ],
)
def test_limits(cores: float, quota_us: int | None, period_us: int) -> None:
    assert limit_us(cores, 2) == (quota_us, period_us)


# Choosing.


class Refused:
    name = "refused"
    can_cap = True

    def check(self) -> None:
        raise Unusable("'/some/file' cannot be used (Permission denied)")

    open = check
    supervisor_prefix = ()


def candidates() -> list[Actuator]:
    return [Refused(), Actuator()]  # type: ignore[list-item]


def test_the_first_usable_one_is_chosen_and_the_choice_explained() -> None:
    chosen = choose("auto", candidates())
    assert chosen.actuator.name == "pacing"
    assert "refused: '/some/file'" in chosen.reason
    assert "first choice" in choose("auto", [Actuator()]).reason
    assert choose("pacing", candidates()).reason == "pacing was asked for."


def test_one_that_was_asked_for_must_be_usable() -> None:
    with pytest.raises(InvalidSpec, match=r"'refused' must be usable: got '/some/file' .* this machine\. Allow"):
        choose("refused", candidates())


@pytest.mark.parametrize("n_usable", [0, 1])
def test_of_those_of_the_name_under_which_jobs_run_a_usable_one_takes_over(
    monkeypatch: pytest.MonkeyPatch, n_usable: int
) -> None:
    refused, usable = Refused(), Actuator()
    monkeypatch.setattr(Actuator, "name", Refused.name)
    found = [refused, usable] if n_usable else [refused]
    monkeypatch.setattr("punctual.executors.local.cgroups.actuators", lambda: found)
    assert in_force(Refused.name).actuator is found[-1], "jobs that run can be found by any of them"


def test_one_that_was_asked_for_must_exist() -> None:
    with pytest.raises(InvalidSpec, match=r"got 'cgruop' for this machine\. Use `auto`, or one of: refused, pacing\."):
        choose("cgruop", candidates())


# Names and folders.


def test_a_groups_name_is_new_and_a_file_name() -> None:
    assert group_name(JOB) != group_name(JOB)
    assert group_name(JOB).startswith(f"{os.getpid()}-train_1-")


def test_abandoned_groups_are_removed_and_no_others(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    ours, abandoned, used = (tmp_path / f"{pid}-job-1" for pid in (os.getpid(), ended.pid, ended.pid + 10**7))
    foreign = tmp_path / "other"
    for folder in (ours, abandoned, used, foreign):
        folder.mkdir()
    (used / "process").touch()
    remove_abandoned(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([ours, used, foreign])
    remove_abandoned(tmp_path / "missing")


# Version 1, on plain files.


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """New groups come with their files, as the kernel makes them, on a machine of two processors."""
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    original = cgroup_files.make_dir

    def make_dir(folder: Path) -> None:
        original(folder)
        (folder / "cpu.cfs_quota_us").write_text("-1\n")
        (folder / "cpu.shares").write_text("1024\n")
        (folder / "cpuacct.usage").write_text("1500000000\n")
        (folder / "cpu.max").write_text("max 100000\n")
        (folder / "cpu.cfs_burst_us").write_text("0\n")
        (folder / "cpu.max.burst").write_text("0\n")
        (folder / "cpu.stat").write_text("nr_periods 3\nusage_usec 2500000\n")
        (folder / "cgroup.procs").write_text("11\n12\n")
        if "memory" in folder.parts:
            (folder / "memory.limit_in_bytes").write_text("0\n")

    monkeypatch.setattr("punctual.executors.local.cgroups.make_dir", make_dir)


@pytest.fixture
def base(tmp_path: Path) -> Path:
    (tmp_path / "cgroup.controllers").write_text("cpuset cpu io\n")
    (tmp_path / "cgroup.subtree_control").write_text("")
    (tmp_path / "cgroup.procs").write_text("")
    return tmp_path


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("n_hierarchies", [1, 2])
def test_version_1(tmp_path: Path, n_hierarchies: int) -> None:
    cpu, cpuacct = tmp_path / "cpu", tmp_path / ("cpu" if n_hierarchies == 1 else "cpuacct")
    group = CgroupV1(cpu, cpuacct).open(JOB, 1)
    assert group.granted_cores() == 2.0
    assert group.grant(0.25) == 0.25
    (quota,) = (cpu / "punctual").glob("*/cpu.cfs_quota_us")
    assert quota.read_text() == "5000"
    assert (quota.parent / "cpu.cfs_period_us").read_text() == "20000"
    assert (quota.parent / "cpu.shares").read_text() == "512"
    assert (cpu / "punctual" / "cpu.shares").read_text() == "4096"
    assert group.grant(0.02) == 0.02
    assert (quota.read_text(), (quota.parent / "cpu.cfs_period_us").read_text()) == ("2000", "100000")
    assert group.grant(5.0) == 2.0
    assert (quota.parent / "cpu.cfs_period_us").read_text() == "20000"
    assert group.used_core_s() == 1.5
    assert group.final_core_s("2000000000\n", 0.0) == 2.0
    assert group.final_core_s("", 3.0) == 3.0
    assert group.processes() == [11, 12]
    found = CgroupV1(cpu, cpuacct).find(group.files, 1)
    group.grant(0.02)
    assert found.granted_cores() == 0.02, "a job that is taken over keeps its period, too"
    assert len(group.files.cgroup_procs_files) == n_hierarchies
    assert len(group.files.remove_dirs) == 2 * n_hierarchies


@pytest.mark.usefixtures("kernel")
@pytest.mark.parametrize("version", [1, 2])
def test_what_a_period_left_is_made_up_for_within_what_the_kernel_takes(
    base: Path, version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = CgroupV1(base, base).open(JOB, 1) if version == 1 else CgroupV2(base).open(JOB, 1)
    quota = Path(group.files.lift[0][0])
    burst = quota.parent / ("cpu.cfs_burst_us" if version == 1 else "cpu.max.burst")
    original, n_writes = Path.write_text, dict.fromkeys((quota, burst), 0)

    def write(path: Path, text: str) -> int:
        """As the kernel does, which refuses a burst above the quota, whichever of them is written."""
        if path in n_writes:
            n_writes[path] += 1
            quota_us = (text if path == quota else quota.read_text()).split()[0]
            burst_us = int(text if path == burst else burst.read_text())
            if quota_us not in ("-1", "max") and burst_us > int(quota_us):
                raise OSError(22, "Invalid argument", str(path))
        return original(path, text)

    monkeypatch.setattr(Path, "write_text", write)
    for cores in (1.0, 0.9, 0.02, 2.0, 0.5, 0.01, 0.3, 0.31, 0.29, 0.7):
        assert group.grant(cores) == cores
        if cores < 2.0:
            quota_us = int(quota.read_text().split()[0])
            assert quota_us // 2 <= int(burst.read_text()) <= quota_us
    assert n_writes[burst] < n_writes[quota]
    monkeypatch.undo()
    burst.unlink()
    assert group.grant(0.1) == 0.1, "Linux before 5.14 has no burst"


def test_version_1_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="no 'cpuacct' hierarchy is mounted"):
        CgroupV1(tmp_path, None).check()
    (tmp_path / "file").touch()
    with pytest.raises(Unusable, match=r"file/punctual.* cannot be used \(Not a directory\)"):
        CgroupV1(tmp_path / "file", tmp_path / "file").check()


# Version 2, on plain files only: it was never run against a kernel by these tests.


@pytest.mark.usefixtures("kernel")
def test_version_2(base: Path) -> None:
    group = CgroupV2(base).open(JOB, 1)
    assert (base / "cgroup.subtree_control").read_text() == "+cpu"
    assert (base / "punctual" / "cgroup.subtree_control").read_text() == "+cpu"
    assert group.granted_cores() == 2.0
    assert group.grant(0.25) == 0.25
    (quota,) = (base / "punctual").glob("*/cpu.max")
    assert quota.read_text() == "5000 20000"
    assert (quota.parent / "cpu.weight").read_text() == "50"
    assert (base / "punctual" / "cpu.weight").read_text() == "400"
    assert group.grant(2.0) == 2.0
    assert quota.read_text() == "max 20000"
    assert group.used_core_s() == 2.5
    assert group.final_core_s("usage_usec 3000000\n", 0.0) == 3.0
    assert group.final_core_s("", 4.0) == 4.0
    assert group.processes() == [11, 12]
    assert group.files.lift == [[str(quota), "max 20000"]]


@pytest.mark.usefixtures("kernel")
def test_version_2_has_memory_counted_where_that_was_delegated(base: Path) -> None:
    (base / "cgroup.controllers").write_text("cpu memory\n")
    CgroupV2(base).open(JOB, 1)
    assert (base / "cgroup.subtree_control").read_text() == "+memory"


@pytest.mark.usefixtures("kernel")
def test_version_1_counts_memory_in_a_group_of_its_own_and_finds_it_again(
    tmp_path: Path,
) -> None:
    actuator = CgroupV1(tmp_path / "cpu", tmp_path / "cpuacct", memory=tmp_path / "memory")
    files = actuator.open(JOB, 1).files
    (group,) = (tmp_path / "memory" / "punctual").iterdir()
    assert str(group / "cgroup.procs") in files.cgroup_procs_files
    assert {str(group), str(group.parent)} <= set(files.remove_dirs)
    found = actuator.find(files, 1)
    assert found.memory.can_limit
    assert found.grant(0.25) == 0.25
    assert [Path(path).parent for path, _ in found.files.counters.values()] == [group] * 2


@pytest.mark.usefixtures("kernel")
def test_version_2_steps_aside_where_it_stands_alone(base: Path) -> None:
    (base / "cgroup.procs").write_text(f"{os.getpid()}\n")
    (base / "cgroup.type").write_text("domain\n")
    CgroupV2(base).open(JOB, 1)
    assert (base / "punctual-controller" / "cgroup.procs").read_text() == str(os.getpid())


@pytest.mark.usefixtures("kernel")
def test_version_2_does_not_move_other_processes(base: Path) -> None:
    (base / "cgroup.procs").write_text(f"{os.getpid()}\n1\n")
    (base / "cgroup.type").write_text("domain\n")
    CgroupV2(base).open(JOB, 1)
    assert not (base / "punctual-controller").exists()


def test_version_2_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="no version 2 hierarchy is mounted"):
        CgroupV2(None).check()
    with pytest.raises(Unusable, match=r"cgroup\.controllers' does not list the cpu controller"):
        CgroupV2(tmp_path).check()


def test_a_refused_write_names_the_file(base: Path) -> None:
    (base / "cgroup.subtree_control").unlink()
    (base / "cgroup.subtree_control").mkdir()
    with pytest.raises(Unusable, match=r"cgroup.subtree_control' cannot be used \(Is a directory\)"):
        try_out(CgroupV2(base))


def test_a_scope_needs_systemd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(Unusable, match="no systemd"):
        UserScope(Path("/sys/fs/cgroup")).check()
    with pytest.raises(Unusable, match="no version 2"):
        UserScope(None).check()


@pytest.fixture
def systemd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `systemd-run` that does what is written into it, with the command it was given in "$@"."""
    monkeypatch.setattr("punctual.executors.local.cgroups._RUNS_SYSTEMD", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    script = tmp_path / "systemd-run"
    script.touch(mode=0o700)
    return script


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("echo 'no bus' >&2; exit 1", r"refused a scope \(no bus\)"),
        ("echo cpuset memory", "does not delegate the cpu controller"),
    ],
)
def test_a_scope_that_systemd_does_not_give(systemd: Path, answer: str, expected: str) -> None:
    systemd.write_text(f"#!/bin/sh\n{answer}\n")
    with pytest.raises(Unusable, match=expected):
        UserScope(Path("/sys/fs/cgroup")).check()


@pytest.mark.usefixtures("kernel")
def test_a_job_in_a_scope(systemd: Path, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    systemd.write_text("#!/bin/sh\necho cpuset cpu\n")
    scope = UserScope(base)
    scope.check()
    assert scope.supervisor_prefix[-1] == "--"
    monkeypatch.setattr("punctual.executors.local.cgroups.hierarchy", lambda *_, **__: Hierarchy(base.parent, base))
    moved: list[str] = []
    original = Path.write_text

    def write(path: Path, text: str) -> int:
        if path == base / "punctual-controller" / "cgroup.procs":
            moved.append(text)
        return original(path, text)

    monkeypatch.setattr(Path, "write_text", write)
    supervisor_pid = os.getpid()
    (base / "cgroup.procs").write_text(f"{supervisor_pid}\n")
    (base / "cgroup.type").write_text("domain\n")
    group = scope.open(JOB, supervisor_pid)
    assert moved == [str(supervisor_pid)], "no process is left where it would forbid a limited group"
    (base / "job" / "cpu.max").write_text("max 100000\n")
    assert group.grant(0.5) == 0.5
    assert group.files.remove_dirs == [str(base / "job")]


# Usage of process trees.


def test_usage_covers_children_and_does_not_fall_when_they_end() -> None:
    code = (
        SPIN + "import os, sys\n"
        "for _ in range(3):\n"
        "    if os.fork() == 0: spin(0.1); os._exit(0)\n"
        "    os.wait()\n"
        "print('.', flush=True)\n"
        "sys.stdin.read()\n"
    )
    usage = TreeUsage(os.getpid())
    before_core_s, seen = usage.used_core_s(), [0.0]
    with subprocess.Popen(["python3", "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        while seen[-1] < 0.28:
            seen.append(until(usage.used_core_s) - before_core_s)
        assert process.pid in usage.processes()
        process.stdout.read(1)
        assert process.stdin is not None
        process.stdin.close()
    assert seen == sorted(seen)
    assert usage.used_core_s() - before_core_s >= seen[-1]


def test_the_clock_of_a_process_that_does_not_exist() -> None:
    assert cpu_clock_ns(2**22 + 1) is None
    clock_ns = cpu_clock_ns(os.getpid())
    assert clock_ns is not None
    assert clock_ns > 0
