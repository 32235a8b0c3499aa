"""Learned durations across restarts: whole, damaged, missing, unwritable."""

import asyncio
import logging
import threading
from collections.abc import Mapping
from pathlib import Path

import pytest

from tao_coordinator.core.events import ToolEnded, ToolStarted
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service import history_file
from tao_coordinator.service.history_file import HistoryFile


def taught() -> Engine:
    engine = Engine(Parameters())
    for n in range(50):
        start = ToolStarted(session_id=f"s{n}", call_id="c", name="bash", key="make")
        engine.step(float(n * 50), [start])
        engine.step(n * 50 + 40.0, [ToolEnded(session_id=f"s{n}", call_id="c", duration_s=40.0)])
    return engine


def median_s(engine: Engine) -> float:
    engine.step(10_000.0, [ToolStarted(session_id="x", call_id="c", name="bash", key="make")])
    return engine.readiness.remaining("x", 10_000.0).median_s


def test_restarted_engine_knows_what_the_first_one_learned(tmp_path: Path) -> None:
    first = taught()
    HistoryFile(tmp_path / "state").save(first.learned())
    fresh, recalled = Engine(Parameters()), Engine(Parameters())
    assert HistoryFile(tmp_path / "state").load(recalled.recall)
    assert median_s(recalled) == pytest.approx(40.0, rel=0.3)
    assert median_s(fresh) < 20.0


def test_first_start_finds_nothing(tmp_path: Path) -> None:
    assert not HistoryFile(tmp_path).load(Engine(Parameters()).recall)


@pytest.mark.parametrize("damage", [b"", b"[1]", b"{", b'{"calls": 3}', b"\xff\xfe"])
def test_damaged_file_is_set_aside_with_one_warning(
    damage: bytes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = HistoryFile(tmp_path)
    file.path.write_bytes(damage)
    with caplog.at_level(logging.WARNING):
        assert not file.load(Engine(Parameters()).recall)
    assert len(caplog.records) == 1
    assert not file.path.exists()
    assert file.path.with_suffix(".damaged").read_bytes() == damage


def test_oversize_file_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_file, "FILE_BYTES_MAX", 10)
    file = HistoryFile(tmp_path)
    file.path.write_bytes(b"{}" + b" " * 20)
    seen: list[Mapping[str, object]] = []
    assert not file.load(seen.append)
    assert seen == []


def test_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ConfigurationError, match="--state-dir"):
        HistoryFile(tmp_path / "file" / "state")


def test_failed_save_keeps_the_old_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = HistoryFile(tmp_path)
    file.save({"calls": 1})
    file.path.with_suffix(".new").mkdir()
    with caplog.at_level(logging.WARNING):
        file.save({"calls": 2})
    assert file.path.read_bytes() == b'{"calls":1}'
    assert "was not saved" in caplog.text


def test_keeping_saves_until_it_is_cancelled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_file, "SAVE_INTERVAL_S", 0.01)
    file = HistoryFile(tmp_path)

    async def body() -> None:
        task = asyncio.create_task(file.keep(lambda: {"a": 1}))
        await asyncio.sleep(0.5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(body(), 10.0))
    assert file.path.read_bytes() == b'{"a":1}'


def test_slow_disk_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_file, "SAVE_INTERVAL_S", 0.0)
    may_end = threading.Event()

    async def body() -> None:
        loop, is_writing = asyncio.get_running_loop(), asyncio.Event()

        class SlowDisk(HistoryFile):
            def save(self, learned: Mapping[str, object]) -> None:
                loop.call_soon_threadsafe(is_writing.set)
                assert may_end.wait(10.0)

        task = asyncio.create_task(SlowDisk(tmp_path).keep(dict))
        await is_writing.wait()
        # The disk writes until this line is reached: it is, so the loop goes on meanwhile.
        may_end.set()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(body(), 20.0))
