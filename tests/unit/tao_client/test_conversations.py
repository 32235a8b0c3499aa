"""Sessions that the baggage of OpenTelemetry names."""

from collections.abc import Iterator

import pytest
from opentelemetry import baggage, context

import tao_client as tao
from tao_client import _conversations, testing
from tao_client._conversations import current_conversation, named_conversation


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TAO_ENDPOINT", "BAGGAGE"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    yield
    testing.reset()


@pytest.fixture
def conversation() -> Iterator[str]:
    token = context.attach(baggage.set_baggage("gen_ai.conversation.id", "c 1"))
    yield "c_1-"
    context.detach(token)


def test_nobody_names_any() -> None:
    assert current_conversation() is None


def test_baggage_names_the_session_and_an_open_session_wins(conversation: str) -> None:
    named = current_conversation()
    assert named is not None
    assert named.id.startswith(conversation), "as the wire allows it"
    assert current_conversation() is named, "what it has learned stays"
    with tao.session() as s:
        assert current_conversation() is s


@pytest.mark.usefixtures("conversation")
def test_decorated_tool_of_a_conversation_is_told() -> None:
    @tao.tool
    def search() -> None: ...

    with testing.capture_events() as events:
        search()
    assert [one.name for one in events] == ["tao.tool.start", "tao.tool.end"]


@pytest.mark.parametrize("odd", ["", 7, None])
def test_baggage_that_names_nothing_is_passed_over(odd: object) -> None:
    token = context.attach(baggage.set_baggage("gen_ai.conversation.id", odd))
    try:
        assert current_conversation() is None
    finally:
        context.detach(token)


def test_conversations_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_conversations, "SESSION_LIMIT", 2)
    _conversations._sessions.clear()
    kept = named_conversation("a")
    named_conversation("b")
    assert named_conversation("a") is kept
    named_conversation("c")
    assert list(_conversations._sessions) == ["a", "c"], "the least recently used is forgotten"
    _conversations._forget_parent_process()
    assert named_conversation("a") is not kept
