"""The way to the disk: bounded, never waited for, its losses counted and told once."""

import errno
import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.journal import writer as module
from tao_coordinator.service.journal.journal import Journal, JournalCollector
from tao_coordinator.service.journal.writer import JournalWriter


class Disk:
    def __init__(self) -> None:
        self.data = b""
        self.is_full = False
        self.may_write = threading.Event()
        self.may_write.set()
        self.is_closed = False

    def append(self, rows: bytes) -> None:
        assert self.may_write.wait(10)
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.data += rows

    def close(self) -> None:
        self.is_closed = True

    def numbers(self) -> list[int]:
        return [json.loads(line)["n"] for line in self.data.splitlines()]


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "FLUSH_S", 0.01)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]


def test_rows_arrive_in_order_and_the_last_ones_at_the_end() -> None:
    disk = Disk()
    writer = JournalWriter(disk, "dir")
    for n in range(10_000):
        writer.put([{"n": n}])
    assert writer.close()
    assert disk.numbers() == list(range(10_000))
    assert disk.is_closed
    state = writer.state()
    assert (state.rows_written, state.rows_dropped, state.error) == (10_000, 0, None)
    assert state.bytes_written == len(disk.data)


def test_slow_disk_is_not_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    disk.may_write.clear()
    writer = JournalWriter(disk, "dir", queue_max=10)
    for n in range(1_000):
        writer.put([{"n": n}])
    state = writer.state()
    assert state.rows_dropped >= 1_000 - 2 * 10
    assert state.error == "the disk does not keep up"
    disk.may_write.set()
    assert writer.close()
    state = writer.state()
    assert state.rows_written + state.rows_dropped == 1_000
    assert len(disk.numbers()) == state.rows_written
    assert state.error is None
    assert len(warnings(caplog)) == 1


def test_full_disk_is_told_once_and_forgotten_when_there_is_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    disk = Disk()
    disk.is_full = True
    writer = JournalWriter(disk, "dir")
    for n in range(50):
        writer.put([{"n": n}])
        threading.Event().wait(0.002)
    _until(lambda: writer.state().rows_dropped == 50)
    assert writer.state().error == "No space left on device"
    disk.is_full = False
    writer.put([{"n": 50}])
    assert writer.close()
    assert disk.numbers() == [50]
    assert writer.state().error is None
    assert len(warnings(caplog)) == 1
    assert "No space left on device" in warnings(caplog)[0]


def test_row_that_is_no_json_costs_only_itself() -> None:
    disk = Disk()
    writer = JournalWriter(disk, "dir")
    writer.put([{"n": 1}, {"n": "\ud800"}, {"n": object()}, {"n": 2}])
    assert writer.close()
    assert disk.numbers() == [1, 2]
    assert writer.state().rows_dropped == 2


def test_disk_that_hangs_does_not_hold_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "CLOSE_S_MAX", 0.05)
    disk = Disk()
    disk.may_write.clear()
    writer = JournalWriter(disk, "dir")
    writer.put([{"n": 1}])
    assert not writer.close()
    disk.may_write.set()


def test_failing_recorder_fails_no_step(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal(tmp_path / "j", 1 << 20, lambda _: True, facts={"policy": "tao"})
    for _ in range(3):
        journal.take(1.0, [object()], None)  # pyright: ignore[reportArgumentType]
    journal.close()
    assert len(warnings(caplog)) == 1
    (file,) = (tmp_path / "j").iterdir()
    assert json.loads(file.read_text())["agent_trace"] == 1


def test_metrics_say_what_was_written_and_lost(tmp_path: Path) -> None:
    journal = Journal(tmp_path, 1 << 20, lambda _: True, facts={})
    journal.close()
    families = {
        family.name: family.samples[0].value for family in JournalCollector(journal.state).collect()
    }
    assert families == {
        "tao_journal_rows": 0, "tao_journal_dropped": 0, "tao_journal_bytes": 0,
        "tao_journal_failing": 0,
    }  # fmt: skip


def test_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigurationError, match=r"--journal .*file: File exists"):
        Journal(tmp_path / "file", 1 << 20, lambda _: True, facts={})


def _until(is_true: Callable[[], bool]) -> None:
    for _ in range(1_000):
        if is_true():
            return
        threading.Event().wait(0.01)
    raise AssertionError("condition did not come true")
