"""The journal's files: rotated, packed, bounded, shared, and whole after any failure."""

import errno
import gzip
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tao_coordinator.service.journal import folder as module
from tao_coordinator.service.journal.folder import JournalFolder
from tao_coordinator.traces import files

HEAD = b'{"agent_trace":1}\n'
MIB = 1 << 20


def opened(
    path: Path, bytes_max: int = MIB, clock: Callable[[], float] = lambda: 0.0
) -> JournalFolder:
    return JournalFolder(path, bytes_max, lambda: HEAD, clock)


def rows(number: int, first: int = 0) -> bytes:
    return b"".join(
        json.dumps(
            {
                "request_id": f"r{first + n}", "session_id": f"s{(first + n) % 7}",
                "timestamp": 1e12 + 1000 * (first + n), "hold_ms": 0, "llm_ms": 5,
                "input_length": 10 + n, "output_length": 3,
            }
        ).encode() + b"\n"
        for n in range(number)
    )  # fmt: skip


def total(path: Path) -> int:
    return sum(file.stat().st_size for file in path.iterdir())


def test_full_files_are_packed_and_read_as_one(tmp_path: Path) -> None:
    folder = opened(tmp_path / "j")
    for first in range(0, 3_000, 50):
        folder.append(rows(50, first))
    folder.close()
    names = sorted(file.name for file in folder.path.iterdir())
    assert [name.endswith(".gz") for name in names] == [True] * (len(names) - 1) + [False]
    assert len(names) > 2
    trace = files.load(folder.path)
    assert (len(trace.sessions), trace.num_turns, trace.skipped.count) == (7, 3_000, 0)


def test_oldest_files_go_and_the_bound_holds(tmp_path: Path) -> None:
    folder = opened(tmp_path / "j")
    for first in range(0, 40):
        noise = os.urandom(40_000).hex().encode()
        folder.append(b'{"noise":"' + noise + b'"}\n' + rows(1, first))
        assert total(folder.path) <= MIB
    folder.close()
    kept = {turn.request_id for s in files.load(folder.path).sessions for turn in s.turns}
    assert "r39" in kept
    assert "r0" not in kept


def test_failed_write_leaves_whole_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = opened(tmp_path / "j")
    folder.append(rows(1))
    write = os.write
    calls: list[int] = []

    def short_then_full(file: int, data: memoryview) -> int:
        calls.append(len(data))
        if len(calls) == 1:
            return write(file, data[:20])
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.os, "write", short_then_full)
    with pytest.raises(OSError, match="No space"):
        folder.append(rows(1, 1))
    monkeypatch.undo()
    folder.append(rows(1, 2))
    folder.close()
    (file,) = folder.path.iterdir()
    assert file.read_bytes() == HEAD + rows(1) + rows(1, 2)


def test_disk_that_is_full_when_a_file_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = opened(tmp_path / "j", clock=iter(range(100)).__next__)
    folder.append(rows(1))

    def full(file: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    big = rows(2_000, 1)
    monkeypatch.setattr(module.os, "write", full)
    for _ in range(3):
        with pytest.raises(OSError, match="No space"):
            folder.append(big)
    monkeypatch.undo()
    folder.append(rows(1, 9_000))
    folder.close()
    trace = files.load(folder.path)
    assert (trace.num_turns, trace.skipped.count) == (2, 0)


def test_file_that_cannot_be_packed_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = opened(tmp_path / "j")
    folder.append(rows(1))

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module.shutil, "copyfileobj", full)
    folder.append(rows(2_000, 1))
    folder.close()
    assert sorted(file.suffix for file in folder.path.iterdir()) == [".jsonl", ".jsonl"]
    assert files.load(folder.path).num_turns == 2_001


def test_folder_deleted_under_our_hands_is_made_again(tmp_path: Path) -> None:
    folder = opened(tmp_path / "j")
    folder.append(rows(1))
    for file in folder.path.iterdir():
        file.unlink()
    folder.path.rmdir()
    folder.append(rows(1, 1))
    folder.close()
    assert files.load(folder.path).num_turns == 1


def test_neighbours_leave_each_others_open_file_alone(tmp_path: Path) -> None:
    one = opened(tmp_path / "j")
    one.append(rows(1))
    two = opened(tmp_path / "j")
    for first in range(0, 20):
        two.append(b'{"noise":"' + os.urandom(40_000).hex().encode() + b'"}\n' + rows(1, 1 + first))
    one.append(rows(1, 99))
    one.close()
    two.close()
    found = {turn.request_id for s in files.load(tmp_path / "j").sessions for turn in s.turns}
    assert {"r0", "r99", "r20"} <= found


def test_remnants_of_a_killed_neighbour_are_tidied_up(tmp_path: Path) -> None:
    first = opened(tmp_path / "j")
    first.append(rows(3))
    first.close()
    (raw,) = first.path.iterdir()
    # Killed after packing, before the original was deleted; and in the middle of packing another.
    raw.with_name(f"{raw.name}.gz").write_bytes(gzip.compress(raw.read_bytes()))
    torn = first.path / "journal-19700101T000000-dead-0002.jsonl.new"
    torn.write_bytes(b"\x1f\x8b")
    assert files.load(first.path).num_turns == 3
    second = opened(tmp_path / "j")
    second.close()
    assert not raw.exists()
    assert not torn.exists()
    assert files.load(first.path).num_turns == 3


def test_other_files_of_the_folder_are_never_touched(tmp_path: Path) -> None:
    (tmp_path / "notes.jsonl").write_bytes(b"x" * 2 * MIB)
    folder = opened(tmp_path)
    folder.append(rows(2_000))
    folder.append(rows(2_000, 2_000))
    folder.close()
    assert (tmp_path / "notes.jsonl").stat().st_size == 2 * MIB


@pytest.mark.parametrize("name", ["file", "file/below"])
def test_what_is_no_folder_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"exists|directory"):
        opened(tmp_path / name)
