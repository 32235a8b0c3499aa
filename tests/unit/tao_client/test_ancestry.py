from urllib.parse import unquote

import pytest
from opentelemetry import baggage, context
from opentelemetry.baggage.propagation import W3CBaggagePropagator
from opentelemetry.sdk.trace import TracerProvider

import tao_client as tao
from tao_client._ancestry import LONGEST_BAGGAGE, environment_for_child


@pytest.fixture(autouse=True)
def _no_ancestors(monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    for name in ("BAGGAGE", "TRACEPARENT", "TAO_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)


def enter_child(monkeypatch: pytest.MonkeyPatch, session: tao.Session) -> None:
    """As the child process sees its environment."""
    for name, value in session.environment().items():
        monkeypatch.setenv(name, value)


def members(text: str) -> dict[str, str]:
    pairs = (one.split("=", 1) for one in text.split(","))
    return {unquote(key): unquote(value) for key, value in pairs}


def test_session_of_a_child_process_finds_its_parent_and_root(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tao.session("outer"), tao.session("inner:1") as inner:
        environment = inner.environment()
    assert set(environment) == {"BAGGAGE"}
    assert members(environment["BAGGAGE"]) == {
        "gen_ai.conversation.id": "inner:1",
        "tao.session.root.id": "outer",
    }
    enter_child(monkeypatch, inner)
    child = tao.session("child")
    assert (child.parent_id, child.root_id) == ("inner:1", "outer")
    with child, tao.session() as grandchild:
        assert (grandchild.parent_id, grandchild.root_id) == ("child", "outer")


def test_what_is_said_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    enter_child(monkeypatch, tao.session("outer"))
    said = tao.session("x", parent="p", root="r")
    assert (said.parent_id, said.root_id) == ("p", "r")
    only_root = tao.session("x", root="r")
    assert (only_root.parent_id, only_root.root_id) == (None, "r")


def test_same_session_in_a_child_process_is_not_its_own_parent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tao.session("root"), tao.session("swe 17") as session:
        enter_child(monkeypatch, session)
    again = tao.session("swe 17")
    assert (again.id, again.parent_id, again.root_id) == (session.id, None, "root")
    enter_child(monkeypatch, tao.session("alone", root="alone"))
    alone = tao.session("alone")
    assert (alone.parent_id, alone.root_id) == (None, "alone")


def test_baggage_of_another_framework_names_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    carrier: dict[str, str] = {}
    W3CBaggagePropagator().inject(carrier, baggage.set_baggage("gen_ai.conversation.id", "c 1"))
    monkeypatch.setenv("BAGGAGE", carrier["baggage"])
    session = tao.session("child")
    with_parent = tao.session("x", parent="c 1")
    assert (session.parent_id, session.root_id) == (with_parent.parent_id, with_parent.parent_id)


@pytest.mark.parametrize(
    "text",
    ["", "other=1", "gen_ai.conversation.id", "gen_ai.conversation.id=", "=,;=", "x" * 9000],
)
def test_environment_without_a_session_makes_no_child(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv("BAGGAGE", text)
    session = tao.session("s")
    assert (session.parent_id, session.root_id) == (None, "s")


def test_properties_of_a_member_are_no_part_of_the_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAGGAGE", "a=1, gen_ai.conversation.id = s1;ttl=3 ,b=2")
    assert tao.session().parent_id == "s1"


def test_other_baggage_goes_along(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAGGAGE", "tenant=a%20b;p=1,gen_ai.conversation.id=old,user=7")
    token = context.attach(baggage.set_baggage("user", "8, or 9"))
    try:
        text = tao.session("new", root="new").environment()["BAGGAGE"]
    finally:
        context.detach(token)
    assert members(text) == {
        "gen_ai.conversation.id": "new",
        "tao.session.root.id": "new",
        "user": "8, or 9",
        "tenant": "a b;p=1",
    }
    read = W3CBaggagePropagator().extract({"baggage": text})
    assert baggage.get_baggage("gen_ai.conversation.id", read) == "new"


def test_baggage_stays_within_its_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BAGGAGE", ",".join(f"key{number}={'v' * 30}" for number in range(210)))
    text = environment_for_child("s", "s")["BAGGAGE"]
    assert len(text) <= LONGEST_BAGGAGE
    assert len(members(text)) == 180
    assert members(text)["gen_ai.conversation.id"] == "s"


def test_current_span_goes_along() -> None:
    with TracerProvider().get_tracer("t").start_as_current_span("x") as span:
        ids = span.get_span_context()
        environment = tao.session("s").environment()
    expected = f"00-{ids.trace_id:032x}-{ids.span_id:016x}-{int(ids.trace_flags):02x}"
    assert environment["TRACEPARENT"] == expected
