"""What is installed with the package."""

from hatchling.builders.wheel import WheelBuilder
from tests.architecture.source import ROOT

FOLDER = "punctual/api/dashboard"


def test_the_wheel_has_all_files_of_the_page() -> None:
    packed = {file.distribution_path for file in WheelBuilder(str(ROOT)).recurse_included_files()}
    files = {f"{FOLDER}/{path.name}" for path in (ROOT / "src" / FOLDER).iterdir()}
    assert f"{FOLDER}/index.html" in files
    assert files <= packed
