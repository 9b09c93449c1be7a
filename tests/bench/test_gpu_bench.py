"""The parts of bench/gpu.py on a device that is none."""

import importlib
import subprocess
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.forked_python import ForkedPython

#: Each part with its share of the work; what turns cost depends on what else the machine does, and is not judged.
PARTS = {"shown": 1.0, "memory": 0.5, "workers": 1.0, "landing": 0.35, "sharing": 0.45, "turns": 0.25}


def begun(command: Sequence[str], **options: Any) -> "subprocess.Popen[str]":
    """Start a process: a command with its modules loaded beforehand, anything else as users start it."""
    return (ForkedPython if "-m" in command[:2] else subprocess.Popen)(command, **options)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_comes_out_on_a_device_that_is_none(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = importlib.import_module("gpu")
    monkeypatch.setattr(gpu, "subprocess", SimpleNamespace(**{**vars(subprocess), "Popen": begun}))
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev" / "nvidia0").touch()
    bench = gpu.Bench("stand-in", tmp_path, PARTS[name])
    try:
        part = gpu.PARTS[name](bench)
    finally:
        bench.close()
    assert part.is_met or name == "turns", (part.text, part.found)
