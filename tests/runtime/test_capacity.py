"""How many cores a process may use."""

from pathlib import Path

import pytest

from punctual.runtime.capacity import _quotas, usable_cores, usable_gpus


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


def test_gpus_are_counted_without_loading_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidia10", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert usable_gpus(tmp_path) == 3
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,10")
    assert usable_gpus(tmp_path) == 2
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    assert usable_gpus(tmp_path) == 0
