import asyncio
import contextvars
import os
import sys
import threading
from collections.abc import Generator, Iterator

import pytest

import tao_client as tao
from tao_client import testing
from tao_client._session import end_of


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("TAO_ENDPOINT", raising=False)
    testing.reset()
    yield
    testing.reset()


def test_session_tells_of_its_start_and_end() -> None:
    with testing.capture_events() as events, tao.session("a", priority=3, agent="x") as s:
        assert s.id == "a"
        assert repr(s) == "Session('a')"
    assert [one.name for one in events] == ["tao.session.start", "tao.session.end"]
    assert events[0].attributes["tao.session.priority"] == 3
    assert events[1].attributes["tao.session.end.reason"] == "completed"
    assert "tao.session.root.id" not in events[0].attributes
    assert "gen_ai.request.model" not in events[0].attributes


def test_session_without_an_id_gets_a_fresh_one() -> None:
    ids = {tao.session().id for _ in range(100)}
    assert len(ids) == 100


def test_nested_sessions_know_their_parent_and_root() -> None:
    with (
        testing.capture_events() as events,
        tao.session("a", priority=2, tenant="team") as a,
        tao.session("b") as b,
        tao.session("c", tenant="other") as c,
    ):
        pass
    assert (a.parent_id, a.root_id) == (None, "a")
    assert (b.parent_id, b.root_id, b.tenant, b.priority) == ("a", "a", "team", 2)
    assert (c.parent_id, c.root_id, c.tenant) == ("b", "a", "other")
    started = {one.attributes["gen_ai.conversation.id"]: one.attributes for one in events[:3]}
    assert started["c"]["tao.session.parent.id"] == "b"
    assert started["c"]["tao.session.root.id"] == "a"


def test_parent_in_another_process_is_given_by_hand() -> None:
    with tao.session("outer"):
        s = tao.session("child", parent="p", root="r")
        only_parent = tao.session("child", parent="p")
    assert (s.parent_id, s.root_id) == ("p", "r")
    assert (only_parent.parent_id, only_parent.root_id) == ("p", "p")


def test_current_session_is_that_of_the_context() -> None:
    assert tao.current_session() is None
    with tao.session() as outer:
        with tao.session() as inner:
            assert tao.current_session() is inner
        assert tao.current_session() is outer
    assert tao.current_session() is None


def test_async_sessions_of_tasks_keep_apart() -> None:
    async def agent(name: str) -> str:
        async with tao.session(name):
            await asyncio.sleep(0.001)
            current = tao.current_session()
            assert current is not None
            return current.id

    async def main() -> list[str]:
        return await asyncio.gather(*(agent(f"s{number}") for number in range(10)))

    assert asyncio.run(main()) == [f"s{number}" for number in range(10)]


def test_run_carries_the_session_to_a_thread() -> None:
    seen: list[object] = []
    with tao.session() as s:

        def look() -> None:
            seen.append(tao.current_session())

        for target in (look, lambda: s.run(look)):
            thread = threading.Thread(target=target)
            thread.start()
            thread.join()
    assert seen == [None, s]
    assert s.run(divmod, 7, 2) == (3, 1)


def test_session_left_in_another_context_is_ended_all_the_same() -> None:
    def steps() -> Generator[None]:
        with tao.session("g"):
            yield

    with testing.capture_events() as events:
        generator = steps()
        contextvars.copy_context().run(next, generator)
        generator.close()
    assert events[-1].attributes["tao.session.end.reason"] == "cancelled"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (None, "completed"),
        (SystemExit(0), "completed"),
        (SystemExit(None), "completed"),
        (SystemExit(1), "error"),
        (ValueError("x"), "error"),
        (KeyboardInterrupt(), "cancelled"),
        (asyncio.CancelledError(), "cancelled"),
        (GeneratorExit(), "cancelled"),
    ],
)
def test_reason_of_the_end_follows_from_the_exception(
    error: BaseException | None, reason: str
) -> None:
    found, error_type = end_of(error)
    assert found == reason
    assert error_type == (None if reason == "completed" else type(error).__name__)


def test_exception_of_the_agent_passes_unchanged() -> None:
    error = ValueError("of the agent")
    with (
        testing.capture_events() as events,
        pytest.raises(ValueError, match="of the agent") as caught,
        tao.session(),
    ):
        raise error
    assert caught.value is error
    assert events[-1].attributes["error.type"] == "ValueError"


def test_end_is_told_once() -> None:
    with testing.capture_events() as events, tao.session() as s:
        s.end("abandoned")
        s.end()
    ends = [one for one in events if one.name == "tao.session.end"]
    assert [one.attributes["tao.session.end.reason"] for one in ends] == ["abandoned"]


def test_session_may_be_entered_again() -> None:
    s = tao.session("again")
    with testing.capture_events() as events:
        for _ in range(2):
            with s:
                pass
    assert [one.name for one in events] == ["tao.session.start", "tao.session.end"] * 2


def test_session_entered_inside_itself_ends_with_the_outer_block() -> None:
    with testing.capture_events() as events:
        with tao.session("s") as s:
            with s:
                pass
            assert tao.current_session() is s
            assert "tao.session.end" not in [one.name for one in events]
        assert tao.current_session() is None
    assert [one.name for one in events].count("tao.session.end") == 1


def test_threads_that_share_a_session_leave_it_each_for_itself() -> None:
    s = tao.session("shared")
    has_entered, may_leave = threading.Event(), threading.Event()
    found: list[object] = []

    def other() -> None:
        with s:
            has_entered.set()
            may_leave.wait(10)
        found.append(tao.current_session())

    with testing.capture_events() as events:
        with s:
            thread = threading.Thread(target=other)
            thread.start()
            assert has_entered.wait(10)
        # The other one came last and is inside still.
        assert tao.current_session() is None
        assert "tao.session.end" not in [one.name for one in events]
        may_leave.set()
        thread.join()
    assert found == [None]
    assert events[-1].name == "tao.session.end"


def test_copy_in_another_process_does_not_end_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.capture_events() as events:
        with tao.session():
            monkeypatch.setattr(os, "getpid", lambda: -1)
        monkeypatch.undo()
    assert [one.name for one in events] == ["tao.session.start"]


def test_tokens_are_estimated_from_what_the_engine_counted_last() -> None:
    s = tao.session()
    assert s.estimate_tokens(4000) == 1000, "four characters per token before anything is known"
    s.learn_tokens(4000, 800)
    assert s.estimate_tokens(4000) == 800
    assert s.estimate_tokens(4500) == 800 + 500 // 5, "at the session's own five per token"
    assert s.estimate_tokens(1000) == 200, "compacted: estimated anew"
    assert s.estimate_tokens(0) >= 1


def test_new_session_is_estimated_with_what_others_of_the_process_have_learned() -> None:
    tao.connect("http://127.0.0.1:9", chars_per_token=2.0, events=False)
    assert tao.session().estimate_tokens(4000) == 2000
    counted = tao.session()
    for _ in range(40):
        counted.learn_tokens(4000, 4000)
    assert tao.session().estimate_tokens(4000) == pytest.approx(4000, rel=0.01)
    assert counted.estimate_tokens(5000) == 5000


def test_first_ratio_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_CHARS_PER_TOKEN", "1.5")
    tao.connect("http://127.0.0.1:9", events=False)
    assert tao.session().estimate_tokens(3000) == 2000


@pytest.mark.parametrize("text", ["0", "-1", "many", "nan", "1e9"])
def test_impossible_ratio_is_refused_at_the_door(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAO_CHARS_PER_TOKEN", text)
    with pytest.raises(tao.ConfigurationError, match="TAO_CHARS_PER_TOKEN"):
        tao.connect("http://127.0.0.1:9")


@pytest.mark.parametrize(("chars", "tokens"), [(0, 10), (10, 0), (-1, 5)])
def test_counts_that_say_nothing_teach_nothing(chars: int, tokens: int) -> None:
    s = tao.session()
    s.learn_tokens(chars, tokens)
    assert s.estimate_tokens(400) == 100


def test_negative_times_are_told_as_now() -> None:
    with testing.capture_events() as events, tao.session() as s:
        s.deadline(remaining_s=-3)
        s.wait()
    assert events[1].attributes["tao.deadline.remaining"] == 0.0
    assert events[2].attributes["tao.wait.reason"] == "user_input"
    assert "tao.wait.expected_duration" not in events[2].attributes


def test_nothing_is_made_when_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*args: object) -> None:
        raise AssertionError("made an event for nobody")

    monkeypatch.setattr(sys.modules["tao_client._events"], "make_event", fail)
    with tao.session() as s, s.tool_call("x") as call:
        call.progress(0.1)
