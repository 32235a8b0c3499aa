"""Bodies at the door: what is taken, what is refused, and that the refusal names the field."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tao_coordinator.core.events import LeaseReleased, TurnOutcome, TurnRequested
from tao_coordinator.errors import MalformedRequest
from tao_coordinator.service.schemas import (
    ask_from_body,
    path_id,
    release_from_body,
    wait_s_from_prefer,
)

IDS = {"request_id": "r-1", "session_id": "s.1:a_b"}


def turn_of(text: bytes) -> TurnRequested:
    return ask_from_body(text)[0]


def body(**fields: object) -> bytes:
    return json.dumps(IDS | fields).encode()


def test_smallest_turn_leaves_everything_untold() -> None:
    assert turn_of(body()) == TurnRequested(request_id="r-1", session_id="s.1:a_b")


def test_full_turn_is_read() -> None:
    turn = turn_of(
        body(
            root_session_id="root",
            parent_session_id="parent",
            agent="coder",
            model="qwen3",
            input_tokens=12_000,
            max_output_tokens=512,
            shared_prefix={"digest": "abc", "tokens": 4_000, "more": 1},
            priority=-3,
            tenant="team-a",
            timeout_s=600,
            from_the_future=True,
        )
    )
    assert turn == TurnRequested(
        request_id="r-1",
        session_id="s.1:a_b",
        root_session_id="root",
        parent_session_id="parent",
        agent="coder",
        model="qwen3",
        input_tokens=12_000,
        max_output_tokens=512,
        shared_prefix_tokens=4_000,
        priority=-3,
        tenant="team-a",
        timeout_s=600.0,
    )


def test_null_is_the_same_as_absent() -> None:
    nulls = dict.fromkeys(
        ("root_session_id", "agent", "input_tokens", "shared_prefix", "priority", "timeout_s")
    )
    assert turn_of(body(**nulls)) == turn_of(body())


@pytest.mark.parametrize(
    ("fields", "culprit"),
    [
        ({"request_id": None}, "request_id"),
        ({"request_id": ""}, "request_id"),
        ({"request_id": "x" * 129}, "request_id"),
        ({"request_id": "a/b"}, "request_id"),
        ({"session_id": 5}, "session_id"),
        ({"session_id": "s\n"}, "session_id"),
        ({"root_session_id": ""}, "root_session_id"),
        ({"agent": 5}, "agent"),
        ({"model": "m" * 257}, "model"),
        ({"input_tokens": -1}, "input_tokens"),
        ({"input_tokens": 1.5}, "input_tokens"),
        ({"input_tokens": "12"}, "input_tokens"),
        ({"input_tokens": True}, "input_tokens"),
        ({"input_tokens": 10**12}, "input_tokens"),
        ({"max_output_tokens": []}, "max_output_tokens"),
        ({"shared_prefix": 5}, "shared_prefix"),
        ({"shared_prefix": {}}, "shared_prefix.tokens"),
        ({"shared_prefix": {"tokens": -1}}, "shared_prefix.tokens"),
        ({"shared_prefix": {"tokens": 1, "digest": 5}}, "shared_prefix.digest"),
        ({"priority": 10**9}, "priority"),
        ({"timeout_s": -0.1}, "timeout_s"),
        ({"timeout_s": 1e308}, "timeout_s"),
        ({"timeout_s": "600"}, "timeout_s"),
        ({"timeout_s": True}, "timeout_s"),
    ],
)
def test_bad_field_is_named(fields: dict[str, object], culprit: str) -> None:
    with pytest.raises(MalformedRequest, match=culprit) as caught:
        turn_of(body(**fields))
    assert (caught.value.status, caught.value.type) == (400, "malformed_request")


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"{", b'{"a": NaN}', b"\xff", b"1" * 5000])
def test_no_json_object_is_malformed(text: bytes) -> None:
    with pytest.raises(MalformedRequest, match="body"):
        turn_of(text)


def test_release_is_read() -> None:
    text = json.dumps(
        {
            "outcome": "error",
            "input_tokens": 100,
            "cached_tokens": 0,
            "output_tokens": 5,
            "ttft_s": 0.25,
            "duration_s": 2,
        }
    ).encode()
    assert release_from_body("l1", text) == LeaseReleased(
        lease_id="l1",
        outcome=TurnOutcome.ERROR,
        input_tokens=100,
        cached_tokens=0,
        output_tokens=5,
        ttft_s=0.25,
        duration_s=2.0,
    )


def test_cached_tokens_untold_are_not_zero() -> None:
    assert release_from_body("l1", b'{"outcome":"completed"}').cached_tokens is None


def test_ask_may_carry_the_release_of_the_turn_before() -> None:
    released = {"lease_id": "l7", "outcome": "completed", "output_tokens": 5}
    _, found = ask_from_body(body(released=released))
    assert found == LeaseReleased(lease_id="l7", outcome=TurnOutcome.COMPLETED, output_tokens=5)
    assert ask_from_body(body())[1] is None


@pytest.mark.parametrize(
    ("released", "field"),
    [
        (3, "released"),
        ({}, "released.lease_id"),
        ({"lease_id": "l"}, "outcome"),
        ({"lease_id": "l", "outcome": "completed", "ttft_s": -1}, "released.ttft_s"),
    ],
)
def test_malformed_release_inside_an_ask_is_named(released: object, field: str) -> None:
    with pytest.raises(MalformedRequest, match=field):
        ask_from_body(body(released=released))


@pytest.mark.parametrize("outcome", [None, "lost", "COMPLETED", 1, ["completed"]])
def test_release_needs_an_outcome_of_a_caller(outcome: object) -> None:
    with pytest.raises(MalformedRequest, match="outcome"):
        release_from_body("l1", json.dumps({"outcome": outcome}).encode())


def test_path_id_is_checked() -> None:
    assert path_id("lease_id", "l-1") == "l-1"
    with pytest.raises(MalformedRequest, match="lease_id"):
        path_id("lease_id", "a b")


@pytest.mark.parametrize(
    ("prefer", "expected_s"),
    [
        ("wait=10", 10.0),
        ("wait=2.5", 2.5),
        ("wait=999999", 10.0),
        ("respond-async, wait=3", 3.0),
        ("wait=3; x=1", 3.0),
        ('wait="4"', 4.0),
        ("", 0.0),
        ("wait=-1", 0.0),
        ("wait=1e9", 0.0),
        ("await=5", 0.0),
        ("wait", 0.0),
    ],
)
def test_prefer_header_gives_the_wait(prefer: str, expected_s: float) -> None:
    assert wait_s_from_prefer(prefer) == expected_s


@given(
    st.binary(max_size=200) | st.text(alphabet='{}[]":,request_id0-', max_size=80).map(str.encode)
)
def test_any_body_is_read_or_refused(text: bytes) -> None:
    def read_release(body: bytes) -> object:
        return release_from_body("l", body)

    for read in (turn_of, read_release):
        with contextlib.suppress(MalformedRequest):
            assert read(text)


@given(st.text(max_size=60))
def test_any_prefer_header_gives_a_bounded_wait(prefer: str) -> None:
    assert 0.0 <= wait_s_from_prefer(prefer) <= 10.0
