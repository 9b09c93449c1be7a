"""The types that the page's scripts are written with hold, as TypeScript's compiler sees it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

#: Set where the compiler must be there, in continuous integration.
NEEDS_COMPILER = "PUNCTUAL_NEEDS_TSC"


def compiler() -> str:
    """`tsc`; skips, or fails where it must be there, without one."""
    program = shutil.which("tsc")
    if program is None:
        reason = "needs TypeScript's compiler (`npm install --global typescript`), and no `tsc` is in PATH"
        if os.environ.get(NEEDS_COMPILER):
            pytest.fail(reason)
        pytest.skip(reason)
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
