"""Telling formats apart, joining files, and the command head that all readers share."""

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from trace_rows import (
    agent_rows,
    claude_rows,
    lines,
    mini_document,
    mooncake_rows,
    tracelab_rows,
    weka_document,
)

from tao_client import _tools as sdk
from tao_coordinator.core.command_head import command_head
from tao_coordinator.traces.formats import FORMATS, detect, joined, read
from tao_coordinator.traces.records import MalformedTrace

EXAMPLES = {
    "agent-trace": lines(agent_rows()),
    "claude-code": lines(claude_rows()),
    "mini-swe-agent": json.dumps(mini_document(), indent=2),
    "mooncake": lines(mooncake_rows()),
    "tracelab": lines(tracelab_rows()),
    "weka": json.dumps(weka_document()),
}


def test_every_format_is_recognised_by_its_content() -> None:
    assert set(EXAMPLES) == set(FORMATS)
    for name, text in EXAMPLES.items():
        assert detect(text) == name
        assert read(text, "file").format == name


def test_damaged_lines_in_front_do_not_hide_the_format() -> None:
    assert detect("oops\n\n" + EXAMPLES["mooncake"]) == "mooncake"


@pytest.mark.parametrize("text", ["", "hello", "[1, 2]", '{"a": 1}', '{"a":\n1}'])
def test_unknown_text_is_refused(text: str) -> None:
    with pytest.raises(MalformedTrace, match="no known trace format"):
        read(text, "file")


def test_unknown_format_name_is_refused() -> None:
    with pytest.raises(MalformedTrace, match="unknown trace format 'csv'"):
        read("x", "file", "csv")


def test_named_format_wins_over_the_content() -> None:
    with pytest.raises(MalformedTrace, match="Weka"):
        read('{"input_length": 3}', "file", "weka")


def test_joined_traces_keep_all_sessions_apart() -> None:
    one = read(EXAMPLES["agent-trace"], "a")
    other = read(EXAMPLES["mooncake"] + "oops\n", "b")
    both = joined([one, one, other])
    names = [session.session_id for session in both.sessions]
    assert names == ["s", "s#2", "b:0", "b:1"]
    assert both.format == "agent-trace+mooncake"
    assert both.skipped.count == 1
    with pytest.raises(MalformedTrace):
        joined([])


@given(st.text(max_size=200))
def test_any_text_is_a_trace_or_refused(text: str) -> None:
    with contextlib.suppress(MalformedTrace):
        assert read(text, "file").num_turns > 0


COMMANDS = [
    "cd /repo && PYTHONPATH=. python -m pytest -q tests/test_secret.py",
    "sudo timeout 60 git -C secret log --oneline",
    "ls -la | head",
    "/usr/bin/python3.11 script.py",
    "export A=1; pip install secret",
    "cat << EOF > x",
    "(a; b)",
    "",
    "$SECRET",
    "source .venv/bin/activate\npytest",
    "docker --host x run image",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_command_head_is_the_sdks(command: str) -> None:
    assert command_head(command) == (sdk.command_head(command) or "")


@given(st.text(alphabet="abg it-mpython\n;|&=$./ <()", max_size=60))
def test_command_head_of_any_command_is_the_sdks(command: str) -> None:
    assert command_head(command) == (sdk.command_head(command) or "")
