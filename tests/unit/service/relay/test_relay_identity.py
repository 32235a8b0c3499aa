"""Whose call it is, by what each harness sends."""

import json

import pytest

from tao_coordinator.errors import MalformedRequest
from tao_coordinator.service.relay import identity
from tao_coordinator.service.relay.identity import Identities, Identity


def read(
    headers: dict[str, str] | None = None,
    document: dict[str, object] | None = None,
    known: Identities | None = None,
    *,
    is_single: bool = False,
) -> Identity:
    raw = {name.encode(): value.encode() for name, value in (headers or {}).items()}
    return (known or Identities()).read(raw, document or {}, is_single=is_single)


CLAUDE_USER = json.dumps({"device_id": "d", "session_id": "from-body"})
IN_ORDER: list[tuple[dict[str, str], dict[str, object], str]] = [
    ({"x-tao-session": "told"}, {}, "told"),
    ({"x-claude-code-session-id": "cc"}, {}, "cc"),
    ({"x-session-id": "oc"}, {}, "oc"),
    ({"x-session-affinity": "aff"}, {}, "aff"),
    ({"session-id": "cdx"}, {}, "cdx"),
    ({"x-dynamo-session-id": "dy"}, {}, "dy"),
    ({"x-opencode-session": "zen"}, {}, "zen"),
    ({"x-litellm-session-id": "ll"}, {}, "ll"),
    ({}, {"metadata": {"user_id": CLAUDE_USER}}, "from-body"),
    ({}, {"client_metadata": {"session_id": "meta"}}, "meta"),
    ({}, {"prompt_cache_key": "key"}, "key"),
]


@pytest.mark.parametrize("number", range(len(IN_ORDER)))
def test_first_source_that_says_something_counts(number: int) -> None:
    headers: dict[str, str] = {}
    document: dict[str, object] = {}
    for more_headers, more, _ in reversed(IN_ORDER[number:]):
        headers |= more_headers
        document |= more
    found = read(headers, document)
    assert found.session_id == IN_ORDER[number][2]
    assert not found.is_single


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"metadata": {"user_id": "user-7"}},
        {"metadata": {"user_id": "{broken"}},
        {"metadata": {"user_id": '{"session_id": 7}'}},
        {"metadata": 7, "client_metadata": [], "prompt_cache_key": 5},
        {"client_metadata": {"session_id": ""}},
    ],
)
def test_call_that_says_nothing_is_a_session_of_its_own(document: dict[str, object]) -> None:
    known = Identities()
    found = [read({}, document, known) for _ in range(3)]
    assert all(one.is_single for one in found)
    assert len({one.session_id for one in found}) == 3


def test_id_that_the_protocol_does_not_know_stands_under_its_digest() -> None:
    odd = ["sess/ion 1", "ü" * 40, "x" * 500, "a,b"]
    found = [read({"x-session-id": one}).session_id for one in odd]
    assert found == [read({"x-session-id": one}).session_id for one in odd]
    assert len(set(found)) == len(odd)
    assert all(one.startswith("sha-") and len(one) == 36 for one in found)


def test_root_of_a_child_is_its_parents_root() -> None:
    known = Identities()
    child = read({"x-session-id": "c", "x-parent-session-id": "p"}, known=known)
    assert (child.parent_session_id, child.root_session_id) == ("p", "p")
    grandchild = read({"x-session-id": "g", "x-parent-session-id": "c"}, known=known)
    assert (grandchild.parent_session_id, grandchild.root_session_id) == ("c", "p")
    told = read({"x-session-id": "g", "x-tao-root-session": "r"}, known=known)
    assert told.root_session_id == "r"


def test_roots_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "ROOTS_MAX", 2)
    known = Identities()
    for number in range(5):
        read({"x-session-id": f"c{number}", "x-parent-session-id": "p"}, known=known)
    forgotten = read({"x-session-id": "g", "x-parent-session-id": "c0"}, known=known)
    assert forgotten.root_session_id == "c0"


@pytest.mark.parametrize(
    ("headers", "agent"),
    [
        ({}, ""),
        ({"x-claude-code-agent-id": "sub-1"}, "sub-1"),
        ({"x-tao-agent": "mine", "x-claude-code-agent-id": "sub-1"}, "mine"),
        ({"session-id": "s", "thread-id": "s"}, ""),
        ({"session-id": "s", "thread-id": "t"}, "t"),
    ],
)
def test_agents_have_prompts_of_their_own(headers: dict[str, str], agent: str) -> None:
    assert read({"x-tao-session": "s", **headers}).agent == agent


def test_embedding_of_a_session_leaves_the_session_alone() -> None:
    found = read({"x-session-id": "s"}, is_single=True)
    assert found.is_single
    assert found.session_id != "s"
    # It still counts for the session's root where tenants share.
    assert found.root_session_id == "s"


@pytest.mark.parametrize(("value", "priority"), [("3", 3), ("-7", -7), ("", 0), (" 2 ", 2)])
def test_priority(value: str, priority: int) -> None:
    assert read({"x-tao-priority": value}).priority == priority


@pytest.mark.parametrize("value", ["high", "1.5", "99999999", "1000001", "--1"])
def test_priority_that_makes_no_sense_is_refused(value: str) -> None:
    with pytest.raises(MalformedRequest, match="x-tao-priority"):
        read({"x-tao-priority": value})


@pytest.mark.parametrize(
    ("headers", "timeout_s"),
    [
        ({"x-stainless-read-timeout": "600"}, 600.0),
        ({"x-stainless-timeout": "12.5"}, 12.5),
        ({"x-stainless-timeout": "nan"}, None),
        ({"x-stainless-timeout": "0"}, None),
        ({"x-stainless-timeout": "999999"}, None),
        ({}, None),
    ],
)
def test_time_out_of_the_client(headers: dict[str, str], timeout_s: float | None) -> None:
    assert read(headers).timeout_s == timeout_s
