"""The log of a job's output, written by its supervisor.

The job writes to a pipe or a terminal whose other end the supervisor alone reads. So no other process is in the way: the
process that steers the job may die, or be stopped, or be slow, and the job writes on and every line is kept. Whoever
wants to see the output follows the file (`punctual.executors.local.output.LogTail`).

Needs nothing but the standard library, and little of that: it is loaded by the supervisor.
"""

import os
import time

#: Size at which a job's log is begun anew.
LOG_BYTES_MAX = 1 << 26
#: A file that has come to its limit is closed at the end of a line, unless none comes within so many bytes.
_LINE_BYTES_MAX = 65_536


def times_of(log: str) -> str:
    """Path of the file beside a log that says when the log had how many bytes."""
    return log + ".times"


def rotate(log: str) -> None:
    """Rename the log and its times, in place of earlier ones; a file that is not there is left out."""
    for path, earlier in ((log, log + ".1"), (times_of(log), times_of(log + ".1"))):
        try:
            os.replace(path, earlier)
        except OSError:
            pass


def note_time(log: str) -> None:
    """Note since when the log has had its bytes, before more are added: after a second without any, and once a second.

    The notes of a log of short lines are fewer: they take no more than a few KiB and an eighth of its bytes.
    """
    path, now = times_of(log), time.time()
    try:
        had, (n_bytes, noted_s) = os.stat(log), _size_and_change(path)
        is_known = abs(now - had.st_mtime) < 1.0 and abs(now - noted_s) < 1.0
        if is_known or not had.st_size or n_bytes > 4096 + had.st_size // 8:
            return
        fd = _open_file(path)
    except OSError:  # the log alone matters
        return
    try:
        os.write(fd, b"%.3f %d\n" % (had.st_mtime, had.st_size))
    except OSError:
        pass
    os.close(fd)


def _open_file(path: str) -> int:
    """Open a file to append to; what a job has put in its place is removed: a pipe that nobody reads, a link elsewhere."""
    if os.path.islink(path) or (os.path.exists(path) and not os.path.isfile(path)):
        os.unlink(path)
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)


def _size_and_change(path: str) -> tuple[int, float]:
    try:
        status = os.stat(path)
    except OSError:
        return 0, 0.0
    return status.st_size, status.st_mtime


class JobLog:
    """Moves a job's output into a file of limited size.

    At its limit the file is renamed (``output.log`` to ``output.log.1``, in place of an earlier one) and begun anew, so
    that both hold the latest output and at most about twice the limit. Its times (`times_of`) go with it. If the disk is
    full, output is dropped, and the next that can be written says how much was.

    * `path`: the file; its present content stays.
    * `source_fd`: descriptor to read the job's output from; becomes non-blocking.
    """

    def __init__(self, path: str, limit_bytes: int, source_fd: int) -> None:
        self._path = path
        self._limit_bytes = limit_bytes
        self._source_fd = source_fd
        self._n_dropped = 0
        self._file_fd: int | None = None
        self._n_bytes = 0
        self._open()
        os.set_blocking(source_fd, False)

    def relay(self) -> bool:
        """Move a piece of the output to the file; False: no writer is left. To be called when there is output."""
        try:
            # Bytes moved at once, few so that the supervisor's other work does not wait.
            output = os.read(self._source_fd, 65_536)
        except BlockingIOError:
            return True
        except OSError:  # how a pseudo-terminal says that nobody writes any more
            return False
        if output:
            self._keep(output)
        return bool(output)

    def finish(self) -> None:
        """Move the remaining output and close all files, once all processes that could write have ended."""
        n_left = 64  # what a pipe can hold at most, and more; a process that got away may write for ever
        while n_left and self._has_more() and self.relay():
            n_left -= 1
        for fd in (self._file_fd, self._source_fd):
            if fd is not None:
                os.close(fd)
        self._file_fd = None

    def _has_more(self) -> bool:
        import select  # the supervisor has loaded it anyway

        poll = select.poll()
        poll.register(self._source_fd, select.POLLIN)
        return bool(poll.poll(0))

    def _keep(self, output: bytes) -> None:
        end = self._limit_bytes - self._n_bytes
        if end < len(output):
            # The line that crosses the limit still goes into the old file.
            i_line_end = output.find(b"\n", max(end, 0))
            if i_line_end >= 0 or self._n_bytes + len(output) > self._limit_bytes + _LINE_BYTES_MAX:
                head, output = output[: i_line_end + 1], output[i_line_end + 1 :]
                self._write(head)
                rotate(self._path)
                if self._file_fd is not None:
                    os.close(self._file_fd)
                self._file_fd = None
                self._open()
        self._write(output)

    def _write(self, output: bytes) -> None:
        n_output, rest = len(output), memoryview(self._noted(output))
        note_time(self._path)
        while rest:
            try:
                n_written = os.write(self._opened(), rest)
            except OSError:
                self._n_dropped += min(len(rest), n_output)
                return
            self._n_bytes += n_written
            rest = rest[n_written:]
            if len(rest) <= n_output:  # the note is written
                self._n_dropped = 0

    def _noted(self, output: bytes) -> bytes:
        """Prefix `output` with a note of the lost bytes."""
        if not self._n_dropped or not output:
            return output
        return b"\n[%d bytes of output were lost: the disk was full]\n" % self._n_dropped + output

    def _open(self) -> None:
        try:
            self._opened()
        except OSError:  # tried again with the next output
            pass

    def _opened(self) -> int:
        """Return the file, opened if it is not; raises `OSError`."""
        if self._file_fd is None:
            self._file_fd = _open_file(self._path)
            self._n_bytes = os.fstat(self._file_fd).st_size
        return self._file_fd
