"""Rows of the journal: what becomes one, when, and what is never in it."""

from typing import Any

import pytest

from tao_coordinator.core.effects import Grant, Receipt, Reject, RejectReason
from tao_coordinator.core.events import (
    Event,
    LeaseReleased,
    SessionEnded,
    SessionHeartbeat,
    SessionWaiting,
    ToolEnded,
    ToolStarted,
    TurnAbandoned,
    TurnObserved,
    TurnOutcome,
    TurnRequested,
)
from tao_coordinator.service.journal import recorder as module
from tao_coordinator.service.journal.recorder import Recorder

UNIX_S = 1_000_000.0


class Books:
    """A recorder and the leases that are alive."""

    def __init__(self, time_scale: float = 1.0) -> None:
        self.alive: set[str] = set()
        self.recorder = Recorder(0.0, UNIX_S, self.alive.__contains__, time_scale)

    def step(self, now_s: float, *events: Event, age_s: float = 0.0) -> list[dict[str, Any]]:
        ages_s = [age_s] * len(events) if age_s else []
        return self.recorder.take(now_s, events, (), ages_s)

    def ask(self, now_s: float, request_id: str = "r", session_id: str = "s", **more: Any) -> None:
        turn = TurnRequested(request_id=request_id, session_id=session_id, **more)
        assert self.step(now_s, turn) == []

    def grant(self, now_s: float, request_id: str = "r", *, is_repeat: bool = False) -> str:
        lease_id = f"l-{request_id}"
        self.alive.add(lease_id)
        receipt = Receipt(
            policy="tao", reason="planned", hold_s=0.0, cache_credit_tokens=0, plan_id=None
        )
        effect = Grant(
            request_id=request_id,
            lease_id=lease_id,
            backend_id="gpu-1",
            base_url="http://gpu-1",
            start_within_s=5.0,
            strength="hard",
            receipt=receipt,
            is_repeat=is_repeat,
        )
        assert self.recorder.take(now_s, (), [effect]) == []
        return lease_id

    def release(self, now_s: float, lease_id: str, **report: Any) -> list[dict[str, Any]]:
        self.alive.discard(lease_id)
        return self.step(now_s, LeaseReleased(lease_id=lease_id, **report))


def test_turn_is_a_row_with_its_times_and_tokens() -> None:
    books = Books()
    books.ask(10.0, agent="main", model="qwen", parent_session_id="p", input_tokens=90)
    lease = books.grant(12.5)
    (row,) = books.release(
        17.0, lease, input_tokens=100, cached_tokens=0, output_tokens=7, ttft_s=0.5, duration_s=4.25
    )
    assert row == {
        "request_id": "r",
        "session_id": "s",
        "agent": "main",
        "model": "qwen",
        "parent_session_id": "p",
        "timestamp": (UNIX_S + 10.0) * 1e3,
        "hold_ms": 2500.0,
        "llm_ms": 4250.0,
        "ttft_ms": 500.0,
        "input_length": 100,
        "cached_length": 0,
        "output_length": 7,
        "backend": "gpu-1",
        "outcome": "completed",
    }
    assert books.recorder.num_open == 0


def test_simulated_engines_are_told_in_their_own_seconds() -> None:
    books = Books(time_scale=20.0)
    books.ask(10.0)
    (row,) = books.release(14.0, books.grant(11.0), ttft_s=0.5)
    assert (row["timestamp"], row["hold_ms"]) == ((UNIX_S + 200.0) * 1e3, 20_000.0)
    assert (row["llm_ms"], row["ttft_ms"]) == (60_000.0, 10_000.0)


def test_polls_and_repeated_grants_change_nothing() -> None:
    books = Books()
    books.ask(1.0)
    books.ask(5.0)
    lease = books.grant(6.0)
    books.grant(8.0, is_repeat=True)
    (row,) = books.release(9.0, lease)
    assert (row["timestamp"], row["hold_ms"], row["llm_ms"]) == ((UNIX_S + 1) * 1e3, 5000.0, 3000.0)
    assert books.release(9.5, lease) == []


def test_prompt_that_nobody_reported_is_the_askers_estimate() -> None:
    books = Books()
    books.ask(1.0, input_tokens=50)
    (row,) = books.release(3.0, books.grant(2.0), duration_s=1e9)
    assert row["input_length"] == 50
    assert row["input_is_estimate"] is True
    assert "output_length" not in row
    assert row["llm_ms"] == 1000.0, "no longer than the lease"


@pytest.mark.parametrize("ending", ["rejected", "abandoned", "never delivered"])
def test_turn_without_a_call_is_no_row(ending: str) -> None:
    books = Books()
    books.ask(1.0)
    if ending == "rejected":
        reject = Reject(request_id="r", reason=RejectReason.QUEUE_FULL, message="")
        assert books.recorder.take(2.0, (), [reject]) == []
    elif ending == "never delivered":
        lease = books.grant(2.0)
        books.alive.discard(lease)
    assert books.step(3.0, TurnAbandoned(request_id="r")) == []
    assert books.recorder.num_open == 0


def test_running_turn_outlives_a_late_word_that_nobody_wants_it() -> None:
    books = Books()
    books.ask(1.0)
    lease = books.grant(2.0)
    assert books.step(3.0, TurnAbandoned(request_id="r")) == []
    assert len(books.release(4.0, lease)) == 1


def test_lease_that_ended_without_a_word_is_a_lost_turn() -> None:
    books = Books()
    books.ask(1.0, input_tokens=5)
    lease = books.grant(2.0)
    assert books.step(20.0) == []
    books.alive.discard(lease)
    (row,) = books.step(40.0)
    assert (row["outcome"], row["input_length"]) == (TurnOutcome.LOST.value, 5)
    assert books.release(41.0, lease) == []


def test_tool_call_is_a_row_with_its_emitters_duration() -> None:
    books = Books()
    start = ToolStarted(
        session_id="s", call_id="c", name="Bash", key="make", agent="a", timeout_s=9.0
    )
    assert books.step(5.0, start, start, age_s=1.0) == []
    (row,) = books.step(8.0, ToolEnded(session_id="s", call_id="c", duration_s=2.5), age_s=0.5)
    assert row == {
        "session_id": "s",
        "agent": "a",
        "tool_events": [
            {
                "tool_call_id": "c",
                "tool_class": "Bash",
                "tool_key": "make",
                "started_at_unix_ms": (UNIX_S + 4.0) * 1e3,
                "duration_ms": 2500.0,
                "timeout_ms": 10_000.0,
                "status": "ok",
            }
        ],
    }
    assert books.recorder.num_open == 0


def test_start_that_came_late_is_moved_before_its_end() -> None:
    books = Books()
    books.step(5.0, ToolStarted(session_id="s", call_id="c", name="x", background=True))
    ended = ToolEnded(session_id="s", call_id="c", duration_s=3.0, error_type="timeout")
    ((call,),) = [row["tool_events"] for row in books.step(5.5, ended)]
    assert call["started_at_unix_ms"] == (UNIX_S + 2.5) * 1e3
    assert (call["status"], call["background"]) == ("timeout", True)


def test_end_without_a_start_is_a_row_where_it_says_enough() -> None:
    books = Books()
    (row,) = books.step(5.0, ToolEnded(session_id="s", call_id="c", name="x", duration_s=2.0))
    assert row["tool_events"][0]["started_at_unix_ms"] == (UNIX_S + 3.0) * 1e3
    assert books.step(5.0, ToolEnded(session_id="s", call_id="d", name="x")) == []
    assert books.step(5.0, ToolEnded(session_id="s", call_id="e", duration_s=1.0)) == []


@pytest.mark.parametrize(
    "event",
    [SessionHeartbeat(session_id="s", open_call_ids=("kept",)), SessionEnded(session_id="s")],
)
def test_call_whose_end_nobody_knows_is_forgotten(event: Event) -> None:
    books = Books()
    for call_id in ("lost", "kept"):
        books.step(1.0, ToolStarted(session_id="s", call_id=call_id, name="x"))
    books.step(2.0, event)
    assert books.step(3.0, ToolEnded(session_id="s", call_id="lost")) == []
    is_kept = isinstance(event, SessionHeartbeat)
    assert len(books.step(3.0, ToolEnded(session_id="s", call_id="kept"))) == is_kept


@pytest.mark.parametrize(("reason", "kind"), [("user_input", "user"), ("external", None)])
def test_wait_for_a_person_is_told_of_the_next_turn_only(reason: str, kind: str | None) -> None:
    books = Books()
    books.step(1.0, SessionWaiting(session_id="s", reason=reason))
    books.ask(2.0, "r1")
    books.ask(2.5, "r2")
    (first,) = books.release(3.0, books.grant(2.0, "r1"))
    (second,) = books.release(3.0, books.grant(2.5, "r2"))
    assert (first.get("gap_kind"), second.get("gap_kind")) == (kind, None)


def test_end_of_a_session_is_a_row() -> None:
    (row,) = Books().step(3.0, SessionEnded(session_id="s", agent="a"))
    assert row == {"session_id": "s", "agent": "a", "ended_at_unix_ms": (UNIX_S + 3.0) * 1e3}


def observed(session_id: str = "s") -> TurnObserved:
    return TurnObserved(
        session_id=session_id, model="m", input_tokens=100, cached_tokens=90, output_tokens=7,
        duration_s=3.0, ttft_s=0.5,
    )  # fmt: skip


def test_call_that_only_its_harness_tells_of_is_a_row() -> None:
    books = Books()
    (row,) = books.step(10.0, observed(), age_s=1.0)
    assert row.pop("request_id").startswith("observed-")
    assert row == {
        "session_id": "s",
        "model": "m",
        "timestamp": (UNIX_S + 6.0) * 1e3,
        "hold_ms": 0.0,
        "llm_ms": 3000.0,
        "ttft_ms": 500.0,
        "input_length": 100,
        "cached_length": 90,
        "output_length": 7,
        "outcome": "completed",
    }
    first, second = books.step(11.0, observed(), observed())
    assert first["request_id"] != second["request_id"]


def test_call_that_had_a_lease_counts_once() -> None:
    books = Books()
    books.ask(1.0)
    assert books.step(2.0, observed()) == []
    assert len(books.step(2.0, observed("other"))) == 1


def test_memory_is_bounded_whatever_never_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OPEN_MAX", 20)
    monkeypatch.setattr(module, "WAITS_MAX", 20)
    books = Books()
    for n in range(200):
        books.ask(1.0, f"r{n}", f"s{n}")
        books.grant(1.0, f"r{n}")
        books.step(1.0, ToolStarted(session_id=f"s{n % 50}", call_id=f"c{n}", name="x"))
        books.step(1.0, SessionWaiting(session_id=f"s{n}", reason="approval"))
    assert books.recorder.num_open <= 40
    assert len(books.release(2.0, "l-r199")) == 1
    assert books.release(2.0, "l-r1") == []
