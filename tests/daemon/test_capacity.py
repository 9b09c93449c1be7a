"""How many cores and how much memory a process may use."""

from pathlib import Path

import pytest

from punctual.daemon.capacity import (
    _quotas,
    capacity_here,
    device_kind,
    usable_cores,
    usable_gpus,
    usable_memory_bytes,
)


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_quotas_of_a_group_and_of_those_around_it_count(tmp_path: Path) -> None:
    write(tmp_path / "a/b/cpu.max", "max 100000\n")
    write(tmp_path / "a/cpu.max", "150000 100000\n")
    assert list(_quotas("0::/a/b\n", tmp_path)) == [1.5]


def test_version_1_without_a_quota_has_no_limit(tmp_path: Path) -> None:
    write(tmp_path / "cpu/a/cpu.cfs_quota_us", "50000\n")
    write(tmp_path / "cpu/a/cpu.cfs_period_us", "100000\n")
    write(tmp_path / "cpu/cpu.cfs_quota_us", "-1\n")
    write(tmp_path / "cpu/cpu.cfs_period_us", "100000\n")
    assert list(_quotas("5:cpu,cpuacct:/a\n3:memory:/a\n", tmp_path)) == [0.5]


def test_this_process_may_use_something() -> None:
    assert usable_cores() > 0
    assert capacity_here().memory_bytes > 0


@pytest.mark.parametrize(
    ("membership", "limits", "n_bytes"),
    [
        ("0::/a/b\n", {"a/b/memory.max": "max", "a/memory.max": str(3 << 30)}, 3 << 30),
        ("0::/a/b\n", {"a/b/memory.max": str(3 << 40)}, 8 << 30),
        ("3:cpu:/a\n4:memory:/a\n", {"memory/a/memory.limit_in_bytes": str(2 << 30)}, 2 << 30),
        ("4:memory:/a\n", {"memory/a/memory.limit_in_bytes": str(2**63 - 4096)}, 8 << 30),
        ("4:memory:/not/seen\n", {"memory/memory.limit_in_bytes": str(1 << 30)}, 1 << 30),
    ],
)
def test_memory_is_that_of_the_machine_or_of_a_group_around_it(
    tmp_path: Path, membership: str, limits: dict[str, str], n_bytes: int
) -> None:
    write(tmp_path / "meminfo", f"MemTotal:       {8 << 20} kB\nMemFree:        {1 << 20} kB\n")
    write(tmp_path / "membership", membership)
    for file, text in limits.items():
        write(tmp_path / "groups" / file, f"{text}\n")
    assert usable_memory_bytes(tmp_path / "meminfo", tmp_path / "membership", tmp_path / "groups") == n_bytes


def test_without_proc_nothing_is_known_of_memory(tmp_path: Path) -> None:
    assert usable_memory_bytes(tmp_path / "meminfo", tmp_path / "membership", tmp_path) == 0


def test_gpus_are_counted_without_loading_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert usable_gpus(tmp_path) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,10")
    assert usable_gpus(tmp_path) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert usable_gpus(tmp_path) == 0


@pytest.mark.parametrize(
    ("processor", "kind"),
    [
        ("Intel(R) Xeon(R) Platinum 8358 CPU @ 2.60GHz", "Intel-Xeon-Platinum-8358-2.60GHz"),
        ("AMD EPYC 7B12", "AMD-EPYC-7B12"),
        ("", ""),
    ],
)
def test_a_machine_is_of_the_kind_of_its_processor(tmp_path: Path, processor: str, kind: str) -> None:
    (tmp_path / "cpuinfo").write_text(f"processor\t: 0\nmodel name\t: {processor}\n")
    assert device_kind(tmp_path / "cpuinfo", tmp_path / "gpus") == kind
    assert device_kind(tmp_path / "missing", tmp_path / "gpus") == ""


def test_a_machine_with_gpus_is_of_their_kind(tmp_path: Path) -> None:
    (tmp_path / "cpuinfo").write_text("model name\t: AMD EPYC 7B12\n")
    gpu = tmp_path / "gpus" / "0000:00:04.0"
    gpu.mkdir(parents=True)
    (gpu / "information").write_text("Model: \t\t NVIDIA A100-SXM4-40GB\nIRQ:   \t\t 12\n")
    assert device_kind(tmp_path / "cpuinfo", tmp_path / "gpus") == "A100-SXM4-40GB"
