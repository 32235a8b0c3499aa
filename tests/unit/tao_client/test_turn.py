import asyncio
import os
from collections.abc import Iterator
from typing import Any

import pytest
from sdk_stubs import CoordinatorStub, eventually

import tao_client as tao
from tao_client import _connection, testing


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Iterator[CoordinatorStub]:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    with CoordinatorStub("http://gpu-1:8000") as stub:
        stub.affinity_headers = {"x-pod": "7"}
        tao.connect(stub.url)
        yield stub
        testing.reset()


def test_turn_says_where_to_go_and_gives_back_what_it_is_told(
    coordinator: CoordinatorStub,
) -> None:
    with (
        tao.session("root"),
        tao.session("s", agent="coder", model="m", tenant="team", priority=1) as s,
        s.turn(input_chars=4000, max_output_tokens=9, timeout_s=60) as turn,
    ):
        assert turn.base_url("http://own/v1") == "http://gpu-1:8000/v1"
        assert turn.headers == {"X-Session-ID": "s", "x-request-id": turn.id, "x-pod": "7"}
        assert turn.affinity is not None
        assert turn.affinity.strength == "hard"
        assert turn.receipt is not None
        assert turn.receipt.hold_s == 0.25
        assert turn.held_s > 0
        turn.report(input_tokens=1000)
        turn.report(cached_tokens=0, output_tokens=5, ttft_s=0.5)
    assert coordinator.leases[0].json == {
        "request_id": turn.id,
        "session_id": "s",
        "root_session_id": "root",
        "parent_session_id": "root",
        "agent": "coder",
        "model": "m",
        "input_tokens": 1000,
        "max_output_tokens": 9,
        "priority": 1,
        "tenant": "team",
        "timeout_s": 60,
    }
    assert eventually(lambda: coordinator.releases)
    (release,) = coordinator.releases
    assert release.pop("duration_s")
    assert release == {
        "outcome": "completed",
        "input_tokens": 1000,
        "cached_tokens": 0,
        "output_tokens": 5,
        "ttft_s": 0.5,
    }


def test_next_turn_carries_a_release_that_is_still_on_its_way(
    coordinator: CoordinatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = _connection.active()
    assert connection is not None

    def take_and_not_send(lease: object, body: bytes) -> None:
        """The courier is slow."""

    monkeypatch.setattr(connection.courier, "release", take_and_not_send)
    with tao.session("s") as s:
        with s.turn(model="m") as first:
            first.report(output_tokens=3)
        with s.turn(model="m"):
            pass
        assert s.last_release is not None
        s.last_release[0].is_delivered = True
        with s.turn(model="m"):
            pass
    carried = [lease.json.get("released") for lease in coordinator.leases]
    assert carried[0] is None
    assert isinstance(carried[1], dict)
    assert carried[1]["outcome"] == "completed"
    assert carried[1]["output_tokens"] == 3
    assert carried[1]["lease_id"]
    assert carried[2] is None


def test_tokens_that_are_known_need_no_estimate(coordinator: CoordinatorStub) -> None:
    with tao.session() as s:
        with s.turn(model="m", input_chars=4000, input_tokens=77):
            pass
        with s.turn(model="m", timeout_s=None):
            pass
    first, second = (one.json for one in coordinator.leases)
    assert first["input_tokens"] == 77
    assert "input_tokens" not in second
    assert "timeout_s" not in second


@pytest.mark.parametrize(
    ("error", "outcome"),
    [(ValueError(), "error"), (KeyboardInterrupt(), "cancelled"), (SystemExit(0), "error")],
)
def test_outcome_follows_from_the_exception(
    coordinator: CoordinatorStub, error: BaseException, outcome: str
) -> None:
    with pytest.raises(type(error)), tao.session() as s, s.turn(model="m"):
        raise error
    assert eventually(lambda: coordinator.releases)
    assert coordinator.releases[0]["outcome"] == outcome


def test_async_turn(coordinator: CoordinatorStub) -> None:
    async def main() -> None:
        async with tao.session("s") as s, s.turn(model="m") as turn:
            assert turn.affinity is not None

    asyncio.run(main())
    assert eventually(lambda: coordinator.releases)


def test_refused_turn_goes_to_the_default_with_its_session_named(
    coordinator: CoordinatorStub,
) -> None:
    coordinator.script("429:queue_full")
    with tao.session("s") as s, s.turn(model="m") as turn:
        assert turn.base_url("http://own/v1") == "http://own/v1"
        assert turn.headers["X-Session-ID"] == "s"
        assert turn.receipt is None


def test_hold_past_its_time_out_raises(coordinator: CoordinatorStub) -> None:
    coordinator.script("hold")
    with (
        tao.session() as s,
        pytest.raises(tao.HoldTimeoutError, match="whole time-out") as caught,
        s.turn(model="m", timeout_s=0.2),
    ):
        raise AssertionError("not reached")
    assert isinstance(caught.value, TimeoutError)
    assert caught.value.held_s >= 0.2


def test_turn_is_given_back_once_and_by_its_own_process(
    coordinator: CoordinatorStub, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tao.session() as s, s.turn(model="m") as turn:
        monkeypatch.setattr(os, "getpid", lambda: -1)
        turn.finish("error")
        monkeypatch.undo()
        turn.finish("completed")
    tao.disconnect()
    assert [one["outcome"] for one in coordinator.releases] == ["completed"]


def test_turn_without_a_connection_passes(coordinator: CoordinatorStub) -> None:
    tao.disconnect()

    async def main() -> None:
        async with tao.session("s") as s, s.turn(model="m") as turn:
            assert turn.headers == {}

    asyncio.run(main())
    with tao.session("s") as s, s.turn(model="m") as turn:
        assert turn.headers == {}
        assert turn.affinity is None
        turn.report(input_tokens=5)
    assert not coordinator.leases


def test_turn_asks_nobody_while_the_coordinator_is_away(coordinator: CoordinatorStub) -> None:
    coordinator.script("crash")

    async def main() -> None:
        async with tao.session("s") as s, s.turn(model="m") as turn:
            assert turn.affinity is None

    for _ in range(2):
        with tao.session("s") as s, s.turn(model="m") as turn:
            assert turn.affinity is None
            assert turn.base_url("http://own/v1") == "http://own/v1"
        # Not before the first turn: the first contact, made behind, would hear it and spare the
        # turn its asking.
        coordinator.health_status = 503
        asyncio.run(main())
    assert len(coordinator.leases) == 1


@pytest.mark.parametrize("no_limit", [float("inf"), float("nan"), 1e12])
def test_limits_that_are_none_are_not_told(coordinator: CoordinatorStub, no_limit: float) -> None:
    """The coordinator refuses them, and the agent would never be scheduled."""
    with tao.session("s") as s, s.turn(max_output_tokens=2**31 - 1, timeout_s=no_limit) as turn:
        assert turn.receipt is not None
    assert not {"max_output_tokens", "timeout_s"} & coordinator.leases[0].json.keys()


@pytest.mark.parametrize("wrong", [-1, 10**9, 12.5, float("nan"), True, "many"])
def test_usage_that_cannot_be_does_not_keep_the_lease(
    coordinator: CoordinatorStub, wrong: Any
) -> None:
    with tao.session("s") as s, s.turn() as turn:
        turn.report(input_tokens=wrong, cached_tokens=wrong, output_tokens=7)
        turn.report(ttft_s=float("inf"))
    assert eventually(lambda: coordinator.releases)
    assert coordinator.releases[0].keys() == {"outcome", "output_tokens", "duration_s"}
