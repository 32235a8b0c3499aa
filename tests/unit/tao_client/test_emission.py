import threading
import time
from collections.abc import Sequence

import pytest

from tao_client._emission import Emitter
from tao_client._events import Event, make_event


class FakeSink:
    def __init__(self) -> None:
        self.batches: list[list[Event]] = []
        self.arrives = True
        self.gate = threading.Event()
        self.gate.set()

    def send(self, events: Sequence[Event]) -> bool:
        self.gate.wait(10)
        self.batches.append(list(events))
        if not self.arrives:
            raise ConnectionError("of the sink")
        return True


def event(number: int) -> Event:
    return make_event("tao.tool.start", "s", {"number": number})


def numbers(batch: Sequence[Event]) -> list[object]:
    return [one.attributes["number"] for one in batch]


def test_events_arrive_in_order_and_at_close_at_the_latest() -> None:
    sink = FakeSink()
    emitter = Emitter(sink, lambda: False)
    for number in range(100):
        emitter.emit(event(number))
    emitter.close(5)
    assert [number for batch in sink.batches for number in numbers(batch)] == list(range(100))
    assert emitter.dropped == 0


def test_what_has_gathered_meanwhile_goes_as_one_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tao_client._emission.LONGEST_BATCH", 4)
    sink = FakeSink()
    sink.gate.clear()
    emitter = Emitter(sink, lambda: False)
    emitter.emit(event(0))
    while emitter._queue.qsize():
        time.sleep(0.001)
    for number in range(1, 7):
        emitter.emit(event(number))
    sink.gate.set()
    emitter.close(5)
    assert [numbers(batch) for batch in sink.batches] == [[0], [1, 2, 3, 4], [5, 6]]


def test_full_queue_drops_the_newest_and_counts() -> None:
    sink = FakeSink()
    sink.gate.clear()
    emitter = Emitter(sink, lambda: False, limit=3)
    emitter.emit(event(0))
    while emitter._queue.qsize():
        time.sleep(0.001)
    for number in range(1, 7):
        emitter.emit(event(number))
    assert emitter.dropped == 3
    sink.gate.set()
    emitter.close(5)
    assert [number for batch in sink.batches for number in numbers(batch)] == [0, 1, 2, 3]


def test_events_are_dropped_while_paused() -> None:
    sink = FakeSink()
    emitter = Emitter(sink, lambda: True)
    emitter.emit(event(0))
    emitter.close(5)
    assert not sink.batches
    assert emitter.dropped == 1


def test_sink_that_fails_loses_its_batch_and_no_other() -> None:
    sink = FakeSink()
    sink.arrives = False
    emitter = Emitter(sink, lambda: False)
    emitter.emit(event(0))
    while not sink.batches:
        time.sleep(0.001)
    sink.arrives = True
    emitter.emit(event(1))
    emitter.close(5)
    assert [numbers(batch) for batch in sink.batches] == [[0], [1]]
    assert emitter.dropped == 1


def test_closed_emitter_drops() -> None:
    emitter = Emitter(FakeSink(), lambda: False)
    emitter.close(5)
    emitter.emit(event(0))
    assert emitter.dropped == 1


def test_close_waits_no_longer_than_told() -> None:
    sink = FakeSink()
    sink.gate.clear()
    emitter = Emitter(sink, lambda: False)
    emitter.emit(event(0))
    started_s = time.monotonic()
    emitter.close(0.05)
    assert time.monotonic() - started_s < 5
    sink.gate.set()


def test_destructor_that_emits_while_the_thread_starts_starts_no_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Garbage collection may run, and a stream be given back, at any moment on any thread."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def collect_garbage_then_start(thread: threading.Thread) -> None:
        started.append(thread)
        emitter._start()
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", collect_garbage_then_start)
    sink = FakeSink()
    emitter = Emitter(sink, lambda: False)
    emitter.emit(event(0))
    emitter.close(5)
    assert len(started) == 1
    assert [numbers(batch) for batch in sink.batches] == [[0]]


def test_emitter_without_a_thread_is_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """At interpreter shutdown no thread can be started."""

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread at interpreter shutdown")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    sink = FakeSink()
    emitter = Emitter(sink, lambda: False)
    emitter.emit(event(0))
    emitter.emit(event(1))
    emitter.close(5)
    assert not sink.batches
