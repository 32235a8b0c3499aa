"""Opens trace files and folders; the readers themselves (`traces`) never touch a disk."""

import gzip
import hashlib
import zlib
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO, Final

from tao_coordinator.traces import agent_rows, agent_trace
from tao_coordinator.traces.formats import joined, read
from tao_coordinator.traces.records import MalformedTrace, Skipped, SkippedRows, Trace

BYTES_MAX: Final = 1 << 30
"""Unpacked size of one file; more is refused, it would not fit the memory as objects."""
_PART_BYTES: Final = 1 << 16
_SUFFIXES: Final = (".jsonl", ".json", ".jsonl.gz", ".json.gz")


def load(path: Path, format_name: str | None = None) -> Trace:
    """Read a trace file, or all trace files of a folder (recursively, by name).

    The files of a coordinator's journal are read as one: a session may go on in the next. A file in
    a folder that is no trace, as benchmarks leave beside trajectories, costs only itself.

    Args:
        path: `.json` or `.jsonl`, gzipped or not; or a folder of such.
        format_name: one of `traces.formats.FORMATS`; `None`: told by the content.

    Raises:
        MalformedTrace: nothing usable.
        OSError: the file cannot be read.
    """
    if not path.is_dir():
        text, cut_off = _text(path)
        if not text and cut_off:
            raise MalformedTrace(f"{path}: {cut_off}")
        damage = Skipped(count=1, messages=(cut_off,)) if cut_off else Skipped()
        return _with(read(text, _stem(path), format_name), damage)
    files = _files(path)
    if not files:
        raise MalformedTrace(f"{path}: no file ending in {', '.join(_SUFFIXES)}")
    journal = agent_trace.Reader()
    has_journal = False
    parts: list[Trace] = []
    skipped = SkippedRows()
    for file in files:
        try:
            text, cut_off = _text(file)
            if cut_off or not text:
                skipped.add(file.name, cut_off or "empty")
            if agent_rows.is_journal(text) and format_name in (None, agent_trace.NAME):
                journal.take(text, _stem(file), f"{file.name} ")
                has_journal = True
            elif text:
                parts.append(read(text, _stem(file), format_name))
        except MalformedTrace as error:
            skipped.add(file.name, _reason(error, file))
    if has_journal:
        try:
            parts.append(journal.trace("journal"))
        except MalformedTrace as error:
            skipped.add("journal", str(error).removeprefix("journal: "))
    if not parts:
        raise MalformedTrace(f"{path}: {skipped.to_value().messages[0]}")
    return _with(joined(parts), skipped.to_value())


def _with(trace: Trace, skipped: Skipped) -> Trace:
    """The trace, with what else was wrong."""
    return replace(trace, skipped=skipped + trace.skipped)


def _reason(error: MalformedTrace, file: Path) -> str:
    """What was wrong with a file, without its name."""
    return str(error).removeprefix(f"{file}: ").removeprefix(f"{_stem(file)}: ")


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
    found = sorted(f for f in folder.rglob("*") if f.name.endswith(_SUFFIXES) and f.is_file())
    # A journal's writer that is killed while packing leaves both.
    packed = {file.with_suffix("") for file in found if file.suffix == ".gz"}
    return [file for file in found if file not in packed]


def _text(path: Path) -> tuple[str, str]:
    """What a file says, and what is wrong with it: as much as could be unpacked is there."""
    damage = ""
    with path.open("rb") as file:
        head = file.read(2)
        file.seek(0)
        if head == b"\x1f\x8b":
            data, damage = _unpacked(file)
        else:
            data = file.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise MalformedTrace(f"{path}: more than {BYTES_MAX >> 20} MiB unpacked")
    return data.decode("utf-8", errors="replace"), damage


def _unpacked(file: BinaryIO) -> tuple[bytes, str]:
    parts: list[bytes] = []
    size = 0
    try:
        with gzip.open(file) as unpacked:
            while size <= BYTES_MAX and (part := unpacked.read(_PART_BYTES)):
                parts.append(part)
                size += len(part)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        return b"".join(parts), f"damaged gzip: {error}"
    return b"".join(parts), ""


def _stem(path: Path) -> str:
    name = path.name
    for suffix in sorted(_SUFFIXES, key=len, reverse=True):
        name = name.removesuffix(suffix)
    return name.removesuffix(".traj")
