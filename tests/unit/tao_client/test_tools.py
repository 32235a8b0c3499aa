import asyncio
import functools
import inspect
import os
from collections.abc import AsyncGenerator, Generator, Iterator

import anyio
import pytest

import tao_client as tao
from tao_client import testing
from tao_client._events import Event


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("TAO_ENDPOINT", "TAO_TOOL_KEYS", "TAO_DISABLED"):
        monkeypatch.delenv(name, raising=False)
    testing.reset()
    yield
    testing.reset()


def tools(events: list[Event]) -> list[Event]:
    return [one for one in events if one.name.startswith("tao.tool.")]


def test_decorated_function_is_a_tool_call_inside_a_session() -> None:
    @tao.tool(timeout_s=30, name="search", key="grep", background=True)
    def find(pattern: str, limit: int = 3) -> str:
        """Of the tool."""
        return pattern * limit

    with testing.capture_events() as events:
        assert find("a") == "aaa"
        assert not events, "outside a session it is just called"
        with tao.session():
            assert find("b", limit=2) == "bb"
    start, end = tools(events)
    assert start.attributes["gen_ai.tool.name"] == end.attributes["gen_ai.tool.name"] == "search"
    assert start.attributes["gen_ai.tool.call.id"] == end.attributes["gen_ai.tool.call.id"]
    assert start.attributes["tao.tool.timeout"] == 30.0
    assert start.attributes["tao.tool.key"] == "grep"
    assert start.attributes["tao.tool.background"] is True
    assert "error.type" not in end.attributes
    assert find.__name__ == "find"
    assert find.__doc__ == "Of the tool."
    assert list(inspect.signature(find).parameters) == ["pattern", "limit"]


def test_decorated_async_function_stays_one() -> None:
    @tao.tool
    async def fetch(url: str) -> str:
        await asyncio.sleep(0)
        return url

    async def main() -> None:
        assert await fetch("a") == "a"
        async with tao.session():
            assert await fetch("b") == "b"

    assert inspect.iscoroutinefunction(fetch)
    with testing.capture_events() as events:
        asyncio.run(main())
    assert [one.name for one in tools(events)] == ["tao.tool.start", "tao.tool.end"]


def test_decorated_generator_is_a_call_from_its_first_item_to_its_last() -> None:
    @tao.tool
    def read(path: str) -> Generator[str, str, int]:
        """Of the tool."""
        try:
            sent = yield path
        except LookupError:
            sent = "caught"
        yield sent
        return 7

    assert inspect.isgeneratorfunction(read)
    assert list(read("outside")) == ["outside", None]
    with testing.capture_events() as events, tao.session():
        lines = read("a")
        assert not tools(events), "nothing runs yet"
        assert next(lines) == "a"
        assert [one.name for one in tools(events)] == ["tao.tool.start"]
        assert lines.send("b") == "b"
        with pytest.raises(StopIteration) as stop:
            next(lines)
        assert stop.value.value == 7
        assert [one.name for one in tools(events)] == ["tao.tool.start", "tao.tool.end"]
        lines = read("a")
        next(lines)
        assert lines.throw(LookupError()) == "caught"
        lines.close()
        with pytest.raises(OSError, match="of the caller"):
            next_then_throw(read("a"), OSError("of the caller"))
    ends = [one.attributes.get("error.type") for one in tools(events) if "end" in one.name]
    assert ends == [None, "cancelled", "OSError"]


def next_then_throw(lines: Generator[str, str, int], error: Exception) -> None:
    next(lines)
    lines.throw(error)


@pytest.mark.parametrize("loop", ["asyncio", "trio"])
def test_decorated_async_generator_is_a_call_from_its_first_item_to_its_last(loop: str) -> None:
    @tao.tool
    async def read(path: str) -> AsyncGenerator[str, str]:
        try:
            sent = yield path
        except LookupError:
            sent = "caught"
        yield sent

    async def main() -> None:
        assert [one async for one in read("outside")] == ["outside", None]
        async with tao.session():
            assert [one async for one in read("a")] == ["a", None]
            lines = read("a")
            assert await anext(lines) == "a"
            assert await lines.asend("b") == "b"
            await lines.aclose()
            lines = read("a")
            await anext(lines)
            assert await lines.athrow(LookupError()) == "caught"
            with pytest.raises(StopAsyncIteration):
                await anext(lines)
            lines = read("a")
            await anext(lines)
            with pytest.raises(OSError, match="of the caller"):
                await lines.athrow(OSError("of the caller"))

    assert inspect.isasyncgenfunction(read)
    with testing.capture_events() as events:
        anyio.run(main, backend=loop)
    ends = [one.attributes.get("error.type") for one in tools(events) if "end" in one.name]
    assert ends == [None, "cancelled", None, "OSError"]


def test_shell_tool_tells_the_head_of_its_command() -> None:
    @tao.tool
    def bash(command: str) -> None:
        pass

    @tao.tool
    def search(command: str) -> None:
        pass

    with testing.capture_events() as events, tao.session():
        bash("git commit -m 'secret'")
        bash(command="make test SECRET=1")
        search("git status")
    keys = [one.attributes.get("tao.tool.key") for one in tools(events) if "start" in one.name]
    assert keys == ["git commit", "make test", None]
    assert "secret" not in str(events).lower()


def test_shell_tool_without_a_command_has_no_key() -> None:
    @tao.tool
    def shell(*words: object) -> None:
        pass

    with testing.capture_events() as events, tao.session():
        shell()
        shell(["ls"])
    assert all("tao.tool.key" not in one.attributes for one in events)


def test_keys_can_be_switched_off(monkeypatch: pytest.MonkeyPatch) -> None:
    tao.connect("http://127.0.0.1:1", tool_keys=False)
    with (
        testing.capture_events() as events,
        tao.session() as s,
        s.tool_call("bash", command="git status"),
        s.tool_call("x", key="k"),
    ):
        pass
    assert all("tao.tool.key" not in one.attributes for one in events)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ValueError("x"), "ValueError"),
        (TimeoutError(), "timeout"),
        (KeyboardInterrupt(), "cancelled"),
        (asyncio.CancelledError(), "cancelled"),
    ],
)
def test_error_of_a_tool_is_told_and_passes(error: BaseException, told: str) -> None:
    @tao.tool
    def fail() -> None:
        raise error

    with testing.capture_events() as events, tao.session(), pytest.raises(type(error)) as caught:
        fail()
    assert caught.value is error
    assert tools(events)[-1].attributes["error.type"] == told


def test_progress_is_kept_inside_its_bounds() -> None:
    with testing.capture_events() as events, tao.session() as s, s.tool_call("x") as call:
        call.progress(1.7)
        call.progress(-1, remaining_s=-5)
        call.progress(float("nan"), remaining_s=4)
    told = [one.attributes for one in tools(events) if one.name == "tao.tool.progress"]
    assert [one.get("tao.tool.progress.ratio") for one in told] == [1.0, 0.0, None]
    assert [one.get("tao.tool.remaining") for one in told] == [None, 0.0, 4.0]


def test_call_ids_are_made_up_and_differ() -> None:
    s = tao.session()
    assert len({s.tool_call("x").id for _ in range(100)}) == 100
    assert s.tool_call("x", call_id="given").id == "given"


def test_call_ends_once_and_only_in_its_own_process(monkeypatch: pytest.MonkeyPatch) -> None:
    with testing.capture_events() as events, tao.session() as s:
        with s.tool_call("x") as call:
            monkeypatch.setattr(os, "getpid", lambda: -1)
            call.__exit__(None, None, None)
            monkeypatch.undo()
        call.__exit__(None, None, None)
    assert [one.name for one in tools(events)] == ["tao.tool.start", "tao.tool.end"]


def test_callable_without_a_name_is_called_after_its_kind() -> None:
    tool = tao.tool(functools.partial(divmod, 7))
    with testing.capture_events() as events, tao.session():
        assert tool(2) == (3, 1)
    assert events[1].attributes["gen_ai.tool.name"] == "partial"
    assert tao.agent(functools.partial(divmod, 7))(2) == (3, 1)


def test_shell_tool_that_is_a_method_has_its_commands_head_as_its_key() -> None:
    class Machine:
        @tao.tool
        def bash(self, command: str) -> str:
            return command

    with testing.capture_events() as events, tao.session():
        Machine().bash("git status")
        Machine().bash(command="git status")
    assert [one.attributes.get("tao.tool.key") for one in events[1:5:2]] == ["git status"] * 2
