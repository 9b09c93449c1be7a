"""The folders in which runs live."""

import os
import stat
import struct
from pathlib import Path

import pytest

from punctual.core.errors import InvalidSpec
from punctual.daemon import paths


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


def test_everything_is_below_the_state_folder_within_a_login_session_and_without_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(paths.HOME_VARIABLE)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "session").mkdir()
    for session in ("", str(tmp_path / "session"), str(tmp_path / "gone")):
        monkeypatch.setenv("XDG_RUNTIME_DIR", session)
        assert paths.runtime_root() == tmp_path / "state" / "punctual" / "live"
        assert paths.state_root() == tmp_path / "state" / "punctual" / "runs"
    assert list((tmp_path / "session").iterdir()) == []


@pytest.mark.parametrize("above", ["state", "", "..", "../.."])
@pytest.mark.parametrize("mode", [0o707, 0o770])
def test_a_home_that_others_may_write_to_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, above: str, mode: int
) -> None:
    home = tmp_path / "a" / "b" / "home"
    home.mkdir(parents=True)
    monkeypatch.setenv(paths.HOME_VARIABLE, str(home))
    paths.runtime_root()
    (home / "state").mkdir(mode=0o700)
    place = (home / above).resolve()
    if mode == 0o770:
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder to any group")
        os.chown(place, os.geteuid(), 12345)
    place.chmod(mode)
    with pytest.raises(InvalidSpec, match="only this user may write to") as caught:
        paths.state_root()
    assert (caught.value.where, caught.value.got) == (f"'{place}'", f"one of mode {mode:o}")
    place.chmod(0o1707)  # only the owner of a thing may replace it
    paths.state_root()


def test_a_home_where_another_user_may_write_by_an_access_control_list_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "a" / "home").mkdir(parents=True)
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "a" / "home"))
    monkeypatch.setattr(paths, "_is_group_of_one", lambda group: True)
    (tmp_path / "a").chmod(0o775)
    paths.runtime_root()
    # Owner, user 12345, group, mask and others, each with its rights.
    entries = [(1, 7, -1), (2, 7, 12345), (4, 5, -1), (0x10, 7, -1), (0x20, 5, -1)]
    acl = struct.pack("<I", 2) + b"".join(struct.pack("<HHi", *entry) for entry in entries)
    try:
        os.setxattr(tmp_path / "a", "system.posix_acl_access", acl)
    except OSError:
        pytest.skip("this file system has no access control lists")
    paths._check_above.cache_clear()
    with pytest.raises(InvalidSpec, match="only this user may write to") as caught:
        paths.runtime_root()
    assert caught.value.where == f"'{tmp_path / 'a'}'"


def test_a_home_behind_a_link_in_a_place_of_all_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "safe").mkdir()
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "home").symlink_to(tmp_path / "safe")
    (tmp_path / "open").chmod(0o777)
    monkeypatch.setenv(paths.HOME_VARIABLE, str(tmp_path / "open" / "home"))
    with pytest.raises(InvalidSpec, match="only this user may write to"):
        paths.runtime_root()


def test_a_link_in_place_of_the_folder_of_runs_is_refused(home: Path, tmp_path: Path) -> None:
    (home / "runtime").mkdir(parents=True)
    (tmp_path / "precious").mkdir()
    (home / "runtime" / "live").symlink_to(tmp_path / "precious")
    with pytest.raises(InvalidSpec, match="none that a link leads to"):
        paths.runtime_root()


def test_what_a_link_leads_to_is_not_removed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    (precious / "job").mkdir(parents=True)
    live = tmp_path / "live"
    live.symlink_to(precious)
    paths.remove_tree(live / "job")
    assert (precious / "job").exists()
    live.unlink()
    (live / "job").mkdir(parents=True)
    (live / "job" / "link").symlink_to(precious)
    (live / "other").symlink_to(precious)
    paths.remove_tree(live / "job")
    paths.remove_tree(live / "other")
    paths.remove_tree(live / "gone")
    assert not (live / "job").exists()
    assert (precious / "job").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_what_lies_in_a_stranger_s_folder_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "live" / "job").mkdir(parents=True)
    os.chown(tmp_path / "live", 12345, 12345)
    paths.remove_tree(tmp_path / "live" / "job")
    assert (tmp_path / "live" / "job").exists()


def test_machines_that_share_a_folder_have_a_service_socket_each(monkeypatch: pytest.MonkeyPatch) -> None:
    here = paths.service_socket()
    other = os.uname_result(("Linux", "another", "6", "1", "x86_64"))
    monkeypatch.setattr(os, "uname", lambda: other)
    assert paths.service_socket() == here.with_name("api-another.sock")
    assert paths.service_socket() != here
