"""The rules of one turn's way to its lease, with scripted replies and a clock of our own."""

import dataclasses
import json
from dataclasses import dataclass, field

import pytest

from tao_client._lease import (
    Ask,
    FlowHooks,
    Grant,
    Held,
    HoldInfo,
    NoAnswer,
    Pause,
    Refusal,
    Reply,
    TurnRequest,
    read_reply,
    turn_flow,
)
from tao_client.errors import HoldTimeoutError

GRANT_JSON: dict[str, object] = {
    "lease_id": "L",
    "start_within_s": 5,
    "affinity": {
        "backend_id": "b",
        "base_url": "http://b:8000/",
        "headers": {"x": "1"},
        "strength": "soft",
    },
    "receipt": {
        "policy": "tao",
        "reason": "resident",
        "hold_s": 0.5,
        "cache_credit_tokens": 12,
        "plan_id": 7,
    },
}
GRANT = read_reply(200, json.dumps(GRANT_JSON).encode())
assert isinstance(GRANT, Grant)
GRANTED = dataclasses.replace(GRANT, endpoint="a")
HELD = Held(queue_position=1, estimated_wait_s=2.0, retry_after_s=0.0)


@dataclass
class World:
    """Plays the driver: each reply of the script takes its seconds."""

    timeout_s: float | None = None
    now_s: float = 100.0
    asked: list[Ask] = field(default_factory=list[Ask])
    pauses: list[float] = field(default_factory=list[float])
    holds: list[HoldInfo] = field(default_factory=list[HoldInfo])
    told: list[str] = field(default_factory=list[str])
    present: list[str] = field(default_factory=lambda: ["a"])

    def play(self, *script: tuple[Reply, float]) -> Grant | None:
        hooks = FlowHooks(
            now_s=lambda: self.now_s,
            present=lambda: self.present,
            on_answer=lambda endpoint: self.told.append("answer"),
            on_no_answer=lambda endpoint, what: self.told.append(f"no answer: {what.reason}"),
            on_refusal=lambda refusal: self.told.append(f"refusal: {refusal.type}"),
            on_hold=self.holds.append,
            abandon=lambda request_id, endpoint: self.told.append(f"abandon {request_id}"),
        )
        request = TurnRequest("r", "s", timeout_s=self.timeout_s)
        flow = turn_flow(request, hooks)
        replies = iter(script)
        try:
            action = next(flow)
            while True:
                if isinstance(action, Pause):
                    self.pauses.append(action.pause_s)
                    self.now_s += action.pause_s
                    action = flow.send(None)
                else:
                    self.asked.append(action)
                    reply, took_s = next(replies)
                    self.now_s += took_s
                    action = flow.send(reply)
        except StopIteration as stop:
            return stop.value


def test_grant_at_once() -> None:
    world = World(timeout_s=600)
    assert world.play((GRANT, 0.001)) == GRANTED
    (ask,) = world.asked
    assert (ask.wait_s, ask.time_limit_s) == (0, 0.5)
    assert world.told == ["answer"]


def test_held_then_granted_polls_long() -> None:
    world = World(timeout_s=600)
    assert world.play((HELD, 0.1), (HELD, 10.0), (GRANT, 3.0)) == GRANTED
    assert [(ask.wait_s, ask.time_limit_s) for ask in world.asked] == [
        (0, 0.5),
        (10, 10.25),
        (10, 10.25),
    ]
    assert [round(hold.held_s, 6) for hold in world.holds] == [0.1, 10.1]
    assert world.holds[0].queue_position == 1
    assert world.told == ["answer"] * 3
    assert not world.pauses


def test_hold_without_a_time_out_has_no_end() -> None:
    world = World()
    assert world.play(*[(HELD, 10.0)] * 500, (GRANT, 1.0)) == GRANTED


def test_time_out_of_the_caller_bounds_every_request() -> None:
    world = World(timeout_s=12.0)
    with pytest.raises(HoldTimeoutError) as caught:
        world.play((HELD, 0.5), (HELD, 10.0), (NoAnswer("ReadTimeout"), 1.5))
    assert [(ask.wait_s, ask.time_limit_s) for ask in world.asked] == [
        (0, 0.5),
        (10, 10.25),
        (2, 1.5),
    ]
    assert caught.value.held_s == 12.0
    assert world.told == ["answer", "answer", "abandon r"], "our own time-out is not its silence"


def test_held_answer_after_the_time_out_raises_it() -> None:
    world = World(timeout_s=5.0)
    with pytest.raises(HoldTimeoutError):
        world.play((HELD, 0.0), (HELD, 5.0))
    assert world.told[-1] == "abandon r"


def test_first_request_is_bounded_by_a_very_short_time_out() -> None:
    world = World(timeout_s=0.2)
    assert world.play((NoAnswer("ReadTimeout"), 0.2)) is None
    assert world.asked[0].time_limit_s == pytest.approx(0.2)
    assert world.told == ["abandon r", "no answer: ReadTimeout"], "it was never held: fail open"


def test_long_poll_that_is_answered_at_once_is_not_repeated_at_once() -> None:
    world = World(timeout_s=600)
    assert world.play((HELD, 0.0), (HELD, 0.01), (HELD, 0.09), (HELD, 0.1), (GRANT, 0.0))
    assert world.pauses == pytest.approx([0.09, 0.01])


def test_pause_is_no_longer_than_a_poll() -> None:
    world = World()
    assert world.play((dataclasses.replace(HELD, retry_after_s=86_400.0), 0.1), (GRANT, 0.1))
    assert world.pauses == [10.0]


def test_pause_is_kept_and_bounded_by_the_time_out() -> None:
    world = World(timeout_s=3.0)
    later = dataclasses.replace(HELD, retry_after_s=2.0)
    with pytest.raises(HoldTimeoutError):
        world.play((later, 0.0), (later, 0.5))
    assert world.pauses == [2.0, 0.5]


@pytest.mark.parametrize("is_held", [False, True])
def test_no_answer_passes_by_and_withdraws(is_held: bool) -> None:
    world = World(timeout_s=600)
    script: list[tuple[Reply, float]] = [(HELD, 0.1)] if is_held else []
    assert world.play(*script, (NoAnswer("ReadTimeout"), 0.5)) is None
    assert world.told[-2:] == ["abandon r", "no answer: ReadTimeout"]


def test_refused_connection_leaves_nothing_to_withdraw() -> None:
    world = World()
    assert world.play((NoAnswer("ConnectError", may_hold=False), 0.0)) is None
    assert world.told == ["no answer: ConnectError"]


def test_refused_connection_after_a_hold_is_withdrawn() -> None:
    world = World()
    assert world.play((HELD, 0.0), (NoAnswer("ConnectError", may_hold=False), 0.0)) is None
    assert world.told[-2:] == ["abandon r", "no answer: ConnectError"]


def test_refusal_passes_by_without_withdrawing() -> None:
    world = World()
    assert world.play((HELD, 0.1), (Refusal(429, "waited_too_long", "m"), 900.0)) is None
    assert world.told == ["answer", "answer", "refusal: waited_too_long"]


def test_interruption_of_a_held_turn_withdraws_it() -> None:
    told: list[str] = []
    hooks = FlowHooks(
        now_s=lambda: 0.0,
        present=lambda: ["a"],
        on_answer=lambda endpoint: None,
        on_no_answer=lambda endpoint, what: told.append(what.reason),
        on_refusal=lambda refusal: None,
        on_hold=lambda hold: None,
        abandon=lambda request_id, endpoint: told.append(request_id),
    )
    flow = turn_flow(TurnRequest("r", "s"), hooks)
    next(flow)
    flow.send(HELD)
    flow.close()
    assert told == ["r"]


def test_coordinators_share_the_time_of_one_question() -> None:
    world = World(timeout_s=600, present=["a", "b", "c"])
    silence = NoAnswer("ReadTimeout")
    script: list[tuple[Reply, float]] = [(silence, 0.1), (silence, 0.2), (GRANT, 0.01)]
    assert world.play(*script) == dataclasses.replace(GRANTED, endpoint="c")
    assert [ask.endpoint for ask in world.asked] == ["a", "b", "c"]
    shares = [ask.time_limit_s for ask in world.asked]
    assert shares == pytest.approx([0.5 / 3, 0.4 / 2, 0.2 / 1])
    assert world.told == ["abandon r", "no answer: ReadTimeout"] * 2 + ["answer"]


def test_coordinators_that_are_all_silent_cost_one_question_in_all() -> None:
    world = World(present=["a", "b", "c"])
    silence = NoAnswer("ReadTimeout")
    assert world.play((silence, 0.2), (silence, 0.2), (silence, 0.1)) is None
    assert world.now_s == pytest.approx(100.5)
    world = World(present=["a", "b"])
    assert world.play((silence, 0.5)) is None, "a question that took all of the time is the last"


def test_one_that_is_not_the_leader_has_nothing_to_take_back() -> None:
    world = World(present=["a", "b"])
    not_leader = NoAnswer("not_leader", may_hold=False, leader="b")
    assert world.play((not_leader, 0.0), (GRANT, 0.0)) == dataclasses.replace(GRANTED, endpoint="b")
    assert world.told == ["no answer: not_leader", "answer"]


def test_hold_that_ends_in_silence_goes_on_at_the_next() -> None:
    world = World(timeout_s=600, present=["a", "b"])
    granted = world.play((HELD, 0.1), (NoAnswer("ReadTimeout"), 10.25), (HELD, 0.1), (GRANT, 3.0))
    assert granted == dataclasses.replace(GRANTED, endpoint="b")
    assert [(ask.endpoint, ask.wait_s, ask.time_limit_s) for ask in world.asked] == [
        ("a", 0, 0.25),
        ("a", 10, 10.25),
        ("b", 0, 0.5),
        ("b", 10, 10.25),
    ]
    assert world.told == ["answer", "abandon r", "no answer: ReadTimeout", "answer", "answer"]
    assert [hold.held_s for hold in world.holds] == pytest.approx([0.1, 10.45])


def test_nobody_present_is_nobody_asked() -> None:
    world = World(present=[])
    assert world.play() is None
    assert not world.told


def test_request_body_leaves_out_what_is_unknown() -> None:
    body = json.loads(TurnRequest("r", "s", agent="", input_tokens=0).to_json())
    assert body == {"request_id": "r", "session_id": "s", "input_tokens": 0, "priority": 0}


def test_grant_is_read_whole() -> None:
    assert isinstance(GRANT, Grant)
    assert GRANT.affinity.base_url == "http://b:8000"
    assert GRANT.affinity.headers == {"x": "1"}
    assert GRANT.affinity.strength == "soft"
    assert GRANT.receipt.plan_id == "7"
    assert GRANT.receipt.cache_credit_tokens == 12


def changed(part: str, **values: object) -> bytes:
    document = json.loads(json.dumps(GRANT_JSON))
    (document if part == "" else document[part]).update(values)
    return json.dumps(document).encode()


@pytest.mark.parametrize(
    "body",
    [
        changed("", lease_id=""),
        changed("", affinity=[]),
        changed("affinity", base_url="gpu-1"),
        changed("affinity", base_url=None),
        changed("affinity", headers={"x": 1}),
        changed("", lease_id="\ud800"),
        changed("", lease_id="a" * 10_000),
        changed("affinity", base_url="http://"),
        changed("affinity", base_url="http://[::1"),
        changed("affinity", base_url="http://b:99999"),
        changed("affinity", base_url="http://b\n:1"),
        changed("affinity", base_url="http://b 1"),
        changed("affinity", base_url="http://\ud800"),
        changed("affinity", headers={"x": "1\r\ny: 2"}),
        changed("affinity", headers={"x": " 1"}),
        changed("affinity", headers={"x": "\u20ac"}),
        changed("affinity", headers={"x:": "1"}),
        changed("affinity", headers={"Content-Length": "3"}),
        b"[" * 100_000,
        b'{"a":' * 100_000,
        b"[]",
        b"",
        b"\xff",
    ],
)
def test_grant_of_another_shape_is_no_answer(body: bytes) -> None:
    assert isinstance(read_reply(200, body), NoAnswer)


def test_grant_needs_no_receipt() -> None:
    grant = read_reply(200, changed("", receipt=None, start_within_s="soon"))
    assert isinstance(grant, Grant)
    assert grant.start_within_s == 5.0
    assert grant.receipt.plan_id is None


@pytest.mark.parametrize("odd", ["soon", True, float("nan"), 10**400, None])
def test_held_with_odd_numbers_is_held_all_the_same(odd: object) -> None:
    body = json.dumps({"queue_position": odd, "estimated_wait_s": odd, "retry_after_s": odd})
    assert read_reply(202, body.encode()) == Held(None, None, 0.0)


@pytest.mark.parametrize(
    ("status", "kind", "is_refusal"),
    [
        (404, "model_not_served", True),
        (409, "session_ended", True),
        (429, "queue_full", True),
        (503, "no_healthy_backend", True),
        (503, "shutting_down", False),
        (500, "internal", False),
    ],
)
def test_errors_are_refusals_unless_the_server_is_broken(
    status: int, kind: str, is_refusal: bool
) -> None:
    reply = read_reply(status, json.dumps({"error": {"type": kind, "message": "m"}}).encode())
    assert isinstance(reply, Refusal if is_refusal else NoAnswer)


@pytest.mark.parametrize("status", [503, 409, 421])
@pytest.mark.parametrize(
    ("told", "leader"), [("http://b:8700/", "http://b:8700"), (7, None), (None, None)]
)
def test_not_leader_is_no_answer_and_may_name_the_leader(
    status: int, told: object, leader: str | None
) -> None:
    error = {"type": "not_leader", "message": "m", "leader": told}
    reply = read_reply(status, json.dumps({"error": error}).encode())
    assert reply == NoAnswer("not_leader", may_hold=False, leader=leader)


@pytest.mark.parametrize("body", [b'{"detail": "Not Found"}', b'{"error": "x"}', b"not found"])
def test_error_of_another_server_is_no_answer(body: bytes) -> None:
    assert isinstance(read_reply(404, body), NoAnswer)
