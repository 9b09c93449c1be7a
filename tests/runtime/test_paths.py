"""The folders in which runs live."""

import os
import stat
from pathlib import Path

import pytest

from punctual.core.errors import InvalidSpec
from punctual.runtime import paths


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "home"))
    return tmp_path / "home"


def test_they_are_this_user_s_alone(home: Path) -> None:
    for folder in (paths.runtime_root(), paths.state_root()):
        assert folder.is_relative_to(home)
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700


@pytest.mark.parametrize("kind", ["runtime", "state"])
def test_a_home_that_cannot_be_written_is_refused(home: Path, kind: str) -> None:
    home.mkdir()
    (home / kind).touch()  # where a folder should be made
    with pytest.raises(InvalidSpec, match="where files can be made") as caught:
        paths.runtime_root() if kind == "runtime" else paths.state_root()
    assert kind in caught.value.got


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
@pytest.mark.parametrize("folder", ["", "runtime", "runtime/live"])
def test_a_stranger_s_folder_is_not_used(home: Path, folder: str) -> None:
    (home / "runtime" / "live").mkdir(parents=True)
    os.chown(home / folder, 12345, 12345)
    with pytest.raises(InvalidSpec, match="must belong to this user"):
        paths.runtime_root()


def test_without_a_login_session_everything_is_below_the_state_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(paths.HOME_VARIABLE)
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    assert paths.runtime_root() == tmp_path / "state" / "punctual" / "live"
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "session"))
    assert paths.runtime_root() == tmp_path / "session" / "punctual" / "live"
    assert paths.state_root() == tmp_path / "state" / "punctual" / "runs"
