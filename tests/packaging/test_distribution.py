"""The wheel and the source archive, as users get them."""

import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from tests.architecture.source import PACKAGE, ROOT

#: Where the libraries lie that Punctual needs: they are not fetched anew, and Punctual itself is not among them.
LIBRARIES = Path(next(path for path in sys.path if path.endswith("site-packages")))


def command(*words: str, at: Path) -> str:
    done = subprocess.run(words, cwd=at, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a wheel and a source archive, built as a release would be."""
    folder = tmp_path_factory.mktemp("dist")
    command(sys.executable, "-m", "hatchling", "build", "-d", str(folder), at=ROOT)
    return folder


def wheel_files(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def test_a_clean_environment_can_use_the_wheel(built: Path, tmp_path: Path) -> None:
    clean = tmp_path / "clean"
    command(sys.executable, "-m", "venv", "--without-pip", str(clean), at=tmp_path)
    python = str(clean / "bin" / "python")
    (wheel,) = built.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index", "--no-deps")
    command(*pip, str(wheel), at=tmp_path)
    (own,) = clean.glob("lib/python*/site-packages")
    (own / "libraries.pth").write_text(str(LIBRARIES))
    where = command(python, "-c", "import punctual; print(punctual.__file__)", at=tmp_path)
    assert Path(where.strip()).is_relative_to(own)
    assert command(str(clean / "bin" / "punctual"), "--version", at=tmp_path).startswith("punctual ")
    assert "promises-first" in command(str(clean / "bin" / "punctual"), "plugins", "policies", at=tmp_path)


def test_the_wheel_has_all_files_of_the_package(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    files = wheel_files(wheel)
    own = {
        path.relative_to(PACKAGE.parent).as_posix()
        for path in PACKAGE.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == own
    assert "punctual/py.typed" in files


def test_the_source_archive_makes_the_same_wheel(built: Path, tmp_path: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        archive.extractall(tmp_path, filter="data")
    (folder,) = (path for path in tmp_path.iterdir() if path.is_dir())
    assert (folder / "LICENSE").exists()
    assert (folder / "tests" / "conftest.py").exists()
    command(sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "again"), at=folder)
    (again,) = (tmp_path / "again").glob("*.whl")
    (wheel,) = built.glob("*.whl")
    assert wheel_files(again) == wheel_files(wheel)
