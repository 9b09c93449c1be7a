"""The files of pages, through which trainings report, and where they lie."""

import os
import secrets
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from punctual.core.ids import JobId
from punctual.executors.local.cgroup_files import file_name
from punctual.executors.local.mounts import is_in_memory
from punctual.wire import Page

_SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 -- names there are new, and files are made for us alone


def new_page(runtime_dir: Path, job: JobId) -> tuple[Path, Page]:
    """A page and its file: in memory, or in `runtime_dir` if memory has no room; raises `OSError`."""
    name = f"{_prefix(runtime_dir)}{file_name(job)}-{secrets.token_hex(3)}.page"
    for folder in dict.fromkeys((page_folder(runtime_dir), runtime_dir)):
        with suppress(OSError):
            return folder / name, Page.create(str(folder / name))
    return runtime_dir / name, Page.create(str(runtime_dir / name))


def page_folder(runtime_dir: Path) -> Path:
    """Where a write never waits for a disk, which the training would wait for at a step."""
    if is_in_memory(runtime_dir) or not os.access(_SHARED_MEMORY, os.W_OK) or not is_in_memory(_SHARED_MEMORY):
        return runtime_dir
    return _SHARED_MEMORY


def pages_of(runtime_dir: Path) -> list[Path]:
    """The pages of all jobs of a run that lie outside its folder."""
    return list(_SHARED_MEMORY.glob(f"{_prefix(runtime_dir)}*.page"))


def remove_pages(runtime_dir: Path) -> None:
    """Remove what killed processes have left of a run none of whose jobs run any more."""
    for page in pages_of(runtime_dir):
        with suppress(OSError):  # another user's
            page.unlink()


def _prefix(runtime_dir: Path) -> str:
    """What tells pages of one run from those of others in the one folder for all."""
    return f"punctual-{sha256(os.fsencode(runtime_dir.absolute())).hexdigest()[:12]}-"
