"""The parts of bench/gpu.py on a device that is none."""

import importlib
from pathlib import Path

import pytest

#: Each part with its share of the work; what turns cost depends on what else the machine does, and is not judged.
PARTS = {"shown": 1.0, "memory": 0.5, "workers": 1.0, "landing": 0.35, "sharing": 0.45, "turns": 0.25}


@pytest.mark.parametrize("name", PARTS)
def test_a_part_comes_out_on_a_device_that_is_none(name: str, tmp_path: Path) -> None:
    gpu = importlib.import_module("gpu")
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    bench = gpu.Bench("stand-in", tmp_path, PARTS[name])
    try:
        part = gpu.PARTS[name](bench)
    finally:
        bench.close()
    assert part.is_met or name == "turns", (part.text, part.found)
