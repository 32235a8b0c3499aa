"""Opens trace files and folders; the readers themselves (`traces`) never touch a disk."""

import gzip
import hashlib
import zlib
from pathlib import Path
from typing import Final

from tao_coordinator.traces.formats import joined, read
from tao_coordinator.traces.records import MalformedTrace, Trace

BYTES_MAX: Final = 1 << 30
"""Unpacked size of one file; more is refused, it would not fit the memory as objects."""
_SUFFIXES: Final = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


def load(path: Path, format_name: str | None = None) -> Trace:
    """Read a trace file, or all trace files of a folder (recursively, by name).

    Args:
        path: `.json` or `.jsonl`, gzipped or not; or a folder of such.
        format_name: one of `traces.formats.FORMATS`; `None`: told by the content.

    Raises:
        MalformedTrace: nothing usable.
        OSError: the file cannot be read.
    """
    if not path.is_dir():
        return read(_text(path), _stem(path), format_name)
    files = _files(path)
    if not files:
        raise MalformedTrace(f"{path}: no file ending in {', '.join(_SUFFIXES)}")
    return joined(read(_text(file), _stem(file), format_name) for file in files)


def digest(path: Path) -> str:
    """Short digest of a file's content, or of all trace files of a folder.

    Raises:
        OSError: it cannot be read.
    """
    seen = hashlib.blake2b(digest_size=8)
    for file in _files(path) if path.is_dir() else [path]:
        seen.update(file.read_bytes())
    return seen.hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.rglob("*") if file.name.endswith(_SUFFIXES))


def _text(path: Path) -> str:
    with path.open("rb") as file:
        head = file.read(2)
        file.seek(0)
        try:
            if head == b"\x1f\x8b":
                with gzip.open(file) as unpacked:
                    data = unpacked.read(BYTES_MAX + 1)
            else:
                data = file.read(BYTES_MAX + 1)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise MalformedTrace(f"{path}: damaged gzip: {error}") from error
    if len(data) > BYTES_MAX:
        raise MalformedTrace(f"{path}: more than {BYTES_MAX >> 20} MiB unpacked")
    return data.decode("utf-8", errors="replace")


def _stem(path: Path) -> str:
    name = path.name
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        name = name.removesuffix(suffix)
    return name.removesuffix(".traj")
