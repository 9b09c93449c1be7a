"""The types that the page's scripts are written with hold, as TypeScript's compiler sees it."""

import shutil
import subprocess
from pathlib import Path

import pytest


def compiler() -> str:
    """`tsc`; skips without one."""
    program = shutil.which("tsc")
    if program is None:
        pytest.skip("needs TypeScript's compiler (`npm install --global typescript`), and no `tsc` is in PATH")
    return program


def test_the_scripts_of_the_page_have_the_types_that_they_say() -> None:
    checked = subprocess.run(
        [compiler(), "-p", Path(__file__).with_name("jsconfig.json")], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout


def test_a_wrong_type_would_be_found(tmp_path: Path) -> None:
    shutil.copy(Path(__file__).with_name("jsconfig.json"), tmp_path / "jsconfig.json")
    config = (tmp_path / "jsconfig.json").read_text().replace("../../src/punctual/api/dashboard/*.js", "*.js")
    (tmp_path / "jsconfig.json").write_text(config)
    (tmp_path / "wrong.js").write_text("/** @param {number} n */ export const twice = (n) => 2 * n;\ntwice('x');\n")
    checked = subprocess.run(
        [compiler(), "-p", tmp_path / "jsconfig.json"], capture_output=True, text=True, check=False
    )
    assert "wrong.js(2,7)" in checked.stdout
