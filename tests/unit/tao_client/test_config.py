from collections.abc import Sequence
from typing import Any

import pytest

from tao_client._config import Config, has_endpoint_variable, is_disabled, resolve_config
from tao_client.errors import ConfigurationError, TaoError


@pytest.fixture(autouse=True)
def _empty_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TAO_ENDPOINT", "TAO_API_KEY", "TAO_TOOL_KEYS", "TAO_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.delenv("OTEL_SDK_DISABLED", raising=False)


def test_arguments_win_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAO_ENDPOINT", "http://from-environment:1")
    monkeypatch.setenv("TAO_API_KEY", "environment")
    assert resolve_config() == Config(("http://from-environment:1",), "environment")
    assert resolve_config("http://given:2", api_key="given") == Config(("http://given:2",), "given")
    assert has_endpoint_variable()


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("http://c:8700", "http://c:8700"),
        ("http://c:8700/", "http://c:8700"),
        (" https://c.example/tao/ ", "https://c.example/tao"),
        ("http://[::1]:8700", "http://[::1]:8700"),
    ],
)
def test_endpoint_is_kept_in_one_form(given: str, kept: str) -> None:
    assert resolve_config(given).endpoints == (kept,)


@pytest.mark.parametrize(
    "given",
    [
        "http://a:8700,http://b:8700",
        " http://a:8700/ , http://b:8700 , http://a:8700,",
        ["http://a:8700", "http://b:8700"],
        ("http://a:8700/", "http://b:8700"),
    ],
)
def test_several_endpoints_are_kept_once_each_and_in_order(
    given: str | Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = ("http://a:8700", "http://b:8700")
    assert resolve_config(given).endpoints == kept
    if isinstance(given, str):
        monkeypatch.setenv("TAO_ENDPOINT", given)
        assert resolve_config().endpoints == kept


def test_more_endpoints_than_can_share_the_time_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="at most 4"):
        resolve_config([f"http://c{number}" for number in range(5)])


@pytest.mark.parametrize(
    "given",
    [
        "",
        ",",
        [],
        ["http://a", "coordinator"],
        "coordinator:8700",
        "coordinator",
        "ftp://c:1",
        "http://",
        "http://c:port",
        "http://c:0",
        "http://[::1",
        "http://c/?pool=1",
        "http://c/#x",
        "http://user:password@c",
    ],
)
def test_endpoint_that_cannot_work_is_refused_with_the_fix(given: str | Sequence[str]) -> None:
    with pytest.raises(ConfigurationError, match='"http://coordinator:8700"') as caught:
        resolve_config(given)
    assert isinstance(caught.value, TaoError)
    assert isinstance(caught.value, ValueError)
    assert "password" not in str(caught.value)


@pytest.mark.parametrize("given", [7, ["http://a", 3], b"http://a"])
def test_endpoint_that_is_no_text_is_refused_with_the_fix(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="pass text, for example"):
        resolve_config(given)


@pytest.mark.parametrize("key", ["two words", "line\n", "umläut"])
def test_key_that_no_header_can_carry_is_refused_and_not_shown(key: str) -> None:
    with pytest.raises(ConfigurationError, match="stray line break") as caught:
        resolve_config("http://c", api_key=key)
    assert key not in str(caught.value)


def test_key_is_not_shown_in_representations() -> None:
    assert "secret" not in repr(resolve_config("http://c", api_key="secret"))


@pytest.mark.parametrize(("word", "events"), [("true", False), ("TRUE", False), ("1", True)])
def test_otel_switch_turns_events_off(
    monkeypatch: pytest.MonkeyPatch, word: str, events: bool
) -> None:
    """OpenTelemetry's specification: only `true` counts, in any case."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", word)
    assert resolve_config("http://c").events is events
    assert resolve_config("http://c", events=True).events


@pytest.mark.parametrize(("word", "kept"), [("0", False), ("off", False), ("1", True), ("", True)])
def test_tool_keys_can_be_switched_off(
    monkeypatch: pytest.MonkeyPatch, word: str, kept: bool
) -> None:
    monkeypatch.setenv("TAO_TOOL_KEYS", word)
    assert resolve_config("http://c").tool_keys is kept
    assert not resolve_config("http://c", tool_keys=False).tool_keys


@pytest.mark.parametrize(("word", "off"), [("1", True), ("yes", True), ("0", False), ("", False)])
def test_disabled_variable(monkeypatch: pytest.MonkeyPatch, word: str, off: bool) -> None:
    monkeypatch.setenv("TAO_DISABLED", word)
    assert is_disabled() is off
