import json
from pathlib import Path

import pytest

from tao_coordinator.errors import ConfigurationError
from tao_coordinator.service.sim_backend.rendering import RenderedCall, RenderedMessage
from tao_coordinator.service.sim_backend.scripts import FINAL_TEXT, load_scripts, parse_scripts

NO_ARGUMENTS: dict[str, str] = {}
CALL = {"name": "bash", "arguments": {"command": "ls"}}


def file_of(*turns: object, name: str = "fix") -> dict[str, object]:
    return {"scripts": {name: {"turns": list(turns)}}}


def message(role: str, content: str = "") -> RenderedMessage:
    return RenderedMessage(role, content)


def test_turn_follows_from_the_number_of_assistant_messages() -> None:
    library = parse_scripts(
        file_of({"text": "one", "tool_calls": [CALL], "output_tokens": 9}, {"text": "two"})
    )
    assert library.names == ("fix",)
    start = [message("system", "s"), message("user", "do it [[script fix]] now")]
    first = library.turn_for(start)
    assert first is not None
    assert (first.text, first.output_tokens) == ("one", 9)
    assert first.tool_calls == (RenderedCall("bash", '{"command":"ls"}'),)
    answered = [*start, message("assistant", "one"), message("tool", "out")]
    second = library.turn_for(answered)
    assert second is not None
    assert (second.text, second.output_tokens) == ("two", None)
    past = library.turn_for([*answered, message("assistant", "two")])
    assert past is not None
    assert past.text == FINAL_TEXT


def test_chat_without_a_known_marker_plays_no_script() -> None:
    library = parse_scripts(file_of({"text": "one"}))
    assert library.turn_for([message("user", "nothing here")]) is None
    assert library.turn_for([message("user", "[[script other]]")]) is None


def test_first_known_marker_wins() -> None:
    library = parse_scripts(
        {"scripts": {"a": {"turns": [{"text": "A"}]}, "b b": {"turns": [{"text": "B"}]}}}
    )
    turn = library.turn_for([message("user", "[[script none]] [[script b b]] [[script a]]")])
    assert turn is not None
    assert turn.text == "B"


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "the file: must be an object"),
        ({"script": {}}, "the file: unknown key 'script' (known: scripts)"),
        ({}, "scripts: must be an object"),
        ({"scripts": {"a": []}}, "scripts.a: must be an object"),
        ({"scripts": {"a]": {"turns": []}}}, "scripts.a]: a name is not blank"),
        ({"scripts": {" ": {"turns": []}}}, "a name is not blank"),
        ({"scripts": {"a": {"turns": {}}}}, "scripts.a.turns: must be a list"),
        ({"scripts": {"a": {"turns": []}}}, "scripts.a.turns: has no turns"),
        (file_of({"text": "x"}, 5), "scripts.fix.turns[1]: must be an object"),
        (file_of({}), "scripts.fix.turns[0]: needs a text or a tool call"),
        (file_of({"text": 5}), "turns[0].text: must be a string"),
        (file_of({"text": "x", "tokens": 5}), "turns[0]: unknown key 'tokens'"),
        (file_of({"text": "x", "output_tokens": 0}), "turns[0].output_tokens: must be a whole"),
        (file_of({"text": "x", "output_tokens": True}), "turns[0].output_tokens: must be a whole"),
        (file_of({"tool_calls": 5}), "turns[0].tool_calls: must be a list"),
        (file_of({"tool_calls": ["x"]}), "turns[0].tool_calls[0]: must be an object"),
        (
            file_of({"tool_calls": [{"arguments": NO_ARGUMENTS}]}),
            "tool_calls[0].name: must be a string",
        ),
        (file_of({"tool_calls": [{"name": "x"}]}), "tool_calls[0].arguments: must be an object"),
    ],
)
def test_bad_script_is_refused_with_its_place(document: object, message: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_scripts(document)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_script_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "script.json"
    path.write_text(json.dumps(file_of({"text": "one"})), encoding="utf-8")
    assert load_scripts(path).names == ("fix",)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "is no JSON"), ("[]", "must be an object"), (None, "cannot read")],
)
def test_bad_script_file_is_named(tmp_path: Path, content: str | None, message: str) -> None:
    path = tmp_path / "script.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigurationError, match=message) as caught:
        load_scripts(path)
    assert str(path) in str(caught.value)
