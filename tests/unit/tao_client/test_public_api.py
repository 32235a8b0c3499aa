"""The names and shapes that others build on."""

import inspect
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import tao_client
from tao_client import errors, testing

PUBLIC = {
    "Affinity",
    "ConfigurationError",
    "HoldInfo",
    "HoldTimeoutError",
    "Receipt",
    "Session",
    "SpanProcessor",
    "TaoError",
    "ToolCall",
    "Turn",
    "UnsupportedClientError",
    "agent",
    "async_http_client",
    "connect",
    "current_session",
    "disconnect",
    "http_client",
    "session",
    "tool",
    "wrap",
}


def test_public_names_are_these() -> None:
    found = {
        name
        for name in dir(tao_client)
        if not name.startswith("_") and not isinstance(getattr(tao_client, name), ModuleType)
    }
    assert found == PUBLIC
    for name in PUBLIC:
        assert inspect.getdoc(getattr(tao_client, name)), f"{name} needs a docstring"


def test_every_error_is_drawn_in_the_tree() -> None:
    for name in errors.__all__:
        assert issubclass(getattr(errors, name), errors.TaoError)
        assert name in (errors.__doc__ or "")


def test_testing_names_are_these() -> None:
    assert set(testing.__all__) == {
        "AttributeValue",
        "Event",
        "Reply",
        "ScriptedModel",
        "ToolRequest",
        "capture_events",
        "reset",
    }


def test_public_types_are_complete() -> None:
    tools = str(Path(sys.executable).parent)
    done = subprocess.run(
        [sys.executable, "-m", "pyright", "--verifytypes", "tao_client", "--ignoreexternal"],
        env=os.environ | {"PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
    )
    assert "Type completeness score: 100%" in done.stdout, done.stdout[-2000:]
