"""Checkpoints that are written in the background; the newest complete one can always be found again.

The training waits for a copy of its state only; a thread writes the copy to a temporary name, makes sure that it is on
the disk, gives it its name, reads it back, and only then removes older ones. Whatever ends the process in between, a
whole checkpoint is there.
"""

import fcntl
import os
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from time import monotonic, sleep, thread_time

from torch import Tensor

from punctual.channel import CHECKPOINT_VARIABLE
from punctual.elastic_training import _checkpoint_file
from punctual.elastic_training._checkpoint_file import Damaged, Image
from punctual.elastic_training.replica import TrainingState
from punctual.tracking.complaint import invalid, warn, whole

_SUFFIX = ".safetensors"
_TEMPORARY = ".writing"
_LOCK = "writer.lock"

#: The workers of a training that has just ended may still be on their way out.
_CLAIM_WAIT_S = 5.0


class CheckpointStore:
    """A folder of checkpoints, written by one training.

    The caller of `latest` continues from it, and is the folder's writer from then on, until it closes or ends.

    * `folder`: made when it is needed. Files in it that do not end in ``.safetensors`` are let be.
    * `every_s`: seconds between two checkpoints; None: chosen so that they cost less than 1 % of the time, and at least
      10 s.
    * `n_kept`: number of checkpoints that are kept; during a write there is one more.

    Raises `ValueError`: `every_s` is not above zero, or `n_kept` is not at least 1.
    """

    def __init__(self, folder: str | os.PathLike[str], *, every_s: float | None = None, n_kept: int = 2) -> None:
        given: object = every_s  # a script may give anything
        if given is not None and not (isinstance(given, int | float) and given > 0):
            raise invalid("`checkpoint_every_s` must be above zero", repr(given), "the training", "Give seconds.")
        self.folder = Path(folder)
        self.cost_s = 0.0  #: Of the last checkpoint: the training's stop, and the processor time of writing.
        self.stop_s = 0.0  #: The training's stop alone.
        self._every_s = every_s
        self._n_kept = whole(n_kept, "n_kept", "the training", least=1)
        self._saved_at = monotonic()
        self._lock: int | None = None
        self._writer: ThreadPoolExecutor | None = None  # while the folder is locked
        #: The last saved state, and its writing.
        self._last: tuple[Image, Future[None]] | None = None
        self._blocks: list[Tensor] = []  # memory of images that are not needed any more
        self._has_failed = False

    # What the training calls.

    @property
    def period_s(self) -> float:
        """Seconds from one checkpoint to the next."""
        # Checkpoints take a hundredth of the training's time at most, and none comes within 10 s of the last one.
        return self._every_s if self._every_s is not None else max(10.0, 100.0 * self.cost_s)

    def is_due(self) -> bool:
        """Whether the next checkpoint is due; costs less than a microsecond."""
        return monotonic() - self._saved_at >= self.period_s

    def latest(self) -> TrainingState | None:
        """Load the newest complete checkpoint; None: there is none.

        Each one that is not is warned of, with the reason, and left in its place.

        Raises `ValueError`: another training writes to the folder, or a later version of Punctual wrote the checkpoint.
        """
        self._claim(_CLAIM_WAIT_S)
        return newest(self.folder)

    def save(self, state: TrainingState) -> None:
        """Copy `state` to be written in the background. A copy that still waits is replaced.

        A folder that cannot be written to, or is another training's, is warned of once, and training goes on.

        `state`: its tensors may be of any shape and on any device, but must be dense.

        * Raises `ValueError`: a tensor is not dense, or of an unusual type.
        * Raises `TypeError`: a value is nothing that JSON has.
        """
        began_at = monotonic()
        if (writer := self._claimed()) is not None:
            if self._last is not None and self._last[1].cancel():  # it still waits
                self._blocks.append(self._last[0].block)
            image = _checkpoint_file.image(state, self._blocks.pop() if self._blocks else None)
            self._last = image, writer.submit(self._write, image)
        self._saved_at = monotonic()
        self.stop_s = self._saved_at - began_at

    def flush(self) -> bool:
        """Wait until all saved states are written; return whether the last of them is."""
        if self._last is not None:
            wait([self._last[1]])
        return not self._has_failed

    def close(self) -> None:
        """Write the saved states, and release the folder for another training."""
        if self._writer is not None:
            self._writer.shutdown()
        if self._lock is not None:
            _unlock(self._lock)
        self._writer = self._lock = None

    # Being the only writer.

    def _claim(self, wait_s: float) -> ThreadPoolExecutor | None:
        """Lock the folder as its writer; return the thread that writes, None: the folder cannot be written to."""
        if self._writer is None:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._lock = _locked(self.folder, wait_s)
                for unfinished in self.folder.glob(f"*{_TEMPORARY}"):
                    unfinished.unlink()
            except OSError as error:
                self._fail(error)
                self.close()
            else:
                self._writer = ThreadPoolExecutor(1, "punctual-checkpoints")
        return self._writer

    def _claimed(self) -> ThreadPoolExecutor | None:
        try:
            return self._claim(0.0)
        except ValueError as error:
            self._fail(error)
            return None

    # The thread.

    def _write(self, image: Image) -> None:
        began_s = thread_time()
        try:
            self._put(image)
            self._has_failed = False
        except Exception as error:  # noqa: BLE001 -- a training does not end because of its checkpoints
            self._fail(error)
        self.cost_s = self.stop_s + thread_time() - began_s
        self._blocks.append(image.block)

    def _put(self, image: Image) -> None:
        """Write a checkpoint; remove older ones only when it has been read back."""
        paths = _paths(self.folder)
        path = self.folder / f"{int(paths[-1].stem) + 1 if paths else 1:08d}{_SUFFIX}"
        temporary = path.with_suffix(_TEMPORARY)
        try:
            _checkpoint_file.write(temporary, image)
            temporary.rename(path)
            fd = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                os.fsync(fd)
            finally:
                os.close(fd)
            try:
                _checkpoint_file.verify(path)
            except Damaged:
                path.unlink()
                raise
        finally:
            temporary.unlink(missing_ok=True)
        for old in [*paths, path][: -self._n_kept]:
            old.unlink()

    def _fail(self, error: Exception) -> None:
        """Report, once in a row of failures, that no new checkpoint was written."""
        if not self._has_failed:
            warn("a checkpoint must be written and read back", f"{type(error).__name__} ({error})", f"'{self.folder}'",
                 "Training goes on, and the last checkpoint stays; make room or give another `checkpoint_dir`.")  # fmt: skip
        self._has_failed = True


def newest(folder: Path) -> TrainingState | None:
    """Load the newest complete checkpoint; takes no lock. Raises `ValueError`: a later version of Punctual wrote it."""
    for path in reversed(_paths(folder)):
        try:
            return replace(_checkpoint_file.read(path), origin=str(path))
        except FileNotFoundError:
            continue  # the writer has removed it in the meantime, having made a newer one
        except (OSError, Damaged) as error:
            if isinstance(error, Damaged) and error.is_later:  # to begin anew would remove it in the end
                raise invalid("a checkpoint must not be of a later version of Punctual", str(error), f"'{path}'",
                              "Train on with that version, or give another `checkpoint_dir` to begin anew.") from error  # fmt: skip
            warn("a checkpoint must be as it was written", str(error), f"'{path}'",
                 "The one before it is used, if there is one. Look after the disk if this happens again.")  # fmt: skip
    return None


def _paths(folder: Path) -> list[Path]:
    """Return the paths of the checkpoints, the oldest first."""
    return sorted(path for path in folder.glob(f"*{_SUFFIX}") if path.stem.isdecimal())


def chosen(folder: str | os.PathLike[str] | None, *, every_s: float | None = None) -> CheckpointStore | None:
    """Return the store of a training's checkpoints: in `folder`, or else in the environment's folder.

    None: neither does, and it has none.
    """
    folder = folder or os.environ.get(CHECKPOINT_VARIABLE)
    return CheckpointStore(folder, every_s=every_s) if folder else None


# Being the only writer. The lock goes with the process that holds it, however it ends.

_locks: set[int] = set()


def _locked(folder: Path, wait_s: float) -> int:
    """Lock `folder` and return the lock; a training that is just leaving has `wait_s` seconds to release it.

    Raises `ValueError`: the present holder does not release it in time.
    """
    fd = os.open(folder / _LOCK, os.O_RDWR | os.O_CREAT, 0o666)
    _locks.add(fd)
    try:
        _wait_for(fd, folder, wait_s)
        os.truncate(fd, 0)
        os.pwrite(fd, str(os.getpid()).encode(), 0)
    except BaseException:
        _unlock(fd)
        raise
    return fd


def _wait_for(fd: int, folder: Path, wait_s: float) -> None:
    until = monotonic() + wait_s
    while True:
        try:
            return fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if monotonic() >= until:
                raise invalid(
                    "a folder of checkpoints must belong to one training",
                    f"one that process {os.pread(fd, 20, 0).decode()} writes to", f"'{folder}'",
                    "Give each training a `checkpoint_dir` of its own, or wait until the other has ended.",
                ) from None  # fmt: skip
        sleep(0.05)


def _unlock(fd: int) -> None:
    _locks.discard(fd)
    os.close(fd)


def _leave_to_parent() -> None:
    """Release the locks in a forked child (a worker of a data loader), which would keep them after its parent's end."""
    for fd in list(_locks):
        _unlock(fd)


os.register_at_fork(after_in_child=_leave_to_parent)
