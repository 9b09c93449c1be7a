"""The package that the page about writing a policy shows can be built, and its policy is found."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import PATIENCE_S

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "write-a-policy.md"

#: Builds what is in this folder up to its metadata, as pip does first; then loads what the entry point names.
BUILD = """
import sys
from importlib.metadata import Distribution
from pathlib import Path
from setuptools import build_meta
made = Path("metadata")
made.mkdir()
found = Distribution.at(made / build_meta.prepare_metadata_for_build_wheel("metadata"))
(entry,) = found.entry_points
sys.path.insert(0, ".")
print(found.metadata["Name"], entry.group, entry.name, entry.load().__name__)
"""


def files_on(page: str) -> dict[str, str]:
    """The files that the page shows, each with its name in the first line, by name."""
    blocks = re.findall(r"```(?:python|toml)\n# (\S+)\n(.*?)```", page, re.DOTALL)
    return {name: text for name, text in blocks if "/" not in name}


def test_the_package_on_the_page_can_be_built_and_its_policy_loaded(tmp_path: Path) -> None:
    pytest.importorskip("setuptools")
    for name, text in files_on(PAGE.read_text()).items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-c", BUILD], cwd=tmp_path, capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "priority-first punctual.policies priority-first PriorityFirst"
