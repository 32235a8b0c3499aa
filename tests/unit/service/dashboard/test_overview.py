"""The dashboard's document over the real engine: bounded, complete, true."""

import asyncio
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import ANY

from service_fakes import Service

from tao_coordinator.core.events import (
    BackendAdded,
    BackendSampled,
    Event,
    LeaseReleased,
    SessionEnded,
    SessionStarted,
    SessionWaiting,
    ToolStarted,
    TurnRequested,
)
from tao_coordinator.core.parameters import Parameters
from tao_coordinator.engine import Engine
from tao_coordinator.service.dashboard import overview as overview_module
from tao_coordinator.service.dashboard.overview import HELD_MAX, SESSIONS_MAX
from tao_coordinator.service.decision_log import DECISIONS_MAX
from tao_coordinator.service.metrics import ServiceMetrics
from tao_coordinator.service.replies import json_response
from tao_coordinator.service.runtime import Runtime


def overview_after(*steps: Sequence[Event]) -> Any:
    """What people see after these steps, one second apart."""

    async def body() -> Any:
        now_s = 0.0
        runtime = Runtime(Engine(Parameters()), ServiceMetrics(), lambda: now_s)
        try:
            for events in steps:
                runtime.dispatch(events)
                now_s += 1.0
            shown = overview_module.overview(runtime)
        finally:
            runtime.close()
        return json.loads(bytes(json_response(shown).body))

    return asyncio.run(body())


def backend(tokens: int) -> list[Event]:
    return [
        BackendAdded(backend_id="a", base_url="http://a"),
        BackendSampled(backend_id="a", capacity_tokens=tokens),
    ]


def turn(session_id: str, tokens: int = 1_000) -> TurnRequested:
    return TurnRequested(request_id=f"r-{session_id}", session_id=session_id, input_tokens=tokens)


def test_nothing_yet() -> None:
    shown = overview_after([])
    assert shown["backends"] == shown["held"] == shown["sessions"] == shown["decisions"] == []
    assert (shown["num_held"], shown["num_sessions"], shown["longest_hold_s"]) == (0, 0, 0.0)


def test_tool_call_shows_its_name_age_and_expected_end() -> None:
    started = ToolStarted(session_id="s", call_id="c", name="bash", timeout_s=30.0)
    shown = overview_after([started], [])
    (session,) = shown["sessions"]
    assert session["phase"] == "tool"
    assert session["open_tools"] == [{"name": "bash", "age_s": 2.0, "background": False}]
    assert 0.0 <= session["expected_return"]["median_s"] <= 28.0
    assert shown["num_tools"] == 1


def test_grant_and_refusal_are_recent_decisions() -> None:
    shown = overview_after(backend(100_000), [turn("s")], [turn("giant", 10**9)])
    refused, granted = shown["decisions"]
    assert (granted["outcome"], granted["session_id"], granted["backend_id"]) == (
        "granted",
        "s",
        "a",
    )
    assert (granted["age_s"], granted["plan_id"] is None or granted["plan_id"] >= 0) == (2.0, True)
    assert {"policy", "path", "reason", "hold_s", "cache_credit_tokens"} <= set(granted)
    assert (refused["outcome"], refused["reason"]) == ("rejected", "larger_than_any_backend")


def test_many_are_counted_and_the_first_shown() -> None:
    number = 300
    sessions: list[Event] = [SessionStarted(session_id=f"idle-{n}") for n in range(number)]
    turns: list[Event] = [turn(f"held-{n}", 30_000) for n in range(number)]
    shown = overview_after(backend(50_000), sessions, turns)
    assert shown["num_held"] == number - 1
    assert len(shown["held"]) == HELD_MAX
    assert shown["num_sessions"] == 2 * number
    assert len(shown["sessions"]) == SESSIONS_MAX
    assert sum(shown["phases"].values()) == 2 * number
    # The one that runs comes first, those that wait are in the pool already.
    assert shown["sessions"][0]["phase"] == "inference"
    assert shown["longest_hold_s"] == 1.0


def test_plans_are_counted_by_path_and_outcome() -> None:
    """Two started sessions come back to a full pool; then there is room for one of them."""
    steps: list[Sequence[Event]] = [backend(100_000)]
    for number, name in enumerate(("s", "t"), start=1):
        steps += [[turn(name, 100)], [LeaseReleased(lease_id=f"l{number}", input_tokens=100)]]
    steps += [[turn("x", 50_000)]]
    back = [replace(turn(name, 55_000), request_id=f"again-{name}") for name in ("s", "t")]
    steps += [back, [SessionEnded(session_id="x"), LeaseReleased(lease_id="l3")], []]
    shown = overview_after(*steps)
    assert [turn["session_id"] for turn in shown["held"]] == ["t"]
    assert shown["plans"] == [{"path": "loop", "outcome": "applied", "number": ANY}]
    assert shown["decisions"][0]["plan_id"] is not None


def test_decisions_are_bounded() -> None:
    steps: list[Sequence[Event]] = [backend(100_000)]
    steps += [[turn(f"giant-{n}", 10**9)] for n in range(DECISIONS_MAX + 5)]
    shown = overview_after(*steps)
    assert len(shown["decisions"]) == DECISIONS_MAX
    assert shown["decisions"][0]["request_id"] == f"r-giant-{DECISIONS_MAX + 4}"


def test_wait_and_idle_are_told_apart() -> None:
    waiting = SessionWaiting(session_id="w", reason="approval")
    shown = overview_after([waiting, SessionStarted(session_id="i")])
    assert [(s["session_id"], s["phase"]) for s in shown["sessions"]] == [
        ("w", "wait"),
        ("i", "idle"),
    ]


def test_viewers_share_one_look() -> None:
    async def body() -> None:
        service = Service()
        first = await service.call("GET", "/tao/v1/overview")
        second = await service.call("GET", "/tao/v1/overview")
        assert first.body == second.body
        assert first.json()["policy"] == "fake"

    asyncio.run(body())
