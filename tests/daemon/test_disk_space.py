"""Room for what a job will write is looked at before it begins."""

import re
from pathlib import Path

import pytest
from tests.small_disk import mounted

from punctual.core.resources import Resources
from punctual.daemon.disk_space import check_room
from punctual.request.job_options import JobOptions
from punctual.request.submission import submission_of


def told(folder: Path | None) -> list[str]:
    """What is told of a job that keeps its checkpoints in `folder`; not of the disk of this test itself."""
    submission = submission_of(
        JobOptions(program=["true"], checkpoint_dir=str(folder) if folder else None), 0.0, Resources(cores=2)
    )
    return [text for text in check_room([submission]) if "home" not in text]


def test_a_disk_with_room_is_not_told(tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "one.ckpt").write_bytes(b"x" * 1000)
    assert told(None) == told(tmp_path / "kept") == told(tmp_path / "not" / "there" / "yet") == []


def test_little_room_for_checkpoints_is_told_also_before_the_folder_is_there(tmp_path: Path) -> None:
    with mounted(tmp_path / "small") as small:
        (text,) = told(small / "kept")
    assert re.match(r"only [\d.]+ MiB are free for the checkpoints of job", text)


@pytest.mark.parametrize("is_folder", [False, True])
def test_a_checkpoint_that_will_not_fit_beside_the_last_is_told(is_folder: bool, tmp_path: Path) -> None:
    with mounted(tmp_path / "small") as small:
        (small / "kept" / "step-1").mkdir(parents=True)
        name = "step-1/model.pt" if is_folder else "model.pt"
        (small / "kept" / name).write_bytes(b"x" * 2_000_000)
        texts = told(small / "kept")
    assert any("a checkpoint there has 1.91 MiB: the next one will not fit beside it" in text for text in texts)


def test_little_room_for_the_journal_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mounted(tmp_path / "disk") as small:
        monkeypatch.setenv("PUNCTUAL_HOME", str(small))
        submission = submission_of(JobOptions(program=["true"]), 0.0, Resources(cores=2))
        (text,) = check_room([submission])
    assert "the journal and what jobs write" in text
    assert "punctual clean" in text
