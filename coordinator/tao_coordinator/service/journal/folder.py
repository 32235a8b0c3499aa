"""The journal's files: one being written, earlier ones packed, all of them bounded in size.

Each process writes files of its own, named by time and a number drawn at its start, and holds a
lock on the one it writes; whoever tidies up leaves locked ones alone. So several coordinators may
share a folder, and what a killed one leaves is tidied up by the next.
"""

import contextlib
import gzip
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

PREFIX: Final = "journal-"
_SEGMENTS: Final = 8
"""An unpacked file takes at most this part of the whole."""
_SEGMENT_BYTES_MAX: Final = 64 << 20
_FILE_MODE: Final = 0o600
_FOLDER_MODE: Final = 0o700


class JournalFolder:
    """Appends whole rows. Used by one thread at a time."""

    def __init__(
        self,
        path: Path,
        bytes_max: int,
        head: Callable[[], bytes],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Make the folder and its first file.

        Args:
            path: Of the folder.
            bytes_max: All journals in it together take at most this much.
            head: First line of a new file, with its line end.
            wall_clock: Names the files.

        Raises:
            OSError: Nothing can be written there.
        """
        self.path = path
        self._bytes_max = bytes_max
        self._segment_bytes = min(_SEGMENT_BYTES_MAX, bytes_max // _SEGMENTS)
        self._head = head
        self._wall_clock = wall_clock
        self._run = secrets.token_hex(4)
        self._num_files = 0
        self._file: int | None = None
        self._file_path = path
        self._size = 0
        self._open()

    @property
    def run(self) -> str:
        """What the files of this process have in common in their names."""
        return self._run

    def append(self, rows: bytes) -> None:
        """Write whole rows, all or none of them.

        Raises:
            OSError: They could not be written; the file ends with the row before them.
        """
        if self._file is None or os.fstat(self._file).st_nlink == 0:
            # Closed by an earlier failure, or deleted under our hands.
            self._close()
            self._open()
        elif self._size + len(rows) > self._segment_bytes:
            self._rotate()
        self._write(rows)

    def close(self) -> None:
        """Let go of the file. It is not packed: it may be read at once."""
        self._close()

    def _write(self, data: bytes) -> None:
        assert self._file is not None
        done = 0
        try:
            while done < len(data):
                done += os.write(self._file, memoryview(data)[done:])
        except OSError:
            if done:
                os.ftruncate(self._file, self._size)
            raise
        self._size += len(data)

    def _open(self) -> None:
        self.path.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        self._prune()
        self._num_files += 1
        stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime(self._wall_clock()))
        name = f"{PREFIX}{stamp}-{self._run}-{self._num_files:04d}.jsonl"
        self._file_path = self.path / name
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | getattr(os, "O_CLOEXEC", 0)
        self._file = os.open(self._file_path, flags, _FILE_MODE)
        self._size = 0
        _lock(self._file)
        try:
            self._write(self._head())
        except OSError:
            self._close()
            with contextlib.suppress(OSError):
                self._file_path.unlink()
            raise

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _rotate(self) -> None:
        """Pack the file and begin another. Locked until it is packed: nobody else touches it."""
        full, path = self._file, self._file_path
        self._file = None
        try:
            # Where it cannot be packed it stays as it is, and counts with its size.
            with contextlib.suppress(OSError):
                _pack(path)
        finally:
            if full is not None:
                os.close(full)
        self._open()

    def _prune(self) -> None:
        """Delete the oldest files until there is room for another one."""
        found: list[tuple[Path, int]] = []
        for path in sorted(self.path.glob(f"{PREFIX}*")):
            with contextlib.suppress(OSError):
                is_remnant = path.suffix == ".new" or path.with_name(f"{path.name}.gz").exists()
                if is_remnant and not _is_locked(path):
                    # Of somebody who was killed while packing.
                    path.unlink()
                else:
                    found.append((path, path.stat().st_size))
        total = sum(size for _, size in found)
        for path, size in found:
            if total <= self._bytes_max - self._segment_bytes:
                return
            with contextlib.suppress(OSError):
                if not _is_locked(path):
                    path.unlink()
                    total -= size


def _pack(path: Path) -> None:
    """Replace a file by its gzipped form.

    Raises:
        OSError: The disk is full; the file stays.
    """
    packed, fresh = path.with_name(f"{path.name}.gz"), path.with_name(f"{path.name}.new")
    file = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, _FILE_MODE)
    try:
        _lock(file)
        with (
            path.open("rb") as source,
            os.fdopen(file, "wb", closefd=False) as sink,
            gzip.GzipFile(filename="", fileobj=sink, mode="wb", mtime=0) as target,
        ):
            shutil.copyfileobj(source, target)
        fresh.replace(packed)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink()
        raise
    finally:
        os.close(file)
    path.unlink()


if sys.platform == "win32":

    def _lock(file: int) -> None:
        """Windows refuses to delete open files by itself."""

    def _is_locked(path: Path) -> bool:
        return False

else:
    import fcntl

    def _lock(file: int) -> None:
        # Some network file systems have no locks: then nobody tidies up too much, as names differ.
        # Waited for: a neighbour that tidies up holds it for a moment, to see whether it is free.
        with contextlib.suppress(OSError):
            fcntl.flock(file, fcntl.LOCK_EX)

    def _is_locked(path: Path) -> bool:
        """Whether a live process writes it."""
        file = os.open(path, os.O_RDONLY)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            os.close(file)
        return False
